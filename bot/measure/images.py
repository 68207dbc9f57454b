"""Decoding pictures that nobody vouches for: bounded in bytes and pixels, upright, three channels."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

MAX_BYTES = 64 * 1024 * 1024
"""The largest picture file that is read."""

MAX_PIXELS = 64_000_000
"""The largest picture that is decoded. A few kilobytes can claim gigabytes of pixels; this looks at the claim first."""

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")


class PictureError(Exception):
    """A picture cannot be used. Its text is one of a few fixed reasons, so that they can be counted."""


def decode(data: bytes) -> Image.Image:
    """Decodes a picture file into an upright RGB picture.

    The orientation that a camera recorded is applied. Palettes, grey, 16-bit grey, CMYK and the like are converted;
    transparent parts show white, as on a page. Of several frames the first counts.

    Raises:
        PictureError: The file is too large, claims too many pixels, is broken, or is of no format that is read here.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    if len(data) > MAX_BYTES:
        raise PictureError("file too large")
    try:
        with warnings.catch_warnings():
            # Pillow warns of what is checked below, and of metadata that does not matter here.
            warnings.simplefilter("ignore")
            picture = Image.open(io.BytesIO(data), formats=_FORMATS)
            if picture.width * picture.height > MAX_PIXELS:
                raise PictureError("too many pixels")
            picture.load()
            return _as_rgb(ImageOps.exif_transpose(picture))
    except PictureError:
        raise
    except UnidentifiedImageError as error:
        raise PictureError("not a picture") from error
    except Image.DecompressionBombError as error:
        raise PictureError("too many pixels") from error
    except Exception as error:
        # Decoders raise whatever they like on bytes that were made to hurt: OSError, SyntaxError, struct.error, …
        raise PictureError("broken picture") from error


def _as_rgb(picture: Image.Image) -> Image.Image:
    from PIL import Image

    if picture.mode.startswith("I"):
        picture = _grey_from_wide(picture)
    if picture.mode == "F":
        raise PictureError("pixels are not integers")
    if picture.mode in {"RGBA", "LA", "PA", "RGBa", "La"} or "transparency" in picture.info:
        colored = picture.convert("RGBA")
        page = Image.new("RGBA", colored.size, (255, 255, 255, 255))
        return Image.alpha_composite(page, colored).convert("RGB")
    return picture.convert("RGB")


def _grey_from_wide(picture: Image.Image) -> Image.Image:
    """16-bit grey as 8-bit grey. Pillow's own conversion cuts at 255 instead of scaling."""
    import numpy as np
    from PIL import Image

    values = np.asarray(picture).astype(np.int64)
    if values.min() < 0 or values.max() > 65_535:
        raise PictureError("pixels are wider than 16 bits")
    return Image.fromarray((values >> 8).astype(np.uint8))
