"""Model and dataset cards: front matter, the checks of ``/api/validate-yaml``, and the tags that follow from it."""

from __future__ import annotations

import datetime
import functools
import math
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

MAXIMUM_BYTES = 256 * 1024
MAXIMUM_DEPTH = 40
RELATIONS = ("adapter", "merge", "quantized", "finetune")
_LICENSE_WORDS = """
apache-2.0 mit openrail openrail++ bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0
bigcode-openrail-m afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0
cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0
cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0
cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl
gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 lgpl-lr isc h-research intel-research lppl-1.3c ms-pl apple-ascl
apple-amlr mpl-2.0 odc-by odbl openmdw-1.0 osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl
deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4
grok2-community gemma unknown other
"""
_TASK_WORDS = """
text-classification token-classification table-question-answering question-answering zero-shot-classification
translation summarization feature-extraction text-generation fill-mask sentence-similarity text-to-speech
text-to-audio automatic-speech-recognition audio-to-audio audio-classification audio-text-to-text
voice-activity-detection depth-estimation image-classification object-detection image-segmentation text-to-image
image-to-text image-to-image image-to-video unconditional-image-generation video-classification
reinforcement-learning robotics tabular-classification tabular-regression tabular-to-text table-to-text
multiple-choice text-ranking text-retrieval time-series-forecasting text-to-video image-text-to-text
image-text-to-image image-text-to-video visual-question-answering document-question-answering
zero-shot-image-classification graph-ml mask-generation zero-shot-object-detection text-to-3d image-to-3d
image-feature-extraction video-text-to-text keypoint-detection visual-document-retrieval any-to-any video-to-video
other
"""
LICENSES = frozenset(_LICENSE_WORDS.split())
PIPELINE_TAGS = frozenset(_TASK_WORDS.split())
_REPO = re.compile(r"[A-Za-z0-9_.-]{1,96}(/[A-Za-z0-9_.-]{1,96})?")


class CardError(Exception):
    """The front matter cannot be read."""


def split(text: str) -> tuple[str | None, str]:
    """Split a card into the YAML text of its front matter (None if it has none) and its body."""
    text = text.removeprefix("\ufeff")
    lines = text.splitlines(keepends=True)
    start = 0
    while start < len(lines) and not lines[start].strip():
        start += 1
    if start == len(lines) or lines[start].rstrip() != "---":
        return None, text
    for index in range(start + 1, len(lines)):
        if lines[index].rstrip() == "---":
            return "".join(lines[start + 1 : index]), "".join(lines[index + 1 :])
    return None, text


def front_matter(text: str) -> dict[str, Any]:
    """Return the front matter of a card as plain JSON values; empty if it has none.

    Raises:
        CardError: It is too large, not YAML, or no mapping.
    """
    yaml_text, _ = split(text)
    if yaml_text is None or not yaml_text.strip():
        return {}
    value = plain_yaml(yaml_text)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CardError("The metadata must be a mapping")
    return value


def plain_yaml(yaml_text: str) -> Any:
    """Return what YAML text says as plain JSON values.

    Aliases are refused: a few lines of them can stand for gigabytes.

    Raises:
        CardError: It is too large, uses aliases, nests too deep, or is not YAML.
    """
    if len(yaml_text.encode()) > MAXIMUM_BYTES:
        raise CardError(f"The metadata has more than {MAXIMUM_BYTES} bytes")
    try:
        _check_structure(yaml_text)
        return _plain(YAML(typ="safe", pure=True).load(yaml_text))
    except (YAMLError, ValueError, RecursionError) as error:
        raise CardError(f"The metadata is not YAML: {' '.join(str(error).split())[:300]}") from error


def _check_structure(yaml_text: str) -> None:
    """Refuse, while it is read, what could grow or nest without bound."""
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(yaml_text):
        if isinstance(event, AliasEvent):
            raise CardError("The metadata uses a YAML alias, which is not accepted")
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAXIMUM_DEPTH:
            raise CardError(f"The metadata is nested more than {MAXIMUM_DEPTH} deep")


def lenient_front_matter(text: str | None) -> dict[str, Any]:
    """Return the front matter of a card, or nothing if it cannot be read. The answer is shared: not to be changed."""
    if text is None:
        return {}
    return _of_small_card(text) if len(text) <= _SMALL else _of_large_card(text)


def _lenient(text: str) -> dict[str, Any]:
    try:
        return front_matter(text)
    except CardError:
        return {}


_SMALL = 4_000
"""Characters of a card of which very many are remembered: a listing's page shows a thousand."""

_of_small_card = functools.lru_cache(maxsize=20_000)(_lenient)
_of_large_card = functools.lru_cache(maxsize=256)(_lenient)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, datetime.date | datetime.datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


# ------------------------------------------------------------------------------------------------------ checks


def validate(text: str, kind: str) -> tuple[list[str], list[str]]:
    """Check the front matter of a card as the Hub does on a push.

    Args:
        text: The whole card.
        kind: ``model`` or ``dataset``.

    Returns:
        Errors, which refuse the card, and warnings.
    """
    try:
        data = front_matter(text)
    except CardError as error:
        return [str(error)], []
    if not data:
        return [], ["empty or missing yaml metadata in repo card"]
    errors = [*_license_errors(data), *_list_errors(data), *_model_index_errors(data.get("model-index"))]
    if data.get("base_model_relation") not in (None, *RELATIONS):
        errors.append(f'"base_model_relation" must be one of {", ".join(RELATIONS)}')
    for name in ("base_model", "datasets"):
        for value in as_list(data.get(name)):
            if not (isinstance(value, str) and _REPO.fullmatch(value)):
                errors.append(f'"{name}" holds {value!r}, which names no repository')
    warnings = []
    if kind == "model" and data.get("pipeline_tag") not in (None, *PIPELINE_TAGS):
        warnings.append(f'"pipeline_tag" {data["pipeline_tag"]!r} is not a known task')
    return errors, warnings


def _license_errors(data: dict[str, Any]) -> list[str]:
    errors = [
        f'"license" must be a known identifier; {value!r} is none (use "other" with license_name and license_link)'
        for value in as_list(data.get("license"))
        if value not in LICENSES
    ]
    name = data.get("license_name")
    if name is not None and not (isinstance(name, str) and re.fullmatch(r"[a-z0-9.\-]+", name)):
        errors.append('"license_name" must be lower-case letters, digits, dots and dashes')
    link = data.get("license_link")
    if link is not None and not (isinstance(link, str) and re.fullmatch(r"https?://\S+|[\w./-]+", link)):
        errors.append('"license_link" must be a URL or the name of a file in the repository')
    return errors


def _list_errors(data: dict[str, Any]) -> list[str]:
    errors = []
    for name in ("tags", "language", "metrics"):
        if not all(isinstance(value, str) for value in as_list(data.get(name))):
            errors.append(f'"{name}" must be a string or a list of strings')
    for name in ("library_name", "pipeline_tag"):
        if not isinstance(data.get(name), str | None):
            errors.append(f'"{name}" must be a string')
    return errors


def _model_index_errors(index: Any) -> list[str]:
    if index is None:
        return []
    if not isinstance(index, list):
        return ['"model-index" must be an array']
    errors = []
    for m, model in enumerate(index):
        if not isinstance(model, dict) or not isinstance(model.get("name"), str):
            errors.append(f'"model-index[{m}].name" is required')
            continue
        results = model.get("results")
        if not isinstance(results, list):
            errors.append(f'"model-index[{m}].results" must be an array')
            continue
        for r, result in enumerate(results):
            errors += _result_errors(f"model-index[{m}].results[{r}]", result)
    return errors


def _result_errors(where: str, result: Any) -> list[str]:
    if not isinstance(result, dict):
        return [f'"{where}" must be an object']
    errors = []
    for outer, inner in (("task", "type"), ("dataset", "type"), ("dataset", "name")):
        part = result.get(outer)
        if not isinstance(part, dict) or not isinstance(part.get(inner), str):
            errors.append(f'"{where}.{outer}.{inner}" is required')
    metrics = result.get("metrics")
    if not isinstance(metrics, list):
        return [*errors, f'"{where}.metrics" must be an array']
    for n, metric in enumerate(metrics):
        if not isinstance(metric, dict) or not isinstance(metric.get("type"), str) or metric.get("value") is None:
            errors.append(f'"{where}.metrics[{n}]" needs type and value')
    return errors


def eval_results(filename: str, text: str | None) -> list[dict[str, Any]]:
    """Return the entries of a file under ``.eval_results/`` as the API gives them, or one that says what is wrong."""
    try:
        entries = plain_yaml(text or "")
        if not isinstance(entries, list) or not all(map(_is_eval_result, entries)):
            raise CardError("Each entry needs dataset.id, dataset.task_id and value")
    except CardError as error:
        return [{"filename": filename, "error": str(error)}]
    return [{"filename": filename, "data": entry} for entry in entries]


def _is_eval_result(entry: Any) -> bool:
    dataset = entry.get("dataset") if isinstance(entry, dict) else None
    return isinstance(dataset, dict) and {"id", "task_id"} <= set(dataset) and "value" in entry


def as_list(value: Any) -> list[Any]:
    """Return a YAML value that may be one thing or a list of things as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


# ------------------------------------------------------------------------------------------------------ what follows


def tags(data: dict[str, Any], paths: list[str], library: str | None) -> list[str]:
    """Return the tags that the Hub derives from a card and the names of the files.

    Args:
        data: The front matter.
        paths: All files of the repository.
        library: The library that the model is for.
    """
    found: list[str] = [library] if library else []
    suffixes = {path.rpartition(".")[2] for path in paths}
    found += [suffix for suffix in ("onnx", "safetensors", "gguf") if suffix in suffixes]
    found += [tag for tag in as_list(data.get("tags")) if isinstance(tag, str)]
    if isinstance(data.get("pipeline_tag"), str):
        found.append(data["pipeline_tag"])
    found += [code for code in as_list(data.get("language")) if isinstance(code, str)]
    found += [f"dataset:{name}" for name in as_list(data.get("datasets"))]
    relation = data.get("base_model_relation")
    for name in as_list(data.get("base_model")):
        found.append(f"base_model:{name}")
        if relation:
            found.append(f"base_model:{relation}:{name}")
    found += [f"license:{name}" for name in as_list(data.get("license"))]
    return list(dict.fromkeys(found))


def library_name(data: dict[str, Any], paths: list[str]) -> str | None:
    """Return the library that a model is for: what the card says, else what its files show."""
    if isinstance(data.get("library_name"), str):
        return str(data["library_name"])
    return "transformers" if "config.json" in paths and any(p.endswith(".safetensors") for p in paths) else None
