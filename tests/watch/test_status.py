"""The state of the fleet: releases over time from the targets' histories, on a page that nothing breaks out of."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bot.card.fleet import MOST_PLOTS, Entry, Figure, ReleasePoint, render_status, safe_link
from bot.hub.trailers import IDENTITY, RECIPE, with_trailers
from bot.pipeline.status import figures_of, status
from bot.records import Release
from tests.card.releases import fused_release
from tests.watch.conftest import FleetWorld, start_fleet
from tests.watch.fleet_world import members
from tests.watch.payloads import CONTROLS, HIDING, PAYLOADS

ENDPOINT = "https://hub.example"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetWorld]:
    """Three recipes; the target of the first has a history."""
    made = start_fleet(tmp_path_factory.mktemp("status"), members(3, 1), "--fast-clock", "--user", "other")
    yield made
    made.hub.stop()


def _publish(world: FleetWorld, release: Release, user: str = "local-user") -> str:
    """A commit of a release to its target, with the trailers that the bot's have."""
    from huggingface_hub import CommitOperationAdd

    message = with_trailers("", {IDENTITY: release.identity, RECIPE: release.recipe})
    operation = CommitOperationAdd("release.json", release.to_json())
    commit = world.hub.api(user).create_commit(
        release.target, [operation], commit_message="A release", commit_description=message
    )
    return str(commit.oid)


def _history(world: FleetWorld) -> list[Release]:
    """Two releases: the second has smaller files and misses a limit."""
    target, name = world.members[0].target, world.members[0].name
    first = fused_release().model_copy(update={"target": target, "recipe": name, "identity": "1" * 64})
    smaller = tuple(each.model_copy(update={"bytes": each.bytes // 2}) for each in first.artifacts)
    verdicts = tuple(
        each.model_copy(update={"status": "failed"}) if each.limit is not None else each for each in first.verdicts
    )
    second = first.model_copy(update={"identity": "2" * 64, "artifacts": smaller, "verdicts": verdicts})
    return [first, second]


def test_releases_come_from_the_bots_own_commits_oldest_first(world: FleetWorld) -> None:
    releases = _history(world)
    commits = [_publish(world, release) for release in releases]
    _publish(world, releases[0].model_copy(update={"identity": "3" * 64}), user="other")  # Anyone can copy a trailer.
    watcher = world.watcher()
    entries, rows = status(watcher)
    assert [entry.recipe for entry in entries] == [row.recipe for row in rows] == [each.name for each in world.members]
    found = entries[0].releases
    assert [point.identity for point in found] == ["1" * 64, "2" * 64]
    assert [point.commit for point in found] == commits
    assert found[0].date < found[1].date
    for point, release in zip(found, releases, strict=True):
        assert list(point.figures) == figures_of(release)
        sizes = {figure.name: figure.value for figure in point.figures if figure.kind == "size"}
        assert sizes == {each.name: round(each.bytes / 1e6, 3) for each in release.published}
        kinds = {figure.kind for figure in point.figures}
        assert kinds == {"size", "accuracy", "speed"}
    assert all(figure.passed is False for figure in found[1].figures if figure.limit is not None)
    calls = watcher.budget.buckets["resolvers"].calls
    again, _ = status(watcher)
    # A HEAD for each upstream and target; no record is read twice.
    assert again[0].releases == found and watcher.budget.buckets["resolvers"].calls == calls + 2 * len(world.members)


def test_the_command_writes_the_page_and_says_what_waits(world: FleetWorld, tmp_path: Path) -> None:
    world.change(world.members[1], "other weights")
    (world.recipes / world.members[2].name / "card.md.j2").unlink()
    token, page = tmp_path / "token", tmp_path / "status.html"
    token.write_text(world.hub.token)
    where = ["--hub", world.hub.endpoint, "--token-file", str(token), "--work", str(tmp_path / "work")]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "BOT_"))}
    command = [sys.executable, "-m", "bot", "status", "--recipes", str(world.recipes), *where]
    done = subprocess.run(
        [*command, "--html", str(page)], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert done.returncode == 2, done.stderr  # The third recipe is broken, and the others are told all the same.
    assert "the bot" in done.stdout and "there is no" in done.stdout and "Traceback" not in done.stderr
    text = page.read_text()
    assert "whoever answers for the recipe" in text and "upstream files" in text
    plain = subprocess.run([*command, "--json"], capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    states = {entry["recipe"]: entry["state"] for entry in json.loads(plain.stdout)}
    assert states[world.members[1].name] == "due" and states[world.members[2].name] == "broken"


# -- the page ----------------------------------------------------------------------------------------------------------


class _Page(HTMLParser):
    """The elements and attributes of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if not self.tags or self.tags[-1] != "style":
            self.text += data


def _entry(text: str = "plain", releases: int = 3) -> Entry:
    points = tuple(
        ReleasePoint(
            identity=f"{index}" * 64,
            date=NOW - timedelta(days=30 - index),
            commit=text,
            upstream_commit=text,
            figures=(
                Figure("size", text, 12.5 / (index + 1), "MB"),
                Figure("accuracy", f"{text}: age.mean_absolute", 0.01 * index, text, 0.015, index < 2),
                Figure("speed", "fp16: latency.cpu.batch_1", 40.0 - index, "ms"),
            ),
            withheld=(text,),
        )
        for index in range(releases)
    )
    return Entry(text, text, text, "due", (text,), text, text, text, NOW, points, text)


TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "section",
        "div",
        "p",
        "span",
        "strong",
        "br",
    ),
    *("h1", "h2", "h3", "table", "thead", "tbody", "tr", "th", "td", "a", "code", "details", "summary"),
    *("figure", "figcaption", "svg", "polyline", "line", "circle"),
}


@pytest.mark.parametrize("kind", sorted(PAYLOADS))
def test_nothing_breaks_out_of_the_page(kind: str) -> None:
    payload = PAYLOADS[kind]
    text = render_status([_entry(payload), _entry("plain")], endpoint=ENDPOINT, now=NOW)
    clean = _Page(render_status([_entry("harmless"), _entry("plain")], endpoint=ENDPOINT, now=NOW))
    page = _Page(text)
    # The same elements as with harmless words: no text became one, and none swallowed one.
    assert [tag for tag in page.tags if tag != "a"] == [tag for tag in clean.tags if tag != "a"]
    assert set(page.tags) <= TAGS
    for _, name, value in page.attributes:
        assert not name.startswith("on") and name not in ("style", "srcdoc", "formaction", "src")
        if name == "href":
            assert value.startswith(("#recipe-", f"{ENDPOINT}/"))
    assert not [char for char in [*CONTROLS, *HIDING] if char in text]
    assert ("{{" in page.text) == ("{{" in payload)  # Shown as it is written, and not worked out.


def test_the_page_stands_alone() -> None:
    text = render_status([_entry()], endpoint=ENDPOINT, now=NOW)
    assert "default-src 'none'" in text and "<script" not in text and "prefers-color-scheme: dark" in text
    loaded = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')>\s]+)""", text)
    assert all(address.startswith(("#", ENDPOINT)) for address in loaded)
    assert "undefined" not in text.lower() and text == render_status([_entry()], endpoint=ENDPOINT, now=NOW)


def test_points_lie_inside_their_pictures_and_in_order() -> None:
    values = (3.0, -1.0, 250_000.0, 0.0)
    releases = tuple(
        ReleasePoint(
            "0" * 64, NOW + timedelta(days=day), "c", "u", (Figure("size", "x", value, "MB", 5.0, value <= 5),)
        )
        for day, value in enumerate(values)
    )
    text = render_status([replace(_entry(), releases=releases)], endpoint=ENDPOINT, now=NOW)
    dots = [
        (kind, float(x), float(y))
        for kind, x, y in re.findall(r'<circle class="([a-z ]+)" cx="([-\d.]+)" cy="([-\d.]+)"', text)
    ]
    assert [kind for kind, _, _ in dots] == ["dot", "dot", "dot miss", "dot"]
    assert [x for _, x, _ in dots] == sorted(x for _, x, _ in dots)
    assert all(0 <= x <= 240 and 0 <= y <= 72 for _, x, y in dots)
    heights = [72 - y for _, _, y in dots]
    assert max(heights) == heights[2] and min(heights) == heights[1]
    assert "250,000\N{NO-BREAK SPACE}MB" in text and "limit 5\N{NO-BREAK SPACE}MB" in text


def test_a_recipe_with_very_many_figures_keeps_a_readable_number_of_pictures() -> None:
    figures = tuple(Figure("accuracy", f"a: figure {index}", 1.0) for index in range(40))
    point = ReleasePoint("0" * 64, NOW, "c", "u", figures)
    text = render_status([replace(_entry(), releases=(point,))], endpoint=ENDPOINT, now=NOW)
    assert text.count("<svg") == MOST_PLOTS


def test_no_recipes_and_no_releases_are_said() -> None:
    assert "There are no recipes." in render_status([], endpoint=ENDPOINT, now=NOW)
    text = render_status([replace(_entry(), releases=(), problem="", waits_for="")], endpoint=ENDPOINT, now=NOW)
    assert "Nothing is published yet." in text and "Nothing waits for anybody." in text


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", 'https://x/"onclick=', "//x", "", "https://x y"]
)
def test_a_reader_is_sent_nowhere_else(url: str) -> None:
    assert safe_link(url) == ""
    assert safe_link("https://hub.example/a/b/discussions/1")
