"""Networks that no library builds, with the tensor names of their checkpoints.

Their modules import torch at the top, and are imported by an architecture's `load` alone.
"""
