"""Carries out what was decided: writes the nodes, the casts between the dtypes, and the constants in theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.graph.half.constants import Constants
from bot.graph.half.planning import half_variables, reads_any
from bot.graph.half.scopes import Node, Scope, State, Value
from bot.graph.tensors import FLOAT, FLOAT16

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

_SUFFIX = {FLOAT: "_fp32", FLOAT16: "_fp16"}


def rewrite(root: Scope, constants: Constants) -> None:
    """Writes the result into the graphs that the scopes were read from."""
    writer = _Writer(constants)
    for scope in root.all_scopes():
        writer.taken.update(scope.values)
        writer.node_names.update(node.proto.name for node in scope.nodes)
    for scope in root.all_scopes():
        for value in scope.values.values():
            writer.name(value)
    writer.scope(root)


@dataclass
class _Writer:
    constants: Constants
    taken: set[str] = field(default_factory=set)
    node_names: set[str] = field(default_factory=set)

    def name(self, value: Value) -> None:
        """Gives a tensor its names in the result.

        Under its own name it has the dtype that it is made in, or, as an output of its graph, the one it has to have.
        """
        if not value.is_float:
            return
        own = value.output_dtype if value.is_output else value.native
        for dtype in sorted(value.wanted | {value.native, own}):
            value.names[dtype] = value.name if dtype == own else self.fresh(value.name + _SUFFIX[dtype], self.taken)

    def fresh(self, name: str, taken: set[str]) -> str:
        """A name that is not taken; it is from now on."""
        candidate, number = name, 2
        while candidate in taken:
            candidate, number = f"{name}_{number}", number + 1
        taken.add(candidate)
        return candidate

    def scope(self, scope: Scope) -> None:
        """Writes one graph and those within it."""
        nodes: list[NodeProto] = []
        made_here = [value for value in scope.values.values() if value.producer is None and value.constant is None]
        for value in made_here:
            nodes += self.casts(value)
        for node in scope.nodes:
            for inner in node.inner:
                self.scope(inner)
            nodes += self.node(node)
            for output in node.outputs:
                if output is not None and not output.on_demand:
                    nodes += self.casts(output)
        self.initializers(scope)
        del scope.graph.node[:]
        scope.graph.node.extend(nodes)
        for value, output in zip(scope.outputs, scope.graph.output, strict=True):
            if value.is_float and value.output_dtype == FLOAT16:
                output.type.tensor_type.elem_type = FLOAT16

    def casts(self, value: Value) -> Iterator[NodeProto]:
        """The cast of a tensor into the dtype that it was not made in, if somebody reads that."""
        if not value.is_float:
            return
        for dtype in sorted(value.names):
            if dtype != value.native:
                yield self.cast(value.names[value.native], value.names[dtype], dtype)

    def cast(self, source: str, result: str, dtype: int) -> NodeProto:
        from onnx import helper

        name = self.fresh(f"Cast_{result}", self.node_names)
        return helper.make_node("Cast", [source], [result], name=name, to=dtype)

    def node(self, node: Node) -> Iterator[NodeProto]:
        """A node in the result: itself, several, or none."""
        if node.state is State.MADE:
            yield from self.maker(node)
            return
        result = _copy(node.proto)
        half = half_variables(node) if node.state is State.HALF else frozenset()
        for inputs, place, value, variable, _ in node.slots():
            if value.is_float:
                as_half = variable in half or node.state is State.ALIAS or (node.op, node.state) == ("Cast", State.HALF)
                dtype = _any_dtype(value) if inputs and reads_any(node) else FLOAT16 if as_half and inputs else FLOAT
                (result.input if inputs else result.output)[place] = value.names[dtype if inputs else value.native]
        if node.state is State.ALIAS or (node.op == "Cast" and node.state is State.HALF):
            result.op_type = "Identity"
            del result.attribute[:]
        yield result

    def maker(self, node: Node) -> Iterator[NodeProto]:
        """A Constant, a ConstantOfShape or a Cast from another dtype, once per dtype that is read."""
        value, source = node.outputs[0], node.inputs[0] if node.inputs else None
        if value is None or not value.is_float:
            yield _copy(node.proto)
            return
        for dtype in sorted(value.names, key=lambda dtype: dtype != value.native):
            result = _copy(node.proto)
            result.output[0] = value.names[dtype]
            if dtype != value.native:
                result.name = self.fresh((node.proto.name or "made") + _SUFFIX[dtype], self.node_names)
            if node.op == "Cast" and source is not None:
                _retarget(result, source, dtype)
            elif dtype == FLOAT16 or value.saturate:
                self.fill(node, result, dtype)
            yield result

    def fill(self, node: Node, result: NodeProto, dtype: int) -> None:
        """Writes a constant's contents in another dtype into its node."""
        from onnx import AttributeProto

        value = node.outputs[0]
        if value is None or value.constant is None:
            return
        others = [attribute for attribute in result.attribute if not attribute.name.startswith("value")]
        contents = AttributeProto(name="value", type=AttributeProto.TENSOR)
        contents.t.CopyFrom(value.constant)
        self.constants.write(contents.t, half=dtype == FLOAT16, saturate=value.saturate)
        del result.attribute[:]
        result.attribute.extend([*others, contents])

    def initializers(self, scope: Scope) -> None:
        """Writes a graph's initializers in the dtypes that are read: one of them, or both."""
        from onnx import TensorProto as Proto

        result: list[TensorProto] = []
        for tensor in scope.graph.initializer:
            value = scope.values[tensor.name]
            dtypes = sorted(value.names, key=lambda dtype, value=value: dtype != value.native)  # type: ignore[misc]
            for dtype in dtypes if value.constant is not None and value.is_float else [tensor.data_type]:
                copy = Proto()
                copy.CopyFrom(tensor)
                if value.constant is not None and value.is_float:
                    copy.name = value.names[dtype]
                    if dtype == FLOAT16 or value.saturate:
                        self.constants.write(copy, half=dtype == FLOAT16, saturate=value.saturate)
                    self._declare(scope, tensor.name, copy)
                result.append(copy)
        del scope.graph.initializer[:]
        scope.graph.initializer.extend(result)

    def _declare(self, scope: Scope, name: str, tensor: TensorProto) -> None:
        """Where initializers are graph inputs too, as before IR version 4, the input says the same dtype."""
        from onnx import ValueInfoProto

        for declared in scope.graph.input:
            if declared.name == tensor.name:
                declared.type.tensor_type.elem_type = tensor.data_type
                return
        for declared in scope.graph.input:
            if declared.name == name:
                another = ValueInfoProto()
                another.CopyFrom(declared)
                another.name = tensor.name
                another.type.tensor_type.elem_type = tensor.data_type
                scope.graph.input.append(another)
                return


def _any_dtype(value: Value) -> int:
    """The dtype in which a node that reads any of them reads a tensor: the one that it has without a cast."""
    return value.native if value.native in value.names else min(value.names)


def _retarget(cast: NodeProto, source: Value, dtype: int) -> None:
    """A cast from another dtype goes straight to the one that is read; from float16 to itself it is none."""
    if source.elem == FLOAT16 and dtype == FLOAT16:
        cast.op_type = "Identity"
        del cast.attribute[:]
        return
    for attribute in cast.attribute:
        if attribute.name == "to":
            attribute.i = dtype


def _copy(node: NodeProto) -> NodeProto:
    from onnx import NodeProto as Proto

    copy = Proto()
    copy.CopyFrom(node)
    return copy
