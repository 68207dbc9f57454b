"""Model-local functions, which steps that decide node by node want to have in the graph itself."""

from __future__ import annotations

from bot.errors import StepError
from bot.graph.model_file import Model


def inline_functions(model: Model) -> int:
    """Replaces calls of model-local functions by their bodies, so that each call gets the dtypes that it needs.

    Returns:
        How many functions the model had.

    Raises:
        StepError: They cannot be inlined.
    """
    from onnx import inliner

    functions = len(model.proto.functions)
    if functions:
        try:
            model.proto = inliner.inline_local_functions(model.proto)
        except (RuntimeError, ValueError) as error:
            raise StepError(f"has functions that cannot be inlined: {error}", where=model.path.name) from error
    return functions
