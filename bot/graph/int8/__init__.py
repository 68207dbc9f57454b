"""Quantising to eight bits: what a graph needs first, the ranges of its tensors, and which nodes had better stay float.

The quantiser itself is ONNX Runtime's. What stands here is around it: a graph that it can work with, ranges that do not
depend on the order of the samples or on how many are looked at at a time, and a search for the nodes that eight bits
would harm.
"""
