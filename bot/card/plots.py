"""The pictures of a card: how far the answers lie from the source's, how long a run takes, how large the files are.

They are drawn from the release record and nothing else, and every figure that is written into one says which field it
comes from. There are no scales with round numbers on them: what is written is a value of the record. A picture brings
its own ground, light or dark as the reader's system asks for, so that it can be read on any page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup

from bot.card.canvas import MARGIN, WIDTH, Canvas, Ink
from bot.card.filters import megabytes, percent, provider_name, short, significant, with_unit
from bot.card.markdown import plain_text
from bot.card.numbers import Ledger, NumberOnCard
from bot.card.tables import TimingTable, timing_tables
from bot.card.views import Queries
from bot.records import Artifact, Release

FOLDER = "plots"
"""Not below release/, where nothing may lie that does not belong to the release: a picture of an older one may stay."""

PlotKind = Literal["errors", "latency", "size"]


@dataclass(frozen=True)
class Plot:
    """A picture of a card.

    Attributes:
        path: In the target repository.
        svg: Its content.
        numbers: Every figure that is written into it, with the field that it comes from.
    """

    path: str
    svg: bytes
    numbers: tuple[NumberOnCard, ...]


def plot_path(release: Release, kind: PlotKind, artifact: Artifact | None = None) -> str | None:
    """Where a release has such a picture; None if it has nothing to show in one.

    Args:
        release: The record.
        kind: `errors` and `latency` are about one artifact, `size` about all of them.
        artifact: Which artifact.
    """
    if kind == "size":
        return f"{FOLDER}/size.svg" if release.published else None
    if artifact is None or artifact not in release.published:
        return None
    figures = release.measurements_of(artifact.name)
    if kind == "errors":
        wanted = any(each.histogram is not None and not each.subject.startswith("output:") for each in figures)
    else:
        wanted = any(each.subject == "latency" for each in figures)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", artifact.name)
    return f"{FOLDER}/{kind}-{name}.svg" if wanted else None


def render_plots(release: Release) -> tuple[Plot, ...]:
    """Draws the pictures of a release. The same release gives the same bytes."""
    ledger = Ledger(escape=plain_text, code=plain_text, links=False)
    queries = Queries(release, ledger)
    found = []
    for artifact in release.published:
        shown = queries.artifact(artifact.name)
        if (path := plot_path(release, "errors", artifact)) is not None:
            found.append(_plot(path, ledger, error_figures(queries, artifact.name), _draw_errors))
        if (path := plot_path(release, "latency", artifact)) is not None:
            found.append(_plot(path, ledger, timing_tables(queries, [shown]), _draw_latency))
    if (path := plot_path(release, "size")) is not None:
        found.append(_plot(path, ledger, _sizes(queries), _draw_sizes))
    return tuple(found)


def error_figures(queries: Queries, artifact: Any) -> list[Any]:
    """One figure with a histogram per decision and provider of an artifact: the largest difference, if it was taken.

    Args:
        queries: The release.
        artifact: The artifact's key.
    """
    found: dict[tuple[str, str], Any] = {}
    for figure in queries.figures(artifact):
        if figure.histogram is None or figure.subject.startswith("output:"):
            continue
        place = (figure.subject.raw, figure.provider.raw)
        if place not in found or figure.metric == "max_absolute":
            found[place] = figure
    return list(found.values())


def _plot(path: str, ledger: Ledger, data: Sequence[Any], draw: Callable[[Canvas, Sequence[Any]], None]) -> Plot:
    canvas = Canvas(ledger)
    draw(canvas, data)
    return Plot(path, canvas.svg(), tuple(canvas.numbers))


# -- differences from the source ---------------------------------------------------------------------------------------

_HEIGHT_OF_BARS = 84.0


def _draw_errors(canvas: Canvas, figures: Sequence[Any]) -> None:
    for index, figure in enumerate(figures):
        if index:
            canvas.down(16)
        _draw_histogram(canvas, figure)


def _draw_histogram(canvas: Canvas, figure: Any) -> None:
    """The samples by how far they lie from the source, with a mark at the worst."""
    title = Markup("{}: {} samples, {}").format(figure.subject, figure.samples, provider_name(figure.provider))
    canvas.text(MARGIN, canvas.down(16) + 8, title, bold=True)
    counts = [count.value for count in figure.histogram.counts]
    edges = [edge.value for edge in figure.histogram.edges]
    span = edges[-1] - edges[0] or 1
    top, left, width = canvas.down(_HEIGHT_OF_BARS + 28) + 24, MARGIN, WIDTH - 2 * MARGIN
    bottom = top + _HEIGHT_OF_BARS
    highest = max(counts, default=0) or 1
    for index, count in enumerate(counts):
        x = left + width * (edges[index] - edges[0]) / span
        to = left + width * (edges[index + 1] - edges[0]) / span
        # A single sample among thousands is seen too.
        height = max(_HEIGHT_OF_BARS * count / highest, 2.0) if count else 0.0
        canvas.bar(x, bottom - height, max(to - x - 1, 0.5), height, Ink.BAR)
    canvas.line(left, bottom, left + width, bottom, Ink.LINE)
    peak = figure.histogram.counts[counts.index(highest)] if highest in counts else None
    if peak is not None:
        at = left + width * (edges[counts.index(highest)] - edges[0]) / span
        canvas.text(at, top - 9, Markup("{} samples").format(peak), size=10, ink=Ink.SOFT)
    right = left + width
    canvas.polygon([(right - 5, bottom - 14), (right + 5, bottom - 14), (right, bottom - 5)], Ink.MARK)
    # The mark is explained below the axis, where no bar can be.
    y = canvas.down(8) + 6
    canvas.text(left, y, with_unit(figure.histogram.edges[0], figure.unit), size=10, ink=Ink.SOFT)
    worst = with_unit(figure.histogram.edges[-1], figure.unit)
    label = Markup("largest difference: {}").format(worst)
    if figure.worst_sample:
        label = Markup("{} (sample {})").format(label, short(figure.worst_sample))
    canvas.text(right, y, label, size=10, ink=Ink.MARK, align="right")


# -- time and size -----------------------------------------------------------------------------------------------------

_ROW = 19.0
_WORDS = 168.0  # The room for what is written behind the longest bar.
_BATCHES = 120.0
_FILES = 218.0
"""How far from the left edge the bars begin where they stand for batches, and where they stand for files."""


@dataclass(frozen=True)
class _Bar:
    """A named bar: its length, the spread around its end, what is written behind it, and whether it is the new one."""

    name: Any
    value: float
    words: Any
    spread: tuple[float, float] | None = None
    is_new: bool = True


def _draw_bars(canvas: Canvas, bars: Sequence[_Bar], longest: float, labels: float) -> None:
    left = MARGIN + labels
    scale = (WIDTH - MARGIN - left - _WORDS) / longest
    for bar in bars:
        top = canvas.down(_ROW)
        length = max(bar.value * scale, 1.0)
        canvas.text(left - 8, top + 8, bar.name, size=10, align="right", room=labels - 8)
        canvas.bar(left, top + 1.5, length, 13, Ink.BAR if bar.is_new else Ink.OTHER)
        end = length
        if bar.spread is not None:
            low, high = (value * scale for value in bar.spread)
            canvas.line(left + low, top + 8, left + high, top + 8, Ink.TEXT, 1.4)
            for x in (low, high):
                canvas.line(left + x, top + 4.5, left + x, top + 11.5, Ink.TEXT, 1.4)
            end = max(length, high)
        canvas.text(left + end + 8, top + 8, bar.words, size=10, room=WIDTH - left - end - 8)


def _draw_latency(canvas: Canvas, tables: Sequence[TimingTable]) -> None:
    for index, table in enumerate(tables):
        if index:
            canvas.down(14)
        title = Markup("{}, {}, {}").format(
            table.figure.device, table.figure.runtime, provider_name(table.figure.provider)
        )
        canvas.text(MARGIN, canvas.down(20) + 8, title, bold=True)
        rows = [(row.batch, _latency_bars(table, row)) for row in table.rows]
        ends = [max(bar.value, bar.spread[1] if bar.spread else 0.0) for _, bars in rows for bar in bars]
        for batch, bars in rows:
            canvas.down(4)
            canvas.text(MARGIN, canvas.height + 8, Markup("batch {}").format(batch), size=10, ink=Ink.SOFT)
            _draw_bars(canvas, bars, max(ends, default=1.0) or 1.0, _BATCHES)


def _latency_bars(table: TimingTable, row: Any) -> list[_Bar]:
    """What the artifact is compared with, if that was timed, and the artifact."""
    bars = []
    if row.baseline is not None:
        name = Markup("the source") if table.baseline is None else Markup("{}").format(table.baseline.name)
        words = Markup("{} ms").format(significant(row.baseline, 3))
        bars.append(_Bar(name, row.baseline.value, words, _middle_half(row.runs_against), False))
    if row.latency is not None:
        words = Markup("{} ms").format(significant(row.latency, 3))
        if row.ratio is not None:
            words = Markup("{}, {} times as fast").format(words, significant(row.ratio, 3))
        name = Markup("{}").format(table.artifact.name)
        bars.append(_Bar(name, row.latency.value, words, _middle_half(row.runs)))
    return bars


def _middle_half(runs: Sequence[Any]) -> tuple[float, float] | None:
    """The quartiles of raw runs; None for fewer than three."""
    if len(runs) < 3:
        return None
    from statistics import quantiles

    low, _, high = quantiles([run.value for run in runs], n=4, method="inclusive")
    return low, high


def _sizes(queries: Queries) -> list[_Bar]:
    """Each upstream file that something was made from, and what was made from it."""
    bars = []
    artifacts = [queries.artifact(artifact.name) for artifact in queries.release.published]
    for key in dict.fromkeys(artifact.made_from.raw for artifact in artifacts):
        source = queries.view.source.files[key]
        name = Markup("{} (source)").format(source.path)
        bars.append(_Bar(name, source.bytes.value, megabytes(source.bytes), None, False))
        for artifact in artifacts:
            if artifact.made_from == key:
                share = percent(artifact.bytes / source.bytes) if source.bytes else Markup("")
                words = Markup("{}, {}").format(megabytes(artifact.bytes), share)
                bars.append(_Bar(Markup("{}").format(artifact.file), artifact.bytes.value, words))
    return bars


def _draw_sizes(canvas: Canvas, bars: Sequence[_Bar]) -> None:
    _draw_bars(canvas, bars, max((bar.value for bar in bars), default=1.0) or 1.0, _FILES)
