"""Which token belongs to which Hub.

A token is a key to one house. The one in `HF_TOKEN`, or in the file that the Hub's own tools keep, belongs to the Hub
that `HF_ENDPOINT` names, which is the public one unless it is set; `BOT_HUB_TOKEN` belongs to `BOT_HUB_ENDPOINT`; a
file that was named on the command line belongs to the Hub that was named beside it. No other Hub ever sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from bot.errors import RecipeError

PUBLIC_HUB = "https://huggingface.co"

_DEFAULT_PORTS = {"http": 80, "https": 443}
_LONGEST_TOKEN = 64 * 1024


def normal_endpoint(endpoint: str) -> str:
    """An endpoint in the one spelling in which endpoints are compared.

    Scheme and host in lower case, no default port, no trailing slash.

    Raises:
        RecipeError: It is no http or https URL, it holds a user name, a query or a fragment, or it is plain http to
            another machine, where everyone on the way could read the token.
    """
    try:
        parts = urlsplit(endpoint.strip())
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise RecipeError(f"is not a URL: {error}", where=f"endpoint {endpoint!r}") from error
    where = f"endpoint {host or endpoint!r}"
    if parts.scheme not in _DEFAULT_PORTS or not host:
        raise RecipeError(
            "is not the URL of a Hub.", where=where, remedy=f"Write it as {PUBLIC_HUB} or http://127.0.0.1:PORT."
        )
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise RecipeError(
            "holds a user name, a query or a fragment.",
            where=where,
            remedy="Give the address alone, and the token by --token-file or BOT_HUB_TOKEN.",
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise RecipeError(
            "is plain http to another machine, where a token could be read.", where=where, remedy="Use https."
        )
    shown = f"[{host}]" if ":" in host else host
    netloc = shown if port in (None, _DEFAULT_PORTS[parts.scheme]) else f"{shown}:{port}"
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its very name or address; no name is looked up."""
    name = host.lower().strip("[]")
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def default_endpoint(environ: Mapping[str, str]) -> str:
    """The Hub that is meant when none is named: that of `HF_ENDPOINT`, or the public one."""
    return normal_endpoint(environ.get("HF_ENDPOINT", "").strip() or PUBLIC_HUB)


def token_for(endpoint: str, environ: Mapping[str, str], explicit: str | None = None) -> str | None:
    """The token that may be sent to an endpoint.

    Args:
        endpoint: The Hub that will be talked to.
        environ: The environment variables.
        explicit: A token that was given together with this endpoint; it wins over the environment.

    Returns:
        The token, or None if there is none for this endpoint.

    Raises:
        RecipeError: A token is malformed, `BOT_HUB_TOKEN` comes without `BOT_HUB_ENDPOINT`, or an endpoint is
            malformed.
    """
    wanted = normal_endpoint(endpoint)
    if explicit is not None:
        return _clean(explicit, where="the token that was given")
    pair = _paired(environ)
    if pair is not None and pair[0] == wanted:
        return pair[1]
    if default_endpoint(environ) != wanted:
        return None
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if environ.get(name, "").strip():
            return _clean(environ[name], where=name)
    return _stored(_token_path(environ))


def read_token_file(path: Path) -> str:
    """The token in a file that a person named.

    Raises:
        RecipeError: It cannot be read, or holds no token.
    """
    where = f"token file {path}"
    try:
        with path.open("r", encoding="utf-8") as stream:
            text = stream.read(_LONGEST_TOKEN)
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.", where=where
        ) from None
    if not text.strip():
        raise RecipeError("is empty.", where=where)
    return _clean(text, where=where)


def _stored(path: Path) -> str | None:
    """The token that the Hub's own tools keep; None if nobody is logged in."""
    if not path.is_file():
        return None
    return read_token_file(path)


def _paired(environ: Mapping[str, str]) -> tuple[str, str] | None:
    token = environ.get("BOT_HUB_TOKEN", "").strip()
    if not token:
        return None
    endpoint = environ.get("BOT_HUB_ENDPOINT", "").strip()
    if not endpoint:
        raise RecipeError(
            "does not say which Hub it is for.",
            where="BOT_HUB_TOKEN",
            remedy="Set BOT_HUB_ENDPOINT to the address of that Hub as well.",
        )
    return normal_endpoint(endpoint), _clean(token, where="BOT_HUB_TOKEN")


def _token_path(environ: Mapping[str, str]) -> Path:
    """Where the Hub's own tools keep the token."""
    if environ.get("HF_TOKEN_PATH"):
        return Path(environ["HF_TOKEN_PATH"]).expanduser()
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]).expanduser() / "token"
    cache = environ.get("XDG_CACHE_HOME")
    home = Path(environ.get("HOME") or "~").expanduser()
    return (Path(cache).expanduser() if cache else home / ".cache") / "huggingface" / "token"


def _clean(token: str, *, where: str) -> str:
    """A token without the white space around it. Its text is never part of an error."""
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise RecipeError("is not a token: it holds white space or characters that no token has.", where=where)
    return token
