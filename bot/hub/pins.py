"""Pins: what a consumer writes down to get exactly one file of a release, for ever.

A pin names a repository, a commit, a file and the sha256 of its content, and nothing of it is typed by a person: all is
derived from the release's own record (`release.json`) at that commit. Where a provider failed a gate, the pin says that
the file must not be used on it (`not_on`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from bot.errors import VerificationError
from bot.hub.bundle import MANIFEST, Manifest, ids_of_bytes, paths_of
from bot.hub.client import Conversation, Doubtful, Hub
from bot.hub.target import HISTORY, MAIN, account_of, manifest_at
from bot.records import Artifact, Release, TensorSignature

MARK = "hub-publishing-bot pins"
"""What the comment with a release's pins is found again by, together with the release's identity."""

NO_PROVIDERS = frozenset({"", "reference", "fp16-emulation"})
"""What stands in the place of a provider where a figure was not taken on one that a consumer can choose."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_PULL_REQUEST = re.compile(r"refs/pr/([0-9]+)")


@dataclass(frozen=True)
class Pin:
    """One file, pinned: exactly the fields that a consumer writes down."""

    repo: str
    revision: str
    file: str
    sha256: str
    not_on: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """The pin in the consumer's format; `not_on` only where there is something to say."""
        plain: dict[str, Any] = {
            "repo": self.repo,
            "revision": self.revision,
            "file": self.file,
            "sha256": self.sha256,
        }
        return plain | ({"not_on": list(self.not_on)} if self.not_on else {})


@dataclass(frozen=True)
class PinnedArtifact:
    """A published artifact with its pins.

    Attributes:
        artifact: Its record.
        pins: The graph first, then the files beside it that hold its weights, then its sidecar.
        measured_on: Providers that it was measured on.
        not_on: Providers on which it failed a gate.
    """

    artifact: Artifact
    pins: tuple[Pin, ...]
    measured_on: tuple[str, ...]
    not_on: tuple[str, ...]

    def block(self) -> str:
        """What a consumer pastes: one JSON object, or a list of them if the weights lie in files of their own."""
        plain = [pin.to_plain() for pin in self.pins]
        return json.dumps(plain[0] if len(plain) == 1 else plain, indent=2, ensure_ascii=False)


@dataclass(frozen=True)
class Shown:
    """The pins of one revision.

    Attributes:
        repo: The repository.
        release: The release there.
        revision: The commit.
        artifacts: Every published artifact with its pins.
        warnings: Why a consumer might not want to pin this, as sentences.
    """

    repo: str
    release: Release
    revision: str
    artifacts: tuple[PinnedArtifact, ...]
    warnings: tuple[str, ...] = ()


def show(hub: Hub, repo: str, revision: str | None = None) -> Shown:
    """Derives the pins of a release from what the Hub holds.

    Args:
        hub: Where it is.
        repo: `owner/name`.
        revision: A branch, tag, commit or `refs/pr/N`; None for the main branch. A pull request that was merged stands
            for the commit of the merge.

    Raises:
        NotFound: There is no such repository or revision.
        VerificationError: It holds no release, or a record that cannot be read.
    """
    commit, warnings = _commit_to_pin(hub, repo, revision)
    release, manifest = release_at(hub, repo, commit)
    if release.target != repo:
        warnings.append(f"The record says that it was made for {release.target}: this repository is a copy.")
    return Shown(repo, release, commit, pins_of(release, commit, manifest, repo=repo), tuple(warnings))


def _commit_to_pin(hub: Hub, repo: str, revision: str | None) -> tuple[str, list[str]]:
    """The commit that a revision stands for, and why a consumer might not want to pin it."""
    warnings = []
    number = _PULL_REQUEST.fullmatch(revision or "")
    merged = ""
    if number:
        conversation = hub.conversation(repo, int(number[1]))
        if conversation.pull_request.status == "merged":
            merged = conversation.merge_commit
    head = hub.head(repo, merged or revision)
    if head.private or head.gated:
        kind = "private" if head.private else "gated"
        warnings.append(f"{repo} is {kind}: a consumer without a token cannot get its files.")
    if number and not merged:
        warnings.append(
            f"{revision} is not merged: its commit may never become part of {MAIN}. Pin it after the merge."
        )
    elif revision and not merged and not _is_in_main(hub, repo, head.sha):
        warnings.append(f"{head.sha[:12]} was not found among the last {HISTORY} commits of {MAIN}.")
    return head.sha, warnings


def _is_in_main(hub: Hub, repo: str, commit: str) -> bool:
    return any(each.sha == commit for each in hub.commits(repo, MAIN, limit=HISTORY))


def release_at(hub: Hub, repo: str, commit: str) -> tuple[Release, Manifest | None]:
    """The release that a commit holds, and the list of its files.

    Raises:
        VerificationError: It holds none, or one that cannot be read.
    """
    where = f"{repo}@{commit[:12]}"
    there = hub.files_at(repo, commit, [Release.PATH, MANIFEST])
    if Release.PATH not in there:
        raise VerificationError(
            f"holds no {Release.PATH}, so what it publishes is not known.",
            where=where,
            remedy="Name a revision that the bot has published.",
        )
    release = Release.from_json(hub.read_bytes(repo, commit, Release.PATH), where=f"{where}: {Release.PATH}")
    external = any(artifact.signature.external_files for artifact in release.published)
    return release, manifest_at(hub, repo, commit, there) if external else None


def pins_of(
    release: Release, revision: str, manifest: Manifest | None = None, *, repo: str = ""
) -> tuple[PinnedArtifact, ...]:
    """The pins of every published artifact.

    Args:
        release: The record at that revision.
        revision: The commit.
        manifest: The list of the release's files, for models whose weights lie in files of their own.
        repo: The repository, if it is not the release's own target.

    Raises:
        VerificationError: The sha256 of a file with weights is recorded nowhere.
    """
    return tuple(
        _pinned(release, artifact, revision, manifest, repo or release.target) for artifact in release.published
    )


def _pinned(
    release: Release, artifact: Artifact, revision: str, manifest: Manifest | None, repo: str
) -> PinnedArtifact:
    not_on = not_on_of(release, artifact.name)
    measured = {figure.provider for figure in release.measurements_of(artifact.name)} - NO_PROVIDERS
    pins = [Pin(repo, revision, artifact.file, artifact.sha256, not_on)]
    recorded = {weights.path: weights.sha256 for weights in artifact.weights}
    for path in external_paths(artifact):
        ids = manifest.files.get(path) if manifest and manifest.identity == release.identity else None
        sha256 = recorded.get(path) or (ids.sha256 if ids else "")
        if not sha256:
            raise VerificationError(
                f"holds weights of {artifact.file}, and its sha256 is recorded nowhere.",
                where=f"{repo}@{revision[:12]}: {path}",
            )
        pins.append(Pin(repo, revision, path, sha256, not_on))
    if artifact.sidecar is not None:
        pins.append(Pin(repo, revision, artifact.sidecar.path, artifact.sidecar.sha256))
    return PinnedArtifact(artifact, tuple(pins), tuple(sorted(measured)), not_on)


def external_paths(artifact: Artifact) -> tuple[str, ...]:
    """Paths in the repository of the files that hold an artifact's weights beside its graph."""
    return paths_of(artifact)[1:]


def pinned_paths(artifact: Artifact) -> tuple[str, ...]:
    """Paths in the repository of all files that an artifact is pinned by, in the order of its pins."""
    beside = (artifact.sidecar.path,) if artifact.sidecar is not None else ()
    return (artifact.file, *external_paths(artifact), *beside)


def not_on_of(release: Release, artifact: str) -> tuple[str, ...]:
    """The providers on which an artifact failed a gate, or that have no kernel for something in it.

    One that was not measured is not named: nothing is guessed.
    """
    failed = {each.provider for each in release.verdicts if each.artifact == artifact and each.status == "failed"}
    return tuple(sorted(failed - NO_PROVIDERS | set(release.artifact(artifact).signature.not_on)))


# -- in words ----------------------------------------------------------------------------------------------------------


def axes(tensor: TensorSignature) -> str:
    """A tensor's shape as `[batch, 3, 224, 224]`; `?` for an axis that is not described, `unknown` without a rank."""
    if tensor.shape is None:
        return "unknown"
    return f"[{', '.join('?' if size is None else str(size) for size in tensor.shape)}]"


def facts(pinned: PinnedArtifact) -> dict[str, Any]:
    """What a consumer should know beside the pin, as plain data."""
    signature = pinned.artifact.signature
    return {
        "bytes": pinned.artifact.bytes,
        "inputs": [tensor.to_plain() for tensor in signature.inputs],
        "outputs": [tensor.to_plain() for tensor in signature.outputs],
        "opsets": dict(signature.opsets),
        "minimum_runtime": signature.minimum_runtime,
        "measured_on": list(pinned.measured_on),
        "not_on": list(pinned.not_on),
    }


def fact_lines(pinned: PinnedArtifact) -> list[str]:
    """The same in lines for people."""
    artifact, signature = pinned.artifact, pinned.artifact.signature
    lines = [f"{artifact.bytes:,} bytes"]
    lines += [f"input {tensor.name}: {tensor.dtype} {axes(tensor)}" for tensor in signature.inputs]
    lines += [f"output {tensor.name}: {tensor.dtype} {axes(tensor)}" for tensor in signature.outputs]
    lines.append("opsets: " + ", ".join(f"{domain} {version}" for domain, version in sorted(signature.opsets.items())))
    lines.append(f"needs ONNX Runtime {signature.minimum_runtime} or later")
    lines += [f"on {name}: {oldest} or later" for name, oldest in sorted(signature.minimum_runtime_on.items())]
    lines.append(f"measured on: {', '.join(pinned.measured_on) or 'no provider'}")
    if pinned.not_on:
        kernels = ", ".join(signature.not_on)
        why = f"no kernel on {kernels}, or a gate that failed" if kernels else "failed a gate there"
        lines.append(f"not to be used on: {', '.join(pinned.not_on)} ({why})")
    return lines


def pins_comment(release: Release, revision: str, manifest: Manifest | None = None) -> str:
    """The pins of a release as a comment in Markdown.

    Args:
        release: The record at that revision.
        revision: The merged commit.
        manifest: The list of the release's files, for models whose weights lie in files of their own.

    Returns:
        The text. It begins and ends with a mark (an HTML comment) by which it is found again.

    Raises:
        VerificationError: The sha256 of a file with weights is recorded nowhere.
    """
    parts = [_begin(release.identity), f"Pins of release `{release.short_identity}`, merged as `{revision}`:"]
    for pinned in pins_of(release, revision, manifest):
        block = pinned.block()
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", block)), default=0))
        parts.append(f"{fence}json\n{block}\n{fence}")
        parts.append("\n".join(f"- {_escaped(line)}" for line in fact_lines(pinned)))
    parts.append("`bot pins check` tells whether a pin still holds; `bot pins bump` moves it to a later release.")
    parts.append(f"<!-- {MARK}: end -->")
    return "\n\n".join(parts)


def _begin(identity: str) -> str:
    return f"<!-- {MARK}: {identity} -->"


def _escaped(text: str) -> str:
    """Text in which Markdown and HTML mean nothing; names in a graph come from upstream."""
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~@&])", r"\\\1", clean)


# -- posting -----------------------------------------------------------------------------------------------------------


def post_pins(hub: Hub, repo: str, number: int) -> bool:
    """Says the pins of a release on the merged pull request that brought it, once.

    Args:
        hub: Where it is, with the bot's token.
        repo: The target.
        number: A pull request of the bot's own account.

    Returns:
        Whether a comment was written. It was not if the pull request is somebody else's, is not merged, brought no
        release, or carries the comment already.

    Raises:
        HubError: The Hub could not be read or written. A comment whose answer was lost counts as written if it is
            there; it is never sent twice.
        VerificationError: The merged commit's record cannot be read, or the commit holds other files than it says.
    """
    account = account_of(hub)
    conversation = hub.conversation(repo, number)
    request = conversation.pull_request
    if request.author != account or request.status != "merged" or not conversation.merge_commit:
        return False
    release, manifest = release_at(hub, repo, conversation.merge_commit)
    if release.target != repo or _is_posted(conversation, account, release.identity):
        return False
    require_held(hub, repo, conversation.merge_commit, release)
    text = pins_comment(release, conversation.merge_commit, manifest)
    try:
        hub.comment(repo, number, text)
    except Doubtful:
        if not _is_posted(hub.conversation(repo, number), account, release.identity):
            raise
    return True


def require_held(hub: Hub, repo: str, commit: str, release: Release) -> None:
    """Stops unless a commit lists the published artifacts with the content that its record tells.

    Somebody may have changed one on the main branch after the pull request was opened: it merges without a conflict.

    Raises:
        VerificationError: It does not; no pin may be given of such a file.
    """
    wanted = {artifact.file: artifact.sha256 for artifact in release.published}
    wanted |= {weights.path: weights.sha256 for artifact in release.published for weights in artifact.weights}
    there = hub.files_at(repo, commit, list(wanted)) if wanted else {}
    for path, sha256 in wanted.items():
        found = there[path].sha256 if path in there else ""
        if path in there and not found:  # A file that lies in git itself is small.
            found = ids_of_bytes(hub.read_bytes(repo, commit, path)).sha256
        if found != sha256:
            raise VerificationError(
                f"has the sha256 {found or 'of no file'}, and the release's record says {sha256}: it gets no pin.",
                where=f"{repo}@{commit[:12]}: {path}",
                remedy="Somebody changed it before the merge. Restore the file, or publish a release without it.",
            )


def _is_posted(conversation: Conversation, account: str, identity: str) -> bool:
    """Whether the bot's own account has said the pins of this release; what others copy counts for nothing."""
    begin = _begin(identity)
    return any(
        remark.kind == "comment" and remark.author == account and begin in remark.text
        for remark in conversation.remarks
    )


def is_commit(revision: str) -> bool:
    """Whether a revision is a full commit, and not a name that may move."""
    return bool(_COMMIT.fullmatch(revision))
