"""What an architecture says of a torch module that is to be exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from bot.errors import StepError
from bot.graph.export.sidecar import Facts
from bot.graph.parameters import NoParameters

if TYPE_CHECKING:
    import numpy as np

Feeds = dict[str, Any]
"""A numpy array per input."""

Exporter = Literal["torchscript", "dynamo"]

SIZES = 3
"""At so many sizes at least every dynamic axis is held against torch."""


@dataclass(frozen=True)
class Axis:
    """A dynamic axis: one that a caller may choose the size of.

    Attributes:
        name: As the shapes of `Port` call it.
        traced: The size that the module is traced at.
        sizes: Other sizes, at which the exported graph has to answer as torch does; with `traced`, three at least.
        multiple_of: Only multiples of this are allowed.
        minimum: The smallest size that is allowed.
        maximum: The largest; None if there is no limit.
    """

    name: str
    traced: int
    sizes: tuple[int, ...]
    multiple_of: int = 1
    minimum: int = 1
    maximum: int | None = None

    def __post_init__(self) -> None:
        """Refuses an axis whose sizes do not prove anything, or break its own rule."""
        tried = {self.traced, *self.sizes}
        if len(tried) < SIZES:
            raise ValueError(f"axis {self.name} is tried at {len(tried)} sizes; it takes {SIZES}")
        for size in sorted(tried):
            if not self.allows(size):
                raise ValueError(f"axis {self.name} does not allow the size {size} that it is tried at")

    def allows(self, size: int) -> bool:
        """Whether a caller may choose this size."""
        within = self.minimum <= size and (self.maximum is None or size <= self.maximum)
        return within and size % self.multiple_of == 0


@dataclass(frozen=True)
class Port:
    """An input or an output.

    Attributes:
        name: As the exported graph calls it.
        dtype: numpy's name of it: `float32`, `int64`, `bool`.
        shape: A size per axis, or the name of a dynamic axis. An axis of an output that follows from an input's size
            by a rule of the network (frames from samples) has a name that no `Axis` has.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Case:
    """Inputs of another kind than the example's, at which the exported graph is held against torch as well.

    For what a tracer bakes in by the content of its example: which way a branch on a mask went, say.

    Attributes:
        name: For people: `the second half of mask_0 is padding`.
        change: Gives the changed inputs, from the example's and a random generator.
        required: The export is refused if the graph answers otherwise than torch. If not, the sidecar and the card tell
            which way it came out.
        mask: The mask that the case is about, if it is about one: what came out then stands with it in the sidecar.
        hides: Whether that mask hides a part of its input, or all of it.
    """

    name: str
    change: Callable[[Feeds, np.random.Generator], Feeds]
    required: bool = True
    mask: str = ""
    hides: Literal["part", "all"] = "part"


@dataclass(frozen=True)
class Exportable:
    """A torch module, ready to be exported.

    Attributes:
        module: A `torch.nn.Module` in eval mode, in float32. Its `forward` takes the inputs by position, in the order
            of `inputs`, and returns one tensor, or a tuple of them in the order of `outputs`.
        inputs: In order.
        outputs: In order.
        axes: Every dynamic axis of the inputs.
        example: Gives realistic inputs: from a size per axis and a random generator, an array per input.
        facts: What a consumer has to know besides the signature; becomes the sidecar.
        exporter: The torch.onnx exporter that does this architecture justice. `torchscript` is the tracer; `dynamo`
            understands control flow that the tracer bakes in, and refuses what depends on data.
        cases: Further kinds of inputs.
        random_weights: The weights say of themselves that nobody trained them.
    """

    module: Any
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    axes: tuple[Axis, ...]
    example: Callable[[Mapping[str, int], np.random.Generator], Feeds]
    facts: Facts
    exporter: Exporter = "torchscript"
    cases: tuple[Case, ...] = ()
    random_weights: bool = False

    def __post_init__(self) -> None:
        """Refuses a description that contradicts itself.

        Raises:
            ValueError: It does.
        """
        names = [port.name for port in (*self.inputs, *self.outputs)]
        if len(set(names)) < len(names):
            raise ValueError("two inputs or outputs have one name")
        used = {size for port in self.inputs for size in port.shape if isinstance(size, str)}
        described = {axis.name for axis in self.axes}
        if used != described:
            raise ValueError(f"axes {sorted(described)} are described, and the inputs have {sorted(used)}")

    @property
    def traced(self) -> dict[str, int]:
        """The sizes that the module is traced at."""
        return {axis.name: axis.traced for axis in self.axes}


class Files(Mapping[str, Path]):
    """The upstream files that a recipe names, by the recipe's keys.

    Args:
        paths: Where each lies.
    """

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = dict(paths)

    def __getitem__(self, key: str) -> Path:
        """The file under a key.

        Raises:
            StepError: The recipe names none; the message says under which key it should.
        """
        if key not in self._paths:
            raise StepError(
                f"the architecture reads an upstream file {key!r}, and the recipe names none",
                where="upstream.files",
                remedy=f"Name it there: `{key}: PATH`. It names {', '.join(self._paths) or 'none'}.",
            )
        return self._paths[key]

    def __iter__(self) -> Any:
        """The recipe's keys."""
        return iter(self._paths)

    def __len__(self) -> int:
        """How many files there are."""
        return len(self._paths)

    def __contains__(self, key: object) -> bool:
        """Whether the recipe names a file under a key."""
        return key in self._paths


Load = Callable[[Files, Any], Exportable]


@dataclass(frozen=True)
class Architecture:
    """One architecture.

    Attributes:
        name: As a recipe writes it.
        load: Builds and describes the module from the upstream files. Runs in the worker only, and may import torch.
        parameters: What a recipe may write beside `architecture`.
        packages: Those whose version can change the graph, besides torch.
    """

    name: str
    load: Load
    parameters: type[BaseModel] = NoParameters
    packages: tuple[str, ...] = field(default=())
