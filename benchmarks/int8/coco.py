"""Our mean average precision beside COCO's own tool, on random detections: the two should be the same number.

pip install pycocotools
python benchmarks/int8/coco.py
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from bot.measure.detection.average_precision import THRESHOLDS, Truth, mean_average_precision
from bot.measure.detection.boxes import Detections, detections


def case(seed: int) -> tuple[list[Truth], list[Detections]]:
    """A few pictures with true boxes, some to be ignored, and detections that partly meet them."""
    generator = np.random.default_rng(seed)
    truths, found = [], []
    for _ in range(12):
        count = int(generator.integers(0, 12))
        corner = generator.uniform(0, 400, (count, 2))
        boxes = np.concatenate([corner, corner + generator.uniform(40, 120, (count, 2))], axis=1)
        kinds = generator.integers(0, 3, count)
        truths.append(Truth(boxes, kinds, generator.random(count) < 0.15))
        chosen = generator.random(count) < 0.8
        near = boxes[chosen] + generator.normal(0, 6, (int(chosen.sum()), 4))
        strange = generator.uniform(0, 300, (int(generator.integers(0, 8)), 2))
        both = np.concatenate([near, np.concatenate([strange, strange + 60], axis=1)])
        classes = np.concatenate([kinds[chosen], generator.integers(0, 3, len(strange))])
        found.append(detections(both, generator.random(len(both)), classes))
    return truths, found


def theirs(truths: list[Truth], found: list[Detections]) -> tuple[float, float]:
    """COCO's figures at an overlap of 0.5, and over all overlaps."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for picture, (truth, each) in enumerate(zip(truths, found, strict=True)):
        for box, kind, ignore in zip(truth.boxes, truth.classes, truth.ignore, strict=True):
            place = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": picture,
                    "category_id": int(kind),
                    "bbox": [float(value) for value in place],
                    "area": float(place[2] * place[3]),
                    "iscrowd": 0,
                    "ignore": int(ignore),
                }
            )
        for box, score, kind in zip(each.boxes, each.scores, each.classes, strict=True):
            place = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            row = {"image_id": picture, "category_id": int(kind), "bbox": [float(value) for value in place]}
            results.append({**row, "score": float(score)})
    with contextlib.redirect_stdout(io.StringIO()):
        data = COCO()
        data.dataset = {
            "images": [{"id": number} for number in range(len(truths))],
            "annotations": annotations,
            "categories": [{"id": kind} for kind in range(3)],
        }
        data.createIndex()
        judge = COCOeval(data, data.loadRes(results), "bbox")
        judge._prepare_was = judge._prepare

        def prepare() -> None:
            judge._prepare_was()
            for truth in judge._gts.values():
                for each in truth:
                    # The tool takes this flag from iscrowd alone, which would also let a box be matched many times.
                    each["ignore"] = marked[each["id"]]

        marked = {each["id"]: each["ignore"] for each in annotations}
        judge._prepare = prepare
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return float(judge.stats[1]), float(judge.stats[0])


def main() -> int:
    """Compare, and say the largest difference."""
    worst = 0.0
    for seed in range(20):
        truths, found = case(seed)
        at_half, over_all = theirs(truths, found)
        own = mean_average_precision(truths, found), mean_average_precision(truths, found, THRESHOLDS)
        apart = [abs((value or 0.0) - other) for value, other in zip(own, (at_half, over_all), strict=True)]
        worst = max(worst, *apart)
        print(f"case {seed}: ours {own[0]:.6f} {own[1]:.6f}, theirs {at_half:.6f} {over_all:.6f}")
    print(f"largest difference {worst:.2e}")
    return 0 if worst < 1e-9 else 1


if __name__ == "__main__":
    raise SystemExit(main())
