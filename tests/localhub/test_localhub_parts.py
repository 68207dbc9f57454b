"""The parts of the embedded Hub by themselves, with the laws that they keep."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.localhub import clock, commits, names, pointers
from bot.localhub.errors import HubError
from bot.localhub.repository import Person, Repository
from bot.localhub.store import Store
from bot.localhub.web import Route, Router, range_of

PACKAGE = Path(__file__).resolve().parents[2] / "bot" / "localhub"


def test_it_imports_nothing_else_of_the_bot() -> None:
    modules = sorted(PACKAGE.glob("*.py"))
    assert len(modules) > 10
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in imported:
                assert not name.startswith("bot") or name.startswith("bot.localhub"), f"{path.name} imports {name}"
                assert not name.startswith("huggingface_hub"), f"{path.name} imports {name}"


# ------------------------------------------------------------------------------------------------------ ranges


@given(st.binary(min_size=1, max_size=50), st.integers(0, 60), st.none() | st.integers(0, 60))
def test_a_range_is_a_slice(content: bytes, first: int, last: int | None) -> None:
    header = f"bytes={first}-{'' if last is None else last}"
    if last is not None and last < first:
        assert range_of(header, len(content)) is None
    elif first >= len(content):
        with pytest.raises(HubError):
            range_of(header, len(content))
    else:
        found = range_of(header, len(content))
        assert found is not None
        start, length = found
        assert content[start : start + length] == content[first : None if last is None else last + 1]


@given(st.integers(1, 50), st.integers(1, 60))
def test_a_suffix_range_is_the_end(size: int, count: int) -> None:
    assert range_of(f"bytes=-{count}", size) == (max(size - count, 0), min(size, count))


@pytest.mark.parametrize("header", ["", "bytes=", "bytes=-", "bytes=a-b", "bytes=0-1,3-4", "items=0-1"])
def test_what_is_no_range_is_the_whole(header: str) -> None:
    assert range_of(header, 10) is None


# ------------------------------------------------------------------------------------------------------ routes


def test_routes_keep_encoded_revisions_whole() -> None:
    def handler(_: object) -> object:
        raise AssertionError

    router = Router([Route("GET", "/{ns}/{name}/resolve/{rev}/{path*}", handler)])  # type: ignore[arg-type]
    for raw, revision, path in (
        ("/a/b/resolve/main/x/y", "main", "x/y"),
        ("/a/b/resolve/refs%2Fpr%2F1/x", "refs/pr/1", "x"),
        ("/a/b/resolve/refs/pr/1/x", "refs/pr/1", "x"),
        ("/a/b/resolve/feat%2Fx/a%20b", "feat/x", "a b"),
        ("/a/b/resolve/main/", "main", ""),
    ):
        _, found = router.find("HEAD", raw)
        assert (found["rev"], found["path"]) == (revision, path)
    with pytest.raises(HubError) as error:
        router.find("POST", "/a/b/resolve/main/x")
    assert error.value.status == 405 and error.value.headers["Allow"] == "GET"


# ------------------------------------------------------------------------------------------------------ names, dates


@pytest.mark.parametrize("name", ["a/b", "A-1/b.c_d", "a/b-c", "0/0", "a_/_b", f"{'a' * 96}/b"])
def test_good_repository_names(name: str) -> None:
    assert names.check_repo_id(name) == name


BAD_REPOSITORIES = "a a/b/c a/ /b a/-b a/b- a/.b a/b. a/b--c a/b..c a/b.git a/b+c é/b ../b api/b"
BAD_REFERENCES = "-x a..b a//b a/ a.lock a.lock/b .a a/.b HEAD refs/heads/x a~b"


@pytest.mark.parametrize("name", [*BAD_REPOSITORIES.split(), f"{'a' * 97}/b", "a/ b", ""])
def test_bad_repository_names(name: str) -> None:
    with pytest.raises(HubError):
        names.check_repo_id(name)


@pytest.mark.parametrize("name", ["main", "feat/x", "v1.0", "a-b_c+d"])
def test_good_reference_names(name: str) -> None:
    assert names.check_reference_name(name) == name


@pytest.mark.parametrize("name", [*BAD_REFERENCES.split(), "", "a b", "0" * 40])
def test_bad_reference_names(name: str) -> None:
    with pytest.raises(HubError):
        names.check_reference_name(name)


@given(st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)))
def test_dates_are_read_as_they_are_written(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC)
    assert clock.parse(clock.iso(moment)) == moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def test_a_distinct_clock_never_repeats_itself() -> None:
    distinct = clock.Clock(distinct=True)
    moments = [distinct.now() for _ in range(10)]
    assert sorted(set(moments)) == moments


@given(st.from_regex(r"[0-9a-f]{64}", fullmatch=True), st.integers(0, 10**14))
def test_pointers_are_read_as_they_are_written(sha256: str, size: int) -> None:
    pointer = pointers.Pointer(sha256, size)
    assert pointers.parse(pointer.encode()) == pointer
    assert pointers.parse(pointer.encode() + b"x") is None


# ------------------------------------------------------------------------------------------------------ trees


@pytest.fixture(scope="module")
def repository() -> Iterator[Repository]:
    """A repository of its own."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "hub")
        yield store.create("models", "o/m", store.local_user.person, store.clock.now())
        store.close()


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
EDITS = st.lists(st.dictionaries(PATHS, st.none() | st.binary(max_size=3), max_size=4), max_size=4)


def edited(files: dict[str, bytes], changes: dict[str, bytes | None]) -> dict[str, bytes]:
    """The law of ``changed_tree``, on a plain dictionary: what is written displaces what stands in its way."""
    result = dict(files)
    for path, content in changes.items():
        result.pop(path, None)
        if content is None:
            for below in [name for name in result if name.startswith(f"{path}/")]:
                del result[below]
    for path, content in changes.items():
        if content is not None:
            for other in [name for name in result if name.startswith(f"{path}/") or path.startswith(f"{name}/")]:
                del result[other]
            result[path] = content
    return result


def is_consistent(changes: dict[str, bytes | None]) -> bool:
    """Whether no path of a change is a folder of another path of it."""
    return not any(other.startswith(f"{path}/") for path in changes for other in changes)


@settings(max_examples=60, deadline=None)
@given(edits=EDITS)
def test_trees_change_as_dictionaries_do(repository: Repository, edits: list[dict[str, bytes | None]]) -> None:
    files: dict[str, bytes] = {}
    tree = None
    for changes in filter(is_consistent, edits):
        files = edited(files, changes)
        stored = {
            path: None if content is None else (repository.store_blob(content), 0o100644)
            for path, content in changes.items()
        }
        tree = repository.git[repository.changed_tree(tree, stored)]
    if tree is not None:
        when = datetime(2024, 1, 1, tzinfo=UTC)
        commit = repository.write_commit(str(tree.id), [], "m", Person("x"), when)
        assert {entry.path: repository.read(entry) for entry in repository.files(commit)} == files


def test_a_path_beside_a_folder_of_its_name(repository: Repository) -> None:
    blob = repository.store_blob(b"x")
    first = repository.git[repository.changed_tree(None, {"a/b": (blob, 0o100644)})]
    second = repository.git[repository.changed_tree(first, {"a": (blob, 0o100644)})]
    assert [item.name for item in second] == ["a"] and second["a"].id == blob
    third = repository.git[repository.changed_tree(second, {"a/c": (blob, 0o100644)})]
    assert [item.name for item in third["a"]] == ["c"]


def test_blobs_are_those_that_git_makes(repository: Repository) -> None:
    for content in (b"", b"x", b"\0" * 100_000):
        oid = repository.store_blob(content)
        assert repository.git[oid].data == content
        assert oid == str(repository.git.create_blob(content))


@pytest.mark.parametrize(
    ("sample", "binary"),
    [
        (b"", False),
        (b"text", False),
        ("é".encode(), False),
        ("é".encode()[:1], False),
        (b"\xe9text", True),
        (b"a\0b", True),
    ],
)
def test_text_is_told_from_binary(repository: Repository, sample: bytes, binary: bool) -> None:
    import base64

    head = repository.resolve("main")
    item = {"path": "x.xyz", "size": len(sample), "sample": base64.b64encode(sample).decode()}
    (answer,) = commits.preupload(repository, head, [item], None)
    assert answer["uploadMode"] == ("lfs" if binary else "regular")


def test_paths_are_ignored_as_git_does() -> None:
    rules = "*.log\n!keep.log\nbuild/\n/top.txt\n"
    paths = ["a.log", "x/keep.log", "build/x", "x/build/y", "top.txt", "x/top.txt"]
    assert commits.ignored_paths(paths, rules) == {"a.log", "build/x", "x/build/y", "top.txt"}
