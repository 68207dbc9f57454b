"""Arranges measurements in rows and columns, for cards and pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bot.card.filters import median
from bot.card.views import Queries
from bot.recipe_plan import DETECTION_METRICS

DIFFERENCES = (
    "mean_absolute",
    "max_absolute",
    "relative",
    "agreement",
    "flips",
    "mean_cosine",
    "min_cosine",
    "ranking",
    "nearest",
    *DETECTION_METRICS,
    "non_finite_values",
)
"""Metrics that say how far an artifact is from its source. Higher up comes first in a table."""

EMULATION = "fp16-emulation"


@dataclass(frozen=True)
class AccuracyRow:
    """One figure of one artifact, on each provider.

    Attributes:
        figure: A measurement that stands for the row.
        cells: A measurement per provider; None where it was not taken.
        verdict: The recipe's limit on it; None if it has none.
    """

    figure: Any
    cells: tuple[Any, ...]
    verdict: Any


@dataclass(frozen=True)
class AccuracyTable:
    """All differences of one artifact from its source.

    Attributes:
        artifact: The artifact.
        providers: The columns.
        rows: The figures.
        gated: Whether any of them has a limit.
    """

    artifact: Any
    providers: tuple[Any, ...]
    rows: tuple[AccuracyRow, ...]
    gated: bool


@dataclass(frozen=True)
class TimingRow:
    """A batch size: the medians, and how many times as fast the artifact is.

    Attributes:
        batch: Samples per run.
        baseline: Median time of what it is compared with, in ms; None if it was not recorded.
        latency: Median time of the artifact, in ms; None if it was not recorded.
        ratio: Baseline time by own time; None if it was not measured.
        verdict: The recipe's limit on the ratio or the time; None if it has none.
        runs: The artifact's raw runs.
        runs_against: Those of what it is compared with, where the two took turns.
    """

    batch: Any
    baseline: Any
    latency: Any
    ratio: Any
    verdict: Any
    runs: Any = ()
    runs_against: Any = ()


@dataclass(frozen=True)
class TimingTable:
    """The timings of one artifact on one device.

    Attributes:
        artifact: The artifact.
        figure: A measurement that stands for all: provider, device, runtime, threads.
        baseline: The artifact that it is compared with; None if that is its source.
        rows: By batch size.
        gated: Whether any of them has a limit.
    """

    artifact: Any
    figure: Any
    baseline: Any
    rows: tuple[TimingRow, ...]
    gated: bool


def accuracy_tables(queries: Queries, artifacts: Any, *, outputs: bool = False) -> list[AccuracyTable]:
    """The accuracy tables of some artifacts, without those that have no figure.

    Args:
        queries: The release.
        artifacts: Which artifacts.
        outputs: With the raw outputs too, and not only with the decisions taken from them.
    """
    tables = [_accuracy_table(queries, artifact, outputs) for artifact in artifacts]
    return [table for table in tables if table.rows]


def _accuracy_table(queries: Queries, artifact: Any, outputs: bool) -> AccuracyTable:
    figures = [
        figure
        for figure in queries.figures(artifact.name)
        if figure.metric.raw in DIFFERENCES
        and figure.subject != "export"
        and (outputs or not figure.subject.startswith("output:"))
    ]
    # Decisions first, raw outputs after them; what counts NaN and infinity reads best last.
    figures.sort(key=lambda figure: (figure.metric.raw == "non_finite_values", figure.subject.startswith("output:")))
    keys = list(dict.fromkeys(figure.key for figure in figures))
    providers = tuple(dict.fromkeys(figure.provider for figure in figures))
    found = {(figure.key, figure.provider): figure for figure in figures}
    rows = []
    for key in keys:
        cells = tuple(found.get((key, provider)) for provider in providers)
        standing = next(cell for cell in cells if cell is not None)
        rows.append(AccuracyRow(standing, cells, queries.verdict(artifact.name, key)))
    return AccuracyTable(artifact, providers, tuple(rows), any(row.verdict is not None for row in rows))


def timing_tables(queries: Queries, artifacts: Any) -> list[TimingTable]:
    """The timing tables of some artifacts, one per provider and device."""
    tables = []
    for artifact in artifacts:
        figures = [figure for figure in queries.figures(artifact.name) if figure.subject.raw in {"latency", "speedup"}]
        for place in dict.fromkeys((figure.provider, figure.device, figure.runtime) for figure in figures):
            here = [figure for figure in figures if (figure.provider, figure.device, figure.runtime) == place]
            tables.append(_timing_table(queries, artifact, here))
    return tables


def _timing_table(queries: Queries, artifact: Any, figures: list[Any]) -> TimingTable:
    standing = next((figure for figure in figures if figure.against), figures[0])
    rows = []
    for batch in dict.fromkeys(figure.batch for figure in figures):
        same = [figure for figure in figures if figure.batch == batch]
        latency = next((figure for figure in same if figure.subject == "latency"), None)
        speedup = next((figure for figure in same if figure.subject == "speedup"), None)
        verdicts = [queries.verdict(artifact.name, figure.key) for figure in (speedup, latency) if figure is not None]
        rows.append(
            TimingRow(
                batch=batch,
                baseline=_baseline(queries, standing.against, same),
                latency=latency.value if latency is not None else None,
                ratio=speedup.value if speedup is not None else None,
                verdict=next((verdict for verdict in verdicts if verdict is not None), None),
                runs=next((figure.runs for figure in same if figure.runs), ()),
                runs_against=next((figure.runs_against for figure in same if figure.runs_against), ()),
            )
        )
    gated = any(row.verdict is not None for row in rows)
    return TimingTable(artifact, standing, queries.artifact(standing.against), tuple(rows), gated)


def _baseline(queries: Queries, against: Any, same: list[Any]) -> Any:
    """The baseline's median: of the runs that were paired with the artifact's, or of the baseline's own."""
    for figure in same:
        if figure.runs_against:
            return median(figure.runs_against)
    for figure in queries.figures(against, subject="latency") if against else ():
        if figure.key == f"latency.{same[0].provider.raw}.batch_{same[0].batch.value}":
            return figure.value
    return None
