"""Publishing a release exactly once, as one commit or one pull request.

There is no state but the Hub's. Every attempt begins by reading what the target holds and what the bot's own account
has opened there, decides from that alone, does at most one write that matters, and ends. Whatever interrupts it, a lost
answer, a rival, a kill, the next attempt finds out by reading. What other accounts write into trailers counts for
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bot.errors import HubError, OverwriteError
from bot.hub.attempts import until_clear
from bot.hub.bundle import Bundle, gather
from bot.hub.client import Conflict, Hub, NotFound, TreeFile
from bot.hub.overwrites import Mode, check_overwrites, settled
from bot.hub.target import MAIN, Own, Target, account_of, manifest_at, own_commit, own_pull_requests, read_target
from bot.hub.trailers import CLOSED, IDENTITY, RECIPE, with_trailers
from bot.records import Release

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class Publication:
    """What publishing came to.

    Attributes:
        kind: `commit`, `pull-request`, or `nothing` if there was nothing to do.
        number: Of the pull request.
        revision: Where the release can be read: `refs/pr/N` or a commit.
        commit: The commit that holds it.
        url: Where a person looks at it.
        uploaded_bytes: Size of the files that this run sent.
        reason: Why it is this kind, for people.
        edited: Files in the pull request that somebody else changed; they were left as they are.
        merged: Number of the pull request of the bot's own by which the release came into the main branch, if it did.
    """

    kind: Literal["commit", "pull-request", "nothing"]
    number: int | None = None
    revision: str = ""
    commit: str = ""
    url: str = ""
    uploaded_bytes: int = 0
    reason: str = ""
    edited: tuple[str, ...] = ()
    merged: int | None = None


def read_release(hub: Hub, repo: str) -> Release | None:
    """The release that a target holds at its head; None if it holds none that can be read.

    Raises:
        HubError: The Hub could not be read.
    """
    target = read_target(hub, repo)
    return target.release if target else None


def find(hub: Hub, repo: str, identity: str, *, mode: Mode, reopen: bool = False) -> Publication | None:
    """What is there already of a release, without changing anything.

    Args:
        hub: Where the target is.
        repo: The target.
        identity: Of the release.
        mode: How it would be published.
        reopen: Do not respect that a person closed it, or took it back.

    Returns:
        Its publication, if there is nothing left to do; None if `publish` has to be called.

    Raises:
        HubError: The Hub could not be read.
    """
    target = read_target(hub, repo)
    if target is None:
        return None
    own = own_pull_requests(hub, repo)
    plan = _decide(hub, target, own, identity, mode, reopen=reopen)
    recipe = _recipe_of(target, own, identity)
    if plan.action == "nothing":
        left = _leftovers(own, identity, None, recipe, committed=_holds(target, identity))
        merged = [item.number for item in own if item.identity == identity and item.status == "merged"]
        return None if left else replace(_nothing(hub, target, plan), merged=merged[-1] if merged else None)
    if plan.action == "resume" and plan.own is not None and not _leftovers(own, identity, plan.own, recipe):
        inside = _look_inside(hub, repo, plan.own, identity)
        if inside.complete:
            return _pull_request(hub, repo, plan.own.number, inside, 0)
    return None


def publish(
    hub: Hub,
    release: Release,
    folder: Path,
    *,
    mode: Mode,
    title: str,
    description: str,
    on_step: OnStep | None = None,
    reopen: bool = False,
) -> Publication:
    """Publishes a release, or finds that it is published.

    Args:
        hub: Where to.
        release: What.
        folder: Exactly what goes into the target, at its paths there. The list of its files is added to it
            (`release/files.json`). What the last release put into the bot's own folders and this one does not have is
            deleted in the same commit; nothing else in the target is touched.
        mode: A pull request, or a commit to the main branch.
        title: Of either.
        description: Of either, in Markdown.
        on_step: Told what happens.
        reopen: Publish again what a person closed or took back.

    Raises:
        OverwriteError: Something would have changed that must not: a frozen file, a file that the bot did not publish
            or that somebody changed since, the repository of another recipe; or the model has random weights and this
            is no embedded Hub.
        StepError: The folder is not whole.
        WithheldError: The release publishes nothing.
        HubError: The Hub did not do it, retries included. Run it again: nothing is done twice.
    """
    refuse_random_weights(hub, release)
    bundle = gather(release, folder)
    run = _Run(hub, bundle, mode, title, description, on_step or _say_nothing, reopen)
    return run.to_the_end()


def refuse_random_weights(hub: Hub, release: Release) -> None:
    """Stops a release of a model whose weights are random, unless it goes to an embedded Hub.

    Raises:
        OverwriteError: It does not.
    """
    if release.random_weights or release.source.random_weights:
        require_embedded(hub, release.target)


def require_embedded(hub: Hub, target: str) -> None:
    """Stops whatever comes of random weights unless the Hub is an embedded one.

    Raises:
        OverwriteError: It is not.
    """
    if not hub.is_embedded():
        raise OverwriteError(
            "the model's weights are random, and this is no embedded Hub: somebody might take it for the real model.",
            where=f"{hub.endpoint}, {target}",
            remedy="Publish it to the embedded Hub, or give the recipe the real model.",
        )


def close_as(hub: Hub, repo: str, number: int, reason: str, text: str) -> None:
    """Closes one of the bot's own pull requests, marked so that the bot knows later that it was no person.

    Raises:
        HubError: It is still open afterwards.
    """
    try:
        hub.set_status(repo, number, "closed", comment=with_trailers(text, {CLOSED: reason}))
    except HubError:
        if hub.conversation(repo, number).pull_request.is_open:
            raise


# -- what to do --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """What has to be done: `nothing`, `resume`, `reopen` or `new`, why, and the pull request that it is about."""

    action: Literal["nothing", "resume", "reopen", "new"]
    reason: str = ""
    own: Own | None = None
    commit: str = ""


def _decide(hub: Hub, target: Target, own: list[Own], identity: str, mode: Mode, *, reopen: bool) -> _Plan:
    same = [item for item in own if item.identity == identity]
    if _holds(target, identity):
        return _Plan("nothing", f"{target.repo} holds this release already.", commit=target.head)
    still_open = [item for item in same if item.is_open]
    if still_open and mode == "pull-request":
        return _Plan("resume", f"#{still_open[0].number} is open.", still_open[0])
    merged = [item for item in same if item.status == "merged"]
    if merged and not reopen:
        return _Plan("nothing", f"this release was merged as #{merged[-1].number}, and replaced since.", merged[-1])
    closed = [item for item in same if item.status == "closed" and item.closed_as not in ("superseded", "rival")]
    if closed and not reopen:
        return _Plan("nothing", _why_respected(closed[-1]), closed[-1])
    if mode == "commit":
        return _decide_commit(hub, target, identity, reopen=reopen)
    return _Plan("reopen", f"#{closed[-1].number} is opened again.", closed[-1]) if closed else _Plan("new")


def _decide_commit(hub: Hub, target: Target, identity: str, *, reopen: bool) -> _Plan:
    """A release that was committed and is no longer at the head was taken back by a person, or replaced."""
    commit = own_commit(hub, target.repo, target.head, account_of(hub), identity=identity)
    if commit is None or reopen:
        return _Plan("new")
    return _Plan("nothing", f"this release was committed as {commit.sha[:12]}, and replaced since.", commit=commit.sha)


def _why_respected(closed: Own) -> str:
    if closed.closed_as:
        return f"#{closed.number} was closed by the bot ({closed.closed_as}). --reopen tries again."
    return f"#{closed.number} was closed by a person, which is respected. --reopen opens it again."


def _leftovers(own: list[Own], identity: str, kept: Own | None, recipe: str, *, committed: bool = False) -> list[Own]:
    """Open pull requests that should be closed: rivals with the same release, and older ones of the same recipe.

    Only lower numbers count as older: two bots that publish different releases at once must not close each other's.
    """
    limit = kept.number if kept is not None else None
    found = []
    for item in own:
        if not item.is_open or (kept is not None and item.number == kept.number):
            continue
        rival = item.identity == identity and (kept is not None or committed)
        older = item.identity != identity and bool(recipe) and item.recipe == recipe
        if rival or (older and (committed or (limit is not None and item.number < limit))):
            found.append(item)
    return found


def _recipe_of(target: Target, own: list[Own], identity: str) -> str:
    """The recipe of a release, as the Hub knows it; empty if it does not."""
    if target.release is not None and _holds(target, identity):
        return target.release.recipe
    return next((item.recipe for item in own if item.identity == identity), "")


def _holds(target: Target, identity: str) -> bool:
    return target.release is not None and target.release.identity == identity


# -- what a pull request holds -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Inside:
    """The inside of one of the bot's own pull requests.

    Attributes:
        head: Its newest commit.
        tree: The files of that commit.
        edited: Files that somebody else changed after the bot's last commit to it.
        complete: What the bot itself put there is one whole release, with the identity that was asked for.
        brought: The files that the bot's last commit lists as that release's.
    """

    head: str
    tree: dict[str, TreeFile]
    edited: frozenset[str]
    complete: bool
    brought: frozenset[str] = frozenset()


def _look_inside(hub: Hub, repo: str, own: Own, identity: str) -> _Inside:
    revision = own.conversation.pull_request.revision
    head = hub.head(repo, revision).sha
    tree = hub.tree(repo, head)
    last = own_commit(hub, repo, head, account_of(hub), identity=identity)
    if last is None:
        return _Inside(head, tree, frozenset(tree), complete=False)
    ours = tree if last.sha == head else hub.tree(repo, last.sha)
    edited = frozenset(path for path in {*tree, *ours} if tree.get(path) != ours.get(path))
    manifest = manifest_at(hub, repo, last.sha, ours)
    complete = (
        manifest is not None
        and manifest.identity == identity
        and all(ids.are_of(ours.get(path)) for path, ids in manifest.files.items())
    )
    return _Inside(head, tree, edited, complete, frozenset(manifest.files if manifest else ()))


def _pull_request(hub: Hub, repo: str, number: int, inside: _Inside, sent: int) -> Publication:
    edited = tuple(sorted(inside.edited))
    kept = f" Left as somebody else changed them: {', '.join(edited)}." if edited else ""
    return Publication(
        "pull-request",
        number,
        f"refs/pr/{number}",
        inside.head,
        f"{hub.endpoint}/{repo}/discussions/{number}",
        sent,
        f"#{number} is open and holds this release.{kept}",
        edited,
    )


def _nothing(hub: Hub, target: Target, plan: _Plan) -> Publication:
    if plan.own is not None:
        number = plan.own.number
        url = f"{hub.endpoint}/{target.repo}/discussions/{number}"
        return Publication(
            "nothing", number, f"refs/pr/{number}", plan.own.conversation.merge_commit, url, 0, plan.reason
        )
    url = f"{hub.endpoint}/{target.repo}/commit/{plan.commit}" if plan.commit else ""
    return Publication("nothing", None, plan.commit, plan.commit, url, 0, plan.reason)


# -- doing it ----------------------------------------------------------------------------------------------------------


@dataclass
class _Run:
    """One call of `publish`: attempts, until one of them comes to an end."""

    hub: Hub
    bundle: Bundle
    mode: Mode
    title: str
    description: str
    say: OnStep
    reopen: bool
    sent: int = 0
    opened: int | None = None

    @property
    def release(self) -> Release:
        return self.bundle.release

    @property
    def repo(self) -> str:
        return self.bundle.release.target

    def to_the_end(self) -> Publication:
        """Attempts until the Hub holds the release, or there is nothing to do."""
        return until_clear(self.hub, self._attempt, self.say)

    def _attempt(self) -> Publication:
        target = read_target(self.hub, self.repo) or self._create_target()
        own = own_pull_requests(self.hub, self.repo, self.opened)
        plan = _decide(self.hub, target, own, self.release.identity, self.mode, reopen=self.reopen)
        if plan.action == "nothing":
            return self._found(target, own, plan)
        if plan.action == "new":
            return self._new(target, own)
        assert plan.own is not None  # noqa: S101 -- resume and reopen are always about one
        if plan.action == "reopen":
            self.say(f"opening #{plan.own.number} again")
            self.hub.set_status(self.repo, plan.own.number, "open")
        return self._resume(target, own, plan.own)

    def _create_target(self) -> Target:
        self.say(f"creating {self.repo}")
        self.hub.create_repo(self.repo)
        target = read_target(self.hub, self.repo)
        if target is None:
            raise NotFound(
                "exists, and this account may not see it.", where=self.repo, remedy="Ask its owner for access."
            )
        return target

    def _found(self, target: Target, own: list[Own], plan: _Plan) -> Publication:
        """Nothing to write, but perhaps to tidy up; or it was our own write whose answer was lost."""
        at_head = _holds(target, self.release.identity)
        self._tidy(own, None, target.head if at_head else "")
        if self.sent and self.mode == "commit" and at_head:
            commit = own_commit(self.hub, self.repo, target.head, account_of(self.hub), identity=self.release.identity)
            if commit is not None:
                return self._committed(commit.sha)
        self.say(plan.reason)
        return _nothing(self.hub, target, plan)

    def _new(self, target: Target, own: list[Own]) -> Publication:
        self.bundle = settled(self.bundle, target)
        changed, deleted = self.bundle.changed(target.tree), self.bundle.deleted
        check_overwrites(self.hub, target, self.bundle, changed, self.mode)
        also = f", deleting {len(deleted)} of the last release" if deleted else ""
        self.say(f"sending {len(changed)} files, {self.bundle.size_of(changed)} bytes{also}")
        landed = self._send(changed, deleted, MAIN, target.head, open_pull_request=self.mode == "pull-request")
        if self.mode == "commit":
            self._tidy(own, None, landed[0])
            return self._committed(landed[0])
        # The Hub has no lock for opening a pull request, so another bot may have opened one at the same moment.
        self.opened = landed[1]
        self._require_own_name()
        own = own_pull_requests(self.hub, self.repo, self.opened)
        mine = [item for item in own if item.identity == self.release.identity and item.is_open]
        if not mine:
            raise Conflict(f"#{self.opened} was opened, and it is closed or changed already.", where=self.repo)
        first = mine[0]
        if first.number != self.opened:
            self.say(f"#{first.number} was opened first; closing #{self.opened}")
            own = self._without_rivals(own, first)
        return self._resume(target, own, first)

    def _require_own_name(self) -> None:
        """Stops if the pull request that was just opened goes under another name, and so would never be known again.

        Raises:
            HubError: It does; with it open, since it holds what was asked for, and never opened a second time.
        """
        author = self.hub.conversation(self.repo, self.opened).pull_request.author if self.opened else ""
        account = account_of(self.hub)
        if self.opened and author != account:
            raise HubError(
                f"#{self.opened} was opened, and the Hub says that {author or 'nobody'} opened it, while the token's "
                f"account is {account}: the bot would not know its own work again.",
                where=f"{self.repo} #{self.opened}",
                remedy="Look at it and close it, and give the bot a token of the account that it is to publish as.",
            )

    def _without_rivals(self, own: list[Own], first: Own) -> list[Own]:
        """Closes the pull request that this run opened, in favour of the one that was opened first."""
        if self.opened is not None:
            self._close_rival(self.opened, first.number)
        return [item for item in own if item.number != self.opened]

    def _resume(self, target: Target, own: list[Own], kept: Own) -> Publication:
        """Makes sure that an open pull request holds the whole release, and is the only one."""
        inside = _look_inside(self.hub, self.repo, kept, self.release.identity)
        if not inside.complete and self._complete(target, kept, inside):
            inside = _look_inside(self.hub, self.repo, kept, self.release.identity)
        self._tidy(own, kept, "")
        self.say(f"#{kept.number} holds release {self.release.short_identity}")
        return _pull_request(self.hub, self.repo, kept.number, inside, self.sent)

    def _complete(self, target: Target, kept: Own, inside: _Inside) -> bool:
        """Adds what a pull request lacks and deletes what it should not have; whether there was anything to do."""
        self.bundle = settled(self.bundle, target)
        wrong = [path for path in self.bundle.changed(inside.tree) if path not in inside.edited]
        needless = {path for path in inside.brought if path not in self.bundle.files and path not in target.tree}
        needless = {path for path in {*needless, *self.bundle.deleted} if path in inside.tree}
        deleted = tuple(sorted(needless - inside.edited))
        if not wrong and not deleted:
            return False
        check_overwrites(self.hub, target, self.bundle, wrong, self.mode)
        self.say(f"completing #{kept.number}: {', '.join([*wrong, *deleted])}")
        self._send(wrong, deleted, kept.conversation.pull_request.revision, inside.head)
        return True

    def _send(
        self,
        names: list[str],
        deleted: tuple[str, ...],
        revision: str,
        parent: str,
        *,
        open_pull_request: bool = False,
    ) -> tuple[str, int | None]:
        """Makes the one commit, and returns its sha and the number of the pull request that it opened."""
        self.sent = self.bundle.size_of(names)
        trailers = {IDENTITY: self.release.identity, RECIPE: self.release.recipe}
        landed = self.hub.commit(
            self.repo,
            {name: self.bundle.path_of(name) for name in names},
            message=" ".join(self.title.split()),
            description=with_trailers(self.description, trailers),
            revision=revision,
            parent=parent,
            deleted=deleted,
            open_pull_request=open_pull_request,
        )
        return landed.sha, landed.number

    def _committed(self, sha: str) -> Publication:
        self.say(f"{self.repo} holds release {self.release.short_identity} as {sha[:12]}")
        url = f"{self.hub.endpoint}/{self.repo}/commit/{sha}"
        return Publication("commit", None, sha, sha, url, self.sent, "the release was committed.")

    def _tidy(self, own: list[Own], kept: Own | None, commit: str) -> None:
        """Closes what the release that is there now makes needless."""
        for item in _leftovers(own, self.release.identity, kept, self.release.recipe, committed=bool(commit)):
            if kept is not None and item.identity == self.release.identity:
                self._close_rival(item.number, kept.number)
                continue
            by = f"#{kept.number}" if kept is not None else f"commit {commit}"
            self.say(f"closing #{item.number}, superseded by {by}")
            place = f"discussions/{kept.number}" if kept is not None else f"commit/{commit}"
            link = f"[{by}]({self.hub.endpoint}/{self.repo}/{place})"
            close_as(self.hub, self.repo, item.number, "superseded", f"Superseded by {link}.")

    def _close_rival(self, number: int, first: int) -> None:
        link = f"[#{first}]({self.hub.endpoint}/{self.repo}/discussions/{first})"
        close_as(self.hub, self.repo, number, "rival", f"The same release as {link}, which was opened first.")


def _say_nothing(_: str) -> None:
    """For a caller who does not listen."""
