import numpy as np


def in_picture(boxes, picture, size):
    """Boxes in pixels of the picture instead of those of the input."""
    width, height, left, top = place(picture, size)  # noqa: F821
    scale = [picture.width / width, picture.height / height]
    return (boxes - [left, top, left, top]) * np.tile(scale, 2)
