"""Prints what a command found: a table for people, one JSON document for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bot.recipe import Recipe
from bot.records import Inspection, Measurement, Release, TensorSignature, Verdict

if TYPE_CHECKING:
    from rich.table import Table

    from bot.card.explain import Explained
    from bot.card.review import Review
    from bot.hub.publish import Publication
    from bot.pipeline import Outcome


def _print_json(value: Any) -> None:
    # A runner of GitHub Actions takes `##[` in a log for a command; in JSON it can be written otherwise.
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False).replace("##[", "\\u0023#["))


def _print_table(table: Table) -> None:
    from rich.console import Console

    Console(markup=False, highlight=False).print(table)


def print_outcome(recipe: Recipe, outcome: Outcome, *, as_json: bool) -> None:
    """Prints what a publish or build came to."""
    publication = outcome.publication
    if as_json:
        _print_json(
            {
                "recipe": recipe.name,
                "identity": outcome.identity,
                "publication": _publication(publication) if publication else None,
                "release": outcome.release.to_plain() if outcome.release else None,
                "folder": str(outcome.folder) if outcome.folder else None,
                "card": str(outcome.card) if outcome.card else None,
                "review": str(outcome.review) if outcome.review else None,
            }
        )
        return
    if outcome.release:
        for line in release_lines(outcome.release):
            typer.echo(line)
    for label, path in (("card", outcome.card), ("review", outcome.review)):
        if path:
            typer.echo(f"{label}: {path}")
    if publication:
        typer.echo(f"{publication.kind}: {publication.url or publication.reason}")
        if publication.kind == "nothing":
            typer.echo(f"nothing to do: {publication.reason}")


def _publication(publication: Publication) -> dict[str, Any]:
    return {
        "kind": publication.kind,
        "number": publication.number,
        "revision": publication.revision,
        "commit": publication.commit,
        "url": publication.url,
        "uploaded_bytes": publication.uploaded_bytes,
        "reason": publication.reason,
    }


def release_lines(release: Release) -> list[str]:
    """A release in a few lines per artifact, which fit on any terminal."""
    lines = [f"{release.target}, release {release.short_identity}"]
    for artifact in release.artifacts:
        figures = release.measurements_of(artifact.name)
        accuracy = accuracy_figures(release, artifact.name)
        speed = [
            f"batch {figure.batch} on {figure.provider}: {figure.value:.2f}" for figure in figures if is_speed(figure)
        ]
        verdicts = [verdict for verdict in release.verdicts if verdict.artifact == artifact.name]
        lines += [
            f"  {artifact.file}",
            f"    bytes     {artifact.bytes:,}",
            f"    sha256    {artifact.sha256}",
            *(f"    accuracy  {figure}" for figure in accuracy),
            f"    speed     {', '.join(speed) or 'not measured'} (times as fast)",
            f"    gates     {gate_summary(verdicts)}",
            *(f"    {each.status:<9} {each.reason or each.rule}" for each in verdicts if each.status != "passed"),
        ]
    return lines


def is_speed(figure: Measurement) -> bool:
    """Whether a figure says how many times as fast something is."""
    return figure.subject == "speedup"


def accuracy_figures(release: Release, artifact: str, provider: str = "cpu") -> list[str]:
    """What the recipe asked to be compared, as `age.mean_absolute 0.0103 year`."""
    subjects = release.declared.get("accuracy")
    return [
        f"{figure.key} {figure.value:.4g} {figure.unit}".rstrip()
        for figure in release.measurements_of(artifact)
        if isinstance(subjects, dict) and figure.subject in subjects and figure.provider == provider
    ]


def gate_summary(verdicts: list[Verdict]) -> str:
    """How one artifact came through its gates, in a few words."""
    passed = sum(verdict.status == "passed" for verdict in verdicts)
    held = [verdict for verdict in verdicts if verdict.withholds]
    open_ = len(verdicts) - passed - len(held)
    text = f"{passed} passed"
    text += f", {open_} not measured" if open_ else ""
    return f"withheld: {len(held)} of {len(verdicts)} failed" if held else text


def print_step(name: str, output: Path, answer: dict[str, Any], *, as_json: bool) -> None:
    """Prints what a step counted and decided."""
    from bot.canonical import file_sha256

    found = {
        "step": name,
        "output": str(output),
        "bytes": output.stat().st_size,
        "sha256": file_sha256(output),
        **answer,
    }
    if as_json:
        _print_json(found)
        return
    typer.echo(f"{output}  {found['bytes']} bytes  sha256 {found['sha256']}")
    for key, value in answer["report"].items():
        typer.echo(f"  {key}: {json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value}")


def print_inspection(model: Path, inspection: Inspection, *, as_json: bool) -> None:
    """Prints a model's signature and census."""
    if as_json:
        _print_json(inspection.to_plain())
        return
    from rich.table import Table

    signature, census = inspection.signature, inspection.census
    typer.echo(f"{model}")
    tensors = Table("", "name", "dtype", "shape")
    for kind, group in (("input", signature.inputs), ("output", signature.outputs)):
        for tensor in group:
            tensors.add_row(kind, tensor.name, tensor.dtype, _shape(tensor))
    _print_table(tensors)
    opsets = ", ".join(f"{domain} {version}" for domain, version in signature.opsets.items())
    typer.echo(
        f"opsets {opsets}; IR version {signature.ir_version}; needs onnxruntime {signature.minimum_runtime} or later"
    )
    for provider, oldest in sorted(signature.minimum_runtime_on.items()):
        typer.echo(f"on {provider} its kernels compute rightly from onnxruntime {oldest} on")
    if signature.not_on:
        typer.echo(f"no kernels for something in it on {', '.join(signature.not_on)}")
    if signature.external_files:
        typer.echo(f"weights beside it: {', '.join(signature.external_files)}")
    parameters = ", ".join(f"{count:,} {dtype}" for dtype, count in census.parameters.items())
    typer.echo(f"{census.nodes} nodes, {census.casts} casts; parameters: {parameters or 'none'}")
    operators = Table("operator", "nodes")
    for operator, count in sorted(census.by_op.items(), key=lambda each: (-each[1], each[0])):
        operators.add_row(operator, str(count))
    _print_table(operators)
    if inspection.random_weights:
        typer.echo("its weights are random, as the file itself says")


def _shape(tensor: TensorSignature) -> str:
    if tensor.shape is None:
        return "unknown"
    return " × ".join("?" if size is None else str(size) for size in tensor.shape) or "scalar"


def print_card(release: Release, text: str, *, as_json: bool) -> None:
    """Prints a card."""
    if as_json:
        _print_json({"identity": release.identity, "recipe": release.recipe, "card": text})
    else:
        typer.echo(text, nl=False)


def print_explained(release: Release, numbers: list[Explained], *, same: bool, as_json: bool) -> None:
    """Prints where each number of a card comes from.

    Args:
        release: Whose card.
        numbers: Each of them.
        same: The card is the one that was rendered when the release was made.
        as_json: For programs.
    """
    if as_json:
        listed = [number.to_plain() for number in numbers]
        _print_json({"identity": release.identity, "recipe": release.recipe, "as_released": same, "numbers": listed})
        return
    place = ""
    for number in numbers:
        if number.place != place:
            place = number.place
            typer.echo(f"{place}:")
        samples = f", {number.samples} samples" if number.samples else ""
        typer.echo(f"  {number.text}")
        typer.echo(f"      {number.kind}: {number.field}")
        typer.echo(f"      {number.method}{samples}")
    kinds = {kind: sum(number.kind == kind for number in numbers) for kind in sorted({each.kind for each in numbers})}
    typer.echo(f"{len(numbers)} numbers: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}")
    if not same:
        typer.echo("the card was rendered otherwise when the release was made: the recipe or the bot changed since")


def print_review(review: Review, page: Path, problem: str, *, markdown: bool, as_json: bool) -> None:
    """Prints where a review lies, or its Markdown.

    Args:
        review: The review.
        page: The page.
        problem: Why it was compared with nothing; empty if it was not.
        markdown: Print the review itself.
        as_json: For programs.
    """
    from bot.card.card import render_comment

    release = review.release
    if as_json:
        found = {"identity": release.identity, "recipe": release.recipe, "withheld": list(release.withheld)}
        _print_json({**found, "page": str(page), "problem": problem, "markdown": render_comment(review)})
        return
    if problem:
        typer.echo(problem, err=True)
    if markdown:
        typer.echo(render_comment(review), nl=False)
        return
    verdict = f"withheld: {', '.join(release.withheld)}" if release.withheld else "every check that withholds passed"
    typer.echo(f"{release.target}, release {release.short_identity}: {verdict}")
    typer.echo(f"review: {page}")
