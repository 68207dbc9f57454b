"""The sidecar `NAME.onnx.json`: what a consumer of a graph must know and the graph cannot hold.

Tokenisation, resampling and normalisation of pictures stay outside the graph; the sidecar describes them. Every list is
plural, one entry per input or output, whatever family the graph is of: a consumer never has to branch.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from bot.records import Json, Record, Sha256

SUFFIX = ".json"
"""What a sidecar's name has after the graph's."""


class Mask(Record):
    """What an input that masks another one means.

    Attributes:
        input: The mask's name.
        of: The input that it masks.
        keeps: The value that marks what counts; the other one marks padding.
        partial: Whether a mask that hides a part of its input is answered as torch does. `refused`: the graph was
            found to answer otherwise, and a consumer must not feed one.
        whole: The same for a mask that hides all of its input.
    """

    input: str
    of: str
    keeps: int = 1
    partial: Literal["right", "refused", "not tried"] = "not tried"
    whole: Literal["right", "refused", "not tried"] = "not tried"


class Facts(Record):
    """What an architecture knows of its graph, besides names and shapes.

    Attributes:
        feature_names: What each input that is no mask carries, in the order of the inputs: `waveform`, `tokens`, or the
            features that a regressor was trained on.
        output_names: What each output means, in order: trait names for a regressor with several, say.
        trait_names: For a regressor or classifier: what each entry of its output's last axis stands for.
        normalizations: What the graph already did to each output: `l2`, or empty for nothing.
        masks: The inputs that mask others.
        sample_rates: Per input that is no mask, in Hz; None for one that is no sound.
        frame_rates: Per output, frames a second along its time axis; None for one without.
        notes: Sentences for people, such as which layer was taken.
    """

    feature_names: tuple[str, ...] = Field(min_length=1)
    output_names: tuple[str, ...] = ()
    trait_names: tuple[str, ...] = ()
    normalizations: tuple[str, ...] = ()
    masks: tuple[Mask, ...] = ()
    sample_rates: tuple[int | None, ...] = ()
    frame_rates: tuple[float | None, ...] = ()
    notes: tuple[str, ...] = ()


class SidecarPort(Record):
    """An input or an output of the graph; see `bot.records.TensorSignature`."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


class SidecarAxis(Record):
    """What a caller may choose for a dynamic axis."""

    name: str
    minimum: int = Field(ge=1)
    maximum: int | None = None
    multiple_of: int = Field(default=1, ge=1)


class Sidecar(Record):
    """A whole sidecar.

    Attributes:
        schema_version: Of this form.
        sha256: Of the graph, whose name the sidecar's begins with: it belongs to exactly one.
        architecture: What the graph is of, as the recipe names it.
        opset: Of ONNX's own operators.
        inputs: The graph's, in order.
        outputs: The graph's, in order.
        axes: Every dynamic axis of the inputs.
        feature_names: See `Facts`.
        input_dims: Per entry of `feature_names`, the size of its last axis; None where a caller chooses it.
        output_dims: Per output, the size of its last axis; None where it follows from an input's.
        output_names: See `Facts`; the graph's own names where an architecture has no better ones.
        trait_names: See `Facts`.
        normalizations: See `Facts`.
        masks: See `Facts`.
        refusals: Kinds of input that the graph was found to answer otherwise than torch, and must not be fed: what
            they are, and how it answers.
        sample_rates: See `Facts`.
        frame_rates: See `Facts`.
        preprocessings: Per input of the graph, what the recipe declares of how it is filled.
        tokenizers: Per tokenizer that an input needs, its file in the source repository, and the file's sha256.
        notes: See `Facts`.
    """

    schema_version: Literal[1] = 1
    sha256: Sha256 = Field(pattern="^[0-9a-f]{64}$")
    architecture: str
    opset: int
    inputs: tuple[SidecarPort, ...]
    outputs: tuple[SidecarPort, ...]
    axes: tuple[SidecarAxis, ...]
    feature_names: tuple[str, ...]
    input_dims: tuple[int | None, ...]
    output_dims: tuple[int | None, ...]
    output_names: tuple[str, ...]
    trait_names: tuple[str, ...] = ()
    normalizations: tuple[str, ...] = ()
    masks: tuple[Mask, ...] = ()
    refusals: dict[str, str] = Field(default_factory=dict)
    sample_rates: tuple[int | None, ...] = ()
    frame_rates: tuple[float | None, ...] = ()
    preprocessings: dict[str, Json] = Field(default_factory=dict)
    tokenizers: tuple[dict[str, Json], ...] = ()
    notes: tuple[str, ...] = ()


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a sidecar, for consumers."""
    schema = Sidecar.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "NAME.onnx.json", **schema}
