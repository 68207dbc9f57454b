"""Refusals of the embedded Hub, in the form in which the Hub's client understands them."""

from __future__ import annotations


class HubError(Exception):
    """A refusal that becomes an HTTP answer.

    Args:
        status: HTTP status.
        message: What the client shows to its user.
        code: Value of ``X-Error-Code``: ``RepoNotFound``, ``RevisionNotFound``, ``EntryNotFound``, ``GatedRepo``
            or empty.
        extra: Further keys of the JSON body.
        headers: Further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        extra: dict[str, object] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.extra = extra or {}
        self.headers = headers or {}


def repo_not_found(repo_id: str) -> HubError:
    """Return the refusal for a repository that does not exist, or that the caller may not know of."""
    # The client leaves out a message that its own text holds already, which is this one.
    return HubError(404, "Repository not found", code="RepoNotFound", extra={"repository": repo_id})


def revision_not_found(revision: str) -> HubError:
    """Return the refusal for a branch, tag, pull request or commit that does not exist."""
    return HubError(404, f"Invalid rev id: {revision}", code="RevisionNotFound")


def entry_not_found(path: str, commit: str = "") -> HubError:
    """Return the refusal for a path that does not exist, with the commit in which it was looked for."""
    headers = {"X-Repo-Commit": commit} if commit else {}
    return HubError(404, f"Entry not found: {path}", code="EntryNotFound", headers=headers)


def bad_request(message: str) -> HubError:
    """Return the refusal of a request that is wrong in itself."""
    return HubError(400, message)
