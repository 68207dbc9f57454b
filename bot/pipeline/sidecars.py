"""The sidecar of an exported graph, made from the release's own record, so that anybody can make it again."""

from __future__ import annotations

import hashlib
from typing import Any

from bot.graph.export.sidecar import SUFFIX, Facts, Sidecar, SidecarAxis, SidecarPort
from bot.recipe import EXPORT, Recipe
from bot.records import Artifact, FileRecord, Json, Source, StepRecord


def export_of(artifact: Artifact) -> StepRecord | None:
    """The step that exported an artifact from torch; None if it was made otherwise, or nobody saw it made."""
    step = artifact.steps[0] if artifact.steps else None
    return step if step is not None and step.name == EXPORT and "facts" in step.report else None


def sidecar_of(recipe: Recipe, source: Source, artifact: Artifact) -> bytes | None:
    """The text of an artifact's sidecar, as canonical JSON; None if it has none.

    Args:
        recipe: Declares how the inputs are filled.
        source: Names the upstream files, tokenizers among them.
        artifact: With the signature that it has after its last step.
    """
    step = export_of(artifact)
    if step is None:
        return None
    facts = Facts.model_validate(step.report["facts"])
    signature = artifact.signature
    masked = {mask.input for mask in facts.masks}
    features = [port for port in signature.inputs if port.name not in masked]
    given = recipe.inputs_of(artifact.made_from)
    sidecar = Sidecar(
        sha256=artifact.sha256,
        architecture=str(step.parameters["architecture"]),
        opset=signature.opsets.get("ai.onnx", 0),
        inputs=tuple(SidecarPort(**port.to_plain()) for port in signature.inputs),
        outputs=tuple(SidecarPort(**port.to_plain()) for port in signature.outputs),
        axes=tuple(SidecarAxis.model_validate(axis) for axis in _list(step.report["axes"])),
        feature_names=facts.feature_names,
        input_dims=tuple(_last(port.shape) for port in features),
        output_dims=tuple(_last(port.shape) for port in signature.outputs),
        output_names=facts.output_names or tuple(port.name for port in signature.outputs),
        trait_names=facts.trait_names,
        normalizations=facts.normalizations,
        masks=facts.masks,
        refusals=_texts(step.report.get("refused")),
        sample_rates=facts.sample_rates,
        frame_rates=facts.frame_rates,
        preprocessings={name: plan.model_dump(mode="json", by_alias=True) for name, (_, plan) in given.items()},
        tokenizers=_tokenizers(recipe, source, artifact.made_from),
        notes=facts.notes,
    )
    return sidecar.to_json()


def with_sidecar(recipe: Recipe, source: Source, artifact: Artifact) -> Artifact:
    """An artifact whose record names its sidecar, if it has one."""
    text = sidecar_of(recipe, source, artifact)
    if text is None:
        return artifact
    record = FileRecord(path=artifact.file + SUFFIX, bytes=len(text), sha256=hashlib.sha256(text).hexdigest())
    return artifact.model_copy(update={"sidecar": record})


def _tokenizers(recipe: Recipe, source: Source, made_from: str) -> tuple[dict[str, Json], ...]:
    """The tokenizers that the inputs need, once each, by the file upstream."""
    plans = [plan.text for _, plan in recipe.inputs_of(made_from).values() if plan.text is not None]
    found: list[dict[str, Json]] = []
    for key in dict.fromkeys(plan.tokenizer for plan in plans):
        record = source.files[key]
        found.append(
            {"key": key, "repo": source.repo, "commit": source.commit, "file": record.path, "sha256": record.sha256}
        )
    return tuple(found)


def _texts(value: Json) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, dict) else {}


def _last(shape: tuple[int | str | None, ...] | None) -> int | None:
    """The size of the last axis, where it is fixed and there is one besides the batch."""
    return shape[-1] if shape and len(shape) > 1 and isinstance(shape[-1], int) else None


def _list(value: Json) -> list[Any]:
    return value if isinstance(value, list) else []
