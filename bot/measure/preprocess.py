"""From a decoded picture and a box to the tensor that a network takes.

The order is that of the image processors that most networks are published with: crop, resize on 8-bit pixels, scale,
subtract the mean, divide by the standard deviation. Resizing is Pillow's, which widens its filter when it shrinks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from bot.errors import RecipeError
from bot.records import Json, Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

Box = tuple[float, float, float, float]
"""Left, top, width, height, in pixels of the upright picture."""


class BoxOutsideError(Exception):
    """A box shares no pixel with its picture."""


class ImageSpec(Record):
    """How a network wants its pictures.

    Attributes:
        size: Height and width in pixels.
        resample: Pillow's filter of that name; `area` is its box filter.
        scale: What a pixel value of 0..255 is multiplied with.
        mean: Per channel, in the order of `color`, subtracted after scaling.
        std: Per channel, divided by after that.
        crop_padding: How much a box is widened on every side, as a share of that side.
        layout: Order of the axes.
        color: Order of the channels.
        fit: `stretch` ignores the aspect; `letterbox` keeps it and fills the rest with `pad_value`.
        place: Where a letterbox puts the picture.
        pad_value: Pixel value, 0..255, of the bars of a letterbox.
    """

    size: tuple[int, int]
    resample: Literal["bicubic", "bilinear", "area", "nearest", "lanczos"] = "bilinear"
    scale: float = 1.0
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    crop_padding: float = Field(default=0.0, ge=0.0, le=10.0)
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    color: Literal["RGB", "BGR"] = "RGB"
    fit: Literal["stretch", "letterbox"] = "stretch"
    place: Literal["center", "top-left"] = "center"
    pad_value: int = Field(default=0, ge=0, le=255)

    @property
    def row_shape(self) -> tuple[int, int, int]:
        """Shape of one sample."""
        height, width = self.size
        return (3, height, width) if self.layout == "NCHW" else (height, width, 3)

    @property
    def dtype(self) -> str:
        """Of one sample."""
        return "<f4"


def parse_image_spec(key: str, spec: Json) -> ImageSpec:
    """Reads the description of an image input.

    Args:
        key: Name of the input, for errors.
        spec: Plain data.

    Raises:
        RecipeError: It is not understood, or a size or a standard deviation is not positive.
    """
    try:
        parsed = ImageSpec.model_validate(spec)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RecipeError(f"is not understood: {first['msg']}", where=f"inputs.{key}.image.{place}") from error
    if not all(1 <= side <= 16_384 for side in parsed.size):
        raise RecipeError("must be a height and a width from 1 to 16384", where=f"inputs.{key}.image.size")
    if not all(value > 0 for value in parsed.std):
        raise RecipeError("must be three numbers above 0", where=f"inputs.{key}.image.std")
    return parsed


def crop_edges(box: Box, padding: float, picture: tuple[int, int]) -> tuple[int, int, int, int]:
    """The pixels to cut out for a box: widened by `padding` of each side, clamped, rounded to whole pixels.

    Args:
        box: Left, top, width, height.
        padding: Share of the width that is added left and right, and of the height above and below.
        picture: Width and height of the picture.

    Returns:
        Left, top, right, bottom; right and bottom are exclusive. Never empty, never outside the picture.

    Raises:
        BoxOutsideError: The box, before it is widened, shares nothing with the picture, or has no finite size.
    """
    left, top, width, height = box
    inside = all(math.isfinite(value) for value in box) and width > 0 and height > 0
    if not inside or left >= picture[0] or top >= picture[1] or left + width <= 0 or top + height <= 0:
        raise BoxOutsideError
    horizontal = _span(left - padding * width, left + (1 + padding) * width, picture[0])
    vertical = _span(top - padding * height, top + (1 + padding) * height, picture[1])
    return horizontal[0], vertical[0], horizontal[1], vertical[1]


def _span(low: float, high: float, limit: int) -> tuple[int, int]:
    first = min(max(math.floor(low + 0.5), 0), limit - 1)
    last = min(max(math.floor(high + 0.5), first + 1), limit)
    return first, last


@dataclass(frozen=True)
class Placement:
    """Where a picture, or what was cut out of it, lies in the tensor: size and corner in the tensor's pixels.

    Attributes:
        size: Width and height.
        left: Columns to its left.
        top: Rows above it.
        scale: The tensor's pixels per pixel of the picture, across and down.
    """

    size: tuple[int, int]
    left: int
    top: int
    scale: tuple[float, float]

    def box(self, box: Box) -> Box:
        """A box of the picture in the tensor's pixels: left, top, width, height."""
        across, down = self.scale
        return (box[0] * across + self.left, box[1] * down + self.top, box[2] * across, box[3] * down)


def placement(picture: tuple[int, int], spec: ImageSpec) -> Placement:
    """Where a picture of some width and height comes to lie.

    A letterbox takes the largest size of the picture's aspect ratio that fits, in whole pixels. An odd row or column
    goes below or to the right.
    """
    height, width = spec.size
    if spec.fit == "stretch":
        size, left, top = (width, height), 0, 0
    else:
        ratio = min(width / picture[0], height / picture[1])
        size = (max(1, round(picture[0] * ratio)), max(1, round(picture[1] * ratio)))
        centred = spec.place == "center"
        left, top = ((width - size[0]) // 2, (height - size[1]) // 2) if centred else (0, 0)
    return Placement(size, left, top, (size[0] / picture[0], size[1] / picture[1]))


def to_tensor(picture: Image.Image, box: Box | None, spec: ImageSpec) -> NDArray[np.float32]:
    """One sample for a network.

    Args:
        picture: An upright RGB picture.
        box: What to cut out; None takes the whole picture, which is not widened.
        spec: What the network wants.

    Returns:
        float32 of shape (3, height, width), or (height, width, 3) for NHWC.

    Raises:
        BoxOutsideError: The box shares no pixel with the picture.
    """
    import numpy as np

    if box is not None:
        picture = picture.crop(crop_edges(box, spec.crop_padding, picture.size))
    pixels = np.asarray(_resize(picture, spec), dtype=np.float32)
    if spec.color == "BGR":
        pixels = pixels[:, :, ::-1]
    mean, std = np.array(spec.mean, np.float32), np.array(spec.std, np.float32)
    values = (pixels * np.float32(spec.scale) - mean) / std
    if spec.layout == "NCHW":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values, dtype=np.float32)


def _resize(picture: Image.Image, spec: ImageSpec) -> Image.Image:
    from PIL import Image

    filters = {
        "bicubic": Image.Resampling.BICUBIC,
        "bilinear": Image.Resampling.BILINEAR,
        "area": Image.Resampling.BOX,
        "nearest": Image.Resampling.NEAREST,
        "lanczos": Image.Resampling.LANCZOS,
    }
    height, width = spec.size
    placed = placement(picture.size, spec)
    resized = picture.resize(placed.size, filters[spec.resample])
    if placed.size == (width, height):
        return resized
    canvas = Image.new("RGB", (width, height), (spec.pad_value,) * 3)
    canvas.paste(resized, (placed.left, placed.top))
    return canvas
