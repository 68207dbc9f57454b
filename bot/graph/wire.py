"""The protobuf wire format of a ModelProto, as far as it takes to part the graph from its weights.

A model is a small graph and large tensors. `cut` walks the serialised bytes and copies all of them but the contents of
large tensors, which it replaces by a mark; what is left is a ModelProto of its own that any library can parse and edit.
`inline` walks such a skeleton and says which bytes, and which tensor's contents, have to be written to make it whole.
Neither holds a weight in memory, so a model of any size is read and written in the space of its graph.

Field numbers are those of the ONNX specification's onnx.proto; the encoding is that of the Protocol Buffers
documentation, "Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

INLINE_BYTES = 1 << 14
"""Tensors up to this size stay in the skeleton: shape inference reads shapes, axes and bounds from them."""

MARK = "bot.payload"
"""Key of the external-data entry that stands for contents that were cut out; its value is their number."""

MAX_DEPTH = 96
"""Levels of messages. Protobuf itself stops at 100, so nothing deeper can be a model that a runtime reads."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# The messages that can hold a tensor somewhere, and in which fields.
_CHILDREN: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
_FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 4, 9, 10, 13, 14


class WireError(ValueError):
    """The bytes are not a protobuf message of this kind."""


class Buffer(Protocol):
    """Bytes that can be looked at in any order, in memory or not."""

    def __len__(self) -> int:
        """Their number."""

    def byte(self, place: int) -> int:
        """One of them."""

    def slice(self, start: int, end: int) -> bytes:
        """Those between two places."""


class Held:
    """Bytes in memory."""

    def __init__(self, contents: bytes) -> None:
        self._contents = contents

    def __len__(self) -> int:
        return len(self._contents)

    def byte(self, place: int) -> int:
        """One of them."""
        return self._contents[place]

    def slice(self, start: int, end: int) -> bytes:
        """Those between two places."""
        return self._contents[start:end]


@dataclass(frozen=True)
class Span:
    """A piece of a file.

    Attributes:
        offset: Of its first byte.
        length: In bytes.
    """

    offset: int
    length: int


@dataclass(frozen=True)
class Cut:
    """A model without the contents of its large tensors.

    Attributes:
        skeleton: A serialised ModelProto in which those tensors carry a mark.
        spans: Where the contents of the tensor with each number lie.
    """

    skeleton: bytes
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class _Field:
    number: int
    wire_type: int
    start: int
    """Of the tag."""
    body: int
    """Of the contents, after the tag and the length."""
    end: int


@dataclass
class _State:
    buffer: Buffer
    threshold: int
    spans: list[Span] = field(default_factory=list)


def cut(buffer: Buffer, threshold: int = INLINE_BYTES) -> Cut:
    """Parts a serialised ModelProto from the contents of its large tensors.

    Args:
        buffer: The whole file.
        threshold: Contents of more bytes than this are cut out.

    Raises:
        WireError: It is no protobuf message, or it ends in the middle of one.
    """
    state = _State(buffer, threshold)
    skeleton = _cut_message(state, "model", 0, len(buffer), 0)
    return Cut(bytes(skeleton), tuple(state.spans))


def inline(skeleton: bytes, lengths: Sequence[int]) -> Iterator[bytes | int]:
    """What to write to make a skeleton whole: bytes as they are, or the number of the tensor whose contents come next.

    Args:
        skeleton: A serialised ModelProto with marks.
        lengths: Bytes of each tensor's contents.
    """
    pieces, _ = _inline_message(Held(skeleton), lengths, "model", 0, len(skeleton))
    yield from pieces


def inlined_bytes(skeleton: bytes, lengths: Sequence[int]) -> int:
    """Size of the file that `inline` describes, in bytes."""
    return sum(lengths[piece] if isinstance(piece, int) else len(piece) for piece in inline(skeleton, lengths))


def _cut_message(state: _State, kind: str, start: int, end: int, depth: int) -> bytearray:
    if depth > MAX_DEPTH:
        raise WireError(f"messages are nested more than {MAX_DEPTH} deep")
    if kind == "tensor":
        return _cut_tensor(state, start, end)
    children = _CHILDREN[kind]
    result = bytearray()
    for item in _fields(state.buffer, start, end):
        child = children.get(item.number)
        # A message that is no larger than a tensor that may stay cannot hold one that may not. The model's own
        # fields are walked even so, for that is what tells a damaged file.
        if child is None or item.wire_type != _BYTES or (kind != "model" and item.end - item.body <= state.threshold):
            result += state.buffer.slice(item.start, item.end)
            continue
        body = _cut_message(state, child, item.body, item.end, depth + 1)
        result += _tag(item.number, _BYTES) + _varint(len(body)) + body
    return result


def _cut_tensor(state: _State, start: int, end: int) -> bytearray:
    fields = list(_fields(state.buffer, start, end))
    contents = [
        item
        for item in fields
        if item.number in (_FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA)
        and item.wire_type == _BYTES
        and item.end - item.body > state.threshold
    ]
    # Contents in several pieces are rare and lawful: protobuf joins them when it parses the skeleton.
    others = [item for item in fields if item.number in (_FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA) and item not in contents]
    if len(contents) != 1 or others:
        return bytearray(state.buffer.slice(start, end))
    result = bytearray()
    for item in fields:
        if item is not contents[0]:
            result += state.buffer.slice(item.start, item.end)
    result += _mark(len(state.spans))
    state.spans.append(Span(contents[0].body, contents[0].end - contents[0].body))
    return result


def _inline_message(
    buffer: Buffer, lengths: Sequence[int], kind: str, start: int, end: int
) -> tuple[list[bytes | int], int]:
    """The pieces of one message, and their size together."""
    whole = buffer.slice(start, end)
    if MARK.encode() not in whole:
        return [whole], end - start
    if kind == "tensor":
        return _inline_tensor(buffer, lengths, start, end)
    pieces: list[bytes | int] = []
    size = 0
    plain = start
    for item in _fields(buffer, start, end):
        child = _CHILDREN[kind].get(item.number)
        if child is None or item.wire_type != _BYTES:
            continue
        inner, inner_size = _inline_message(buffer, lengths, child, item.body, item.end)
        if len(inner) == 1 and inner_size == item.end - item.body:
            continue
        head = buffer.slice(plain, item.start) + _tag(item.number, _BYTES) + _varint(inner_size)
        pieces += [head, *inner]
        size += len(head) + inner_size
        plain = item.end
    pieces.append(buffer.slice(plain, end))
    return pieces, size + end - plain


def _inline_tensor(buffer: Buffer, lengths: Sequence[int], start: int, end: int) -> tuple[list[bytes | int], int]:
    """A tensor with its contents as raw_data, in the place where protobuf itself would write them."""
    before, after = bytearray(), bytearray()
    number: int | None = None
    for item in _fields(buffer, start, end):
        piece = buffer.slice(item.start, item.end)
        if item.number == _EXTERNAL_DATA:
            number = _marked(buffer.slice(item.body, item.end), number)
        elif item.number != _DATA_LOCATION:
            (before if item.number < _RAW_DATA else after).extend(piece)
    if number is None:
        return [buffer.slice(start, end)], end - start
    before += _tag(_RAW_DATA, _BYTES) + _varint(lengths[number])
    return [bytes(before), number, bytes(after)], len(before) + lengths[number] + len(after)


def _mark(number: int) -> bytes:
    """The fields that say: this tensor's contents are elsewhere, under this number."""
    key, value = MARK.encode(), str(number).encode()
    entry = _tag(1, _BYTES) + _varint(len(key)) + key + _tag(2, _BYTES) + _varint(len(value)) + value
    return _tag(_EXTERNAL_DATA, _BYTES) + _varint(len(entry)) + entry + _tag(_DATA_LOCATION, _VARINT) + _varint(1)


def _marked(entry: bytes, found: int | None) -> int | None:
    values = {item.number: entry[item.body : item.end] for item in _fields(Held(entry), 0, len(entry))}
    return int(values[2]) if values.get(1) == MARK.encode() else found


def _fields(buffer: Buffer, start: int, end: int) -> Iterator[_Field]:
    """The fields of the message between two places."""
    place = start
    while place < end:
        tag, body = _read_varint(buffer, place, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise WireError(f"no field has the number 0 (byte {place})")
        stop = _SKIP.get(wire_type, _unknown)(buffer, body, end)
        if wire_type == _BYTES:
            length, body = _read_varint(buffer, body, end)
            stop = body + length
        if stop > end:
            raise WireError(f"a field at byte {place} should end at byte {stop}, and there are {end}")
        yield _Field(number, wire_type, place, body, stop)
        place = stop


def _unknown(buffer: Buffer, place: int, end: int) -> int:
    raise WireError(f"there is no such wire type (byte {place - 1})")


_SKIP: dict[int, Callable[[Buffer, int, int], int]] = {
    _VARINT: lambda buffer, place, end: _read_varint(buffer, place, end)[1],
    _FIXED64: lambda buffer, place, end: place + 8,
    _FIXED32: lambda buffer, place, end: place + 4,
    _BYTES: lambda buffer, place, end: place,
}


def _read_varint(buffer: Buffer, place: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place after it."""
    value = shift = 0
    while place < end:
        byte = buffer.byte(place)
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise WireError(f"a number of more than ten bytes (byte {place})")
    raise WireError(f"ends in the middle of a number (byte {place})")


def _varint(value: int) -> bytes:
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)
