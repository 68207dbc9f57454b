"""Provenance: the statement says what the record says, and a signature over it is checked without a network."""

from __future__ import annotations

import base64
import copy
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot.canonical import canonical_json, digest, file_sha256
from bot.errors import RecipeError, VerificationError
from bot.provenance.bundle import verify_bundle
from bot.provenance.statement import PATH, read, statement, why_not_of
from bot.records import FileRecord, Release, Source
from tests.card.releases import age_and_gender_release, seed_release, withheld_release
from tests.sigstore_world import IDENTITY, ISSUER, Sigstore, b64
from tests.world import TARGET, World, make_world

FILES = {"recipe.py": "ab" * 32, "card.md.j2": "cd" * 32}


def plain(release: Release) -> dict[str, Any]:
    return dict(json.loads(statement(release, FILES)))


# -- the statement -----------------------------------------------------------------------------------------------------


def test_the_statement_has_the_fields_of_in_toto_and_slsa() -> None:
    made = plain(seed_release())
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"
    assert made["predicate"].keys() == {"buildDefinition", "runDetails"}
    definition = made["predicate"]["buildDefinition"]
    assert definition.keys() == {"buildType", "externalParameters", "internalParameters", "resolvedDependencies"}
    assert made["predicate"]["runDetails"]["builder"]["version"] == {"hub-publishing-bot": "0.1.0"}


def test_the_library_of_sigstore_takes_it_for_an_in_toto_statement() -> None:
    from sigstore.dsse import Statement

    Statement(statement(seed_release(), FILES))


def test_subjects_are_the_published_artifacts_and_no_withheld_one() -> None:
    release = withheld_release()
    assert plain(release)["subject"] == [
        {"name": artifact.file, "digest": {"sha256": artifact.sha256}} for artifact in release.published
    ]
    assert "int8" in release.withheld and "faceage-int8.onnx" not in statement(release, FILES).decode()


def test_materials_are_everything_that_went_in() -> None:
    release = seed_release().model_copy(
        update={
            "samples": (
                Source(
                    repo="a/pictures",
                    repo_type="dataset",
                    commit="1" * 40,
                    files={"zip": FileRecord(path="data/a b.zip", bytes=7, sha256="2" * 64)},
                ),
            )
        }
    )
    found = plain(release)["predicate"]["buildDefinition"]["resolvedDependencies"]
    source = release.source
    by_uri = {each.get("uri", each["name"]): each["digest"] for each in found}
    assert by_uri[f"hf://{source.repo}@{source.commit}"] == {"gitCommit": source.commit}
    network = source.files["network"]
    assert by_uri[f"hf://{source.repo}@{source.commit}/{network.path}"] == {"sha256": network.sha256}
    assert by_uri[f"hf://datasets/a/pictures@{'1' * 40}/data/a%20b.zip"] == {"sha256": "2" * 64}
    assert by_uri["recipe.py"] == {"sha256": FILES["recipe.py"]} and "recipe.yaml" in by_uri


def test_a_source_that_is_on_no_hub_is_named_by_its_address() -> None:
    url = "https://models.example/m.onnx"
    source = Source(url=url, commit="3" * 64, files={"m": FileRecord(path="m.onnx", bytes=1, sha256="3" * 64)})
    made = plain(seed_release().model_copy(update={"source": source, "samples": ()}))["predicate"]["buildDefinition"]
    assert made["resolvedDependencies"][0]["uri"] == url and made["externalParameters"]["upstream"] == {"url": url}


def test_the_same_release_gives_the_same_bytes_in_every_process() -> None:
    script = (
        "import sys; from tests.card.releases import seed_release; from bot.provenance.statement import statement;"
        "sys.stdout.buffer.write(statement(seed_release(), {'b': '1', 'a': '2'}))"
    )
    root = Path(__file__).parents[1]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=True, cwd=root, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {statement(seed_release(), {"a": "2", "b": "1"})}
    (data,) = outputs
    assert canonical_json(json.loads(data)) == data


def test_new_figures_of_the_same_release_change_nothing() -> None:
    release = seed_release()
    assert statement(release, FILES) == statement(release.model_copy(update={"measurements": ()}), FILES)


@pytest.mark.parametrize("make", [seed_release, age_and_gender_release, withheld_release])
def test_a_statement_fits_its_own_release_and_no_other(make: Callable[[], Release]) -> None:
    release = make()
    own = read(statement(release, FILES))
    assert why_not_of(own, release) == ""
    assert "is about release" in why_not_of(own, release.model_copy(update={"identity": "9" * 64}))
    assert "other things" in why_not_of(own, release.model_copy(update={"runtime": "else"}))
    changed = copy.deepcopy(own)
    changed["subject"][0]["digest"]["sha256"] = "0" * 64
    assert release.published[0].file in why_not_of(changed, release)
    changed = copy.deepcopy(own)
    changed["predicate"]["buildDefinition"]["externalParameters"]["upstream"]["commit"] = "0" * 40
    assert "other things" in why_not_of(changed, release)
    del changed["predicate"]["buildDefinition"]
    assert why_not_of(changed, release)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"_type": 1}', b"[" * 100_000, b'{"_type":"x","predicateType":"y","subject":[]}']
)
def test_what_is_no_statement_is_refused(data: bytes) -> None:
    with pytest.raises(VerificationError, match="is not"):
        read(data)


# -- signatures --------------------------------------------------------------------------------------------------------


class Signed:
    """A signed release, and the files that are needed to check it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sigstore, self.release = folder, Sigstore(), seed_release()
        self.own = statement(self.release, FILES)
        self.bundle = self.sigstore.bundle(self.own)
        self.trust_root = self.write("root.json", self.sigstore.trust_root())

    def write(self, name: str, content: Any) -> Path:
        path = self.folder / name
        path.write_text(json.dumps(content))
        return path

    def verify(self, bundle: Any = None, **options: Any) -> Any:
        path = self.write("bundle.json", self.bundle if bundle is None else bundle)
        options = {"trust_root": self.trust_root, **options}
        return verify_bundle(path, self.release, read(self.own), **options)


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signed:
    """Nothing may open a connection while a signature is checked."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    made = Signed(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return made


def test_a_bundle_that_holds_names_its_signer(signed: Signed) -> None:
    found = signed.verify()
    assert (found.identity, found.issuer) == (IDENTITY, ISSUER)
    assert signed.verify(identity=IDENTITY, issuer=ISSUER) == found
    assert signed.verify(identity=IDENTITY) == signed.verify(issuer=ISSUER) == found


@pytest.mark.parametrize("wish", [{"identity": IDENTITY + "x"}, {"issuer": "https://else"}])
def test_another_signer_than_the_wanted_one_is_refused(signed: Signed, wish: dict[str, str]) -> None:
    with pytest.raises(VerificationError, match="does not hold") as caught:
        signed.verify(**wish)
    assert caught.value.exit_code == 8
    with pytest.raises(VerificationError):
        signed.verify(**{"identity": IDENTITY, "issuer": ISSUER, **wish})


def test_another_root_is_not_trusted(signed: Signed) -> None:
    other = signed.write("other.json", Sigstore().trust_root())
    with pytest.raises(VerificationError, match="does not hold"):
        signed.verify(trust_root=other)


def test_the_public_root_does_not_trust_what_was_made_here(signed: Signed) -> None:
    with pytest.raises(VerificationError, match="does not hold"):
        signed.verify(trust_root=None)


@pytest.mark.parametrize("part", ["authority", "certificates", "log"])
def test_each_key_of_the_root_counts(signed: Signed, part: str) -> None:
    """A bundle of an instance that shares all but one key with the trusted one."""
    trusted = signed.sigstore
    keys = {name: getattr(trusted, name) for name in ("authority", "certificates", "log") if name != part}
    with pytest.raises(VerificationError, match="does not hold"):
        signed.verify(Sigstore(**keys).bundle(signed.own))
    again = Sigstore(trusted.authority, trusted.certificates, trusted.log)
    again.root = trusted.root
    assert signed.verify(again.bundle(signed.own)).identity == IDENTITY


def flipped(text: str) -> str:
    data = bytearray(base64.b64decode(text))
    data[len(data) // 2] ^= 1
    return b64(bytes(data))


@pytest.mark.parametrize(
    "path",
    [
        ("dsseEnvelope", "payload"),
        ("dsseEnvelope", "signatures", 0, "sig"),
        ("verificationMaterial", "certificate", "rawBytes"),
        ("verificationMaterial", "tlogEntries", 0, "canonicalizedBody"),
        ("verificationMaterial", "tlogEntries", 0, "inclusionPromise", "signedEntryTimestamp"),
        ("verificationMaterial", "tlogEntries", 0, "inclusionProof", "rootHash"),
    ],
)
def test_one_bit_anywhere_is_found(signed: Signed, path: tuple[Any, ...]) -> None:
    bundle = copy.deepcopy(signed.bundle)
    node = bundle
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = flipped(node[path[-1]])
    with pytest.raises(VerificationError):
        signed.verify(bundle)


def test_a_payload_of_another_type_is_refused(signed: Signed) -> None:
    with pytest.raises(VerificationError, match="no statement"):
        signed.verify(signed.sigstore.bundle(signed.own, payload_type="text/plain"))


def test_a_signed_statement_about_other_artifacts_is_refused(signed: Signed) -> None:
    other = statement(age_and_gender_release(), FILES)
    with pytest.raises(VerificationError, match=r"says nothing about faceage-dino-fp16\.onnx"):
        signed.verify(signed.sigstore.bundle(other))


def test_a_signed_statement_of_the_bot_that_says_other_things_is_refused(signed: Signed) -> None:
    other = statement(signed.release, {**FILES, "recipe.py": "00" * 32})
    with pytest.raises(VerificationError, match="other things"):
        signed.verify(signed.sigstore.bundle(other))


def test_a_signed_statement_of_another_builder_counts_by_its_subjects(signed: Signed) -> None:
    """An action that describes the workflow run in its own words, with base names as subjects."""
    own = json.loads(signed.own)
    subjects = [{"name": "x/" + each["name"], "digest": each["digest"]} for each in own["subject"]]
    other = own | {"subject": subjects, "predicate": {"buildDefinition": {"buildType": "https://else"}}}
    assert signed.verify(signed.sigstore.bundle(canonical_json(other))).identity == IDENTITY


@pytest.mark.parametrize("content", [{}, [], "x", {"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json"}])
def test_what_is_no_bundle_is_refused(signed: Signed, content: Any) -> None:
    with pytest.raises(VerificationError, match="is no sigstore bundle"):
        signed.verify(content)
    root = signed.write("root.json", content)
    with pytest.raises(RecipeError, match="is no trust root"):
        signed.verify(trust_root=root)
    with pytest.raises(RecipeError, match="cannot be read"):
        signed.verify(trust_root=signed.folder / "none")


def test_without_the_library_the_extra_is_named(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sigstore.verify", None)
    with pytest.raises(RecipeError, match=r"hub-publishing-bot\[provenance\]"):
        signed.verify()


# -- the whole path ----------------------------------------------------------------------------------------------------


def test_a_published_release_carries_its_provenance(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    try:
        _publish_and_verify(world, tmp_path)
    finally:
        world.hub.stop()


def _publish_and_verify(world: World, folder: Path) -> None:
    world.write_recipe(open_as="commit")
    release = Release.model_validate(world.publish()["release"])
    data = Path(world.api.hf_hub_download(TARGET, PATH)).read_bytes()
    assert why_not_of(read(data), release) == ""
    card = world.recipes / "network" / "card.md.j2"
    assert data == statement(release, {"card.md.j2": file_sha256(card)})
    listed = json.loads(Path(world.api.hf_hub_download(TARGET, "release/files.json")).read_bytes())
    assert PATH in {each["path"] for each in listed["files"]}

    unsigned = world.bot("verify", TARGET)
    assert unsigned.returncode == 0 and "provenance: unsigned" in unsigned.stdout

    sigstore = Sigstore()
    (folder / "root.json").write_text(json.dumps(sigstore.trust_root()))
    (folder / "bundle.json").write_text(json.dumps(sigstore.bundle(data)))
    given = ("--bundle", str(folder / "bundle.json"), "--trust-root", str(folder / "root.json"))
    done = world.bot("verify", TARGET, *given, "--signer", IDENTITY, "--issuer", ISSUER, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["ok"] is True and answer["provenance"]["status"] == "signed"
    assert IDENTITY in answer["provenance"]["signer"]
    other = world.bot("verify", TARGET, *given, "--signer", "somebody@example.org", "--json")
    assert other.returncode == 8 and json.loads(other.stdout)["ok"] is False and "Traceback" not in other.stderr

    # The statement and the list of files changed together: each fits the other, and not the record.
    forged = json.loads(data)
    forged["predicate"]["buildDefinition"]["externalParameters"]["upstream"]["commit"] = "0" * 40
    content = canonical_json(forged)
    from bot.hub.bundle import ids_of_bytes

    ids = ids_of_bytes(content)
    for each in listed["files"]:
        if each["path"] == PATH:
            each.update(bytes=ids.bytes, sha256=ids.sha256, blob=ids.blob)
    # In a commit that looks like the bot's own: the list has to be the one of the release's commit.
    message = f"Publish again\n\nRelease-Id: {release.identity}\nRecipe: {release.recipe}"
    world.upload(TARGET, {PATH: content, "release/files.json": canonical_json(listed)}, message=message)
    found = world.bot("verify", TARGET)
    assert found.returncode == 8 and "is not the statement about this release" in found.stderr
    assert digest(forged) != digest(json.loads(data))
