"""A side of GitHub and a Hub, with a repository of recipes whose upstream means ill, and one run of all workflows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import sigstore_world
from tests.sigstore_world import Sigstore
from tests.workflows import payloads
from tests.workflows.issuer import Issuer
from tests.workflows.known_actions import equivalents
from tests.workflows.runner import GitHub, Job
from tests.world import PICTURES, ROOT, TARGET, UPSTREAM, World, make_world

SHIPPED = ("bot", "templates", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "action.yml", ".github")
QUOTE = "`touch pwned`"

RECIPE = """\
upstream: {repo: somebody/network, files: {network: model.onnx}, copies: ["*.json"]}
target: {repo: local-user/network-onnx, runtime: "onnxruntime>=1.22"}
license: {id: mit}
card: {pipeline_tag: image-classification, tags: [onnx], reported: ["`touch pwned`"]}
artifacts:
  fp16: {file: network-fp16.onnx, steps: [{float16: {keep: [Softmax]}}]}
inputs: {images: {image: {size: [32, 32], scale: 1/255, mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}}
measure:
  samples: {image_folder: {repo: somebody/pictures, count: 4}}
  accuracy:
    score: {decode: expectation, from: probabilities, values: [0, 1, 2, 3, 4], unit: point, metrics: [mean_absolute]}
  timings: {providers: {cpu: required, cuda: optional}, batches: [1]}
gates:
  fp16: {score.mean_absolute: {max: 0.05}}
"""


@dataclass
class Place:
    """Both sides, and what came of one run of watch.yml.

    Attributes:
        world: The Hub's side.
        github: GitHub's side.
        jobs: What came of the run.
        again: The jobs of that run as jobs of publish.yml alone, for runs that repeat only some of them.
    """

    world: World
    github: GitHub
    jobs: dict[str, Job]

    def again(self, *keys: str) -> dict[str, Job]:
        """Jobs of the run, to be used again under their keys in publish.yml."""
        return {key: self.jobs[f"Publish network / {key}"] for key in keys}

    def trust(self, *publishers: dict[str, object]) -> None:
        """Sets whom the target trusts."""
        request = urllib.request.Request(
            f"{self.world.hub.endpoint}/api/models/{TARGET}/trusted-publishers",
            method="PUT",
            data=json.dumps({"publishers": list(publishers)}).encode(),
            headers={"Authorization": f"Bearer {self.world.hub.token}", "Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()

    def publisher(self, workflow: str = "publish.yml", **claims: str) -> dict[str, object]:
        """A trusted publisher, as docs/github-actions.md says to set it."""
        usual = {"repository": "somebody/models", "branch": "main", "workflow": workflow}
        return {"issuer": self.github.issuer.url, "claims": {**usual, "environment": "hugging-face", **claims}}


@pytest.fixture(scope="package")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of its own, which finds what the bot needs where it is installed already."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    (packages / "installed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


@pytest.fixture(scope="package")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands in the bot's repository, without its recipes and tests."""
    folder = tmp_path_factory.mktemp("library")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *SHIPPED]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory, python: Path, library: Path) -> Iterator[Place]:
    """Everything, after a scheduled run of watch.yml has found the recipe due and published it."""
    assert sys.version_info >= (3, 11)
    root = tmp_path_factory.mktemp("github")
    world = make_world(root / "hub-side")
    _mean_ill(world)
    source = root / "models"
    shutil.copytree(library, source)
    world.write_recipe(RECIPE)
    shutil.copytree(world.recipes, source / "recipes")
    world.api.create_repo(TARGET)
    sigstore, issuer = Sigstore(), Issuer().start()
    (root / "trust.json").write_text(json.dumps(sigstore.trust_root()))
    github = GitHub(root / "runners", source, source, python, issuer, equivalents(sigstore))
    github.variables = {
        "HF_ENDPOINT": world.hub.endpoint,
        "BOT_TRUST_ROOT": str(root / "trust.json"),
        "BOT_ISSUER": sigstore_world.ISSUER,
    }
    made = Place(world, github, {})
    made.trust(made.publisher(), made.publisher("watch.yml"))
    made.jobs.update(github.run("watch.yml", "schedule"))
    yield made
    issuer.stop()
    world.hub.stop()


def _mean_ill(world: World) -> None:
    """Fills the upstream with what must have no effect."""
    names = {f"{index} {payload}.json": b"{}\n" for index, payload in enumerate(payloads.IN_FILE_NAMES)}
    files = {"model.onnx": payloads.network(), "README.md": payloads.card().encode(), **names}
    world.upload(UPSTREAM, files, message=payloads.message())
    world.upload(PICTURES, {"notes.txt": payloads.card().encode()}, repo_type="dataset", message=payloads.message())
