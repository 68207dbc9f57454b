"""A release that was published, and somebody elsewhere who verifies it: for tests and for the chaos cases."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd

from bot.canonical import canonical_json
from bot.hub.bundle import MANIFEST, Manifest, ids_of_bytes
from bot.hub.client import Hub
from bot.pipeline import Context
from bot.pipeline.verifying import Verified, Wanted, verify_release
from bot.progress import Silent
from bot.work import WorkFolder
from bot.worker import Worker
from tests.world import TARGET, World, make_world


@dataclass
class Case:
    """A Hub with a release on it, and a verifier."""

    world: World
    commit: str

    @property
    def context(self) -> Context:
        """That of somebody who has no token."""
        work = WorkFolder(self.world.folder / "verifier")
        return Context(hub=Hub(self.world.hub.endpoint), work=work, worker=Worker(), reporter=Silent())

    def verify(self, revision: str = "", **wanted: Any) -> Verified:
        """A verification by somebody who has no recipe, unless a folder of them is named."""
        return verify_release(self.context, TARGET, revision or self.commit, Wanted(**wanted))

    def content(self, path: str) -> bytes:
        """A file of the release."""
        return Hub(self.world.hub.endpoint).read_bytes(TARGET, self.commit, path)

    def record(self) -> dict[str, Any]:
        """Its record."""
        return dict(json.loads(self.content("release.json")))

    def tampered(self, change: Callable[[dict[str, Any]], None], **files: bytes) -> str:
        """The release with another record, the list of files made to fit, in a commit like the bot's own.

        Nothing about the files tells that anything is wrong.
        """
        record = self.record()
        change(record)
        changed = {"release.json": canonical_json(record)} | files
        manifest = Manifest.from_json(self.content(MANIFEST))
        assert manifest is not None
        listed = dict(manifest.files) | {path: ids_of_bytes(data) for path, data in changed.items()}
        changed[MANIFEST] = Manifest(manifest.identity, listed).to_json()
        branch = f"tampered-{secrets.token_hex(4)}"
        self.world.api.create_branch(TARGET, branch=branch, revision=self.commit)
        done = self.world.api.create_commit(
            TARGET,
            [CommitOperationAdd(path, data) for path, data in changed.items()],
            commit_message="Publish network",
            commit_description=f"Release-Id: {manifest.identity}\nRecipe: network",
            revision=branch,
        )
        return str(done.oid)


def make_case(folder: Path) -> Case:
    """Publishes the small world's release with the real command, as a commit."""
    world = make_world(folder)
    world.write_recipe(open_as="commit")
    return Case(world, world.publish()["publication"]["commit"])


def with_other_weights(model: bytes) -> bytes:
    """The same graph with other weights: whatever does not run it takes it for the same."""
    import numpy as np
    import onnx

    changed = onnx.load_from_string(model)
    weight = next(each for each in changed.graph.initializer if each.data_type == onnx.TensorProto.FLOAT16)
    weight.raw_data = (np.frombuffer(weight.raw_data, np.float16) * np.float16(1.5)).tobytes()
    return bytes(changed.SerializeToString())


def change_figure(record: dict[str, Any], artifact: str, subject: str, provider: str, **more: Any) -> dict[str, Any]:
    """Puts other values into one figure of a record, and returns what it was."""
    (figure,) = [
        each
        for each in record["measurements"]
        if (each["artifact"], each["subject"], each["provider"]) == (artifact, subject, provider)
    ]
    before = dict(figure)
    figure.update(more)
    return before
