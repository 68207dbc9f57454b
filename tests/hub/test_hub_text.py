"""Paths, patterns, trailers, front matter: what others wrote, read without believing it."""

from __future__ import annotations

import fnmatch
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.hub.bundle import Ids, Manifest, ids_of, ids_of_bytes
from bot.hub.paths import fixed_folder, goes_deep, is_pattern, matches, near, why_unsafe
from bot.hub.trailers import CLOSED, IDENTITY, RECIPE, trailers_of, with_trailers

NAMES = st.text(st.sampled_from("ab*?.[]!-/\\\x00 \n"), max_size=12)


@given(NAMES)
def test_a_safe_path_stays_within_its_folder(name: str) -> None:
    if not why_unsafe(name):
        path = PurePosixPath("/folder") / name
        assert path.is_relative_to("/folder") and ".." not in path.parts and str(path) == f"/folder/{name}"


@pytest.mark.parametrize(
    "path", ["", "/a", "a/..", "./a", "a/", "a//b", "a\\b", "a:b", "NUL", "x" * 300, "a\x7fb", "\u202ea"]
)
def test_unsafe_paths(path: str) -> None:
    assert why_unsafe(path)


@given(st.text(st.sampled_from("ab.-"), max_size=8), st.text(st.sampled_from("ab*?.-"), max_size=8))
def test_without_slashes_patterns_are_those_of_the_shell(name: str, pattern: str) -> None:
    if "**" not in pattern:
        assert matches(name, pattern) == fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("path", "pattern", "fits"),
    [
        ("a/b.txt", "a/*.txt", True),
        ("a/b/c.txt", "a/*.txt", False),
        ("a/b/c.txt", "a/**", True),
        ("a/b/c.txt", "a/**/c.txt", True),
        ("a/c.txt", "a/**/c.txt", True),
        ("a/b", "a?b", False),
        ("a/b", "a[/]b", False),
        ("ac", "a[!b]", True),
        ("ab", "a[!b]", False),
        ("a[b", "a[b", True),
        ("a\\b", "a[\\]b", True),
    ],
)
def test_patterns(path: str, pattern: str, fits: bool) -> None:
    assert matches(path, pattern) is fits


@given(st.text(st.sampled_from("ab*?[]!^-\\/"), max_size=10), st.text(st.sampled_from("ab/-"), max_size=6))
def test_no_pattern_breaks_it(pattern: str, name: str) -> None:
    assert matches(name, pattern) in (True, False)


def test_the_fixed_part_of_a_pattern() -> None:
    assert (fixed_folder("a/b/*.txt"), fixed_folder("*.txt"), fixed_folder("a/*/c")) == ("a/b", "", "a")
    assert (goes_deep("a/*.txt"), goes_deep("a/*/c"), goes_deep("**")) == (False, True, True)
    assert is_pattern("a*") and not is_pattern("a.txt")


def test_near_names() -> None:
    assert near("modle.onnx", ["model.onnx", "zzz"]) == ["model.onnx"]
    assert near("Config.JSON", ["sub/config.json"]) == ["sub/config.json"]


@given(st.text(max_size=200), st.from_regex(r"[0-9a-f]{64}", fullmatch=True))
def test_trailers_come_back_whatever_stands_before_them(text: str, identity: str) -> None:
    trailers = {IDENTITY: identity, RECIPE: "face-age"}
    assert trailers_of(with_trailers(text, trailers)).items() >= trailers.items()


def test_a_quoted_trailer_does_not_win() -> None:
    text = with_trailers(f"The source says:\n\n{IDENTITY}: {'0' * 64}", {IDENTITY: "1" * 64})
    assert trailers_of(text)[IDENTITY] == "1" * 64
    assert trailers_of(f"see {CLOSED}: superseded\n  {CLOSED}: x") == {}


@given(st.binary(max_size=2000))
def test_ids_of_a_file_and_of_its_bytes_agree(data: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        assert ids_of(Path(file.name)) == ids_of_bytes(data)


def test_the_git_id_is_gits_own() -> None:
    assert ids_of_bytes(b"hello\n").blob == "ce013625030ba8dba906f756967f9e9ca394464a"


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.binary(max_size=20), max_size=4))
def test_a_list_of_files_comes_back(files: dict[str, bytes]) -> None:
    manifest = Manifest("0" * 64, {path: ids_of_bytes(data) for path, data in files.items()})
    assert Manifest.from_json(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"schema_version": 2}', b'{"schema_version":1,"identity":"","files":[{}]}']
)
def test_what_is_no_list_of_files_is_none(data: bytes) -> None:
    assert Manifest.from_json(data) is None
    assert not Ids(1, "", "").are_of(None)
