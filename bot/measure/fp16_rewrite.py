"""Rewrites a half-precision graph into a single-precision one that rounds where the hardware would.

Every half-precision value keeps its name and becomes a float32 value that holds a half exactly. A node's result goes
through a pair of casts, to float16 and back: that is the rounding, to nearest even, with overflow to infinity and with
subnormals. ONNX Runtime keeps such a pair, since it loses precision; `tests/measure/test_fp16_emulation.py` proves
both over all halves. Weights stay in half in the file and are cast where they are used, so the file does not grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.measure.fp16_graph import all_names, ranks_of, reads_of, rename, sort_nodes
from bot.measure.fp16_kernels import EXACT, NotEmulatedError, Runtime, half_kernel
from bot.measure.fp16_types import (
    FLOAT,
    HALF,
    STRING,
    GraphTypes,
    Type,
    UnknownTypeError,
    attributes,
    infer,
    label,
    of_proto,
    subgraphs,
)

SMALL = 65_536
"""Constants of up to so many elements become float32 in the file: some kernels want to see them when they load."""

_OLDEST_OPSET = 7
_DTYPE_ATTRIBUTES = frozenset({"dtype", "to", "output_dtype", "output_datatype", "softmax_precision", "stash_type"})
_SHARED_BY_ATTENTIONS = frozenset({"num_heads", "scale", "mask_filter_value", "unidirectional"})
"""Attributes that ONNX Runtime's Attention and MultiHeadAttention have in common."""


@dataclass(frozen=True)
class Step:
    """A node of the main graph and the floating-point values that it reads and makes, for finding what overflowed.

    Attributes:
        name: The node's name in the file.
        op: Its operator.
        inputs: Floating-point values that it reads, as the emulated graph names them.
        outputs: Those that it makes.
        unrounded: Per value that is rounded, the value before; values inside a kernel that sums in half included.
        exact: Whether it makes no value that it did not read.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    unrounded: Mapping[str, str]
    exact: bool


@dataclass
class Rewritten:
    """What was done to a model.

    Attributes:
        steps: The main graph's nodes in topological order.
        original: Name in the emulated graph to the name in the file, where they differ.
        rounded: How many values are rounded.
        half_kernels: Operator to what it holds in half and how that is known.
        constants: Half-precision constants of the main graph, as the emulated graph names them.
    """

    steps: list[Step] = field(default_factory=list)
    original: dict[str, str] = field(default_factory=dict)
    rounded: int = 0
    half_kernels: dict[str, str] = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)


def rewrite(model: Any, runtime: Runtime) -> Rewritten:
    """Rewrite a model in place; its large weights may be external or left out, for they are not looked at.

    Args:
        model: A `ModelProto` without model-local functions.
        runtime: Whose kernels to emulate.

    Returns:
        What was done.

    Raises:
        NotEmulatedError: Something in it cannot be emulated.
    """
    opsets = {"" if each.domain == "ai.onnx" else each.domain: each.version for each in model.opset_import}
    if opsets.setdefault("", 18) < _OLDEST_OPSET:
        raise NotEmulatedError(f"opset {opsets['']}: only opset {_OLDEST_OPSET} and later are emulated")
    if not any(each.domain in ("", "ai.onnx") for each in model.opset_import):
        model.opset_import.add(domain="", version=opsets[""])
    if model.training_info:
        raise NotEmulatedError("training information in the model")
    sort_nodes(model.graph)
    try:
        types = infer(model.graph, opsets)
    except UnknownTypeError as error:
        raise NotEmulatedError(str(error)) from error
    writer = _Writer(opsets, runtime, Rewritten(), set(all_names(model.graph)), ranks_of(model))
    writer.main(model.graph, types)
    return writer.done


class _Writer:
    """Writes the nodes of one graph after the other; also the builder that `fp16_kernels` writes its nodes with."""

    def __init__(
        self, opsets: Mapping[str, int], runtime: Runtime, done: Rewritten, names: set[str], ranks: Mapping[str, int]
    ) -> None:
        self.opsets = opsets
        self.runtime = runtime
        self.done = done
        self.names = names
        self.ranks = ranks
        self.nodes: list[Any] = []
        self.constants: dict[str, list[int]] = {}
        self.types: GraphTypes
        self.unrounded: dict[str, str] = {}
        self.waiting: dict[str, Any] = {}

    def main(self, graph: Any, types: GraphTypes) -> None:
        """Rewrite the main graph, whose inputs and outputs keep their names and types."""
        names: dict[str, str] = {}
        before: list[Any] = []
        after: list[Any] = []
        inputs = [value for value in graph.input if self._is_half_tensor(value, "input")]
        outputs = [value for value in graph.output if self._is_half_tensor(value, "output")]
        for value in (*inputs, *outputs):
            if value.name not in names:
                names[value.name] = self._fresh(f"{value.name}/float32")
                self.done.original[names[value.name]] = value.name
        rename(graph, names)
        read = {value.name for value in inputs}
        constants = {tensor.name: tensor for tensor in graph.initializer}
        for name in dict.fromkeys(value.name for value in inputs):
            before.append(_node("Cast", [name], [names[name]], to=FLOAT))
        for name in dict.fromkeys(value.name for value in outputs):
            if name in read:
                continue
            if name in constants:
                constants[name].name = names[name]
            after.append(_node("Cast", [names[name]], [name], to=HALF))
        types.scope.update({new: types.scope[old] for old, new in names.items() if old in types.scope})
        self._graph(graph, types, before, after, read, top=True)

    def _is_half_tensor(self, value: Any, role: str) -> bool:
        kind = of_proto(value.type)
        if kind and kind.half and kind.containers:
            raise NotEmulatedError(
                f"graph {role} {value.name!r}: half-precision tensors in a container ({kind.containers[0]})"
            )
        return bool(kind and kind.half)

    def _graph(
        self, graph: Any, types: GraphTypes, before: list[Any], after: list[Any], fed: set[str], *, top: bool = False
    ) -> None:
        outer = self.nodes, getattr(self, "types", types), self.waiting
        self.nodes, self.types, self.waiting = before, types, {}
        for sparse in graph.sparse_initializer:
            if sparse.values.data_type == HALF:
                raise NotEmulatedError(f"sparse constant {sparse.values.name!r} in half precision")
        for tensor in graph.initializer:
            self._initializer(tensor, fed, top)
        for index, node in enumerate(graph.node):
            self._node(node, index, types, top)
        self._widen_weights({name for node in after for name in node.input} | {value.name for value in graph.output})
        self.nodes += after
        del graph.node[:]
        graph.node.extend(self.nodes)
        del graph.value_info[:]
        self.nodes, self.types, self.waiting = outer

    def _initializer(self, tensor: Any, fed: set[str], top: bool) -> None:
        self._remember(tensor.name, tensor)
        if tensor.data_type != HALF or tensor.name in fed:
            return
        name = tensor.name
        if top:
            self.done.constants.append(name)
        count = 1
        for size in tensor.dims:
            count *= size
        if count <= SMALL and tensor.data_location != tensor.EXTERNAL:
            tensor.CopyFrom(_as_float(tensor))
            return
        tensor.name = self._fresh(f"{name}/float16")
        self.waiting[name] = _node("Cast", [tensor.name], [name], to=FLOAT)

    def _widen_weights(self, read: Iterable[str]) -> None:
        """Cast the large constants that are read for the first time: no earlier, so that few are wide at a time."""
        for name in sorted(self.waiting.keys() & set(read)):
            self.nodes.append(self.waiting.pop(name))

    def _remember(self, name: str, tensor: Any) -> None:
        import onnx

        if tensor.data_type in (6, 7) and len(tensor.dims) <= 1 and tensor.data_location != tensor.EXTERNAL:
            values = onnx.numpy_helper.to_array(tensor).reshape(-1)
            if values.size <= 16:
                self.constants[name] = [int(value) for value in values]

    def _node(self, node: Any, index: int, types: GraphTypes, top: bool) -> None:
        scope = types.scope
        reads = reads_of(node)
        self._widen_weights(reads)
        inputs = tuple(name for name in sorted(reads) if _is_float(scope.get(name)))
        outputs = tuple(name for name in node.output if _is_float(scope.get(name)))
        self.unrounded = {}
        exact = self._write(node, index, types)
        if top:
            exact = exact and next(subgraphs(node), None) is None  # a loop makes values inside
            step = Step(node.name, node.op_type, inputs, outputs, dict(self.unrounded), exact)
            self.done.steps.append(step)

    def _write(self, node: Any, index: int, types: GraphTypes) -> bool:
        """Write the emulation of a node, and return whether it makes no new values."""
        scope = types.scope
        for attribute, inner in subgraphs(node):
            self._subgraph(inner, types.inner.get((index, attribute)), node)
        reads_half = any(_is_half(scope.get(name)) for name in node.input if name)
        makes_half = any(_is_half(scope.get(name)) for name in node.output if name)
        onnx_domain = node.domain in ("", "ai.onnx")
        exact = onnx_domain and _keeps_values(node, reads_half)
        if not (reads_half or makes_half):
            self.nodes.append(node)
            if node.op_type == "Constant" and onnx_domain:
                self._remember_constant(node)
            return exact
        self._refuse(node, scope, reads_half)
        if onnx_domain and (special := getattr(self, f"_op_{node.op_type.lower()}", None)) and special(node, scope):
            return exact
        if entry := half_kernel(node, self.runtime, self):
            self.done.half_kernels[node.op_type] = f"{entry.what} ({_EVIDENCE[entry.evidence]}: {entry.source})"
            for name, value in zip(node.output, entry.emulate(node, self), strict=False):
                if name:
                    self.nodes.append(_node("Identity", [value], [name]))
            return False
        if node.domain == "com.microsoft" and node.op_type == "Attention":
            self._take_projection_out(node)
        if node.domain == "com.microsoft" and node.op_type == "MultiHeadAttention":
            self._unpack_attention(node)
        self._widen(node)
        self._rounding(node, scope, exact)
        return exact

    def _refuse(self, node: Any, scope: Mapping[str, Type], reads_half: bool) -> None:
        if node.op_type == "BitCast":
            raise NotEmulatedError(f"{label(node)}: it reads the bits of a half")
        if node.op_type == "Cast" and reads_half and attributes(node)["to"].i == STRING:
            raise NotEmulatedError(f"{label(node)}: it writes a half as text")

    def _subgraph(self, graph: Any, types: GraphTypes | None, node: Any) -> None:
        if types is None:
            raise NotEmulatedError(f"{label(node)}: a graph in its attributes")
        for value in (*graph.input, *graph.output):
            _widen_type(value.type)
        self._graph(graph, types, [], [], set())

    def _widen(self, node: Any) -> None:
        """Change the attributes that name or hold half precision."""
        for attribute in node.attribute:
            if attribute.name in _DTYPE_ATTRIBUTES and attribute.i == HALF:
                attribute.i = FLOAT
            elif attribute.HasField("t") and attribute.t.data_type == HALF:
                attribute.t.CopyFrom(_as_float(attribute.t))
            elif attribute.HasField("tp"):
                _widen_type(attribute.tp)
            elif attribute.HasField("sparse_tensor") and attribute.sparse_tensor.values.data_type == HALF:
                raise NotEmulatedError(f"{label(node)}: a sparse constant in half precision")
            elif node.op_type.startswith("MatMulNBits") and attribute.name == "accuracy_level":
                attribute.i = 1  # single precision inside: a lower level lets the CPU kernel quantise its input

    def _rounding(self, node: Any, scope: Mapping[str, Type], exact: bool) -> None:
        """Add a node, and round its half-precision results unless they are halves already."""
        self.nodes.append(node)
        if exact:
            return
        for position, name in enumerate(node.output):
            kind = scope.get(name)
            if name and _is_half(kind):
                if kind and kind.containers:
                    raise NotEmulatedError(
                        f"{label(node)}: it puts half-precision tensors in a container ({kind.containers[0]})"
                    )
                wide = self._fresh(f"{name}/unrounded")
                node.output[position] = wide
                self._round_into(wide, name)

    def _round_into(self, value: str, name: str) -> None:
        half = self._fresh(f"{name}/float16")
        self.nodes.append(_node("Cast", [value], [half], to=HALF))
        self.nodes.append(_node("Cast", [half], [name], to=FLOAT))
        self.unrounded[name] = value
        self.done.rounded += 1

    def _fresh(self, name: str) -> str:
        fresh, number = name, 1
        while fresh in self.names:
            number += 1
            fresh = f"{name}_{number}"
        self.names.add(fresh)
        return fresh

    def _remember_constant(self, node: Any) -> None:
        found = attributes(node)
        if "value" in found:
            self._remember(node.output[0], found["value"].t)
        elif "value_ints" in found:
            self.constants[node.output[0]] = [int(value) for value in found["value_ints"].ints]
        elif "value_int" in found:
            self.constants[node.output[0]] = [int(found["value_int"].i)]

    # --- operators that need a hand -------------------------------------------------------------------------------

    def _op_cast(self, node: Any, scope: Mapping[str, Type]) -> bool:
        to_half = attributes(node)["to"].i == HALF
        if to_half and _is_half(scope.get(node.input[0])):
            self.nodes.append(_node("Identity", [node.input[0]], [node.output[0]], name=node.name))
            return True
        return False

    def _op_castlike(self, node: Any, scope: Mapping[str, Type]) -> bool:
        value, name = node.input[0], node.output[0]
        if not _is_half(scope.get(name)):
            return False
        wide = self._fresh(f"{name}/unrounded")
        self.nodes.append(_node("Cast", [value], [wide], name=node.name, to=FLOAT))
        self._round_into(wide, name)
        return True

    def _op_constant(self, node: Any, scope: Mapping[str, Type]) -> bool:
        self._widen(node)
        self.nodes.append(node)
        return True

    def _op_constantofshape(self, node: Any, scope: Mapping[str, Type]) -> bool:
        return self._op_constant(node, scope)

    def _op_sum(self, node: Any, scope: Mapping[str, Type]) -> bool:
        """Kernels add one input after the other, and hold each partial sum in half."""
        return self._chain(node, list(node.input))

    def _op_mean(self, node: Any, scope: Mapping[str, Type]) -> bool:
        count = self.scalar(float(len(node.input)))
        return self._chain(node, list(node.input), count)

    def _chain(self, node: Any, inputs: list[str], divisor: str = "") -> bool:
        total = inputs[0]
        for value in inputs[1:]:
            total = self.rounded("Add", [total, value])
        if divisor:
            total = self.rounded("Div", [total, divisor])
        self.nodes.append(_node("Identity", [total], [node.output[0]], name=node.name))
        return True

    def _take_projection_out(self, node: Any) -> None:
        """Project queries, keys and values in a node of their own: the kernel stores them in half before it goes on.

        Attention with a cache, heads of several sizes or rotary positions stays one node.
        """
        found = attributes(node)
        cached = len(node.output) > 1 or any(node.input[place] for place in (4, 6) if place < len(node.input))
        if cached or "qkv_hidden_sizes" in found or ("do_rotary" in found and found["do_rotary"].i):
            return
        inputs = [*node.input, "", "", "", ""]
        packed = self.rounded("MatMul", inputs[:2])
        parts = [self._third(packed, part) for part in range(3)]
        node.op_type = "MultiHeadAttention"
        del node.input[:]
        node.input.extend([*parts, inputs[2], inputs[3], inputs[5]])
        while node.input[-1] == "":
            del node.input[-1]
        kept = [each for each in node.attribute if each.name in _SHARED_BY_ATTENTIONS]
        del node.attribute[:]
        node.attribute.extend(kept)

    def _third(self, packed: str, part: int) -> str:
        """A third of the last axis."""
        import numpy as np
        import onnx

        cells, index, flat = (
            self.node("Constant", [], value=onnx.numpy_helper.from_array(np.array(each, np.int64)))
            for each in ([0, 0, 3, -1], part, [0, 0, -1])
        )
        taken = self.node("Gather", [self.node("Reshape", [packed, cells]), index], axis=2)
        return self.node("Reshape", [taken, flat])

    def _unpack_attention(self, node: Any) -> None:
        """Give packed queries, keys and values one by one: the CPU kernel reads no packed ones.

        The packed forms are (batch, length, heads, 3, width) as the query alone, and (batch, length, heads, 2, width)
        as the key without a value.
        """
        inputs = [*node.input, "", ""][: max(3, len(node.input))]
        query, key, value = inputs[:3]
        if key and value:
            return
        packed, parts = (key, 2) if key else (query, 3)
        if parts == 2 and len(inputs) > 6 and inputs[6]:
            raise NotEmulatedError(f"{label(node)}: a packed key together with a cache")
        one_by_one = [self._part(packed, part) for part in range(parts)]
        del node.input[:]
        node.input.extend([*([query] if parts == 2 else []), *one_by_one, *inputs[3:]])

    def _part(self, packed: str, part: int) -> str:
        import numpy as np
        import onnx

        index, shape = (
            self.node("Constant", [], value=onnx.numpy_helper.from_array(np.array(each, np.int64)))
            for each in (part, [0, 0, -1])
        )
        return self.node("Reshape", [self.node("Gather", [packed, index], axis=3), shape])

    # --- the builder for `fp16_kernels` ----------------------------------------------------------------------------

    def node(self, op: str, inputs: list[str], **values: Any) -> str:
        """See `fp16_kernels.Builder`."""
        name = self._fresh(f"emulated/{op}")
        self.nodes.append(_node(op, inputs, [name], **values))
        return name

    def rounded(self, op: str, inputs: list[str], **values: Any) -> str:
        """See `fp16_kernels.Builder`."""
        return self.round(self.node(op, inputs, **values))

    def round(self, value: str) -> str:
        """See `fp16_kernels.Builder`."""
        name = self._fresh("emulated/rounded")
        self._round_into(value, name)
        return name

    def scalar(self, value: float) -> str:
        """See `fp16_kernels.Builder`."""
        import numpy as np
        import onnx

        with np.errstate(over="ignore"):
            half = np.float32(np.float16(value))
        return self.node("Constant", [], value=onnx.numpy_helper.from_array(np.array(half, np.float32)))

    def sum_last(self, value: str) -> str:
        """See `fp16_kernels.Builder`."""
        import numpy as np
        import onnx

        if self.opsets[""] < 13:
            return self.node("ReduceSum", [value], axes=[-1], keepdims=1)
        axes = self.node("Constant", [], value=onnx.numpy_helper.from_array(np.array([-1], np.int64)))
        return self.node("ReduceSum", [value, axes], keepdims=1)

    def like(self, node: Any, op: str, inputs: list[str]) -> str:
        """See `fp16_kernels.Builder`."""
        name = self._fresh(f"emulated/{op}")
        made = _node(op, inputs, [name])
        made.attribute.extend(node.attribute)
        self.nodes.append(made)
        return name

    def rank(self, value: str) -> int | None:
        """See `fp16_kernels.Builder`."""
        return self.ranks.get(self.done.original.get(value, value))

    def constant(self, value: str) -> list[int] | None:
        """See `fp16_kernels.Builder`."""
        return self.constants.get(value)


_EVIDENCE = {"read": "not seen on a GPU, read in", "reported": "reported by others", "run": "seen on a GPU"}


def _node(op: str, inputs: Iterable[str], outputs: list[str], name: str = "", **values: Any) -> Any:
    import onnx

    return onnx.helper.make_node(op, list(inputs), outputs, name=name, **values)


def _is_half(kind: Type | None) -> bool:
    return kind is not None and kind.half


def _is_float(kind: Type | None) -> bool:
    return kind is not None and not kind.containers and kind.element in (FLOAT, HALF)


def _keeps_values(node: Any, reads_half: bool) -> bool:
    if node.op_type == "Cast":
        return reads_half and attributes(node)["to"].i in (FLOAT, HALF)
    if node.op_type == "Clip":
        return not node.attribute  # limits in attributes are no halves
    if node.op_type in ("ScatterElements", "ScatterND", "Scatter"):
        found = attributes(node).get("reduction")
        return found is None or found.s in (b"none", b"max", b"min")
    return node.op_type in EXACT


def _widen_type(proto: Any) -> None:
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        if tensor.elem_type == HALF:
            tensor.elem_type = FLOAT
    elif kind in ("sequence_type", "optional_type"):
        _widen_type(getattr(proto, kind).elem_type)


def _as_float(tensor: Any) -> Any:
    import numpy as np
    import onnx

    return onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
