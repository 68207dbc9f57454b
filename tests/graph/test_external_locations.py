"""The names of the files that hold a model's weights, read before those files are there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bot.errors import UpstreamError
from bot.graph.model_file import external_locations


def model(locations: dict[str, str]) -> onnx.ModelProto:
    """A graph with one external tensor per name, and a large one that lies in the file itself."""
    tensors = [numpy_helper.from_array(np.zeros(4096, np.float32), "inside")]
    for name, location in locations.items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        tensors.append(tensor)
    output = helper.make_tensor_value_info("inside", TensorProto.FLOAT, [4096])
    return helper.make_model(helper.make_graph([], "graph", [], [output], tensors))


def written(path: Path, locations: dict[str, str]) -> Path:
    path.write_bytes(model(locations).SerializeToString())
    return path


def test_each_file_is_named_once_though_it_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path / "model.onnx", {"a": "w.bin", "b": "./w.bin", "c": "data/v.bin"})
    assert external_locations(path) == ("w.bin", "data/v.bin")
    assert external_locations(written(path, {})) == ()


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "C:\\w.bin", "a/../../w.bin", "", "a\0b"])
def test_a_file_outside_the_models_folder_is_refused(tmp_path: Path, location: str) -> None:
    with pytest.raises(UpstreamError, match="outside the model's folder"):
        external_locations(written(tmp_path / "model.onnx", {"a": location}))
