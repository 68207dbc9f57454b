"""Reads trained weights without running anything of theirs.

Two containers are read: safetensors, which holds numbers and nothing else, and torch's own (the zip of today and the
stream of before 1.6), whose index is a pickle. A pickle is a program: by naming a function and its arguments it runs
it. Here a name is never looked up. A dozen names that tensors are made of have a meaning of our own; every other one,
be it `timm.models.efficientnet.EfficientNet` or `os.system`, stands for an empty class that keeps what it is given and
does nothing. So a whole pickled module can be read as what it is, a tree of tensors, and a hostile one does nothing.

The opcodes are checked before the first is carried out, and the sizes before anything is allocated.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import pickletools
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.errors import UpstreamError

if TYPE_CHECKING:
    import torch

MAX_PICKLE = 64 << 20
"""Bytes of an index; real ones have well under one MiB."""

MAX_OPCODES = 20_000_000
MAX_DEPTH = 100
"""Modules inside modules."""

RANDOM_WEIGHTS = "random_weights"
"""Key by which weights say of themselves that nobody trained them: in the metadata of safetensors, or at the top of a
pickled mapping."""

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001
_DENIALS = frozenset({"", "0", "false", "no", "none"})

_REFUSED = frozenset({"EXT1", "EXT2", "EXT4", "PERSID", "BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER"})
"""Opcodes that no checkpoint has: extension codes, references in text, buffers outside the stream."""

_LARGEST_PUT = 1 << 22
"""The unpickler makes room up to the largest index that a pickle names."""


@dataclass(frozen=True)
class Weights:
    """What a file of weights holds.

    Attributes:
        tensors: By name: the keys of a state dict.
        metadata: What safetensors keep beside them: untrusted text.
        random: The file says of itself that its weights are random.
    """

    tensors: dict[str, torch.Tensor]
    metadata: dict[str, str]
    random: bool = False


def read_weights(path: Path) -> Weights:
    """Reads a file of weights of either kind, told apart by its first bytes.

    Args:
        path: A `.safetensors`, `.pt`, `.pth` or `.bin`.

    Returns:
        All its tensors, on the CPU, with the dtypes of the file. Of a pickled module those of its state dict; of a
        checkpoint with several parts the one that `state_dict_of` finds.

    Raises:
        UpstreamError: It is neither, is damaged, or holds no tensors.
    """
    with path.open("rb") as stream:
        head = stream.read(16)
    if _is_safetensors(path, head):
        return _read_safetensors(path)
    found = read_pickled(path)
    tensors = state_dict_of(found)
    if not tensors:
        raise UpstreamError("holds no tensors", where=path.name)
    random = isinstance(found, Mapping) and str(found.get(RANDOM_WEIGHTS, "")).lower() not in _DENIALS
    return Weights(tensors, {}, random)


def _is_safetensors(path: Path, head: bytes) -> bool:
    """Whether a file begins with a length that fits into it, and then a JSON object."""
    if len(head) < 10:
        return False
    (length,) = struct.unpack("<Q", head[:8])
    return bool(head[8:9] == b"{" and 2 <= length <= path.stat().st_size - 8)


def _read_safetensors(path: Path) -> Weights:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt", device="cpu") as opened:
            metadata = {str(key): str(value) for key, value in (opened.metadata() or {}).items()}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  no mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise UpstreamError(f"is not safetensors that can be read: {error}", where=path.name) from error
    if not tensors:
        raise UpstreamError("holds no tensors", where=path.name)
    return Weights(tensors, metadata, metadata.get(RANDOM_WEIGHTS, "").lower() not in _DENIALS)


# ---- what a pickle's names stand for


class Inert:
    """Stands for a class of a pickle that is not looked up: it keeps what it is given and does nothing.

    Attributes:
        origin: The name in the pickle, `module.name`.
        arguments: What it was called with.
        state: What the pickle says of the object's attributes.
    """

    __slots__ = ("arguments", "items", "state")
    origin = ""

    arguments: tuple[Any, ...]
    items: list[Any]
    state: Any

    def __new__(cls, *arguments: Any, **named: Any) -> Inert:
        """Keeps the arguments."""
        self = object.__new__(cls)
        self.arguments = (*arguments, *named.values())
        self.state = None
        self.items = []
        return self

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Nothing to do: `__new__` has kept all."""

    def __setstate__(self, state: Any) -> None:
        """Keeps the state, and sets no attribute."""
        self.state = state

    def append(self, item: Any) -> None:
        """Keeps an item of something that was a list."""
        self.items.append(item)

    def extend(self, items: Any) -> None:
        """Keeps items of something that was a list."""
        self.items.extend(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keeps an item of something that was a mapping."""
        self.items.append((key, value))

    def __repr__(self) -> str:
        return f"<inert {type(self).origin}>"


class _Frozen(type):
    """The class of inert classes: a pickle can set no attribute on one."""

    def __setattr__(cls, name: str, value: Any) -> None:
        raise UpstreamError(f"sets an attribute of a class, {name!r}, which no checkpoint does")


def _inert(origin: str) -> type:
    return _Frozen("Inert", (Inert,), {"origin": origin, "__slots__": ()})


@dataclass(frozen=True, slots=True, eq=False)
class _Storage:
    """A run of numbers in the file: its bytes, what they are, and how many."""

    data: bytearray
    dtype: str
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """A tensor as a pickle describes it. It becomes one of torch's when the pickle has come to its end."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def tensor(self) -> torch.Tensor:
        """The tensor itself, over the storage's bytes."""
        import torch

        dtype: torch.dtype = getattr(torch, self.storage.dtype)
        if not math.prod(self.size):
            return torch.empty(self.size, dtype=dtype)
        return torch.frombuffer(self.storage.data, dtype=dtype).as_strided(self.size, self.stride, self.offset)


_STORAGES = {  # torch's name of a storage's type, and of its numbers' dtype
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "UntypedStorage": "uint8",
}
_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}


@dataclass(frozen=True, slots=True)
class _Kind:
    """A storage's type, as a pickle names it."""

    dtype: str


def _meanings() -> dict[str, Any]:
    """The names that have a meaning, each of our own making: nothing that a pickle could change or misuse."""
    found: dict[str, Any] = {
        "collections.OrderedDict": OrderedDict,
        "builtins.set": lambda items=(): tuple(items),  # what is in it may be anything, and need not have a hash
        "__builtin__.set": lambda items=(): tuple(items),
        "torch.Size": lambda sizes=(): tuple(sizes),
        "torch._utils._rebuild_tensor": lambda *described: _numbers(*described),
        "torch._utils._rebuild_tensor_v2": lambda *described: _numbers(*described),
        "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
        "torch._utils._rebuild_parameter_with_state": lambda tensor, *_: tensor,
        "torch.nn.parameter.Parameter": lambda tensor=None, *_: tensor,
    }
    for name, dtype in _STORAGES.items():
        found[f"torch.{name}"] = found[f"torch.storage.{name}"] = _Kind(dtype)
    return found


def _numbers(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Numbers:
    """A tensor over a storage, which has to be large enough for it."""
    if not isinstance(storage, _Storage) or not isinstance(size, tuple) or not isinstance(stride, tuple):
        raise UpstreamError("describes a tensor that makes no sense")
    if not all(type(each) is int and 0 <= each < 1 << 48 for each in (offset, *size, *stride)):
        raise UpstreamError("describes a tensor with sizes that make no sense")
    if len(size) != len(stride) or len(size) > 16:
        raise UpstreamError("describes a tensor whose sizes and strides do not go together")
    count = math.prod(size)
    last = offset + sum((each - 1) * step for each, step in zip(size, stride, strict=True))
    # A stride of 0 repeats numbers: a few bytes of a file could claim a tensor of any size.
    if count and (last >= storage.length or count > storage.length):
        raise UpstreamError(f"describes a tensor of shape {list(size)} that does not fit into its storage")
    return Numbers(storage, offset, size, stride)


class _Unpickler(pickle.Unpickler):
    """Carries out a pickle whose names mean what `_meanings` says, and else nothing."""

    def __init__(self, data: bytes, storage: Callable[[Any], Any]) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8", errors="replace")
        self._storage = storage
        self._names = _meanings()

    def find_class(self, module: str, name: str) -> Any:
        """What a name stands for; nothing is imported."""
        origin = f"{module}.{name}"
        if origin not in self._names:
            self._names[origin] = _inert(origin)
        return self._names[origin]

    def persistent_load(self, reference: Any) -> Any:
        """A storage, which lies outside the pickle; or a class, which the old format refers to with its source text."""
        if isinstance(reference, tuple) and len(reference) > 1 and reference[0] == "module":
            return reference[1]
        return self._storage(reference)


def _unpickle(data: bytes, storage: Callable[[Any], Any]) -> tuple[Any, int]:
    """Carries out the first pickle in some bytes, checked before; gives the object and where the pickle ends."""
    end = _check(data)
    try:
        return _Unpickler(data[:end], storage).load(), end
    except UpstreamError:
        raise
    except Exception as error:
        # A malformed pickle fails in as many ways as there are opcodes.
        raise UpstreamError(f"has a damaged index: {type(error).__name__}: {error}") from error


def _check(data: bytes) -> int:
    """Looks at every opcode of a pickle without carrying one out; gives the place after the last."""
    count = 0
    try:
        for count, (opcode, argument, place) in enumerate(pickletools.genops(data), start=1):
            if opcode.name in _REFUSED or count > MAX_OPCODES:
                raise UpstreamError(f"has an index with an opcode that no checkpoint has: {opcode.name}")
            if opcode.name in {"PUT", "BINPUT", "LONG_BINPUT"} and int(argument or 0) > _LARGEST_PUT:
                raise UpstreamError("has an index that asks for more memory than any checkpoint needs")
            if opcode.name == "STOP":
                return int(place or 0) + 1
    except (ValueError, KeyError, IndexError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise UpstreamError(f"has a damaged index: {error}") from error
    raise UpstreamError("has an index without an end")


# ---- the two containers of torch


def read_pickled(path: Path) -> Any:
    """Reads one of torch's own files: mappings, lists, numbers, texts, `Numbers` for tensors, and else `Inert`.

    Raises:
        UpstreamError: It is damaged, or no such file.
    """
    try:
        with path.open("rb") as stream:
            zipped = stream.read(4) == b"PK\x03\x04"
        return _read_zip(path) if zipped else _read_legacy(path)
    except UpstreamError as error:
        raise UpstreamError(error.what, where=error.where or path.name, remedy=error.remedy) from error


def _read_zip(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {item.filename: item for item in archive.infolist()}
            indices = [name for name in entries if name == "data.pkl" or name.endswith("/data.pkl")]
            if len(indices) != 1:
                raise UpstreamError("is a zip without torch's data.pkl")
            folder = indices[0].removesuffix("data.pkl")
            if entries[f"{folder}data.pkl"].file_size > MAX_PICKLE:
                raise UpstreamError("has an index that is too large")
            kept: dict[str, bytearray] = {}

            def storage(reference: Any) -> _Storage:
                key, dtype, length = _reference(reference)
                if key not in kept:
                    kept[key] = _member(archive, entries, f"{folder}data/{key}")
                return _cut(kept[key], dtype, length, key)

            return _unpickle(archive.read(indices[0]), storage)[0]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise UpstreamError(f"is a zip that cannot be read: {error}") from error


def _member(archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], name: str) -> bytearray:
    entry = entries.get(name)
    if entry is None:
        raise UpstreamError(f"lacks the numbers {name}")
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise UpstreamError(f"has compressed numbers, {name}, which torch does not write")
    data = bytearray(entry.file_size)
    with archive.open(entry) as stream:
        if stream.readinto(data) != entry.file_size:  # type: ignore[attr-defined]
            raise UpstreamError(f"ends within the numbers {name}")
    return data


def _reference(reference: Any) -> tuple[str, str, int]:
    """A storage's key, dtype and number of elements from how a pickle refers to it."""
    if not isinstance(reference, tuple) or len(reference) < 5 or reference[0] != "storage":
        raise UpstreamError("refers to something outside the file that is no storage")
    kind, key, length = reference[1], reference[2], reference[4]
    if not isinstance(kind, _Kind) or not isinstance(key, str) or type(length) is not int or length < 0:
        raise UpstreamError("refers to a storage of a kind that is not known")
    return key, kind.dtype, length


def _cut(data: bytearray, dtype: str, length: int, key: str) -> _Storage:
    if length * _BYTES.get(dtype, 1) > len(data):
        raise UpstreamError(f"claims more numbers in the storage {key} than the file has")
    return _Storage(data, dtype, length)


def _read_legacy(path: Path) -> Any:
    """The stream that torch wrote before 1.6: three small pickles, the index, the storages' keys, their numbers."""
    if path.stat().st_size > 16 << 30:
        raise UpstreamError("is too large for a file of the old format")
    data = path.read_bytes()
    place = 0
    heads = []
    for _ in range(3):
        value, length = _unpickle(data[place : place + 4096], _no_storage)
        heads.append(value)
        place += length
    if heads[0] != _LEGACY_MAGIC or heads[1] != _LEGACY_PROTOCOL:
        raise UpstreamError("is neither safetensors nor a file that torch wrote")
    if isinstance(heads[2], Mapping) and heads[2].get("little_endian") is False:
        raise UpstreamError("was written on a big-endian machine")
    # The numbers come after the index that refers to them: room is made first, and filled then.
    made: dict[str, _Storage] = {}
    room = len(data) - place

    def storage(reference: Any) -> _Storage:
        nonlocal room
        key, dtype, length = _reference(reference)
        if key not in made:
            room -= length * _BYTES.get(dtype, 1)
            if room < 0:
                raise UpstreamError(f"claims more numbers in the storage {key} than the file has")
            made[key] = _Storage(bytearray(length * _BYTES.get(dtype, 1)), dtype, length)
        return made[key]

    found, length = _unpickle(data[place : place + MAX_PICKLE], storage)
    place += length
    keys, length = _unpickle(data[place : place + MAX_PICKLE], _no_storage)
    place += length
    if not isinstance(keys, list) or set(map(str, keys)) != set(made):
        raise UpstreamError("lists other storages than its index refers to")
    for key in map(str, keys):
        size = len(made[key].data)
        if data[place : place + 8] != struct.pack("<q", made[key].length) or place + 8 + size > len(data):
            raise UpstreamError(f"ends within the storage {key}")
        made[key].data[:] = data[place + 8 : place + 8 + size]
        place += 8 + size
    return found


def _no_storage(reference: Any) -> Any:
    raise UpstreamError("refers to a storage where none belongs")


# ---- the tensors in what was read


def state_dict_of(found: Any) -> dict[str, torch.Tensor]:
    """The tensors of what a file held, by the names that torch gives them.

    Args:
        found: What `read_pickled` gave: a state dict; a checkpoint with one under `state_dict`, `model`, `ema` or
            `weights`; or a whole module that was pickled as an object.

    Returns:
        Name to tensor; empty if there is none in any of these places.
    """
    if isinstance(found, Inert):
        return {name: value.tensor() for name, value in _of_module(found, "", 0)}
    if not isinstance(found, Mapping):
        return {}
    tensors = {str(key): value.tensor() for key, value in found.items() if isinstance(value, Numbers)}
    if tensors:
        return tensors
    for part in ("state_dict", "model", "ema", "weights"):
        if part in found and (inner := state_dict_of(found[part])):
            return inner
    return {}


def _of_module(module: Inert, prefix: str, depth: int) -> Iterator[tuple[str, Numbers]]:
    """Parameters and persistent buffers of a pickled module, as `Module.state_dict` would name them."""
    state = module.state[0] if isinstance(module.state, tuple) and module.state else module.state
    if not isinstance(state, Mapping) or depth > MAX_DEPTH:
        return
    hidden = state.get("_non_persistent_buffers_set", ())
    hidden = hidden if isinstance(hidden, set | frozenset | list | tuple) else ()
    for part in ("_parameters", "_buffers"):
        for name, value in _entries(state.get(part)):
            if isinstance(value, Numbers) and name not in hidden:
                yield f"{prefix}{name}", value
    for name, child in _entries(state.get("_modules")):
        if isinstance(child, Inert):
            yield from _of_module(child, f"{prefix}{name}.", depth + 1)


def _entries(part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, Mapping):
        yield from ((str(key), value) for key, value in part.items())


def bounded_json(path: Path, largest: int = 1 << 20) -> dict[str, Any]:
    """A JSON object out of a small file from upstream.

    Raises:
        UpstreamError: It is too large, not JSON, or not an object.
    """
    with path.open("rb") as stream:
        data = stream.read(largest + 1)
    if len(data) > largest:
        raise UpstreamError(f"is larger than {largest} bytes", where=path.name)
    try:
        found = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UpstreamError(f"is not JSON: {error}", where=path.name) from error
    if not isinstance(found, dict):
        raise UpstreamError("is not a JSON object", where=path.name)
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
