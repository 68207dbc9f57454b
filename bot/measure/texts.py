"""From a line of text to the token ids that a network takes, with the tokenizer that upstream ships.

A tokenizer.json is parsed by the `tokenizers` library, in the worker only: it comes from a stranger.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from bot.errors import StepError, UpstreamError
from bot.records import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_CHARACTERS = 20_000
"""Of one text."""

MAX_TOKENIZER = 128 * 1024 * 1024
"""Bytes of a tokenizer.json."""

PAD_TOKENS = ("[PAD]", "<pad>", "<|pad|>")
"""What the token for padding is called where a tokenizer does not say."""


class TextError(Exception):
    """A text cannot be used. Its text is one of a few fixed reasons, so that they can be counted."""


class TextSpec(Record):
    """How a network wants its texts: token ids, or what goes with them.

    Attributes:
        tokenizer: Path of the tokenizer.json.
        max_length: Tokens of a row, special ones included: longer texts are cut, shorter ones padded on the right.
        give: `ids`; `mask`, 1 for a token and 0 for padding; `types`, the segment of each token.
        dtype: Of the row.
    """

    tokenizer: str
    max_length: int = Field(ge=1, le=65_536)
    give: Literal["ids", "mask", "types"] = "ids"
    dtype: Literal["int64", "int32"] = "int64"

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return (self.max_length,)


def decode_text(data: bytes) -> str:
    """A text as Unicode.

    Raises:
        TextError: It is empty, too long, or not UTF-8.
    """
    try:
        text = data.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise TextError("not UTF-8") from error
    if not text:
        raise TextError("empty")
    if len(text) > MAX_CHARACTERS:
        raise TextError("too long")
    return text


def to_tokens(text: str, spec: TextSpec) -> NDArray[Any]:
    """One sample for a network: integers [max_length]."""
    import numpy as np

    encoding = open_tokenizer(spec.tokenizer, spec.max_length).encode(text)
    chosen = {"ids": encoding.ids, "mask": encoding.attention_mask, "types": encoding.type_ids}[spec.give]
    return np.asarray(chosen, dtype=spec.dtype)


@lru_cache(maxsize=8)
def open_tokenizer(path: str, max_length: int) -> Any:
    """A `tokenizers.Tokenizer` that cuts and pads to one length.

    Raises:
        UpstreamError: The file is not a tokenizer, or has no token for padding.
        StepError: The library is not here.
    """
    from pathlib import Path

    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise StepError(
            "texts need the package tokenizers, which is not here", where="inputs", remedy="Install the extra `text`."
        ) from error
    name = Path(path).name
    if Path(path).stat().st_size > MAX_TOKENIZER:
        raise UpstreamError("is too large for a tokenizer", where=name)
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:
        # The library raises plain exceptions of its own making.
        raise UpstreamError(f"is not a tokenizer that can be read: {str(error)[:300]}", where=name) from error
    said = tokenizer.padding or {}
    token = said.get("pad_token") or next((each for each in PAD_TOKENS if tokenizer.token_to_id(each) is not None), "")
    number = tokenizer.token_to_id(token) if token else None
    if number is None:
        raise UpstreamError("has no token for padding", where=name)
    tokenizer.enable_truncation(max_length)
    tokenizer.enable_padding(direction="right", pad_id=number, pad_token=token, length=max_length)
    return tokenizer
