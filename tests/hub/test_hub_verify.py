"""What the Hub holds, against what was released: every kind of tampering is found and named."""

from __future__ import annotations

import pytest
from hub_cases import sha256
from hub_here import Here
from huggingface_hub import CommitOperationDelete

from bot.errors import VerificationError
from bot.hub.bundle import MANIFEST, Manifest, ids_of_bytes
from bot.hub.verify import confirm, require, verify


def wrong(here: Here, revision: str = "main") -> dict[str, str]:
    found = verify(here.hub(), here.target, revision, here.cache())
    return {check.path: check.status for check in found.files if check.status != "ok"}


@pytest.fixture
def released(here: Here) -> Here:
    """A release on the main branch, beside a file that is not the bot's."""
    here.publish(here.case(), "commit")
    here.hand_made({"note.txt": b"mine"})
    return here


def test_an_untouched_release_is_whole(released: Here) -> None:
    assert wrong(released) == {}


@pytest.mark.parametrize(
    "path",
    ["model.onnx", "LICENSE", "README.md", "release/card.md", "release/recipe.yaml", "source/config.json", MANIFEST],
)
def test_a_changed_file_is_found_and_named(released: Here, path: str) -> None:
    content = b"---\nlicense: mit\n---\n# tampered\n"
    released.hand_made({path: content})
    expected = {path: "different", "README.md": "different"} if path == "release/card.md" else {path: "different"}
    assert {name: status for name, status in wrong(released).items() if name in expected} == expected
    with pytest.raises(VerificationError) as caught:
        require(verify(released.hub(), released.target, "main", released.cache()))
    assert caught.value.exit_code == 8 and path in str(caught.value) and sha256(content) in str(caught.value)


@pytest.mark.parametrize("path", ["model.onnx", "LICENSE", "README.md", "source/config.json", MANIFEST])
def test_a_missing_file_is_found_and_named(released: Here, path: str) -> None:
    released.api().create_commit(released.target, [CommitOperationDelete(path)], commit_message="Gone")
    assert wrong(released)[path] == "missing"


def test_a_changed_file_is_found_even_if_the_list_of_files_was_changed_with_it(released: Here) -> None:
    manifest = Manifest.from_json(released.hub().read_bytes(released.target, "main", MANIFEST))
    assert manifest is not None
    for path in ("model.onnx", "LICENSE", "source/config.json", "README.md"):
        files = dict(manifest.files) | {path: ids_of_bytes(b"tampered")}
        forged = Manifest(manifest.identity, files).to_json()
        old = {name: released.hub().read_bytes(released.target, "main", name) for name in (path, MANIFEST)}
        released.hand_made({path: b"tampered", MANIFEST: forged})
        assert wrong(released) == {path: "different", MANIFEST: "different"}
        released.hand_made(old)


def test_a_list_of_files_is_known_by_the_releases_own_commit(released: Here) -> None:
    """Also if it agrees with everything, and whoever changed it says that this is the release."""
    manifest = Manifest.from_json(released.hub().read_bytes(released.target, "main", MANIFEST))
    assert manifest is not None
    card = b"---\nlicense: mit\n---\n# tampered\n"
    cards = dict.fromkeys(("README.md", "release/card.md"), card)
    forged = Manifest(manifest.identity, dict(manifest.files) | {path: ids_of_bytes(card) for path in cards})
    trailers = f"Release-Id: {manifest.identity}\nRecipe: faceage"
    files = cards | {MANIFEST: forged.to_json()}
    released.hand_made(files, "alice", commit_description=trailers)
    assert wrong(released) == {MANIFEST: "different"}


@pytest.mark.parametrize("content", [b"{}", b"not json", b'{"schema_version": 99}'])
def test_a_record_that_cannot_be_read_stops(released: Here, content: bytes) -> None:
    released.hand_made({"release.json": content})
    with pytest.raises(VerificationError, match=r"release\.json"):
        verify(released.hub(), released.target, "main", released.cache())


def test_a_changed_record_is_found(released: Here) -> None:
    release = verify(released.hub(), released.target, "main", released.cache()).release
    released.hand_made({"release.json": release.model_copy(update={"runtime": "other"}).to_json()})
    assert wrong(released) == {"release.json": "different"}


def test_an_unexpected_file_in_a_folder_of_the_bot_is_found(released: Here) -> None:
    released.hand_made({"source/evil.py": b"import os", "mine.py": b"1"})
    assert wrong(released) == {"source/evil.py": "unexpected"}


def test_a_repository_without_a_release_says_so(here: Here) -> None:
    here.hand_made({"note.txt": b"mine"})
    with pytest.raises(VerificationError, match=r"holds no release\.json"):
        verify(here.hub(), here.target, "main", here.cache())


def test_nothing_from_before_passes_for_a_download(released: Here) -> None:
    cache = released.cache()
    found = verify(released.hub(), released.target, "main", cache)
    (cache / "stray").write_bytes(b"x")
    (cache / "model.onnx").write_bytes(b"tampered here")
    again = verify(released.hub(), released.target, "main", cache)
    assert again.ok and again == found and not (cache / "stray").exists()


def test_one_bad_download_is_tried_again(here: Here) -> None:
    case = here.case()
    done = here.publish(case)
    here.server.fault("corrupt", f"/{here.target}/resolve/*/model.onnx")
    assert confirm(here.hub(), case.release, done, here.cache()).ok
    assert here.pull_requests() == [(1, "open")]


def test_bad_downloads_of_good_content_close_nothing(here: Here) -> None:
    case = here.case()
    done = here.publish(case)
    here.server.fault("corrupt", f"/{here.target}/resolve/*/model.onnx", times=0)
    with pytest.raises(VerificationError, match=r"model\.onnx"):
        confirm(here.hub(), case.release, done, here.cache())
    here.server.clear_faults()
    assert here.pull_requests() == [(1, "open")]


@pytest.mark.parametrize("place", [-1, 3])
def test_bad_downloads_of_the_list_of_files_close_nothing(here: Here, place: int) -> None:
    """The third byte is one of a key's: the list is JSON as before, and no list any more."""
    case = here.case()
    done = here.publish(case)
    here.server.fault("corrupt", f"/{here.target}/resolve/*/{MANIFEST}", times=0, bytes=place)
    with pytest.raises(VerificationError, match="is not as it was released"):
        confirm(here.hub(), case.release, done, here.cache())
    here.server.clear_faults()
    assert here.pull_requests() == [(1, "open")]


@pytest.mark.parametrize("path", ["model.onnx", "LICENSE", MANIFEST, "README.md"])
def test_a_hub_that_keeps_something_else_has_its_pull_request_closed(here: Here, path: str) -> None:
    case = here.case()
    done = here.publish(case)
    here.hand_made({path: b"---\nlicense: mit\n---\n# else\n"}, revision="refs/pr/1")
    with pytest.raises(VerificationError):
        confirm(here.hub(), case.release, done, here.cache())
    assert here.pull_requests() == [(1, "closed")]
    comments = [event for event in here.api().get_discussion_details(here.target, 1).events if event.type == "comment"]
    assert "does not hold what was published" in comments[-1].content
    again = here.publish(case)
    assert again.kind == "nothing" and "closed by the bot (verification)" in again.reason


def test_other_figures_in_place_of_those_that_were_sent_are_found(here: Here) -> None:
    case, other = here.case(), here.case(bot_version="9.9.9")
    done = here.publish(case)
    files = {
        name: (other.folder / name).read_bytes()
        for name in ("release.json", MANIFEST)
        if (other.folder / name).exists()
    }
    manifest = Manifest.from_json((case.folder / MANIFEST).read_bytes())
    assert manifest is not None
    listed = dict(manifest.files) | {"release.json": ids_of_bytes(files["release.json"])}
    forged = files | {MANIFEST: Manifest(manifest.identity, listed).to_json()}
    # As another run of the bot sends them, at the same moment.
    here.hand_made(forged, commit_description=f"Release-Id: {manifest.identity}", revision="refs/pr/1")
    assert wrong(here, "refs/pr/1") == {}
    with pytest.raises(VerificationError, match="other figures"):
        confirm(here.hub(), case.release, done, here.cache())
