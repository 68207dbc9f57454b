"""A small world for tests of the whole path: an embedded Hub, an upstream with a real if tiny network, a recipe."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from tests.hub_server import HubServer, start_hub

ROOT = Path(__file__).parent.parent
UPSTREAM, PICTURES, TARGET = "somebody/network", "somebody/pictures", "local-user/network-onnx"

RECIPE = """\
upstream: {repo: somebody/network, files: {network: model.onnx}, copies: [config.json]}
target: {repo: local-user/network-onnx, open: OPEN, runtime: "onnxruntime>=1.22"}
license: {id: mit}
card: {pipeline_tag: image-classification, tags: [onnx]}
artifacts:
  fp16: {file: network-fp16.onnx, steps: [float16]}
  second: {file: network-second.onnx, steps: [{float16: {keep: [Softmax]}}]}
inputs: {images: {image: {size: [32, 32], scale: 1/255, mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}}
measure:
  samples: {image_folder: {repo: somebody/pictures, count: 6}}
  accuracy:
    score: {decode: expectation, from: probabilities, values: [0, 1, 2, 3, 4], unit: point, metrics: [mean_absolute]}
  timings: {providers: {cpu: required, cuda: optional}, batches: [1]}
gates:
  fp16: {score.mean_absolute: {max: 0.05}}
  second: {score.mean_absolute: {max: 0.05}}
"""

CARD = """\
{% extends "shared/card.md.j2" %}
"""


def network(seed: int = 0, *, classes: int = 5, random_weights: bool = False) -> bytes:
    """A convolutional network with weights from a seed: images [N,3,32,32] to probabilities [N,5]."""
    generator = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(generator.normal(0, 0.3, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["images", "w0", "b0"], ["c0"], name="conv", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r0"], ["g"], name="pool"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["logits"], name="head", transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], name="softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, 32, 32])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", classes])],
        [weight("w0", 16, 3, 3, 3), weight("b0", 16), weight("w1", classes, 16), weight("b1", classes)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    if random_weights:
        helper.set_model_props(model, {"random_weights": "true"})
    return bytes(model.SerializeToString())


def picture(seed: int) -> bytes:
    """A drawn picture, as PNG."""
    generator = np.random.default_rng(seed)
    base = generator.integers(0, 255, (4, 4, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(base).resize((48, 48), Image.Resampling.BICUBIC).save(stream, "PNG")
    return stream.getvalue()


@dataclass
class World:
    """An embedded Hub with an upstream, and a recipe for it."""

    folder: Path
    hub: HubServer

    @property
    def recipes(self) -> Path:
        """The folder of recipes."""
        return self.folder / "recipes"

    @property
    def work(self) -> Path:
        """The work folder."""
        return self.folder / "work"

    @property
    def api(self) -> Any:
        """The ordinary client, as the local user."""
        return self.hub.api()

    def upload(
        self, repository: str, files: dict[str, bytes], *, repo_type: str = "model", message: str = "Add"
    ) -> str:
        """Commits files to a repository of the Hub and returns the commit."""
        from huggingface_hub import CommitOperationAdd

        self.api.create_repo(repository, repo_type=repo_type, exist_ok=True)
        operations = [CommitOperationAdd(name, data) for name, data in files.items()]
        return str(self.api.create_commit(repository, operations, commit_message=message, repo_type=repo_type).oid)

    def seed(self, model: bytes | None = None) -> None:
        """Fills the upstream repositories."""
        readme = b"---\nlicense: mit\n---\n# A network\n"
        files = {"model.onnx": network() if model is None else model, "config.json": b"{}\n", "README.md": readme}
        self.upload(UPSTREAM, files)
        pictures = {f"images/{index}.png": picture(index) for index in range(8)}
        lines = [json.dumps({"file_name": name, "bbox": [2, 2, 40, 40]}) for name in pictures]
        self.upload(PICTURES, {**pictures, "metadata.jsonl": "\n".join(lines).encode()}, repo_type="dataset")

    def write_recipe(self, text: str = RECIPE, *, open_as: str = "pull-request", name: str = "network") -> Path:
        """Writes the recipe and returns its recipe.yaml."""
        folder = self.recipes / name
        (folder / "licenses").mkdir(parents=True, exist_ok=True)
        (folder / "licenses" / "LICENSE").write_text("Permission is granted to all.\n")
        (folder / "card.md.j2").write_text(CARD)
        (folder / "recipe.yaml").write_text(text.replace("OPEN", open_as))
        return folder / "recipe.yaml"

    def command(self, *arguments: str, hub: bool = True) -> list[str]:
        """The command line of one `bot` command."""
        token = self.folder / "token"
        token.write_text(self.hub.token)
        where = ["--hub", self.hub.endpoint, "--token-file", str(token), "--work", str(self.work)] if hub else []
        return [sys.executable, "-m", "bot", *arguments, *where]

    def environment(self) -> dict[str, str]:
        """An environment without anybody's token."""
        keep = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "BOT_"))}
        return {**keep, "BOT_RECIPES": str(self.recipes), "HF_HUB_DISABLE_TELEMETRY": "1"}

    def bot(self, *arguments: str, hub: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
        """Runs one `bot` command as a person would."""
        environment = {**self.environment(), **more.pop("env", {})}
        return subprocess.run(
            self.command(*arguments, hub=hub), capture_output=True, text=True, env=environment, cwd=ROOT, **more
        )

    def publish(self, *arguments: str) -> dict[str, Any]:
        """`bot publish network --json`, which must succeed."""
        done = self.bot("publish", "network", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def pull_requests(self, status: str | None = None) -> list[Any]:
        """The pull requests of the target."""
        if not self.api.repo_exists(TARGET):
            return []
        found = [each for each in self.api.get_repo_discussions(TARGET) if each.is_pull_request]
        return [each for each in found if status is None or each.status == status]


def make_world(folder: Path) -> World:
    """Starts a Hub over an empty folder, fills the upstream and writes the recipe."""
    world = World(folder, start_hub(folder / "hub", "--user", "reader:read", "--user", "other:write"))
    world.seed()
    world.write_recipe()
    return world
