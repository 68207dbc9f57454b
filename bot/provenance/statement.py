"""The provenance of a release as an in-toto statement with the SLSA v1 provenance predicate.

The statement says nothing that the release's record does not say; it says it in the words that supply-chain tools know.
It is a function of the record and of the digests of the recipe's files: the same release gives the same bytes. By
itself it is unsigned: whoever can write to the repository could have written it. docs/provenance.md describes its
fields.

Sources: the in-toto attestation framework (Statement v1, ResourceDescriptor v1) and SLSA v1.0 (Provenance).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bot.canonical import canonical_json, text_sha256
from bot.errors import VerificationError
from bot.records import FileRecord, Release, Source

PATH = "release/provenance.json"
"""Where the statement lies in a target repository."""

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"

BUILD_TYPE = "pkg:pypi/hub-publishing-bot?build_type=release-v1#docs/provenance.md"
"""How to read the parameters; a purl of the document that describes them."""

BUILDER = "pkg:pypi/hub-publishing-bot#docs/provenance.md"
"""Who built it: a run of this bot, on a machine that nobody vouches for unless the statement is signed."""


def statement(release: Release, recipe_files: Mapping[str, str]) -> bytes:
    """The statement about a release, as canonical JSON.

    Args:
        release: The record, which names at least one artifact that was built.
        recipe_files: sha256 of the recipe's own files by name, such as its code `recipe.py`, recipe.yaml left out.
    """
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": path, "digest": {"sha256": sha256}} for path, sha256 in _subjects(release).items()],
            "predicateType": PREDICATE_TYPE,
            "predicate": _predicate(release, recipe_files),
        }
    )


def _subjects(release: Release) -> dict[str, str]:
    """The files that were made here, by path. Nobody here saw how a file that was taken over was made."""
    files: dict[str, str] = {}
    for artifact in release.built:
        files[artifact.file] = artifact.sha256
        files |= {weights.path: weights.sha256 for weights in artifact.weights}
        files |= {artifact.sidecar.path: artifact.sidecar.sha256} if artifact.sidecar else {}
    return files


def _predicate(release: Release, recipe_files: Mapping[str, str]) -> dict[str, Any]:
    source = release.source
    upstream = {"repo": source.repo, "commit": source.commit} if source.repo else {"url": source.url}
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "recipe": release.recipe,
                "target": release.target,
                "runtime": release.runtime,
                "upstream": upstream,
            },
            "internalParameters": {
                "release": release.identity,
                "random_weights": release.random_weights,
                "artifacts": [
                    {
                        "file": artifact.file,
                        "made_from": artifact.made_from,
                        "steps": [{"name": step.name, "parameters": step.parameters} for step in artifact.steps],
                        "built_with": artifact.built_with,
                    }
                    for artifact in release.built
                ],
            },
            "resolvedDependencies": list(_dependencies(release, recipe_files)),
        },
        "runDetails": {"builder": {"id": BUILDER, "version": {"hub-publishing-bot": release.bot_version}}},
    }


def _dependencies(release: Release, recipe_files: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Everything that went in, as resource descriptors: upstream, samples, the recipe."""
    yield from _of_source(release.source, "upstream")
    for source in release.samples:
        yield from _of_source(source, "samples")
    recipe = {"recipe.yaml": text_sha256(release.recipe_text), **recipe_files}
    for name, sha256 in sorted(recipe.items()):
        yield {"name": name, "digest": {"sha256": sha256}, "annotations": {"role": "recipe"}}


def _of_source(source: Source, role: str) -> Iterator[dict[str, Any]]:
    if source.repo:
        uri, digest = _uri(source), {"gitCommit": source.commit}
        yield {"name": source.repo, "uri": uri, "digest": digest, "annotations": {"role": role}}
    files = {f"{role}:{key}": record for key, record in source.files.items()}
    files |= {f"{role}:{record.path}": record for record in (*source.copies, *source.license_texts)}
    for name, record in sorted(files.items()):
        yield {
            "name": name,
            "uri": _uri(source, record),
            "digest": {"sha256": record.sha256},
            "annotations": {"role": role, "bytes": record.bytes},
        }


def _uri(source: Source, record: FileRecord | None = None) -> str:
    """Where something of a source was read: `hf://OWNER/NAME@COMMIT/PATH`, or the address of what is on no Hub."""
    from urllib.parse import quote

    if not source.repo:
        return source.url
    kind = "datasets/" if source.repo_type == "dataset" else ""
    path = f"/{quote(record.path)}" if record else ""
    return f"hf://{kind}{source.repo}@{source.commit}{path}"


def read(data: bytes, *, where: str = "") -> dict[str, Any]:
    """Reads a statement of this kind.

    Raises:
        VerificationError: It is none.
    """
    try:
        plain = json.loads(data)
        known = plain["_type"] == STATEMENT_TYPE and plain["predicateType"] == PREDICATE_TYPE
        subjects = {str(each["name"]): str(each["digest"]["sha256"]) for each in plain["subject"]}
        known = known and bool(subjects) and isinstance(plain["predicate"], dict)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise VerificationError("is not an in-toto statement with sha256 digests.", where=where) from error
    if not known:
        raise VerificationError(f"is not a statement with the predicate {PREDICATE_TYPE}.", where=where)
    return dict(plain)


def why_not_of(plain: Mapping[str, Any], release: Release) -> str:
    """Why the bot's own statement is not the one about a release; empty if it is."""
    subjects = {each["name"]: each["digest"]["sha256"] for each in plain["subject"]}
    expected = _subjects(release)
    if subjects != expected:
        other = sorted(set(subjects.items()) ^ set(expected.items()))
        return f"its subjects are not the artifacts of the release: {other[0][0]}"
    try:
        parameters = plain["predicate"]["buildDefinition"]["internalParameters"]
        identity = parameters["release"]
    except (KeyError, TypeError):
        return "it does not say which release it is about"
    if identity != release.identity:
        return f"it is about release {identity}"
    recipe = dict(_recipe_digests(plain))
    if plain["predicate"] != _predicate(release, recipe):
        return "it says other things than the record of the release"
    return ""


def _recipe_digests(plain: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The digests of the recipe's files as the statement has them; only recipe.yaml's is in the record as well."""
    for each in plain["predicate"]["buildDefinition"].get("resolvedDependencies", ()):
        if each.get("annotations") == {"role": "recipe"} and each.get("name") != "recipe.yaml":
            yield str(each.get("name")), str(each.get("digest", {}).get("sha256"))
