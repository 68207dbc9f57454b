"""Weights are read as numbers: whatever a file says, nothing of it runs, and no claim of size is believed."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from bot.errors import UpstreamError
from bot.graph.export import weights
from bot.graph.export.weights import Inert, read_pickled, read_weights, state_dict_of

TENSORS = {
    "a.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "a.bias": torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64),
    "half": torch.tensor([1.0, 65504.0], dtype=torch.float16),
    "brain": torch.tensor([1.0, 3.0e38], dtype=torch.bfloat16),
    "count": torch.tensor(7, dtype=torch.int64),
    "mask": torch.tensor([True, False]),
    "none": torch.zeros(0, 3),
}


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    return set(found) == set(wanted) and all(
        found[name].dtype == value.dtype and torch.equal(found[name], value) for name, value in wanted.items()
    )


@pytest.mark.parametrize("legacy", [False, True])
def test_a_state_dict_comes_back_as_torch_wrote_it(tmp_path: Path, legacy: bool) -> None:
    path = tmp_path / "model.pt"
    torch.save(OrderedDict(TENSORS), path, _use_new_zipfile_serialization=not legacy)
    assert same(read_weights(path).tensors, TENSORS)


def test_views_of_one_storage_and_transposed_tensors_are_read(tmp_path: Path) -> None:
    whole = torch.arange(24, dtype=torch.float32)
    tensors = {"part": whole[4:10], "turned": whole.reshape(4, 6).t(), "parameter": torch.nn.Parameter(whole * 2)}
    torch.save(tensors, tmp_path / "model.pt")
    found = read_weights(tmp_path / "model.pt").tensors
    assert all(torch.equal(found[name], value.data) for name, value in tensors.items())


def test_safetensors_tell_whether_their_weights_are_random(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "a.safetensors", metadata={"random_weights": "true"})
    save_file(TENSORS, tmp_path / "b.safetensors")
    assert same(read_weights(tmp_path / "a.safetensors").tensors, TENSORS)
    assert read_weights(tmp_path / "a.safetensors").random and not read_weights(tmp_path / "b.safetensors").random


def test_a_pickled_mapping_tells_it_too(tmp_path: Path) -> None:
    torch.save({"random_weights": "true", **TENSORS}, tmp_path / "model.bin")
    found = read_weights(tmp_path / "model.bin")
    assert found.random and same(found.tensors, TENSORS)


@pytest.mark.parametrize("part", ["state_dict", "model", "ema"])
def test_the_state_dict_inside_a_checkpoint_is_found(tmp_path: Path, part: str) -> None:
    torch.save({"epoch": 3, "args": {"lr": 0.1}, part: TENSORS}, tmp_path / "model.pt")
    assert same(read_weights(tmp_path / "model.pt").tensors, TENSORS)


class Block(torch.nn.Module):
    """A module whose class no reader of its pickle knows."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("dropped", torch.ones(2), persistent=False)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_whole_pickled_module_is_read_as_its_state_dict(tmp_path: Path, legacy: bool) -> None:
    module = Block()
    torch.save(module, tmp_path / "model.pt", _use_new_zipfile_serialization=not legacy)
    found = read_pickled(tmp_path / "model.pt")
    assert isinstance(found, Inert) and type(found).origin.endswith("Block")
    assert same(state_dict_of(found), {name: value.detach() for name, value in module.state_dict().items()})


# ---- hostile pickles: each would leave a mark if it ran


class Runs:
    """Unpickles as the call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def attacks(mark: Path) -> dict[str, Any]:
    """Objects whose pickles make a file when they are carried out by the ordinary unpickler."""
    touch = f"touch {mark}"
    return {
        "os.system": Runs(os.system, touch),
        "nested in a state dict": {"a": TENSORS["half"], "b": [({"c": Runs(os.system, touch)},)]},
        "eval": Runs(eval, f"open({str(mark)!r}, 'w')"),
        "exec": Runs(exec, f"open({str(mark)!r}, 'w').close()"),
        "getattr": Runs(getattr, Runs(__import__, "os"), "system"),
        "io.open": Runs(io.open, str(mark), "w"),
    }


@pytest.mark.parametrize("name", attacks(Path("x")))
@pytest.mark.parametrize("form", ["zip", "legacy", "bare"])
def test_nothing_runs(tmp_path: Path, name: str, form: str) -> None:
    mark, path = tmp_path / "mark", tmp_path / "model.pt"
    attack = attacks(mark)[name]
    if form == "bare":
        path.write_bytes(pickle.dumps(attack))
    else:
        torch.save(attack, path, _use_new_zipfile_serialization=form == "zip")
    try:
        read_weights(path)
    except UpstreamError as error:
        assert error.where == path.name
    assert not mark.exists()
    with path.open("rb") as stream:
        if form == "bare":  # the same bytes do run where names are looked up
            pickle.load(stream)  # noqa: S301
            assert mark.exists() or name == "getattr"


def test_a_chain_of_attributes_is_one_inert_name(tmp_path: Path) -> None:
    dotted = b"\x80\x04\x8c\x05torch\x8c\x1dserialization.os.system.touch\x93."
    path = zipped(tmp_path, dotted)
    found = read_pickled(path)
    assert issubclass(found, Inert) and found.origin == "torch.serialization.os.system.touch"


def zipped(folder: Path, index: bytes, **numbers: bytes) -> Path:
    """A file in torch's zip format with an index of our own."""
    path = folder / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", index)
        for key, data in numbers.items():
            archive.writestr(f"archive/data/{key}", data)
    return path


def tensor_index(
    length: int, size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, dtype: str = "Float"
) -> bytes:
    """The pickle of `{"w": tensor}` over a storage "0" of `length` numbers."""

    class Storage:
        pass

    class Pickler(pickle.Pickler):
        def persistent_id(self, each: Any) -> Any:
            kind = getattr(torch, f"{dtype}Storage")
            return ("storage", kind, "0", "cpu", length) if isinstance(each, Storage) else None

    stream = io.BytesIO()
    rebuilt = Runs(torch._utils._rebuild_tensor_v2, Storage(), offset, size, stride, False, OrderedDict())
    Pickler(stream, 2).dump({"w": rebuilt})
    return stream.getvalue()


def test_an_index_of_our_own_is_read(tmp_path: Path) -> None:
    path = zipped(tmp_path, tensor_index(4, (2, 2), (2, 1)), **{"0": struct.pack("<4f", 1, 2, 3, 4)})
    assert torch.equal(read_weights(path).tensors["w"], torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


@pytest.mark.parametrize(
    ("length", "size", "stride", "offset", "says"),
    [
        (10**12, (2,), (1,), 0, "more numbers"),
        (4, (10**12,), (0,), 0, "does not fit"),
        (4, (5,), (1,), 0, "does not fit"),
        (4, (2, 2), (2, 1), 1, "does not fit"),
        (4, (2,), (-1,), 3, "make no sense"),
        (4, (2,), (1, 1), 0, "do not go together"),
        (4, (1 << 50,), (1,), 0, "make no sense"),
        (-1, (1,), (1,), 0, "not known"),
    ],
)
def test_no_claim_of_size_is_believed(
    tmp_path: Path, length: int, size: tuple[int, ...], stride: tuple[int, ...], offset: int, says: str
) -> None:
    path = zipped(tmp_path, tensor_index(length, size, stride, offset), **{"0": bytes(16)})
    with pytest.raises(UpstreamError, match=says):
        read_weights(path)


def test_compressed_numbers_are_refused(tmp_path: Path) -> None:
    """A bomb: a few kilobytes of zip that unpack to gigabytes."""
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", tensor_index(1 << 20, (1 << 20,), (1,)))
        archive.writestr("archive/data/0", bytes(4 << 20))
    with pytest.raises(UpstreamError, match="compressed"):
        read_weights(path)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        (b"\x80\x02r\xff\xff\xff\x7f.", "asks for more memory"),
        (b"\x80\x04\x82\x01.", "EXT1"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"Pstorage\n.", "PERSID"),
        (b"\x80\x02B\xff\xff\xff\x7fabc.", "damaged"),
        (b"\x80\x02]", "damaged|without an end"),
        (b"\x80\x02\x8a\x08" + bytes(3), "damaged"),
        (b"0.", "damaged"),
        (b"", "damaged|without an end"),
    ],
)
def test_a_malformed_index_is_an_error_and_no_crash(tmp_path: Path, index: bytes, says: str) -> None:
    with pytest.raises(UpstreamError, match=says):
        read_pickled(zipped(tmp_path, index))


@pytest.mark.parametrize("keep", [0, 3, 40, 200, 600])
@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_that_was_cut_off_is_an_error(tmp_path: Path, keep: int, legacy: bool) -> None:
    path = tmp_path / "model.pt"
    torch.save(TENSORS, path, _use_new_zipfile_serialization=not legacy)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UpstreamError):
        read_weights(path)


@pytest.mark.parametrize("place", range(0, 1200, 37))
def test_flipped_bits_are_numbers_or_an_error(tmp_path: Path, place: int) -> None:
    path = tmp_path / "model.pt"
    torch.save(TENSORS, path, _use_new_zipfile_serialization=False)
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 0x24
    path.write_bytes(bytes(data))
    with contextlib.suppress(UpstreamError):
        assert all(isinstance(value, torch.Tensor) for value in read_weights(path).tensors.values())


def test_a_pickle_changes_nothing_of_the_reader(tmp_path: Path) -> None:
    """BUILD sets attributes of whatever stands on the stack: a function, a class, a storage's type."""
    for name in ("collections\nOrderedDict", "torch._utils\n_rebuild_tensor_v2", "torch\nFloatStorage", "os\nsystem"):
        index = b"\x80\x02c" + name.encode() + b"\nN}q\x01X\x05\x00\x00\x00dtypeX\x03\x00\x00\x00abcs\x86b."
        try:
            read_pickled(zipped(tmp_path, index))
        except UpstreamError:
            continue
    good = tmp_path / "good.pt"
    torch.save(TENSORS, good)
    assert same(read_weights(good).tensors, TENSORS)


@pytest.mark.parametrize(
    "data", [b"", b"x", b"GIF89a" * 20, b"\x10\0\0\0\0\0\0\0{" + b"}" * 40, b"PK\x03\x04" + bytes(50)]
)
def test_what_is_no_file_of_weights_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    with pytest.raises(UpstreamError) as error:
        read_weights(path)
    assert error.value.where == "model.bin"


def test_an_index_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(TENSORS, tmp_path / "model.pt")
    monkeypatch.setattr(weights, "MAX_PICKLE", 100)
    with pytest.raises(UpstreamError, match="too large"):
        read_weights(tmp_path / "model.pt")
