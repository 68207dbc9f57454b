"""Whatever releases and people's commits come in whatever order: what was frozen stays, what others made is not
touched, and every pin that a release gave resolves.

The places, the list of files and the refusals are decided from what a target holds, without a Hub; so histories are
played here in memory, many of them, and some of them over again against an embedded Hub.
"""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hub_cases import Case, artifact, sha256
from hub_here import Here
from hub_server import HubServer
from huggingface_hub.errors import HfHubHTTPError
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bot.errors import OverwriteError
from bot.hub.bundle import MANIFEST, OWN_FOLDERS, Bundle, Manifest, beside, ids_of_bytes
from bot.hub.client import TreeFile
from bot.hub.overwrites import check_overwrites, settled
from bot.hub.places import Content, place
from bot.hub.target import Target, read_target
from bot.records import Artifact, FileRecord, LicenseRecord, Release, short

KEYS = ("plain", "deep", "heavy")
FILES = {"plain": "model.onnx", "deep": "onnx/model.onnx", "heavy": "heavy/graph.onnx"}
WEIGHTS = "weights.bin"
PEOPLES = ("notes.txt", "model.onnx", "LICENSE", "source/notes.txt", "source/a.json", "heavy/weights.bin", "README.md")
RECORDS = (Release.PATH, MANIFEST)
"""What a person must not take away for the laws to hold: all that the bot knows of earlier releases is in them."""


@dataclass(frozen=True)
class Making:
    """One release: what it would bring, and how.

    Attributes:
        bytes: Which bytes each artifact has; None if this release does not have it.
        weights: Which bytes the weights of the artifact `heavy` have.
        replaces: The artifacts that take the place of what was there.
        frozen: The artifacts that are frozen from now on.
        taken_over: Whether `plain` is what a person has put at its place, if anything is there.
        copies: Which copies lie under source/.
        mode: How it arrives.
        is_merged: Whether a pull request is merged at once; if not, before the next one.
    """

    bytes: dict[str, int | None]
    weights: int
    replaces: frozenset[str]
    frozen: frozenset[str]
    taken_over: bool
    copies: frozenset[str]
    mode: str
    is_merged: bool


@dataclass(frozen=True)
class Edit:
    """A person's commit: a file gets other bytes, or goes."""

    path: str
    data: bytes | None


makings = st.builds(
    Making,
    bytes=st.fixed_dictionaries({key: st.one_of(st.none(), st.integers(0, 2)) for key in KEYS}),
    weights=st.integers(0, 1),
    replaces=st.frozensets(st.sampled_from(KEYS)),
    frozen=st.frozensets(st.sampled_from(KEYS), max_size=1),
    taken_over=st.booleans(),
    copies=st.frozensets(st.sampled_from(("a.json", "b.json"))),
    mode=st.sampled_from(("pull-request", "commit")),
    is_merged=st.booleans(),
).filter(lambda making: any(each is not None for each in making.bytes.values()))
edits = st.builds(Edit, path=st.sampled_from(PEOPLES), data=st.sampled_from((b"a person's", b"theirs", None)))
HISTORIES = st.lists(st.one_of(makings, makings, edits), min_size=2, max_size=9)


@dataclass
class Pull:
    """A pull request that waits: the tree that it began from, what it changes, and what it deletes."""

    base: dict[str, bytes]
    changes: dict[str, bytes]
    deletes: frozenset[str]
    release: Release


@dataclass
class History:
    """A target in memory, and what an observer writes down of it who knows nothing of the bot's own lists."""

    folder: Path
    repo: str = "somebody/model"
    commits: list[dict[str, bytes]] = field(default_factory=lambda: [{"README.md": b"# By hand\n"}])
    pull: Pull | None = None
    published: set[tuple[str, bytes]] = field(default_factory=set)
    frozen: dict[str, bytes] = field(default_factory=dict)
    pins: list[tuple[int, str, str]] = field(default_factory=list)
    names: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    releases: int = 0

    @property
    def tree(self) -> dict[str, bytes]:
        """The main branch's files."""
        return self.commits[-1]

    def read_bytes(self, _repo: str, _revision: str, path: str) -> bytes:
        """As a Hub would read it."""
        return self.tree[path]

    def target(self) -> Target:
        """What the bot would read of it."""
        listed = {path: listing(path, data) for path, data in self.tree.items()}
        record, manifest = self.tree.get(Release.PATH), self.tree.get(MANIFEST)
        release = Release.from_json(record) if record is not None else None
        return Target(self.repo, self.head, listed, release, "", Manifest.from_json(manifest or b""))

    @property
    def head(self) -> str:
        """The name of the newest commit: its number."""
        return f"{len(self.commits) - 1:040x}"

    def at(self, revision: str) -> dict[str, bytes]:
        """The tree of a commit."""
        return self.commits[int(revision, 16)]


def listing(path: str, data: bytes) -> TreeFile:
    """A file as a Hub lists it: a model is a large one, known by its sha256."""
    ids = ids_of_bytes(data)
    if path.endswith((".onnx", ".bin")):
        return TreeFile(path, ids.bytes, sha256(b"pointer " + data)[:40], ids.sha256)
    return TreeFile(path, ids.bytes, ids.blob)


def play(history: History, steps: list[Making | Edit], *, is_alone: bool = False) -> None:
    """Plays a history; where the bot is alone and freezes nothing, nothing may be refused."""
    for step in steps:
        if isinstance(step, Edit):
            edit(history, step)
        else:
            merge(history)
            went = publish(history, step)
            assert went or not is_alone, "the bot refuses to go on from its own work"
    merge(history)


def edit(history: History, step: Edit) -> None:
    tree = dict(history.tree)
    if step.data is None:
        tree.pop(step.path, None)
    else:
        tree[step.path] = step.data
    history.commits.append(tree)


def publish(history: History, making: Making) -> bool:
    """As the bot does it: places, list of files, refusals, one commit. Whether it was not refused."""
    target, before = history.target(), dict(history.tree)
    bundle, contents = laid_out(history, target, making)
    again = laid_out(history, target, making)[0]
    assert again.release == bundle.release, "the same run comes to the same names"
    history.releases += 1
    check_stability(history, making, bundle.release, before)
    bundle = settled(bundle, target)
    contents[MANIFEST] = (bundle.folder / MANIFEST).read_bytes()
    changed = bundle.changed(target.tree)
    try:
        check_overwrites(history, target, bundle, changed, making.mode)  # type: ignore[arg-type]
    except OverwriteError as error:
        assert error.where.startswith(history.repo) and "sha256" in error.what
        return False
    pull = Pull(before, {path: contents[path] for path in changed}, frozenset(bundle.deleted), bundle.release)
    check_commit(history, pull, making.mode)
    history.pull = pull
    if making.mode == "commit" or making.is_merged:
        merge(history)
    return True


def merge(history: History) -> None:
    """Merges the pull request that waits, if git would: both sides changed nothing differently."""
    pull, history.pull = history.pull, None
    if pull is None:
        return
    for path in {*pull.changes, *pull.deletes}:
        if history.tree.get(path) != pull.base.get(path) and history.tree.get(path) != pull.changes.get(path):
            return  # a conflict: a person has to look
    tree = {path: data for path, data in (history.tree | pull.changes).items() if path not in pull.deletes}
    history.commits.append(tree)
    history.published |= {(path, data) for path, data in tree.items() if path in listed(tree)}
    for each in pull.release.published:
        if any(sha256(tree.get(path, b"")) != digest for path, digest in files_of(each).items()):
            continue  # a person changed it on the main branch before they merged: such a file gets no pin
        history.names[each.name] = (content_of(tree, each), each.file)
        for path, digest in files_of(each).items():
            history.pins.append((len(history.commits) - 1, path, digest))
            if each.frozen:
                history.frozen[path] = tree[path]


def listed(tree: dict[str, bytes]) -> set[str]:
    """What the newest release says that it published."""
    manifest = Manifest.from_json(tree[MANIFEST])
    assert manifest is not None
    return {*manifest.files, MANIFEST}


def files_of(each: Artifact) -> dict[str, str]:
    return {each.file: each.sha256} | {weights.path: weights.sha256 for weights in each.weights}


def content_of(tree: dict[str, bytes], each: Artifact) -> bytes:
    return b"\n".join(tree[path] for path in files_of(each))


def laid_out(history: History, target: Target, making: Making) -> tuple[Bundle, dict[str, bytes]]:
    """The release's files, as the pipeline lays them out."""
    identity = sha256(f"release {history.releases}".encode())
    artifacts, contents = [], dict[str, bytes]()
    for key, version in making.bytes.items():
        if version is None:
            continue
        made, files = one_artifact(history, target, making, key, version, identity)
        artifacts.append(made)
        contents |= files
    contents |= {"LICENSE": b"License text\n", "README.md": f"# Release {history.releases}\n".encode()}
    contents |= {"release/card.md": contents["README.md"], "release/recipe.yaml": b"recipe"}
    contents |= {f"source/{name}": b"{}" for name in making.copies}
    papers = {f"source/licenses/{name}": f"Licence of {name}\n".encode() for name in making.copies}
    contents |= papers
    release = Release(
        identity=identity,
        recipe="model",
        recipe_text="",
        target=history.repo,
        runtime="onnxruntime>=1.22",
        source={"repo": "up/stream", "commit": "a" * 40},  # type: ignore[arg-type]
        artifacts=tuple(artifacts),
        licenses=tuple(LicenseRecord(name=path, file=path, sha256=sha256(text)) for path, text in papers.items()),
        bot_version="0",
    )
    contents[Release.PATH] = release.to_json()
    files = {path: ids_of_bytes(data) for path, data in contents.items()}
    return Bundle(history.folder, release, files), contents


def one_artifact(
    history: History, target: Target, making: Making, key: str, version: int, identity: str
) -> tuple[Artifact, dict[str, bytes]]:
    file, data = FILES[key], f"{key} {version}".encode()
    there = history.tree.get(file)
    if key == "plain" and making.taken_over and there is not None:
        made = artifact(key, file, there, frozen=True)
        return made.model_copy(update={"taken_over": True, "on_change": "new_name"}), {}
    weights = {WEIGHTS: f"weights {making.weights}".encode()} if key == "heavy" else {}
    on_change: Any = "replace" if key in making.replaces else "new_name"
    place_of, before = file, None
    if key not in making.frozen:
        content = Content(ids_of_bytes(data), {name: ids_of_bytes(each) for name, each in weights.items()})
        found = place(target, file, content, short(identity), on_change)
        place_of, before = found.file, found.before
    made = artifact(key, place_of, data, frozen=key in making.frozen)
    records = tuple(
        FileRecord(path=beside(place_of, name), bytes=len(each), sha256=sha256(each)) for name, each in weights.items()
    )
    signature = made.signature.model_copy(update={"external_files": tuple(weights)})
    update = {"on_change": on_change, "before": before, "weights": records, "signature": signature}
    files = {place_of: data} | {beside(place_of, name): each for name, each in weights.items()}
    return made.model_copy(update=update), files


# -- the laws ----------------------------------------------------------------------------------------------------------


def check_stability(history: History, making: Making, release: Release, before: dict[str, bytes]) -> None:
    """Bytes that the last release had of an artifact keep their name while they lie there."""
    for each in release.published:
        if each.name not in history.names or each.frozen:
            continue
        content, file = history.names[each.name]
        wanted = f"{each.name} {making.bytes[each.name]}".encode()
        if each.weights:
            wanted += f"\nweights {making.weights}".encode()
        paths = [file, *([beside(file, WEIGHTS)] if each.weights else [])]
        lies_there = all(path in before for path in paths) and b"\n".join(before[path] for path in paths) == wanted
        if content == wanted and lies_there:
            assert each.file == file


def check_commit(history: History, pull: Pull, mode: str) -> None:
    """What one commit of the bot may do."""
    policy = {path: each for each in pull.release.published for path in files_of(each)}
    for path, data in pull.changes.items():
        old = pull.base.get(path)
        if path in history.frozen:
            assert data == history.frozen[path] and old is None, f"{path} was frozen"
        if old is None:
            continue
        assert (path == "README.md" and mode == "pull-request") or (path, old) in history.published, f"{path}: theirs"
        if path in policy:
            assert policy[path].on_change == "replace", f"{path} was published and should have stayed"
    for path in pull.deletes:
        assert (path, pull.base[path]) in history.published and path not in history.frozen
        assert path.startswith(OWN_FOLDERS) or path == "heavy/weights.bin"
        assert "licenses" not in path, "the models of an earlier release are still here, and their licence has to be"
    after = {path: data for path, data in (pull.base | pull.changes).items() if path not in pull.deletes}
    for each in pull.release.published:
        for path, digest in files_of(each).items():
            assert sha256(after[path]) == digest, "card, record and pins speak of what is there"
        if each.before is not None:
            assert sha256(history.at(each.before.revision)[each.before.path]) == each.before.sha256
            if each.before.path != each.file:
                assert sha256(after[each.before.path]) == each.before.sha256, "it is not there any more"
            elif each.before.revision == history.head:
                assert any(after[path] != pull.base.get(path) for path in files_of(each)), "nothing was replaced"


def check_end(history: History) -> None:
    for commit, path, digest in history.pins:
        assert sha256(history.commits[commit][path]) == digest
    manifest = Manifest.from_json(history.tree.get(MANIFEST, b""))
    if manifest is None:
        return
    known = {**{path: kept.ids for path, kept in manifest.kept.items()}, **manifest.files}
    for path, data in history.frozen.items():
        assert known[path].sha256 == sha256(data), f"{path} was frozen, and nobody knows it any more"


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HISTORIES)
def test_nothing_that_was_frozen_or_others_made_changes_and_every_pin_resolves(steps: list[Making | Edit]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        play(history, steps)
        check_end(history)


def making(mode: str = "commit", **more: Any) -> Making:
    """A release of the artifact `plain` alone."""
    usual = {"bytes": {"plain": 0, "deep": None, "heavy": None}, "weights": 0, "taken_over": False, "is_merged": True}
    sets = dict.fromkeys(("replaces", "frozen", "copies"), frozenset[str]())
    return Making(**{**usual, **sets, "mode": mode, **more})


OTHER = {"plain": 1, "deep": None, "heavy": None}
PLAIN = frozenset({"plain"})
WITHOUT = {"plain": None, "deep": 0, "heavy": None}
FREE = Edit("README.md", None)
"""With no README.md of a person's, a commit may bring one."""


@settings(max_examples=60, deadline=None)
@given(st.lists(makings.map(lambda each: replace(each, frozen=frozenset(), taken_over=False)), max_size=6))
def test_alone_the_bot_is_never_refused(steps: list[Making | Edit]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        play(history, [FREE, *steps], is_alone=True)
        check_end(history)


MISTAKES: dict[str, tuple[list[Making | Edit], str, Any]] = {
    "what was frozen is forgotten": (
        [FREE, making(frozen=PLAIN), Edit("model.onnx", None), making(bytes=OTHER, frozen=PLAIN)],
        "frozen",
        lambda _: {},
    ),
    "everything is the bot's own": ([Edit("LICENSE", b"theirs"), making("pull-request")], "owns", lambda *_: True),
    "what was published is forgotten": (
        [FREE, making(), making(bytes=WITHOUT), making(bytes=OTHER, replaces=PLAIN)],
        "published",
        lambda self: dict(self.manifest.files) if self.manifest else {},
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_breaks_a_law(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, name, broken = MISTAKES[mistake]
    is_alone = name == "published"
    play(History(tmp_path), steps, is_alone=is_alone)
    monkeypatch.setattr(Target, name, broken)
    with pytest.raises(AssertionError):
        play(History(tmp_path), steps, is_alone=is_alone)


# -- against an embedded Hub -------------------------------------------------------------------------------------------


def play_on_hub(here: Here, steps: list[Making | Edit]) -> None:
    """The same history in memory and on the Hub, which have to hold the same after every step."""
    model = History(here.cache(), here.target)
    here.hand_made(model.tree)
    for step in steps:
        if isinstance(step, Edit):
            edit_on_hub(here, model, step)
            edit(model, step)
        else:
            merge_on_hub(here, model)
            publish_on_hub(here, model, step)
        compare(here, model)
    merge_on_hub(here, model)
    compare(here, model)


def edit_on_hub(here: Here, model: History, step: Edit) -> None:
    if step.data is not None:
        here.hand_made({step.path: step.data}, "alice")
    elif step.path in model.tree:
        here.api("alice").delete_file(step.path, here.target)


def publish_on_hub(here: Here, model: History, step: Making) -> None:
    target = read_target(here.hub(), here.target)
    assert target is not None
    bundle, contents = laid_out(model, target, step)
    went = publish(model, replace(step, is_merged=False))
    folder = here.cache()
    for path, data in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    try:
        done = here.publish(Case(bundle.release, folder), step.mode)
        assert went and done.kind == step.mode
    except OverwriteError:
        assert not went
    if step.is_merged and step.mode == "pull-request":
        merge_on_hub(here, model)


def merge_on_hub(here: Here, model: History) -> None:
    waits, before = model.pull is not None, len(model.commits)
    merge(model)
    if not waits:
        return
    number = max(number for number, status in here.pull_requests() if status == "open")
    try:
        here.api("alice").merge_pull_request(here.target, number)
        assert len(model.commits) > before, "the Hub merged it, and the model found a conflict"
    except HfHubHTTPError:
        assert len(model.commits) == before, "the Hub found a conflict, and the model none"


def compare(here: Here, model: History) -> None:
    """All files, but for the two records: they name commits, which are other ones here."""
    hub, revision = here.hub(), here.hub().head(here.target).sha
    tree = hub.tree(here.target, revision)
    assert {*tree} - {".gitattributes"} == {*model.tree}
    for path, data in model.tree.items():
        assert path in RECORDS or ids_of_bytes(data).are_of(tree[path]), path
    if MANIFEST in tree:
        there, wanted = (
            Manifest.from_json(data) for data in (hub.read_bytes(here.target, revision, MANIFEST), model.tree[MANIFEST])
        )
        assert there and wanted and ({*there.kept}, there.others) == ({*wanted.kept}, wanted.others)


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(steps=HISTORIES)
def test_the_same_happens_on_a_hub(server: HubServer, tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    play_on_hub(Here(server, f"org-{secrets.token_hex(4)}/model", tmp_path_factory.mktemp("history")), steps)
