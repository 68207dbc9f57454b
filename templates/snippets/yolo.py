import numpy as np


def candidates(output, size, least):
    """Boxes (left, top, right, bottom) in pixels of the input, scores and classes of all that score enough."""
    rows = output[0]
    scores, classes = rows[4:].max(axis=0), rows[4:].argmax(axis=0)
    chosen = scores >= least
    centre, half = rows[:2, chosen].T, rows[2:4, chosen].T / 2
    return np.concatenate([centre - half, centre + half], axis=1), scores[chosen], classes[chosen]
