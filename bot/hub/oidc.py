"""Trusted publishing: a workflow's identity in exchange for a token that is good for one repository and one hour.

The Hub's own library does the exchange: it asks the runner for a signed statement about the running workflow and hands
it to the Hub, which compares it with the trusted publishers of the repository. It does so for the one Hub that
`HF_ENDPOINT` names and the one repository that `HF_OIDC_RESOURCE` names; here is seen to it that these are the Hub
that the bot talks to and the target of the recipe, and that a failure says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping

from bot.errors import HubError, RecipeError
from bot.hub.tokens import default_endpoint, normal_endpoint

RESOURCE = "HF_OIDC_RESOURCE"
ACCOUNT = "BOT_HUB_ACCOUNT"
"""Names the account that stands as the author of what such a token writes, should the token not be allowed to ask."""


def wanted(endpoint: str, target: str | None, environ: Mapping[str, str]) -> bool:
    """Whether a token for this Hub has to come from an exchange.

    Args:
        endpoint: The Hub that is talked to.
        target: The repository that is written to; None if none is.
        environ: The environment variables.

    Raises:
        RecipeError: `HF_OIDC_RESOURCE` names another repository.
    """
    resource = environ.get(RESOURCE, "").strip()
    if not resource or target is None or normal_endpoint(endpoint) != default_endpoint(environ):
        return False
    if resource != target:
        raise RecipeError(
            f"is {resource!r}, and this recipe publishes in {target!r}: the token would be for another repository.",
            where=RESOURCE,
            remedy="Give each recipe a job of its own, with the variable set to the recipe's target.",
        )
    return True


def exchange(endpoint: str, target: str) -> str:
    """Exchanges the identity of the running workflow for a token that may write to one repository.

    Raises:
        RecipeError: The job has no identity to show.
        HubError: The Hub does not accept it, or cannot be reached.
    """
    import httpx2

    from bot.hub.library import library

    hf = library()
    try:
        token = hf.get_token()
    except hf.errors.OIDCError as error:
        raise RecipeError(
            f"no statement about this workflow can be had: {_first_line(error)}",
            where=RESOURCE,
            remedy="Give the job `permissions: id-token: write`, or unset the variable.",
        ) from None
    except hf.errors.HfHubHTTPError as error:
        raise HubError(
            f"the Hub gives this workflow no token for {target}: {_first_line(error)}",
            where=f"{normal_endpoint(endpoint)}/oauth/token",
            remedy=f"Create {target} if it is not there, and name this repository, branch and workflow under Trusted "
            "Publishers in its settings; docs/github-actions.md shows how.",
        ) from None
    except (httpx2.HTTPError, KeyError, TypeError, ValueError) as error:
        raise HubError(
            f"the exchange of this workflow's identity failed: {type(error).__name__}.",
            where=f"{normal_endpoint(endpoint)}/oauth/token",
            remedy="Run the job again: nothing is done twice.",
        ) from None
    if not token:
        raise HubError("the exchange of this workflow's identity gave no token.", where=normal_endpoint(endpoint))
    return str(token)


def _first_line(error: Exception) -> str:
    """What the library says, without the addresses and identifiers that it appends."""
    said = [line.strip() for line in str(getattr(error, "server_message", None) or error).splitlines() if line.strip()]
    return f"{said[0][:300].rstrip('.')}." if said else f"{type(error).__name__}."
