"""The hand-over: an honest one is published as the same release, and each of a catalogue of hostile ones is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bot.canonical import canonical_json
from bot.errors import BotError, StepError, UpstreamError, VerificationError
from bot.hub.client import Hub
from bot.pipeline import handover, receiving
from bot.pipeline.context import Context
from bot.pipeline.described import require_described
from bot.pipeline.placing import what_is_there
from bot.recipe import Recipe, load_recipe
from bot.records import Release
from bot.work import WorkFolder
from bot.worker import Worker
from tests.world import PICTURES, TARGET, UPSTREAM, World, make_world

RECIPE = """\
upstream: {repo: somebody/network, files: {network: model.onnx}, copies: [config.json]}
target: {repo: local-user/network-onnx, open: OPEN, runtime: "onnxruntime>=1.22"}
license: {id: mit}
card: {pipeline_tag: image-classification, tags: [onnx]}
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
ARTIFACT = "artifacts/fp16/model.onnx"


@dataclass
class Built:
    """A world in which one release was built, and what a run without rights left of it."""

    world: World
    folder: Path
    context: Context
    recipe: Recipe

    def check(self, folder: Path) -> Release:
        """Reads a hand-over and holds it against everything, as `bot publish --from` does first."""
        there = what_is_there(self.context.hub, TARGET)
        return receiving.check(self.context, self.recipe, handover.read(folder), there)[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    root = tmp_path_factory.mktemp("handover")
    world = make_world(root)
    world.write_recipe(RECIPE)
    # Without the token: a run without rights has none.
    environment = {**world.environment(), "HF_ENDPOINT": world.hub.endpoint}
    done = world.bot(
        "build", "network", "--out", str(root / "out"), "--work", str(world.work), hub=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    context = Context(
        hub=Hub(world.hub.endpoint, world.hub.token),
        work=WorkFolder(root / "second-work"),
        worker=Worker(refuses=("graph", "measure")),
    )
    yield Built(world, root / "out", context, load_recipe(world.recipes / "network"))
    world.hub.stop()


@pytest.fixture
def copy(built: Built, tmp_path: Path) -> Path:
    """A hand-over of one's own to spoil."""
    folder = tmp_path / "out"
    shutil.copytree(built.folder, folder)
    return folder


# -- what an honest run leaves -----------------------------------------------------------------------------------------


def test_it_holds_the_record_and_the_artifacts_and_nothing_else(built: Built) -> None:
    names = sorted(path.relative_to(built.folder).as_posix() for path in built.folder.rglob("*") if path.is_file())
    assert names == [ARTIFACT, "release.json"]


def test_an_honest_record_is_what_is_worked_out_here(built: Built) -> None:
    release = built.check(built.folder)
    assert release.to_json() == (built.folder / "release.json").read_bytes()


def test_a_worker_of_the_second_run_opens_no_model(built: Built) -> None:
    model = built.folder / ARTIFACT
    for task in ("graph.inspect", "graph.step", "measure.run", "measure.open", "measure.samples"):
        with pytest.raises(StepError, match="opens no such files"):
            built.context.call(task, {"model": str(model)}, reads=[model.parent])


def test_it_is_not_written_over_something(built: Built, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a").write_text("mine")
    done = built.world.bot("build", "network", "--out", str(tmp_path / "there"))
    assert done.returncode == 2 and "no empty folder" in done.stderr and "fetch" not in done.stderr


def test_it_is_published_without_a_runtime_as_the_release_that_one_run_would_publish(
    built: Built, copy: Path, tmp_path: Path
) -> None:
    world = built.world
    # The same figures: what was measured lies in the work folder.
    whole = world.bot("publish", "network", "--dry-run", "--json")
    assert whole.returncode == 0, whole.stderr
    laid_out = Path(json.loads(whole.stdout)["folder"])
    for name in ("onnx", "onnxruntime", "onnx_ir", "torch"):
        (tmp_path / "closed" / name).mkdir(parents=True)
        (tmp_path / "closed" / name / "__init__.py").write_text("raise ImportError('this run opens no model')\n")
    closed = {"PYTHONPATH": str(tmp_path / "closed"), "BOT_WORK": str(tmp_path / "work")}
    done = world.bot(
        "publish", "network", "--from", str(copy), "--json", hub=False, env={**closed, **_as_the_bot(world, tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["publication"]["kind"] == "pull-request"
    ours = Path(answer["folder"])
    names = {path.relative_to(laid_out).as_posix() for path in laid_out.rglob("*") if path.is_file()}
    assert {path.relative_to(ours).as_posix() for path in ours.rglob("*") if path.is_file()} == {
        *names,
        "release/files.json",
    }
    for name in names:
        assert (ours / name).read_bytes() == (laid_out / name).read_bytes(), name
    assert world.bot("verify", f"{TARGET}@{answer['publication']['revision']}", "--no-measure").returncode == 0
    # Once more there is nothing to do, and a hand-over that was spoilt meanwhile does not pass for nothing to do.
    again = world.bot("publish", "network", "--from", str(copy), "--json")
    assert json.loads(again.stdout)["publication"]["kind"] == "nothing"
    (copy / ARTIFACT).write_bytes(b"x")
    spoilt = world.bot("publish", "network", "--from", str(copy))
    assert spoilt.returncode == 8 and "1 bytes" in spoilt.stderr and "to do: Do not publish it" in spoilt.stderr


def _as_the_bot(world: World, folder: Path) -> dict[str, str]:
    return {"BOT_HUB": world.hub.endpoint, "BOT_HUB_ENDPOINT": world.hub.endpoint, "BOT_HUB_TOKEN": world.hub.token}


def test_what_is_withheld_is_said_by_the_second_run(built: Built, tmp_path: Path) -> None:
    world = built.world
    world.write_recipe(RECIPE.replace("{max: 0.05}", "{max: 0}"))
    try:
        done = world.bot("build", "network", "--out", str(tmp_path / "out"))
        assert done.returncode == 0 and "withheld" in done.stdout, done.stderr
        before = [each.num for each in world.api.get_repo_discussions(TARGET)]
        said = world.bot("publish", "network", "--from", str(tmp_path / "out"))
    finally:
        world.write_recipe(RECIPE)
    assert said.returncode == 5 and "≤ 0 point" in said.stderr
    new = [each for each in world.api.get_repo_discussions(TARGET) if each.num not in before]
    assert [(each.is_pull_request, each.status) for each in new] == [(False, "open")]
    assert (tmp_path / "out" / ARTIFACT).is_file()


# -- spoilt folders ----------------------------------------------------------------------------------------------------


def _longer(folder: Path) -> None:
    with (folder / ARTIFACT).open("ab") as stream:
        stream.write(b"\0")


def _another_byte(folder: Path) -> None:
    data = bytearray((folder / ARTIFACT).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / ARTIFACT).write_bytes(data)


def _link_to_a_secret(folder: Path) -> None:
    (folder / ARTIFACT).unlink()
    (folder / ARTIFACT).symlink_to("/etc/passwd")


def _linked_record(folder: Path) -> None:
    (folder / "release.json").rename(folder.parent / "elsewhere.json")
    (folder / "release.json").symlink_to(folder.parent / "elsewhere.json")


def _linked_folder(folder: Path) -> None:
    (folder / "artifacts").rename(folder.parent / "elsewhere")
    (folder / "artifacts").symlink_to(folder.parent / "elsewhere")


def _too_many(folder: Path) -> None:
    for index in range(handover.MOST_FILES + 1):
        (folder / f"{index}").touch()


def _endless(folder: Path) -> None:
    with (folder / "release.json").open("r+b") as stream:
        stream.truncate(handover.LARGEST_RECORD + 1)


def _record_of(data: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "release.json").write_bytes(data)

    return write


def _record_through(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "release.json").write_bytes(change((folder / "release.json").read_bytes()))

    return write


FOLDERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a byte of the model": (_another_byte, "has the sha256"),
    "a longer model": (_longer, "bytes, and its record says"),
    "no model": (lambda folder: (folder / ARTIFACT).unlink(), "lacks artifacts/fp16/model.onnx"),
    "no record": (lambda folder: (folder / "release.json").unlink(), "holds no release.json"),
    "a README.md of its own": (lambda folder: _put(folder / "README.md"), "does not belong"),
    "a licence of its own": (lambda folder: _put(folder / "artifacts" / "LICENSE"), "does not belong"),
    "a workflow": (lambda folder: _put(folder / ".github" / "workflows" / "x.yml"), "does not belong"),
    "a hidden file": (lambda folder: _put(folder / ".bashrc"), "does not belong"),
    "a git folder": (lambda folder: _put(folder / ".git" / "config"), "name that is not taken"),
    "a name with a line end": (lambda folder: _put(folder / "a\n::add-mask::b"), "name that is not taken"),
    "a name with a backslash": (lambda folder: _put(folder / "..\\..\\x"), "name that is not taken"),
    "a link in place of the model": (_link_to_a_secret, "link or a special file"),
    "a link in place of the record": (_linked_record, "link or a special file"),
    "a link in place of a folder": (_linked_folder, "link or a special file"),
    "a pipe": (lambda folder: os.mkfifo(folder / "pipe"), "link or a special file"),
    "a thousand files": (_too_many, "too many files"),
    "an endless record": (_endless, "has 67108865 bytes"),
    "no JSON": (_record_of(b"release: yes"), "is no record"),
    "an empty record": (_record_of(b""), "is no record"),
    "another kind of JSON": (_record_of(b"[]"), "not a valid Release"),
    "another object": (_record_of(b"{}"), "not a valid Release"),
    "another encoding": (_record_through(lambda data: data.decode().encode("utf-16")), "is no record"),
    "a byte order mark": (_record_through(lambda data: b"\xef\xbb\xbf" + data), "is no record"),
    "a bomb of lists": (_record_of(b"[" * 200_000 + b"]" * 200_000), "nested too deeply"),
    "a bomb of objects": (_record_of(b'{"a":' * 40 + b"1" + b"}" * 40), "nested too deeply"),
    "a number without end": (_record_of(b'{"schema_version":' + b"9" * 100_000 + b"}"), "is no record"),
    "a key twice": (
        _record_through(lambda data: data.replace(b'{"all_or', b'{"target":"other/repo","all_or', 1)),
        "stands twice",
    ),
    "NaN": (_record_through(lambda data: data.replace(b'"value":', b'"value":NaN,"old":', 1)), "NaN is no number"),
    "infinity": (_record_through(lambda data: data.replace(b'"value":', b'"value":-Infinity,"x":', 1)), "no number"),
    "a number that is text": (
        _record_through(lambda data: data.replace(b'"schema_version":1', b'"schema_version":"1"')),
        "schema_version",
    ),
    "a number beyond all numbers": (
        _record_through(lambda data: data.replace(b'"report":{', b'"report":{"a":1e400,', 1)),
        "is no record",
    ),
    "a whole number that no double holds": (
        _record_through(lambda data: data.replace(b'"report":{', b'"report":{"a":9007199254740993,', 1)),
        "is no record",
    ),
    "another layout": (
        _record_through(lambda data: json.dumps(json.loads(data), indent=1).encode()),
        "not written as this version of the bot writes",
    ),
    "half a surrogate": (_record_through(lambda data: data.replace(b'"mit"', rb'"\ud800"', 1)), "U+D800"),
    "a record of tomorrow": (
        _record_through(lambda data: data.replace(b'"schema_version":1', b'"schema_version":2')),
        "schema_version",
    ),
    "an unknown key": (_record_through(lambda data: b'{"aaa":1,' + data[1:]), "aaa"),
}


def _put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_spoilt_folder_is_refused(built: Built, copy: Path, name: str) -> None:
    spoil, says = FOLDERS[name]
    spoil(copy)
    with pytest.raises(VerificationError) as caught:
        built.check(copy)
    assert says in str(caught.value) and caught.value.remedy and str(copy) in caught.value.where + caught.value.what
    assert "\n::" not in f"{caught.value}"


def test_a_folder_that_is_not_there(built: Built, tmp_path: Path) -> None:
    done = built.world.bot("publish", "network", "--from", str(tmp_path / "nothing"))
    assert done.returncode == 2 and "no such folder" in done.stderr


# -- forged records ----------------------------------------------------------------------------------------------------

Plain = dict[str, Any]


def _figure(record: Plain, key: str) -> Plain:
    subject, _, metric = key.partition(".")
    return next(each for each in record["measurements"] if each["subject"] == subject and each["metric"] == metric)


def _verdict(record: Plain, rule: str) -> Plain:
    return next(each for each in record["verdicts"] if each["rule"] == rule)


def _drop(items: list[Plain], what: Plain) -> None:
    items.remove(what)


def _set(*path: str | int, to: Any) -> Callable[[Plain], None]:
    def change(record: Plain) -> None:
        node: Any = record
        for part in path[:-1]:
            node = node[part]
        assert node[path[-1]] != to
        node[path[-1]] = to

    return change


def _forged_verdict(record: Plain) -> None:
    """The figure tells of a failure, and the verdict of a success."""
    _figure(record, "score.mean_absolute")["value"] = 0.5
    for each in record["verdicts"]:
        if each["rule"] == "score.mean_absolute":
            each["value"] = 0.5


def _better_figure(record: Plain) -> None:
    _verdict(record, "score.mean_absolute")["value"] = 0.0


def _two_more(record: Plain) -> None:
    record["artifacts"].append({**record["artifacts"][0], "name": "evil", "file": "evil.onnx"})


RECORDS: dict[str, tuple[Callable[[Plain], None], str]] = {
    "another target": (_set("target", to="local-user/another"), "target: is 'local-user/another'"),
    "another recipe": (_set("recipe", to="other"), "recipe: is 'other'"),
    "another recipe text": (lambda record: record.update(recipe_text=record["recipe_text"] + "\n"), "recipe_text"),
    "another identity": (_set("identity", to="0" * 64), "identity: is '0000"),
    "another bot": (_set("bot_version", to="99"), "bot_version"),
    "another runtime": (_set("runtime", to="onnxruntime>=1.1"), "runtime"),
    "all or nothing": (_set("all_or_nothing", to=True), "all_or_nothing"),
    "declared: other tags": (_set("declared", "card", "tags", to=["evil"]), "declared.card.tags"),
    "declared: another gate": (
        _set("declared", "gates", "fp16", "score.mean_absolute", "max", to=9.0),
        "declared.gates",
    ),
    "an upstream digest": (_set("source", "files", "network", "sha256", to="1" * 64), "source.files.network"),
    "an upstream size": (_set("source", "files", "network", "bytes", to=1), "source.files.network.bytes"),
    "another upstream path": (_set("source", "files", "network", "path", to="../../x"), "source.files.network.path"),
    "another upstream": (_set("source", "repo", to="evil/network"), "source.repo"),
    "another upstream licence": (_set("source", "license", to="apache-2.0"), "source.license"),
    "another date": (_set("source", "committed_at", to="2020-01-01T00:00:00Z"), "source.committed_at"),
    "a copy's digest": (_set("copies", 0, "sha256", to="2" * 64), "copies[0].sha256"),
    "a copy's path": (_set("copies", 0, "path", to="../README.md"), "copies[0].path"),
    "no copies": (_set("copies", to=[]), "copies"),
    "another copy": (
        lambda record: record["copies"].append({"path": "evil.py", "bytes": 1, "sha256": "3" * 64}),
        "copies",
    ),
    "other samples": (_set("samples", 0, "repo", to="evil/pictures"), "samples[0].repo"),
    "no samples": (_set("samples", to=[]), "samples"),
    "a licence's digest": (_set("licenses", 0, "sha256", to="4" * 64), "licenses[0].sha256"),
    "a licence's path": (_set("licenses", 0, "file", to="README.md"), "licenses[0].file"),
    "a licence's notice": (_set("licenses", 0, "notice", to="Free of all terms"), "licenses[0].notice"),
    "no licence": (_set("licenses", to=[]), "licenses"),
    "an artifact that leaves its folder": (_set("artifacts", 0, "file", to="../../evil.onnx"), "artifacts[fp16].file"),
    "an artifact at the card's place": (_set("artifacts", 0, "file", to="README.md"), "artifacts[fp16].file"),
    "another artifact": (_two_more, "lacks artifacts/evil/model.onnx"),
    "another key": (_set("artifacts", 0, "name", to="other"), "does not belong"),
    "a key that leaves its folder": (_set("artifacts", 0, "name", to="../../other"), "lacks artifacts/../../other"),
    "no artifact": (_set("artifacts", to=[]), "does not belong"),
    "other steps": (_set("artifacts", 0, "steps", 0, "name", to="rebuild"), "artifacts[0].steps[0].name"),
    "other parameters": (
        _set("artifacts", 0, "steps", 0, "parameters", "keep", to=["Conv"]),
        "artifacts[0].steps[0].parameters",
    ),
    "fewer steps": (_set("artifacts", 0, "steps", to=[]), "artifacts[fp16].steps"),
    "made from something else": (_set("artifacts", 0, "made_from", to="other"), "artifacts[0].made_from"),
    "frozen": (_set("artifacts", 0, "frozen", to=True), "artifacts[0].frozen"),
    "weights beside it": (
        _set("artifacts", 0, "signature", "external_files", to=["../../../.ssh/id_ed25519"]),
        "external_files",
    ),
    "weights at the card's place": (
        lambda record: (
            record["artifacts"][0]["signature"].update(external_files=["README.md"]),
            record["artifacts"][0].update(weights=[{"path": "README.md", "bytes": 4, "sha256": "7" * 64}]),
        ),
        "lacks artifacts/fp16/README.md",
    ),
    "another input": (_set("artifacts", 0, "signature", "inputs", 0, "name", to="pixels"), "has the inputs pixels"),
    "another output": (_set("artifacts", 0, "signature", "outputs", 0, "name", to="out"), "lacks an output"),
    "a runtime of tomorrow": (_set("artifacts", 0, "signature", "minimum_runtime", to="9.9"), "minimum_runtime"),
    "a census that does not add up": (_set("artifacts", 0, "census", "nodes", to=1), "does not add up"),
    "casts that are not there": (_set("artifacts", 0, "census", "casts", to=77), "does not add up"),
    "withheld and called good": (_forged_verdict, "verdicts"),
    "a better figure in the verdict": (_better_figure, "verdicts"),
    "a wider limit": (lambda record: _verdict(record, "score.mean_absolute").update(limit=9.0), "limit"),
    "a verdict that withholds nothing": (
        lambda record: _verdict(record, "score.mean_absolute").update(required=False),
        "required",
    ),
    "a failed check that withholds nothing": (
        lambda record: _verdict(record, "valid ONNX").update(required=False, status="failed"),
        "was not held against 'valid ONNX'",
    ),
    "a failed check that is not withheld": (
        lambda record: _verdict(record, "finite outputs").update(status="failed"),
        "withheld",
    ),
    "a check that was not made": (
        lambda record: _drop(record["verdicts"], _verdict(record, "batch invariance")),
        "'batch invariance'",
    ),
    "no check in the oldest runtime": (
        lambda record: _drop(record["verdicts"], _verdict(record, "opens in onnxruntime 1.22")),
        "'opens in onnxruntime 1.22'",
    ),
    "a limit that was not judged": (
        lambda record: _drop(record["verdicts"], _verdict(record, "score.mean_absolute")),
        "verdicts",
    ),
    "no verdicts": (_set("verdicts", to=[]), "verdicts"),
    "withheld by hand": (_set("withheld", to=["fp16"]), "withheld"),
    "taken over": (_set("artifacts", 0, "taken_over", to=True), "does not belong"),
    "an earlier file": (
        _set("artifacts", 0, "before", to={"path": "a.onnx", "revision": "main", "sha256": "6" * 64}),
        "before",
    ),
    "a figure that was not taken": (
        lambda record: _drop(record["measurements"], _figure(record, "latency.median")),
        "there is no latency.cpu.batch_1",
    ),
    "a faster median": (lambda record: _figure(record, "latency.median").update(value=0.001), "its runs make it"),
    "a faster ratio": (lambda record: _figure(record, "speedup.ratio").update(value=100.0), "its runs make it"),
    "runs of no time": (lambda record: _figure(record, "latency.median").update(runs=[0.0]), "its runs make it"),
    "no runs": (lambda record: _figure(record, "speedup.ratio").update(runs=[]), "its runs make it"),
    "other samples for one figure": (
        lambda record: _figure(record, "score.mean_absolute").update(samples_digest="5" * 64),
        "on other samples",
    ),
    "a histogram with a hole": (
        lambda record: _figure(record, "score.mean_absolute").update(histogram={"edges": [0, 1], "counts": [1, 2]}),
        "a histogram that is none",
    ),
    "an order to the terminal": (
        lambda record: _figure(record, "score.mean_absolute").update(device="CPU\x1b]0;owned\x07"),
        "U+001B",
    ),
    "text without end": (
        lambda record: _figure(record, "score.mean_absolute").update(method="a" * (handover.LONGEST_TEXT + 1)),
        "longer than",
    ),
    "not random here and random there": (_set("source", "random_weights", to=True), "random_weights"),
}


def test_weights_that_would_take_the_cards_place_are_refused(built: Built, copy: Path) -> None:
    """A record and a file that agree with one another: only the name is wrong."""
    (copy / "artifacts" / "fp16" / "README.md").write_bytes(b"mine")
    record = json.loads((copy / "release.json").read_bytes())
    digest = hashlib.sha256(b"mine").hexdigest()
    record["artifacts"][0]["signature"]["external_files"] = ["README.md"]
    record["artifacts"][0]["weights"] = [{"path": "README.md", "bytes": 4, "sha256": digest}]
    (copy / "release.json").write_bytes(canonical_json(record))
    with pytest.raises(VerificationError, match="not such as the bot writes weights into"):
        built.check(copy)


def test_the_catalogue_forges_what_is_there(built: Built) -> None:
    record = json.loads((built.folder / "release.json").read_bytes())
    assert record["withheld"] == [] and _verdict(record, "score.mean_absolute")["status"] == "passed"


@pytest.mark.parametrize("name", RECORDS)
def test_a_forged_record_is_refused(built: Built, copy: Path, name: str) -> None:
    forge, says = RECORDS[name]
    record = json.loads((copy / "release.json").read_bytes())
    forge(record)
    (copy / "release.json").write_bytes(canonical_json(record))
    with pytest.raises(BotError) as caught:
        built.check(copy)
    assert isinstance(caught.value, VerificationError), caught.value
    assert says in str(caught.value), str(caught.value)


def test_a_verdict_that_was_forged_ends_the_command(built: Built, copy: Path) -> None:
    record = json.loads((copy / "release.json").read_bytes())
    _forged_verdict(record)
    (copy / "release.json").write_bytes(canonical_json(record))
    before = [each.num for each in built.world.pull_requests()]
    done = built.world.bot("publish", "network", "--from", str(copy))
    assert done.returncode == 8, done.stderr
    assert "is 'passed', and should be 'failed'" in done.stderr and "Traceback" not in done.stderr
    assert [each.num for each in built.world.pull_requests()] == before


# -- another repository's token ---------------------------------------------------------------------------------------


def test_a_token_for_another_repository_publishes_nothing(built: Built, copy: Path, tmp_path: Path) -> None:
    from tests.pipeline.test_remote import token_for
    from tests.workflows.issuer import Issuer

    world, issuer = built.world, Issuer().start()
    world.api.create_repo("local-user/another", exist_ok=True)
    world.api.create_repo(TARGET, exist_ok=True)
    token = tmp_path / "token"
    token.write_text(token_for(world, issuer, "local-user/another"))
    issuer.stop()
    before = world.pull_requests()
    where = ("--hub", world.hub.endpoint, "--token-file", str(token), "--work", str(tmp_path / "work"))
    done = world.bot("publish", "network", "--reopen", "--from", str(copy), *where, hub=False)
    assert done.returncode == 7, done.stderr
    assert f"may not write to {TARGET}" in done.stderr and "good for one repository only" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert len(world.pull_requests()) == len(before)


# -- what only the third run can see -----------------------------------------------------------------------------------


def test_a_graph_that_is_described_otherwise_is_seen_by_whoever_opens_it(built: Built, copy: Path) -> None:
    """A census that adds up passes the run that opens nothing, and not the verification."""
    record = json.loads((copy / "release.json").read_bytes())
    counts = record["artifacts"][0]["census"]["by_op"]
    counts["Sigmoid"] = counts.pop("Relu")
    (copy / "release.json").write_bytes(canonical_json(record))
    release = built.check(copy)
    opening = replace(built.context, worker=Worker())
    with pytest.raises(VerificationError, match="its census"):
        require_described(opening, release, release.artifacts[0], copy / ARTIFACT, "here")
    honest = built.check(built.folder)
    require_described(opening, honest, honest.artifacts[0], built.folder / ARTIFACT, "here")
    for name, value in (("ir_version", 3), ("opsets", {"ai.onnx": 7}), ("outputs", ()), ("inputs", ())):
        signature = honest.artifacts[0].signature.model_copy(update={name: value})
        other = honest.artifacts[0].model_copy(update={"signature": signature})
        with pytest.raises(VerificationError, match=name):
            require_described(opening, honest, other, built.folder / ARTIFACT, "here")


# -- what the Hub says -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["source", "samples"])
def test_a_commit_that_upstream_does_not_have(built: Built, copy: Path, field: str) -> None:
    record = json.loads((copy / "release.json").read_bytes())
    (record["source"] if field == "source" else record["samples"][0])["commit"] = "ab" * 20
    (copy / "release.json").write_bytes(canonical_json(record))
    with pytest.raises(UpstreamError, match="not among the newest"):
        built.check(copy)


def test_a_commit_of_somebody_elses_pull_request(built: Built, copy: Path) -> None:
    """Anybody can put a commit into a repository by opening a pull request; the recipe follows another branch."""
    from huggingface_hub import CommitOperationAdd

    api = built.world.hub.api("other")
    opened = api.create_commit(
        UPSTREAM, [CommitOperationAdd("config.json", b"{}\n ")], commit_message="Mine", create_pr=True
    )
    record = json.loads((copy / "release.json").read_bytes())
    record["source"]["commit"] = opened.oid
    (copy / "release.json").write_bytes(canonical_json(record))
    with pytest.raises(UpstreamError, match="not among the newest"):
        built.check(copy)


def test_upstream_may_have_moved_on_and_what_was_built_is_still_published(built: Built, copy: Path) -> None:
    built.world.upload(UPSTREAM, {"README.md": b"---\nlicense: mit\n---\n# A network, described anew\n"})
    built.world.upload(PICTURES, {"another.txt": b"no sample"}, repo_type="dataset")
    assert built.check(copy).identity == json.loads((copy / "release.json").read_bytes())["identity"]
