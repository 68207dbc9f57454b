"""Operator schemas: the ONNX library's, and for other domains the runtime's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Formal:
    """An input or output as a schema describes it: its name, and its type variable or type."""

    name: str
    variable: str


@dataclass(frozen=True)
class Schema:
    """What is needed of an operator's schema.

    Attributes:
        inputs: In order; the last stands for all further ones if it is variadic.
        outputs: In order; likewise.
        allowed: Type variable to the types that it may stand for.
    """

    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    allowed: Mapping[str, tuple[str, ...]]


@cache
def find_schema(domain: str, op: str, version: int) -> Schema | None:
    """The schema of an operator in an operator set, or None if nobody here knows it."""
    import onnx

    try:
        found = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return _runtime_schema(domain, op, version)
    allowed = {each.type_param_str: tuple(each.allowed_type_strs) for each in found.type_constraints}
    return Schema(
        tuple(Formal(each.name, each.type_str) for each in found.inputs),
        tuple(Formal(each.name, each.type_str) for each in found.outputs),
        allowed,
    )


def _runtime_schema(domain: str, op: str, version: int) -> Schema | None:
    known = [each for each in _runtime_schemas().get((domain, op), ()) if each.since_version <= version]
    if not known:
        return None
    found = max(known, key=lambda each: each.since_version)
    allowed = {each.type_param_str: tuple(each.allowed_type_strs) for each in found.type_constraints}
    return Schema(
        tuple(Formal(each.name, each.typeStr) for each in found.inputs),
        tuple(Formal(each.name, each.typeStr) for each in found.outputs),
        allowed,
    )


@cache
def _runtime_schemas() -> dict[tuple[str, str], list[Any]]:
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    schemas: dict[tuple[str, str], list[Any]] = {}
    for each in runtime.get_all_operator_schema():
        schemas.setdefault((each.domain, each.name), []).append(each)
    return schemas
