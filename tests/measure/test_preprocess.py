"""Crops and tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring_material import drawn_face
from PIL import Image

from bot.errors import RecipeError
from bot.measure.preprocess import BoxOutsideError, ImageSpec, crop_edges, parse_image_spec, to_tensor

sides = st.integers(1, 400)
boxes = st.tuples(st.floats(-500, 500), st.floats(-500, 500), st.floats(0.1, 900), st.floats(0.1, 900))
whole_boxes = st.tuples(st.floats(-500, 500), st.floats(-500, 500), st.floats(1, 900), st.floats(1, 900))


@given(box=boxes, padding=st.floats(0, 2), picture=st.tuples(sides, sides))
def test_a_crop_is_never_empty_and_never_outside(box, padding, picture) -> None:
    try:
        left, top, right, bottom = crop_edges(box, padding, picture)
    except BoxOutsideError:
        x, y, width, height = box
        assert x >= picture[0] or y >= picture[1] or x + width <= 0 or y + height <= 0
        return
    assert 0 <= left < right <= picture[0]
    assert 0 <= top < bottom <= picture[1]


@given(box=whole_boxes, picture=st.tuples(sides, sides), paddings=st.tuples(st.floats(0, 2), st.floats(0, 2)))
def test_more_padding_never_gives_a_smaller_crop(box, picture, paddings) -> None:
    try:
        small, large = (crop_edges(box, padding, picture) for padding in sorted(paddings))
    except BoxOutsideError:
        return
    assert large[0] <= small[0] and large[1] <= small[1]
    assert large[2] >= small[2] and large[3] >= small[3]


def test_a_box_is_widened_by_a_share_of_each_side() -> None:
    assert crop_edges((100, 200, 50, 80), 0.10, (1000, 1000)) == (95, 192, 155, 288)


def test_a_widened_box_is_clamped_to_the_picture() -> None:
    assert crop_edges((2, 5, 100, 100), 0.10, (106, 104)) == (0, 0, 106, 104)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_box_that_is_not_finite_is_outside(value: float) -> None:
    with pytest.raises(BoxOutsideError):
        crop_edges((value, 0, 10, 10), 0.1, (100, 100))


def test_the_face_age_network_s_preprocessing_in_plain_steps() -> None:
    """Crop with a tenth around, bicubic whatever the aspect, to 0..1, then ImageNet's mean and deviation."""
    picture = drawn_face(1, (200, 300))
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    spec = parse_image_spec(
        "face",
        {"size": [224, 160], "resample": "bicubic", "scale": 1 / 255, "mean": mean, "std": std, "crop_padding": 0.10},
    )
    expected = np.asarray(picture.crop((44, 48, 116, 132)).resize((160, 224), Image.Resampling.BICUBIC), np.float64)
    expected = ((expected / 255 - mean) / std).transpose(2, 0, 1)

    tensor = to_tensor(picture, (50, 55, 60, 70), spec)

    assert tensor.shape == (3, 224, 160)
    assert tensor.dtype == np.float32
    np.testing.assert_allclose(tensor, expected, atol=2e-6)


def test_channels_and_axes_in_the_order_that_is_asked_for() -> None:
    picture = Image.new("RGB", (8, 8), (10, 20, 30))
    rgb = to_tensor(picture, None, ImageSpec(size=(4, 5)))
    bgr = to_tensor(picture, None, ImageSpec(size=(4, 5), color="BGR", layout="NHWC"))
    assert rgb[:, 0, 0].tolist() == [10, 20, 30]
    assert bgr.shape == (4, 5, 3)
    assert bgr[0, 0].tolist() == [30, 20, 10]


def test_mean_and_deviation_follow_the_order_of_the_channels() -> None:
    picture = Image.new("RGB", (8, 8), (10, 20, 30))
    spec = ImageSpec(size=(4, 4), color="BGR", mean=(30, 20, 10), std=(1, 2, 4))
    assert not to_tensor(picture, None, spec).any()


def test_a_letterbox_keeps_the_aspect_and_centres() -> None:
    picture = Image.new("RGB", (40, 20), (255, 255, 255))
    tensor = to_tensor(picture, None, ImageSpec(size=(40, 40), fit="letterbox", pad_value=114))
    assert (tensor[:, :10] == 114).all() and (tensor[:, 30:] == 114).all()
    assert (tensor[:, 10:30] == 255).all()


@pytest.mark.parametrize("resample", ["nearest", "bilinear", "bicubic", "area", "lanczos"])
def test_every_filter_leaves_an_even_picture_even(resample: str) -> None:
    spec = parse_image_spec("face", {"size": [7, 9], "resample": resample})
    assert (to_tensor(Image.new("RGB", (31, 17), (5, 5, 5)), None, spec) == 5).all()


@pytest.mark.parametrize(
    "wrong, place",
    [
        ({"size": [0, 4]}, "inputs.face.image.size"),
        ({"size": [4, 4], "std": [1, 0, 1]}, "inputs.face.image.std"),
        ({"size": [4, 4], "resample": "cubist"}, "inputs.face.image.resample"),
        ({"size": [4, 4], "colour": "RGB"}, "inputs.face.image.colour"),
        ({}, "inputs.face.image.size"),
    ],
)
def test_a_wrong_description_is_named_with_its_place(wrong: dict[str, object], place: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_image_spec("face", wrong)
    assert caught.value.where.startswith(place)
