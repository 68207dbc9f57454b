"""ONNX in, ONNX out: the transformations that make an artifact, and what can be said of a file without running it.

One transformation per module. Nothing here knows of the Hub, and importing this package imports no ONNX.
"""
