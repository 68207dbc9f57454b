"""The figures of an export's truth test: how far the graph is from torch, over all sizes and kinds of input."""

from __future__ import annotations

from typing import Any

from bot.pipeline.building import Built
from bot.pipeline.prepare import Prepared
from bot.pipeline.sidecars import export_of
from bot.records import Measurement

SUBJECT = "export"


def exported_figures(prepared: Prepared, each: Built, device: str) -> list[Measurement]:
    """What the step `export_torch` found of an artifact, as figures; none for an artifact that was made otherwise.

    They are about the graph as it was exported: what later steps did to it, the accuracy on samples tells.

    Args:
        prepared: Names the source.
        each: The artifact.
        device: The processor's name.
    """
    step = export_of(each.artifact)
    rows: Any = step.report.get("truth") if step is not None else None
    if not rows or not prepared.models[each.artifact.made_from].is_module:
        return []
    sizes = sorted({_sizes(row["sizes"]) for row in rows})
    cases = list(dict.fromkeys(row["case"] for row in rows if row["case"]))
    where = f"over {len(rows)} comparisons with torch on made-up inputs, at {'; '.join(sizes)}"
    where += f", and on {', '.join(cases)}" if cases else ""
    figures = (
        ("max_absolute", max(row["max_absolute"] for row in rows), "the largest absolute difference"),
        ("mean_absolute", sum(row["mean_absolute"] for row in rows) / len(rows), "the mean absolute difference"),
        ("min_cosine", min(row["cosine"] for row in rows), "the smallest cosine of a whole answer"),
    )
    return [
        Measurement(
            subject=SUBJECT,
            metric=metric,
            value=value,
            artifact=each.artifact.name,
            against=f"source:{each.artifact.made_from}",
            provider="reference",
            device=device,
            runtime=f"onnxruntime {each.artifact.built_with.get('onnxruntime', '')}".strip(),
            samples=len(rows),
            method=f"{what} of the exported graph, {where}",
        )
        for metric, value, what in figures
    ]


def _sizes(sizes: dict[str, int]) -> str:
    return " and ".join(f"{name} {size}" for name, size in sizes.items())
