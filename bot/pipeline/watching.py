"""One poll: from recipes, and what the Hub tells of upstreams and targets, to a row for each.

What is known cheaply decides first. The card of a target names its release, the upstream commit that it was made from
and the recipe's side of its identity; if these agree with the upstream's newest commit and with the recipe here, the
release is the one that publishing would make, and nothing else is asked. Only for the others digests are looked up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from bot.canonical import digest, file_sha256
from bot.errors import BotError, RecipeError, UpstreamError, VerificationError
from bot.hub.budget import API, Budget
from bot.hub.client import Hub, NotFound
from bot.hub.lookup import date_of, digests_at, small_file
from bot.hub.memory import Memory
from bot.hub.polling import Answer, Poller, Seen, Want
from bot.hub.retry import HubUnavailable
from bot.hub.target import MAIN, account_of, own_commit, own_pull_request
from bot.hub.trailers import CLOSED, IDENTITY, STOPPED
from bot.hub.withheld import newest_word
from bot.measure import loaders
from bot.pipeline.fleet import Fleet, Loaded
from bot.pipeline.identity import TOOLS, Digests, identity
from bot.progress import Reporter, Silent
from bot.records import Reason, Release
from bot.watch.deciding import Inputs, Request, Situation, decide, reasons_for, settles_at
from bot.watch.findings import Finding, Row
from bot.work import versions

if TYPE_CHECKING:
    from bot.recipe import Recipe

PATROL = timedelta(days=1)
"""How often a recipe that is current is looked at for pull requests that were left open."""

MOST_DATES = 100
"""Commits whose date is asked for in one poll, for nothing but the table and the order of what is due."""

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass
class Watcher:
    """Polls the Hub for a folder of recipes.

    Attributes:
        hub: The Hub.
        fleet: The recipes.
        account: Whose pull requests and discussions are the bot's; None for the account of the Hub's token.
        memory: Facts of earlier polls.
        budget: What requests cost, and how many are left.
        reporter: Is told how far a poll is.
        now: The time of day.
        patrolled: How many recipes the last poll looked at though nothing said that they had changed.
    """

    hub: Hub
    fleet: Fleet
    account: str | None = None
    memory: Memory = field(default_factory=Memory)
    budget: Budget = field(default_factory=Budget)
    reporter: Reporter = field(default_factory=Silent)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    patrolled: int = 0

    def poll(self, names: Iterable[str] = ()) -> list[Row]:
        """Looks at these recipes, or at all.

        Raises:
            RecipeError: There is no such folder or recipe.
            HubUnavailable: The Hub gives no usable answer. The next poll finds what this one did not.
            Refused: There is no account whose pull requests would be the bot's.
        """
        from bot.hub import session

        names = tuple(names)
        session.observe(self.hub.endpoint, self.budget)
        try:
            self.reporter.stage("recipes", str(self.fleet.folder))
            loaded = self.fleet.load(names, self.memory)
            if self.account is None:
                self.account = account_of(self.hub)
            rows = _Poll(self, loaded, self.account).rows()
            if not names:
                self.memory.sweep(keep="point")  # `bot status` reads these of releases, of which there are few.
            return rows
        finally:
            session.observe(self.hub.endpoint, None)
            self.memory.save()


@dataclass(frozen=True)
class _Known:
    """What is known of a recipe before anything was asked about its pull requests."""

    loaded: Loaded
    row: Row
    target: Seen | None
    upstream: Seen
    digests: Digests | None = None
    held: Inputs | None = None

    @property
    def recipe(self) -> Recipe:
        return self.loaded.recipe

    @property
    def is_held(self) -> bool:
        """The target holds the very release that publishing would make."""
        return self.held is not None and self.held.identity == self.row.identity


class _Poll:
    """One poll, with what the Hub told at its beginning."""

    def __init__(self, watcher: Watcher, loaded: Mapping[str, Loaded | RecipeError], account: str) -> None:
        self._watcher, self._loaded, self._account = watcher, loaded, account
        self._hub, self._memory = watcher.hub, watcher.memory
        self._now = watcher.now()
        self._answers: dict[Want, Answer] = {}
        self._dates = MOST_DATES

    def rows(self) -> list[Row]:
        """A row for each recipe, by name."""
        reporter = self._watcher.reporter
        wants = [
            want
            for entry in self._loaded.values()
            if isinstance(entry, Loaded)
            for want in (_upstream_of(entry.recipe), _target_of(entry.recipe), _samples_of(entry.recipe))
            if want is not None
        ]
        reporter.stage("poll", self._hub.endpoint)
        poller = Poller(
            self._hub,
            self._memory,
            self._watcher.budget,
            now=self._watcher.now,
            on_step=lambda done, total: reporter.update(done, total, "owners and repositories"),
        )
        self._answers = poller.poll(wants)
        rows: dict[str, Row] = {}
        held: list[_Known] = []
        for count, (name, entry) in enumerate(self._loaded.items(), 1):
            reporter.update(count, len(self._loaded), "recipes")
            if isinstance(entry, RecipeError):
                rows[name] = Row(name, Finding("broken"), error=entry)
                continue
            known = self._carefully(_first_row(entry.recipe), lambda entry=entry: self._known(entry))  # type: ignore[misc]
            if isinstance(known, Row):
                rows[name] = known
            elif known.is_held:
                held.append(known)
                rows[name] = replace(known.row, finding=Finding("current"))
            else:
                rows[name] = self._carefully(known.row, lambda known=known: self._judged(known))  # type: ignore[misc]
        patrol = self._patrol(held)
        self._watcher.patrolled = len(patrol)
        for known in patrol:
            rows[known.recipe.name] = self._carefully(known.row, lambda known=known: self._judged(known))  # type: ignore[misc]
        return [self._dated(rows[name]) for name in sorted(rows)]

    def _dated(self, row: Row) -> Row:
        """The row with the date of the upstream's commit, where no listing told one and requests are to spare."""
        entry = self._loaded[row.recipe]
        if row.since is not None or not row.upstream_commit or isinstance(entry, RecipeError):
            return row
        repo = entry.recipe.plan.upstream.repo
        known = self._memory.get("date", row.upstream_commit)
        if repo is None or (known is None and (self._dates <= 0 or self._watcher.budget.spare(API) < 1)):
            return row
        self._dates -= known is None
        date = self._carefully(row, lambda: date_of(self._hub, self._memory, repo, row.upstream_commit))
        return replace(row, since=date) if isinstance(date, datetime) else row

    @staticmethod
    def _carefully(row: Row, do: Callable[[], Any]) -> Any:
        """One recipe's trouble is its own; that the Hub does not answer at all is everybody's."""
        try:
            return do()
        except HubUnavailable:
            raise
        except RecipeError as error:
            return row.failed(error, "broken")
        except BotError as error:
            return row.failed(error)

    # -- upstream, samples, and what the target holds ------------------------------------------------------------------

    def _known(self, loaded: Loaded) -> _Known:
        recipe = loaded.recipe
        row = _first_row(recipe)
        target = self._target(recipe)
        upstream = self._upstream(recipe)
        since = upstream.modified or (target.modified if target else "")
        card = dict(target.card or {}) if target else {}
        row = replace(
            row,
            upstream_commit=upstream.sha,
            published=card.get("source_commit", ""),
            since=datetime.fromisoformat(since) if since else None,
        )
        if target is None:
            return _Known(loaded, row, None, upstream)
        release_id = card.get("release_id", "")
        agrees = card.get("recipe_id") == loaded.recipe_id and card.get("source_commit") == upstream.sha
        if release_id and agrees and _samples_of(recipe) is None:
            held = Inputs(release_id, commit=upstream.sha)
            return _Known(loaded, replace(row, identity=release_id), target, upstream, None, held)
        digests = self._digests(recipe, upstream.sha)
        row = replace(row, identity=identity(recipe, digests))
        held_now = (
            Inputs(row.identity, commit=row.published) if release_id == row.identity else self._held(recipe, target)
        )
        row = replace(row, published=held_now.commit if held_now else "")
        return _Known(loaded, row, target, upstream, digests, held_now)

    def _target(self, recipe: Recipe) -> Seen | None:
        answer = self._answers[_target_of(recipe)]
        if isinstance(answer, NotFound):
            return None
        if isinstance(answer, BotError):
            raise answer
        return answer

    def _upstream(self, recipe: Recipe) -> Seen:
        want = _upstream_of(recipe)
        if want is None:
            return Seen(str(recipe.plan.upstream.sha256))  # A file at an address is what its sha256 says, for ever.
        answer = self._answers[want]
        if isinstance(answer, BotError):
            raise UpstreamError(answer.what, where=answer.where, remedy=answer.remedy) from answer
        return answer

    def _digests(self, recipe: Recipe, commit: str) -> Digests:
        """The digests of all that the recipe reads from elsewhere, without the files."""
        plan = recipe.plan.upstream
        ((name, samples),) = recipe.plan.measure.samples.items()
        try:
            wanted = loaders.required_files(samples.loader or name, samples.selection())
        except ValueError as error:
            recipe.fail(("measure", "samples", name), str(error))
        data = digests_at(
            self._hub,
            self._memory,
            samples.repo,
            self._samples_commit(recipe),
            files=wanted,
            repo_type="dataset",
        )
        if plan.repo is None:
            return Digests({next(iter(plan.files)): commit}, {}, data.files)
        listed = digests_at(self._hub, self._memory, plan.repo, commit, files=plan.files, copies=plan.copies)
        return Digests(listed.files, listed.copies, data.files)

    def _samples_commit(self, recipe: Recipe) -> str:
        want = _samples_of(recipe)
        if want is None:
            ((_, samples),) = recipe.plan.measure.samples.items()
            return samples.revision
        answer = self._answers[want]
        if isinstance(answer, BotError):
            raise UpstreamError(answer.what, where=answer.where, remedy=answer.remedy) from answer
        return answer.sha

    def _held(self, recipe: Recipe, target: Seen) -> Inputs | None:
        """What the release that a target holds was made of; None if it holds none that can be read."""
        return self._inputs(recipe, recipe.plan.target.repo, target.sha)

    def _inputs(self, recipe: Recipe, repo: str, commit: str) -> Inputs | None:
        key = f"{repo.lower()}@{commit}"
        known = self._memory.get("inputs", key)
        if known is None:
            known = self._read_inputs(repo, commit)
            self._memory.put("inputs", key, known)
        if not known:
            return None
        tools = known["tools"] if recipe.plan.rebuild_on == "tools" else {}
        return Inputs(**{**known, "tools": tools})

    def _read_inputs(self, repo: str, commit: str) -> dict[str, Any]:
        there = self._hub.files_at(repo, commit, [Release.PATH])
        if Release.PATH not in there:
            return {}
        data = small_file(self._hub, repo, commit, there[Release.PATH])
        try:
            release = Release.from_json(data, where=f"{repo}@{commit[:12]}: {Release.PATH}")
        except VerificationError:
            return {}  # Publishing takes it for none, too, and says what is wrong with it.
        return _plain_inputs(release)

    # -- pull requests and discussions -------------------------------------------------------------------------------

    def _judged(self, known: _Known) -> Row:
        """What publishing would come to, from all that the bot has opened in the target."""
        recipe, row = known.recipe, known.row
        if known.target is None:
            return replace(row, finding=self._due(known, ("new",), {}))
        requests, notices = self._conversations(recipe.plan.target.repo, row.identity)
        held = known.held.identity if known.held else ""
        there = Situation(
            recipe.name,
            recipe.plan.target.open,
            held,
            requests,
            notices.get(row.identity, notices.get(known.loaded.recipe_id)),
            lambda: self._was_committed(recipe, known.target, row.identity),
        )
        finding = decide(row.identity, there)
        if finding.state == "due" and not finding.reasons:
            finding = self._with_reasons(known, finding, requests, {*notices, held})
        url = f"{self._hub.endpoint}/{recipe.plan.target.repo}"
        return replace(
            row, finding=finding, url=f"{url}/discussions/{finding.number}" if finding.number is not None else url
        )

    def _conversations(self, repo: str, wanted: str) -> tuple[list[Request], dict[str, int]]:
        """The bot's pull requests that carry a release, and its word on withheld ones: identity to discussion.

        A recipe that was stopped as a whole is among these with its own side of the identity.
        """
        pulls, talks = self._hub.pull_requests_and_discussions(repo, author=self._account)
        requests = []
        for pull in pulls:
            key = f"{repo.lower()}#{pull.number}"
            fact = self._memory.get("request", key)
            if fact is None or (pull.status == "closed" and fact["identity"] == wanted):
                # Who closed it last can change; which release it carries cannot.
                own = own_pull_request(self._hub, repo, pull.number, account=self._account)
                commits = bool(own.conversation.commits)
                fact = {"identity": own.identity, "recipe": own.recipe, "as": own.closed_as, "commits": commits}
                self._memory.put("request", key, fact)
            if fact["identity"]:
                closed_as = fact["as"] if pull.status == "closed" else ""
                requests.append(
                    Request(pull.number, pull.status, fact["identity"], fact["recipe"], closed_as, fact["commits"])
                )
        notices: dict[str, int] = {}
        for talk in talks:
            key = f"{repo.lower()}#{talk.number}"
            word = self._memory.get("word", key) if talk.status == "closed" else None
            if word is None:
                word = newest_word(self._hub.conversation(repo, talk.number, author=self._account))
                if talk.status == "closed":
                    self._memory.put("word", key, word)
            if word.get(CLOSED):
                continue
            if named := word.get(IDENTITY):
                notices[named] = talk.number
            if stopped := word.get(STOPPED):
                notices[stopped] = talk.number
        still_open = any(request.is_open for request in requests)
        self._memory.put("looked", repo.lower(), {"at": self._now.isoformat(), "open": still_open})
        return requests, notices

    def _was_committed(self, recipe: Recipe, target: Seen | None, release_id: str) -> bool:
        repo, head = recipe.plan.target.repo, target.sha if target else MAIN
        key = f"{repo.lower()}@{head}:{release_id}:{self._account}"
        known = self._memory.get("committed", key)
        if known is None:
            known = own_commit(self._hub, repo, head, self._account, identity=release_id) is not None
            self._memory.put("committed", key, known)
        return bool(known)

    # -- why, and when -----------------------------------------------------------------------------------------------

    def _with_reasons(self, known: _Known, finding: Finding, requests: list[Request], others: set[str]) -> Finding:
        recipe, release_id = known.recipe, known.row.identity
        assert known.digests is not None  # noqa: S101 -- only a release that is not held gets here
        earlier = [
            request
            for request in requests
            if request.is_open and request.recipe == recipe.name and request.identity != release_id
        ]
        before = known.held
        if earlier:
            commit = self._hub.head(recipe.plan.target.repo, f"refs/pr/{earlier[-1].number}").sha
            before = self._inputs(recipe, recipe.plan.target.repo, commit) or before
        others |= {request.identity for request in requests}
        retries = range(recipe.plan.retry)
        retried = any(identity(recipe, known.digests, retry=count) in others for count in retries)
        now = _inputs_now(known.loaded, release_id, known.digests)
        reasons = reasons_for(now, before, outdated=bool(earlier), retried=retried)
        return self._due(known, reasons, now.upstream)

    def _due(self, known: _Known, reasons: tuple[Reason, ...], upstream: Mapping[str, str]) -> Finding:
        until = self._settles(known, upstream)
        return Finding("cooling down" if until else "due", reasons, until=until)

    def _settles(self, known: _Known, upstream: Mapping[str, str]) -> datetime | None:
        """When the upstream commit will have settled, if it brings files that the target's release was not made of."""
        plan = known.recipe.plan.upstream
        if not plan.cooldown or plan.repo is None:
            return None
        if known.held is not None and dict(known.held.upstream) == dict(upstream):
            return None
        committed = date_of(self._hub, self._memory, plan.repo, known.upstream.sha)
        return settles_at(committed, plan.cooldown, self._now)

    def _patrol(self, held: list[_Known]) -> list[_Known]:
        """Those recipes that are current and are looked at for pull requests that publishing would close.

        One whose target had an open pull request when it was last looked at, always; the others once a day, those
        that were not looked at for the longest time first, as far as this window's budget goes.
        """
        always, others = [], []
        for known in held:
            looked = self._memory.get("looked", known.recipe.plan.target.repo.lower())
            if looked and looked["open"]:
                always.append(known)
            elif not looked or self._now - datetime.fromisoformat(looked["at"]) >= PATROL:
                # Without a memory the order is another at each poll, so that none is left out for ever.
                order = digest([self._now.isoformat(), known.recipe.name])
                others.append((looked["at"] if looked else "", order, known))
        others.sort(key=lambda entry: entry[:2])
        room = self._watcher.budget.spare(API) - len(always)
        return [*always, *(known for _, _, known in others[: int(max(0, min(room, len(others))))])]


def _first_row(recipe: Recipe) -> Row:
    plan = recipe.plan
    return Row(
        recipe.name,
        Finding("unavailable"),
        upstream=plan.upstream.repo or plan.upstream.url or "",
        target=plan.target.repo,
        runner=plan.runner,
    )


def _upstream_of(recipe: Recipe) -> Want | None:
    """The upstream repository; None for a file at an address."""
    plan = recipe.plan.upstream
    return Want(plan.repo, plan.follow) if plan.repo is not None else None


def _target_of(recipe: Recipe) -> Want:
    return Want(recipe.plan.target.repo, card=True)


def _samples_of(recipe: Recipe) -> Want | None:
    """The data set, if the recipe follows a branch of it; a commit never changes."""
    ((_, samples),) = recipe.plan.measure.samples.items()
    return None if _COMMIT.fullmatch(samples.revision) else Want(samples.repo, samples.revision, "dataset")


def _plain_inputs(release: Release) -> dict[str, Any]:
    """What a published release was made of."""
    digests = Digests.of(release.source, release.samples[0]) if release.samples else Digests()
    tools: dict[str, str] = {}
    for artifact in release.artifacts:
        tools |= artifact.built_with
    return {
        "identity": release.identity,
        "commit": release.source.commit,
        "upstream": _upstream_digests(digests),
        "samples": digest(dict(digests.samples)),
        "recipe_id": release.recipe_id,
        "text": digest(release.recipe_text),
        "licences": {each.file: each.sha256 for each in release.licenses if each.file},
        "tools": tools,
    }


def _inputs_now(loaded: Loaded, release_id: str, digests: Digests) -> Inputs:
    """What the release that publishing would make is made of."""
    recipe = loaded.recipe
    return Inputs(
        release_id,
        upstream=_upstream_digests(digests),
        samples=digest(dict(digests.samples)),
        recipe_id=loaded.recipe_id,
        text=digest(recipe.text),
        licences={name: file_sha256(path) for name, path in recipe.license_files().items()},
        tools=versions(TOOLS) if recipe.plan.rebuild_on == "tools" else {},
    )


def _upstream_digests(digests: Digests) -> dict[str, str]:
    return {**digests.upstream, **{f"copies/{path}": sha256 for path, sha256 in digests.copies.items()}}
