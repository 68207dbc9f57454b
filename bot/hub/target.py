"""What a target repository holds now: its head, its last release, and what the bot itself has opened there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.errors import HubError, VerificationError
from bot.hub.bundle import MANIFEST, Ids, Manifest, ids_of_bytes
from bot.hub.client import Commit, Conversation, Garbled, Hub, NotFound, Refused, TreeFile
from bot.hub.trailers import CLOSED, IDENTITY, RECIPE, trailers_of
from bot.records import Release

MAIN = "main"
HISTORY = 300
"""How many commits of a history are looked through for one of the bot's own."""


@dataclass(frozen=True)
class Target:
    """The head of a target.

    Attributes:
        repo: `owner/name`.
        head: Its newest commit.
        tree: The files of that commit.
        release: The last release that it holds; None if it holds none, or one that cannot be read.
        problem: Why its record cannot be read, if it is there and cannot.
        manifest: The files of that release.
    """

    repo: str
    head: str
    tree: Mapping[str, TreeFile]
    release: Release | None = None
    problem: str = ""
    manifest: Manifest | None = None

    def owns(self, path: str) -> bool:
        """Whether the bot published this file and it is still what the bot published."""
        if path == MANIFEST:
            return self.manifest is not None and self.release is not None
        ids = self.published().get(path)
        return ids is not None and ids.are_of(self.tree.get(path))

    def published(self) -> dict[str, Ids]:
        """What the bot has published, by path: by the last release, and by earlier ones and left there since."""
        if self.manifest is None or self.release is None:
            return {}
        earlier = {path: kept.ids for path, kept in self.manifest.kept.items() if kept.published}
        return earlier | dict(self.manifest.files)

    def frozen(self) -> dict[str, str]:
        """The paths whose bytes nobody may change, with their sha256: of every release that this target has had."""
        if self.release is None:
            return {}
        kept = self.manifest.kept if self.manifest is not None else {}
        found = {path: each.ids.sha256 for path, each in kept.items() if each.frozen}
        for artifact in self.release.published:
            if artifact.frozen:
                found[artifact.file] = artifact.sha256
                found |= {weights.path: weights.sha256 for weights in artifact.weights}
        return found


@dataclass(frozen=True)
class Own:
    """A pull request that the bot's account opened, with what the bot wrote into it.

    Attributes:
        conversation: The pull request and what was said in it.
        identity: The release that it carries; empty if it carries none.
        recipe: That release's recipe.
        closed_as: Why the bot closed it (`superseded`, `rival`, `verification`); empty if it did not.
    """

    conversation: Conversation
    identity: str
    recipe: str
    closed_as: str

    @property
    def number(self) -> int:
        """Its number."""
        return self.conversation.pull_request.number

    @property
    def status(self) -> str:
        """`open`, `draft`, `closed` or `merged`."""
        return self.conversation.pull_request.status

    @property
    def is_open(self) -> bool:
        """Whether it can still be merged."""
        return self.conversation.pull_request.is_open


def account_of(hub: Hub) -> str:
    """The bot's account.

    Raises:
        Refused: There is no token, so there is none.
    """
    account = hub.account
    if account is None:
        raise Refused(
            f"there is no token for {hub.endpoint}, so that nobody knows whose pull requests are the bot's.",
            where=hub.endpoint,
            remedy="Give one by --token-file, or by BOT_HUB_TOKEN together with BOT_HUB_ENDPOINT; to look only, as bot "
            "watch and bot status do, --account NAME will do.",
        )
    return account


def read_target(hub: Hub, repo: str) -> Target | None:
    """Reads the head of a target; None if there is no such repository."""
    try:
        head = hub.head(repo)
    except NotFound:
        return None
    if not head.sha:
        raise HubError("has no commit yet.", where=repo, remedy="Create its first commit, an empty README.md say.")
    tree = hub.tree(repo, head.sha)
    release, problem = _release_at(hub, repo, head.sha, tree)
    return Target(repo, head.sha, tree, release, problem, manifest_at(hub, repo, head.sha, tree))


def manifest_at(hub: Hub, repo: str, commit: str, tree: Mapping[str, TreeFile]) -> Manifest | None:
    """The list of a release's files in a commit; None if there is none that can be read.

    Raises:
        Garbled: It does not come as the Hub lists it.
    """
    return Manifest.from_json(_content(hub, repo, commit, MANIFEST, tree)) if MANIFEST in tree else None


def _release_at(hub: Hub, repo: str, commit: str, tree: Mapping[str, TreeFile]) -> tuple[Release | None, str]:
    if Release.PATH not in tree:
        return None, ""
    data = _content(hub, repo, commit, Release.PATH, tree)
    try:
        return Release.from_json(data, where=f"{repo}@{commit[:12]}: {Release.PATH}"), ""
    except VerificationError as error:
        return None, error.what


def _content(hub: Hub, repo: str, commit: str, path: str, tree: Mapping[str, TreeFile]) -> bytes:
    """The content of a small file, which has to be what the Hub lists; a bad download is tried once more.

    What the bot decides from must not be a flipped bit: it would take a release for another's, or for none.
    """
    for _ in range(2):
        data = hub.read_bytes(repo, commit, path)
        if ids_of_bytes(data).are_of(tree[path]):
            return data
    raise Garbled("does not come as the Hub lists it.", where=f"{repo}@{commit[:12]}: {path}")


def own_pull_requests(hub: Hub, repo: str, also: int | None = None) -> list[Own]:
    """Every pull request that carries a release and that the bot's account opened, oldest first.

    Args:
        hub: Where the target is.
        repo: The target.
        also: A pull request that the caller knows to be there, should the listing not tell of it yet.

    Raises:
        HubError: The listing, or one of them, could not be read. It is never taken for "there are none".
    """
    account = account_of(hub)
    listed = {item.number for item in hub.pull_requests(repo, author=account)}
    numbers = sorted(listed | ({also} if also else set()))
    found = [own_pull_request(hub, repo, number, account=account, listed=number in listed) for number in numbers]
    return [own for own in found if own.identity]


def own_pull_request(hub: Hub, repo: str, number: int, *, account: str, listed: bool = True) -> Own:
    """One pull request of the bot's account.

    Args:
        hub: Where the target is.
        repo: The target.
        number: Of the pull request.
        account: The bot's.
        listed: A listing told that the account opened it.

    Raises:
        HubError: It could not be read.
    """
    conversation = hub.conversation(repo, number, author=account if listed else "")
    trailers = trailers_of(conversation.description) if conversation.pull_request.author == account else {}
    if IDENTITY not in trailers and conversation.commits:
        # A person may have edited the description; the commit's message still tells. The commits before the pull
        # request's own are those of the branch that it starts from, and tell of other releases.
        revision, limit = conversation.pull_request.revision, len(conversation.commits)
        commit = own_commit(hub, repo, revision, account, limit=limit)
        trailers = trailers_of(commit.message) if commit and commit.sha in conversation.commits else {}
    return Own(conversation, trailers.get(IDENTITY, ""), trailers.get(RECIPE, ""), _closed_as(conversation, account))


def _closed_as(conversation: Conversation, account: str) -> str:
    """The reason that the bot gave for closing a pull request, unless somebody opened it again afterwards."""
    reason = ""
    for remark in conversation.remarks:
        if remark.kind == "status" and remark.text == "open":
            reason = ""
        elif remark.kind == "comment" and remark.author == account:
            reason = trailers_of(remark.text).get(CLOSED, reason)
    return reason if conversation.pull_request.status == "closed" else ""


def own_commit(
    hub: Hub, repo: str, revision: str, account: str, *, identity: str = "", limit: int = HISTORY
) -> Commit | None:
    """The newest commit of a history that the bot's account made for a release, or for this one; None if none is."""
    for commit in hub.commits(repo, revision, limit=limit):
        named = trailers_of(commit.message).get(IDENTITY, "")
        if account in commit.authors and named and identity in ("", named):
            return commit
    return None
