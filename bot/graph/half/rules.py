"""What is known of single operators, beyond what their definitions say of types."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import NodeProto

NO_KERNEL = "runtimes have no float16 kernel for it"

KEPT: dict[str, str] = {
    **dict.fromkeys(("GridSample", "RoiAlign", "MaxRoiPool", "AffineGrid"), "coordinates need more than eleven bits"),
    "CumSum": "a running sum needs more than eleven bits",
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), "quantisation scales stay as they were calibrated"),
    **dict.fromkeys(("DFT", "STFT", "MelWeightMatrix", "Det", "MeanVarianceNormalization"), NO_KERNEL),
    "BitCast": "its result is the bits of what it reads",
}
"""Operators that stay float32 although their definition allows float16, and why."""

MACHINE_LEARNING = "ai.onnx.ml"


def reason_to_keep(node: NodeProto) -> str:
    """Why an operator stays float32 although its definition allows float16; empty if it need not."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if node.domain == MACHINE_LEARNING:
        return "its attributes are float32"
    if node.op_type in ("ScatterElements", "ScatterND") and attributes.get("reduction") is not None:
        return NO_KERNEL if attributes["reduction"].s != b"none" else ""
    if node.op_type == "Attention" and len(node.output) > 3 and node.output[3]:
        return "gives its masked scores away"
    return KEPT.get(node.op_type, "") if node.domain in ("", "ai.onnx") else ""


RUNTIME_OPERATORS = frozenset(
    f"com.microsoft:{name}"
    for name in (
        "Attention",
        "BiasGelu",
        "BiasSplitGelu",
        "FastGelu",
        "FusedGemm",
        "FusedMatMul",
        "Gelu",
        "MultiHeadAttention",
        "QuickGelu",
        "RotaryEmbedding",
    )
)
"""ONNX Runtime's own operators, which ONNX does not define, whose float inputs and first output have one dtype, float16
among others."""

LIKE_FIRST_INPUT = RUNTIME_OPERATORS | {
    "SimplifiedLayerNormalization",
    "com.microsoft:SkipLayerNormalization",
    "com.microsoft:SkipSimplifiedLayerNormalization",
}
"""Operators that ONNX does not define whose first output has the first input's dtype. The normalisations among them
stay float32: some releases sum in half."""

SLOTS_IN_FLOAT: dict[str, frozenset[int]] = {"Resize": frozenset({1, 2}), "Dropout": frozenset({1})}
"""Inputs that stay float32 on a node in float16: small, and runtimes read them as float32."""

NESTED = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators with graphs of their own. What goes into and out of those graphs keeps its dtype, but for If's results."""

MOVES = frozenset(
    {
        "Compress",
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Reshape",
        "ReverseSequence",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Trilu",
        "Unsqueeze",
    }
)
"""Operators that move values and compute nothing."""

TABLE_LOOKUPS = frozenset({"Gather"})
"""Movers whose first input, where it is a constant, is a table of parameters of their own."""

READS_ANY = frozenset({"Shape", "Size", "NonZero"})
"""Operators whose answer does not depend on the dtype of what they read. So is Cast."""

CONTRACTIONS = frozenset({"Conv", "ConvTranspose", "DeformConv", "Einsum", "Gemm", "GRU", "LSTM", "MatMul", "RNN"})
"""Operators that read large weights. One that is beyond float16's range says nothing of their results."""

HEAVY = CONTRACTIONS | RUNTIME_OPERATORS | {"Attention", "FlexAttention", "LinearAttention"}
"""Operators that float16 is for: they are worth a cast before and after."""

INTEGER_ARITHMETIC = MOVES | frozenset(
    {
        "Abs",
        "Add",
        "Ceil",
        "Clip",
        "Cos",
        "Div",
        "Einsum",
        "Exp",
        "Floor",
        "Log",
        "MatMul",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Pow",
        "Range",
        "Reciprocal",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceSum",
        "Round",
        "ScatterND",
        "Sin",
        "Sqrt",
        "Sub",
        "Sum",
        "Where",
    }
)
"""Operators that compute positions, angles, sizes and masks. On nothing but integers they stay float32: a position of
2049 or an angle of 1000 radians has no float16."""

SMALL_CONSTANT = 4096
"""Elements up to which a constant may be a table of positions rather than a layer's weights."""

MASK_CARRIERS = MOVES | frozenset({"Add", "Cast", "ConstantOfShape", "Max", "Min", "Mul", "Sub", "Where"})
"""Operators that a mask passes on its way to a softmax."""

SOFTMAXES = frozenset({"LogSoftmax", "Softmax"})

ATTENTIONS = {"Attention": 3, "com.microsoft:Attention": 5, "com.microsoft:MultiHeadAttention": 5}
"""Operators with a softmax inside, and the place of the input that is added to the scores."""

BOUNDED = frozenset(
    {
        "Clip",
        "Cos",
        "GroupNormalization",
        "HardSigmoid",
        "Hardmax",
        "InstanceNormalization",
        "LayerNormalization",
        "LpNormalization",
        "Log",
        "MeanVarianceNormalization",
        "RMSNormalization",
        "Sigmoid",
        "Sign",
        "Sin",
        "Softmax",
        "Softsign",
        "Tanh",
    }
)
"""Operators whose results are within float16's range, whatever they read."""

COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})

REDUCTIONS_OF_SQUARES = frozenset({"ReduceMean", "ReduceSum", "GlobalAveragePool"})
ROOT_PATH = MOVES | frozenset({"Add", "Clip", "Max", "Pow", "Reciprocal", "Sqrt", "Mul", "Div", "Cast"})
"""Operators between the mean of squares and what is divided by its root."""

SQUARES_INSIDE = frozenset({"LpNormalization", "ReduceL2", "ReduceSumSquare"})
"""Operators whose kernels may store squares in float16 before they add them up."""

SUMS_INSIDE = SQUARES_INSIDE | {"ReduceMean"}
"""Those, and the one whose kernels may store a sum in float16 before they divide it."""
