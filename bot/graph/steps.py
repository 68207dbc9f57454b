"""The steps that a recipe can name, and how its own are found.

A step is a function `(source, output, parameters, context) -> report`: it reads one model file, writes one, and says
what it counted or decided. The same input and the same versions give the same bytes, in any process. Importing this
module imports no ONNX: a step's module is imported when the step runs.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ValidationError

from bot.errors import RecipeError, StepError
from bot.graph.export.parameters import ExportTorchParameters
from bot.graph.int8.parameters import QuantizeDynamicParameters, QuantizeStaticParameters, QuantizeWeightsParameters
from bot.graph.parameters import (
    Float16CommonParameters,
    Float16Parameters,
    NoParameters,
    Parameters,
    RebuildParameters,
)
from bot.records import Json

Progress = Callable[[int, int, str], None]
"""`progress(done, total, what)`."""


def _silent(done: int, total: int, what: str) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Judgement:
    """What a search is told of one candidate.

    Attributes:
        passed: It keeps the recipe's limits, and no output died.
        noise: How far its outputs are from the source's, 0 for none: what candidates are ranked by.
        reason: Why it did not pass; empty if it did.
        figures: What the limits are about, by name.
    """

    passed: bool
    noise: float
    reason: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)


Evaluate = Callable[[Path, float, int], Judgement]
"""`evaluate(model file, margin, limit)`: judges a candidate on so many calibration samples, 0 for all. The margin is
the share of each limit's room that it must leave: what just passes here may just fail on other samples."""


@dataclass(frozen=True)
class StepContext:
    """What a step may use besides its model.

    Attributes:
        scratch: A folder of its own, deleted afterwards.
        feeds: Per graph input, a .npy file with samples, first axis the sample; None where the recipe has none.
        progress: Told how far the step is.
        files: The upstream files that the recipe names, by its keys, for steps that read more than one model.
        code: The recipe's recipe.py; None if it has none.
        calibration: As feeds, samples that are not judged, for steps that calibrate or search; None where the recipe
            has none.
        evaluate: Judges a candidate, for steps that search; None where there is nothing to judge by.
    """

    scratch: Path
    feeds: Mapping[str, Path] | None = None
    progress: Progress = _silent
    files: Mapping[str, Path] = field(default_factory=dict)
    code: Path | None = None
    calibration: Mapping[str, Path] | None = None
    evaluate: Evaluate | None = None


StepFunction = Callable[[Path, Path, Any, StepContext], dict[str, Json]]


@dataclass(frozen=True)
class StepSpec:
    """One step.

    Attributes:
        name: As a recipe writes it.
        target: "module:function".
        parameters: What it takes.
        description: One line.
        packages: Those, besides the bot, whose version can change its output.
        calibrates: It looks at the calibration samples, and may search by what they show.
    """

    name: str
    target: str
    parameters: type[BaseModel]
    description: str
    packages: tuple[str, ...] = ("onnx", "numpy", "protobuf")
    calibrates: bool = False

    def load(self) -> StepFunction:
        """The function itself; imports its module."""
        module, _, function = self.target.partition(":")
        loaded: StepFunction = getattr(importlib.import_module(module), function)
        return loaded


@dataclass(frozen=True)
class LoadedStep:
    """A step that is ready to run: its function and what it takes."""

    name: str
    function: StepFunction
    parameters: type[BaseModel]
    packages: tuple[str, ...] = field(default=("onnx", "numpy", "protobuf"))


_STEPS = (
    StepSpec(
        "float16",
        "bot.graph.float16:float16",
        Float16Parameters,
        "Half-precision weights and activations, with float32 where half precision cannot hold the values.",
    ),
    StepSpec(
        "float16_common",
        "bot.graph.float16_common:float16_common",
        Float16CommonParameters,
        "onnxconverter-common's conversion to half precision, for files that were made with it before.",
        ("onnx", "numpy", "protobuf", "onnxconverter-common"),
    ),
    StepSpec(
        "drop_cast_round_trips",
        "bot.graph.cast_pairs:drop_cast_round_trips",
        NoParameters,
        "Removes casts to float16 that only feed casts back to float32.",
    ),
    StepSpec(
        "rebuild",
        "bot.graph.rebuild:rebuild",
        RebuildParameters,
        "Writes a network anew with fused operators, around the source's weights.",
        calibrates=True,
    ),
    StepSpec(
        "export_torch",
        "bot.graph.export_torch:export_torch",
        ExportTorchParameters,
        "Exports a torch module, built from upstream's weights, and holds the graph against it.",
        ("onnx", "onnxruntime", "numpy", "torch", "transformers", "safetensors", "timm", "linmult"),
    ),
    StepSpec(
        "quantize_static",
        "bot.graph.quantize_static:quantize_static",
        QuantizeStaticParameters,
        "Eight-bit weights and activations, calibrated on samples, with float where eight bits do harm.",
        ("onnx", "numpy", "protobuf", "onnxruntime"),
        calibrates=True,
    ),
    StepSpec(
        "quantize_dynamic",
        "bot.graph.quantize_dynamic:quantize_dynamic",
        QuantizeDynamicParameters,
        "Eight-bit weights; activations are quantised anew at every run.",
        ("onnx", "numpy", "protobuf", "onnxruntime"),
    ),
    StepSpec(
        "quantize_weights",
        "bot.graph.quantize_weights:quantize_weights",
        QuantizeWeightsParameters,
        "Eight-bit weights; all computing is in float.",
    ),
)

STEPS: dict[str, StepSpec] = {step.name: step for step in _STEPS}
"""The built-in steps, by name."""


def parse_parameters(name: str, raw: Mapping[str, Json] | None) -> dict[str, Json]:
    """A built-in step's parameters, checked, defaults included.

    Args:
        name: The step.
        raw: What the recipe says; None for nothing.

    Raises:
        ValueError: There is no such step, or it takes no such parameters. The text is for the recipe's author.
    """
    if name not in STEPS:
        raise ValueError(_unknown_step(name))
    return validate(name, STEPS[name].parameters, raw)


def twin_of(name: str, parameters: Mapping[str, Json], provider: str) -> dict[str, Json] | None:
    """A built-in step's parameters for the same arithmetic on a provider that cannot run what they make.

    Args:
        name: The step.
        parameters: Such as it was run with.
        provider: Such as `cpu`.

    Returns:
        None if what they make runs there, or nothing else does.
    """
    given = STEPS[name].parameters.model_validate(dict(parameters))
    twin = given.twin_on(provider) if isinstance(given, Parameters) else None
    return None if twin is None else twin.model_dump(mode="json")


def validate(name: str, model: type[BaseModel], raw: Mapping[str, Json] | None) -> dict[str, Json]:
    """Checks parameters against a step's own model.

    Raises:
        ValueError: They do not fit; the text names the step and each parameter that is wrong.
    """
    if raw is not None and not isinstance(raw, Mapping):
        raise ValueError(f"step {name!r} takes parameters by name, such as `{name}: {{keep: [Softmax]}}`")
    try:
        parsed = model.model_validate(dict(raw or {}))
    except ValidationError as error:
        raise ValueError("; ".join(_explain(name, model, dict(each)) for each in error.errors())) from error
    return parsed.model_dump(mode="json")


def _explain(name: str, model: type[BaseModel], error: dict[str, Any]) -> str:
    key = ".".join(str(part) for part in error["loc"])
    known = sorted(model.model_fields)
    if error["type"] == "extra_forbidden":
        offer = f"it takes {', '.join(known)}" if known else "it takes none"
        return f"step {name!r} has no parameter {key!r}: {offer}{_nearest(key, known)}"
    return f"step {name!r}: {key or 'parameters'}: {str(error['msg']).lower()}"


def _unknown_step(name: str) -> str:
    return f"there is no step {name!r}: the built-in ones are {', '.join(sorted(STEPS))}{_nearest(name, list(STEPS))}"


def _nearest(word: str, words: list[str]) -> str:
    near = difflib.get_close_matches(word, words, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def recipe_step_names(path: Path) -> frozenset[str]:
    """Names of the functions at the top level of a recipe's recipe.py, read without running it.

    Raises:
        RecipeError: It is not Python.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise RecipeError(f"is not valid Python: {error}", where=f"{path}:{line}" if line else str(path)) from error
    return frozenset(
        item.name for item in tree.body if isinstance(item, ast.FunctionDef) and not item.name.startswith("_")
    )


def load_step(name: str, code: Path | None) -> LoadedStep:
    """The step with this name: the recipe's own if it defines one, else the built-in one. Runs in the worker only.

    Raises:
        StepError: There is none.
    """
    if code is not None and name in recipe_step_names(code):
        return load_recipe_step(code, name)
    if name not in STEPS:
        raise StepError(_unknown_step(name) + ".", where=name)
    spec = STEPS[name]
    return LoadedStep(spec.name, spec.load(), spec.parameters, spec.packages)


def load_recipe_step(path: Path, name: str) -> LoadedStep:
    """A step from a recipe's recipe.py, which is run for it. Runs in the worker only.

    The function's parameter `parameters` is annotated with a pydantic model, which says what the step takes; without
    one it takes nothing.

    Raises:
        StepError: The file cannot be run, or has no such function.
    """
    specification = importlib.util.spec_from_file_location(f"recipe_{path.parent.name.replace('-', '_')}", path)
    if specification is None or specification.loader is None:
        raise StepError("cannot be loaded as Python.", where=str(path))
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise StepError(f"failed while it was loaded: {type(error).__name__}: {error}", where=str(path)) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise StepError(f"defines no function {name!r}.", where=str(path))
    hint = get_type_hints(function).get("parameters")
    model = hint if isinstance(hint, type) and issubclass(hint, BaseModel) else NoParameters
    return LoadedStep(name, function, model)
