"""Trusted publishing with the Hub's own client: who gets a token, and what the token is good for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError

from bot.localhub.errors import HubError
from bot.localhub.oidc import LIFETIME, Exchange, Publisher, set_publishers
from bot.localhub.store import Store
from tests.hub_server import HubServer, start_hub
from tests.workflows.issuer import Issuer, claims_of

REPO, OTHER = "local-user/model", "local-user/another"
CLAIMS = {"repository": "somebody/models", "branch": "main", "workflow": "publish.yml"}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    made = Issuer().start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[HubServer]:
    made = start_hub(tmp_path_factory.mktemp("hub"))
    for repo in (REPO, OTHER):
        made.api().create_repo(repo)
    trust(made, REPO, [{"issuer": issuer.url, "claims": CLAIMS}])
    yield made
    made.stop()


def trust(hub: HubServer, repo: str, publishers: list[dict[str, Any]], token: str = "") -> dict[str, Any]:
    return call(hub, "PUT", f"/api/models/{repo}/trusted-publishers", {"publishers": publishers}, token or hub.token)


def call(hub: HubServer, method: str, path: str, body: Any, token: str) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(
        hub.endpoint + path, method=method, data=json.dumps(body).encode(), headers=headers
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return dict(json.load(answer))


def exchange(hub: HubServer, statement: str, resource: str = REPO, **other: Any) -> str:
    body = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "subject_token": statement,
        "resource": resource,
    }
    return str(call(hub, "POST", "/oauth/token", {**body, **other}, "")["access_token"])


def refused(hub: HubServer, statement: str, resource: str = REPO, **other: Any) -> dict[str, Any]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        exchange(hub, statement, resource, **other)
    assert caught.value.code == 400
    return dict(json.load(caught.value))


def good(hub: HubServer, issuer: Issuer, **other: Any) -> str:
    return issuer.sign(claims_of(), hub.endpoint, **other)


def test_the_clients_own_exchange_gets_a_token(hub: HubServer, issuer: Issuer) -> None:
    """In a process of its own, with the variables that a runner sets."""
    script = "import huggingface_hub; print(huggingface_hub.get_token())"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "ACTIONS_"))}
    environment = {**clean, "GITHUB_ACTIONS": "true", "HF_ENDPOINT": hub.endpoint, "HF_OIDC_RESOURCE": REPO}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment, **issuer.admit(claims_of())},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("hf_jwt_")
    assert issuer.given[-1]["aud"] == hub.endpoint
    assert HfApi(endpoint=hub.endpoint, token=done.stdout.strip()).whoami()["name"] == "[OIDC]"


def test_the_token_writes_to_its_repository(hub: HubServer, issuer: Issuer) -> None:
    api = HfApi(endpoint=hub.endpoint, token=exchange(hub, good(hub, issuer)))

    def operations() -> list[CommitOperationAdd]:
        return [CommitOperationAdd("a.txt", b"a"), CommitOperationAdd("b.onnx", b"b" * 3000)]

    opened = api.create_commit(REPO, operations(), commit_message="Add", create_pr=True)
    assert opened.pr_num == 1
    details = api.get_discussion_details(REPO, 1)
    assert details.author == "[OIDC]" and details.is_pull_request
    api.comment_discussion(REPO, 1, comment="Said")
    api.change_discussion_status(REPO, 1, "closed")
    assert api.create_commit(REPO, operations(), commit_message="Add").oid
    newest = api.list_repo_commits(REPO)[0]
    assert newest.authors == ["[OIDC]"]


def test_the_token_writes_to_nothing_else(hub: HubServer, issuer: Issuer) -> None:
    token = exchange(hub, good(hub, issuer))
    api = HfApi(endpoint=hub.endpoint, token=token)
    operations = [CommitOperationAdd("a.txt", b"a")]
    attempts = [
        lambda: api.create_commit(OTHER, operations, commit_message="Add"),
        lambda: api.create_commit(OTHER, operations, commit_message="Add", create_pr=True),
        lambda: api.create_discussion(OTHER, title="Hello"),
        lambda: api.create_repo("local-user/new"),
        lambda: api.create_repo("an-organisation/new"),
        lambda: api.delete_repo(REPO),
        lambda: api.delete_repo(OTHER),
        lambda: api.move_repo(REPO, "local-user/moved"),
        lambda: api.update_repo_settings(REPO, private=True),
        lambda: api.create_webhook(url="http://127.0.0.1:1", watched=[{"type": "user", "name": "local-user"}]),
        lambda: trust(hub, REPO, [{"issuer": issuer.url, "claims": {"repository": "evil/models"}}], token),
        lambda: call(hub, "POST", "/api/embedded-hub/faults", {"kind": "close"}, token),
        lambda: call(hub, "POST", "/api/jobs/local-user", {"command": ["true"], "flavor": "cpu-basic"}, token),
    ]
    for attempt in attempts:
        with pytest.raises((HfHubHTTPError, urllib.error.HTTPError)) as caught:
            attempt()
        status = getattr(caught.value, "code", None) or caught.value.response.status_code
        assert status in (401, 403), caught.value


def test_a_private_repository_is_seen_with_its_own_token_only(hub: HubServer, issuer: Issuer) -> None:
    owner = hub.api()
    owner.create_repo("local-user/private", private=True)
    trust(hub, "local-user/private", [{"issuer": issuer.url, "claims": CLAIMS}])
    own = HfApi(endpoint=hub.endpoint, token=exchange(hub, good(hub, issuer), "local-user/private"))
    assert own.repo_exists("local-user/private") and own.auth_check("local-user/private", write=True) is None
    another = HfApi(endpoint=hub.endpoint, token=exchange(hub, good(hub, issuer)))
    assert not another.repo_exists("local-user/private")


@pytest.mark.parametrize(
    "claims",
    [
        claims_of("evil/models"),
        claims_of("somebody/models-evil"),
        claims_of(branch="main-backup"),
        claims_of(branch="release"),
        claims_of(workflow="ci.yml"),
        claims_of(workflow="evil/publish.yml.yml"),
        {**claims_of(), "ref": "refs/tags/main"},
        {**claims_of(), "repository": ["somebody/models"]},
    ],
    ids=["repository", "prefix", "branch", "other branch", "workflow", "suffix", "a tag", "a list"],
)
def test_other_claims_get_none(hub: HubServer, issuer: Issuer, claims: dict[str, Any]) -> None:
    assert refused(hub, issuer.sign(claims, hub.endpoint))["error"] == "invalid_grant"


def test_statements_that_do_not_hold_get_none(hub: HubServer, issuer: Issuer) -> None:
    now, strange = int(time.time()), rsa.generate_private_key(65537, 2048)
    said = jwt.decode(good(hub, issuer), options={"verify_signature": False})
    header = {"kid": issuer.key_id}
    secret = "a secret that is long enough for the algorithm"
    statements = {
        "another audience": issuer.sign(claims_of(), "https://huggingface.co"),
        "no audience": jwt.encode({k: v for k, v in said.items() if k != "aud"}, issuer.key, "RS256", header),
        "expired": good(hub, issuer, exp=now - 120),
        "not yet": good(hub, issuer, nbf=now + 600),
        "another key": jwt.encode(said, strange, "RS256", header),
        "an unknown key": jwt.encode(said, issuer.key, "RS256", {"kid": "second"}),
        "no signature": jwt.encode(said, None, "none", header),
        "a shared secret": jwt.encode(said, secret, "HS256", header),
        "another issuer": jwt.encode(
            {**said, "iss": "https://token.actions.githubusercontent.com"}, issuer.key, "RS256"
        ),
        "no issuer": jwt.encode({k: v for k, v in said.items() if k != "iss"}, issuer.key, "RS256", header),
        "changed afterwards": good(hub, issuer)[:-4] + "AAAA",
        "no statement": "hello",
        "nothing": "",
    }
    for name, statement in statements.items():
        assert refused(hub, statement)["error"] == "invalid_grant", name
    assert exchange(hub, good(hub, issuer)).startswith("hf_jwt_")


def test_other_resources_get_none(hub: HubServer, issuer: Issuer) -> None:
    statement = good(hub, issuer)
    # One that exists and trusts nobody, and one that does not exist, are answered alike.
    assert refused(hub, statement, OTHER) == refused(hub, statement, "local-user/nothing")
    assert refused(hub, statement, f"datasets/{REPO}")["error"] == "invalid_grant"
    for resource in ("local-user", "spaces/local-user/model", "a/b/c/d", "", "../model"):
        assert refused(hub, statement, resource)["error"] in ("invalid_request", "invalid_grant"), resource
    assert refused(hub, statement, grant_type="password")["error"] == "invalid_request"
    assert refused(hub, statement, subject_token_type="jwt")["error"] == "invalid_request"


def test_an_issuer_elsewhere_is_not_taken(hub: HubServer) -> None:
    for issuer in (
        "https://token.actions.githubusercontent.com",
        "http://10.0.0.1",
        "file:///etc",
        "http://u@127.0.0.1",
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            trust(hub, OTHER, [{"issuer": issuer, "claims": CLAIMS}])
        assert caught.value.code == 400
    with pytest.raises(urllib.error.HTTPError):
        trust(hub, OTHER, [{"issuer": "http://127.0.0.1:1", "claims": {}}])


def test_a_token_is_good_for_an_hour(tmp_path: Path, issuer: Issuer) -> None:
    now = [0.0]
    store = Store(tmp_path / "hub")
    repository = store.create("models", REPO, store.local_user.person, store.clock.now())
    set_publishers(repository, [Publisher(issuer.url, CLAIMS)])
    given = Exchange(lambda: now[0])
    token = given.give(repository, issuer.sign(claims_of(), "http://hub"), "http://hub")
    now[0] = LIFETIME - 1.0
    user = given.bearer(token)
    assert user is not None and user.only == f"models/{REPO}"
    now[0] = LIFETIME
    with pytest.raises(HubError, match="expired"):
        given.bearer(token)
    assert given.bearer("hf_jwt_somebody") is None
    store.close()
