"""Writes a graph node by node, under names of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bot.graph.model_file import Model, Payload
from bot.graph.rebuild.weights import ArrayPayload, MatrixPayload, PackedPayload
from bot.graph.tensors import FLOAT, FLOAT16

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

CONTRIB = "com.microsoft"
IR_VERSION, OPSET = 10, 18
"""What ONNX Runtime reads from 1.18 on."""

_IN_PLACE = 1024
"""Arrays of more bytes than this stay out of the graph's message until it is written."""


class Builder:
    """A graph that grows.

    Attributes:
        model: What is built.
    """

    def __init__(self, source: ModelProto, opset: int = OPSET) -> None:
        """Begins with the source's inputs, outputs and metadata.

        Args:
            source: Its interface is kept.
            opset: Of ONNX's own operators.
        """
        from onnx import ModelProto, helper

        proto = ModelProto(ir_version=IR_VERSION, producer_name="bot")
        proto.opset_import.append(helper.make_opsetid("", opset))
        proto.opset_import.append(helper.make_opsetid(CONTRIB, 1))
        proto.metadata_props.extend(source.metadata_props)
        proto.graph.name = "rebuilt"
        weights = {tensor.name for tensor in source.graph.initializer}
        proto.graph.input.extend(value for value in source.graph.input if value.name not in weights)
        proto.graph.output.extend(source.graph.output)
        for value in (*proto.graph.input, *proto.graph.output):
            value.ClearField("doc_string")
            del value.metadata_props[:]
        self.model = Model(proto)
        self._taken = {value.name for value in (*proto.graph.input, *proto.graph.output)}
        self._arrays: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        name: str,
        kind: tuple[int, Sequence[int | str]] | None = None,
        *,
        domain: str = "",
        outputs: Sequence[str] | None = None,
        **attributes: Any,
    ) -> str:
        """Adds a node.

        Args:
            op: The operator.
            inputs: Names; empty for one that is left out.
            name: Of the node, and of its result unless outputs says otherwise.
            kind: Dtype and shape of the first result, which is declared where ONNX cannot infer it.
            domain: Of the operator.
            outputs: Names of its results.
            attributes: Of the node.

        Returns:
            The name of its first result.
        """
        from onnx import helper

        results = [self.fresh(name)] if outputs is None else list(outputs)
        proto = self.model.proto.graph
        made = helper.make_node(op, list(inputs), results, name=name, domain=domain or None, **attributes)
        proto.node.append(made)
        if kind is not None:
            self.declare(results[0], *kind)
        return results[0]

    def declare(self, name: str, elem: int, shape: Sequence[int | str]) -> None:
        """States the type of a value that ONNX cannot infer."""
        from onnx import helper

        self.model.proto.graph.value_info.append(helper.make_tensor_value_info(name, elem, list(shape)))

    def fresh(self, name: str) -> str:
        """A name that is not taken, as near to this one as may be."""
        chosen, number = name, 1
        while chosen in self._taken:
            number += 1
            chosen = f"{name}_{number}"
        self._taken.add(chosen)
        return chosen

    def array(self, name: str, array: NDArray[Any]) -> str:
        """A constant with these contents, its own dtype and shape; equal ones are there once."""
        from onnx import helper

        array = np.ascontiguousarray(array).reshape(array.shape)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._arrays:
            chosen = self._arrays[key] = self.fresh(name)
            elem = helper.np_dtype_to_tensor_dtype(array.dtype)
            self._tensor(chosen, elem, array.shape, ArrayPayload(array))
        return self._arrays[key]

    def matrix(self, name: str, payload: MatrixPayload | PackedPayload) -> str:
        """A projection's weight."""
        return self.weight(name, FLOAT16 if payload.half else FLOAT, payload.dims, payload)

    def weight(self, name: str, elem: int, dims: Sequence[int], payload: Payload) -> str:
        """A constant whose contents are read while the result is written."""
        chosen = self.fresh(name)
        self._tensor(chosen, elem, dims, payload)
        return chosen

    def tensor(self, name: str, source: Model, tensor: TensorProto) -> str:
        """Another model's tensor, its contents left where they are."""
        chosen = self.fresh(name)
        copy = self.model.proto.graph.initializer.add()
        copy.CopyFrom(tensor)
        copy.name = chosen
        copy.ClearField("doc_string")
        payload = source.payload_of(tensor)
        if payload is not None:
            self.model.point(copy, payload)
        return chosen

    def _tensor(self, name: str, elem: int, dims: Sequence[int], payload: Payload) -> None:
        tensor = self.model.proto.graph.initializer.add(name=name, data_type=elem, dims=dims)
        if payload.length > _IN_PLACE:
            self.model.point(tensor, payload)
        else:
            tensor.raw_data = payload.read().tobytes()
