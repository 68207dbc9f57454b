"""Pins: derived from the record, found in any manifest, checked as nobody in particular, moved byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hub_cases import QUICK, Case, sha256, watched
from hub_here import Here
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.errors import HubError, RecipeError, VerificationError
from bot.hub.client import Hub
from bot.hub.pin_checks import Bump, Consumer, PinCheck, require
from bot.hub.pin_manifest import read_manifest
from bot.hub.pin_signatures import parse_runtime, signature_changes
from bot.hub.pins import fact_lines, pins_comment, post_pins, show
from bot.records import Measurement, TensorSignature, Verdict

SMALL, LARGE = b"small model", b"large model " * 100_000
KINDS = pytest.mark.parametrize("name", ["model.onnx", "model.txt"], ids=["large file", "in git itself"])


def case(here: Here, seed: str, data: bytes = b"", name: str = "model.onnx", **signature: Any) -> Case:
    """A release of one file with this content and these changes to its signature."""
    return altered(here.case(seed, models={name: data or f"model {seed}".encode() * 1000}), **signature)


def altered(made: Case, *, file: str = "", verdicts: tuple[Verdict, ...] = (), **signature: Any) -> Case:
    (artifact,) = made.release.artifacts
    changed = artifact.model_copy(update={"signature": artifact.signature.model_copy(update=signature)})
    if file:
        (made.folder / artifact.file).rename(made.folder / file)
        changed = changed.model_copy(update={"file": file})
    made.release = made.release.model_copy(update={"artifacts": (changed,), "verdicts": verdicts})
    (made.folder / "release.json").write_bytes(made.release.to_json())
    return made


def verdict(status: str, provider: str, artifact: str = "model.onnx") -> Verdict:
    return Verdict(artifact=artifact, rule="x", comparison="holds", status=status, provider=provider, required=False)


def released(here: Here, *cases: Case) -> list[str]:
    """Commits releases one after the other and returns their commits."""
    return [here.publish(each, "commit").commit for each in cases]


def pin(here: Here, revision: str = "main") -> dict[str, Any]:
    return show(here.hub(), here.target, revision).artifacts[0].pins[0].to_plain()


def written(here: Here, content: Any, name: str = "pins.json") -> Path:
    path = here.folder / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content, indent=2).encode())
    return path


def checked(here: Here, content: Any, **options: Any) -> list[PinCheck]:
    return Consumer(here.hub(None), **options).check(read_manifest(written(here, content)))


def bumped(here: Here, content: Any, **options: Any) -> tuple[Bump, ...]:
    """Bumps the manifest, writes it, and returns what became of each pin."""
    manifest = read_manifest(written(here, content))
    bumps, changes = Consumer(here.hub(None), **options).bump(manifest)
    manifest.write(changes)
    return tuple(bumps)


# -- show --------------------------------------------------------------------------------------------------------------


def test_a_pin_is_exactly_what_a_consumer_writes_down(here: Here) -> None:
    (commit,) = released(here, case(here, "1", LARGE))
    shown = show(here.hub(), here.target)
    assert json.loads(shown.artifacts[0].block()) == {
        "repo": here.target,
        "revision": commit,
        "file": "model.onnx",
        "sha256": sha256(LARGE),
    }
    assert shown.warnings == () and shown.revision == commit
    lines = fact_lines(shown.artifacts[0])
    assert f"{len(LARGE):,} bytes" in lines and "input x: float32 [n, 4]" in lines and "opsets: ai.onnx 18" in lines


def test_not_on_names_providers_on_which_a_gate_failed_and_no_others(here: Here) -> None:
    verdicts = (
        verdict("failed", "directml"),
        verdict("failed", "cuda"),
        verdict("failed", "cuda"),
        verdict("passed", "cpu"),
        verdict("not measured", "rocm"),
        verdict("failed", "fp16-emulation"),
        verdict("failed", ""),
        verdict("failed", "coreml", artifact="another"),
    )
    made = altered(here.case(), verdicts=verdicts)
    figure = Measurement(subject="age", metric="mean", value=0, artifact="model.onnx", provider="cpu", method="m")
    emulated = figure.model_copy(update={"provider": "fp16-emulation"})
    made.release = made.release.model_copy(update={"measurements": (figure, emulated)})
    (made.folder / "release.json").write_bytes(made.release.to_json())
    released(here, made)
    (shown,) = show(here.hub(), here.target).artifacts
    assert shown.not_on == ("cuda", "directml") and shown.measured_on == ("cpu",)
    assert pin(here)["not_on"] == ["cuda", "directml"]


def test_weights_beside_the_graph_are_pinned_after_it(here: Here) -> None:
    made = altered(here.case(models={"onnx/model.onnx": SMALL}), external_files=("model.onnx_data",))
    (made.folder / "onnx" / "model.onnx_data").write_bytes(LARGE)
    (commit,) = released(here, made)
    block = json.loads(show(here.hub(), here.target).artifacts[0].block())
    assert [(each["file"], each["sha256"]) for each in block] == [
        ("onnx/model.onnx", sha256(SMALL)),
        ("onnx/model.onnx_data", sha256(LARGE)),
    ]
    assert {each["revision"] for each in block} == {commit}
    with pytest.raises(VerificationError, match="recorded nowhere"):
        pins_comment(made.release, commit)


def test_an_open_pull_request_is_shown_with_a_warning_and_a_merged_one_by_its_merge(here: Here) -> None:
    done = here.publish(here.case())
    before = show(here.hub(), here.target, "refs/pr/1")
    assert before.revision == done.commit and "not merged" in before.warnings[0]
    here.api().merge_pull_request(here.target, 1)
    after = show(here.hub(), here.target, "refs/pr/1")
    assert after.revision == here.hub().conversation(here.target, 1).merge_commit and after.warnings == ()
    assert after.revision in {commit.commit_id for commit in here.api().list_repo_commits(here.target)}


def test_a_commit_that_is_not_on_the_main_branch_is_shown_with_a_warning(here: Here) -> None:
    done = here.publish(here.case())
    assert "was not found" in show(here.hub(), here.target, done.commit).warnings[0]


def test_a_private_repository_is_shown_with_a_warning(here: Here) -> None:
    released(here, here.case())
    here.api().update_repo_settings(here.target, visibility="private")
    assert "private" in show(here.hub(), here.target).warnings[0]


def test_a_repository_without_a_release_has_no_pins(here: Here) -> None:
    here.hand_made({"note.txt": b"mine"})
    with pytest.raises(VerificationError, match=r"holds no release\.json") as caught:
        show(here.hub(), here.target)
    assert caught.value.exit_code == 8
    with pytest.raises(HubError, match="no such repository"):
        show(here.hub(), "nobody/nothing")


# -- check -------------------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("download", [False, True])
def test_a_pin_that_holds(here: Here, name: str, download: bool) -> None:
    released(here, case(here, "1", SMALL, name))
    (check,) = checked(here, {"a": {"b": [1, pin(here)]}}, download=download)
    assert (check.status, check.newest, check.found) == ("ok", True, sha256(SMALL))
    assert check.method == ("hub" if name == "model.onnx" and not download else "download")
    require(Path("x"), [check])


@KINDS
def test_another_hash_is_found_with_file_line_and_key(here: Here, name: str) -> None:
    released(here, case(here, "1", SMALL, name))
    wrong = {**pin(here), "sha256": "0" * 64}
    checks = checked(here, {"models": {"face": [wrong]}})
    with pytest.raises(VerificationError) as caught:
        require(here.folder / "pins.json", checks)
    text = (here.folder / "pins.json").read_text().splitlines()
    line = next(number for number, each in enumerate(text, 1) if "sha256" in each)
    assert caught.value.exit_code == 8 and caught.value.where.endswith(f"pins.json:{line}: models.face[0].sha256")
    assert sha256(SMALL) in caught.value.what


def test_corrupt_bytes_under_a_right_promise_are_found_by_downloading(here: Here) -> None:
    released(here, case(here, "1", LARGE))
    content = pin(here)
    here.server.fault("corrupt", f"/{here.target}/resolve/*/model.onnx", "GET", times=0)
    assert checked(here, content)[0].status == "ok"
    assert checked(here, content, download=True)[0].status == "different"


@pytest.mark.parametrize("change", [{"revision": "1" * 40}, {"file": "gone.onnx"}, {"repo": "nobody/nothing"}])
def test_a_pin_that_does_not_resolve(here: Here, change: dict[str, str]) -> None:
    released(here, here.case())
    checks = checked(here, {**pin(here), **change})
    assert checks[0].status == "unresolved"
    with pytest.raises(VerificationError, match="does not resolve"):
        require(Path("x"), checks)


def test_what_only_a_token_opens_does_not_resolve(here: Here) -> None:
    released(here, here.case())
    content = pin(here)
    here.api().update_repo_settings(here.target, visibility="private")
    assert checked(here, content)[0].status == "unresolved"
    with pytest.raises(RecipeError):
        Consumer(here.hub())


def test_a_hub_that_gives_no_answer_is_no_broken_pin(here: Here) -> None:
    released(here, here.case())
    content = pin(here)
    here.server.fault("status", f"/{here.target}/resolve/*", status=500, times=0)
    with pytest.raises(HubError) as caught:
        checked(here, content)
    assert caught.value.exit_code == 7


def test_no_request_carries_a_token(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    from bot.hub.session import Client

    released(here, case(here, "1"), case(here, "2"))
    content = pin(here)
    monkeypatch.setenv("HF_TOKEN", here.server.token)
    sent: list[str | None] = []
    send = Client.send

    def remember(self: Any, request: Any, **options: Any) -> Any:
        sent.append(request.headers.get("authorization"))
        return send(self, request, **options)

    monkeypatch.setattr(Client, "send", remember)
    checked(here, content, download=True)
    bumped(here, content)
    assert len(sent) > 5 and set(sent) == {None}


def test_what_changed_since_is_told(here: Here) -> None:
    first, second = released(
        here,
        case(here, "1"),
        case(here, "2", opsets={"ai.onnx": 20, "com.microsoft": 1}, minimum_runtime="1.22"),
    )
    (check,) = checked(here, pin(here, first))
    assert check.status == "ok" and check.newest is False
    assert check.newest_pin is not None and check.newest_pin.revision == second
    assert set(check.changes) == {
        "opset ai.onnx is 20 where it was 18",
        "opset com.microsoft is 1 where it was not used",
        "the oldest ONNX Runtime is 1.22 where it was 1.17",
    }


def test_a_file_that_was_there_before_the_bot_is_told_by_its_name(here: Here) -> None:
    commit = here.hand_made({"model.onnx": LARGE}).oid
    made = here.case(models={"model.onnx": LARGE}, frozen=("model.onnx",))
    here.hand_made({path.relative_to(made.folder).as_posix(): path.read_bytes() for path in made.folder.rglob("*.*")})
    content = {"repo": here.target, "revision": commit, "file": "model.onnx", "sha256": sha256(LARGE)}
    (check,) = checked(here, content)
    assert check.status == "ok" and check.newest is True
    (bump,) = bumped(here, content)
    assert bump.outcome == "current"


def test_a_revision_that_moves_is_named(here: Here) -> None:
    released(here, here.case())
    (check,) = checked(here, {**pin(here), "revision": "main"})
    assert check.status == "ok" and "is no commit" in check.notes[0]


def test_a_provider_that_failed_since_is_named(here: Here) -> None:
    first, _ = released(here, case(here, "1"), altered(case(here, "2"), verdicts=(verdict("failed", "directml"),)))
    content = pin(here, first)
    assert any("directml" in note for note in checked(here, content)[0].notes)
    (bump,) = bumped(here, content)
    assert bump.outcome == "kept" and "directml" in bump.reason
    (bump,) = bumped(here, {**content, "not_on": ["directml"]})
    assert bump.outcome == "bumped"


# -- manifests ---------------------------------------------------------------------------------------------------------


PIN = {"repo": "a/b", "revision": "1" * 40, "file": "m.onnx", "sha256": "2" * 64}


def test_pins_are_found_wherever_they_stand(here: Here) -> None:
    other = {**PIN, "file": "weights.bin"}
    content = {"models": {"x": {"onnx": [PIN, other], "n": 1.5e3}}, "list": [[PIN], None, True, [PIN, PIN]], "s": "{}"}
    found = read_manifest(written(here, content))
    assert [each.key for each in found.pins] == [
        "models.x.onnx[0]",
        "models.x.onnx[1]",
        "list[0][0]",
        "list[3][0]",
        "list[3][1]",
    ]
    assert [len(group) for group in found.groups()] == [2, 1, 1, 1]
    lines = written(here, content).read_text().splitlines()
    for each in found.pins:
        for name in ("repo", "revision", "file", "sha256"):
            assert f'"{name}"' in lines[each.lines[name] - 1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{\n"a": 1,\n}', ("pins.json:3", "not JSON")),
        (b'{"a":\n "\xff"}', ("pins.json:2", "UTF-8")),
        (b'{"a": []}', ("holds no pin", "bot pins show")),
        (b"[" * 5000 + b"]" * 5000, ("nested too deeply",)),
        (b"", ("not JSON",)),
        ({"a": {**PIN, "sha256": "xyz"}}, ("pins.json:6: a.sha256", "64 hexadecimal digits")),
        ({"a": {**PIN, "repo": "https://x/y/z"}}, ("pins.json:3: a.repo", "OWNER/NAME")),
        ({"a": {**PIN, "revision": 7}}, ("pins.json:4: a.revision", "string")),
        ({"a": {**PIN, "not_on": "cuda"}}, ("a.not_on", "list of providers")),
        (json.dumps(PIN).replace('"file"', '"repo": "c/d", "file"').encode(), ("repo", "twice")),
        ({"a": {name: PIN[name] for name in ("repo", "revision", "file")}}, ("holds no pin", "no sha256")),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused_with_its_place(
    here: Here, content: Any, words: tuple[str, ...]
) -> None:
    with pytest.raises(RecipeError) as caught:
        read_manifest(written(here, content))
    assert caught.value.exit_code == 2 and all(word in str(caught.value) for word in words), str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"none\.json.*cannot be read"):
        read_manifest(tmp_path / "none.json")


def test_an_incomplete_pin_beside_a_whole_one_is_named(here: Here) -> None:
    found = read_manifest(written(here, [PIN, {name: PIN[name] for name in ("repo", "revision", "sha256")}]))
    assert len(found.pins) == 1 and "no file" in found.incomplete[0] and "[1]" in found.incomplete[0]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    around=st.lists(plain, max_size=4),
    indent=st.sampled_from([None, 0, 2, "\t"]),
    ascii_only=st.booleans(),
    end=st.sampled_from(["", "\n", "\r\n", " \n\n"]),
    mark=st.booleans(),
    name=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1),
)
def test_only_the_strings_that_change_are_rewritten(
    tmp_path_factory: pytest.TempPathFactory,
    around: list[Any],
    indent: Any,
    ascii_only: bool,
    end: str,
    mark: bool,
    name: str,
) -> None:
    path = tmp_path_factory.mktemp("manifest") / "pins.json"
    document = [*around, {"more": around, "pin": {**PIN, "file": "OLD", "extra": around}}]

    def text(file: str) -> bytes:
        body = json.dumps(document, indent=indent, ensure_ascii=ascii_only).replace(json.dumps("OLD"), file)
        return ("\ufeff" * mark + body.replace("\n", "\r\n") + end).encode("utf-8", "surrogatepass")

    try:
        text("").decode()
    except UnicodeDecodeError:
        return  # a lone surrogate is no UTF-8
    path.write_bytes(text(json.dumps("OLD")))
    manifest = read_manifest(path)
    place = manifest.pins[-1].fields["file"]
    manifest.write({place: name})
    assert path.read_bytes() in (text(json.dumps(name)), text(json.dumps(name, ensure_ascii=False)))
    assert read_manifest(path).pins[-1].pin.file == name


# -- bump --------------------------------------------------------------------------------------------------------------


def test_a_pin_moves_to_the_newest_and_every_other_byte_stays(here: Here) -> None:
    first, second = released(here, case(here, "1"), case(here, "2", minimum_runtime="1.20"))
    old, new = pin(here, first), pin(here, second)
    template = (
        '\ufeff{ "sha256" : "%s",\r\n\t"note": "caf\u00e9 %s", "file":"model.onnx","x":[ 1,2 ],'
        '"revision": "%s",  "repo":"%s"}\r\n\r\n'
    )
    fill = (here.target,)
    before = (template % (old["sha256"], old["sha256"], old["revision"], *fill)).encode()
    after = (template % (new["sha256"], old["sha256"], new["revision"], *fill)).encode()
    path = written(here, before)
    path.chmod(0o664)
    link = here.folder / "link.json"
    link.symlink_to(path)
    manifest = read_manifest(link)
    bumps, changes = Consumer(here.hub(None)).bump(manifest)
    assert path.read_bytes() == before
    manifest.write(changes)
    assert path.read_bytes() == after and path.stat().st_mode & 0o777 == 0o664 and link.is_symlink()
    assert bumps[0].outcome == "bumped" and bumps[0].notes == ("the oldest ONNX Runtime is 1.20 where it was 1.17",)
    assert [each.status for each in checked(here, path.read_bytes())] == ["ok"]
    assert bumped(here, path.read_bytes())[0].outcome == "current" and path.read_bytes() == after


def test_a_file_that_changed_in_the_meantime_is_left_alone(here: Here) -> None:
    path = written(here, PIN)
    manifest = read_manifest(path)
    path.write_bytes(b"{}")
    with pytest.raises(RecipeError, match="in the meantime"):
        manifest.write({manifest.pins[0].fields["file"]: "x"})
    assert path.read_bytes() == b"{}"


def test_a_renamed_file_is_known_by_its_artifact(here: Here) -> None:
    first, _ = released(here, case(here, "1"), altered(case(here, "2"), file="model-2.onnx"))
    content = pin(here, first)
    assert checked(here, content)[0].changes == ("model.onnx is now model-2.onnx",)
    (bump,) = bumped(here, content)
    assert bump.outcome == "bumped" and json.loads((here.folder / "pins.json").read_text())["file"] == "model-2.onnx"
    assert checked(here, (here.folder / "pins.json").read_bytes())[0].newest is True


X2 = TensorSignature(name="x", dtype="float16", shape=("n", 4))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"inputs": (X2,)}, "input x is float16 where it was float32"),
        ({"outputs": (X2.model_copy(update={"name": "y"}),)}, "output x is gone"),
        ({"minimum_runtime": "1.23"}, "needs ONNX Runtime 1.23, and the consumer has 1.22"),
        ({"minimum_runtime": "unknown"}, "not known which ONNX Runtime"),
    ],
)
def test_an_incompatible_release_is_passed_over_with_the_reason(here: Here, change: dict[str, Any], why: str) -> None:
    first, second, _ = released(here, case(here, "1"), case(here, "2"), case(here, "3", **change))
    (bump,) = bumped(here, pin(here, first), runtime=(1, 22))
    assert bump.outcome == "bumped" and bump.pins[0].revision == second and why in bump.notes[-1]
    (bump,) = bumped(here, pin(here, second), runtime=(1, 22))
    assert bump.outcome == "kept" and why in bump.reason
    assert json.loads((here.folder / "pins.json").read_text())["revision"] == second


def test_a_pin_is_never_moved_back(here: Here) -> None:
    released(here, case(here, "1"))
    done = here.publish(case(here, "2"))
    (bump,) = bumped(here, pin(here, done.commit))
    assert bump.outcome == "kept" and "nobody knows what is newer" in bump.reason


def test_a_release_whose_file_is_not_what_it_says_is_passed_over(here: Here) -> None:
    first, _ = released(here, case(here, "1"), case(here, "2"))
    content = pin(here, first)
    here.hand_made({"model.onnx": b"tampered"})
    (bump,) = bumped(here, content)
    assert bump.outcome == "kept" and sha256(b"tampered") in bump.reason


def test_a_pin_without_a_record_is_not_moved(here: Here) -> None:
    commit = here.hand_made({"model.onnx": b"by hand"}).oid
    made = here.case()
    here.hand_made({path.relative_to(made.folder).as_posix(): path.read_bytes() for path in made.folder.rglob("*.*")})
    content = {"repo": here.target, "revision": commit, "file": "model.onnx", "sha256": sha256(b"by hand")}
    (bump,) = bumped(here, content)
    assert bump.outcome == "kept" and "no record" in bump.reason


def test_a_graph_and_its_weights_move_together(here: Here) -> None:
    def made(seed: str) -> Case:
        built = altered(here.case(seed, models={"m.onnx": f"graph {seed}".encode()}), external_files=("m.bin",))
        (built.folder / "m.bin").write_bytes(f"weights {seed}".encode())
        return built

    first, second = released(here, made("1"), made("2"))
    block = json.loads(show(here.hub(), here.target, first).artifacts[0].block())
    (bump,) = bumped(here, {"m": block})
    assert bump.outcome == "bumped"
    found = json.loads((here.folder / "pins.json").read_text())["m"]
    assert found == json.loads(show(here.hub(), here.target, second).artifacts[0].block())
    (bump,) = bumped(here, {"m": block[:1]})
    assert bump.outcome == "kept"


# -- signatures --------------------------------------------------------------------------------------------------------


tensors = st.lists(
    st.builds(
        TensorSignature,
        name=st.sampled_from("abc"),
        dtype=st.sampled_from(["float32", "float16"]),
        shape=st.none() | st.lists(st.sampled_from([1, 2, "n", "m", None]), max_size=2).map(tuple),
    ),
    unique_by=lambda tensor: tensor.name,
    max_size=3,
).map(tuple)


@settings(deadline=None)
@given(old=tensors, new=tensors)
def test_signatures_are_compatible_exactly_if_they_differ_in_names_of_axes_only(old: Any, new: Any) -> None:
    from hub_cases import artifact

    base = artifact("m", "m.onnx", b"").signature

    def skeleton(side: Any) -> Any:
        return [
            (each.name, each.dtype, each.shape and [size if isinstance(size, int) else "*" for size in each.shape])
            for each in side
        ]

    changes = signature_changes(base.model_copy(update={"inputs": old}), base.model_copy(update={"inputs": new}))
    assert any(change.breaks for change in changes) == (skeleton(old) != skeleton(new))
    assert bool(changes) == (old != new)


@pytest.mark.parametrize("text", ["onnxruntime==1.22", "1.22", "onnxruntime-gpu>=1.22.1", " onnxruntime == 1.22 "])
def test_a_runtime_is_read(text: str) -> None:
    assert parse_runtime(text) == (1, 22)


@pytest.mark.parametrize("text", ["", "onnxruntime", "1", "torch==2.0"])
def test_a_runtime_without_a_version_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="names no version"):
        parse_runtime(text)


# -- the comment -------------------------------------------------------------------------------------------------------


def comments(here: Here, number: int = 1) -> list[str]:
    events = here.api().get_discussion_details(here.target, number).events
    return [event.content for event in events if event.type == "comment"]


@pytest.fixture
def merged(here: Here) -> Here:
    here.publish(here.case())
    here.api().merge_pull_request(here.target, 1)
    return here


def test_the_pins_of_a_merged_release_are_posted_once(merged: Here) -> None:
    hub = merged.hub()
    before = comments(merged)
    assert post_pins(hub, merged.target, 1) is True
    assert post_pins(hub, merged.target, 1) is False
    (text,) = comments(merged)[len(before) :]
    block = json.loads(text.split("```json\n")[1].split("```")[0])
    assert block == pin(merged) and hub.conversation(merged.target, 1).merge_commit == block["revision"]
    assert checked(merged, block)[0].status == "ok"


@pytest.mark.parametrize("status", ["open", "closed"])
def test_nothing_is_posted_before_the_merge(here: Here, status: str) -> None:
    here.publish(here.case())
    if status == "closed":
        here.api().change_discussion_status(here.target, 1, "closed")
    before = comments(here)
    assert post_pins(here.hub(), here.target, 1) is False and comments(here) == before


def test_a_file_that_was_changed_before_the_merge_gets_no_pin(here: Here) -> None:
    """It is as it was in the pull request, so git sees no conflict and merges."""
    models = {"model.onnx": b"same"}
    here.publish(here.case("1", models=models), "commit")
    here.publish(here.case("2", models=models))
    here.hand_made({"model.onnx": b"by hand"}, "alice")
    here.api().merge_pull_request(here.target, 1)
    before = comments(here)
    with pytest.raises(VerificationError, match=r"model\.onnx: has the sha256 [0-9a-f]{64}, .* it gets no pin"):
        post_pins(here.hub(), here.target, 1)
    assert comments(here) == before


def test_nothing_is_posted_on_the_pull_request_of_another_account(merged: Here) -> None:
    before = comments(merged)
    assert post_pins(merged.hub("alice"), merged.target, 1) is False and comments(merged) == before


def test_a_copy_of_the_mark_by_another_account_counts_for_nothing(merged: Here) -> None:
    text = pins_comment(show(merged.hub(), merged.target).release, "0" * 40)
    merged.api("alice").comment_discussion(merged.target, 1, comment=text)
    assert post_pins(merged.hub(), merged.target, 1) is True


def test_a_comment_whose_answer_was_lost_is_not_sent_again(merged: Here) -> None:
    before = len(comments(merged))
    merged.server.fault("lost", f"*/{merged.target}/discussions/1/comment", "POST")
    assert post_pins(merged.hub(), merged.target, 1) is True
    assert any(fault["struck"] for fault in merged.server.faults())
    assert len(comments(merged)) == before + 1


def test_a_comment_that_did_not_arrive_is_an_error_and_comes_the_next_time(merged: Here) -> None:
    merged.server.fault("status", f"*/{merged.target}/discussions/1/comment", "POST", status=503)
    with pytest.raises(HubError):
        post_pins(merged.hub(), merged.target, 1)
    assert post_pins(merged.hub(), merged.target, 1) is True


def test_names_from_upstream_stay_text_in_the_comment(here: Here) -> None:
    evil = "x](http://e) @all <img> `\u202e"
    made = case(here, "1", inputs=(TensorSignature(name=evil, dtype="float32", shape=(1,)),))
    text = pins_comment(made.release, "0" * 40)
    assert "](http" not in text and " @all" not in text and "<img>" not in text and "\u202e" not in text


def test_what_checking_costs(here: Here) -> None:
    """One request for the file, two for its release, four for the newest; a second pin there costs one request."""
    released(here, case(here, "1", LARGE))
    content = pin(here)
    with watched(here.server.endpoint) as proxy:
        Consumer(Hub(proxy.endpoint, policy=QUICK)).check(read_manifest(written(here, [content, content])))
    assert proxy.writes() == [] and len(proxy.seen) == 8
    assert [path for method, path, _ in proxy.seen if method == "HEAD"] == [
        f"/{here.target}/resolve/{content['revision']}/model.onnx"
    ] * 2


def test_what_a_provider_needs_is_part_of_a_signature() -> None:
    from bot.records import Signature

    plain = Signature(inputs=(), outputs=(), opsets={"ai.onnx": 18}, ir_version=10, minimum_runtime="1.18")
    needy = plain.model_copy(update={"minimum_runtime_on": {"cuda": "1.27"}, "not_on": ("cpu",)})
    later, gone = signature_changes(plain, needy)
    assert later.text == "on cuda its kernels compute rightly from ONNX Runtime 1.27 on, where it was 1.18"
    assert not later.breaks
    assert gone.text == "it has no kernels on cpu any more"
    assert gone.breaks
    (back,) = signature_changes(needy, plain)
    assert "from ONNX Runtime 1.18 on, where it was 1.27" in back.text
