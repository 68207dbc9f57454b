"""What encoders of text share: token ids and a mask in, token states or one embedding per text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from bot.graph.export.building import build, without_prefix
from bot.graph.export.interface import Axis, Case, Exportable, Feeds, Files, Port
from bot.graph.export.sidecar import Facts, Mask
from bot.graph.export.weights import read_weights
from bot.graph.parameters import Parameters

if TYPE_CHECKING:
    import numpy as np

Pooling = Literal["none", "mean", "cls"]

TRACED = 16
"""Tokens that the module is traced at."""


class TextParameters(Parameters):
    """What a recipe may say of an encoder of text."""

    pooling: Pooling = Field(
        default="none",
        description="`none` gives the states of all tokens; `mean` their mean over the tokens that the mask keeps; "
        "`cls` the state of the first token.",
    )
    normalize: bool = Field(default=False, description="Divides each embedding by its Euclidean norm.")


def encoder(backbone: Any, parameters: TextParameters) -> Any:
    """A module of `forward(input_ids, attention_mask)` around a transformers encoder.

    Args:
        backbone: Called with `input_ids` and `attention_mask` (int64, [batch, tokens]); answers with
            `last_hidden_state`.
        parameters: What to make of the token states.

    Returns:
        A `torch.nn.Module`: float32 [batch, tokens, width], or [batch, width] where it pools.
    """
    import torch

    from bot.graph.export.building import l2_normalized

    class TextEncoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            states: torch.Tensor = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            if parameters.pooling == "cls":
                states = states[:, 0]
            elif parameters.pooling == "mean":
                kept = attention_mask[..., None].to(states.dtype)
                states = (states * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1.0)
            return l2_normalized(states) if parameters.normalize else states

    return TextEncoder().eval()


def read_encoder(files: Files, make: Callable[[], Any], *, prefix: str, unused: tuple[str, ...]) -> tuple[Any, bool]:
    """An encoder of BERT's family with the weights of the file `weights`.

    Args:
        files: Upstream's.
        make: Makes the network, without its pooler.
        prefix: What the names have before them in a file that was saved with a head.
        unused: Beginnings of names that may be left over.

    Returns:
        The encoder, and whether its weights say that nobody trained them.

    Raises:
        UpstreamError: The weights are not its own.
    """
    weights = read_weights(files["weights"])
    tensors = without_prefix(weights.tensors, prefix)
    tensors.pop("embeddings.position_ids", None)  # older files hold it; it is nothing but a count
    return build(make, tensors, where=files["weights"].name, unused=unused), weights.random


def describe(
    backbone: Any,
    parameters: TextParameters,
    *,
    vocabulary: int,
    width: int,
    longest: int,
    random_weights: bool,
    beyond: int = 0,
    notes: tuple[str, ...] = (),
) -> Exportable:
    """All that there is to say of an encoder of text.

    Args:
        backbone: See `encoder`.
        parameters: What the recipe says.
        vocabulary: Number of token ids.
        width: Of the states.
        longest: Most tokens that it takes.
        random_weights: Nobody trained it.
        beyond: A number of tokens beyond which the network does something else; longer texts are tried too.
        notes: For the sidecar.
    """
    pooled = parameters.pooling != "none"
    name = "embedding" if pooled else "token_states"
    shape: tuple[int | str, ...] = ("batch", width) if pooled else ("batch", "tokens", width)

    def example(sizes: Mapping[str, int], generator: np.random.Generator) -> Feeds:
        batch, tokens = sizes["batch"], sizes["tokens"]
        ids = generator.integers(0, vocabulary, (batch, tokens), dtype="int64")
        # Texts of different lengths, the first one without padding: a tracer must see both.
        lengths = generator.integers(1, tokens + 1, batch)
        lengths[0] = tokens
        return {"input_ids": ids, "attention_mask": _mask(lengths, tokens)}

    def unpadded(feeds: Feeds, _: np.random.Generator) -> Feeds:
        import numpy as np

        return {**feeds, "attention_mask": np.ones_like(feeds["attention_mask"])}

    def short(feeds: Feeds, _: np.random.Generator) -> Feeds:
        import numpy as np

        batch, tokens = feeds["attention_mask"].shape
        return {**feeds, "attention_mask": _mask(np.full(batch, 1), tokens)}

    longest_tried = min(4 * TRACED + 1 + beyond, longest)
    return Exportable(
        module=encoder(backbone, parameters),
        inputs=(Port("input_ids", "int64", ("batch", "tokens")), Port("attention_mask", "int64", ("batch", "tokens"))),
        outputs=(Port(name, "float32", shape),),
        axes=(
            Axis("batch", traced=2, sizes=(1, 3)),
            Axis("tokens", traced=min(TRACED + beyond, longest), sizes=(3, 29, longest_tried), maximum=longest),
        ),
        example=example,
        facts=Facts(
            feature_names=("tokens",),
            output_names=(name,),
            normalizations=("l2" if parameters.normalize else "",),
            masks=(Mask(input="attention_mask", of="input_ids", keeps=1, partial="right"),),
            sample_rates=(None,),
            notes=notes,
        ),
        cases=(Case("texts without padding", unpadded), Case("texts of one token", short)),
        random_weights=random_weights,
    )


def _mask(lengths: Any, tokens: int) -> Any:
    import numpy as np

    return (np.arange(tokens)[None] < lengths[:, None]).astype(np.int64)
