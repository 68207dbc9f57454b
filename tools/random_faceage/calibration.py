"""How far half precision moves the ages of a random-weight network, measured with ONNX Runtime on the CPU.

Two conversions are tried, both with onnxconverter-common. The *plain* one converts everything and must fail, as it does
on the real network. The *two-step* one keeps four operators in float32 and then drops each cast to half precision that
is undone at once; it is the one by which the age head is scaled.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from random_faceage import export, weights

if TYPE_CHECKING:
    import onnx

KEPT_IN_FLOAT32 = ("LayerNormalization", "Softmax", "Add", "Mul")


@dataclass(frozen=True)
class Row:
    """What was measured for one seed. Ages and differences are in years.

    Attributes:
        seed: The seed of the weights.
        age_mean: Mean age over the pictures.
        age_std: Standard deviation of the ages.
        male: Share of the pictures that the network calls male.
        mean_difference: Mean absolute difference of the ages after the two steps.
        max_difference: The largest of them.
        agreement: Share of the pictures whose gender stays.
        plain_nan: Share of the pictures for which the plain conversion gives NaN.
        up_casts: Casts to float32 that the second step removed.
        down_casts: Casts to float16 that it removed.
    """

    seed: int
    age_mean: float
    age_std: float
    male: float
    mean_difference: float
    max_difference: float
    agreement: float
    plain_nan: float
    up_casts: int
    down_casts: int


def measure(size: weights.Size, seed: int, pictures: int) -> Row:
    """Build the network of one seed, convert it both ways and compare the answers on synthetic pictures."""
    faces = weights.pictures(pictures, seed=1, side=size.image)
    source = export.to_onnx(size, seed).SerializeToString()
    age_logits, gender_logits = _run(source, faces)
    ages, male = weights.ages(age_logits), gender_logits.argmax(1)

    converted, up, down = two_steps(_parse(source))
    after_age, after_gender = _run(converted.SerializeToString(), faces)
    difference = np.abs(weights.ages(after_age) - ages)
    plain_age, _ = _run(plain(_parse(source)).SerializeToString(), faces)
    return Row(
        seed=seed,
        age_mean=float(ages.mean()),
        age_std=float(ages.std()),
        male=float(male.mean()),
        mean_difference=float(difference.mean()),
        max_difference=float(difference.max()),
        agreement=float((after_gender.argmax(1) == male).mean()),
        plain_nan=float(np.isnan(plain_age).any(axis=1).mean()),
        up_casts=up,
        down_casts=down,
    )


def plain(model: onnx.ModelProto) -> onnx.ModelProto:
    """Everything to half precision but the inputs and outputs. Changes the model that it is given."""
    from onnxconverter_common import float16

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float16.convert_float_to_float16(model, keep_io_types=True)


def two_steps(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int, int]:
    """The conversion that keeps the residual stream in float32. Changes the model that it is given.

    Returns:
        The model, the number of casts to float32 that were removed, and the number of casts to float16.
    """
    from onnxconverter_common import float16

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blocked = [*float16.DEFAULT_OP_BLOCK_LIST, *KEPT_IN_FLOAT32]
        converted = float16.convert_float_to_float16(model, keep_io_types=True, op_block_list=blocked)
    up, down = _drop_round_trips(converted.graph)
    return converted, up, down


def _drop_round_trips(graph: onnx.GraphProto) -> tuple[int, int]:
    """Let the readers of Cast(to float32) of Cast(to float16) of x read x; return how many casts of each went."""
    outputs = {output.name for output in graph.output}
    down = {node.output[0]: node.input[0] for node in graph.node if _is_cast(node, 10)}
    before = {
        node.output[0]: down[node.input[0]]
        for node in graph.node
        if _is_cast(node, 1) and node.input[0] in down and node.output[0] not in outputs
    }
    kept = [node for node in graph.node if node.output[0] not in before]
    for node in kept:
        for index, name in enumerate(node.input):
            node.input[index] = before.get(name, name)
    read = Counter(name for node in kept for name in node.input) + Counter(outputs)
    left = [node for node in kept if node.output[0] not in down or read[node.output[0]]]
    del graph.node[:]
    graph.node.extend(left)
    return len(before), len(kept) - len(left)


def _is_cast(node: onnx.NodeProto, to: int) -> bool:
    return node.op_type == "Cast" and any(a.name == "to" and a.i == to for a in node.attribute)


def _parse(source: bytes) -> onnx.ModelProto:
    import onnx

    return onnx.load_from_string(source)


def _run(model: bytes, faces: np.ndarray, batch: int = 8) -> tuple[np.ndarray, np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # It warns that it has no Sin and Cos of half precision, and casts around them.
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = ["age_logits", "gender_logits"]
    parts = [session.run(names, {"face": faces[i : i + batch]}) for i in range(0, len(faces), batch)]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
