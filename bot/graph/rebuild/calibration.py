"""What rounding a projection's matrix to float16 changes on average, and how a bias makes it good.

A matrix that is rounded multiplies the mean of what it reads a little wrongly, always in the same way; only the rest
varies from sample to sample. The mean is measured in float32 on samples, and the difference goes into the bias behind
the matrix, which is there anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from bot.errors import StepError
from bot.graph.feeding import Samples, open_session, run
from bot.graph.model_file import Model, write_model
from bot.graph.rebuild.patterns import Vector
from bot.graph.rebuild.rounding import Normed
from bot.graph.rebuild.weights import MatrixPayload
from bot.graph.steps import StepContext
from bot.graph.tensors import FLOAT
from bot.records import Json

Means = Mapping[str, Vector]
"""By place in the network, the mean over all tokens of all samples of what a projection reads there: shape (in,)."""

Measure = Callable[[Model, Mapping[str, str]], Means]
"""Runs a float32 model and takes the means of some of its values: place to the value's name."""

LIMIT = 32
"""How many samples are run at most, evenly spread: a mean over their tokens is a mean over thousands."""


def measured_by(context: StepContext, said: dict[str, Json]) -> Measure:
    """What measures means on a step's samples: those for calibration, or where there are none, those that are judged.

    Args:
        context: Of the step.
        said: Is given `calibrated_on`, the number of samples.

    Raises:
        StepError: There are no samples, or the model cannot be run on them.
    """

    def measure(model: Model, places: Mapping[str, str]) -> Means:
        feeds = context.calibration or context.feeds
        if not feeds:
            raise StepError(
                "calibrate needs samples, and there are none.",
                where="rebuild",
                remedy="Give them with --samples, or leave calibrate out.",
            )
        path = context.scratch / "calibration.onnx"
        write_model(_with_means(model, places), path, beside=True)
        session = open_session(path, "calibration")
        samples = Samples(feeds, session, "calibration", LIMIT)
        totals = {place: np.zeros(0) for place in places}
        names = [_output(number) for number in range(len(places))]
        for done, fed in enumerate(samples):
            for place, mean in zip(places, run(session, names, fed, "calibration"), strict=True):
                totals[place] = totals[place] + mean if totals[place].size else mean.astype(np.float64)
            context.progress(done + 1, samples.runs, "means of what matrices read")
        said["calibrated_on"] = samples.count
        del session
        _remove(path)
        return {place: total / samples.runs for place, total in totals.items()}

    return measure


def _output(number: int) -> str:
    return f"calibration/mean_{number}"


def _with_means(model: Model, places: Mapping[str, str]) -> Model:
    """The model with a mean per place as its only outputs."""
    from onnx import helper, numpy_helper

    graph = model.proto.graph
    del graph.output[:]
    graph.initializer.append(numpy_helper.from_array(np.array([0, 1], np.int64), "calibration/axes"))
    for number, value in enumerate(places.values()):
        inputs = [value, "calibration/axes"]
        graph.node.append(helper.make_node("ReduceMean", inputs, [_output(number)], keepdims=0))
        graph.output.append(helper.make_tensor_value_info(_output(number), FLOAT, [None]))
    return model


def _remove(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def lost(payload: MatrixPayload, mean: Vector, normed: Normed | None = None) -> Vector:
    """What the rounded matrix makes of the mean too little: shape (out,).

    Args:
        payload: The matrix as it is stored, in float16.
        mean: Of the value that the projection reads in the source.
        normed: That value as it is in the graph, if its norm was rounded.

    Returns:
        `mean @ exact - given @ stored`, where given is the mean in the graph.
    """
    exact = payload.linear.matrix()[:, payload.columns].astype(np.float64)
    given = mean
    if normed is not None and normed.rows is not None:
        rest = np.zeros_like(mean) if normed.rest is None else normed.rest
        given = (mean - rest) / normed.rows
    wanted = mean @ exact if payload.factor is None else (mean @ exact) * payload.factor
    difference: Vector = wanted - given @ payload.rounded().astype(np.float64)
    return difference
