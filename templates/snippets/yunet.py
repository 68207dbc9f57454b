import numpy as np


def candidates(outputs, size, least):
    """Boxes (left, top, right, bottom) in pixels of the input, scores and classes of all that score enough."""
    boxes, scores = [], []
    for stride in (8, 16, 32):
        cls, obj, bbox = (outputs[f"{part}_{stride}"][0] for part in ("cls", "obj", "bbox"))
        score = np.sqrt(np.clip(cls, 0, 1) * np.clip(obj, 0, 1))[:, 0]
        cell = np.flatnonzero(score >= least)
        corner = np.stack([cell % (size[0] // stride), cell // (size[0] // stride)], axis=1)
        centre, half = (corner + bbox[cell, :2]) * stride, np.exp(bbox[cell, 2:]) * stride / 2
        boxes.append(np.concatenate([centre - half, centre + half], axis=1))
        scores.append(score[cell])
    boxes, scores = np.concatenate(boxes), np.concatenate(scores)
    return boxes, scores, np.zeros(len(scores), int)
