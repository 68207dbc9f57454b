"""From tensors by name to a torch module that holds them, and the parts that many architectures share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bot.errors import UpstreamError

if TYPE_CHECKING:
    import torch

    Tensors = Mapping[str, torch.Tensor]

_NAMED = 4
"""So many names are told of those that are missing."""


def build(
    make: Callable[[], Any],
    tensors: Tensors,
    *,
    where: str,
    unused: Iterable[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> Any:
    """Makes a module and fills it with weights, which have to be exactly its own.

    The module is made without memory first: a configuration that asks for more than the weights hold costs nothing.

    Args:
        make: Makes the module; called twice.
        tensors: Its weights by the names of its state dict. They are converted to float32.
        where: Name of the file, for errors.
        unused: Beginnings of names that may be left over, such as a classifier's.
        renamed: Parts of names that the library which builds the module calls otherwise than the file does, in some of
            its versions: the file's to the module's.

    Returns:
        The module in eval mode, in float32, without gradients.

    Raises:
        UpstreamError: A weight is missing, has another shape, is left over, or is not finite.
    """
    import torch

    with torch.device("meta"):
        skeleton = make()
    wanted = {name: tuple(value.shape) for name, value in skeleton.state_dict().items()}
    tensors = {_renamed(name, wanted, renamed or {}): value for name, value in tensors.items()}
    _compare(wanted, {name: tuple(value.shape) for name, value in tensors.items()}, tuple(unused), where)
    module = make()
    chosen = {name: _as_float32(tensors[name], name, where) for name in wanted}
    module.load_state_dict(chosen, strict=True)
    return module.float().eval().requires_grad_(False)


def _renamed(name: str, wanted: Mapping[str, Any], renamed: Mapping[str, str]) -> str:
    """What the module calls a weight: the file's own name, unless only another one is the module's."""
    if name in wanted:
        return name
    others = (name.replace(part, other) for part, other in renamed.items() if part in name)
    return next((other for other in others if other in wanted), name)


def _compare(
    wanted: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]], unused: tuple[str, ...], where: str
) -> None:
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise UpstreamError(f"lacks {_some(missing)} of the {len(wanted)} weights of this architecture", where=where)
    for name, shape in wanted.items():
        if found[name] != shape:
            what = f"{name} has shape {list(found[name])}, and the configuration makes it {list(shape)}"
            raise UpstreamError(what, where=where)
    left = sorted(name for name in set(found) - set(wanted) if not name.startswith(unused))
    if left:
        what = f"holds {_some(left)}, which this architecture does not have"
        raise UpstreamError(what, where=where, remedy="It is of another architecture, or has a part that is not known.")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _as_float32(tensor: torch.Tensor, name: str, where: str) -> torch.Tensor:
    import torch

    if not tensor.is_floating_point():
        return tensor
    values = tensor.to(torch.float32)
    if not bool(torch.isfinite(values).all()):
        raise UpstreamError(f"{name} holds numbers that are not finite", where=where)
    return values


def without_prefix(tensors: Tensors, *prefixes: str) -> dict[str, Any]:
    """Weights by shorter names: those that begin with a prefix lose it, so that a model saved with its head fits."""
    for prefix in prefixes:
        if any(name.startswith(prefix) for name in tensors):
            return {name.removeprefix(prefix): value for name, value in tensors.items()}
    return dict(tensors)


def l2_normalized(values: torch.Tensor) -> torch.Tensor:
    """Vectors along the last axis, each divided by its Euclidean norm."""
    import torch

    return torch.nn.functional.normalize(values, p=2.0, dim=-1)
