"""A card's front matter: from typed fields to YAML that every reader takes for what was meant."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

from bot.card.markdown import plain_text
from bot.card.numbers import Kind, NumberOnCard, has_digit
from bot.errors import RecipeError
from bot.records import Release

_WORDS = """
afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m bigscience-bloom-rail-1.0
bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5 cc-by-3.0
cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0
cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0 cdla-permissive-2.0
cdla-sharing-1.0 creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2
fair-noncommercial-research-license gemma gfdl gpl gpl-2.0 gpl-3.0 grok2-community h-research intel-research isc lgpl
lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by
ofl-1.1 openmdw-1.0 openrail openrail++ osl-3.0 pddl postgresql unknown unlicense wtfpl zlib
"""
HUB_LICENSES = frozenset(_WORDS.split())
"""Licence ids that the Hub knows; another licence is `other`, with its name and a link."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_AMBIGUOUS = frozenset(["y", "yes", "n", "no", "true", "false", "on", "off", "null"])
"""Words that one version of YAML or another reads as something else than text."""


def fields(release: Release) -> dict[str, tuple[Any, str, Kind]]:
    """What the front matter says: each key's value, the field that it comes from, and what kind of statement it is."""
    card: Mapping[str, Any] = release.declared.get("card") or {}  # type: ignore[assignment]
    found: dict[str, tuple[Any, str, Kind]] = {}
    found |= {key: (text, "licenses[0]", "declared") for key, text in _license(release).items()}
    if release.source.repo:
        found["base_model"] = (release.source.repo, "source.repo", "recorded")
    if relation := _relation(release, card):
        found["base_model_relation"] = (relation, "declared.card.base_model_relation", "declared")
    for key in ("pipeline_tag", "library_name", "language", "datasets"):
        if value := card.get(key):
            found[key] = (value, f"declared.card.{key}", "declared")
    tags = [*(card.get("tags") or ()), *(["random-weights"] if release.random_weights else [])]
    if tags:
        found["tags"] = (tags, "declared.card.tags", "declared")
    found["release_id"] = (release.identity, "identity", "recorded")
    found["source_commit"] = (release.source.commit, "source.commit", "recorded")
    if release.recipe_id:
        found["recipe_id"] = (release.recipe_id, "recipe_id", "recorded")
    return found


def _license(release: Release) -> dict[str, str]:
    if not release.licenses:
        return {}
    main = release.licenses[0]
    if main.name in HUB_LICENSES:
        return {"license": main.name}
    declared: Mapping[str, Any] = release.declared.get("license") or {}  # type: ignore[assignment]
    name = re.sub(r"[^a-z0-9.]+", "-", main.name.lower()).strip("-")
    link = declared.get("link") or main.file
    return {"license": "other", "license_name": name, **({"license_link": link} if link else {})}


def _relation(release: Release, card: Mapping[str, Any]) -> str | None:
    """The Hub's word for how this model comes from its base; a plain conversion has none."""
    if card.get("base_model_relation"):
        return str(card["base_model_relation"])
    steps = [{step.name for step in artifact.steps} for artifact in release.published]
    quantized = [any(name.startswith("quantize") for name in names) for names in steps]
    return "quantized" if quantized and all(quantized) else None


def front_matter(release: Release) -> tuple[str, tuple[NumberOnCard, ...]]:
    """The front matter of a release's card, with its delimiters.

    Returns:
        The text, and each value in it that has a digit.

    Raises:
        RecipeError: A value cannot be written so that it is read back as it was.
    """
    found = fields(release)
    numbers = []
    for value, origin, kind in found.values():
        for item in value if isinstance(value, list | tuple) else [value]:
            if has_digit(str(item)):
                numbers.append(NumberOnCard(str(item), origin, kind))
    return dump({key: value for key, (value, _, _) in found.items()}), tuple(numbers)


def dump(data: Mapping[str, Any]) -> str:
    """Front matter, delimiters included, that YAML 1.1 and 1.2 readers read back as `data`.

    Args:
        data: Text, numbers (numpy's too), truth values, dates, and lists and mappings of these. Text loses characters
            that hide or control.

    Raises:
        RecipeError: A value is of another type, is not finite, or does not come back as it was.
    """
    from ruamel.yaml import YAML

    plain = _plain(data, "")
    yaml = YAML()
    yaml.width = 1 << 20  # A folded line would be one more thing to read back.
    yaml.allow_unicode = True
    yaml.indent(mapping=2, sequence=2, offset=0)
    stream = io.StringIO()
    yaml.dump(_styled(plain), stream)
    text = stream.getvalue()
    for version in ((1, 1), (1, 2)):
        if _load(text, version) != plain:
            raise RecipeError(
                f"the card's front matter is not read back as it was meant (YAML {version[0]}.{version[1]})"
            )
    return f"---\n{text}---\n"


def _load(text: str, version: tuple[int, int]) -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.version = version
    return yaml.load(text)


def _plain(value: Any, where: str) -> Any:
    """Plain data: numpy's numbers become Python's, dates become text in ISO 8601."""
    import math
    from datetime import date

    if hasattr(value, "item") and not isinstance(value, Mapping | list | tuple):
        value = value.item()
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {plain_text(str(key)): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise RecipeError(f"front matter cannot hold {value!r}", where=where.lstrip("."))


def _styled(value: Any) -> Any:
    """The same data with quotes around whatever could be read as something else than text."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, Mapping):
        return {_styled(key): _styled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_styled(item) for item in value]
    if isinstance(value, str) and (not _PLAIN.fullmatch(value) or value.lower() in _AMBIGUOUS):
        return DoubleQuotedScalarString(value)
    return value
