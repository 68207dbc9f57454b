"""Pieces of the review page that are made in code: the rendered card, the list of changes, the histograms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from bot.card.markdown import plain_text
from bot.records import Artifact, Release


@dataclass(frozen=True)
class Change:
    """Something that is otherwise than in the release before."""

    what: str
    before: str
    after: str


def card_html(card: str) -> Markup:
    """A card as HTML; its front matter as a code block. HTML in the card is shown as text, links are not followed."""
    from markdown_it import MarkdownIt

    _, front_matter, body = card.split("---\n", 2) if card.startswith("---\n") else ("", "", card)
    markdown = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table").disable("image")
    tokens = markdown.parse(body)
    for token in tokens:
        for child in token.children or ():
            # A link to a neighbouring file leads nowhere from this page.
            if child.type == "link_open" and not str(child.attrGet("href")).startswith("https://"):
                child.attrs = {"title": "a file of the repository"}
    head = Markup("<pre><code>{}</code></pre>\n").format(front_matter) if front_matter else Markup("")
    rendered = markdown.renderer.render(tokens, markdown.options, {})
    return head + Markup(rendered)  # noqa: S704 - the parser escapes what it does not make itself


def changes(release: Release, previous: Release | None) -> list[Change]:
    """What a reviewer must know that differs from the release before: files, signature, licences, source, figures."""
    if previous is None:
        return []
    found = [
        *_changed("source commit", previous.source.commit, release.source.commit),
        *_changed("licence upstream", previous.source.license or "none", release.source.license or "none"),
        *_changed("licences", _licenses(previous), _licenses(release)),
        *_changed("runtime", previous.runtime, release.runtime),
    ]
    before = {artifact.name: artifact for artifact in previous.published}
    after = {artifact.name: artifact for artifact in release.published}
    for name in sorted({*before, *after}):
        found += _artifact_changes(name, before.get(name), after.get(name))
    return found + _figure_changes(previous, release)


def _change(what: str, before: str, after: str) -> Change:
    return Change(plain_text(what), plain_text(before), plain_text(after))


def _changed(what: str, before: str, after: str) -> list[Change]:
    return [] if before == after else [_change(what, before, after)]


def _licenses(release: Release) -> str:
    return ", ".join(f"{license.name} ({license.sha256[:12]})" for license in release.licenses)


def _artifact_changes(name: str, before: Artifact | None, after: Artifact | None) -> list[Change]:
    if before is None or after is None:
        return [_change(name, _file(before), _file(after))]
    return [
        *_changed(f"{name}: file", _file(before), _file(after)),
        *_changed(f"{name}: signature", _signature(before), _signature(after)),
        *_changed(f"{name}: tools", _tools(before), _tools(after)),
    ]


def _file(artifact: Artifact | None) -> str:
    return "—" if artifact is None else f"{artifact.file}, {artifact.bytes:,} bytes, {artifact.sha256[:12]}"


def _signature(artifact: Artifact) -> str:
    signature = artifact.signature
    tensors = [
        f"{tensor.name} {tensor.dtype} {'×'.join(str(size) for size in tensor.shape or ())}"
        for tensor in (*signature.inputs, *signature.outputs)
    ]
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(signature.opsets.items()))
    return f"{'; '.join(tensors)}; opset {opsets}; IR {signature.ir_version}; runtime {signature.minimum_runtime}"


def _tools(artifact: Artifact) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(artifact.built_with.items()))


def _figure_changes(previous: Release, release: Release) -> list[Change]:
    def figures(of: Release) -> dict[tuple[str, str, str], Any]:
        return {(each.artifact, each.key, each.provider): each for each in of.measurements}

    before, found = figures(previous), []
    for key, after in figures(release).items():
        if key in before and before[key].value != after.value:
            what = f"{after.artifact}: {after.key} on {after.provider or '—'}"
            unit = f" {after.unit}" if after.unit else ""
            found.append(_change(what, f"{before[key].value:.4g}{unit}", f"{after.value:.4g}{unit}"))
    return found


def histogram_svg(measurement: Any) -> Markup:
    """The differences on all samples as bars, drawn with the page's own colours.

    Args:
        measurement: The view of a measurement that has a histogram.
    """
    unit = plain_text(measurement.unit.raw)
    edges = [edge.value for edge in measurement.histogram.edges]
    counts = [count.value for count in measurement.histogram.counts]
    top = max(counts, default=0) or 1
    width = 100 / max(len(counts), 1)
    bars = Markup("").join(
        Markup('<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"><title>{}</title></rect>').format(
            index * width,
            40 - 40 * count / top,
            max(width - 0.4, 0.1),
            40 * count / top,
            f"{count} samples from {edges[index]:.3g} to {edges[index + 1]:.3g} {unit}",
        )
        for index, count in enumerate(counts)
    )
    label = f"Differences from {edges[0]:.3g} to {edges[-1]:.3g} {unit}, {sum(counts)} samples"
    return Markup('<svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>').format(
        escape(label), bars
    )
