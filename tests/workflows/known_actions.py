"""The actions that the workflows use: the commits that their tags stand for, and what stands for them in a test.

The commits are those of the release tags in the actions' own repositories. A workflow that names another commit, or
another version in its comment, fails.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.workflows.runner import ActionFailed, WorkflowError, copy_tree

if TYPE_CHECKING:
    from tests.sigstore_world import Sigstore
    from tests.workflows.runner import JobRun

Run = Callable[["JobRun", dict[str, Any]], "dict[str, str] | None"]


@dataclass(frozen=True)
class Action:
    """An action that is used.

    Attributes:
        version: Its release.
        commit: The commit that the release's tag stands for.
        inputs: Those that its action.yml names at that commit.
        outputs: Those that it names.
        run: What stands for it.
    """

    version: str
    commit: str
    inputs: set[str]
    outputs: set[str]
    run: Run


def checkout(job: JobRun, given: dict[str, Any]) -> None:
    """The repository of recipes, without the token that the action would otherwise leave behind."""
    if given.get("persist-credentials") is not False:
        raise WorkflowError("actions/checkout leaves the job's token in the workspace unless it is told not to")
    if job.job.permissions.get("contents") not in ("read", "write"):
        raise ActionFailed("Not Found: the job may not read the repository")
    shutil.copytree(job.github.source, job.workspace, dirs_exist_ok=True)


def setup_python(job: JobRun, given: dict[str, Any]) -> dict[str, str]:
    """The Python that there is; which version is asked for is looked at, and another one is not to be had here."""
    if not re.fullmatch(r"3\.\d+", str(given.get("python-version", ""))):
        raise WorkflowError("actions/setup-python is told a version such as 3.12, in quotes")
    job.path.insert(0, str(job.github.python / "bin"))
    return {"python-path": str(job.github.python / "bin" / "python")}


def upload_artifact(job: JobRun, given: dict[str, Any]) -> dict[str, str]:
    """A folder or a file, kept under a name that no other artifact of the run has."""
    name, source = str(given["name"]), Path(str(given["path"]))
    if re.search(r'[":<>|*?\r\n\\/]', name):
        raise ActionFailed(f"The artifact name is not valid: {name}")
    if name in job.github.artifacts:
        raise ActionFailed(f"Conflict: an artifact with this name already exists: {name}")
    kept = job.github.folder / "artifacts" / name
    copy_tree(source, kept)
    if not kept.is_dir() and given.get("if-no-files-found") == "error":
        raise ActionFailed(f"No files were found with the provided path: {source}")
    job.github.artifacts[name] = kept
    return {"artifact-id": str(len(job.github.artifacts))}


def download_artifact(job: JobRun, given: dict[str, Any]) -> dict[str, str]:
    """What was uploaded under a name."""
    kept = job.github.artifacts.get(str(given["name"]))
    if kept is None:
        raise ActionFailed(f"Artifact not found for name: {given['name']}")
    target = Path(str(given["path"]))
    # An archive holds what its maker put in, links too; what a test has put there is given on as it is.
    shutil.copytree(kept, target, symlinks=True)
    return {"download-path": str(target)}


def attest(sigstore: Sigstore) -> Run:
    """A statement about the subjects, signed with a certificate that names the workflow."""

    def run(job: JobRun, given: dict[str, Any]) -> dict[str, str]:
        rights = job.job.permissions
        if rights.get("id-token") != "write" or rights.get("attestations") != "write":
            raise ActionFailed("Failed to get ID token: the job needs id-token: write and attestations: write")
        lines = Path(str(given["subject-checksums"])).read_text("utf-8").splitlines()
        pairs = [line.split("  ", 1) for line in lines if line.strip()]
        if not pairs or any(not re.fullmatch("[0-9a-f]{64}", digest) for digest, _ in pairs):
            raise ActionFailed("There are no subjects")
        claims = job.claims()
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": name, "digest": {"sha256": digest}} for digest, name in pairs],
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "buildType": "https://actions.github.io/buildtypes/workflow/v1",
                    "externalParameters": {"workflow": {"ref": claims["ref"], "repository": claims["repository"]}},
                },
                "runDetails": {"builder": {"id": f"https://github.com/{claims['job_workflow_ref']}"}},
            },
        }
        identity = f"https://github.com/{claims['job_workflow_ref']}"
        bundle = sigstore.bundle(json.dumps(statement).encode(), identity=identity)
        path = job.temp / f"attestation-{secrets.token_hex(4)}.json"
        path.write_text(json.dumps(bundle))
        return {"bundle-path": str(path), "attestation-id": hashlib.sha256(path.read_bytes()).hexdigest()[:8]}

    return run


def equivalents(sigstore: Sigstore) -> dict[str, Action]:
    """All of them, by name."""
    return {
        "actions/checkout": Action(
            "v7.0.1",
            "3d3c42e5aac5ba805825da76410c181273ba90b1",
            {"repository", "ref", "token", "persist-credentials", "path", "fetch-depth"},
            {"ref", "commit"},
            checkout,
        ),
        "actions/setup-python": Action(
            "v7.0.0",
            "5fda3b95a4ea91299a34e894583c3862153e4b97",
            {"python-version", "python-version-file", "cache", "architecture", "check-latest", "pip-version"},
            {"python-version", "cache-hit", "python-path"},
            setup_python,
        ),
        "actions/upload-artifact": Action(
            "v7.0.0",
            "bbbca2ddaa5d8feaa63e36b76fdaad77386f024f",
            {"name", "path", "if-no-files-found", "retention-days", "compression-level", "overwrite", "archive"},
            {"artifact-id", "artifact-url", "artifact-digest"},
            upload_artifact,
        ),
        "actions/download-artifact": Action(
            "v8.0.1",
            "3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c",
            {"name", "artifact-ids", "path", "pattern", "merge-multiple", "digest-mismatch"},
            {"download-path"},
            download_artifact,
        ),
        "actions/attest": Action(
            "v4.2.2",
            "1e69f48acb82d1966a394da916b4c1698aa569d6",
            {"subject-path", "subject-digest", "subject-name", "subject-checksums", "predicate-type", "show-summary"},
            {"bundle-path", "attestation-id", "attestation-url", "storage-record-ids"},
            attest(sigstore),
        ),
    }
