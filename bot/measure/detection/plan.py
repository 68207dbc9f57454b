"""How a detector's outputs are read, and how its detections are compared. Imports nothing heavy."""

from __future__ import annotations

from pydantic import Field

from bot.recipe_plan import DETECTION_METRICS, DETECTORS, YUNET_OUTPUTS, DetectionMetric
from bot.records import Record

__all__ = ["DETECTION_METRICS", "DETECTORS", "YUNET_OUTPUTS", "DetectionMetric", "DetectionPlan"]


class DetectionPlan(Record):
    """What counts as a detection, and as the same detection.

    Attributes:
        score: Lowest score that a consumer takes for a detection.
        nms: Overlap (intersection over union) above which the weaker of two boxes of a class is suppressed.
        match: Overlap from which on two boxes are the same detection.
        limit: Most detections in one picture.
        end_to_end: The graph suppresses by itself and gives (batch, boxes, 6).
    """

    score: float = Field(default=0.25, gt=0.0, lt=1.0)
    nms: float = Field(default=0.45, gt=0.0, le=1.0)
    match: float = Field(default=0.5, gt=0.0, lt=1.0)
    limit: int = Field(default=300, ge=1, le=10_000)
    end_to_end: bool = False
