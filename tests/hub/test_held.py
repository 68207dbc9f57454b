"""Files that lie in a target already: brought here by path and sha256, or the run ends before anything is built."""

from __future__ import annotations

import pytest
from hub_cases import sha256, watched
from hub_here import Here

from bot.errors import OverwriteError
from bot.hub.held import bring, bring_weights

SMALL, LARGE = b"a small model", b"a large model" * 1_000_000


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_a_file_is_brought_once(here: Here, data: bytes) -> None:
    """A small file lies in git itself, and the Hub tells no sha256 of it."""
    hub, into = here.hub(), here.cache()
    head = here.hand_made({"onnx/model.onnx": data}).oid
    with watched(here.server.endpoint) as proxy:
        behind = here.hub(endpoint=proxy.endpoint)
        held = bring(behind, here.target, "onnx/model.onnx", sha256(data), into, where="recipe.yaml:7")
        assert (held.path, held.path.read_bytes()) == (into / sha256(data) / "model.onnx", data)
        assert held.commit == head
        before = [path for _, path, _ in proxy.seen]
        assert bring(behind, here.target, "onnx/model.onnx", sha256(data), into, where="recipe.yaml:7") == held
        assert not any("/resolve/" in path for path in [path for _, path, _ in proxy.seen][len(before) :])
        assert proxy.writes() == []
    held.path.write_bytes(b"damaged on this disk")
    assert bring(hub, here.target, "onnx/model.onnx", sha256(data), into, where="x").path.read_bytes() == data


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_another_content_is_named_with_both_digests_and_the_place_in_the_recipe(here: Here, data: bytes) -> None:
    hub = here.hub()
    here.hand_made({"model.onnx": data})
    with pytest.raises(OverwriteError) as caught:
        bring(hub, here.target, "model.onnx", "1" * 64, here.cache(), where="recipes/x/recipe.yaml:7")
    assert caught.value.exit_code == 6
    for word in (f"{here.target}: model.onnx", sha256(data), "1" * 64, "recipes/x/recipe.yaml:7", "`frozen`"):
        assert word in str(caught.value)


def test_what_is_not_there_is_said(here: Here) -> None:
    with pytest.raises(OverwriteError, match="no such repository"):
        bring(here.hub(), here.target, "model.onnx", "1" * 64, here.cache(), where="x")
    here.hand_made({"other.onnx": b"1"})
    with pytest.raises(OverwriteError, match="no such file"):
        bring(here.hub(), here.target, "model.onnx", "1" * 64, here.cache(), where="x")


def test_its_weights_come_along_from_the_same_commit(here: Here) -> None:
    here.hand_made({"onnx/model.onnx": SMALL, "onnx/data/a.bin": b"weights"})
    held = bring(here.hub(), here.target, "onnx/model.onnx", sha256(SMALL), here.cache(), where="x")
    here.hand_made({"onnx/data/a.bin": b"other weights"})
    (record,) = bring_weights(here.hub(), held, ["data/a.bin"])
    assert (record.path, record.sha256) == ("onnx/data/a.bin", sha256(b"weights"))
    assert (held.path.parent / "data/a.bin").read_bytes() == b"weights"
    with pytest.raises(OverwriteError, match=r"onnx/b\.bin: holds weights of onnx/model\.onnx"):
        bring_weights(here.hub(), held, ["b.bin"])
