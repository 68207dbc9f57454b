"""Trusted publishing: a workflow's signed identity is exchanged for a token that is good for one repository.

A repository names its trusted publishers: an issuer, and claims that a statement of that issuer has to make. The
issuer's keys are fetched from the address that it announces, and from nowhere but loopback: the embedded Hub calls no
stranger. Signatures are checked by PyJWT, which the extra ``oidc`` brings.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from bot.localhub import durable
from bot.localhub.errors import HubError, bad_request
from bot.localhub.store import User

if TYPE_CHECKING:
    from bot.localhub.repository import Repository

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - the name of a kind of token
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105
LIFETIME = 3600
"""Seconds that a token is good for."""

WRITER = "[OIDC]"
"""The system user as whom whoever holds such a token writes."""

_FILE = "publishers.json"
_LARGEST = 1 << 20
_PATIENCE = 5.0
_LEEWAY = 30


@dataclass(frozen=True)
class Publisher:
    """Whom a repository trusts.

    Attributes:
        issuer: Who signs the statement.
        claims: What it has to say, word for word. ``branch`` stands for the ``ref`` of a branch, ``workflow`` for the
            file name in ``workflow_ref``; all others are the issuer's own.
    """

    issuer: str
    claims: dict[str, str]

    def accepts(self, said: dict[str, Any]) -> bool:
        """Tell whether a statement, whose signature was checked, makes all claims."""
        return all(_said(said, name) == value for name, value in self.claims.items())


def _said(statement: dict[str, Any], name: str) -> str:
    if name == "branch":
        ref = str(statement.get("ref", ""))
        return ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else ""
    if name == "workflow":
        return str(statement.get("workflow_ref", "")).partition("@")[0].rpartition("/")[2]
    return str(statement.get(name, ""))


def publishers(repository: Repository) -> list[Publisher]:
    """Return whom a repository trusts."""
    found = durable.read_json(repository.folder / "hub" / _FILE) or []
    return [Publisher(str(each["issuer"]), dict(each["claims"])) for each in found]


def set_publishers(repository: Repository, wanted: list[Publisher]) -> None:
    """Replace whom a repository trusts."""
    with repository.writing():
        plain = [{"issuer": each.issuer, "claims": each.claims} for each in wanted]
        repository.transact({}, {_FILE: plain})


def publisher_from_json(value: object) -> Publisher:
    """Return a publisher from ``{"issuer": ..., "claims": {...}}``.

    Raises:
        HubError: 400 for anything else, for no claims, and for an issuer that is not on loopback.
    """
    issuer = value.get("issuer") if isinstance(value, dict) else None
    claims = value.get("claims") if isinstance(value, dict) else None
    if not isinstance(issuer, str) or not isinstance(claims, dict) or not claims:
        raise bad_request("A trusted publisher has an issuer and claims")
    if not all(isinstance(name, str) and isinstance(text, str) and text for name, text in claims.items()):
        raise bad_request("A claim is a text")
    if not _is_loopback(issuer):
        raise bad_request("The embedded Hub trusts issuers on loopback only: it asks no other machine for keys")
    return Publisher(issuer.rstrip("/"), claims)


def _is_loopback(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.username is not None:
        return False
    try:
        return parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


class Exchange:
    """Gives out tokens and knows those that are good; they are forgotten when the Hub ends.

    Args:
        now: The time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._tokens: dict[str, tuple[User, float]] = {}
        self._lock = threading.Lock()

    def give(self, repository: Repository, statement: str, audience: str) -> str:
        """Return a token for a repository, for a statement that one of its trusted publishers makes.

        Args:
            repository: What the token shall be good for.
            statement: The signed statement, a JWT.
            audience: Whom it has to be made for: this Hub.

        Raises:
            HubError: 400 ``invalid_grant`` if it is not. What exactly is wrong is not said.
        """
        issuer = _issuer_of(statement)
        trusted = [each for each in publishers(repository) if each.issuer == issuer]
        if not trusted:
            refuse()
        said = _verified(statement, issuer, audience)
        if not any(each.accepts(said) for each in trusted):
            refuse()
        token = f"hf_jwt_{secrets.token_urlsafe(32)}"
        user = User(WRITER, "write", only=f"{repository.kind}/{repository.repo_id}")
        with self._lock:
            now = self._now()
            self._tokens = {each: kept for each, kept in self._tokens.items() if kept[1] > now}
            self._tokens[token] = (user, now + LIFETIME)
        return token

    def bearer(self, token: str) -> User | None:
        """Return who holds a token that was given out here; None for any other."""
        with self._lock:
            user, until = self._tokens.get(token, (None, 0.0))
        if user is not None and until <= self._now():
            raise HubError(401, "Invalid credentials: the token has expired")
        return user


def refuse() -> NoReturn:
    """Refuse an exchange without saying what was wrong with it.

    Raises:
        HubError: 400, always.
    """
    said = "no trusted publisher of this repository makes this statement"
    raise HubError(400, "invalid_grant", extra={"error": "invalid_grant", "error_description": said})


def _issuer_of(statement: str) -> str:
    """Return the issuer that a statement claims; nothing is checked yet."""
    jwt = _library()
    try:
        return str(jwt.decode(statement, options={"verify_signature": False}).get("iss", "")).rstrip("/")
    except jwt.PyJWTError:
        refuse()


def _verified(statement: str, issuer: str, audience: str) -> dict[str, Any]:
    """Return what a statement says once its signature, issuer, audience and dates hold."""
    jwt = _library()
    try:
        wanted = jwt.get_unverified_header(statement).get("kid")
        keys = jwt.PyJWKSet.from_dict(_keys_of(issuer))
        key = next(key for key in keys.keys if key.key_id == wanted)
        said: dict[str, Any] = jwt.decode(
            statement,
            key.key,
            algorithms=["RS256"],
            audience=audience,
            issuer=issuer,
            leeway=_LEEWAY,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )
    except (jwt.PyJWTError, StopIteration, OSError, ValueError, KeyError, TypeError):
        refuse()
    return said


def _keys_of(issuer: str) -> dict[str, Any]:
    """Return the issuer's keys, from where its own announcement says that they are: at its own address."""
    about = _fetch(f"{issuer}/.well-known/openid-configuration")
    where = str(about.get("jwks_uri", ""))
    if str(about.get("issuer", "")).rstrip("/") != issuer or urlsplit(where)[:2] != urlsplit(issuer)[:2]:
        raise ValueError("the issuer announces something else")
    return _fetch(where)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: it might lead away from loopback."""


def _fetch(url: str) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
    with opener.open(url, timeout=_PATIENCE) as answer:
        value = json.loads(answer.read(_LARGEST))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _library() -> Any:
    try:
        import jwt
    except ImportError:
        raise HubError(501, "Trusted publishing needs PyJWT: pip install 'hub-publishing-bot[oidc]'") from None
    return jwt
