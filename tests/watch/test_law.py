"""The law of the watcher: what it calls due is what `bot publish` would act on, after any history whatsoever.

The publisher here is the real one, on the small world of the other tests, up to where it would begin to build. What it
publishes then is a release of the right identity with a file of a few bytes in place of a network.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.errors import LicenseChangedError, WithheldError
from bot.hub import publish as publishing
from bot.hub.client import Hub
from bot.hub.memory import Memory
from bot.hub.withheld import report_withheld
from bot.pipeline import run
from bot.pipeline.context import Context
from bot.pipeline.fleet import Fleet
from bot.pipeline.prepare import Prepared
from bot.pipeline.watching import Watcher
from bot.recipe import load_recipe
from bot.records import LicenseRecord, Release
from bot.watch.findings import Row
from bot.work import WorkFolder
from bot.worker import Worker
from tests.hub.hub_cases import artifact, sha256
from tests.watch.conftest import QUICK
from tests.world import PICTURES, RECIPE, World, make_world, network

_numbers = itertools.count()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One Hub and one data set; each history has an upstream, a recipe and a target of its own."""
    made = make_world(tmp_path_factory.mktemp("law"))
    yield made
    made.hub.stop()


class _WouldBuild(Exception):
    """The publisher is about to build: there is something to publish."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared


class History:
    """One recipe, and what happens around it."""

    def __init__(self, world: World, mode: str) -> None:
        self.world, self.mode = world, mode
        self.name = f"net{next(_numbers)}"
        self.upstream, self.target = f"somebody/{self.name}", f"local-user/{self.name}-onnx"
        self.recipes = world.folder / f"recipes-{self.name}"
        self.retry, self.comment, self.words, self.licence, self.samples = 0, "", "", "", 0
        self.hub = Hub(world.hub.endpoint, world.hub.token, policy=QUICK)
        self.context = Context(self.hub, WorkFolder(world.work), Worker())
        self.memory = world.folder / f"{self.name}.json"
        readme = b"---\nlicense: mit\n---\n# A network\n"
        world.upload(self.upstream, {"model.onnx": network(), "config.json": b"{}\n", "README.md": readme})
        self.write()

    def write(self) -> None:
        """Writes the recipe as it is now."""
        text = RECIPE.replace("somebody/network", self.upstream).replace("local-user/network-onnx", self.target)
        folder = self.recipes / self.name
        (folder / "licenses").mkdir(parents=True, exist_ok=True)
        (folder / "licenses" / "LICENSE").write_text(f"Permission is granted to all{self.licence}.\n")
        (folder / "card.md.j2").write_text(f'{{% extends "shared/card.md.j2" %}}\n{{# {self.words} #}}\n')
        text = text.replace("OPEN", self.mode) + f"retry: {self.retry}\n# {self.comment}\n"
        (folder / "recipe.yaml").write_text(text)

    # -- what can happen -----------------------------------------------------------------------------------------------

    def model(self, seed: int) -> None:
        """Another model upstream, or an earlier one again."""
        self.world.upload(self.upstream, {"model.onnx": network(seed)})

    def config(self, text: str) -> None:
        """Another file that is carried along."""
        self.world.upload(self.upstream, {"config.json": text.encode()})

    def readme(self, text: str, licence: str = "mit") -> None:
        """A commit upstream that changes nothing that is read."""
        self.world.upload(self.upstream, {"README.md": f"---\nlicense: {licence}\n---\n# {text}\n".encode()})

    def change(self, what: str, value: Any) -> None:
        """Another recipe."""
        setattr(self, what, value)
        self.write()

    def raise_retry(self) -> None:
        """The recipe asks for another attempt."""
        self.change("retry", self.retry + 1)

    def other_samples(self, count: int) -> None:
        """Another data set at the branch that is followed."""
        lines = [json.dumps({"file_name": f"images/{n}.png", "bbox": [2, 2, 40, 40 - count]}) for n in range(8)]
        self.world.upload(PICTURES, {"metadata.jsonl": "\n".join(lines).encode()}, repo_type="dataset")

    def publish(self) -> None:
        """The bot runs."""
        prepared = self.publisher()[1]
        if prepared is not None:
            release, folder = self._release(prepared)
            mode: Any = self.mode
            publishing.publish(self.hub, release, folder, mode=mode, title="A release", description="Of a network.")

    def withhold(self) -> None:
        """The bot runs, and the release fails a gate."""
        prepared = self.publisher()[1]
        if prepared is not None:
            report_withheld(self.hub, self._release(prepared)[0], title="Withheld", text="It is not good enough.")

    def review(self, decision: str) -> None:
        """A person merges or closes the newest open pull request."""
        api = self.world.api
        if not api.repo_exists(self.target):
            return
        still_open = [each for each in api.get_repo_discussions(self.target) if each.is_pull_request]
        numbers = [each.num for each in still_open if each.status == "open"]
        if numbers and decision == "merge":
            api.merge_pull_request(self.target, max(numbers))
        elif numbers:
            api.change_discussion_status(self.target, max(numbers), "closed")

    def _release(self, prepared: Prepared) -> tuple[Release, Path]:
        data, licence = b"a network", (self.recipes / self.name / "licenses" / "LICENSE").read_bytes()
        release = Release(
            identity=prepared.identity,
            recipe_id=prepared.recipe_id,
            recipe=self.name,
            recipe_text=prepared.recipe.text,
            target=self.target,
            runtime="onnxruntime>=1.22",
            source=prepared.source.model_copy(update={"copies": ()}),
            samples=(prepared.samples,),
            artifacts=(artifact("fp16", "network.onnx", data),),
            licenses=(LicenseRecord(name="mit", file="LICENSE", sha256=sha256(licence)),),
            bot_version="0.1.0",
        )
        release = release.model_copy(update={"source": prepared.source})
        card = (
            f'---\nlicense: mit\nrelease_id: "{release.identity}"\nsource_commit: "{release.source.commit}"\n'
            f'recipe_id: "{release.recipe_id}"\n---\n# A network\n'
        ).encode()
        folder = self.world.folder / "made" / prepared.identity
        files = {"network.onnx": data, "LICENSE": licence, "README.md": card, "release/card.md": card}
        files |= {f"source/{name}": path.read_bytes() for name, path in prepared.copies.items()}
        files["release.json"] = release.to_json()
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return release, folder

    # -- what is found -------------------------------------------------------------------------------------------------

    def publisher(self) -> tuple[str, Prepared | None]:
        """What the publisher would do: `act`, `nothing`, or `withheld`; and what it has prepared to act on."""

        def would(context: Context, prepared: Prepared, *_: Any) -> Any:
            raise _WouldBuild(prepared)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "_make", would)
            try:
                outcome = run.publish(self.context, load_recipe(self.recipes / self.name))
            except _WouldBuild as found:
                return "act", found.prepared
            except WithheldError:
                return "withheld", None
        assert outcome.publication is not None
        return "nothing", None

    def watcher(self, memory: Memory) -> Row:
        """What the watcher finds."""
        watcher = Watcher(self.hub, Fleet(self.recipes), memory=memory)
        (row,) = watcher.poll()
        assert row.error is None, row.error
        return row

    def check(self) -> Row:
        """Holds the watcher against the publisher: one that remembers, and one that knows nothing."""
        warm = self.watcher(Memory(self.memory))
        cold = self.watcher(Memory())
        expected, _ = self.publisher()
        for row in (warm, cold):
            assert (row.state == "due") == (expected == "act"), (row, expected)
            assert (row.state == "withheld") <= (expected == "withheld"), (row, expected)
            assert row.state not in ("cooling down", "broken", "unavailable"), row
        assert warm.finding == cold.finding
        return warm


ACTIONS = {
    "publish": lambda it: it.publish(),
    "withhold": lambda it: it.withhold(),
    "merge": lambda it: it.review("merge"),
    "close": lambda it: it.review("close"),
    "model 1": lambda it: it.model(1),
    "model 0": lambda it: it.model(0),
    "config a": lambda it: it.config("[]\n"),
    "config b": lambda it: it.config("{}\n"),
    "readme": lambda it: it.readme("Another text"),
    "words": lambda it: it.change("words", "other"),
    "words back": lambda it: it.change("words", ""),
    "licence": lambda it: it.change("licence", " who ask"),
    "comment": lambda it: it.change("comment", "nothing changes"),
    "retry": lambda it: it.raise_retry(),
    "samples": lambda it: it.other_samples(1),
    "samples back": lambda it: it.other_samples(0),
}


def _live(world: World, mode: str, story: list[str]) -> list[str]:
    """Lets a story happen, and returns the state after each step."""
    history = History(world, mode)
    history.check()
    states = []
    for action in story:
        ACTIONS[action](history)
        row = history.check()
        states.append(f"{row.state} ({', '.join(row.finding.reasons)})" if row.finding.reasons else row.state)
    return states


def test_a_life_with_reviews_and_reverts(world: World) -> None:
    assert _live(
        world,
        "pull-request",
        ["publish", "readme", "config a", "publish", "merge", "model 1", "publish", "model 0", "publish"],
    ) == [
        "waiting for review",
        "waiting for review",
        "due (upstream files, pull request outdated)",
        "waiting for review",
        "current",
        "due (upstream files)",
        "waiting for review",
        "due (pull request outdated)",  # The upstream went back to what is published: the open one has to go.
        "current",
    ]


def test_a_life_with_refusals(world: World) -> None:
    assert _live(
        world,
        "pull-request",
        ["publish", "close", "retry", "withhold", "comment", "retry", "publish", "merge", "licence"],
    ) == [
        "waiting for review",
        "closed",
        "due (retry)",
        "withheld",
        "withheld",
        "due (retry)",
        "waiting for review",
        "current",
        "due (licence)",
    ]


def test_a_life_of_commits(world: World) -> None:
    assert _live(
        world, "commit", ["publish", "words", "publish", "words back", "samples", "publish", "samples back"]
    ) == [
        "current",
        "due (recipe)",
        "current",
        "replaced",  # The publisher does not go back by itself either: --reopen does.
        "due (samples, recipe)",
        "current",
        "replaced",
    ]


def test_a_licence_that_changed_is_said_once_and_not_run_into_again(world: World) -> None:
    history = History(world, "pull-request")
    history.publish()
    history.review("merge")
    history.readme("A network", licence="gpl-3.0")
    assert history.watcher(Memory()).state == "current"  # Nothing that is read has changed.
    history.model(1)
    for change in ("", "other words"):
        if change:
            history.change("words", change)  # Somebody edits the recipe, and its licence is as it was.
        assert history.watcher(Memory(history.memory)).state == "due"
        for _ in range(2):
            with pytest.raises(LicenseChangedError):
                history.publisher()
            row = history.watcher(Memory(history.memory))
            assert row.state == "withheld" and row.url.endswith(f"/discussions/{row.finding.number}")
            assert replace(history.watcher(Memory()), since=None) == replace(row, since=None)
    history.change("comment", "nothing changes")
    assert history.watcher(Memory()).state == "withheld"
    history.change("words", "")
    history.model(0)
    assert history.watcher(Memory()).state == "current"  # Back to what is published.
    history.model(1)
    history.raise_retry()  # Somebody asked the owner, who put the licence right.
    history.readme("A network")
    assert history.check().state == "due"


@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(
    mode=st.sampled_from(["pull-request", "commit"]),
    story=st.lists(st.sampled_from(sorted(ACTIONS)), min_size=4, max_size=7),
)
def test_any_life(world: World, mode: str, story: list[str]) -> None:
    _live(world, mode, story)
