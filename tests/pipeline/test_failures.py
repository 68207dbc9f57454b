"""What a user gets wrong, or upstream does, or the machine: one clear message, the right exit code, no traceback."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.world import PICTURES, RECIPE, TARGET, UPSTREAM, World, network


def fails(
    world: World, code: int, *words: str, command: tuple[str, ...] = ("publish", "network"), **more: object
) -> str:
    """Runs a command that must fail with this exit code and say these words, once each, and leave the Hub alone."""
    done = world.bot(*command, **more)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error: ") == 1
    for word in words:
        assert word in done.stderr, done.stderr
    assert world.pull_requests() == []
    return done.stderr


def test_a_recipe_with_a_wrong_type(world: World) -> None:
    path = world.write_recipe(RECIPE.replace("count: 6", "count: six"))
    fails(world, 2, f"{path}:10", "measure.samples.image_folder.count", "'six'")


def test_an_unknown_step_names_the_nearest(world: World) -> None:
    path = world.write_recipe(RECIPE.replace("steps: [float16]", "steps: [flot16]"))
    fails(world, 2, f"{path}:6", "flot16", "float16")


def test_a_wrong_parameter_of_a_step(world: World) -> None:
    path = world.write_recipe(RECIPE.replace("{keep: [Softmax]}", "{kepe: [Softmax]}"))
    fails(world, 2, f"{path}:7", "kepe", "keep")


def test_a_missing_licence_file(world: World) -> None:
    (world.recipes / "network" / "licenses" / "LICENSE").unlink()
    fails(world, 2, "license.file", "no licence text", "recipe.yaml:3")


def test_no_such_recipe_and_no_such_folder(world: World) -> None:
    fails(world, 2, "Did you mean network", command=("publish", "netwrk"))
    fails(world, 2, "no such folder", command=("list", "--recipes", str(world.folder / "nowhere")), hub=False)


def test_two_recipes_for_one_target(world: World) -> None:
    world.write_recipe(name="another")
    fails(world, 2, "target.repo", "another", TARGET)


def test_an_input_or_output_that_the_model_does_not_have(world: World) -> None:
    world.write_recipe(RECIPE.replace("inputs: {images:", "inputs: {pixels:"))
    fails(world, 2, "inputs.pixels", "images")
    world.write_recipe(RECIPE.replace("from: probabilities", "from: logits"))
    fails(world, 2, "measure.accuracy.score.from", "probabilities")


def test_an_upstream_that_is_not_there(world: World) -> None:
    world.write_recipe(RECIPE.replace(UPSTREAM, "somebody/nothing"))
    fails(world, 3, "somebody/nothing")
    world.write_recipe(RECIPE.replace("network: model.onnx", "network: modell.onnx"))
    fails(world, 3, "modell.onnx", "model.onnx")
    world.write_recipe(RECIPE.replace("copies:", "follow: release-2, copies:"))
    fails(world, 3, "release-2")


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"<!DOCTYPE html><html><body>Not found</body></html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12\n", "LFS"),
        (b"\x00\x01\x02 this is no model", "ONNX"),
        (b"", "empty"),
        (network()[: len(network()) // 2], "model.onnx"),
    ],
    ids=["html", "lfs pointer", "noise", "empty", "truncated"],
)
def test_an_upstream_file_that_is_no_model(world: World, data: bytes, word: str) -> None:
    world.upload(UPSTREAM, {"model.onnx": data})
    fails(world, 3, "model.onnx", word)


@pytest.mark.parametrize("location", ["../../../../etc/passwd", "/etc/passwd", "weights/../../up.bin"])
def test_external_data_outside_its_folder(world: World, location: str) -> None:
    model = onnx.load_from_string(network())
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    world.upload(UPSTREAM, {"model.onnx": model.SerializeToString()})
    fails(world, 3, location, "outside")


def test_too_few_samples(world: World) -> None:
    world.write_recipe(RECIPE.replace("count: 6", "count: 60"))
    fails(world, 3, "60", "8")


def test_broken_pictures_are_left_out_and_too_many_of_them_stop(world: World) -> None:
    world.upload(PICTURES, {f"images/{index}.png": b"no picture" for index in range(4)}, repo_type="dataset")
    fails(world, 3, "6", "4")


def test_a_licence_that_changed_upstream(world: World) -> None:
    world.upload(UPSTREAM, {"README.md": b"---\nlicense: cc-by-nc-4.0\n---\n"})
    fails(world, 9, "cc-by-nc-4.0", "mit", "recipe.yaml:3")


def test_a_step_that_fails_names_the_artifact(world: World) -> None:
    one = helper.make_tensor("w", TensorProto.FLOAT, [1], [1e30])
    graph = helper.make_graph(
        [helper.make_node("NoSuchOperator", ["images", "w"], ["probabilities"], domain="nobody", name="odd")],
        "g",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, 32, 32])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 5])],
        [one],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("nobody", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    world.upload(UPSTREAM, {"model.onnx": model.SerializeToString()})
    fails(world, 4, "no node that can be converted", "step float16 of fp16", "recipe.yaml:6")


def test_a_hub_that_is_not_to_be_reached(world: World) -> None:
    command = ("publish", "network", "--hub", "http://127.0.0.1:9", "--work", str(world.work))
    fails(world, 3, "127.0.0.1:9", command=command, hub=False)


def test_a_token_without_the_right_to_write(world: World) -> None:
    token = world.folder / "reader"
    token.write_text(world.hub.tokens["reader"])
    where = ("--hub", world.hub.endpoint, "--token-file", str(token), "--work", str(world.work))
    fails(world, 7, "write", command=("publish", "network", *where), hub=False)


def test_no_token_at_all(world: World) -> None:
    where = ("--hub", world.hub.endpoint, "--work", str(world.work))
    fails(world, 7, "token", command=("publish", "network", *where), hub=False)


def test_a_full_disk(world: World) -> None:
    """The work folder is a file system of 200 kB, in a mount namespace of the command's own."""
    unshare = shutil.which("unshare")
    mount = [str(unshare), "--user", "--map-root-user", "--mount"]
    if unshare is None or subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system gives no mount namespace to mount a small file system in")
    world.work.mkdir()
    command = world.command("publish", "network")
    script = f'mount -t tmpfs -o size=200k none "{world.work}" && exec "$@"'
    done = subprocess.run(
        [*mount, "sh", "-c", script, "sh", *command],
        capture_output=True,
        text=True,
        env=world.environment(),
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "no space left" in done.stderr.lower() and str(world.work) in done.stderr
    assert "Traceback" not in done.stderr and world.pull_requests() == []


def test_a_work_folder_that_cannot_be_made(world: World) -> None:
    blocked = world.folder / "file"
    blocked.write_text("a file where the folder should be")
    token = world.folder / "token"
    token.write_text(world.hub.token)
    where = ("--hub", world.hub.endpoint, "--token-file", str(token), "--work", str(blocked / "work"))
    fails(world, 4, str(blocked), command=("publish", "network", *where), hub=False)


def test_both_runtimes_at_once(world: World, tmp_path: Path) -> None:
    """The metadata of both packages is there, as it is after installing one over the other."""
    for name in ("onnxruntime", "onnxruntime_gpu"):
        folder = tmp_path / "site" / f"{name}-1.32.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.32.0\n")
    more = {"env": {"PYTHONPATH": str(tmp_path / "site")}}
    fails(world, 2, "onnxruntime-gpu", "uninstall", **more)


def test_errors_of_single_files(tmp_path: Path, world: World) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(network()[:400])
    fails(world, 3, "broken.onnx", command=("inspect", str(broken)), hub=False)
    fails(world, 2, "no such file", command=("inspect", str(tmp_path / "none.onnx")), hub=False)
    good = tmp_path / "good.onnx"
    good.write_bytes(network())
    out = str(tmp_path / "out.onnx")
    fails(world, 2, "KEY=VALUE", command=("step", "float16", str(good), out, "--set", "keep"), hub=False)
    fails(world, 2, "float16", command=("step", "flot16", str(good), out), hub=False)
    assert not Path(out).exists()


def test_single_files_that_are_fine(tmp_path: Path, world: World) -> None:
    good, out = tmp_path / "good.onnx", tmp_path / "out.onnx"
    good.write_bytes(network())
    done = world.bot("inspect", str(good), "--json", hub=False)
    assert json.loads(done.stdout)["census"]["by_op"]["Conv"] == 1
    done = world.bot("step", "float16", str(good), str(out), "--set", "keep=[Softmax]", "--json", hub=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bytes"] == out.stat().st_size < good.stat().st_size
    assert "Cast" in world.bot("inspect", str(out), hub=False).stdout
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file() and path.suffix == ".onnx") == [
        "good.onnx",
        "out.onnx",
    ]
