"""Which ONNX Runtime reads which files.

ONNX Runtime publishes a table of the IR version and opsets that each release reads ("ONNX Runtime compatibility"). The
rows from 1.16 on, and the releases in which each of its own operators appeared, were read from the released wheels
themselves, by `benchmarks/graph/runtime_versions.py`; the older rows are the published ones, with the stricter number
where its editions differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

UNKNOWN = "unknown"
"""The minimum runtime of a file that no release in the table reads."""


@dataclass(frozen=True)
class Runtime:
    """What one release of ONNX Runtime reads.

    Attributes:
        version: `major.minor`.
        ir: The highest IR version.
        opset: The highest version of ONNX's own operators.
        ml: The highest version of ai.onnx.ml.
    """

    version: str
    ir: int
    opset: int
    ml: int


RUNTIMES = (
    Runtime("1.0", 6, 11, 2),
    Runtime("1.3", 7, 12, 2),
    Runtime("1.6", 7, 13, 2),
    Runtime("1.8", 7, 14, 2),
    Runtime("1.9", 7, 15, 2),
    Runtime("1.10", 8, 15, 2),
    Runtime("1.11", 8, 16, 3),
    Runtime("1.12", 8, 17, 3),
    Runtime("1.14", 8, 18, 3),
    Runtime("1.16", 9, 19, 3),
    Runtime("1.17", 9, 20, 4),
    Runtime("1.18", 10, 21, 5),
    Runtime("1.21", 10, 22, 5),
    Runtime("1.23", 11, 23, 5),
    Runtime("1.24", 13, 25, 5),
    Runtime("1.25", 13, 26, 5),
    Runtime("1.32", 14, 28, 5),
)
"""The first release that reads more than the one before, oldest first."""

CONTRIB_DOMAIN = "com.microsoft"

_CONTRIB_BEFORE = "1.16"
"""Operators of com.microsoft that are not listed below are in 1.16 already, the oldest release that was looked at."""

_CONTRIB_SINCE: dict[str, tuple[str, ...]] = {
    "1.17": ("DynamicTimeWarping", "EPContext", "GemmFloat8", "MoE", "UnfoldTensor", "WhisperBeamSearch"),
    "1.18": ("GemmaRotaryEmbedding", "QMoE", "SparseAttention"),
    "1.20": ("GatherBlockQuantized",),
    "1.23": ("PagedAttention",),
    "1.25": ("CausalConvWithState", "LinearAttention"),
    "1.27": ("MatMulNBitsMlp", "MatMulNBitsQkv"),
    "1.29": (
        "GatedAdd",
        "GatedRMSNorm",
        "LinearAttentionGate",
        "MRotaryEmbedding",
        "MatMulBlockQuantizedFp4Weight",
        "MatMulBlockQuantizedFp8Weight",
    ),
    "1.30": ("EngramGate", "GatedDeltaNet", "NGramHashMapping", "VarlenCausalConvWithState"),
    "1.31": (
        "BranchwiseRMSNorm",
        "DynamicSparseAttention",
        "HyperConnectionPostMix",
        "HyperConnectionPreMix",
        "PackedSparseAttentionIndexer",
        "ScaledSiLU",
        "SparseAttentionIndexer",
        "SparsePagedAttention",
        "VarlenNGramHashMapping",
    ),
    "1.32": (
        "ConvStateReplay",
        "GatedDeltaNetStateReplay",
        "GatherPacked",
        "HyperConnectionLowRankMix",
        "Mamba2Verify",
        "MatMulNBitsQLoRA",
        "MatMulPacked",
        "MoEGroupRouter",
        "MoEPacked",
        "PackedSparseAttentionIndexerMerge",
        "RMSNormRotary",
        "RouterGateUpProj",
        "SpeculativePrefixCommit",
        "SwiGLU",
    ),
}


def minimum_runtime(ir_version: int, opsets: dict[str, int], contrib_ops: Iterable[str] = ()) -> str:
    """The oldest ONNX Runtime that reads a file with these versions, as `major.minor`.

    It says nothing of whether each operator has a kernel on each provider: only opening the file tells.

    Args:
        ir_version: Of the file.
        opsets: Version per operator domain; the default domain is `ai.onnx`.
        contrib_ops: The operators of com.microsoft that it uses.

    Returns:
        The version, or `unknown` where no release in the table reads the file.
    """
    opset, ml = opsets.get("ai.onnx", 0), opsets.get("ai.onnx.ml", 0)
    reads = (each.version for each in RUNTIMES if each.ir >= ir_version and each.opset >= opset and each.ml >= ml)
    oldest = next(reads, UNKNOWN)
    if oldest == UNKNOWN:
        return UNKNOWN
    since = {op: version for version, ops in _CONTRIB_SINCE.items() for op in ops}
    return max([oldest, *(since.get(op, _CONTRIB_BEFORE) for op in contrib_ops)], key=_number)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
