from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_graphs import BOOL, graph, model, node, run, save, tensor, value

from bot.errors import StepError, UpstreamError
from bot.graph import model_file, wire
from bot.graph.model_file import all_tensors, read_model, read_whole, write_model, write_proto


def _large(rows: int = 64, columns: int = 128) -> onnx.ModelProto:
    """A MatMul whose weights (32 KiB by default) are larger than what stays in a skeleton."""
    weights = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    return model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", ["n", rows])],
        [value("y", ["n", columns])],
        [tensor("w", weights)],
    )


def _nested() -> onnx.ModelProto:
    """Large tensors everywhere: initializer, Constant, sparse, in a branch, in a function."""
    big = np.arange(5000, dtype=np.float32)
    sparse = helper.make_sparse_tensor(tensor("s", big), tensor("si", np.arange(5000), np.int64), [9000])
    then = graph([node("Constant", [], ["a"], value=tensor("c", big))], [], [value("a", None)])
    other = graph([node("Identity", ["inner"], ["b"])], [], [value("b", None)], [tensor("inner", big)])
    function = helper.make_function(
        "local", "f", [], ["o"], [node("Constant", [], ["o"], value=tensor("c", big))], [helper.make_opsetid("", 18)]
    )
    made = model(
        [
            node("If", ["c"], ["y"], then_branch=then, else_branch=other),
            node("f", [], ["z"], domain="local"),
            node("Constant", [], ["q"], sparse_value=sparse),
        ],
        [value("c", [], BOOL)],
        [value("y", None), value("z", None), value("q", None)],
        [
            tensor("w", big),
            tensor("half", np.arange(10000), np.float16),
            tensor("i", big, np.int64),
            tensor("d", big, np.float64),
        ],
        domains={"local": 1},
        functions=[function],
    )
    made.graph.sparse_initializer.append(sparse)
    return made


@pytest.mark.parametrize("make", [_large, _nested])
def test_a_model_that_is_read_and_written_has_the_bytes_that_protobuf_writes(make: object, tmp_path: Path) -> None:
    proto = make()  # type: ignore[operator]
    source = save(proto, tmp_path / "a.onnx")
    opened = read_model(source)
    assert opened.payloads
    write_model(opened, tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx").read_bytes() == source.read_bytes()
    assert read_whole(source) == proto


def test_weights_stay_on_disk(tmp_path: Path) -> None:
    opened = read_model(save(_nested(), tmp_path / "a.onnx"))
    assert len(opened.payloads) == 11
    assert opened.proto.ByteSize() < 3000
    arrays = {each.name: opened.array(each) for each in all_tensors(opened.proto) if opened.payload_of(each)}
    assert np.array_equal(arrays["w"], np.arange(5000, dtype=np.float32))
    assert arrays["half"].dtype == np.float16
    assert np.array_equal(arrays["i"], np.arange(5000))
    assert arrays["d"].dtype == np.float64


def test_float_data_is_cut_out_and_written_as_raw_data(tmp_path: Path) -> None:
    proto = _large()
    weights = proto.graph.initializer[0]
    numbers = numpy_helper.to_array(weights)
    weights.ClearField("raw_data")
    weights.float_data.extend(numbers.reshape(-1).tolist())
    opened = read_model(save(proto, tmp_path / "a.onnx"))
    assert len(opened.payloads) == 1
    write_model(opened, tmp_path / "b.onnx")
    written = onnx.load(tmp_path / "b.onnx").graph.initializer[0]
    assert written.HasField("raw_data")
    assert np.array_equal(numpy_helper.to_array(written), numbers)


def test_a_file_may_be_replaced_by_what_was_read_from_it(tmp_path: Path) -> None:
    path = save(_large(), tmp_path / "a.onnx")
    before = path.read_bytes()
    opened = read_model(path)
    write_model(opened, path)
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.onnx"]
    other = tmp_path / "b.onnx"
    other.write_bytes(b"")
    assert path.stat().st_mode == other.stat().st_mode


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = save(_large(), tmp_path / "a.onnx")
    opened = read_model(path)

    class Broken:
        length = 64 * 128 * 4

        def read(self) -> np.ndarray:
            raise OSError("disk")

    opened.payloads[0] = Broken()
    before = path.read_bytes()
    with pytest.raises(OSError, match="disk"):
        write_model(opened, path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.onnx"]


def test_a_model_beyond_protobufs_limit_gets_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = read_model(save(_large(), tmp_path / "a.onnx"))
    monkeypatch.setattr(model_file, "_PROTOBUF_BYTES", 20_000)
    write_model(opened, tmp_path / "out" / "b.onnx")
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"b.onnx", "b.onnx.data"}
    again = read_model(tmp_path / "out" / "b.onnx")
    assert again.external_files == ("b.onnx.data",)
    feeds = {"x": np.ones((2, 64), np.float32)}
    assert np.array_equal(run(tmp_path / "a.onnx", feeds)[0], run(tmp_path / "out" / "b.onnx", feeds)[0])
    with pytest.raises(StepError, match="more than the 2 GiB"):
        again.whole()


def test_external_data_is_read_and_taken_into_one_file(tmp_path: Path) -> None:
    proto = _large()
    onnx.save(
        proto,
        tmp_path / "a.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    opened = read_model(tmp_path / "a.onnx")
    assert opened.external_files == ("w.bin",)
    write_model(opened, tmp_path / "b.onnx")
    assert read_model(tmp_path / "b.onnx").external_files == ()
    feeds = {"x": np.ones((2, 64), np.float32)}
    assert np.array_equal(run(tmp_path / "a.onnx", feeds)[0], run(tmp_path / "b.onnx", feeds)[0])


def _with_external(tmp_path: Path, location: str, offset: str | None = None, length: str | None = None) -> Path:
    proto = _large()
    weights = proto.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, content in (("location", location), ("offset", offset), ("length", length)):
        if content is not None:
            weights.external_data.add(key=key, value=content)
    folder = tmp_path / "model"
    folder.mkdir()
    return save(proto, folder / "a.onnx")


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "..\\w.bin", "C:\\w.bin", ""])
def test_external_data_outside_the_folder_is_refused(location: str, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(1 << 20))
    with pytest.raises(UpstreamError, match="outside the model's folder") as caught:
        read_model(_with_external(tmp_path, location))
    assert "'w'" in caught.value.where
    assert "a.onnx" in caught.value.where


def test_external_data_behind_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "w.bin").write_bytes(bytes(1 << 20))
    path = _with_external(tmp_path, "link/w.bin")
    (path.parent / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(UpstreamError, match="symbolic link"):
        read_model(path)


def test_missing_short_and_contradictory_external_data_is_refused(tmp_path: Path) -> None:
    path = _with_external(tmp_path, "w.bin")
    with pytest.raises(UpstreamError, match=r"'w.bin', which is not there"):
        read_model(path)
    (path.parent / "w.bin").write_bytes(bytes(100))
    with pytest.raises(UpstreamError, match=r"needs bytes 0 to 32,768 of 'w.bin', which has 100"):
        read_model(path)


@pytest.mark.parametrize(
    ("offset", "length", "text"),
    [
        ("-4", None, "declares the offset '-4'"),
        ("1e3", None, "declares the offset '1e3'"),
        ("0", "12", "declares 12 bytes of external data and needs 32,768"),
        ("99999999999999999999", None, "needs bytes"),
    ],
)
def test_absurd_places_in_external_data_are_refused(offset: str, length: str, text: str, tmp_path: Path) -> None:
    path = _with_external(tmp_path, "w.bin", offset, length)
    (path.parent / "w.bin").write_bytes(bytes(1 << 15))
    with pytest.raises(UpstreamError, match=text):
        read_model(path)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (POINTER, "a Git LFS pointer"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>", "an HTML page"),
        (b'{"error": "Repository not found"}', "JSON"),
        (b"PK\x03\x04" + bytes(100), "a ZIP archive"),
        ((100).to_bytes(8, "little") + b'{"a":{"dtype":"F32"}}' + bytes(100), "a safetensors file"),
        (b"GGUF" + bytes(100), "a GGUF model"),
        (b"Hello, this is a text file.\n", "is not an ONNX model"),
        (bytes(1000), "is not an ONNX model"),
        (b"\x08\x0a", "has no graph"),
    ],
)
def test_what_is_no_model_is_named(content: bytes, text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(UpstreamError, match=text) as caught:
        read_model(path)
    assert caught.value.where == str(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UpstreamError, match="is not there"):
        read_model(tmp_path / "none.onnx")
    with pytest.raises(UpstreamError, match="is not a file"):
        read_model(tmp_path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = save(_large(8, 8), tmp_path / "a.onnx").read_bytes()
    assert len(whole) < 700
    for end in range(1, len(whole)):
        path = tmp_path / "cut.onnx"
        path.write_bytes(whole[:end])
        with pytest.raises(UpstreamError):
            read_model(path)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_is_refused_or_harmless_and_never_a_crash(data: st.DataObject) -> None:
    whole = bytearray(_large(8, 8).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = Path(os.environ["HOME"]) / "damaged.onnx"
    path.write_bytes(bytes(whole))
    try:
        opened = read_model(path)
    except UpstreamError:
        return
    assert opened.proto.graph.output


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ([8, 9], r"has 256 bytes, and float32 of shape \[8, 9\] needs 288"),
        ([-8, 8], "negative size"),
        ([2**40, 2**40], "claims"),
    ],
)
def test_a_shape_that_does_not_fit_the_contents_is_refused(dims: list[int], text: str, tmp_path: Path) -> None:
    proto = _large(8, 8)
    proto.graph.initializer[0].dims[:] = dims
    with pytest.raises(UpstreamError, match=text):
        read_model(save(proto, tmp_path / "a.onnx"))


def test_a_tensor_without_contents_is_refused(tmp_path: Path) -> None:
    proto = _large(8, 8)
    proto.graph.initializer[0].ClearField("raw_data")
    with pytest.raises(UpstreamError, match=r"has 0 bytes, and float32 of shape \[8, 8\] needs 256"):
        read_model(save(proto, tmp_path / "a.onnx"))
    proto.graph.initializer[0].float_data.extend([1.0] * 63)
    with pytest.raises(UpstreamError, match="has 252 bytes"):
        read_model(save(proto, tmp_path / "a.onnx"))


@pytest.mark.parametrize("dtype", sorted(set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}))
def test_contents_of_every_dtype_are_taken_as_onnx_writes_them(dtype: int, tmp_path: Path) -> None:
    contents = [b"a"] * 5 if dtype == TensorProto.STRING else np.array([0, 1, 1, 0, 1])
    written = helper.make_tensor("w", dtype, [5], contents)
    made = model([node("Identity", ["w"], ["y"])], [], [value("y", [5], dtype)], [written])
    opened = read_model(save(made, tmp_path / "a.onnx"))
    found, expected = opened.array(opened.proto.graph.initializer[0]), numpy_helper.to_array(written)
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()


def test_a_forged_mark_is_refused(tmp_path: Path) -> None:
    proto = _large(8, 8)
    forged = proto.graph.initializer[0]
    forged.ClearField("raw_data")
    forged.data_location = TensorProto.EXTERNAL
    forged.external_data.add(key=wire.MARK, value="0")
    with pytest.raises(UpstreamError, match="reserved key"):
        read_model(save(proto, tmp_path / "a.onnx"))
    real = _large()
    forged.dims[:] = [64, 128]
    real.graph.initializer.append(forged)
    with pytest.raises(UpstreamError, match="reserved key"):
        read_model(save(real, tmp_path / "b.onnx"))


def _field(number: int, body: bytes) -> bytes:
    return wire._tag(number, 2) + wire._varint(len(body)) + body


def test_graphs_nested_without_end_are_refused(tmp_path: Path) -> None:
    big = _field(5, _field(9, bytes(1 << 15)))
    inner = big
    for _ in range(60):
        inner = _field(1, _field(5, _field(6, inner)))
    path = tmp_path / "deep.onnx"
    path.write_bytes(bytes([0x08, 10]) + _field(7, inner))
    with pytest.raises(UpstreamError, match="nested more than 96 deep"):
        read_model(path)


def test_a_large_model_is_opened_in_little_memory(tmp_path: Path) -> None:
    """300 MB of weights, opened in a process that may not use that much."""
    path = tmp_path / "large.onnx"
    save(_large(8192, 9600), path)
    assert path.stat().st_size > 300_000_000
    script = (
        "import json, resource, sys\n"
        "from pathlib import Path\n"
        "from bot.graph.inspection import inspect_model\n"
        "import onnx\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "parameters = inspect_model(Path(sys.argv[1])).census.parameters\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(json.dumps([parameters, (after - before) * 1024]))\n"
    )
    answer = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    parameters, grown = json.loads(answer.stdout)
    assert parameters == {"float32": 8192 * 9600}
    assert grown < 100_000_000


def test_protos_that_hold_their_weights_are_written_whole(tmp_path: Path) -> None:
    write_proto(_large(), tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == _large().SerializeToString()


def test_a_payload_whose_file_shrank_is_reported(tmp_path: Path) -> None:
    path = save(_large(), tmp_path / "a.onnx")
    opened = read_model(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UpstreamError, match="became shorter"):
        opened.array(opened.proto.graph.initializer[0])
