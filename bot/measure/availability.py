"""Which providers really run on this machine.

A provider that was asked for and is not here is an error. It is never replaced by the CPU without a word.
"""

from __future__ import annotations

import functools

from bot.errors import StepError
from bot.measure.providers import PROVIDERS, check_single_runtime, onnxruntime_name, runtime_name
from bot.measure.sessions import open_session


@functools.cache
def available() -> tuple[str, ...]:
    """The providers that a tiny model really runs on here, in the order of `PROVIDERS`.

    Raises:
        RecipeError: No runtime is installed, or several are.
    """
    check_single_runtime()
    import onnxruntime

    built = onnxruntime.get_available_providers()
    return tuple(name for name, full in PROVIDERS.items() if full in built and _starts(name))


def require(provider: str) -> None:
    """Makes sure that this machine can run a provider.

    Raises:
        RecipeError: There is no provider of that name; no runtime is installed, or several are.
        StepError: It does not run here.
    """
    onnxruntime_name(provider)
    if provider not in available():
        raise StepError(
            f"the provider {provider} is required and does not run here",
            where=runtime_name(),
            remedy=f"Here there is {', '.join(available())}. Run on a machine that has it, or do not require it.",
        )


def _starts(provider: str) -> bool:
    import numpy as np

    try:
        session = open_session(_tiny_model(), provider)
        result = session.run(None, {"x": np.ones((1, 4), np.float32)})[0]
    except Exception:
        # A provider's libraries fail in ways of their own; any of them means that it is not usable.
        return False
    return bool(result.sum() == 8)


def _tiny_model() -> bytes:
    from onnx import TensorProto, helper

    port = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "tiny", port[:1], port[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
