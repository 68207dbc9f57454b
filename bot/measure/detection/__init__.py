"""Detectors: from a network's outputs to boxes, and how the boxes of two networks compare."""
