"""The pictures: the same bytes everywhere, readable on any ground, and without a figure that comes from nowhere."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from releases import ROOT, release_of, template

from bot.card.canvas import Canvas, Ink
from bot.card.card import render_card, render_plots
from bot.card.markdown import plain_text
from bot.card.numbers import Ledger
from bot.errors import RecipeError
from bot.recipe import load_recipe, recipe_names
from bot.records import Release

NAMES = ["seed", "fused", "two_networks", "withheld"]


def luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", NAMES)
def test_the_card_shows_exactly_the_pictures_that_are_drawn(name: str, request: pytest.FixtureRequest) -> None:
    release = request.getfixturevalue(name)
    card = render_card(release, template=template(release.recipe), template_name="x/card.md.j2").text
    plots = render_plots(release)
    assert sorted(re.findall(r"\]\((plots/[^)]*)\)", card)) == sorted(plot.path for plot in plots)
    assert len({plot.path for plot in plots}) == len(plots) > 0


def test_the_pictures_are_those_of_the_record(fused: Release) -> None:
    paths = [plot.path.removeprefix("plots/") for plot in render_plots(fused)]
    assert paths == ["errors-fp16.svg", "latency-fp16.svg", "latency-fused.svg", "size.svg"]
    bare = fused.model_copy(update={"measurements": ()})
    assert [plot.path for plot in render_plots(bare)] == ["plots/size.svg"]
    assert render_plots(fused.model_copy(update={"withheld": ("fp16", "fused")})) == ()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("0.074", "measurements[fp16 age.max_absolute cpu].histogram.edges[4]"),
        ("1f1f1f1f1f1f", "measurements[fp16 age.max_absolute cpu].worst_sample"),
        ("13.2", "median of measurements[fused latency.cuda.batch_1].runs_against"),
        ("3.88", "measurements[fused speedup.cuda.batch_1].value"),
        ("612 MB", "artifacts[fp16].bytes"),
        ("50.2%", "artifacts[fp16].bytes / source.files.network.bytes"),
    ],
)
def test_what_is_written_in_them_says_where_it_comes_from(fused: Release, text: str, field: str) -> None:
    assert (text, field) in [(each.text, each.field) for plot in render_plots(fused) for each in plot.numbers]


def test_a_number_from_nowhere_is_refused() -> None:
    with pytest.raises(RecipeError, match="comes from no field: '12'"):
        Canvas(Ledger(escape=plain_text)).text(0, 0, "12 ms")


@pytest.mark.parametrize("name", recipe_names(ROOT / "recipes"))
def test_they_are_small_sound_and_fetch_nothing(name: str) -> None:
    for plot in render_plots(release_of(load_recipe(ROOT / "recipes" / name))):
        assert len(plot.svg) < 64_000
        root = ElementTree.fromstring(plot.svg)  # noqa: S314
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert tags <= {"svg", "style", "defs", "g", "path", "use", "clipPath", "rect"}
        for element in root.iter():
            for key, value in element.attrib.items():
                if key.endswith("href"):
                    assert value.startswith("#")
                assert not key.startswith("on") and "url(http" not in value
        assert b"<!--" not in plot.svg and b"metadata" not in plot.svg and b"style=" not in plot.svg


def test_the_bytes_do_not_depend_on_the_process_or_the_machine(fused: Release, tmp_path: Path) -> None:
    """Another hash seed, another home, a matplotlibrc with other fonts and colours, another language: same bytes."""
    (tmp_path / "matplotlibrc").write_text(
        "font.family: serif\nsvg.fonttype: none\nlines.linewidth: 9\naxes.unicode_minus: 0\n"
    )
    script = (
        "import sys, hashlib; sys.path.insert(0, 'tests/card')\n"
        "from releases import fused_release\nfrom bot.card.plots import render_plots\n"
        "print(hashlib.sha256(b''.join(plot.svg for plot in render_plots(fused_release()))).hexdigest())"
    )
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "MATPLOTLIBRC": str(tmp_path),
        "PYTHONHASHSEED": "7",
        "LC_ALL": "C",
    }
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    here = hashlib.sha256(b"".join(plot.svg for plot in render_plots(fused))).hexdigest()
    assert answer.stdout.strip() == here


def test_they_can_be_read_on_light_and_dark(fused: Release) -> None:
    for which in (0, 1):
        paper = Ink.PAPER.value[which]
        for ink in (Ink.TEXT, Ink.SOFT, Ink.MARK):
            assert contrast(ink.value[which], paper) >= 4.5, ink
        for ink in (Ink.BAR, Ink.OTHER):
            assert contrast(ink.value[which], paper) >= 3, ink
    text = render_plots(fused)[0].svg.decode()
    used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{6})"', text))
    assert used <= {ink.light for ink in Ink}
    assert "@media (prefers-color-scheme:dark)" in text
    assert all(f'[fill="{colour}"]' in text for colour in used)


@pytest.mark.parametrize(
    "evil", ["<script>alert(1)</script>", "$\\frac{1}{0}$", "a\nb\u202ec", "&x;]]>", "很长的名字" * 30]
)
def test_hostile_text_is_only_drawn(fused: Release, evil: str) -> None:
    measurements = tuple(each.model_copy(update={"device": evil, "runtime": evil}) for each in fused.measurements)
    artifacts = tuple(each.model_copy(update={"file": evil}) for each in fused.artifacts)
    plots = render_plots(fused.model_copy(update={"measurements": measurements, "artifacts": artifacts}))
    for plot in plots:
        ElementTree.fromstring(plot.svg)  # noqa: S314
        assert b"<script" not in plot.svg and b"frac" not in plot.svg and b"<text" not in plot.svg
