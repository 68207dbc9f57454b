"""What a card and a review say of files that lay in the target before, and of those that a release comes after."""

from __future__ import annotations

import re

import pytest
from releases import template

from bot.card.card import (
    Published,
    Review,
    render_card,
    render_comment,
    render_plots,
    render_pull_request,
    render_review,
)
from bot.records import EarlierFile, FileRecord, Release

PINNED, FUSED = "faceage-dino-fp16.onnx", "faceage-dino-vitl16-fused-fp16.onnx"


def card_of(release: Release) -> str:
    return render_card(release, template=template(release.recipe), template_name="x/card.md.j2").text


def in_one_line(text: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def taken_over(release: Release, *, steps: bool = True) -> Release:
    """The same, with its frozen file as one that was made by hand: nothing of a build is known of it."""
    (pinned,) = [artifact for artifact in release.artifacts if artifact.file == PINNED]
    declared = tuple(step.model_copy(update={"report": {}}) for step in pinned.steps) if steps else ()
    new = pinned.model_copy(update={"taken_over": True, "steps": declared, "built_with": {}})
    return with_artifact(release, pinned.name, new)


def with_artifact(release: Release, name: str, new: object) -> Release:
    artifacts = tuple(new if artifact.name == name else artifact for artifact in release.artifacts)
    return release.model_copy(update={"artifacts": artifacts})


def with_before(release: Release, before: EarlierFile) -> Release:
    (fused,) = [artifact for artifact in release.artifacts if artifact.file == FUSED]
    return with_artifact(release, fused.name, fused.model_copy(update={"before": before}))


@pytest.mark.parametrize("steps", [True, False])
def test_a_file_that_was_taken_over_is_described_and_nothing_is_said_of_its_build(fused: Release, steps: bool) -> None:
    card = in_one_line(card_of(taken_over(fused, steps=steps)))
    assert f"`{PINNED}` was made by hand and was here before. It was measured like the others" in card
    assert "does not pass" not in card, "all its checks passed"
    if steps:
        assert "Nobody ran its steps again" in card and "`onnxconverter-common` converts the graph" in card
    else:
        assert f"`{PINNED}` was made by hand, before this release. How is not known here" in card
    assert "casts up" not in card and "Made with `onnxconverter-common`" not in card
    assert card.count("Opset ") == 2, "what the file itself tells is known of both"


def test_what_it_fails_is_said_and_is_no_reason_to_withhold_it(fused: Release) -> None:
    release = taken_over(fused)
    name = release.artifacts[0].name
    failed = release.verdicts[0].model_copy(
        update={"artifact": name, "status": "failed", "required": False, "reason": "an output is dead"}
    )
    release = release.model_copy(update={"verdicts": (*release.verdicts, failed)})
    card = in_one_line(card_of(release))
    assert "It does not pass what withholds a file that is made here: - an output is dead." in card
    comment = in_one_line(render_comment(review_of(release)))
    assert f"`{PINNED}` was here before, and fails: an output is dead. It stays as it is." in comment
    request = in_one_line(render_pull_request(release)[1])
    assert "failed, not required" in request and "frozen, made by hand" in request


def test_a_new_name_and_a_replaced_file_are_told_apart(fused: Release) -> None:
    beside = EarlierFile(path="older.onnx", sha256="ab" * 32, revision="c" * 40)
    card = in_one_line(card_of(with_before(fused, beside)))
    assert f"`older.onnx` (sha256 `{'ab' * 32}`), which `{FUSED}` comes after, is still here, unchanged." in card
    replaced = EarlierFile(path=FUSED, sha256="ab" * 32, revision="c" * 40)
    card = in_one_line(card_of(with_before(fused, replaced)))
    assert f"`{FUSED}` took the place of a file with the sha256 `{'ab' * 32}`; commit `{'c' * 40}` holds" in card
    (artifact,) = [artifact for artifact in fused.artifacts if artifact.file == FUSED]
    other_weights = EarlierFile(path=FUSED, sha256=artifact.sha256, revision="c" * 40)
    card = in_one_line(card_of(with_before(fused, other_weights)))
    assert f"`{FUSED}` has other weights than before; commit `{'c' * 40}` holds those" in card


def review_of(release: Release, before: Published | None = None) -> Review:
    own = tuple(FileRecord(path=each.file, bytes=each.bytes, sha256=each.sha256) for each in release.built)
    return Review(release, card_of(release), own, render_plots(release), before)


def test_the_review_tells_what_stays_and_what_is_deleted(fused: Release) -> None:
    release = with_before(taken_over(fused), EarlierFile(path="older.onnx", sha256="ab" * 32, revision="c" * 40))
    paper = fused.licenses[0].model_copy(update={"file": "source/licenses/LICENSE"})
    older = fused.model_copy(update={"licenses": (*fused.licenses, paper)})
    paths = ("older.onnx", "source/config.json", "source/licenses/LICENSE", "release/plots/errors.svg", "MIT.txt")
    files = tuple(FileRecord(path=path, bytes=1, sha256="00" * 32) for path in paths)
    review = review_of(release, Published(older, "somewhere", card_of(older), card_of(older), files))
    for text in (in_one_line(render_comment(review)), in_one_line(render_review(review))):
        for path in ("older.onnx", "source/licenses/LICENSE", "MIT.txt"):
            assert re.search(rf"{path}\W[^|]*\|?.*?stays, no longer part of the release", text), path
        for path in ("source/config.json", "release/plots/errors.svg"):
            assert re.search(rf"{path}\W.{{0,100}}deleted, the history keeps it", text), path
        assert re.search(rf"{PINNED}\W.{{0,100}}frozen, untouched", text)
    request = in_one_line(render_pull_request(release)[1])
    assert "frozen, made by hand" in request and "beside `older.onnx`" in request
