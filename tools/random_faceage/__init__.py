"""FaceAge's network with random weights: the real architecture, where the real weights cannot be had.

`weights` draws the parameters, `export` writes the ONNX file and what lies beside it, `calibration` measures how far
the usual two-step conversion to half precision moves its ages. The two modules whose names end in `faceage_dino` are
the model's own code, which is copied beside every file made here.
"""
