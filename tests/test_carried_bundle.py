"""A bundle that travels with a release: what may, and what is refused before anything is published."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from bot.errors import RecipeError
from bot.pipeline import receiving
from bot.provenance.bundle import CARRIED, LARGEST_BUNDLE, why_not_carried
from bot.provenance.statement import statement
from bot.records import Release
from tests.card.releases import age_and_gender_release, seed_release
from tests.sigstore_world import Sigstore


def bundle_of(release: Release) -> dict[str, Any]:
    return Sigstore().bundle(statement(release, {}))


def test_a_bundle_about_these_artifacts_may_travel(tmp_path: Path) -> None:
    data = json.dumps(bundle_of(seed_release())).encode()
    assert why_not_carried(data, seed_release()) == ""
    (tmp_path / "bundle.json").write_bytes(data)
    receiving._carry(tmp_path / "bundle.json", seed_release(), tmp_path / "folder")
    assert (tmp_path / "folder" / CARRIED).read_bytes() == data


def _payload(text: bytes) -> dict[str, Any]:
    bundle = bundle_of(seed_release())
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(text).decode()
    return bundle


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no sigstore bundle"),
        (b"[]", "no sigstore bundle"),
        (b"[" * 100_000, "no sigstore bundle"),
        (b"{}", "no sigstore bundle"),
        (json.dumps({**bundle_of(seed_release()), "mediaType": "text/html"}).encode(), "no sigstore bundle"),
        (json.dumps({"mediaType": "x", "dsseEnvelope": {"payload": "%%%"}}).encode(), "no sigstore bundle"),
        (json.dumps(_payload(b"{}")).encode(), "is not an in-toto statement"),
        (json.dumps(_payload(b'{"_type": "https://in-toto.io/Statement/v1"}')).encode(), "is not an in-toto statement"),
        (json.dumps(bundle_of(age_and_gender_release())).encode(), "says nothing about faceage"),
    ],
    ids=["nothing", "a list", "a bomb", "an object", "another kind", "no base64", "no statement", "half", "others"],
)
def test_anything_else_may_not(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "bundle.json").write_bytes(content)
    with pytest.raises(RecipeError, match="cannot travel") as caught:
        receiving._carry(tmp_path / "bundle.json", seed_release(), tmp_path / "folder")
    assert says in str(caught.value), caught.value
    assert not (tmp_path / "folder").exists()


def test_a_bundle_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot be read"):
        receiving._carry(tmp_path / "nothing.json", seed_release(), tmp_path / "folder")
    with (tmp_path / "large.json").open("wb") as stream:
        stream.truncate(LARGEST_BUNDLE + 1)
    with pytest.raises(RecipeError, match="more than"):
        receiving._carry(tmp_path / "large.json", seed_release(), tmp_path / "folder")
