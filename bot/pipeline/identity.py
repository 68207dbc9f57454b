"""The identity of a release: one function for whoever publishes, who has the files, and for whoever watches, who has
only their digests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.canonical import digest
from bot.recipe import Recipe
from bot.records import Source, identity_of
from bot.work import versions

TOOLS = ("numpy", "onnx", "onnx-ir", "onnxconverter-common", "onnxruntime", "onnxruntime-gpu")
"""Packages whose version can change what is built."""


@dataclass(frozen=True)
class Digests:
    """The sha256 of all that a recipe reads from elsewhere.

    Attributes:
        upstream: Of the model files, by the recipe's key (and `KEY/PATH` for each match of a pattern).
        copies: Of the files that are carried along, by their path upstream.
        samples: Of the data set's files, by the loader's names for them.
    """

    upstream: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, data: Source) -> Digests:
        """Those of an upstream model and a data set that were read."""
        return cls(
            {key: record.sha256 for key, record in source.files.items()},
            {record.path: record.sha256 for record in source.copies},
            {key: record.sha256 for key, record in data.files.items()},
        )


def recipe_id(recipe: Recipe, *, retry: int | None = None, templates: str = "") -> str:
    """The digest of the recipe's side of a release: its meaning, code and texts, the target, the shared templates.

    Two releases of one target with the same recipe_id that read the same commits are the same release, so that
    somebody who has read it on a card need not look at any file.

    Args:
        recipe: The recipe.
        retry: In place of the recipe's own `retry`.
        templates: Digest of the shared templates, for somebody who has it already.
    """
    return digest(_recipe_parts(recipe, retry, templates))


def part_digests(recipe: Recipe) -> dict[str, str]:
    """A digest for each part of a recipe's folder, for somebody who has a copy of it and asks which part differs."""
    parts = recipe.identity_parts()
    return {key: part if isinstance(part, str) else digest(part) for key, part in parts.items() if part}


def identity(recipe: Recipe, digests: Digests, *, retry: int | None = None) -> str:
    """The digest of what a person or upstream decided; what was measured, or happened to be installed, is not in it.

    Args:
        recipe: The recipe.
        digests: Of what it reads.
        retry: In place of the recipe's own `retry`.
    """
    return identity_of(
        {
            **_recipe_parts(recipe, retry),
            "upstream": dict(digests.upstream),
            "copies": dict(digests.copies),
            "samples": digest(dict(digests.samples)),
        }
    )


def _recipe_parts(recipe: Recipe, retry: int | None, templates: str = "") -> dict[str, Any]:
    from bot.card.card import templates_digest

    parts: dict[str, Any] = {
        **recipe.identity_parts(retry=retry),
        "target": recipe.plan.target.repo,
        "templates": templates or templates_digest(),
    }
    if recipe.plan.rebuild_on == "tools":
        parts["tools"] = versions(TOOLS)
    return parts
