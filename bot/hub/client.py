"""A Hub, as the rest of the bot sees it: typed answers, time-outs, and errors that say what to do.

`Hub` stands around the client library's `HfApi`. It is given its endpoint and its token and takes neither from the
environment. Reads are repeated by the session (see `bot.hub.session`); a write is sent once, and if its answer is lost
or unclear it raises `Doubtful`, upon which the caller reads what the Hub holds.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from bot.errors import BotError, HubError, StepError
from bot.hub.library import disk_full, library
from bot.hub.retry import TRANSIENT, HubUnavailable, Policy
from bot.hub.tokens import is_loopback, normal_endpoint

if TYPE_CHECKING:
    from bot.hub.download import Expected

RepoType = Literal["model", "dataset"]

Progress = Callable[[int, int, str], None]
"""Called while bytes move: the bytes so far, the bytes in all (0 if that is not known), the file."""

_STATUSES = ("open", "draft", "closed", "merged")
_SHA = re.compile(r"[0-9a-f]{40}")

SMALL_FILE = 16 * 1024 * 1024
"""Bytes. The largest file that is ever read into memory."""


class NotFound(HubError):
    """There is no such repository, revision or file, or the account may not know of it."""


class Refused(HubError):
    """The Hub knows who asks, or that nobody in particular asks, and says no."""


class Gated(Refused):
    """The repository's files are given only to accounts that asked for access and were accepted."""


class Garbled(HubError):
    """An answer that makes no sense, as after a flipped bit or from something between us and the Hub."""


class Doubtful(HubError):
    """A write failed in a way that leaves open whether it happened. Read the Hub before writing again.

    Attributes:
        wait: Seconds that the Hub asked to wait; None if it did not.
    """

    wait: float | None = None


class Conflict(Doubtful):
    """The Hub changed between our reading it and our writing to it."""


@dataclass(frozen=True)
class Head:
    """The newest commit of a repository at a revision.

    Attributes:
        sha: The full commit; empty for a repository without any.
        private: Whether strangers see it.
        gated: Whether its files must be asked for.
    """

    sha: str
    private: bool = False
    gated: bool = False


@dataclass(frozen=True)
class TreeFile:
    """A file in a commit's tree.

    Attributes:
        path: In the repository.
        bytes: Of its content.
        blob: sha1 of the git blob: of the content itself, or of the pointer of a large file.
        sha256: Of a large file's content; empty for a file that lies in git itself.
    """

    path: str
    bytes: int
    blob: str
    sha256: str = ""

    def holds(self, *, sha256: str, blob: str) -> bool:
        """Whether it has this content, given by both of its ids."""
        return self.sha256 == sha256 if self.sha256 else self.blob == blob


@dataclass(frozen=True)
class Resolved:
    """What the Hub answers to a consumer who asks for a file, without its content.

    Attributes:
        commit: The commit that the revision stands for.
        bytes: Size of the content; None if the Hub does not say it.
        sha256: Of the content, as the Hub keeps it of a large file; empty for a file that lies in git itself.
    """

    commit: str
    bytes: int | None
    sha256: str


@dataclass(frozen=True)
class Commit:
    """One commit of a history: full sha, first line and whole text of the message, accounts, date."""

    sha: str
    title: str
    message: str
    authors: tuple[str, ...]
    date: datetime


@dataclass(frozen=True)
class PullRequest:
    """A pull request as a listing shows it. `status` is `open`, `draft`, `closed` or `merged`."""

    number: int
    title: str
    status: str
    author: str

    @property
    def revision(self) -> str:
        """The ref that holds its commits."""
        return f"refs/pr/{self.number}"

    @property
    def is_open(self) -> bool:
        """Whether it can still be merged."""
        return self.status in ("open", "draft")


@dataclass(frozen=True)
class Remark:
    """A comment or a change of status. `kind` is `comment` or `status`; `text` is the comment or the new status."""

    kind: Literal["comment", "status"]
    author: str
    text: str


@dataclass(frozen=True)
class Conversation:
    """A pull request or discussion.

    Attributes:
        pull_request: What the listing tells of it.
        remarks: What was said and decided in it, in order.
        commits: The commits that were made to it, in order.
        merge_commit: The commit that merged it; empty if nothing did.
    """

    pull_request: PullRequest
    remarks: tuple[Remark, ...]
    commits: tuple[str, ...] = ()
    merge_commit: str = ""

    @property
    def description(self) -> str:
        """The first comment, if its author is the one who opened the conversation."""
        first = next((remark for remark in self.remarks if remark.kind == "comment"), None)
        return first.text if first is not None and first.author == self.pull_request.author else ""


@dataclass(frozen=True)
class Landed:
    """A commit that the Hub confirmed: its sha, its address, and the number of the pull request that it opened."""

    sha: str
    url: str
    number: int | None = None


Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def _again_if_garbled(call: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Lets a call that only reads ask once more if the answer made no sense."""

    @wraps(call)
    def patient(*arguments: Arguments.args, **more: Arguments.kwargs) -> Result:
        try:
            return call(*arguments, **more)
        except Garbled:
            return call(*arguments, **more)

    return patient


class Hub:
    """One Hub, reached with one token or with none.

    Args:
        endpoint: Its address.
        token: Sent to this endpoint and to nothing else; None to ask as nobody.
        policy: Time-outs and retries.
        account: The account that stands as the author of what the token writes; the Hub is asked if it is left out.

    Raises:
        RecipeError: The endpoint is malformed, or is plain http to another machine.
    """

    def __init__(
        self, endpoint: str, token: str | None = None, *, policy: Policy | None = None, account: str | None = None
    ) -> None:
        self.endpoint = normal_endpoint(endpoint)
        self.policy = policy or Policy()
        self.has_token = bool(token)
        self._account = account
        self._embedded: bool | None = None
        hf = library()
        from bot.hub import session

        session.admit(self.endpoint, token, self.policy)
        # False, not None: with None the library would look for a token by itself.
        self._api = hf.HfApi(endpoint=self.endpoint, token=token or False, library_name=session.AGENT)

    def __repr__(self) -> str:
        return f"Hub({self.endpoint!r}, {'with' if self.has_token else 'without'} a token)"

    # -- who and what ------------------------------------------------------------------------------------------------

    @property
    def account(self) -> str | None:
        """The name of the account that the token belongs to, or that was named; None without either.

        Raises:
            Refused: The Hub does not know the token.
        """
        if self.has_token and self._account is None:
            self._account = self._whoami()
        return self._account

    @_again_if_garbled
    def _whoami(self) -> str:
        with self._reading("who am I"):
            return str(self._api.whoami()["name"])

    def is_embedded(self) -> bool:
        """Whether this is an embedded Hub on this very machine: the only kind that takes models with random weights.

        Raises:
            HubError: A loopback address does not answer at all.
        """
        if self._embedded is None:
            host = urlsplit(self.endpoint).hostname or ""
            self._embedded = is_loopback(host) and self._says_embedded()
        return self._embedded

    def _says_embedded(self) -> bool:
        try:
            answer = self.get_json("/api/embedded-hub")
        except HubUnavailable:
            raise
        except HubError:
            return False
        return isinstance(answer, Mapping) and answer.get("embedded") is True

    # -- reading -----------------------------------------------------------------------------------------------------

    @_again_if_garbled
    def head(self, repo: str, revision: str | None = None, *, repo_type: RepoType = "model") -> Head:
        """The commit that a revision stands for now.

        Args:
            repo: `owner/name`.
            revision: Branch, tag, `refs/pr/N` or commit; None for the main branch.
            repo_type: `model` or `dataset`.

        Raises:
            NotFound: There is no such repository or revision.
            Gated: It is gated and even its description is not given out.
            Refused: It is private.
        """
        with self._reading(_where(repo, revision)):
            info = self._api.repo_info(repo, revision=revision, repo_type=repo_type)
        return Head(str(info.sha or ""), bool(getattr(info, "private", False)), bool(getattr(info, "gated", False)))

    @_again_if_garbled
    def tree(
        self, repo: str, revision: str, folder: str = "", *, recursive: bool = True, repo_type: RepoType = "model"
    ) -> dict[str, TreeFile]:
        """The files of a commit, by path; those of one folder if one is named.

        Raises:
            NotFound: No such repository, revision or folder.
        """
        hf = library()
        with self._reading(_where(repo, revision, folder)):
            items = self._api.list_repo_tree(
                repo, path_in_repo=folder or None, revision=revision, recursive=recursive, repo_type=repo_type
            )
            return {item.path: _tree_file(item) for item in items if isinstance(item, hf.RepoFile)}

    @_again_if_garbled
    def files_at(
        self, repo: str, revision: str, paths: Sequence[str], *, repo_type: RepoType = "model"
    ) -> dict[str, TreeFile]:
        """Those of `paths` that are files of a commit. Paths that are not are left out."""
        hf, found = library(), {}
        for begin in range(0, len(paths), 200):
            with self._reading(_where(repo, revision)):
                items = self._api.get_paths_info(
                    repo, list(paths[begin : begin + 200]), revision=revision, repo_type=repo_type
                )
            found.update({item.path: _tree_file(item) for item in items if isinstance(item, hf.RepoFile)})
        return found

    def resolve(self, repo: str, revision: str, path: str) -> Resolved:
        """Asks for a model's file as every consumer does, by its address, and reads the head of the answer only.

        Raises:
            NotFound: There is no such repository, revision or file.
            Refused: It is not given to whoever asks.
        """
        from huggingface_hub.file_download import get_hf_file_metadata

        library()
        url = self.file_url(repo, revision, path)
        with self._reading(_where(repo, revision, path)):
            found = get_hf_file_metadata(url, token=False, headers=self.headers(), endpoint=self.endpoint)
        etag = str(found.etag or "")
        return Resolved(str(found.commit_hash or ""), found.size, etag if len(etag) == 64 else "")

    def commit_of(self, repo: str, revision: str, *, repo_type: RepoType = "model") -> str:
        """The commit that a revision stands for now, by one HEAD of a file, which costs less than asking for more.

        Args:
            repo: `owner/name`.
            revision: Branch, tag or commit.
            repo_type: `model` or `dataset`.

        Raises:
            NotFound: There is no such repository or revision.
            Refused: It is private or gated.
        """
        from huggingface_hub.file_download import get_hf_file_metadata

        library()
        url, where = self.file_url(repo, revision, "README.md", repo_type=repo_type), _where(repo, revision)
        try:
            with self._reading(where):
                found = get_hf_file_metadata(url, token=False, headers=self.headers(), endpoint=self.endpoint)
            commit = str(found.commit_hash or "")
        except NotFound as error:
            # That there is no such file is said with the commit that lacks it.
            response = getattr(error.__cause__, "response", None)
            commit = str(response.headers.get("x-repo-commit", "")) if response is not None else ""
            if not commit:
                raise
        if not _SHA.fullmatch(commit):
            raise Garbled(f"names no commit: {commit[:80]!r}", where=where)
        return commit

    def models_of(self, author: str, fields: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        """The models of an account or organisation, newest change first, a page for each request.

        Args:
            author: The account.
            fields: What to tell of each, besides its `id`: `sha`, `lastModified`, `cardData`, …

        Yields:
            Rows as the Hub gives them: untrusted plain data.
        """
        query = urlencode(
            [("author", author), ("sort", "lastModified"), ("limit", 1000), *(("expand", f) for f in fields)]
        )
        url: str | None = f"/api/models?{query}"
        while url is not None:
            page, url = self._model_page(url, f"models of {author}")
            yield page

    @_again_if_garbled
    def _model_page(self, url: str, what: str) -> tuple[list[dict[str, Any]], str | None]:
        """One page of a listing, and the address of the next."""
        with self._reading(what):
            response = self._get(url)
            rows = response.json()
            if not isinstance(rows, list):
                raise ValueError("it is no list")
            return [row for row in rows if isinstance(row, dict)], response.links.get("next", {}).get("url")

    def commits(self, repo: str, revision: str, *, limit: int = 100, repo_type: RepoType = "model") -> Iterator[Commit]:
        """The history of a revision, newest first, read page by page as it is asked for.

        Args:
            repo: `owner/name`.
            revision: Where to begin.
            limit: How many at most.
            repo_type: `model` or `dataset`.
        """
        url: str | None = f"/api/{repo_type}s/{repo}/commits/{quote(revision, safe='')}"
        while url is not None and limit > 0:
            page, url = self._commit_page(url, _where(repo, revision))
            yield from page[:limit]
            limit -= len(page)

    @_again_if_garbled
    def _commit_page(self, url: str, what: str) -> tuple[list[Commit], str | None]:
        """One page of a history, and the address of the next."""
        parse = library().utils.parse_datetime
        with self._reading(what):
            response = self._get(url)
            page = [
                Commit(
                    str(row["id"]),
                    str(row["title"]),
                    f"{row['title']}\n\n{row['message']}".rstrip(),
                    tuple(str(author["user"]) for author in row["authors"]),
                    parse(row["date"]),
                )
                for row in response.json()
            ]
            return page, response.links.get("next", {}).get("url")

    def pull_requests(self, repo: str, *, author: str, repo_type: RepoType = "model") -> list[PullRequest]:
        """The pull requests that an account opened, whatever became of them, oldest first.

        Raises:
            HubError: The listing failed. It is never taken for "there are none".
        """
        return self._listing(repo, author, "pull_request", repo_type)

    def discussions(self, repo: str, *, author: str, repo_type: RepoType = "model") -> list[PullRequest]:
        """The same for its discussions, which are conversations without commits."""
        return self._listing(repo, author, "discussion", repo_type)

    def pull_requests_and_discussions(self, repo: str, *, author: str) -> tuple[list[PullRequest], list[PullRequest]]:
        """Both of the above, in one listing."""
        with self._reading(f"pull requests and discussions of {repo}"):
            items = [
                (bool(item.is_pull_request), _pull_request(item))
                for item in self._api.get_repo_discussions(repo, author=author, repo_type="model")
            ]
        mine = sorted((pair for pair in items if pair[1].author == author), key=lambda pair: pair[1].number)
        return [item for is_request, item in mine if is_request], [item for is_request, item in mine if not is_request]

    @_again_if_garbled
    def _listing(self, repo: str, author: str, kind: str, repo_type: RepoType) -> list[PullRequest]:
        with self._reading(f"{kind.replace('_', ' ')}s of {repo}"):
            found = [
                _pull_request(item)
                for item in self._api.get_repo_discussions(
                    repo, author=author, discussion_type=kind, repo_type=repo_type
                )
                if item.is_pull_request == (kind == "pull_request")
            ]
        # The Hub was asked for this author; that it kept to it is not taken on trust.
        return sorted((item for item in found if item.author == author), key=lambda item: item.number)

    @_again_if_garbled
    def conversation(self, repo: str, number: int, *, author: str = "", repo_type: RepoType = "model") -> Conversation:
        """A pull request or discussion with its comments and changes of status.

        Args:
            repo: `owner/name`.
            number: Its number.
            author: Who opened it, if a listing told it already; the two have to agree.
            repo_type: `model` or `dataset`.
        """
        with self._reading(f"{repo} #{number}"):
            item = self._api.get_discussion_details(repo, number, repo_type=repo_type)
            request = _pull_request(item)
            if request.number != number:
                raise ValueError(f"it is about #{request.number}")
            if author and request.author != author:
                raise ValueError(f"it is listed as {author}'s, and shown as {request.author}'s")
        remarks: list[Remark] = []
        commits = tuple(str(getattr(event, "oid", "")) for event in item.events if event.type == "commit")
        for event in item.events:
            if event.type == "comment":
                remarks.append(Remark("comment", str(event.author), str(getattr(event, "content", ""))))
            elif event.type == "status-change":
                remarks.append(Remark("status", str(event.author), str(getattr(event, "new_status", ""))))
        return Conversation(request, tuple(remarks), commits, str(item.merge_commit_oid or ""))

    @_again_if_garbled
    def read_bytes(
        self, repo: str, revision: str, path: str, *, largest: int = SMALL_FILE, repo_type: RepoType = "model"
    ) -> bytes:
        """The content of a small file.

        Raises:
            NotFound: There is no such file.
            HubError: It is larger than `largest` bytes.
        """
        from bot.hub.download import read_url

        with self._reading(_where(repo, revision, path)):
            return read_url(self.file_url(repo, revision, path, repo_type=repo_type), self.headers(), largest)

    def download(
        self,
        repo: str,
        revision: str,
        path: str,
        target: Path,
        expected: Expected,
        *,
        on_bytes: Callable[[int], None] | None = None,
        repo_type: RepoType = "model",
    ) -> str:
        """Brings a file to `target`; see `bot.hub.download.download`.

        Returns:
            The sha256 of its content.
        """
        from bot.hub.download import download

        with self._reading(_where(repo, revision, path)):
            url = self.file_url(repo, revision, path, repo_type=repo_type)
            return download(url, self.headers(), target, expected, self.policy, on_bytes)

    @_again_if_garbled
    def get_json(self, path: str) -> Any:
        """The JSON that a path of the API answers with."""
        with self._reading(path):
            return self._get(path).json()

    def file_url(self, repo: str, revision: str, path: str, *, repo_type: RepoType = "model") -> str:
        """Where the bytes of a file are."""
        prefix = "" if repo_type == "model" else f"{repo_type}s/"
        return f"{self.endpoint}/{prefix}{repo}/resolve/{quote(revision, safe='')}/{quote(path)}"

    def headers(self) -> dict[str, str]:
        """The headers of a request to this endpoint, the token among them."""
        return dict(self._api._build_hf_headers())

    # -- writing -----------------------------------------------------------------------------------------------------

    def create_repo(self, repo: str, *, private: bool = False, repo_type: RepoType = "model") -> None:
        """Creates a repository; one that exists already is left as it is.

        Raises:
            Refused: The account may not create it there.
            Doubtful: No clear answer.
        """
        with self._writing(f"create {repo}", repo):
            try:
                self._api.create_repo(repo, private=private, repo_type=repo_type)
            except Exception as error:
                if _status(error) != 409:
                    raise

    def commit(
        self,
        repo: str,
        files: Mapping[str, Path | bytes],
        *,
        message: str,
        description: str,
        revision: str,
        parent: str,
        deleted: Sequence[str] = (),
        open_pull_request: bool = False,
        repo_type: RepoType = "model",
    ) -> Landed:
        """Makes one commit, sent once.

        Args:
            repo: `owner/name`.
            files: Content by path in the repository. Nothing else is touched.
            message: First line.
            description: The rest of the message, and of the pull request's first comment.
            revision: The branch, or `refs/pr/N`.
            parent: The head that the caller saw. If the revision has moved on, nothing is committed.
            deleted: Paths of files that are deleted in the same commit.
            open_pull_request: Open a pull request with this commit in place of changing the branch.
            repo_type: `model` or `dataset`.

        Raises:
            Conflict: The revision has moved on, or an earlier attempt has landed.
            Doubtful: No clear answer; the commit may be there.
            Refused: The account may not write there.
        """
        hf = library()
        operations = [
            hf.CommitOperationAdd(
                path_in_repo=path, path_or_fileobj=content if isinstance(content, bytes) else str(content)
            )
            for path, content in sorted(files.items())
        ]
        operations += [hf.CommitOperationDelete(path_in_repo=path, is_folder=False) for path in sorted(deleted)]
        with self._writing(f"commit to {_where(repo, revision)}", repo):
            landed = self._api.create_commit(
                repo,
                operations,
                commit_message=message,
                commit_description=description,
                revision=revision,
                parent_commit=parent,
                create_pr=open_pull_request,
                repo_type=repo_type,
            )
        number = int(landed.pr_num) if landed.pr_num is not None else None
        return Landed(str(landed.oid), str(landed.pr_url or landed.commit_url), number)

    def open_discussion(self, repo: str, title: str, text: str) -> int:
        """Opens a discussion and returns its number."""
        with self._writing(f"open a discussion in {repo}", repo):
            return int(self._api.create_discussion(repo, title, description=text, repo_type="model").num)

    def comment(self, repo: str, number: int, text: str) -> None:
        """Says something in a pull request or discussion."""
        with self._writing(f"comment on {repo} #{number}", repo):
            self._api.comment_discussion(repo, number, comment=text, repo_type="model")

    def edit_comment(self, repo: str, number: int, comment: str, text: str) -> None:
        """Puts another text in place of a comment, which is named by its id."""
        with self._writing(f"edit a comment on {repo} #{number}", repo):
            self._api.edit_discussion_comment(repo, number, comment, text, repo_type="model")

    def hide_comment(self, repo: str, number: int, comment: str) -> None:
        """Hides a comment, which is named by its id, for good."""
        with self._writing(f"hide a comment on {repo} #{number}", repo):
            self._api.hide_discussion_comment(repo, number, comment, repo_type="model")

    def set_status(self, repo: str, number: int, status: Literal["open", "closed"], *, comment: str = "") -> None:
        """Opens or closes a pull request or discussion."""
        with self._writing(f"mark {repo} #{number} as {status}", repo):
            self._api.change_discussion_status(repo, number, status, comment=comment or None, repo_type="model")

    # -- within ------------------------------------------------------------------------------------------------------

    def _get(self, url: str) -> Any:
        hf = library()
        response = hf.utils.get_session().get(url if "://" in url else self.endpoint + url, headers=self.headers())
        hf.utils.hf_raise_for_status(response)
        return response

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Turns the library's exceptions into ours, for calls that change nothing."""
        try:
            yield
        except BotError:
            raise
        except Exception as error:
            _raise_known(error, what, self, "read")
            if (status := _status(error)) is not None:
                raise HubError(f"was refused with HTTP {status}: {_brief(error)}", where=what) from error
            raise Garbled(f"gave an answer that makes no sense ({_brief(error)}).", where=what) from error

    @contextmanager
    def _writing(self, what: str, repo: str) -> Iterator[None]:
        """The same for calls that change something: what is unclear becomes `Doubtful`."""
        try:
            yield
        except BotError:
            raise
        except Exception as error:
            cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ is not None else error
            if isinstance(cause, BotError):
                raise cause from error
            _raise_known(cause, what, self, f"write to {repo}")
            status = _status(cause)
            if status in (409, 412):
                raise Conflict("the Hub changed in the meantime.", where=what) from error
            if status is not None and status not in TRANSIENT:
                raise HubError(f"was refused with HTTP {status}: {_brief(cause)}", where=what) from error
            if _is_refusal_of_content(cause):
                raise HubError(f"was refused: {_brief(cause)}", where=what) from error
            doubt = Doubtful(f"gave no clear answer ({_brief(cause)}).", where=what)
            response = getattr(cause, "response", None)
            if response is not None:
                doubt.wait = self.policy.asked_wait(status, dict(response.headers))
            raise doubt from error


def _pull_request(item: Any) -> PullRequest:
    """What a listing or a conversation tells of a pull request or discussion.

    Raises:
        ValueError: Its status is none that there is.
    """
    if item.status not in _STATUSES:
        raise ValueError(f"no such status: {item.status!r}")
    return PullRequest(int(item.num), str(item.title), str(item.status), str(item.author))


def _tree_file(item: Any) -> TreeFile:
    return TreeFile(str(item.path), int(item.size), str(item.blob_id), str(item.lfs.sha256) if item.lfs else "")


def _where(repo: str, revision: str | None = None, path: str = "") -> str:
    place = f"{repo}@{revision}" if revision else repo
    return f"{place}: {path}" if path else place


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    return int(response.status_code) if response is not None else None


def _brief(error: BaseException) -> str:
    """The first line that says something, without the address that the library puts into it."""
    message = getattr(error, "server_message", None) or str(error)
    line = next((line.strip() for line in str(message).splitlines() if line.strip()), "")
    return line[:300] or type(error).__name__


def _is_refusal_of_content(error: BaseException) -> bool:
    """Whether the Hub looked at what was to be committed and found it wrong, which no repetition will change."""
    import json

    from huggingface_hub.errors import HfUriError

    return isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError | HfUriError)


def _raise_known(error: BaseException, what: str, hub: Hub, aim: str) -> None:
    """Raises the error of ours that an exception of the library means; returns if there is none."""
    from huggingface_hub import errors

    if isinstance(error, errors.OfflineModeIsEnabled):
        raise HubError(
            "the Hub's library is told to stay offline.", where=what, remedy="Unset HF_HUB_OFFLINE."
        ) from error
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        raise disk_full(error.filename or "") from error
    if isinstance(error, OSError) and error.errno is not None and error.filename:
        raise StepError(f"{error.strerror}.", where=str(error.filename)) from error
    status = _status(error)
    if isinstance(error, errors.GatedRepoError):
        raise Gated(
            "is gated: its files are given only to accounts that were accepted.",
            where=what,
            remedy=f"Ask for access in a browser, at {hub.endpoint}, as the account whose token you use.",
        ) from error
    if isinstance(error, errors.RepositoryNotFoundError):
        raise NotFound(
            "there is no such repository, or it is private.",
            where=what,
            remedy="" if hub.has_token else "If it is private, give a token that may read it.",
        ) from error
    if isinstance(error, errors.RevisionNotFoundError):
        raise NotFound("there is no such revision.", where=what) from error
    if isinstance(error, errors.EntryNotFoundError):
        raise NotFound("there is no such file.", where=what) from error
    if status == 404:
        raise NotFound("the Hub has nothing there.", where=what) from error
    if status in (401, 403):
        _raise_refused(error, what, hub, aim)
    if status == 413:
        raise HubError("was refused because it is too large for the Hub.", where=what) from error


def _raise_refused(error: BaseException, what: str, hub: Hub, aim: str) -> NoReturn:
    if not hub.has_token:
        problem = f"the Hub wants to know who asks, and there is no token for {hub.endpoint}."
        remedy = "Give one by --token-file, or by BOT_HUB_TOKEN together with BOT_HUB_ENDPOINT."
    elif _status(error) == 401:
        problem = f"the Hub does not accept the token for {hub.endpoint}: {_brief(error)}."
        remedy = f"It may have been revoked or have expired. Make a new one at {hub.endpoint}/settings/tokens."
    else:
        problem = f"the account may not {aim}: {_brief(error)}."
        remedy = f"Give its token that right at {hub.endpoint}/settings/tokens, or ask the owner to."
    raise Refused(problem, where=what, remedy=remedy) from error
