"""The evaluator of GitHub's expressions, which the other tests here rest on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workflows.expressions import ExpressionError, Strict, evaluate, interpolate

CONTEXTS: dict[str, Any] = {
    "inputs": Strict({"recipe": "Smile", "retry": False, "empty": ""}, "inputs"),
    "vars": {"BOT_PAUSED": "TRUE"},
    "needs": {"plan": {"outputs": {"matrix": '{"include": [{"recipe": "a"}, {"recipe": "b"}]}', "it's": 1}}},
    "github": Strict({"repository": "somebody/models"}, "github"),
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inputs.recipe", "Smile"),
        ("inputs['recipe']", "Smile"),
        ("inputs.RECIPE == 'smile'", True),
        ("inputs.retry", False),
        ("!inputs.retry", True),
        ("!!inputs.empty", False),
        ("vars.BOT_PAUSED != 'true'", False),
        ("vars.NOT_SET", None),
        ("vars.NOT_SET == ''", True),
        ("vars.NOT_SET.deeper", None),
        ("vars.NOT_SET || 'default'", "default"),
        ("'' || 0 || 'last'", "last"),
        ("'a' && 'b'", "b"),
        ("false && 'b' || 'c'", "c"),
        ("fromJSON(needs.plan.outputs.matrix).include[1].recipe", "b"),
        ("fromJSON(needs.plan.outputs.matrix).include[2] != null", False),
        ("needs.plan.outputs['it''s']", 1),
        ("'it''s'", "it's"),
        ("format('{0}/{1} {{0}}', 'a', 2)", "a/2 {0}"),
        ("contains('Hello', 'ell')", True),
        ("contains(fromJSON('[\"a\", \"B\"]'), 'b')", True),
        ("startsWith(github.repository, 'Some')", True),
        ("endsWith(github.repository, 'models')", True),
        ("join(fromJSON('[1, 2]'), '-')", "1-2"),
        ("1 == '1'", True),
        ("true == 1", True),
        ("null == 0", True),
        ("'a' == 0", False),
        ("0x10 == 16", True),
        ("-1.5 < 2 && 2 <= 2 && 3 > 2 && 2 >= 2", True),
        ("(1 == 1 && 'yes') || 'no'", "yes"),
        ("1 == 2 && 'yes' || 'no'", "no"),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert evaluate(text, CONTEXTS, {}) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secrets.TOKEN",
        "inputs.recpie",
        "github.tokn",
        "system('id')",
        "success()",
        "a b",
        "inputs.",
        "(1",
        "'open",
        "inputs.*.name",
        '"double"',
        "1 +  2",
        "format('{1}', 'a')",
        "fromJSON('{')",
        "contains('a')",
        "${{ 1 }}",
    ],
)
def test_what_is_not_known_is_an_error(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(text, CONTEXTS, {})


def test_functions_of_a_place() -> None:
    assert evaluate("failure() || cancelled()", {}, {"failure": lambda: False, "cancelled": lambda: True}) is True


def test_the_side_that_does_not_count_is_not_worked_out() -> None:
    assert evaluate("true || fromJSON('{')", {}, {}) is True
    assert evaluate("'' && fromJSON('{')", {}, {}) == ""


def test_interpolation() -> None:
    assert interpolate("${{ inputs.retry }}", CONTEXTS, {}) is False
    assert interpolate("publish-${{ inputs.recipe }}-${{ inputs.retry }}", CONTEXTS, {}) == "publish-Smile-false"
    assert interpolate("nothing", CONTEXTS, {}) == "nothing"
    with pytest.raises(ExpressionError):
        interpolate("a ${{ inputs.recipe", CONTEXTS, {})
    with pytest.raises(ExpressionError):
        interpolate("a ${{ needs }}", CONTEXTS, {})


def test_what_is_put_in_is_not_read_again() -> None:
    contexts = {"inputs": {"recipe": "${{ github.token }}"}}
    assert interpolate("a ${{ inputs.recipe }}", contexts, {}) == "a ${{ github.token }}"
