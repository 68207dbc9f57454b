"""From the outputs of a detector's head to detections.

Two kinds of heads are read. A **YOLO** (v8, v9, 11 as Ultralytics exports them) gives one output (batch, 4 + classes,
anchors): centre, width and height in pixels of the input, then a score per class; the distribution over the box sides
is decoded in the graph. The end-to-end kind gives (batch, boxes, 6): left, top, right, bottom, score, class, and wants
no suppression. **YuNet** (Wu, Peng and Yu, "YuNet: a tiny millisecond-level face detector") gives four outputs for each
of the strides 8, 16 and 32: `cls_S` and `obj_S`, whose geometric mean is the score; `bbox_S`, the centre as an offset
from the cell and the logarithms of the sides, in strides; `kps_S`, five landmarks as offsets from the cell, in strides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.measure.detection.boxes import Detections, Floats, detections, suppress
from bot.measure.detection.plan import DetectionPlan

Array = NDArray[Any]

STRIDES = (8, 16, 32)
YUNET_PARTS = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
"""Columns of each of YuNet's outputs, by the first part of its name."""

MOST_CANDIDATES = 30_000
"""Boxes of one picture that go into suppression at most, the best ones."""


def read(
    kind: str, outputs: dict[str, Array], plan: DetectionPlan, size: tuple[int, int] | None, floor: float
) -> list[Detections]:
    """The detections in each picture.

    Args:
        kind: `yolo` or `yunet`.
        outputs: The outputs that it reads, by name; a YOLO has one.
        plan: How boxes are suppressed.
        size: Height and width of the network's input in pixels; a YOLO does without.
        floor: Lowest score that counts.

    Raises:
        StepError: The outputs are not those of such a head.
    """
    if kind == "yolo":
        (output,) = outputs.values()
        return read_yolo(output, plan, floor)
    if size is None:
        raise StepError("YuNet's boxes can only be read where its one input is a picture")
    return read_yunet(outputs, size, plan, floor)


def read_yolo(output: Array, plan: DetectionPlan, floor: float) -> list[Detections]:
    """The detections in each picture of a YOLO's output.

    Args:
        output: (batch, 4 + classes, anchors), or (batch, boxes, 6) where the plan says `end_to_end`.
        plan: How boxes are suppressed.
        floor: Lowest score that counts.

    Raises:
        StepError: The output has another shape.
    """
    if plan.end_to_end:
        if output.ndim != 3 or output.shape[2] != 6:
            raise StepError(f"an end-to-end detector gives (batch, boxes, 6), and this output is {list(output.shape)}")
        return [_end_to_end(row, plan, floor) for row in output]
    if output.ndim != 3 or output.shape[1] < 5:
        raise StepError(f"a YOLO gives (batch, 4 + classes, anchors), and this output is {list(output.shape)}")
    return [_anchors(row, plan, floor) for row in output]


def _end_to_end(row: Array, plan: DetectionPlan, floor: float) -> Detections:
    values = np.asarray(row, np.float64)
    found = detections(values[:, :4], values[:, 4], np.rint(values[:, 5]).astype(np.int64))
    return _best(found, floor, plan.limit)


def _anchors(row: Array, plan: DetectionPlan, floor: float) -> Detections:
    classes = row[4:].argmax(axis=0)
    scores = row[4:].max(axis=0)
    chosen = np.flatnonzero(scores >= floor)
    centre, half = np.asarray(row[:2, chosen].T, np.float64), np.asarray(row[2:4, chosen].T, np.float64) / 2
    boxes = np.concatenate([centre - half, centre + half], axis=1)
    found = detections(boxes, scores[chosen], classes[chosen])
    return suppress(_best(found, floor, MOST_CANDIDATES), plan.nms, plan.limit)


def read_yunet(outputs: dict[str, Array], size: tuple[int, int], plan: DetectionPlan, floor: float) -> list[Detections]:
    """The faces in each picture of YuNet's outputs.

    Args:
        outputs: The twelve outputs by name, each (batch, cells, columns).
        size: Height and width of the network's input in pixels.
        plan: How boxes are suppressed.
        floor: Lowest score that counts.

    Raises:
        StepError: An output is missing, or does not have a row for each cell of its stride.
    """
    height, width = size
    for stride in STRIDES:
        cells = (height // stride) * (width // stride)
        for part, columns in YUNET_PARTS.items():
            name = f"{part}_{stride}"
            if name not in outputs:
                raise StepError(f"YuNet has an output {name}, which is not there")
            if outputs[name].shape[1:] != (cells, columns):
                wanted = f"[batch, {cells}, {columns}]"
                raise StepError(f"the output {name} is {list(outputs[name].shape)} and not {wanted} for this input")
    count = len(outputs[f"cls_{STRIDES[0]}"])
    return [_faces({name: array[row] for name, array in outputs.items()}, width, plan, floor) for row in range(count)]


def _faces(outputs: dict[str, Array], width: int, plan: DetectionPlan, floor: float) -> Detections:
    boxes, scores, points = [], [], []
    for stride in STRIDES:
        cls, obj, bbox, kps = (np.asarray(outputs[f"{part}_{stride}"], np.float64) for part in YUNET_PARTS)
        confidence = np.sqrt(np.clip(cls[:, 0], 0.0, 1.0) * np.clip(obj[:, 0], 0.0, 1.0))
        chosen = np.flatnonzero(confidence >= floor)
        cell = np.stack([chosen % (width // stride), chosen // (width // stride)], axis=1).astype(np.float64)
        centre = (cell + bbox[chosen, :2]) * stride
        half = np.exp(bbox[chosen, 2:]) * stride / 2
        boxes.append(np.concatenate([centre - half, centre + half], axis=1))
        scores.append(confidence[chosen])
        points.append((cell[:, None, :] + kps[chosen].reshape(-1, 5, 2)) * stride)
    confidences = np.concatenate(scores)
    classes = np.zeros(len(confidences), np.int64)
    found = detections(np.concatenate(boxes), confidences, classes, np.concatenate(points))
    return suppress(_best(found, floor, MOST_CANDIDATES), plan.nms, plan.limit)


def _best(found: Detections, floor: float, limit: int) -> Detections:
    """Those of finite boxes and at least some score, at most so many, by falling score."""
    usable = found.take((found.scores >= floor) & np.isfinite(found.boxes).all(axis=1))
    if len(usable) <= limit:
        return usable.take(np.argsort(-usable.scores, kind="stable"))
    return usable.take(np.argsort(-usable.scores, kind="stable")[:limit])


def sizes_of_boxes(found: Detections) -> Floats:
    """Mean of width and height of each box, in pixels."""
    return np.asarray((found.boxes[:, 2:] - found.boxes[:, :2]).mean(axis=1), dtype=np.float64)
