"""What the worker does with model files: run a step, look at a file, check a file. JSON in, JSON out."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bot.errors import BotError, StepError
from bot.graph.steps import Evaluate, Progress, StepContext, load_step, validate
from bot.records import Json


def step(arguments: dict[str, Any], progress: Progress, evaluate: Evaluate | None = None) -> Json:
    """Runs one step.

    Args:
        arguments: `step` (its name), `source` and `output` (model files), `parameters`, `scratch` (a folder), `feeds`
            (.npy file per graph input) or None, `code` (the recipe's recipe.py) or None, `files` (upstream files by the
            recipe's keys) or None, `calibration` (.npy file per graph input) or None.
        progress: Told how far it is.
        evaluate: Judges a candidate, for steps that search.

    Returns:
        `report`, and `built_with`: versions of the packages that took part.

    Raises:
        UpstreamError: The source cannot be read.
        StepError: The step does not exist, does not take these parameters, or failed.
    """
    code = Path(arguments["code"]) if arguments.get("code") else None
    loaded = load_step(arguments["step"], code)
    try:
        validate(loaded.name, loaded.parameters, arguments.get("parameters"))
    except ValueError as error:
        raise StepError(f"{error}.", where=loaded.name) from error
    parameters = loaded.parameters.model_validate(arguments.get("parameters") or {})
    feeds = {name: Path(path) for name, path in (arguments.get("feeds") or {}).items()}
    files = {name: Path(path) for name, path in (arguments.get("files") or {}).items()}
    calibration = {name: Path(path) for name, path in (arguments.get("calibration") or {}).items()}
    scratch = Path(arguments["scratch"])
    context = StepContext(scratch, feeds or None, progress, files, code, calibration or None, evaluate)
    source, output = Path(arguments["source"]), Path(arguments["output"])
    try:
        report = loaded.function(source, output, parameters, context)
    except BotError:
        raise
    except Exception as error:
        raise StepError(f"failed: {type(error).__name__}: {error}", where=f"{loaded.name} on {source.name}") from error
    if not output.is_file():
        raise StepError("returned without writing its output.", where=loaded.name)
    return {"report": report, "built_with": installed_versions(loaded.packages)}


def inspect(arguments: dict[str, Any], progress: Progress) -> Json:
    """Looks at a model file without reading its weights.

    Args:
        arguments: `model` (the file).
        progress: Not told anything: it takes a moment.

    Returns:
        An Inspection as plain JSON data.
    """
    from bot.graph.inspection import inspect_model

    return inspect_model(Path(arguments["model"])).to_plain()


def external_files(arguments: dict[str, Any], progress: Progress) -> Json:
    """Names the files beside a model that hold its weights; they need not be there.

    Args:
        arguments: `model` (the file).
        progress: Not told anything: it takes a moment.

    Returns:
        `files`: paths relative to the model's folder.
    """
    from bot.graph.model_file import external_locations

    return {"files": list(external_locations(Path(arguments["model"])))}


def ranges(arguments: dict[str, Any], progress: Progress) -> Json:
    """Runs a model over samples and says how large and how small its tensors become.

    Args:
        arguments: `model` (the file), `feeds` (.npy file per graph input), `scratch` (a folder with room for the
            model), `top` (how many tensors to name), `limit` (how many samples to run at most, evenly spread; 0 for
            all).
        progress: Told of every run.

    Returns:
        What `ranges.Ranges.to_plain` says, and `random_weights`: whether the file says that of itself.

    Raises:
        UpstreamError: The model cannot be read.
        StepError: It cannot be run, or the samples do not fit it.
    """
    from bot.graph.inspection import inspection_of
    from bot.graph.model_file import read_model
    from bot.graph.ranges import measure_ranges

    feeds = {name: Path(path) for name, path in arguments["feeds"].items()}
    model = read_model(Path(arguments["model"]))
    random_weights = inspection_of(model).random_weights
    found = measure_ranges(model, feeds, Path(arguments["scratch"]), progress, int(arguments["limit"]))
    return {**found.to_plain(int(arguments["top"])), "random_weights": random_weights}


def check(arguments: dict[str, Any], progress: Progress) -> Json:
    """Runs ONNX's own checker over a model file, types and shapes included.

    Args:
        arguments: `model` (the file).
        progress: Not told anything.

    Returns:
        `ok`, and `reason`: what the checker said, or nothing.
    """
    import onnx

    from bot.graph.model_file import read_model

    path = Path(arguments["model"])
    try:
        read_model(path)
        onnx.checker.check_model(str(path), full_check=True)
    except BotError as error:
        return {"ok": False, "reason": str(error)}
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        return {"ok": False, "reason": " ".join(str(error).split())[:2000]}
    return {"ok": True, "reason": ""}


def installed_versions(packages: Sequence[str]) -> dict[str, Json]:
    """Installed versions; a package that is not here took no part."""
    found: dict[str, Json] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
