"""A card's life on a Hub: pictures, a person's edits, the review on the pull request, and the commands about them."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.world import RECIPE, TARGET, UPSTREAM, World, network

MARK = "<!-- hub-publishing-bot review -->"


def text_at(world: World, path: str, revision: str = "main") -> str:
    return Path(world.api.hf_hub_download(TARGET, path, revision=revision)).read_text("utf-8")


def reviews(world: World, number: int) -> list[str]:
    """The texts of the review comments on a pull request."""
    events = world.api.get_discussion_details(TARGET, number).events
    return [each.content for each in events if each.type == "comment" and MARK in each.content]


def merge(world: World, number: int) -> None:
    world.api.merge_pull_request(TARGET, number)


def edit(world: World, changes: dict[str, str], *, revision: str = "main") -> None:
    """A person edits the published card in the browser."""
    card = text_at(world, "README.md", revision)
    for old, new in changes.items():
        assert old in card
        card = card.replace(old, new)
    world.upload(TARGET, {"README.md": card.encode()}, message="Edit the card")


def test_a_persons_edits_live_through_releases_and_conflicts_are_shown(world: World) -> None:
    first = world.publish()
    number = first["publication"]["number"]
    assert {each for each in world.api.list_repo_files(TARGET, revision=f"refs/pr/{number}") if "plots" in each} == {
        "plots/errors-fp16.svg",
        "plots/errors-second.svg",
        "plots/latency-fp16.svg",
        "plots/latency-second.svg",
        "plots/size.svg",
    }
    (review,) = reviews(world, number)
    assert "This is the first release here" in review and "`network-fp16.onnx`" in review
    merge(world, number)
    sha256 = first["release"]["artifacts"][0]["sha256"]
    edit(world, {"## Speed\n": "## How fast it is\n\nFaster than you think.\n", sha256: "see the file"})

    # Another network: other figures, other bytes. The heading stays, and so do the words in the table, with a notice.
    world.upload(UPSTREAM, {"model.onnx": network(1)})
    second = world.publish()
    number = second["publication"]["number"]
    card, rendered = (text_at(world, path, f"refs/pr/{number}") for path in ("README.md", "release/card.md"))
    assert "## How fast it is\n\nFaster than you think.\n" in card and "Faster than you" not in rendered
    assert "`see the file`" in card and second["identity"] in card
    description = world.api.get_discussion_details(TARGET, number).events[0].content
    (review,) = reviews(world, number)
    for text in (description, review):
        assert "### README.md was edited by a person" in text
        assert re.search(r"^- .*`see the file`", text, re.MULTILINE)
        assert re.search(rf"^\+ .*{second['release']['artifacts'][0]['sha256']}", text, re.MULTILINE)
    assert "| fp16: mean absolute difference, score, CPU provider |" in review
    done = world.bot("verify", f"{TARGET}@refs/pr/{number}", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["ok"] is True, done.stdout + done.stderr

    # The same again changes nothing, byte for byte, and says nothing twice.
    commits = [each.commit_id for each in world.api.list_repo_commits(TARGET, revision=f"refs/pr/{number}")]
    again = world.publish()
    assert again["publication"]["kind"] == "nothing"
    assert [each.commit_id for each in world.api.list_repo_commits(TARGET, revision=f"refs/pr/{number}")] == commits
    assert reviews(world, number) == [review]

    # A third release, after the second was merged: the edits are still there.
    merge(world, number)
    world.upload(UPSTREAM, {"config.json": b"{ }\n"})
    third = world.publish()
    card = text_at(world, "README.md", f"refs/pr/{third['publication']['number']}")
    assert "## How fast it is\n\nFaster than you think.\n" in card and third["identity"] in card

    # A card that was changed after the merge was recorded is not the one that was released.
    edit(world, {"## How fast it is\n": "## How slow it is\n"})
    done = world.bot("verify", TARGET, "--json")
    assert done.returncode == 8 and "README.md has the sha256" in done.stderr


def test_a_review_that_was_lost_is_said_by_the_next_run_and_a_stale_one_is_corrected(world: World) -> None:
    from bot.hub.client import Hub
    from bot.hub.comments import keep_comment, own_comments

    number = world.publish()["publication"]["number"]
    (review,) = reviews(world, number)
    hub = Hub(world.hub.endpoint, world.hub.token)
    (comment,) = own_comments(hub, TARGET, number)
    assert keep_comment(hub, TARGET, number, "Something else.") == "updated"
    assert [text.split("\n\n", 1)[1] for text in reviews(world, number)] == ["Something else."]
    assert own_comments(hub, TARGET, number)[0].id == comment.id
    assert keep_comment(hub, TARGET, number, "Something else.") == "same"

    # A second one, as of two runs at the same moment, is hidden.
    world.api.comment_discussion(TARGET, number, comment=f"{MARK}\n\nSomething else.")
    keep_comment(hub, TARGET, number, "Once more.")
    assert [each.text.split("\n\n", 1)[1] for each in own_comments(hub, TARGET, number)] == ["Once more."]

    # An answer that is lost on the way is no reason to say it twice.
    world.hub.fault("lost", path="*/comment*", method="POST", times=1)
    keep_comment(hub, TARGET, number, "Through a bad line.")
    assert [each.text.split("\n\n", 1)[1] for each in own_comments(hub, TARGET, number)] == ["Through a bad line."]

    # The next run of the bot finds a pull request that is whole, and no review on it.
    world.api.hide_discussion_comment(TARGET, number, comment.id)
    assert own_comments(hub, TARGET, number) == []
    assert world.publish()["publication"]["kind"] == "nothing"
    (again,) = own_comments(hub, TARGET, number)
    assert again.text.strip() == review.strip()


def test_others_words_are_not_the_bots(world: World) -> None:
    """Somebody who copies the mark neither keeps the bot from speaking nor has their words changed."""
    from bot.hub.client import Hub
    from bot.hub.comments import keep_comment

    world.api.create_repo(TARGET)
    number = world.api.create_discussion(TARGET, "About this", description="Hello.").num
    world.hub.api("other").comment_discussion(TARGET, number, comment=f"{MARK}\n\nAll is well.")
    hub = Hub(world.hub.endpoint, world.hub.token)
    world.hub.fault("lost", path="*/comment", method="POST", times=1)
    assert keep_comment(hub, TARGET, number, "Mine.") == "same"  # It was said; only the answer was lost.
    assert keep_comment(hub, TARGET, number, "Mine, later.") == "updated"
    texts = [text.split("\n\n", 1)[1] for text in reviews(world, number)]
    assert texts == ["All is well.", "Mine, later."]


def test_the_commands_tell_of_the_newest_release_and_of_a_published_one(world: World, tmp_path: Path) -> None:
    number = world.publish()["publication"]["number"]
    revision = f"{TARGET}@refs/pr/{number}"
    card = text_at(world, "README.md", f"refs/pr/{number}")
    local = world.bot("card", "network")
    there = world.bot("card", revision)
    assert local.returncode == there.returncode == 0, local.stderr + there.stderr
    assert local.stdout == there.stdout == card

    listed = json.loads(world.bot("card", revision, "--explain", "--json").stdout)
    assert listed["as_released"] is True and len(listed["numbers"]) > 50
    assert {"README.md", "plots/size.svg"} <= {each["place"] for each in listed["numbers"]}
    measured = [
        each for each in listed["numbers"] if each["field"].startswith("measurements[fp16 score.mean_absolute cpu]")
    ]
    assert measured and all(each["samples"] == 6 and "difference" in each["method"] for each in measured)
    assert all(each["field"] and each["method"] for each in listed["numbers"])

    for name in ("network", revision):
        done = world.bot("review", name)
        assert done.returncode == 0, done.stderr
        page = Path(done.stdout.rpartition("review: ")[2].strip())
        assert "✓ Every check that it must pass was passed." in page.read_text()
    shown = world.bot("review", revision, "--markdown").stdout
    assert shown.strip() == reviews(world, number)[0].split("\n\n", 1)[1].strip()
    missing = world.bot("card", UPSTREAM)
    assert missing.returncode == 8 and "holds no release.json" in missing.stderr


def test_before_anything_was_made_the_commands_say_what_to_do(world: World) -> None:
    for command in ("card", "review"):
        done = world.bot(command, "network")
        assert done.returncode == 2
        assert "no release of 'network' was made here yet" in done.stderr and "bot build network" in done.stderr


def test_the_usage_snippet_runs_against_what_was_published(world: World, tmp_path: Path) -> None:
    """As a reader would run it: their own cache, the Hub's address in the environment, and nothing else."""
    import subprocess

    from tests.world import picture

    number = world.publish()["publication"]["number"]
    merge(world, number)
    (code,) = re.findall(r"```python\n(.*?)```", text_at(world, "README.md"), re.DOTALL)
    script, image = tmp_path / "example.py", tmp_path / "picture.png"
    script.write_text(code)
    image.write_bytes(picture(3))
    environment = {**world.environment(), "HF_ENDPOINT": world.hub.endpoint, "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script), str(image)], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"score \[[\d.]+\]\n", done.stdout)


QUOTE = RECIPE.replace(
    "card: {pipeline_tag: image-classification, tags: [onnx]}",
    'card: {pipeline_tag: image-classification, tags: [onnx], reported: ["It errs by 3.56 years on 84k faces."]}',
)


def test_what_is_quoted_has_to_stand_in_the_upstreams_card(world: World) -> None:
    world.write_recipe(QUOTE)
    done = world.bot("build", "network")
    assert done.returncode == 2
    assert "card.reported[0]" in done.stderr and "does not say 'It errs by 3.56 years" in done.stderr
    readme = b"---\nlicense: mit\n---\n# A network\n\nIt errs by 3.56 years\non 84k faces. And so on.\n"
    world.upload(UPSTREAM, {"README.md": readme})
    built: Any = json.loads(world.bot("build", "network", "--json").stdout)
    card = Path(built["card"]).read_text()
    assert "> It errs by 3.56 years on 84k faces.\n" in card
    folder = Path(built["folder"])
    listed = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.svg")}
    assert len(listed) == 5
