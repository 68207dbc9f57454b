import numpy as np


def suppress(boxes, scores, classes, overlap, limit):
    """Which boxes stay: the best ones, without those of their class that overlap a better one too much."""
    kept, left = [], np.argsort(-scores)
    areas = np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(axis=1)
    while len(left) and len(kept) < limit:
        best, left = left[0], left[1:]
        kept.append(best)
        low, high = np.maximum(boxes[left, :2], boxes[best, :2]), np.minimum(boxes[left, 2:], boxes[best, 2:])
        shared = np.clip(high - low, 0, None).prod(axis=1)
        union = np.maximum(areas[left] + areas[best] - shared, 1e-9)
        left = left[~((classes[left] == classes[best]) & (shared / union > overlap))]
    return kept
