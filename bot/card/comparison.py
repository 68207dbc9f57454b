"""A release beside the one before it: figures, files, signatures, licences.

Every value knows its field, those of the release before under `before`; a template can print nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bot.card.numbers import Number, Text
from bot.card.published import Published
from bot.card.views import Queries, RecordView, view
from bot.records import Artifact, FileRecord, Measurement, Release

BEFORE = "before"
"""What the fields of the release before begin with."""

_OWN_FOLDERS = ("release/", "recipe/", "source/")
"""What belongs to one release alone: it is deleted with the next one that does not have it."""


@dataclass(frozen=True)
class FigureRow:
    """One figure in both releases.

    Attributes:
        figure: A measurement that stands for the row: the new one, or the old one if it was not taken again.
        old: The value before; None if it was not measured then.
        new: The value now; None if it was not measured now.
        delta: New less old; None without both.
        verdict: What the gate said of it now; None if it has none.
    """

    figure: Any
    old: Number | None
    new: Number | None
    delta: Number | None
    verdict: Any


@dataclass(frozen=True)
class FileRow:
    """One file of the release.

    Attributes:
        file: Its record.
        state: `added`, `changed`, `unchanged`, `frozen` (as it was, and it stays so), `gone` (it stays, but the release
            does not have it any more) or `deleted`.
        old: Its record in the release before; None if it was not in it.
    """

    file: Any
    state: str
    old: Any


@dataclass(frozen=True)
class TextRow:
    """Something that can be put into words, otherwise than before: what it is, and both wordings."""

    what: Text
    old: Text
    new: Text


@dataclass(frozen=True)
class Comparison:
    """What differs from the release before.

    Attributes:
        has_before: There is a release before.
        before: The view of it; None if there is none.
        figures: Figures that changed, came or went; timings too, which never come out the same twice.
        files: Every file of the release, and those that are gone.
        signatures: What a consumer of a file sees: inputs, outputs, versions.
        licenses: Licences and their texts.
        others: The source's commit, the promised runtime, the tools.
    """

    has_before: bool
    before: Any
    figures: tuple[FigureRow, ...]
    files: tuple[FileRow, ...]
    signatures: tuple[TextRow, ...]
    licenses: tuple[TextRow, ...]
    others: tuple[TextRow, ...]

    @property
    def differs(self) -> bool:
        """Whether anything is otherwise that a reader of the card could notice."""
        changed = any(row.state not in ("unchanged", "frozen") for row in self.files)
        return bool(self.figures or self.signatures or self.licenses or self.others or changed)


def compare(queries: Queries, before: Published | None, files: Sequence[FileRecord]) -> Comparison:
    """Compares a release with the one before it.

    Args:
        queries: The release.
        before: What is published now; None if nothing is.
        files: The files of the release, as they are laid out.
    """
    previous = before.release if before is not None else None
    old_files = before.files if before is not None else ()
    papers = frozenset(license_.file for license_ in previous.licenses) if previous is not None else frozenset()
    rows = tuple(_files(queries, files, old_files, papers))
    if previous is None:
        return Comparison(False, None, (), rows, (), (), ())
    old = RecordView(previous, BEFORE, "recorded", queries.ledger)
    return Comparison(
        has_before=True,
        before=old,
        figures=tuple(_figures(queries, previous, old)),
        files=rows,
        signatures=tuple(_signatures(queries, previous)),
        licenses=tuple(_licenses(queries, previous)),
        others=tuple(_others(queries, previous)),
    )


# -- figures -----------------------------------------------------------------------------------------------------------


def _place(measurement: Measurement) -> tuple[str, str, str, str]:
    return (measurement.artifact, measurement.key, measurement.provider, measurement.device)


def _figures(queries: Queries, previous: Release, old: RecordView) -> list[FigureRow]:
    rows = []
    before = dict(zip(map(_place, previous.measurements), old.measurements, strict=True))
    now = dict(zip(map(_place, queries.release.measurements), queries.view.measurements, strict=True))
    for place in dict.fromkeys([*now, *before]):
        one, other = before.get(place), now.get(place)
        if one is not None and other is not None and one.value == other.value:
            continue
        figure: Any = other if other is not None else one
        if figure.subject.startswith("output:"):
            continue  # The decisions that are taken from it are in the list.
        delta = other.value - one.value if one is not None and other is not None else None
        rows.append(
            FigureRow(
                figure=figure,
                old=one.value if one is not None else None,
                new=other.value if other is not None else None,
                delta=delta,
                verdict=queries.verdict(figure.artifact, figure.key),
            )
        )
    # What a gate looks at comes first, and timings, which never come out the same twice, come last.
    rows.sort(key=lambda row: (row.figure.subject.raw in ("latency", "speedup"), row.verdict is None))
    return rows


# -- files -------------------------------------------------------------------------------------------------------------


def _files(
    queries: Queries, files: Sequence[FileRecord], before: Sequence[FileRecord], papers: frozenset[str]
) -> Iterator[FileRow]:
    """The files now, then those that only the release before had; its licence texts stay with its models."""
    frozen = {artifact.file for artifact in queries.release.published if artifact.frozen}
    old = {record.path: record for record in before}
    for record in files:
        other = old.pop(record.path, None)
        if other is None:
            state = "added"
        elif (other.sha256, other.bytes) != (record.sha256, record.bytes):
            state = "changed"
        else:
            state = "frozen" if record.path in frozen else "unchanged"
        yield FileRow(_file(queries, record, "files"), state, other and _file(queries, other, f"{BEFORE}.files"))
    laid_out = {record.path for record in files}
    for record in _taken_over(queries.release):
        if record.path not in laid_out:
            old.pop(record.path, None)
            yield FileRow(_file(queries, record, "artifacts"), "frozen", None)
    for record in old.values():
        # What a frozen artifact's file is need not be laid out again to stay where it is.
        goes = record.path.startswith(_OWN_FOLDERS) and record.path not in papers
        state = "frozen" if record.path in frozen else "deleted" if goes else "gone"
        yield FileRow(_file(queries, record, f"{BEFORE}.files"), state, _file(queries, record, f"{BEFORE}.files"))


def _taken_over(release: Release) -> Iterator[FileRecord]:
    """The files that the release describes and does not bring: they lay in the target before."""
    for artifact in release.published:
        if artifact.taken_over:
            yield FileRecord(path=artifact.file, bytes=artifact.bytes, sha256=artifact.sha256)
            yield from artifact.weights


def _file(queries: Queries, record: FileRecord, where: str) -> Any:
    return view(record, f"{where}[{record.path}]", "recorded", queries.ledger)


# -- what can be put into words ----------------------------------------------------------------------------------------


def _row(queries: Queries, what: str, field: str, old: str, new: str) -> Iterator[TextRow]:
    if old == new:
        return
    yield TextRow(
        Text(what, field, "recorded", queries.ledger),
        Text(old or "—", f"{BEFORE}.{field}", "recorded", queries.ledger),
        Text(new or "—", field, "recorded", queries.ledger),
    )


def _signatures(queries: Queries, previous: Release) -> Iterator[TextRow]:
    old = {artifact.name: artifact for artifact in previous.published}
    for artifact in queries.release.published:
        field = f"artifacts[{artifact.name}].signature"
        before = _signature(old[artifact.name]) if artifact.name in old else {}
        now = _signature(artifact)
        for part in dict.fromkeys([*before, *now]):
            yield from _row(queries, f"{artifact.name}: {part}", field, before.get(part, ""), now.get(part, ""))


def _signature(artifact: Artifact) -> dict[str, str]:
    """A signature in words, part by part."""
    signature = artifact.signature
    found = {}
    for kind, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        for tensor in tensors:
            shape = " × ".join("?" if size is None else str(size) for size in tensor.shape or ()) or "any shape"
            found[f"{kind} {tensor.name}"] = f"{tensor.dtype}, {shape}"
    found |= {f"opset {domain or 'ai.onnx'}": str(version) for domain, version in sorted(signature.opsets.items())}
    found["IR version"] = str(signature.ir_version)
    found["oldest runtime"] = signature.minimum_runtime
    found["files beside it"] = ", ".join(signature.external_files)
    return found


def _licenses(queries: Queries, previous: Release) -> Iterator[TextRow]:
    now = queries.release
    yield from _row(
        queries, "licence upstream", "source.license", previous.source.license or "none", now.source.license or "none"
    )
    old, new = ({each.name: each for each in release.licenses} for release in (previous, now))
    for name in dict.fromkeys([*old, *new]):
        one, other = (
            f"{records[name].file or 'no text'}, {records[name].sha256[:12]}" if name in records else ""
            for records in (old, new)
        )
        yield from _row(queries, name, "licenses", one, other)


def _others(queries: Queries, previous: Release) -> Iterator[TextRow]:
    now = queries.release
    yield from _row(queries, "source", "source.repo", previous.source.repo, now.source.repo)
    yield from _row(queries, "source commit", "source.commit", previous.source.commit[:12], now.source.commit[:12])
    yield from _row(queries, "promised runtime", "runtime", previous.runtime, now.runtime)
    yield from _row(queries, "samples", "samples_digest", previous.samples_digest[:12], now.samples_digest[:12])
    yield from _row(queries, "bot", "bot_version", previous.bot_version, now.bot_version)
    old = {artifact.name: artifact for artifact in previous.artifacts}
    for artifact in now.artifacts:
        if artifact.name in old:
            field = f"artifacts[{artifact.name}]"
            before = old[artifact.name]
            yield from _row(queries, f"{artifact.name}: tools", f"{field}.built_with", _tools(before), _tools(artifact))
            yield from _row(queries, f"{artifact.name}: steps", f"{field}.steps", _steps(before), _steps(artifact))


def _tools(artifact: Artifact) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(artifact.built_with.items()))


def _steps(artifact: Artifact) -> str:
    return ", then ".join(step.name for step in artifact.steps)


def worst_samples(queries: Queries, artifacts: Iterable[Any]) -> list[Any]:
    """The largest difference of each decision, with the digest of the sample that it was found on.

    Only differences: what a network says of one person is nobody's business.
    """
    found: dict[tuple[str, str, str], Any] = {}
    for artifact in artifacts:
        for figure in queries.figures(artifact.name):
            if not figure.worst_sample or figure.subject.startswith("output:"):
                continue
            place = (artifact.name.raw, figure.subject.raw, figure.provider.raw)
            if place not in found or figure.metric == "max_absolute":
                found[place] = figure
    return list(found.values())
