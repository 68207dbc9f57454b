"""What a quantised graph costs: how far its answers are from the float graph's, per output."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bot.graph.feeding import Samples, open_session, run
from bot.graph.model_file import write_proto

if TYPE_CHECKING:
    from onnx import ModelProto

SAMPLES = 8
"""Samples that the two are compared on."""


def relative_errors(
    source: ModelProto, candidates: Mapping[str, ModelProto], feeds: Mapping[str, Path], scratch: Path, where: str
) -> dict[str, dict[str, float]]:
    """Per candidate and output, the Euclidean norm of the difference divided by that of the source's own deviation.

    Values that are not finite in either are left out.

    Args:
        source: The float graph.
        candidates: Quantised ones, by a name.
        feeds: Per graph input, a .npy file with samples.
        scratch: A folder with room for them.
        where: What to call the model in a message.
    """
    path = scratch / "compared.onnx"
    write_proto(source, path)
    session = open_session(path, where)
    taken = list(Samples(feeds, session, where, SAMPLES))
    names = [each.name for each in session.get_outputs()]
    expected = [run(session, names, fed, where) for fed in taken]
    found = {}
    for key, candidate in candidates.items():
        write_proto(candidate, path)
        session = open_session(path, where)
        answers = [run(session, names, fed, where) for fed in taken]
        found[key] = {
            name: _apart([each[place] for each in expected], [each[place] for each in answers])
            for place, name in enumerate(names)
        }
    path.unlink()
    return found


def _apart(expected: list[np.ndarray], answers: list[np.ndarray]) -> float:
    source = np.concatenate([np.asarray(each, np.float64).ravel() for each in expected])
    candidate = np.concatenate([np.asarray(each, np.float64).ravel() for each in answers])
    finite = np.isfinite(source) & np.isfinite(candidate)
    source, candidate = source[finite], candidate[finite]
    if not source.size:
        return 0.0
    deviation = float(np.linalg.norm(source - source.mean()) or np.linalg.norm(source))
    apart = float(np.linalg.norm(candidate - source))
    return float(f"{apart / deviation:.4g}") if deviation else 0.0
