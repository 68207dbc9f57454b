"""What changed for a consumer between two versions of a model: inputs, outputs, types, axes, opsets, runtime."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bot.errors import RecipeError
from bot.records import Signature, TensorSignature

_REQUIREMENT = re.compile(r"(?:onnxruntime(?:-[a-z]+)?\s*(?:==|>=|~=)\s*)?([0-9]+)\.([0-9]+)(?:\.[0-9]+)*")


@dataclass(frozen=True)
class Change:
    """One difference, as a sentence; `breaks` if code written for the old version may fail with the new one."""

    text: str
    breaks: bool


def signature_changes(old: Signature, new: Signature) -> tuple[Change, ...]:
    """The differences of two signatures; none if a consumer can tell them apart by nothing."""
    return (
        *_tensor_changes("input", old.inputs, new.inputs),
        *_tensor_changes("output", old.outputs, new.outputs),
        *_opset_changes(old, new),
        *_runtime_changes(old, new),
        *_file_changes(old, new),
    )


def _tensor_changes(kind: str, old: tuple[TensorSignature, ...], new: tuple[TensorSignature, ...]) -> Iterator[Change]:
    before, after = {tensor.name: tensor for tensor in old}, {tensor.name: tensor for tensor in new}
    for name in before.keys() - after.keys():
        yield Change(f"{kind} {name} is gone", breaks=True)
    for name in after.keys() - before.keys():
        yield Change(f"{kind} {name} is new", breaks=True)
    both = [name for name in before if name in after]
    if both != [name for name in after if name in before]:
        yield Change(f"the {kind}s come in another order: {', '.join(after)}", breaks=True)
    for name in both:
        yield from _one_tensor(f"{kind} {name}", before[name], after[name])


def _one_tensor(what: str, old: TensorSignature, new: TensorSignature) -> Iterator[Change]:
    if old.dtype != new.dtype:
        yield Change(f"{what} is {new.dtype} where it was {old.dtype}", breaks=True)
    if old.shape is None or new.shape is None:
        if (old.shape is None) != (new.shape is None):
            yield Change(f"{what} has a known rank in one version and none in the other", breaks=True)
        return
    if len(old.shape) != len(new.shape):
        yield Change(f"{what} has {len(new.shape)} axes where it had {len(old.shape)}", breaks=True)
        return
    for axis, (before, after) in enumerate(zip(old.shape, new.shape, strict=True)):
        if isinstance(before, int) or isinstance(after, int):
            if before != after:
                yield Change(f"{what}, axis {axis}, is {_size(after)} where it was {_size(before)}", breaks=True)
        elif before != after:
            yield Change(f"{what}, dynamic axis {axis}, is called {after} where it was {before}", breaks=False)


def _size(axis: int | str | None) -> str:
    return f"fixed to {axis}" if isinstance(axis, int) else "dynamic"


def _opset_changes(old: Signature, new: Signature) -> Iterator[Change]:
    for domain in sorted(old.opsets.keys() | new.opsets.keys()):
        before, after = old.opsets.get(domain), new.opsets.get(domain)
        if before != after:
            yield Change(f"opset {domain} is {after or 'not used'} where it was {before or 'not used'}", breaks=False)


def _runtime_changes(old: Signature, new: Signature) -> Iterator[Change]:
    if old.minimum_runtime != new.minimum_runtime:
        text = f"the oldest ONNX Runtime is {new.minimum_runtime} where it was {old.minimum_runtime}"
        yield Change(text, breaks=False)
    for provider in sorted(old.minimum_runtime_on.keys() | new.minimum_runtime_on.keys()):
        before, after = (each.minimum_runtime_on.get(provider, each.minimum_runtime) for each in (old, new))
        if before != after:
            text = f"on {provider} its kernels compute rightly from ONNX Runtime {after} on, where it was {before}"
            yield Change(text, breaks=False)
    for provider in sorted(set(new.not_on) - set(old.not_on)):
        yield Change(f"it has no kernels on {provider} any more", breaks=True)


def _file_changes(old: Signature, new: Signature) -> Iterator[Change]:
    if len(old.external_files) != len(new.external_files):
        text = f"its weights lie in {len(new.external_files)} files beside it where it had {len(old.external_files)}"
        yield Change(text, breaks=True)


def parse_runtime(requirement: str) -> tuple[int, int]:
    """The version of a consumer's runtime: `onnxruntime==1.22.1` or `1.22` gives (1, 22).

    Raises:
        RecipeError: It names no version.
    """
    match = _REQUIREMENT.fullmatch(requirement.strip())
    if not match:
        raise RecipeError(
            f"{requirement!r} names no version of ONNX Runtime.",
            where="--runtime",
            remedy="Write it as onnxruntime==1.22.",
        )
    return int(match[1]), int(match[2])


def why_too_new(signature: Signature, runtime: tuple[int, int] | None) -> str:
    """Why a runtime cannot read a model; empty if it can, or if no runtime was named."""
    if runtime is None:
        return ""
    needed = re.fullmatch(r"([0-9]+)\.([0-9]+)", signature.minimum_runtime)
    if needed is None:
        return f"it is not known which ONNX Runtime reads it ({signature.minimum_runtime})"
    if (int(needed[1]), int(needed[2])) > runtime:
        return f"it needs ONNX Runtime {signature.minimum_runtime}, and the consumer has {runtime[0]}.{runtime[1]}"
    return ""
