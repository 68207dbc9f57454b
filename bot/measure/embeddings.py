"""Whether two networks' embeddings order the same things alike: what search and clustering stand on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bot.measure.arrays import Array

Floats = NDArray[np.float64]

MOST_SAMPLES = 2000
"""Similarities are a square matrix; of more samples only the first are compared."""


def similarities(embeddings: Array) -> Floats:
    """The cosine of every pair of rows, each row flattened: (N, …) to (N, N). A row of zeros is like none."""
    rows = np.asarray(embeddings[:MOST_SAMPLES], np.float64).reshape(min(len(embeddings), MOST_SAMPLES), -1)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return np.asarray(unit @ unit.T, dtype=np.float64)


def nearest_agreement(source: Array, candidate: Array) -> float:
    """Share of the samples whose nearest other sample is the same: 0..1."""
    first, second = (_without_self(similarities(array)) for array in (source, candidate))
    return float((first.argmax(axis=1) == second.argmax(axis=1)).mean())


def ranking_agreement(source: Array, candidate: Array) -> float:
    """Spearman's rank correlation of each sample's similarities to all others, mean over the samples: -1..1.

    Equal similarities share the mean of their ranks. A sample that is equally near to all others in both agrees; in one
    of them alone, it does not agree at all.
    """
    first, second = (_without_self(similarities(array)) for array in (source, candidate))
    count = len(first)
    others = ~np.eye(count, dtype=bool)
    agreements = [_spearman(first[row][others[row]], second[row][others[row]]) for row in range(count)]
    return float(np.mean(agreements))


def _without_self(matrix: Floats) -> Floats:
    np.fill_diagonal(matrix, -np.inf)
    return matrix


def _spearman(first: Floats, second: Floats) -> float:
    left, right = ranks(first), ranks(second)
    left, right = left - left.mean(), right - right.mean()
    norm = float(np.linalg.norm(left) * np.linalg.norm(right))
    if norm == 0.0:
        return 1.0 if not left.any() and not right.any() else 0.0
    return float(np.clip((left * right).sum() / norm, -1.0, 1.0))


def ranks(values: Floats) -> Floats:
    """The rank of each value, from 0; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray(((ends - counts + ends - 1) / 2)[place], dtype=np.float64)
