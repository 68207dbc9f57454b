"""Nodes that stay float32 together: around numbers beyond float16's range, roots of squares, arithmetic on integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bot.graph.half import rules
from bot.graph.half.constants import Constants
from bot.graph.half.scopes import Node, Scope, State, Value
from bot.graph.tensors import FLOAT16_OVERFLOWS_AT

BEYOND = "reads a number beyond float16's range"
AFTER_BEYOND = "computes with what may be beyond float16's range"
TOO_SMALL = "reads a constant too small for float16"
_SMALL_FACTOR = 1e-3
"""A factor that is taken to undo a multiplication by a number beyond float16's range."""

_FRACTIONAL = frozenset({0, 10, 11, 16, 17, 18, 19, 20, 23, 24, 27, 28})
"""Dtypes that are not integers: the unknown one, and those of floating point."""

ROOT_OF_SQUARES = "root of a mean of squares"
INTEGERS = "arithmetic on integers"


def mark_masks(values: list[Value], constants: Constants) -> int:
    """Finds constants beyond float16's range that only ever say "not this one" to a softmax.

    In float16 they are `constants.MASK`: any number so far below the others has the same effect if it is finite.

    Returns:
        How many there are.
    """
    found = 0
    for value in values:
        fit = constants.fit(value) if value.constant is not None and value.is_float else None
        if fit is None or not fit.overflowed:
            continue
        sign = -1 if fit.most_negative <= -FLOAT16_OVERFLOWS_AT else 1
        other_side = fit.most_positive if sign < 0 else -fit.most_negative
        if other_side < FLOAT16_OVERFLOWS_AT and _masks(value, sign, {}):
            value.saturate = True
            found += 1
    return found


def only_lowers(value: Value) -> bool:
    """Whether all that a large negative number in a tensor can do is to lower what goes into a softmax."""
    return _masks(value, -1, {})


def _masks(value: Value, sign: int, seen: dict[tuple[Value, int], bool]) -> bool:
    """Whether all that a large number of this sign can do is to lower what goes into a softmax."""
    key = (value, sign)
    if key not in seen:
        seen[key] = True
        readers = value.readers
        seen[key] = not value.is_output and bool(readers) and all(_hides(node, at, sign, seen) for node, at in readers)
    return seen[key]


def _hides(node: Node, place: int, sign: int, seen: dict[tuple[Value, int], bool]) -> bool:
    op = node.op
    if op in rules.SOFTMAXES:
        return sign < 0
    if op in rules.ATTENTIONS:
        return sign < 0 and place == rules.ATTENTIONS[op]
    if op not in rules.MASK_CARRIERS or (op == "Where" and place == 0):
        return False
    if op == "Mul" and not all(each.from_integers or each.constant is not None for each in node.inputs if each):
        return False
    if op == "Cast" and not all(each.is_float for each in node.outputs if each):
        return False
    onward = -sign if op == "Sub" and place == 1 else sign
    return all(_masks(output, onward, seen) for output in node.outputs if output is not None)


def mark_integers(nodes: list[Node], constants: Constants) -> None:
    """Keeps arithmetic on positions, sizes and masks in float32, up to where it meets activations.

    So is arithmetic on constants that ends in an integer, such as the root of a number of patches: it decides a shape,
    and a runtime that could fold it away in float32 may not be able to in float16.
    """
    for node in nodes:
        floats = [value for value in node.inputs if value is not None and value.is_float]
        outputs = [value for value in node.outputs if value is not None and value.is_float]
        integral = _on_integers(node, floats, constants)
        for value in outputs:
            value.from_integers = integral
        if integral and floats and outputs:
            node.stay(INTEGERS)
    for node in _deciding_integers(nodes, constants):
        node.stay(INTEGERS)


def _on_integers(node: Node, floats: list[Value], constants: Constants) -> bool:
    """Whether a node computes with integers and small constants alone."""
    if node.op == "Range":
        return True
    if node.op == "Cast":
        source = node.inputs[0]
        return source is not None and (source.from_integers if floats else source.elem not in _FRACTIONAL)
    return (
        node.op in rules.INTEGER_ARITHMETIC
        and any(value.from_integers for value in floats)
        and all(value.from_integers or _is_small(value, constants) for value in floats)
    )


def _deciding_integers(nodes: list[Node], constants: Constants) -> set[Node]:
    """Nodes that compute with small constants alone, and of whose results integers are made."""
    constant: set[Node] = set()
    for node in nodes:
        floats = [value for value in node.inputs if value is not None and value.is_float]
        if (
            node.op in rules.INTEGER_ARITHMETIC
            and floats
            and all(_is_small(value, constants) or value.producer in constant for value in floats)
        ):
            constant.add(node)
    deciding: set[Node] = set()
    for node in reversed(nodes):
        readers = [reader for value in node.outputs if value is not None for reader, _ in value.readers]
        if node in constant and any(reader in deciding or _makes_integers(reader) for reader in readers):
            deciding.add(node)
    return deciding


def _makes_integers(node: Node) -> bool:
    return node.op == "Cast" and any(value is not None and value.elem not in _FRACTIONAL for value in node.outputs)


def _is_small(value: Value, constants: Constants) -> bool:
    return value.constant is not None and constants.fit(value).elements <= rules.SMALL_CONSTANT


def mark_roots(nodes: list[Node], constants: Constants) -> None:
    """Keeps `x / sqrt(mean(x²) + ε)` and its like in float32: squares pass 65504 where x is only 256."""
    for node in nodes:
        if not _squares(node, constants):
            continue
        sums = [reader for reader in _float_readers(node) if reader.op in rules.REDUCTIONS_OF_SQUARES]
        for total in [node] if node.op == "ReduceSumSquare" else sums:
            path = _to_the_division(total)
            for member in [node, total, *path] if path else []:
                member.stay(ROOT_OF_SQUARES)


def _squares(node: Node, constants: Constants) -> bool:
    if node.state is State.FLOAT:
        return False
    if node.op == "ReduceSumSquare":
        return True
    first, second = [*node.inputs, None, None][:2]
    if node.op == "Mul":
        return first is not None and first is second and first.is_float
    return node.op == "Pow" and second is not None and constants.uniform(second) == 2.0


def _to_the_division(node: Node, depth: int = 8, rooted: bool = False) -> list[Node]:
    """The nodes after a mean of squares, up to and with the first that divides by its root; none if nothing does."""
    for reader in _float_readers(node) if depth else []:
        if reader.op not in rules.ROOT_PATH:
            continue
        activations = [value for value in reader.inputs if value is not None and value.constant is None]
        if rooted and reader.op in ("Div", "Mul") and len(activations) > 1:
            return [reader]
        rest = _to_the_division(reader, depth - 1, rooted or reader.op in ("Sqrt", "Pow"))
        if rest:
            return [reader, *rest]
    return []


def spread_beyond(node: Node, constants: Constants) -> None:
    """Keeps in float32 what reads a node's too large results, up to where they must be in range again."""
    _spread(node, AFTER_BEYOND, lambda reader: reader.op not in rules.BOUNDED and not _scales_down(reader, constants))


def spread_small(node: Node) -> None:
    """Keeps in float32 what reads a number that float16 would make zero, up to where it matters no longer."""
    _spread(node, TOO_SMALL, lambda reader: reader.op in rules.MOVES or reader.op in ("Sqrt", "Pow", "Max"))


def _spread(node: Node, reason: str, goes_on: Callable[[Node], bool]) -> None:
    seen, waiting = {node}, [node]
    while waiting:
        for reader in _float_readers(waiting.pop()):
            if reader in seen or reader.op in rules.NESTED:
                continue
            seen.add(reader)
            reader.stay(reason)
            if goes_on(reader):
                waiting.append(reader)


def _scales_down(node: Node, constants: Constants) -> bool:
    """Whether a node divides by a large constant, or multiplies by a small one."""
    factor = next((value for value in node.inputs[::-1] if value is not None and value.constant is not None), None)
    if factor is None or node.op not in ("Div", "Mul") or (node.op == "Div" and node.inputs[1] is not factor):
        return False
    fit = constants.fit(factor)
    magnitude = max(fit.most_positive, -fit.most_negative)
    return magnitude >= 1 / _SMALL_FACTOR if node.op == "Div" else magnitude <= _SMALL_FACTOR


def harmless(node: Node, value: Value, constants: Constants) -> bool:
    """Whether a constant beyond the range is a bound that no float16 reaches, so that infinity does as well."""
    fit = constants.fit(value)
    if node.op == "Clip" or node.op in rules.COMPARISONS:
        return True
    if node.op == "Min":
        return fit.most_negative > -FLOAT16_OVERFLOWS_AT
    return node.op == "Max" and fit.most_positive < FLOAT16_OVERFLOWS_AT


def readers_of(value: Value) -> Iterator[Node]:
    """Nodes that read a tensor: under its name, behind branches and loops that give it out, in a loop's next turn.

    A node may come more than once.
    """
    waiting, known = [value], {value}
    while waiting:
        each = waiting.pop()
        yield from (reader for reader, _ in each.readers)
        onward = [other for other in _passed_on(each) if other not in known]
        known.update(onward)
        waiting += onward


def _passed_on(value: Value) -> Iterator[Value]:
    """Tensors of other graphs that are given a tensor as it is."""
    for reader, place in value.readers:
        if reader.op in ("Loop", "Scan"):
            yield from _input_of(reader.inner[0], place)
    owner = value.scope.owner
    for place, result in enumerate(value.scope.outputs) if owner is not None and value.is_output else []:
        if result is value and owner is not None and owner.op in ("If", "Loop", "Scan"):
            # A loop's body has its condition before, and its count before both.
            shift = owner.op == "Loop"
            outer = owner.outputs[place - shift] if shift <= place < len(owner.outputs) + shift else None
            if outer is not None:
                yield outer
            if owner.op != "If":
                yield from _input_of(value.scope, place + shift)


def _input_of(scope: Scope, place: int) -> Iterator[Value]:
    inputs = scope.graph.input
    if place < len(inputs):
        yield scope.values[inputs[place].name]


def _float_readers(node: Node) -> Iterator[Node]:
    """Nodes that read a float32 result of a node and have one of their own."""
    for value in node.outputs:
        if value is not None and value.is_float:
            for reader in readers_of(value):
                if any(output is not None and output.is_float for output in reader.outputs):
                    yield reader
