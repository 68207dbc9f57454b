"""Licences upstream: what changed since somebody read them stops a release, and says so on the target, once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from bot.hub.client import Hub
from bot.licenses.reviewed import Comparison
from bot.pipeline import Context, publish
from bot.pipeline.license_review import LicenseReview, accept, review_licenses
from bot.pipeline.licensing import LicenseStopError, base_terms
from bot.pipeline.prepare import prepare
from bot.progress import Silent
from bot.recipe import Recipe, find_recipe
from bot.work import WorkFolder
from bot.worker import Worker
from tests.world import RECIPE, TARGET, UPSTREAM, World, make_world

BASE = "somebody/base"
README = "---\nlicense: mit\n---\n# A network\n"
FROM_BASE = f"---\nlicense: mit\nbase_model: {BASE}\n---\n"
TERMS = b"Terms of the network, first edition.\nAll may use it.\n"
BASE_README = b"---\nlicense: other\nlicense_name: base-terms\nlicense_link: terms/base.txt\n---\n"


class Heard(Silent):
    """Keeps what a run warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@dataclass
class Upstream:
    """A recipe's upstream, whose papers a test changes."""

    world: World
    heard: Heard

    def put(self, wanted: dict[str, str | bytes], repo: str = UPSTREAM) -> None:
        """Makes a repository hold these papers, besides its model."""
        api = self.world.api
        api.create_repo(repo, exist_ok=True)
        there = {item.path for item in api.list_repo_tree(repo, recursive=True) if hasattr(item, "blob_id")}
        kept = {"model.onnx", "config.json", ".gitattributes"}
        operations: list[Any] = [
            CommitOperationAdd(name, data.encode() if isinstance(data, str) else data) for name, data in wanted.items()
        ]
        operations += [CommitOperationDelete(name) for name in sorted(there - kept - set(wanted))]
        api.create_commit(repo, operations, commit_message="Papers")

    @property
    def context(self) -> Context:
        hub = Hub(self.world.hub.endpoint, self.world.hub.token)
        return Context(hub=hub, work=WorkFolder(self.world.work), worker=Worker(), reporter=self.heard)

    @property
    def recipe(self) -> Recipe:
        return find_recipe("network", self.world.recipes)

    def review(self) -> LicenseReview:
        return review_licenses(self.context, self.recipe)

    def accepted(self) -> Comparison:
        """Somebody reviews what is there now; what differs then."""
        return accept(self.review())[1]

    def stops(self, *, dry_run: bool = True) -> list[str]:
        """What a publish says that changed; it has to stop before anything is built."""
        with pytest.raises(LicenseStopError) as caught:
            publish(self.context, self.recipe, dry_run=dry_run)
        assert caught.value.exit_code == 9 and "bot licenses network" in caught.value.remedy
        assert caught.value.where == f"{self.world.recipes}/network/recipe.yaml:3"
        return [change.sentence() for change in caught.value.comparison.changes]

    def passes(self) -> Any:
        """What is known of the licences where they stop nothing."""
        licensing = prepare(self.context, self.recipe).licensing
        licensing.require_reviewed(self.recipe)
        return licensing

    def discussions(self) -> list[tuple[str, str, int]]:
        """Title, status and number of comments of each discussion on the target."""
        found = []
        for item in self.world.api.get_repo_discussions(TARGET, discussion_type="discussion"):
            events = self.world.api.get_discussion_details(TARGET, item.num).events
            found.append((item.title, item.status, sum(event.type == "comment" for event in events)))
        return found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One Hub for all; each test says what lies upstream."""
    made = make_world(tmp_path_factory.mktemp("licenses"))
    yield made
    made.hub.stop()


@pytest.fixture
def upstream(shared: World) -> Upstream:
    """A network with a licence text that its recipe's author has reviewed, and no base model."""
    shared.write_recipe()
    (shared.recipes / "network" / "licenses" / "reviewed.json").unlink(missing_ok=True)
    found = Upstream(shared, Heard())
    found.put({"README.md": README, "LICENSE": TERMS})
    assert found.accepted().changes == ()
    return found


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_was_reviewed_passes_and_travels(upstream: Upstream) -> None:
    licensing = upstream.passes()
    (record,) = licensing.records
    assert (record.file, record.sha256) == (f"source/licenses/{UPSTREAM}/LICENSE", sha256(TERMS))
    assert licensing.texts[record.file].read_bytes() == TERMS and upstream.heard.warnings == []
    assert [(verdict.rule, verdict.status) for verdict in licensing.verdicts()] == [
        (f"licence of {UPSTREAM}", "passed")
    ]
    assert licensing.source.license == "mit" and [text.path for text in licensing.source.license_texts] == ["LICENSE"]


def test_another_id(upstream: Upstream) -> None:
    upstream.put({"README.md": README.replace("mit", "cc-by-nc-4.0"), "LICENSE": TERMS})
    assert upstream.stops() == [f"{UPSTREAM}: license was mit, and is cc-by-nc-4.0"]


def test_an_id_that_is_gone(upstream: Upstream) -> None:
    upstream.put({"README.md": "# no front matter any more", "LICENSE": TERMS})
    assert upstream.stops() == [f"{UPSTREAM}: license is gone; it was mit"]


def test_another_text_under_the_same_id(upstream: Upstream) -> None:
    changed = TERMS.replace(b"All may", b"Nobody may")
    upstream.put({"README.md": README, "LICENSE": changed})
    assert upstream.stops() == [f"{UPSTREAM}: LICENSE was {sha256(TERMS)}, and is {sha256(changed)}"]
    (difference,) = upstream.review().differences
    assert difference.lines[-2:] == ("-All may use it.", "+Nobody may use it.")
    assert upstream.accepted().changes == ()
    assert upstream.passes().records[0].sha256 == sha256(changed)


def test_a_text_that_is_gone_and_one_that_is_new(upstream: Upstream) -> None:
    upstream.put({"README.md": README, "legal/NOTICE": b"Notice", "license_plate.onnx": b"no text"})
    assert upstream.stops() == [
        f"{UPSTREAM}: LICENSE is gone; it was {sha256(TERMS)}",
        f"{UPSTREAM}: legal/NOTICE is new: {sha256(b'Notice')}",
    ]


def test_a_base_model_that_is_new_changes_and_is_gone(upstream: Upstream) -> None:
    upstream.put({"README.md": BASE_README, "terms/base.txt": b"Base terms."}, BASE)
    upstream.put({"README.md": FROM_BASE, "LICENSE": TERMS})
    words = "other (base-terms), terms/base.txt"
    assert upstream.stops() == [f"{BASE}: base model is new: {words}"]
    assert upstream.accepted().changes == ()
    licensing = upstream.passes()
    assert licensing.texts[f"source/licenses/{BASE}/terms/base.txt"].read_bytes() == b"Base terms."
    (base,) = licensing.source.bases
    assert base.commit == upstream.world.api.model_info(BASE).sha and base.license_link == "terms/base.txt"
    # Another commit alone is no change; other terms are.
    upstream.put({"README.md": BASE_README + b"# More\n", "terms/base.txt": b"Base terms."}, BASE)
    upstream.passes()
    upstream.put({"README.md": BASE_README, "terms/base.txt": b"Other terms."}, BASE)
    (said,) = upstream.stops()
    assert said == f"{BASE}: terms/base.txt was {sha256(b'Base terms.')}, and is {sha256(b'Other terms.')}"
    upstream.put({"README.md": README, "LICENSE": TERMS})
    assert upstream.stops() == [f"{UPSTREAM}: base model {BASE} is gone; it was {words}"]


@pytest.mark.parametrize("status", [404, 403])
def test_a_base_model_out_of_reach_is_said_and_stops_nothing(upstream: Upstream, status: int) -> None:
    upstream.put({"README.md": BASE_README}, BASE)
    upstream.put({"README.md": FROM_BASE, "LICENSE": TERMS})
    assert upstream.accepted().changes == ()
    code = {404: "RepoNotFound", 403: "GatedRepo"}[status]
    server = upstream.world.hub
    server.fault("status", f"/api/models/{BASE}/*", status=status, headers={"X-Error-Code": code}, times=0)
    try:
        licensing = upstream.passes()
        assert licensing.source.bases[0].unchecked and licensing.source.bases[0].commit == ""
        assert f"the licence of the base model {BASE} was not checked" in upstream.heard.warnings[0]
        (_, verdict) = licensing.verdicts()
        assert verdict.status == "not measured" and "was not checked" in verdict.reason and not verdict.withholds
        # A review that was made while it could be read is not lost by another.
        assert accept(upstream.review())[1].reviewed.base_models[0].license == "other"  # type: ignore[union-attr]
    finally:
        server.clear_faults()
    upstream.passes()


def test_a_base_model_nobody_could_read_has_to_be_reviewed_when_it_can(upstream: Upstream) -> None:
    upstream.put({"README.md": FROM_BASE.replace(BASE, "somebody/secret"), "LICENSE": TERMS})
    assert upstream.accepted().changes == ()
    upstream.passes()
    upstream.put({"README.md": BASE_README}, "somebody/secret")
    (said,) = upstream.stops()
    assert said == "somebody/secret: base model was not checked, and is other (base-terms)"
    upstream.world.api.delete_repo("somebody/secret")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/b/c", "a\nb", "https://elsewhere.example/a/b", "-a/b", "", "a/.."]
)
def test_a_name_that_is_no_repository(upstream: Upstream, name: str) -> None:
    assert base_terms(upstream.context, name).unchecked == "this is not the name of a repository"


@pytest.mark.parametrize(
    ("readme", "word"),
    [
        (b"---\nlicense: mit\nlicense: gpl\n---\n", "license stands twice"),
        (b"---\nlicense: mit\nx: " + b"[" * 5000 + b"\n---\n", "levels deep"),
        (b"---\nlicense: {a: mit}\n---\n", "license is something else"),
        (b"---\nlicense: mit\n<<: *x\n---\n", "merged"),
        (b"---\n- license: mit\n---\n", "no mapping"),
    ],
)
def test_front_matter_that_cannot_be_read_stops(
    upstream: Upstream, readme: bytes, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks nobody whether its card is valid; a Hub that let it through."""
    monkeypatch.setattr(type(upstream.world.api), "_validate_yaml", lambda *_, **__: None)
    upstream.put({"README.md": readme, "LICENSE": TERMS})
    (said,) = upstream.stops()
    assert said.startswith(f"{UPSTREAM}: front matter was readable, and is unreadable: ") and word in said


def test_without_a_review_only_what_the_recipe_says_counts(upstream: Upstream) -> None:
    (upstream.world.recipes / "network" / "licenses" / "reviewed.json").unlink()
    assert upstream.stops() == [f"{UPSTREAM}: LICENSE is new: {sha256(TERMS)}"]
    prepare(upstream.context, upstream.recipe)  # a build goes on, and says so
    assert upstream.heard.warnings[-1] == f"nobody has reviewed the licence of {UPSTREAM}; see: bot licenses network"
    (upstream.world.recipes / "network" / "licenses" / "LICENSE").write_bytes(TERMS)
    assert upstream.passes().records == ()  # the recipe's own text is this one, and travels anyway
    upstream.put({"README.md": BASE_README}, BASE)
    upstream.put({"README.md": FROM_BASE, "LICENSE": TERMS})
    assert upstream.stops() == [f"{BASE}: base model is new: other (base-terms)"]


def test_what_is_called_other_has_to_be_reviewed(upstream: Upstream) -> None:
    (upstream.world.recipes / "network" / "licenses" / "reviewed.json").unlink()
    upstream.world.write_recipe(RECIPE.replace("{id: mit}", "{id: other, name: Odd}"))
    upstream.put({"README.md": "---\nlicense: other\nlicense_name: odd\n---\n"})
    assert upstream.stops() == [f"{UPSTREAM}: license_name is new: odd"]
    assert upstream.accepted().changes == ()
    upstream.put({"README.md": "---\nlicense: other\nlicense_name: even-odder\n---\n"})
    assert upstream.stops() == [f"{UPSTREAM}: license_name was odd, and is even-odder"]


def test_a_review_does_not_speak_for_the_recipes_own_id(upstream: Upstream) -> None:
    upstream.put({"README.md": README.replace("mit", "cc-by-nc-4.0"), "LICENSE": TERMS})
    (left,) = upstream.accepted().changes
    assert left.sentence() == f"{UPSTREAM}: license was mit, and is cc-by-nc-4.0"
    assert upstream.stops() == [left.sentence()]


def test_a_review_that_holds_is_left_as_it_is_and_one_that_is_none_is_an_error(upstream: Upstream) -> None:
    path = upstream.world.recipes / "network" / "licenses" / "reviewed.json"
    before, identity = path.read_bytes(), prepare(upstream.context, upstream.recipe).identity
    upstream.put({"README.md": README + "More words.\n", "LICENSE": TERMS})
    assert upstream.accepted().changes == () and path.read_bytes() == before
    assert prepare(upstream.context, upstream.recipe).identity == identity
    path.write_text(json.dumps({**json.loads(before), "upstream": {}}))
    done = upstream.world.bot("licenses", "network")
    assert done.returncode == 2 and f"{path}" in done.stderr and "upstream.repo" in done.stderr


def test_the_command(upstream: Upstream) -> None:
    upstream.put({"README.md": README, "LICENSE": TERMS + b"\x1b[2Jmore\n"})
    done = upstream.world.bot("licenses", "network")
    assert done.returncode == 9 and "+\ufffd[2Jmore" in done.stdout and "\x1b[2J" not in done.stdout
    assert done.stderr.count("error: ") == 1 and "--accept" in done.stderr
    done = upstream.world.bot("licenses", "network", "--accept", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["ok"] and found["written"].endswith("licenses/reviewed.json")
    (repository,) = found["repositories"]
    assert repository["review"] == "reviewed" and Path(repository["texts"][0]["file"]).read_bytes().endswith(b"more\n")
    assert upstream.world.bot("licenses", "network").returncode == 0


def test_the_target_is_told_once_and_the_discussion_is_closed_when_it_is_resolved(upstream: Upstream) -> None:
    published = publish(upstream.context, upstream.recipe)
    assert published.release is not None and upstream.discussions() == []
    folder = upstream.world.api.list_repo_files(TARGET, revision="refs/pr/1")
    assert f"source/licenses/{UPSTREAM}/LICENSE" in folder and "LICENSE" in folder
    title = f"Withheld: a licence of {UPSTREAM} changed"
    upstream.put({"README.md": README, "LICENSE": TERMS, "NOTICE @all.txt": b"x"})
    for _ in range(2):
        upstream.stops(dry_run=False)
        assert upstream.discussions() == [(title, "open", 1)]
    text = upstream.world.api.get_discussion_details(TARGET, 2).events[0].content
    assert sha256(b"x") in text and "@all" not in text and "bot licenses network --accept" in text
    upstream.put({"README.md": README, "LICENSE": b"Other terms."})
    upstream.stops(dry_run=False)
    assert upstream.discussions() == [(title, "open", 2)]
    upstream.stops(dry_run=True)
    # Upstream takes it back: there is nothing to publish, and nothing to complain about any more.
    upstream.put({"README.md": README, "LICENSE": TERMS})
    assert publish(upstream.context, upstream.recipe).publication.kind == "nothing"  # type: ignore[union-attr]
    assert [status for _, status, _ in upstream.discussions()] == ["closed"]
