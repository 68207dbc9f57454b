"""What a card declares, whoever wrote it: read as plain data, or said to be unreadable."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.licenses.front_matter import LARGEST_FRONT_MATTER, LONGEST_VALUE, MOST_VALUES, Declared, declared, front_matter


@pytest.mark.parametrize(
    ("card", "license_"),
    [
        (b"---\nlicense: mit\n---\n", "mit"),
        (b"\xef\xbb\xbf---\r\nlicense: MIT\r\n---\r\n", "mit"),
        (b"---\rlicense: mit\r---\r", "mit"),
        (b"---\nlicense:\n  - mit\n  - apache-2.0\n---\n", "mit, apache-2.0"),
        (b"---\nlicense: [mit]\ntags: [license]\n---\n", "mit"),
        (b"---\ntags: {license: gpl}\nlicense: mit\n---\n", "mit"),
        (b"---\n{license: mit, tags: [x]}\n---\n", "mit"),
        (b"---\n? [a, b]\n: c\nlicense: mit\n---\n", "mit"),
        (b"---\n  license: mit\n---\n", "mit"),
        (b"---\nlicense: no\n---\n", "no"),
        (b"---\nlicense:\n- mit\n# or\n- bsd\n\nx: y\n---\n", "mit, bsd"),
        (b"---\nlicense: other # really\nlicense_name: x\n---\n", "other"),
        (b"---\nx: &a [b, c]\ny: *a\nz: !!python/name:os.system\nlicense: mit\n---\n", "mit"),
        (b"---\nlicense:\nx: y\n---\n", None),
        (b"---\nlicense: ''\n---\n", None),
        (b"---\nlicense: ~\n---\n", None),
        (b"---\ntext: |\n  license: mit\n---\n", None),
        (b"---\nlicense: mit\n", None),
        (b"# no front matter\nlicense: mit\n", None),
        (b"---\n# nothing\n---\n", None),
        (b"---\n\n---\n", None),
        (b"\xff\xfe\x00", None),
        (b"", None),
    ],
)
def test_the_declared_licence(card: bytes, license_: str | None) -> None:
    found = declared(card)
    assert (found.license, found.problem) == (license_, "")


def test_all_that_is_declared() -> None:
    inner = b"license: other\nlicense_name: Odd  1\nlicense_link: ./LICENSE\nbase_model:\n- a/b\n- 'c/d'\n"
    assert declared(b"---\n" + inner + b"---\nlicense: x\n") == Declared(
        license="other", license_name="Odd 1", license_link="./LICENSE", base_models=("a/b", "c/d")
    )
    assert declared(b"---\nbase_model: a/b\n---\n").base_models == ("a/b",)


@pytest.mark.parametrize(
    ("inner", "word"),
    [
        (b"x: &a mit\nlicense: *a\n", "license is something else"),
        (b"license: !!python/object/apply:os.system ['true']\n", "license is something else"),
        (b"license: {mit: yes}\n", "license is something else"),
        (b"license: [[mit]]\n", "license is something else"),
        (b"license_name: !x y\n", "license_name is something else"),
        (b"license: mit\ntags: []\nlicense: gpl\n", "license stands twice"),
        (b"x: &x {license: gpl}\nlicense: mit\n<<: *x\n", "another mapping is merged"),
        (b"license: [mit\n", "no valid YAML"),
        (b"\tlicense: mit\n", "no valid YAML"),
        (b"license: mit\nx: 'open\n", "no valid YAML"),
        (b"license: *nowhere\n", "license is something else"),
        (b"- license: mit\n", "no mapping"),
        (b"license\n", "no mapping"),
        (b"license: " + b"m" * (LONGEST_VALUE + 1) + b"\n", "too much text"),
        (b"base_model: [" + b"a/b, " * (MOST_VALUES + 1) + b"]\n", "too much text"),
        (b"x: " + b"[" * 100_000 + b"\n", "levels deep"),
        (b"x: " + b"{a: " * 40_000 + b"\n", "levels deep"),
        (b"? " * 50_000 + b"\n", "levels deep"),
        (b"- " * 50_000 + b"\n", "no mapping"),
        (b"[" * 100_000 + b"\nlicense: mit\n", "no mapping"),
        (b"x: " + b"a" * (LARGEST_FRONT_MATTER + 1) + b"\nlicense: mit\n", "characters"),
    ],
)
def test_what_cannot_be_read_in_one_way_only_is_not_read(inner: bytes, word: str) -> None:
    found = declared(b"---\n" + inner + b"---\n")
    assert word in found.problem and found == Declared(problem=found.problem)


def test_a_chain_of_aliases_is_never_expanded() -> None:
    """Ten to the hundredth values, if it were."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 100)]
    started = time.monotonic()
    assert declared(("---\n" + "\n".join(lines) + "\nlicense: mit\n---\n").encode()).license == "mit"
    assert time.monotonic() - started < 5


def test_the_largest_cards_in_use_are_read() -> None:
    """Those with hundreds of evaluation results, of which the front matter holds a third of what is allowed."""
    results = b"".join(b"- task:\n    type: X%d\n  metrics:\n  - value: %d.5\n" % (i, i) for i in range(2000))
    assert declared(b"---\nmodel-index:\n" + results + b"license: mit\n---\n").license == "mit"


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    found = declared(b"---\n" + data + b"\n---\n")
    assert Declared.model_validate_json(found.to_json()) == found


_PIECES = [
    *("license: ", "base_model:", "mit", "a/b", "\n", " ", "- ", "[", "]", "{", "}", "&a ", "*a", "!!str ", "'", '"'),
    *("? ", ": ", ",", "|\n", "#", "<<: ", "...", "---", "\t", "%YAML 1.1", "\u0085", "\ufeff", "~"),
]


@given(st.lists(st.sampled_from(_PIECES), max_size=30).map("".join))
def test_no_yaml_breaks_it(text: str) -> None:
    found = declared(f"---\n{text}\n---\n".encode())
    assert found.problem == "" or found == Declared(problem=found.problem)


def test_where_the_front_matter_ends() -> None:
    assert front_matter(b"---\na: 1\n---\nb: 2\n---\n") == "a: 1\n"
    assert front_matter(b"\n\n---\na: 1\n---") == "a: 1\n"
    assert front_matter(b"text\n---\na: 1\n---\n") == ""
