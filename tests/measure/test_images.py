"""Pictures that nobody vouches for."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measuring_material import drawn_face, encoded
from PIL import Image

from bot.measure import images
from bot.measure.images import PictureError, decode

FACE = drawn_face(3)


def png_header(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be of some size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("BMP", {}), ("TIFF", {}), ("WEBP", {"lossless": True})])
def test_lossless_formats_come_back_as_they_were(kind: str, options: dict[str, object]) -> None:
    assert np.array_equal(np.asarray(decode(encoded(FACE, kind, **options))), np.asarray(FACE))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_camera_s_orientation_is_undone(orientation: int) -> None:
    operations = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = FACE.transpose(operations[orientation]) if orientation > 1 else FACE
    assert np.array_equal(np.asarray(decode(encoded(stored, "PNG", exif=exif))), np.asarray(FACE))


def test_palette_grey_and_bilevel() -> None:
    palette = FACE.quantize(16)
    assert np.array_equal(np.asarray(decode(encoded(palette))), np.asarray(palette.convert("RGB")))
    grey = np.asarray(decode(encoded(FACE.convert("L"))))
    assert np.array_equal(grey[:, :, 0], np.asarray(FACE.convert("L")))
    assert set(np.unique(np.asarray(decode(encoded(FACE.convert("1")))))) <= {0, 255}


def test_transparent_parts_show_white() -> None:
    picture = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert (np.asarray(decode(encoded(picture))) == 255).all()
    half = np.asarray(decode(encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 128)))))
    assert (np.abs(half.astype(int) - 127) <= 1).all()
    assert (np.asarray(decode(encoded(Image.new("LA", (4, 4), (0, 0))))) == 255).all()


def test_a_transparent_colour_of_a_palette_shows_white() -> None:
    picture = Image.new("P", (4, 4), 1)
    picture.putpalette([0, 0, 0, 10, 20, 30] + [0] * 762)
    assert (np.asarray(decode(encoded(picture, "PNG", transparency=1))) == 255).all()
    assert np.asarray(decode(encoded(picture, "PNG", transparency=0)))[0, 0].tolist() == [10, 20, 30]


def test_sixteen_bit_grey_is_scaled_and_not_cut() -> None:
    ramp = np.arange(0, 65_536, 256, dtype=np.uint16).reshape(16, 16)
    assert np.array_equal(np.asarray(decode(encoded(Image.fromarray(ramp))))[:, :, 1], (ramp >> 8).astype(np.uint8))


def test_cmyk_becomes_rgb() -> None:
    picture = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    assert np.abs(np.asarray(decode(encoded(picture, "JPEG"))).astype(int) - [255, 0, 0]).max() < 6


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
        (png_header(100_000, 100_000), "too many pixels"),
        (png_header(8_001, 8_000), "too many pixels"),
        (png_header(80, 80), "broken picture"),
        (encoded(FACE, "JPEG")[:400], "broken picture"),
        (encoded(FACE)[:300], "broken picture"),
        (encoded(Image.fromarray(np.full((4, 4), 0.5, np.float32)), "TIFF"), "pixels are not integers"),
        (encoded(Image.fromarray(np.full((4, 4), 70_000, np.int32)), "TIFF"), "pixels are wider than 16 bits"),
    ],
)
def test_what_cannot_be_used_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(PictureError) as caught:
        decode(data)
    assert str(caught.value) == reason


def test_a_file_too_large_is_not_even_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", 10)
    with pytest.raises(PictureError, match="file too large"):
        decode(encoded(FACE))


def test_formats_that_could_start_programs_are_not_read() -> None:
    with pytest.raises(PictureError, match="not a picture"):
        decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")


@settings(max_examples=60, deadline=None)
@given(
    position=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255), kind=st.sampled_from(["JPEG", "PNG", "GIF"])
)
def test_damage_is_a_reason_and_never_another_error(position: float, value: int, kind: str) -> None:
    data = bytearray(encoded(FACE, kind))
    data[int(position * len(data))] = value
    try:
        assert decode(bytes(data)).mode == "RGB"
    except PictureError as error:
        assert str(error)
