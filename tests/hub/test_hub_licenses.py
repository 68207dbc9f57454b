"""Which files of a repository are licence texts, and where a card's link leads; what is too much to be one."""

from __future__ import annotations

import pytest
from hub_here import Here

from bot.errors import UpstreamError
from bot.hub import licenses
from bot.hub.licenses import OutOfReach, fetch_texts, find_papers, is_license_text, linked_path


@pytest.mark.parametrize(
    "path",
    [
        *("LICENSE", "license.md", "LICENCE.txt", "COPYING", "COPYING.LESSER", "NOTICE", "UNLICENSE", "LICENSE-APACHE"),
        *("LICENSE.MIT", "DINOv3_LICENSE.md", "deep/down/LICENSE", "third_party_notices.txt", "USE_POLICY.md"),
        *("Terms.pdf", "LICENSES/MIT.txt", "a/licenses/whatever.txt", "LICENSE [1].txt", "EULA"),
    ],
)
def test_what_is_called_like_a_licence(path: str) -> None:
    assert is_license_text(path)


@pytest.mark.parametrize(
    "path",
    [
        *("README.md", "model.onnx", "license_plate.onnx", "license.py", "licensed.md", "NOTICEABLE.md"),
        *("notices/model.bin", "licenses/model.safetensors", "config.json", "terms.json", "my_license_plate.jpg"),
    ],
)
def test_what_is_not(path: str) -> None:
    assert not is_license_text(path)


@pytest.mark.parametrize(
    ("link", "path"),
    [
        ("LICENSE", "LICENSE"),
        ("./terms/base.txt", "terms/base.txt"),
        ("https://huggingface.co/a/b/blob/main/LICENSE%20A.md", "LICENSE A.md"),
        ("https://huggingface.co/a/b/resolve/0123/x/y.txt?download=true", "x/y.txt"),
        ("https://huggingface.co/other/b/blob/main/LICENSE", ""),
        ("https://example.org/license", ""),
        ("", ""),
    ],
)
def test_where_a_link_leads(link: str, path: str) -> None:
    assert linked_path(link, "a/b") == path


def test_texts_are_found_and_fetched(here: Here) -> None:
    here.hand_made({"LICENSE [1].txt": b"one", "deep/NOTICE": b"two", "terms/x.bin": b"three", "model.onnx": b"no"})
    into = here.folder / "into"
    papers = find_papers(here.hub(), here.target, "main", into=into)
    assert papers.card is None
    texts = fetch_texts(here.hub(), papers, "terms/x.bin", into=into)
    assert [text.path for text in texts] == ["LICENSE [1].txt", "deep/NOTICE", "terms/x.bin"]
    assert (into / here.target / papers.commit / "deep/NOTICE").read_bytes() == b"two"


def test_too_many_or_too_large_is_an_error(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.hand_made({"LICENSE": b"x" * 100, "NOTICE": b"y"})
    papers = find_papers(here.hub(), here.target, "main", into=here.folder / "into")
    monkeypatch.setattr(licenses, "LARGEST_TEXT", 99)
    with pytest.raises(UpstreamError, match="LICENSE: is called like a licence text and has 100 bytes"):
        fetch_texts(here.hub(), papers, "", into=here.folder / "into")
    monkeypatch.setattr(licenses, "MOST_TEXTS", 1)
    with pytest.raises(UpstreamError, match="has 2 files"):
        fetch_texts(here.hub(), papers, "", into=here.folder / "into")


def test_what_is_out_of_reach_is_told_from_a_hub_that_fails(here: Here) -> None:
    with pytest.raises(OutOfReach, match="no such repository"):
        find_papers(here.hub(), here.target, "main", into=here.folder / "into")
    here.hand_made({"LICENSE": b"x", "README.md": b"# hi\n"})
    headers = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}
    here.server.fault("status", f"/{here.target}/resolve/*", status=403, headers=headers, times=0)
    with pytest.raises(OutOfReach):
        find_papers(here.hub(), here.target, "main", into=here.folder / "into")
    here.server.clear_faults()
    here.server.fault("status", f"/api/models/{here.target}/*", status=503, times=0)
    with pytest.raises(UpstreamError) as caught:
        find_papers(here.hub(), here.target, "main", into=here.folder / "into")
    assert not isinstance(caught.value, OutOfReach)
