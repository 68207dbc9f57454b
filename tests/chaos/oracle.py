"""What a repository of the embedded Hub holds, read without the bot's code and without the client library.

An oracle that used the code under test would share its mistakes, so this one speaks plain HTTP.
"""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

MANIFEST = "release/files.json"
REVIEW = "<!-- hub-publishing-bot review -->"
SUPERSEDED, RIVAL, PASSED = (f"Closed-By-Bot: {reason}" for reason in ("superseded", "rival", "passed"))

Tree = Mapping[str, tuple[str, str, int]]
"""By path: git's id, the sha256 of a large file (empty for another), the size in bytes."""


@dataclass(frozen=True)
class Conversation:
    """A pull request or a discussion: who opened it, what became of it, all that was said, and its own commits."""

    author: str
    is_pull_request: bool
    status: str
    comments: tuple[tuple[str, str], ...]
    events: int


@dataclass(frozen=True)
class Snapshot:
    """A repository at one moment.

    Attributes:
        exists: Whether there is one.
        history: Id and message of the main branch's commits, newest first.
        tree: Of the main branch.
        conversations: By number.
        pulls: By number of an open pull request: its history and its tree.
    """

    exists: bool = False
    history: tuple[tuple[str, str], ...] = ()
    tree: Tree = field(default_factory=dict)
    conversations: Mapping[int, Conversation] = field(default_factory=dict)
    pulls: Mapping[int, tuple[tuple[tuple[str, str], ...], Tree]] = field(default_factory=dict)

    @property
    def head(self) -> str:
        """The newest commit of the main branch; empty without one."""
        return self.history[0][0] if self.history else ""


class Oracle:
    """Reads repositories of one Hub."""

    def __init__(self, endpoint: str, token: str) -> None:
        parts = urlsplit(endpoint)
        self._host, self._port = parts.hostname or "", parts.port
        self._headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of one GET."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=60)
        try:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def snapshot(self, repo: str) -> Snapshot:
        """All that matters of a repository."""
        if self.get(f"/api/models/{repo}")[0] == 404:
            return Snapshot()
        listed = self._json(f"/api/models/{repo}/discussions?p=0&type=all&status=all")
        if len(listed["discussions"]) != listed["count"]:
            raise RuntimeError(f"{repo} has more discussions than one page shows")
        conversations = {item["num"]: self._conversation(repo, item["num"]) for item in listed["discussions"]}
        pulls = {
            number: (self._history(repo, f"refs/pr/{number}"), self._tree(repo, f"refs/pr/{number}"))
            for number, item in conversations.items()
            if item.is_pull_request and item.status in ("open", "draft")
        }
        return Snapshot(True, self._history(repo, "main"), self._tree(repo, "main"), conversations, pulls)

    def content(self, repo: str, revision: str, path: str) -> bytes:
        """The bytes of a file."""
        status, body = self.get(f"/{repo}/resolve/{quote(revision, safe='')}/{quote(path)}")
        return body if status == 200 else b""

    def _json(self, path: str) -> Any:
        status, body = self.get(path)
        if status != 200:
            raise RuntimeError(f"{path}: HTTP {status} {body[:200]!r}")
        return json.loads(body)

    def _history(self, repo: str, revision: str) -> tuple[tuple[str, str], ...]:
        rows = self._json(f"/api/models/{repo}/commits/{quote(revision, safe='')}")
        return tuple((row["id"], f"{row['title']}\n\n{row['message']}") for row in rows)

    def _tree(self, repo: str, revision: str) -> Tree:
        rows = self._json(f"/api/models/{repo}/tree/{quote(revision, safe='')}?recursive=true")
        files = (row for row in rows if row["type"] == "file")
        return {row["path"]: (row["oid"], (row.get("lfs") or {}).get("oid", ""), row["size"]) for row in files}

    def _conversation(self, repo: str, number: int) -> Conversation:
        item = self._json(f"/api/models/{repo}/discussions/{number}")
        comments = tuple(
            (event["author"]["name"], event["data"]["latest"]["raw"])
            for event in item["events"]
            if event["type"] == "comment" and not event["data"].get("hidden")
        )
        author = item["author"]["name"]
        return Conversation(author, item["isPullRequest"], item["status"], comments, len(item["events"]))


@dataclass(frozen=True)
class Wanted:
    """The end state of a publish.

    Attributes:
        repo: The target.
        mode: `pull-request` or `commit`.
        identity: Of the release.
        folder: What has to be in the target, byte for byte.
        account: The bot's.
    """

    repo: str
    mode: str
    identity: str
    folder: Path
    account: str = "local-user"

    def files(self) -> dict[str, bytes]:
        """The content by path."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file()
        }


def is_untouched(before: Snapshot, now: Snapshot) -> bool:
    """Whether nothing was published: at most an empty repository was created."""
    if not before.exists:
        return not now.conversations and len(now.history) <= 1 and set(now.tree) <= {".gitattributes"}
    return (now.history, now.tree, now.conversations) == (before.history, before.tree, before.conversations)


def what_is_wrong(
    oracle: Oracle, wanted: Wanted, before: Snapshot, now: Snapshot, *, tidy: bool = True, rivals: bool = False
) -> str:
    """Why this is not exactly the one right pull request or commit; empty if it is.

    Args:
        oracle: Reads the content of files.
        wanted: The end state.
        before: The repository before the publish.
        now: The repository now.
        tidy: Whether what the release made needless has to be closed already.
        rivals: Whether further pull requests may have been opened, if they were closed as rivals.
    """
    if not now.exists:
        return "there is no repository"
    base: Tree = before.tree if before.exists else now.tree
    new = {number: item for number, item in now.conversations.items() if number not in before.conversations}
    problem = _older(before, now, tidy=tidy, once=not rivals)
    if problem:
        return problem
    if wanted.mode == "commit":
        count = len(now.history) - max(len(before.history), 1)
        if new:
            return f"{len(new)} pull requests or discussions were opened beside the commit"
        if count != 1 or (before.exists and now.history[1:] != before.history):
            return f"the main branch has {count} new commits, or another history"
        if not before.exists:
            base = {path: ids for path, ids in now.tree.items() if path == ".gitattributes"}
        return _holds(oracle, wanted, now.history[0], base, now.tree)
    if before.exists and now.history != before.history:
        return "the main branch was changed"
    if not before.exists and (len(now.history) != 1 or set(now.tree) - {".gitattributes"}):
        return "the main branch holds more than an empty repository's"
    closed = {number: item for number, item in new.items() if rivals and _closed_as_rival(item, wanted.account)}
    standing = sorted(set(new) - set(closed))
    if len(standing) != 1:
        return f"{len(standing)} pull requests in place of one: {[(n, new[n].status) for n in standing]}"
    item = new[standing[0]]
    if not item.is_pull_request or item.status != "open" or item.author != wanted.account:
        return f"#{standing[0]} is no open pull request of the bot: {item.status}"
    if f"Release-Id: {wanted.identity}" not in item.comments[0][1]:
        return f"#{standing[0]} does not name its release"
    reviews = [text for author, text in item.comments if author == wanted.account and REVIEW in text]
    if len(reviews) > 1:
        return f"the review stands {len(reviews)} times on #{standing[0]}"
    if any(number < standing[0] for number in closed):
        return f"an older rival of #{standing[0]} was closed in its favour"
    history, tree = now.pulls[standing[0]]
    if len(history) != len(now.history) + 1 or history[1:] != now.history:
        return f"#{standing[0]} has {len(history) - len(now.history)} commits"
    return _holds(oracle, wanted, history[0], base, tree)


def _closed_as_rival(item: Conversation, account: str) -> bool:
    marked = any(author == account and RIVAL in text for author, text in item.comments)
    return item.is_pull_request and item.status == "closed" and marked


def _older(before: Snapshot, now: Snapshot, *, tidy: bool, once: bool) -> str:
    """Why what was open before is not as it should be: the bot's own closed (once), everything else as it was."""
    for number, old in before.conversations.items():
        item = now.conversations.get(number)
        if item is None:
            return f"#{number} is gone"
        mine = old.status == "open" and "Recipe: " in "".join(text for _, text in old.comments)
        if not mine or item.status == "open":
            if mine and tidy:
                return f"#{number}, of an older release, is still open"
            if (item.status, item.comments) != (old.status, old.comments):
                return f"#{number} was changed"
            continue
        mark = SUPERSEDED if old.is_pull_request else PASSED
        said = [text for author, text in item.comments[len(old.comments) :] if author == old.author]
        if item.status != "closed" or not said or mark not in said[0] or (once and len(said) != 1):
            return f"#{number} was not closed once, marked {mark!r}: {item.status}, {len(said)} comments"
    return ""


def _holds(oracle: Oracle, wanted: Wanted, commit: tuple[str, str], base: Tree, tree: Tree) -> str:
    """Why a commit is not the release upon what was there; empty if it is."""
    sha, message = commit
    files = wanted.files()
    if f"Release-Id: {wanted.identity}" not in message:
        return f"commit {sha[:12]} does not name its release"
    if MANIFEST not in files:
        return f"the folder holds no {MANIFEST}"
    if set(tree) != set(base) | set(files):
        return f"commit {sha[:12]} holds other files: {sorted(set(tree) ^ (set(base) | set(files)))}"
    for path, ids in base.items():
        if path not in files and tree[path] != ids:
            return f"{path} is not part of the release and was changed"
    for path, data in files.items():
        if oracle.content(wanted.repo, sha, path) != data:
            return f"{path} does not hold what was published"
        if tree[path][1] not in ("", hashlib.sha256(data).hexdigest()):
            return f"{path} is another large file"
    return ""
