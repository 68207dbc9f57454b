"""LinT and LinMulT (Fodor, linmult 2): predictions from one or several series of features, each with a mask.

The library takes shortcuts by what a mask holds: a mask of nothing but True is left out, and a guard against samples
that are masked as a whole is passed by where there is none. A tracer would bake in whichever way its example went. So
the graph is traced along the way that is right for every mask: no mask is left out, and the example has samples that
are masked in part and as a whole. What the graph is held against afterwards is the library itself, shortcuts included.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from bot.errors import StepError, UpstreamError
from bot.graph.export.building import build, without_prefix
from bot.graph.export.config import Depth, UpstreamConfig, Width
from bot.graph.export.interface import Architecture, Axis, Case, Exportable, Feeds, Files, Port
from bot.graph.export.sidecar import Facts, Mask
from bot.graph.export.weights import bounded_json, read_pickled, read_weights
from bot.graph.parameters import Parameters

if TYPE_CHECKING:
    import numpy as np

PREDICTIONS = "predictions"
MOST_FEATURES = 32

_Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[\w .+-]+$")]


class LinMulTParameters(Parameters):
    """What a recipe may say of it: nothing, for the checkpoint says all."""


class NetworkConfig(UpstreamConfig):
    """What the library builds a network from. What only matters in training is not read."""

    family: Literal["lint", "linmult"]
    d_model: Width
    num_heads: Depth
    cmt_num_layers: Depth
    branch_sat_num_layers: Depth = 6
    # Not performer and bigbird, which draw random numbers at every run, so that no graph can answer as they do; and not
    # mha, into whose graph the tracer bakes the lengths of its example.
    attention_type: Literal["linear", "softmax", "flash"] = "linear"
    flash_query_key_dim: Width | None = None
    add_module_tcn: bool = True
    tcn_num_layers: Annotated[int, Field(ge=1, le=16)] = 3
    tcn_kernel_size: Annotated[int, Field(ge=1, le=64)] = 3
    add_module_multimodal_signal: Literal[False] = False
    time_dim_reducer: Literal["attentionpool", "gap", "gmp", "last"]
    add_module_ffn_fusion: bool = False
    head_type: Literal["simple", "vector"] = "simple"
    head_hidden_dim: Width = 256
    head_norm: Literal["bn", "in"] = "bn"


class TrainingConfig(UpstreamConfig):
    """Of how it was trained, only what the outputs are called."""

    targets: Annotated[tuple[_Name, ...], Field(min_length=1, max_length=1024)]


class Checkpoint(UpstreamConfig):
    """The hyperparameters that lie in a checkpoint, or in a config.json beside safetensors."""

    network: NetworkConfig = Field(alias="model_config")
    training: TrainingConfig = Field(alias="train_config")
    feature_names: Annotated[tuple[_Name, ...], Field(min_length=1, max_length=MOST_FEATURES)]
    input_feature_dim: Annotated[tuple[Width, ...], Field(min_length=1, max_length=MOST_FEATURES)]

    @model_validator(mode="after")
    def _features_agree(self) -> Checkpoint:
        features, single = len(self.feature_names), self.network.family == "lint"
        if features != len(self.input_feature_dim) or len(set(self.feature_names)) < features:
            raise ValueError("feature_names and input_feature_dim should go together, each name once")
        if single != (features == 1):
            raise ValueError("lint takes one feature, linmult takes several")
        return self


def load(files: Files, parameters: LinMulTParameters) -> Exportable:
    """Reads `weights`, and `config` where the weights do not hold the hyperparameters themselves."""
    checkpoint = _checkpoint(files)
    weights = read_weights(files["weights"])
    tensors = without_prefix(weights.tensors, "model.")
    head = _head_name(tensors, files["weights"].name)
    network = build(lambda: library_network(checkpoint, head), tensors, where=files["weights"].name)
    names = checkpoint.feature_names
    single = len(names) == 1
    series = ["x"] if single else [f"x_{place}" for place in range(len(names))]
    masks = ["mask"] if single else [f"mask_{place}" for place in range(len(names))]
    times = ["time"] if single else [f"time_{place}" for place in range(len(names))]
    return Exportable(
        module=(_lint if single else _linmult)(network, names, head),
        inputs=(
            *(
                Port(name, "float32", ("batch", time, width))
                for name, time, width in zip(series, times, checkpoint.input_feature_dim, strict=True)
            ),
            *(Port(name, "bool", ("batch", time)) for name, time in zip(masks, times, strict=True)),
        ),
        outputs=(Port(PREDICTIONS, "float32", ("batch", len(checkpoint.training.targets))),),
        axes=(
            Axis("batch", traced=3, sizes=(1, 2, 4)),
            *(
                Axis(time, traced=11 + 2 * place, sizes=(1, 7 + place, 24 + 3 * place))
                for place, time in enumerate(times)
            ),
        ),
        example=lambda sizes, generator: _series(sizes, generator, checkpoint.input_feature_dim, series, masks, times),
        facts=Facts(
            feature_names=names,
            output_names=(PREDICTIONS,),
            trait_names=checkpoint.training.targets,
            normalizations=("",),
            masks=tuple(
                Mask(input=mask, of=name, keeps=1, partial="right", whole="right")
                for mask, name in zip(masks, series, strict=True)
            ),
            sample_rates=(None,) * len(names),
            notes=("Predictions are as the network gives them, not limited to the range of the labels.",),
        ),
        exporter="torchscript",
        cases=tuple(_cases(masks)),
        random_weights=weights.random,
    )


def _checkpoint(files: Files) -> Checkpoint:
    """The hyperparameters, from config.json if the recipe names one, else from the checkpoint itself."""
    if "config" in files:
        where = files["config"]
        found: Mapping[str, Any] = bounded_json(where)
    else:
        where = files["weights"]
        found = _hyperparameters(where)
    return checkpoint_from(found, where.name)


def checkpoint_from(found: Mapping[str, Any], where: str) -> Checkpoint:
    """Checks hyperparameters.

    Raises:
        UpstreamError: A value is missing, of the wrong type, out of bounds, or of a network that cannot be exported.
    """
    try:
        return Checkpoint.model_validate(_frozen(found))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UpstreamError(f"{place}: {first['msg']} (found {str(first['input'])[:60]})", where=where) from error


def _hyperparameters(path: Path) -> Mapping[str, Any]:
    found = read_pickled(path)
    inner = found.get("hyper_parameters") if isinstance(found, Mapping) else None
    if not isinstance(inner, Mapping):
        raise UpstreamError(
            "holds no hyper_parameters",
            where=path.name,
            remedy="Name a `config` in upstream.files that says what the network is built from.",
        )
    return inner


def _frozen(value: Any) -> Any:
    """Lists as tuples, as strict models want them."""
    if isinstance(value, Mapping):
        return {str(key): _frozen(each) for key, each in value.items()}
    return tuple(_frozen(each) for each in value) if isinstance(value, list | tuple) else value


def _head_name(tensors: Mapping[str, Any], where: str) -> str:
    """What the checkpoint calls its one head: the library takes any name."""
    found = sorted({name.split(".")[2] for name in tensors if re.match(r"output_heads\.heads\.\w+\.", name)})
    if len(found) != 1:
        raise UpstreamError(f"has {len(found)} output heads; one is expected", where=where)
    return found[0]


def library_network(checkpoint: Checkpoint, head_name: str) -> Any:
    """The network as the library builds it, without weights.

    Raises:
        StepError: The library is not here.
    """
    try:
        from linmult import LinMulT, LinMulTConfig, LinT, LinTConfig
        from linmult.core.config import HeadConfig
    except ImportError as error:
        raise StepError(
            "the package linmult is not here",
            where="architecture linmult",
            remedy="Name linmult>=2.1.1 under `requires` in the recipe; it takes Python 3.12 or later.",
        ) from error
    network = checkpoint.network
    head = HeadConfig(
        type=network.head_type,
        output_dim=len(checkpoint.training.targets),
        name=head_name,
        hidden_dim=network.head_hidden_dim,
        norm=network.head_norm,
    )
    left = {"family", "branch_sat_num_layers", "add_module_multimodal_signal"}
    common = {
        key: value
        for key, value in network.model_dump().items()
        if key not in left and not key.startswith("head_") and value is not None
    }
    if network.family == "lint":
        return LinT(LinTConfig(input_feature_dim=checkpoint.input_feature_dim[0], heads=[head], **common))
    return LinMulT(
        LinMulTConfig(
            input_feature_dim=list(checkpoint.input_feature_dim),
            branch_sat_num_layers=network.branch_sat_num_layers,
            heads=[head],
            **common,
        )
    )


def _lint(network: Any, names: tuple[str, ...], head: str) -> Any:
    import torch

    class Single(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            # The library passes over a mask that hides all of a batch; as an operation it can be traced.
            mask = torch.logical_or(mask, torch.logical_not(mask.any()))
            predictions: torch.Tensor = self.network(x, mask, name=names[0])[head]
            return predictions

    return Single().eval()


def _linmult(network: Any, names: tuple[str, ...], head: str) -> Any:
    import torch

    class Several(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            series, masks = list(inputs[: len(names)]), list(inputs[len(names) :])
            if not torch.jit.is_tracing():  # type: ignore[no-untyped-call, attr-defined]
                answer: torch.Tensor = self.network(series, masks, names=list(names))[head]
                return answer
            # The library's own forward, but for its leaving out of masks that hide nothing.
            projected = self.network.projection(series, list(names))
            fused, mask = self.network.fusion(self.network.cross_modal(projected, masks), masks)
            predictions: torch.Tensor = self.network.output_heads(fused, mask=mask)[head]
            return predictions

    return Several().eval()


def _series(
    sizes: Mapping[str, int],
    generator: np.random.Generator,
    widths: tuple[int, ...],
    series: list[str],
    masks: list[str],
    times: list[str],
) -> Feeds:
    """Smooth series; of each the first sample is padded at its end, and the last one hidden as a whole."""
    import numpy as np

    feeds: Feeds = {}
    for place, (name, mask, time) in enumerate(zip(series, masks, times, strict=True)):
        batch, length = sizes["batch"], sizes[time]
        steps = generator.normal(0, 1, (batch, length, widths[place]))
        feeds[name] = (np.cumsum(steps, axis=1) / math.sqrt(length)).astype(np.float32)
        keeps = np.ones((batch, length), bool)
        keeps[0, math.ceil(length * 2 / 3) :] = False
        if batch > 1:
            keeps[-1] = False
        feeds[mask] = keeps
    return feeds


def _cases(masks: list[str]) -> list[Case]:
    """Every input whole; each one hidden while the others are whole; each one hidden in part, at places all over."""

    def whole(feeds: Feeds, _: np.random.Generator) -> Feeds:
        return {name: array | True if name in masks else array for name, array in feeds.items()}

    def hidden(mask: str) -> Case:
        def change(feeds: Feeds, generator: np.random.Generator) -> Feeds:
            changed = whole(feeds, generator)
            return {**changed, mask: changed[mask] & False}

        return Case(f"{mask} hides all of its input", change)

    def scattered(mask: str) -> Case:
        def change(feeds: Feeds, generator: np.random.Generator) -> Feeds:
            changed = whole(feeds, generator)
            return {**changed, mask: generator.random(changed[mask].shape) < 0.5}

        return Case(f"{mask} hides a part of its input", change)

    return [
        Case("every mask hides nothing", whole),
        *(hidden(mask) for mask in masks),
        *(scattered(mask) for mask in masks),
    ]


ARCHITECTURE = Architecture("linmult", load, LinMulTParameters, packages=("linmult", "safetensors"))
