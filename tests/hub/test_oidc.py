"""Which token a workflow's identity is exchanged for, and what is said where it cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.errors import RecipeError
from bot.hub import oidc
from bot.hub.client import Hub
from tests.hub_server import start_hub
from tests.workflows.issuer import Issuer, claims_of
from tests.world import TARGET, World

HUB = "https://huggingface.co"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A Hub with a recipe whose upstream is not there: no run gets far."""
    root = tmp_path_factory.mktemp("oidc")
    made = World(root, start_hub(root / "hub"))
    made.write_recipe()
    made.api.create_repo(TARGET)
    yield made
    made.hub.stop()


@pytest.mark.parametrize(
    ("environ", "endpoint", "target", "wanted"),
    [
        ({}, HUB, TARGET, False),
        ({"HF_OIDC_RESOURCE": TARGET}, HUB, TARGET, True),
        ({"HF_OIDC_RESOURCE": f" {TARGET}\n"}, HUB, TARGET, True),
        ({"HF_OIDC_RESOURCE": TARGET}, HUB, None, False),
        ({"HF_OIDC_RESOURCE": TARGET}, "https://another.example", TARGET, False),
        (
            {"HF_OIDC_RESOURCE": TARGET, "HF_ENDPOINT": "https://another.example/"},
            "https://another.example",
            TARGET,
            True,
        ),
        ({"HF_OIDC_RESOURCE": TARGET, "HF_ENDPOINT": "https://another.example"}, HUB, TARGET, False),
    ],
)
def test_it_is_wanted_for_one_hub_and_one_target(
    environ: dict[str, str], endpoint: str, target: str | None, wanted: bool
) -> None:
    assert oidc.wanted(endpoint, target, environ) is wanted


@pytest.mark.parametrize("resource", ["local-user/another", TARGET.upper(), f"datasets/{TARGET}", "local-user"])
def test_another_repository_is_refused(resource: str) -> None:
    with pytest.raises(RecipeError, match="another repository"):
        oidc.wanted(HUB, TARGET, {"HF_OIDC_RESOURCE": resource})


def publish(world: World, **variables: str) -> tuple[int, str]:
    """`bot publish` on the Hub that HF_ENDPOINT names, with what a runner sets."""
    environment = {"HF_ENDPOINT": world.hub.endpoint, "HF_OIDC_RESOURCE": TARGET, **variables}
    done = world.bot("publish", "network", "--work", str(world.work), hub=False, env=environment)
    return done.returncode, done.stderr


def test_a_job_without_the_right_is_told_which(world: World) -> None:
    for variables in ({}, {"GITHUB_ACTIONS": "true"}):
        code, said = publish(world, **variables)
        assert code == 2 and "id-token: write" in said and "Traceback" not in said, said


def test_an_identity_that_is_not_trusted_is_told_what_to_compare(world: World) -> None:
    issuer = Issuer().start()
    code, said = publish(world, GITHUB_ACTIONS="true", **issuer.admit(claims_of()))
    issuer.stop()
    assert code == 7 and "Trusted Publishers" in said and TARGET in said and "Traceback" not in said, said
    # It was asked for once, and nothing was read with anybody's stored token instead.
    assert len(issuer.given) == 1


def test_a_runner_that_does_not_answer_is_a_failure_of_the_exchange(world: World) -> None:
    gone = {"ACTIONS_ID_TOKEN_REQUEST_URL": "http://127.0.0.1:9/token?a=b", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "x"}
    code, said = publish(world, GITHUB_ACTIONS="true", **gone)
    assert code == 7 and "exchange" in said and "Traceback" not in said, said


def test_a_token_that_was_named_on_the_command_line_is_taken_instead(world: World, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(world.hub.token)
    environment = {"HF_ENDPOINT": world.hub.endpoint, "HF_OIDC_RESOURCE": TARGET}
    done = world.bot(
        "publish",
        "network",
        "--token-file",
        str(tmp_path / "token"),
        "--work",
        str(world.work),
        hub=False,
        env=environment,
    )
    assert done.returncode == 3 and "somebody/network" in done.stderr, done.stderr


def test_the_account_may_be_named_where_the_token_may_not_ask(world: World) -> None:
    world.hub.fault("status", "/api/whoami-v2", status=401, times=3)
    hub = Hub(world.hub.endpoint, world.hub.token, account="[OIDC]")
    assert hub.account == "[OIDC]"
    assert Hub(world.hub.endpoint, account="[OIDC]").account == "[OIDC]" and Hub(world.hub.endpoint).account is None
    world.hub.clear_faults()
