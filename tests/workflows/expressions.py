"""GitHub's expression language, as far as the workflows here use it; whatever else stands in one is an error.

Values are JSON's. Comparisons are loose, as there: texts are compared without regard to case, and values of different
kinds as numbers. A property that an object does not have is null, unless the object is strict: then it is an error,
since it is a misspelling in a test of workflows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

Value = Any

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?))
      | (?P<text>'(?:[^']|'')*')
      | (?P<name>[A-Za-z_][A-Za-z0-9_-]*)
      | (?P<sign>&&|\|\||==|!=|<=|>=|[!<>()\[\].,])
    )""",
    re.VERBOSE,
)


class ExpressionError(Exception):
    """An expression that GitHub would not take, or that this evaluator does not know."""


class Strict(dict[str, Any]):
    """An object of which only the keys that it has may be asked for."""

    def __init__(self, values: Mapping[str, Any], what: str) -> None:
        super().__init__(values)
        self.what = what


def evaluate(text: str, contexts: Mapping[str, Value], functions: Mapping[str, Callable[..., Value]]) -> Value:
    """The value of one expression, without its `${{ }}`.

    Args:
        text: The expression.
        contexts: Those that may be used at this place.
        functions: Those that may be used here besides the general ones, such as `failure`.

    Raises:
        ExpressionError: It is malformed, or names a context, function or property that there is not.
    """
    return _Parser(text, contexts, {**FUNCTIONS, **functions}).whole()


def interpolate(text: str, contexts: Mapping[str, Value], functions: Mapping[str, Callable[..., Value]]) -> Value:
    """A value of a workflow with all its `${{ }}` replaced; one that is nothing but an expression keeps its kind."""
    whole = re.fullmatch(r"\$\{\{(.*?)\}\}", text.strip(), re.DOTALL)
    if whole and "${{" not in whole[1]:
        return evaluate(whole[1], contexts, functions)
    if text.count("${{") != len(re.findall(r"\$\{\{.*?\}\}", text, re.DOTALL)):
        raise ExpressionError(f"an expression has no end: {text!r}")
    return re.sub(
        r"\$\{\{(.*?)\}\}", lambda found: as_text(evaluate(found[1], contexts, functions)), text, flags=re.DOTALL
    )


def is_true(value: Value) -> bool:
    """Whether a value counts as true."""
    if isinstance(value, str):
        return value != ""
    if isinstance(value, bool) or value is None:
        return bool(value)
    return not (isinstance(value, int | float) and (value == 0 or math.isnan(value)))


def as_text(value: Value) -> str:
    """A value inside a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, dict | list):
        raise ExpressionError("an object or a list stands where a text is wanted")
    return str(value)


def _number(value: Value) -> float:
    if value is None or value == "":
        return 0.0
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, str):
        try:
            return float(int(value, 16)) if value.startswith("0x") else float(value)
        except ValueError:
            return math.nan
    return math.nan


def _equal(left: Value, right: Value) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left.casefold() == right.casefold()
    if isinstance(left, dict | list) or isinstance(right, dict | list):
        return left is right
    if left is None and right is None:
        return True
    return _number(left) == _number(right)


def _less(left: Value, right: Value) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left.casefold() < right.casefold()
    return _number(left) < _number(right)


def _contains(where: Value, what: Value) -> bool:
    if isinstance(where, list):
        return any(_equal(each, what) for each in where)
    return as_text(what).casefold() in as_text(where).casefold()


def _format(pattern: Value, *values: Value) -> str:
    def one(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        if not found[1] or int(found[1]) >= len(values):
            raise ExpressionError(f"format: {pattern!r} asks for more than it is given")
        return as_text(values[int(found[1])])

    return re.sub(r"\{\{|\}\}|\{(\d*)\}", one, as_text(pattern))


def _from_json(text: Value) -> Value:
    try:
        return json.loads(as_text(text))
    except ValueError as error:
        raise ExpressionError(f"fromJSON: {error}") from None


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "contains": _contains,
    "startswith": lambda where, what: as_text(where).casefold().startswith(as_text(what).casefold()),
    "endswith": lambda where, what: as_text(where).casefold().endswith(as_text(what).casefold()),
    "format": _format,
    "join": lambda items, by=",": as_text(by).join(map(as_text, items)) if isinstance(items, list) else as_text(items),
    "tojson": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    "fromjson": _from_json,
}


class _Parser:
    """Reads an expression and works it out at once; both sides of `&&` and `||` are read, and one is used."""

    def __init__(self, text: str, contexts: Mapping[str, Value], functions: Mapping[str, Callable[..., Value]]) -> None:
        self.text, self.contexts, self.functions = text, contexts, functions
        self.tokens = self._tokens()
        self.position = 0
        self.skipping = 0

    def _tokens(self) -> list[tuple[str, str]]:
        found, position = [], 0
        rest = self.text.rstrip()
        while position < len(rest):
            match = _TOKEN.match(rest, position)
            if match is None or match.end() == position:
                raise ExpressionError(f"not an expression: {self.text!r}")
            found.append((str(match.lastgroup), match[str(match.lastgroup)]))
            position = match.end()
        return found

    def whole(self) -> Value:
        value = self.either()
        if self.position != len(self.tokens):
            raise ExpressionError(f"{self.tokens[self.position][1]!r} is not expected in {self.text!r}")
        return value

    def next_is(self, *signs: str) -> str:
        """The next token if it is one of these signs, which is then behind us."""
        if self.position < len(self.tokens):
            kind, text = self.tokens[self.position]
            if kind == "sign" and text in signs:
                self.position += 1
                return text
        return ""

    def need(self, sign: str) -> None:
        if not self.next_is(sign):
            raise ExpressionError(f"{sign!r} is missing in {self.text!r}")

    def either(self) -> Value:
        value = self.both()
        while self.next_is("||"):
            value = self._unless(is_true(value), value, self.both)
        return value

    def both(self) -> Value:
        value = self.comparison()
        while self.next_is("&&"):
            value = self._unless(not is_true(value), value, self.comparison)
        return value

    def _unless(self, decided: bool, value: Value, read: Callable[[], Value]) -> Value:
        """The other side of an operator, which is read but not worked out if this side decides."""
        self.skipping += decided
        other = read()
        self.skipping -= decided
        return value if decided else other

    def comparison(self) -> Value:
        value = self.negation()
        while sign := self.next_is("==", "!=", "<", "<=", ">", ">="):
            other = self.negation()
            value = {
                "==": lambda a, b: _equal(a, b),
                "!=": lambda a, b: not _equal(a, b),
                "<": _less,
                ">": lambda a, b: _less(b, a),
                "<=": lambda a, b: _less(a, b) or _equal(a, b),
                ">=": lambda a, b: _less(b, a) or _equal(a, b),
            }[sign](value, other)
        return value

    def negation(self) -> Value:
        if self.next_is("!"):
            return not is_true(self.negation())
        return self.access()

    def access(self) -> Value:
        value = self.primary()
        while True:
            if self.next_is("."):
                kind, name = self._take()
                if kind != "name":
                    raise ExpressionError(f"{name!r} is no property, in {self.text!r}")
                value = self._property(value, name)
            elif self.next_is("["):
                key = self.either()
                self.need("]")
                value = self._item(value, key)
            else:
                return value

    def primary(self) -> Value:
        if self.next_is("("):
            value = self.either()
            self.need(")")
            return value
        kind, text = self._take()
        if kind == "number":
            return _number(text)
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind != "name":
            raise ExpressionError(f"{text!r} is not expected in {self.text!r}")
        if self.next_is("("):
            return self._call(text)
        if text.lower() in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[text.lower()]
        if text not in self.contexts:
            raise ExpressionError(f"there is no context {text!r} here, in {self.text!r}")
        return self.contexts[text]

    def _take(self) -> tuple[str, str]:
        if self.position >= len(self.tokens):
            raise ExpressionError(f"{self.text!r} ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def _call(self, name: str) -> Value:
        arguments = []
        if not self.next_is(")"):
            arguments.append(self.either())
            while self.next_is(","):
                arguments.append(self.either())
            self.need(")")
        function = self.functions.get(name.lower())
        if function is None:
            raise ExpressionError(f"there is no function {name!r} here, in {self.text!r}")
        if self.skipping:
            return None
        try:
            return function(*arguments)
        except TypeError:
            raise ExpressionError(f"{name} takes other arguments, in {self.text!r}") from None

    def _property(self, value: Value, name: str) -> Value:
        if isinstance(value, dict):
            found = next((key for key in value if key.casefold() == name.casefold()), None)
            if found is not None:
                return value[found]
            if isinstance(value, Strict):
                raise ExpressionError(f"{value.what} has no {name!r}, in {self.text!r}")
        return None

    def _item(self, value: Value, key: Value) -> Value:
        if isinstance(value, list):
            index = int(_number(key)) if not math.isnan(_number(key)) else -1
            return value[index] if 0 <= index < len(value) else None
        return self._property(value, as_text(key))
