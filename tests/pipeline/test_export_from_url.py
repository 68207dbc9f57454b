"""A module of the recipe's own, whose weights are a whole pickled object at an address that is no Hub's.

It reads two modalities of different lengths with a mask each, as the regressors of features do, and its graph answers
one kind of mask otherwise than torch: that is said on the card and in the sidecar.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import threading
import types
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from bot.records import Release
from tests.hub_server import start_hub
from tests.world import CARD, World

RECIPE = """\
upstream: {url: "URL", sha256: "SHA256", files: {weights: regressor.pt}}
target: {repo: local-user/regressor-onnx, open: commit, runtime: "onnxruntime>=1.22"}
license: {id: mit}
card: {pipeline_tag: other, tags: [onnx]}
artifacts:
  fp32: {file: regressor.onnx, steps: [{export_torch: {architecture: two_streams, opset: 17}}]}
inputs:
  x_0: {tensor: {shape: [7, 4]}}
  mask_0: {tensor: {shape: [7], values: ones, dtype: bool}}
  x_1: {tensor: {shape: [5, 4]}}
  mask_1: {tensor: {shape: [5], values: mask, dtype: bool}}
measure:
  samples: {texts: {loader: text_lines, repo: local-user/texts, count: 3}}
  accuracy: {traits: {decode: none, from: traits, metrics: [max_absolute]}}
  timings: {providers: {}}
gates: {fp32: {traits.max_absolute: {max: 0.001}, export.max_absolute: {max: 0.001}}}
"""

CODE = """\
from bot.graph.export import Architecture, Axis, Case, Exportable, Port
from bot.graph.export.sidecar import Facts, Mask
from bot.graph.export.weights import read_weights


def load(files, parameters):
    import numpy as np
    import torch

    tensors = read_weights(files["weights"]).tensors
    head = torch.nn.Linear(8, 3)
    head.load_state_dict({"weight": tensors["head.weight"], "bias": tensors["head.bias"]})

    class TwoStreams(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = head

        def forward(self, x_0, mask_0, x_1, mask_1):
            # The first stream takes a short cut where nothing is masked: a tracer bakes in which way it went.
            first = x_0.mean(1) if bool(mask_0.all()) else self.pool(x_0, mask_0)
            first = first + 0.0 * mask_0.to(x_0.dtype).sum(1, keepdim=True)
            return self.head(torch.cat([first, self.pool(x_1, mask_1)], dim=1))

        def pool(self, x, mask):
            kept = mask[..., None].to(x.dtype)
            return (x * kept).sum(1) / kept.sum(1).clamp(min=1.0)

    def example(sizes, generator):
        feeds = {}
        for place in (0, 1):
            shape = (sizes["batch"], sizes[f"time_{place}"])
            feeds[f"x_{place}"] = generator.normal(size=(*shape, 4)).astype(np.float32)
            feeds[f"mask_{place}"] = np.ones(shape, dtype=bool)
        return feeds

    def hide(mask, part):
        def change(feeds, generator):
            hidden = feeds[mask].copy()
            hidden[:, hidden.shape[1] // 2 if part else 0 :] = False
            return {**feeds, mask: hidden}

        return change

    def about(mask, hides, required):
        return Case(f"{mask} hides {hides}", hide(mask, hides == "part"), required, mask, hides)

    axes = tuple(Axis(f"time_{place}", traced=4 + place, sizes=(2, 9, 12)) for place in (0, 1))
    ports = []
    for place in (0, 1):
        ports.append(Port(f"x_{place}", "float32", ("batch", f"time_{place}", 4)))
        ports.append(Port(f"mask_{place}", "bool", ("batch", f"time_{place}")))
    return Exportable(
        module=TwoStreams().eval(),
        inputs=tuple(ports),
        outputs=(Port("traits", "float32", ("batch", 3)),),
        axes=(Axis("batch", traced=2, sizes=(1, 3)), *axes),
        example=example,
        facts=Facts(
            feature_names=("sound", "face"),
            trait_names=("open", "kind", "calm"),
            masks=(Mask(input="mask_0", of="x_0"), Mask(input="mask_1", of="x_1")),
        ),
        cases=(about("mask_0", "part", False), about("mask_1", "part", True), about("mask_1", "all", True)),
    )


ARCHITECTURE = Architecture("two_streams", load)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, start_hub(tmp_path / "hub"))
    yield made
    made.hub.stop()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address on this machine that it is served at."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing: the tests' output is for what they find."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def write_module(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A whole module as torch pickles it, of a class in a package that nobody has; its sha256."""

    class Regressor(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.head = torch.nn.Linear(8, 3)

    package = types.ModuleType("nobodys_package")
    Regressor.__module__, Regressor.__qualname__ = package.__name__, "Regressor"
    package.Regressor = Regressor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    torch.save(Regressor(), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_published_from_an_address(world: World, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, address = served
    sha256 = write_module(folder / "regressor.pt", monkeypatch)
    world.upload("local-user/texts", {"texts.txt": b"one\ntwo\nthree\nfour\n"}, repo_type="dataset")
    text = RECIPE.replace("URL", f"{address}/regressor.pt")
    place = world.recipes / "regressor"
    (place / "licenses").mkdir(parents=True)
    (place / "licenses" / "LICENSE").write_text("Permission is granted to all.\n")
    (place / "card.md.j2").write_text(CARD)
    (place / "recipe.py").write_text(CODE)

    (place / "recipe.yaml").write_text(text.replace("SHA256", "0" * 64))
    done = world.bot("publish", "regressor")
    assert done.returncode == 3 and sha256 in done.stderr, done.stderr

    (place / "recipe.yaml").write_text(text.replace("SHA256", sha256))
    done = world.bot("publish", "regressor", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    published = world.work / "releases" / json.loads(done.stdout)["identity"] / "publish"
    release = Release.from_json((published / "release.json").read_bytes())
    assert release.source.url == f"{address}/regressor.pt" and release.source.commit == sha256
    assert release.source.files["weights"].sha256 == sha256

    sidecar = json.loads((published / "regressor.onnx.json").read_text())
    assert sidecar["feature_names"] == ["sound", "face"] and sidecar["input_dims"] == [4, 4]
    assert sidecar["trait_names"] == ["open", "kind", "calm"]
    told = {mask["input"]: (mask["partial"], mask["whole"]) for mask in sidecar["masks"]}
    assert told == {"mask_0": ("refused", "not tried"), "mask_1": ("right", "right")}
    assert list(sidecar["refusals"]) == ["mask_0 hides part"]

    card = " ".join((published / "README.md").read_text().split())
    assert "**Do not feed it mask_0 hides part**" in card and "made-up numbers" in card
    assert sha256 in card and "regressor.pt" in card
    done = world.bot("verify", "local-user/regressor-onnx")
    assert done.returncode == 0, done.stderr
