"""Reading and writing .onnx files, with their weights left on disk.

A `Model` is a graph that can be edited as protobuf and payloads: the contents of its large tensors, which lie in a file
until somebody asks for one. What is read is not trusted. A file that is no model, or that points outside its own
folder, is refused with a sentence that names the file and what was found in it.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError, UpstreamError
from bot.graph import wire
from bot.graph.tensors import DTYPES, FLOAT, FLOAT16, dtype_name

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

_EXTERNAL = 1
"""`TensorProto.EXTERNAL`."""

_PROTOBUF_BYTES = (1 << 31) - 1
"""Protobuf reads no message larger than this; a larger model has its weights in a second file."""

_DATA_ALIGNMENT = 4096
"""Where a tensor may begin in that second file, so that a runtime can map it."""

_PIECE = 1 << 22
"""Bytes of a tensor that are in memory at a time, whatever its size."""

_WINDOW = 1 << 16
"""Bytes that are read at a time while the graph is parted from its weights."""

_FOREIGN_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer: the file itself was not downloaded"),
    (b"version http://git-lfs", "a Git LFS pointer: the file itself was not downloaded"),
    (b"<!doctype", "an HTML page, perhaps an error message of a server"),
    (b"<html", "an HTML page, perhaps an error message of a server"),
    (b"<?xml", "an XML document, perhaps an error message of a server"),
    (b'{"', "JSON, perhaps an error message of a server"),
    (b"pk\x03\x04", "a ZIP archive, perhaps a PyTorch checkpoint"),
    (b"\x80\x02", "a Python pickle, perhaps a PyTorch checkpoint"),
    (b"gguf", "a GGUF model"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x89hdf", "an HDF5 file"),
)


class Payload(Protocol):
    """The contents of one tensor, as its raw_data: little-endian, without gaps."""

    @property
    def length(self) -> int:
        """In bytes."""

    def read(self) -> NDArray[np.uint8]:
        """The bytes."""


@runtime_checkable
class PiecewisePayload(Payload, Protocol):
    """Contents that need not be in memory at once."""

    def pieces(self) -> Iterator[NDArray[np.uint8]]:
        """The bytes in order, in pieces of whole numbers; each is valid until the next is asked for."""


def pieces_of(payload: Payload) -> Iterator[NDArray[np.uint8]]:
    """A tensor's bytes in order: in pieces, or at once where its payload knows no other way."""
    if isinstance(payload, PiecewisePayload):
        yield from payload.pieces()
    else:
        yield payload.read()


@dataclass(frozen=True)
class FilePayload:
    """Contents that lie in a file."""

    path: Path
    offset: int
    length: int

    def read(self) -> NDArray[np.uint8]:
        data = np.fromfile(self.path, np.uint8, self.length, offset=self.offset)
        if data.size != self.length:
            raise self._shorter()
        return data

    def pieces(self) -> Iterator[NDArray[np.uint8]]:
        buffer = np.empty(min(self.length, _PIECE), np.uint8)
        with self.path.open("rb", buffering=0) as stream:
            stream.seek(self.offset)
            for start in range(0, self.length, _PIECE):
                piece = buffer[: min(self.length - start, _PIECE)]
                self._fill(stream, piece.data)
                yield piece

    def _fill(self, stream: io.RawIOBase, target: memoryview) -> None:
        done = 0
        while done < len(target):
            count = stream.readinto(target[done:])
            if not count:
                raise self._shorter()
            done += count

    def _shorter(self) -> UpstreamError:
        return UpstreamError("became shorter while it was read.", where=str(self.path))


@dataclass
class Model:
    """A model whose large tensors are elsewhere.

    Attributes:
        proto: The ModelProto. A large tensor in it is marked as external, with the number of its payload.
        payloads: The contents of those tensors.
        path: The file that it was read from, for messages.
        external_files: Names of the files beside it that hold weights, in order of first use.
    """

    proto: ModelProto
    payloads: list[Payload] = field(default_factory=list)
    path: Path = Path()
    external_files: tuple[str, ...] = ()

    def payload_of(self, tensor: TensorProto) -> Payload | None:
        """The contents of a large tensor; None for one whose contents are in the proto."""
        number = _payload_number(tensor)
        return None if number is None else self.payloads[number]

    def array(self, tensor: TensorProto) -> NDArray[Any]:
        """A tensor's contents, in its own shape and dtype. Large ones are read from disk for each call."""
        from onnx import TensorProto as Proto
        from onnx import numpy_helper

        payload = self.payload_of(tensor)
        if payload is None:
            return numpy_helper.to_array(tensor)
        if tensor.data_type in (FLOAT, FLOAT16):
            dtype = "<f4" if tensor.data_type == FLOAT else "<f2"
            return payload.read().view(dtype).reshape(tuple(tensor.dims))
        whole = Proto(dims=tensor.dims, data_type=tensor.data_type, raw_data=payload.read().tobytes())
        return numpy_helper.to_array(whole)

    def pieces(self, tensor: TensorProto) -> Iterator[NDArray[Any]]:
        """A float32 tensor's elements in order, a few MiB at a time; a piece is valid until the next is asked for."""
        payload = self.payload_of(tensor)
        if payload is None:
            yield self.array(tensor).reshape(-1)
            return
        for piece in pieces_of(payload):
            yield piece.view("<f4")

    def point(self, tensor: TensorProto, payload: Payload) -> None:
        """Gives a tensor other contents, which stay where they are until the model is written."""
        from onnx import TensorProto

        for name in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(name)
        del tensor.external_data[:]
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key=wire.MARK, value=str(len(self.payloads)))
        self.payloads.append(payload)

    def whole(self) -> ModelProto:
        """The model as one ModelProto, weights included: for libraries that want it so.

        Raises:
            StepError: It is larger than protobuf can hold.
        """
        from onnx import ModelProto

        skeleton = self.proto.SerializeToString(deterministic=True)
        lengths = [payload.length for payload in self.payloads]
        size = wire.inlined_bytes(skeleton, lengths)
        if size > _PROTOBUF_BYTES:
            raise StepError(
                f"is {size:,} bytes with its weights, more than the 2 GiB that this step can hold.",
                where=self.path.name,
                remedy="Use a step that streams, such as float16.",
            )
        pieces = (
            self.payloads[piece].read().tobytes() if isinstance(piece, int) else piece
            for piece in wire.inline(skeleton, lengths)
        )
        proto: ModelProto = ModelProto.FromString(b"".join(pieces))
        return proto


def read_model(path: Path) -> Model:
    """Opens a model without reading its weights.

    Args:
        path: The .onnx file. Its external data, if any, lies beside it or below its folder.

    Raises:
        UpstreamError: It is not there, not a model, damaged, or points outside its folder.
    """
    proto, parts = _skeleton(path)
    model = Model(proto, [FilePayload(path, span.offset, span.length) for span in parts.spans], path)
    _check_proto(model)
    _adopt_tensors(model)
    return model


def external_locations(path: Path) -> tuple[str, ...]:
    """The names of the files beside a model that hold its weights, in order of first use; they need not be there.

    Raises:
        UpstreamError: It is no model, or one of them lies outside its folder.
    """
    proto, _ = _skeleton(path)
    names: dict[str, None] = {}
    for tensor in all_tensors(proto):
        if tensor.data_location == _EXTERNAL and _payload_number(tensor) is None:
            location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
            names.setdefault("/".join(_parts_of(location, _place(path, tensor))))
    return tuple(names)


def _skeleton(path: Path) -> tuple[ModelProto, wire.Cut]:
    """A model without the contents of its large tensors, and where in the file they lie."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import ModelProto

    _refuse_foreign(path)
    try:
        parts = _cut_file(path)
        return ModelProto.FromString(parts.skeleton), parts
    except (wire.WireError, DecodeError) as error:
        raise UpstreamError(
            f"is not an ONNX model, or only a part of one ({path.stat().st_size:,} bytes): {error}.",
            where=str(path),
            remedy="Download it again and compare its sha256 with the source's.",
        ) from error


def read_whole(path: Path) -> ModelProto:
    """Reads a model with its weights, for libraries that want one ModelProto.

    Raises:
        UpstreamError: As `read_model`.
        StepError: It is larger than protobuf can hold.
    """
    return read_model(path).whole()


def write_model(model: Model, path: Path, *, beside: bool = False) -> None:
    """Writes a model: to a temporary name, synced, then renamed. Equal models give equal bytes.

    The file is what protobuf itself would have written, with all weights in it as raw_data. A model that is too large
    for protobuf has its large tensors in a second file, `NAME.onnx.data`.

    Args:
        model: Its payloads may lie in the file that is being replaced.
        path: The .onnx file.
        beside: Put large tensors into the second file in any case: a runtime maps that one and need not read it.
    """
    skeleton = model.proto.SerializeToString(deterministic=True)
    lengths = [payload.length for payload in model.payloads]
    if (beside and lengths) or wire.inlined_bytes(skeleton, lengths) > _PROTOBUF_BYTES:
        _write_with_data_file(model, path)
        return
    with _replacing(path) as write:
        for piece in wire.inline(skeleton, lengths):
            for part in pieces_of(model.payloads[piece]) if isinstance(piece, int) else (piece,):
                write(part)


def write_proto(proto: ModelProto, path: Path) -> None:
    """Writes a ModelProto that holds its own weights, as `write_model` does."""
    write_model(Model(proto), path)


def graphs_of(proto: ModelProto) -> Iterator[GraphProto]:
    """The main graph and all graphs within it, outermost first; not the bodies of functions."""
    yield proto.graph
    yield from _graphs_within(proto.graph.node)


def all_nodes(proto: ModelProto) -> Iterator[NodeProto]:
    """All nodes, those of subgraphs and of model-local functions included."""
    for nodes in [proto.graph.node, *(function.node for function in proto.functions)]:
        yield from nodes
        for graph in _graphs_within(nodes):
            yield from graph.node


def all_graphs(proto: ModelProto) -> Iterator[GraphProto]:
    """All graphs: the main one, subgraphs, and those within model-local functions."""
    yield from graphs_of(proto)
    for function in proto.functions:
        yield from _graphs_within(function.node)


def all_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Every tensor: initializers, sparse ones' parts, and those in attributes."""
    for graph in all_graphs(proto):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from _parts(sparse)
    for node in all_nodes(proto):
        for attribute in node.attribute:
            yield from _attribute_tensors(attribute)
    for function in proto.functions:
        for attribute in function.attribute_proto:
            yield from _attribute_tensors(attribute)


def _attribute_tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    if attribute.HasField("sparse_tensor"):
        yield from _parts(attribute.sparse_tensor)
    for sparse in attribute.sparse_tensors:
        yield from _parts(sparse)


def _parts(sparse: SparseTensorProto) -> Iterator[TensorProto]:
    yield sparse.values
    yield sparse.indices


def _graphs_within(nodes: Sequence[NodeProto]) -> Iterator[GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else []
            for graph in [*inner, *attribute.graphs]:
                yield graph
                yield from _graphs_within(graph.node)


def _refuse_foreign(path: Path) -> None:
    """Names what people and servers put in the place of a model."""
    if not path.exists():
        raise UpstreamError("is not there.", where=str(path))
    if not path.is_file():
        raise UpstreamError("is not a file.", where=str(path))
    with path.open("rb") as stream:
        start = stream.read(64)
    if not start:
        raise UpstreamError("is empty.", where=str(path), remedy="Download it again.")
    lowered = start.lstrip().lower()
    kinds = (kind for beginning, kind in _FOREIGN_STARTS if lowered.startswith(beginning))
    kind = next(kinds, "a safetensors file" if start[8:10] == b'{"' else "")
    if kind:
        raise UpstreamError(f"is not an ONNX model but {kind}.", where=str(path))


def _cut_file(path: Path) -> wire.Cut:
    with path.open("rb", buffering=0) as stream:
        return wire.cut(_Window(stream.fileno()))


class _Window:
    """A file as a sequence of bytes, of which a small part is in memory. A mapped file would count as memory."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._start = 0
        self._held = b""

    def __len__(self) -> int:
        return self._size

    def byte(self, place: int) -> int:
        """One byte."""
        at = place - self._start
        if not 0 <= at < len(self._held):
            self._start, at = place, 0
            self._held = self._read(place, _WINDOW)
        return self._held[at]

    def slice(self, start: int, end: int) -> bytes:
        """The bytes between two places."""
        at = start - self._start
        if at >= 0 and end - self._start <= len(self._held):
            return self._held[at : end - self._start]
        return self._read(start, end - start)

    def _read(self, start: int, count: int) -> bytes:
        found = os.pread(self._descriptor, count, start)
        while 0 < len(found) < min(count, self._size - start):
            more = os.pread(self._descriptor, count - len(found), start + len(found))
            if not more:
                break
            found += more
        if len(found) < min(count, self._size - start):
            raise wire.WireError("became shorter while it was read")
        return found


def _check_proto(model: Model) -> None:
    """Many files parse as some protobuf message or other; a model has a version, operators and a graph."""
    proto, where = model.proto, str(model.path)
    if not proto.HasField("graph"):
        raise UpstreamError("is not an ONNX model: it has no graph.", where=where)
    if proto.ir_version < 1:
        raise UpstreamError(f"is not an ONNX model: it declares the IR version {proto.ir_version}.", where=where)
    if proto.ir_version >= 3 and not proto.opset_import:
        raise UpstreamError("is not an ONNX model: it declares no operator set.", where=where)
    if not proto.graph.output:
        raise UpstreamError("is not a usable model: its graph has no outputs.", where=where)


def _adopt_tensors(model: Model) -> None:
    """Checks every tensor, and makes payloads of those whose contents lie in other files."""
    marks: list[int] = []
    names: dict[str, None] = {}
    for tensor in all_tensors(model.proto):
        number = _payload_number(tensor)
        if number is not None:
            marks.append(number)
        elif tensor.data_location == _EXTERNAL:
            payload = _external_payload(model.path, tensor)
            names.setdefault(payload.path.relative_to(model.path.parent).as_posix())
            if payload.length > wire.INLINE_BYTES or tensor.data_type == 8:
                model.point(tensor, payload)
                marks.append(len(model.payloads) - 1)
            else:
                tensor.ClearField("data_location")
                del tensor.external_data[:]
                tensor.raw_data = payload.read().tobytes()
        _check_size(model, tensor)
    if sorted(marks) != list(range(len(model.payloads))):
        raise UpstreamError(f"uses the reserved key {wire.MARK!r} for external data.", where=str(model.path))
    model.external_files = tuple(names)


def _payload_number(tensor: TensorProto) -> int | None:
    for entry in tensor.external_data:
        if entry.key == wire.MARK:
            return int(entry.value) if entry.value.isdecimal() else -1
    return None


def _external_payload(path: Path, tensor: TensorProto) -> FilePayload:
    """Where an external tensor lies, checked: a regular file, below the model's folder, long enough."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    where = _place(path, tensor)
    file = _inside(path.parent, location, where)
    size = file.stat().st_size
    expected = _expected_bytes(tensor, where)
    offset, length = _whole_number(entries, "offset", where), _whole_number(entries, "length", where)
    if expected is not None and length not in (None, expected):
        raise UpstreamError(f"declares {length:,} bytes of external data and needs {expected:,}.", where=where)
    start, needed = offset or 0, expected if expected is not None else length if length is not None else 0
    if start + needed > size:
        raise UpstreamError(
            f"needs bytes {start:,} to {start + needed:,} of {location[:200]!r}, which has {size:,}.",
            where=where,
            remedy="The file beside the model is incomplete: download it again.",
        )
    return FilePayload(file, start, needed)


def _inside(folder: Path, location: str, where: str) -> Path:
    """The file at a location that the model gives, if that is a place where its weights may be.

    Raises:
        UpstreamError: It is absolute, climbs out of the folder, leads over a symbolic link, or is no file.
    """
    place = folder
    for part in _parts_of(location, where):
        place = place / part
        if place.is_symlink():
            raise UpstreamError(f"has its external data behind a symbolic link, {location[:200]!r}.", where=where)
    if not place.is_file():
        raise UpstreamError(
            f"has its external data in {location[:200]!r}, which is not there.",
            where=where,
            remedy="Name that file in the recipe's upstream files too, so that it is fetched.",
        )
    return place


def _parts_of(location: str, where: str) -> tuple[str, ...]:
    """The parts of a relative path that does not climb out of its folder."""
    parts = PurePosixPath(location).parts
    absolute = PurePosixPath(location).is_absolute() or PureWindowsPath(location).anchor
    if not parts or absolute or ".." in parts or "\\" in location or "\0" in location:
        raise UpstreamError(f"has its external data at {location[:200]!r}, outside the model's folder.", where=where)
    return parts


def _whole_number(entries: dict[str, str], key: str, where: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise UpstreamError(f"declares the {key} {text[:40]!r} for its external data.", where=where)
    return int(text)


def _check_size(model: Model, tensor: TensorProto) -> None:
    """A tensor's contents have the size that its dtype and shape say."""
    where = _place(model.path, tensor)
    expected = _expected_bytes(tensor, where)
    number = _payload_number(tensor)
    if number is not None:
        found = model.payloads[number].length if number in range(len(model.payloads)) else expected
    else:
        found = len(tensor.raw_data) if tensor.HasField("raw_data") else _typed_bytes(tensor)
    if expected is not None and found != expected:
        kind = f"{dtype_name(tensor.data_type)} of shape {list(tensor.dims)}"
        raise UpstreamError(f"has {found:,} bytes, and {kind} needs {expected:,}.", where=where)


def _typed_bytes(tensor: TensorProto) -> int:
    """Bytes that the raw form of contents would have that are written number by number."""
    bits = DTYPES[tensor.data_type].bits if tensor.data_type in DTYPES else 0
    fields = (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data)
    count = max(len(each) for each in fields)
    if tensor.data_type in _COMPLEX:
        return count // 2 * bits // 8
    return count if bits < 8 else count * bits // 8


_COMPLEX = frozenset({14, 15})
"""complex64 and complex128, of which each element is two numbers."""


def _place(path: Path, tensor: TensorProto) -> str:
    """Where to say that an error is. Names are upstream's, and may be of any length."""
    return f"{path}: tensor {tensor.name[:80]!r}"


def _expected_bytes(tensor: TensorProto, where: str) -> int | None:
    """Bytes of a tensor's raw form; None where they are not checked: strings, and dtypes newer than this bot."""
    elements = 1
    for size in tensor.dims:
        if size < 0:
            raise UpstreamError(f"has a negative size in its shape {list(tensor.dims)}.", where=where)
        elements *= size
    if elements > 1 << 48:
        raise UpstreamError(f"claims {elements:,} elements, with the shape {list(tensor.dims)}.", where=where)
    bits = DTYPES[tensor.data_type].bits if tensor.data_type in DTYPES else 0
    return (elements * bits + 7) // 8 if bits else None


def _write_with_data_file(model: Model, path: Path) -> None:
    """The weights first, each at a multiple of a page, then the graph that points to them."""
    from onnx import ModelProto

    data = path.with_name(path.name + ".data")
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    place = 0
    with _replacing(data) as write:
        for tensor in all_tensors(proto):
            payload = model.payload_of(tensor)
            if payload is None:
                continue
            padding = -place % _DATA_ALIGNMENT
            write(b"\0" * padding)
            for part in pieces_of(payload):
                write(part)
            del tensor.external_data[:]
            for key, value in (("location", data.name), ("offset", place + padding), ("length", payload.length)):
                tensor.external_data.add(key=key, value=str(value))
            place += padding + payload.length
    with _replacing(path) as write:
        write(proto.SerializeToString(deterministic=True))


@contextmanager
def _replacing(path: Path) -> Iterator[Callable[[Any], object]]:
    """Writes a file under a temporary name, syncs it, and gives it its own name when all went well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with temporary.open("xb") as stream:
            yield stream.write
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
