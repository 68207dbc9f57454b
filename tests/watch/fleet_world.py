"""A fleet of recipes, their upstreams and their published targets, put into an embedded Hub's store in one go.

The repositories are real: git objects, references, large files, settings, as the Hub itself writes them and through its
own code. Two things are left out, since nobody pulls the plug while a test is prepared: waiting for the disk, and HTTP.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bot.pipeline.identity import Digests, identity, recipe_id
from bot.recipe import Recipe, load_recipe
from bot.records import FileRecord, LicenseRecord, Release, Source
from tests.world import CARD, RECIPE

SAMPLES = "data/pictures"
ORGANISATION = "fleet"
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Member:
    """One recipe of the fleet, with its upstream and its target."""

    name: str
    upstream: str
    target: str


def members(count: int, owners: int, organisations: int = 1) -> list[Member]:
    """Names of `count` recipes, whose upstreams belong to `owners` owners in turn."""
    return [
        Member(
            f"model-{index:05d}",
            f"author-{index % owners:03d}/model-{index:05d}",
            f"{ORGANISATION}-{index % organisations}/model-{index:05d}-onnx",
        )
        for index in range(count)
    ]


@contextmanager
def _without_waiting_for_the_disk() -> Iterator[None]:
    import pygit2
    from pygit2.enums import Option

    from bot.localhub.repository import Repository

    kept, sync = os.fsync, Repository._sync_blobs
    os.fsync = lambda fd: None
    Repository._sync_blobs = lambda self: self._unsynced.clear()  # type: ignore[method-assign]
    pygit2.option(Option.ENABLE_FSYNC_GITDIR, False)
    try:
        yield
    finally:
        os.fsync, Repository._sync_blobs = kept, sync  # type: ignore[method-assign]
        pygit2.option(Option.ENABLE_FSYNC_GITDIR, True)


class Seeder:
    """Fills the folder of an embedded Hub that is not running.

    Args:
        hub: Its folder.
        recipes: The folder of recipes.
    """

    def __init__(self, hub: Path, recipes: Path) -> None:
        from bot.localhub.store import Store

        self.recipes = recipes
        self.store = Store(hub)
        self._clock = START
        self.samples_commit = ""
        self.samples: dict[str, str] = {}
        self._pattern: Recipe | None = None
        self._empty: Path | None = None

    def seed(self, fleet: list[Member]) -> None:
        """Writes the recipes, their upstreams, and a target for each that holds its release."""
        with _without_waiting_for_the_disk():
            self._seed_samples()
            for member in fleet:
                self._seed(member)
        if self._empty is not None:
            shutil.rmtree(self._empty)
        self.store.close()

    def _seed_samples(self) -> None:
        files = {f"images/{index}.png": f"picture {index}".encode() for index in range(2)}
        files["metadata.jsonl"] = b'{"file_name": "images/0.png"}\n'
        self.samples_commit = self._repository("datasets", SAMPLES, files)
        named = {"metadata": "metadata.jsonl", **{f"images/{index}.png": f"images/{index}.png" for index in range(2)}}
        self.samples = {key: hashlib.sha256(files[path]).hexdigest() for key, path in named.items()}

    def _seed(self, member: Member) -> None:
        model = f"the weights of {member.name}".encode()
        config = b'{"a": 1}\n'
        card = b"---\nlicense: mit\n---\n# A model\n"
        commit = self._repository(
            "models", member.upstream, {"config.json": config, "README.md": card}, {"model.onnx": model}
        )
        release = release_of(self._recipe(member), commit, model, config, self.samples_commit, self.samples)
        self._repository("models", member.target, target_files(release))

    def _recipe(self, member: Member) -> Recipe:
        folder = self.recipes / member.name
        write_recipe(folder, member, self.samples_commit)
        if self._pattern is None:
            self._pattern = load_recipe(folder)
            return self._pattern
        # Reading ten thousand recipes to know their digests would take longer than all the rest.
        plan = self._pattern.plan
        upstream = plan.upstream.model_copy(update={"repo": member.upstream})
        target = plan.target.model_copy(update={"repo": member.target})
        return replace(
            self._pattern,
            name=member.name,
            folder=folder,
            text=(folder / "recipe.yaml").read_text("utf-8"),
            plan=plan.model_copy(update={"upstream": upstream, "target": target}),
        )

    def _repository(
        self, kind: str, repo_id: str, files: Mapping[str, bytes], large: Mapping[str, bytes] | None = None
    ) -> str:
        """A repository with these files, and its commit."""
        from pygit2.enums import FileMode

        from bot.localhub.pointers import Pointer
        from bot.localhub.repository import MAIN, Person

        self._clock += timedelta(seconds=60)
        author = Person("local-user")
        repository = self._create(kind, repo_id, author)
        with repository.writing():
            changes: dict[str, Any] = {
                name: (repository.store_blob(data), FileMode.BLOB) for name, data in files.items()
            }
            for name, data in (large or {}).items():
                sha256 = hashlib.sha256(data).hexdigest()
                path = repository.large_file(sha256)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                changes[name] = (repository.store_blob(Pointer(sha256, len(data)).encode()), FileMode.BLOB)
            head = str(repository.reference(MAIN))
            tree = repository.changed_tree(repository.commit(head).tree, changes)
            commit = str(repository.write_commit(tree, [head], "Add", author, self._clock))
            repository.transact({MAIN: commit})
        return commit

    def _create(self, kind: str, repo_id: str, author: Any) -> Any:
        """A new repository: the first is created, and the others have its files, which are the same in all of them."""
        from bot.localhub.clock import iso

        if self._empty is None or kind != "models":
            made = self.store.create(kind, repo_id, author, self._clock)
            if kind == "models":
                self._empty = made.folder.with_name(".empty")
                shutil.copytree(made.folder, self._empty)
            return made
        place = self.store.path(kind, repo_id)
        shutil.copytree(self._empty, place, copy_function=os.link)
        repository = self.store.repository(kind, repo_id)
        unique = hashlib.sha256(repo_id.encode()).hexdigest()[:24]
        repository.change_settings({"id": unique, "createdAt": iso(self._clock)})
        return repository


LICENSE = b"Permission is granted to all.\n"


def write_recipe(folder: Path, member: Member, samples_commit: str) -> None:
    """Writes one recipe of the fleet."""
    text = RECIPE.replace("somebody/network", member.upstream).replace("local-user/network-onnx", member.target)
    text = text.replace("repo: somebody/pictures", f"repo: {SAMPLES}, revision: {samples_commit}")
    (folder / "licenses").mkdir(parents=True)
    (folder / "licenses" / "LICENSE").write_bytes(LICENSE)
    (folder / "card.md.j2").write_text(CARD)
    (folder / "recipe.yaml").write_text(text.replace("OPEN", "pull-request"))


def release_of(
    recipe: Recipe, commit: str, model: bytes, config: bytes, samples_commit: str, samples: Mapping[str, str]
) -> Release:
    """The release that publishing would make of these upstream files; no artifact was built for it."""
    upstream, copied = hashlib.sha256(model).hexdigest(), hashlib.sha256(config).hexdigest()
    digests = Digests({"network": upstream}, {"config.json": copied}, samples)
    return Release(
        identity=identity(recipe, digests),
        recipe_id=recipe_id(recipe),
        recipe=recipe.name,
        recipe_text=recipe.text,
        target=recipe.plan.target.repo,
        runtime="onnxruntime>=1.22",
        source=Source(
            repo=str(recipe.plan.upstream.repo),
            commit=commit,
            files={"network": FileRecord(path="model.onnx", bytes=len(model), sha256=upstream)},
            copies=(FileRecord(path="config.json", bytes=len(config), sha256=copied),),
        ),
        samples=(
            Source(
                repo=SAMPLES,
                repo_type="dataset",
                commit=samples_commit,
                files={key: FileRecord(path=key, bytes=1, sha256=value) for key, value in samples.items()},
            ),
        ),
        artifacts=(),
        licenses=(LicenseRecord(name="mit", file="LICENSE", sha256=hashlib.sha256(LICENSE).hexdigest()),),
        bot_version="0.1.0",
    )


def target_files(release: Release) -> dict[str, bytes]:
    """What a target holds of a release, as far as a watcher reads it."""
    return {"README.md": _card(release), "release.json": release.to_json()}


def _card(release: Release) -> bytes:
    text = io.StringIO()
    said = {
        "license": "mit",
        "base_model": release.source.repo,
        "release_id": f'"{release.identity}"',
        "source_commit": f'"{release.source.commit}"',
        "recipe_id": f'"{release.recipe_id}"',
    }
    text.write("---\n" + "".join(f"{key}: {value}\n" for key, value in said.items()) + "---\n# A model\n")
    return text.getvalue().encode()


def seed_fleet(hub: Path, recipes: Path, fleet: list[Member]) -> Seeder:
    """Puts a fleet into an embedded Hub that is not running, every release published and current."""
    seeder = Seeder(hub, recipes)
    seeder.seed(fleet)
    return seeder
