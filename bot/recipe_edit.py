"""Changes the parameters of steps in the text of a recipe.yaml, and leaves every other byte of it as it is.

The text is parsed only to find where a value stands, and that value alone is written anew, on one line. A person's
comments, quotes, order and indentation around it stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bot.errors import RecipeError

MARK = "# tuned"
"""How a note begins that this module wrote; the next one takes its place."""

_COMMENT = re.compile(r"(?:^|\s)(#.*)$")


def with_parameters(
    text: str, artifact: str, parameters: Mapping[int, Mapping[str, Any]], note: Sequence[str], *, where: str
) -> str:
    """A recipe's text with other parameters for some steps of an artifact.

    Args:
        text: Of the recipe.yaml.
        artifact: Its key.
        parameters: All parameters of a step, by its place among the steps.
        note: Lines of a comment that says why, without `#`; they stand above the steps.
        where: What to call the recipe in a message.

    Returns:
        The new text.

    Raises:
        RecipeError: The steps stand behind an alias, so that changing them would change something else too.
    """
    plan = _value_of(_value_of(_compose(text), "artifacts")[1], artifact)
    key, steps = _value_of(plan[1], "steps")
    if _shared(text, steps):
        what = f"artifacts.{artifact}.steps: stand behind an anchor or an alias, and others would change with them."
        raise RecipeError(what, where=where, remedy="Write the steps out.")
    changes = [_change(text, steps, place, given) for place, given in parameters.items()]
    kept = [comment for start, end, _ in changes for comment in _comments(text[start:end])]
    line = _line_of_note(text, key, plan[0])
    changes.append(_note(text, line, [*note, *(comment.lstrip("# ") for comment in kept)]))
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _compose(text: str) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="rt").compose(text)


def _value_of(mapping: Any, key: str) -> tuple[Any, Any]:
    """The nodes of a key and its value."""
    return next((name, value) for name, value in mapping.value if name.value == key)


def _shared(text: str, steps: Any) -> bool:
    """Whether the steps have a name that something else can use, or are such a use themselves."""
    named = [steps, *steps.value]
    return any(node.anchor for node in named) or text[steps.start_mark.index :].startswith("*")


def _change(text: str, steps: Any, place: int, parameters: Mapping[str, Any]) -> tuple[int, int, str]:
    """Where the new parameters go, from and to, and what is written there."""
    step = steps.value[place]
    written = _flow(parameters)
    if not isinstance(step.value, list):  # a step's name alone
        new = f"{step.value}: {written}"
        return step.start_mark.index, step.end_mark.index, f"{{{new}}}" if steps.flow_style else new
    ((name, value),) = step.value
    if not text[value.start_mark.index : _end(value)].strip():  # nothing behind the colon
        return name.end_mark.index, name.end_mark.index + 1, f": {written}"
    start = value.start_mark.index
    if isinstance(value.value, list) and not value.flow_style:
        start = text.index(":", name.end_mark.index) + 1  # a block begins on a line of its own
        written = f" {written}"
    return start, _end(value), written


def _end(node: Any) -> int:
    """Where a node's last character stands; a block's own mark stands behind the comments that follow it."""
    if isinstance(node.value, list) and node.value and not node.flow_style:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _flow(parameters: Mapping[str, Any]) -> str:
    """Parameters on one line: {keep: [Softmax, Add]}."""
    import io

    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = True
    yaml.width = 1 << 20
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    stream = io.StringIO()
    yaml.dump(dict(parameters), stream)
    return stream.getvalue().strip().removesuffix("...").strip()


def _comments(text: str) -> list[str]:
    found = (_COMMENT.search(line) for line in text.splitlines())
    return [match[1] for match in found if match]


def _line_of_note(text: str, key: Any, artifact: Any) -> int:
    """Where the line begins above which a note stands: that of the steps, or of the artifact if it is on one line."""
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if not text[start : key.start_mark.index].strip():
        return start
    return text.rfind("\n", 0, artifact.start_mark.index) + 1


def _note(text: str, line: int, note: Sequence[str]) -> tuple[int, int, str]:
    """The note, in place of one that stands there already."""
    indent = re.match(r" *", text[line:])
    spaces = indent[0] if indent else ""
    before = text[:line].splitlines(keepends=True)
    first = len(before)
    while first and before[first - 1].lstrip().startswith("#"):
        first -= 1
    old = [place for place in range(first, len(before)) if before[place].lstrip().startswith(MARK)]
    start = sum(len(each) for each in before[: old[0]]) if old else line
    end = start
    if old:
        last = old[0] + 1
        while last < len(before) and before[last].lstrip().startswith("#   "):
            last += 1
        end = sum(len(each) for each in before[:last])
    lines = [f"{spaces}{MARK} {each}" if not place else f"{spaces}#   {each}" for place, each in enumerate(note)]
    return start, end, "".join(f"{each}\n" for each in lines)
