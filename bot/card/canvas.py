"""A drawing surface for a card's pictures: bars, lines and words, as an SVG whose bytes are the same on every machine.

matplotlib writes the SVG. The font is the one that it ships, and letters become shapes. What it would put in besides
(date, version, the words again as comments) is taken out, coordinates are rounded to a hundredth of a point, and
colours are written so that a style sheet in the file can exchange them where the reader's system is dark.
"""

from __future__ import annotations

import io
import re
import warnings
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from bot.card.lint import loose_digits
from bot.card.markdown import plain_text
from bot.card.numbers import Ledger, NumberOnCard
from bot.errors import RecipeError

WIDTH = 560
"""Of every picture, in points."""

MARGIN = 16.0
_POINTS_PER_INCH = 72
_LETTER = 0.56
"""Mean width of a letter, in units of its size: enough to keep long names from running into what is beside them."""


class Ink(Enum):
    """The colours: on a light ground, and on a dark one."""

    PAPER = ("#ffffff", "#14171c")
    TEXT = ("#1c1f24", "#e7eaf0")
    SOFT = ("#5a6270", "#a3acba")
    LINE = ("#c3cad4", "#454e5c")
    BAR = ("#3f72b5", "#7fa9dd")
    OTHER = ("#848e9d", "#737d8c")
    MARK = ("#b3261e", "#ff9d94")

    @property
    def light(self) -> str:
        """The one that is drawn with."""
        return self.value[0]


class Canvas:
    """A picture that grows downwards. Positions are in points, from the top left corner.

    Args:
        ledger: Where the texts that it is given were marked; its escape makes plain text.
    """

    def __init__(self, ledger: Ledger) -> None:
        from matplotlib.figure import Figure

        self.numbers: list[NumberOnCard] = []
        self.height = MARGIN
        self._ledger = ledger
        self._figure = Figure(figsize=(1, 1))
        self._axes = self._figure.add_axes((0, 0, 1, 1))
        self._axes.set_axis_off()
        self._fonts: dict[tuple[float, bool], Any] = {}

    def down(self, height: float) -> float:
        """Takes up some height, and returns where it begins."""
        top = self.height
        self.height += height
        return top

    def bar(self, x: float, y: float, width: float, height: float, ink: Ink) -> None:
        """A filled rectangle."""
        from matplotlib.patches import Rectangle

        self._axes.add_patch(Rectangle((x, y), width, height, facecolor=ink.light, edgecolor="none", clip_on=False))

    def polygon(self, points: list[tuple[float, float]], ink: Ink) -> None:
        """A filled shape."""
        from matplotlib.patches import Polygon

        self._axes.add_patch(Polygon(points, closed=True, facecolor=ink.light, edgecolor="none", clip_on=False))

    def line(self, x: float, y: float, to_x: float, to_y: float, ink: Ink, width: float = 1.0) -> None:
        """A straight line."""
        self._axes.plot([x, to_x], [y, to_y], color=ink.light, linewidth=width, solid_capstyle="butt", clip_on=False)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 11,
        ink: Ink = Ink.TEXT,
        align: Literal["left", "center", "right"] = "left",
        bold: bool = False,
        room: float = WIDTH,
    ) -> None:
        """Words, centred on the height `y`.

        Args:
            x: Where they begin, have their middle, or end.
            y: The height of their middle.
            text: May hold marked values of the record.
            size: In points.
            ink: Their colour.
            align: What `x` is.
            bold: Whether they stand out.
            room: How wide they may become; what does not fit is cut off.

        Raises:
            RecipeError: A number in them comes from no field.
        """
        for _, word in loose_digits(text):
            raise RecipeError(f"a picture has a number that comes from no field: {word!r}")
        plain, numbers = self._ledger.finish(text)
        self.numbers += numbers
        plain = plain_text(plain)
        letters = max(int(room / (size * _LETTER)), 1)
        if len(plain) > letters:
            plain = plain[: letters - 1].rstrip() + "…"
        font = self._font(size, bold)
        self._axes.text(
            x, y, plain, color=ink.light, ha=align, va="center_baseline", fontproperties=font, parse_math=False
        )

    def _font(self, size: float, bold: bool) -> Any:
        import matplotlib
        from matplotlib.font_manager import FontProperties

        if (size, bold) not in self._fonts:
            name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
            path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name
            self._fonts[size, bold] = FontProperties(fname=path, size=size)
        return self._fonts[size, bold]

    def svg(self) -> bytes:
        """The picture."""
        import matplotlib

        height = self.height + MARGIN
        self._figure.set_size_inches(WIDTH / _POINTS_PER_INCH, height / _POINTS_PER_INCH)
        self._axes.set_xlim(0, WIDTH)
        self._axes.set_ylim(height, 0)
        stream = io.StringIO()
        settings: dict[Any, Any] = {key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"}
        settings |= {"svg.fonttype": "path", "svg.hashsalt": "card", "path.simplify": False}
        with matplotlib.rc_context(settings), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A letter that the font lacks is drawn as a box.
            self._figure.savefig(
                stream, format="svg", facecolor=Ink.PAPER.light, metadata={"Date": None, "Creator": None}
            )
        return _tidied(stream.getvalue()).encode()


_STYLE = re.compile(r' style="([^"]*)"')
_NUMBER = re.compile(r"-?\d+\.\d{3,}")


def _tidied(svg: str) -> str:
    """The SVG without what says nothing, its colours as attributes, and a style sheet that knows the dark ones."""
    svg = re.sub(r"<\?xml.*?\?>\s*|<!DOCTYPE.*?>\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>\s*|<style type=[^>]*>.*?</style>\s*", "", svg, flags=re.DOTALL)
    svg = _STYLE.sub(_as_attributes, svg)
    svg = _NUMBER.sub(lambda match: _rounded(match[0]), svg)
    rules = "".join(
        f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}'
        for light, dark in (ink.value for ink in Ink)
    )
    style = f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>\n"
    head = svg.index(">", svg.index("<svg")) + 1
    svg = f"{svg[:head]}\n{style}{svg[head:].lstrip()}"
    svg = re.sub(r' id="(?:figure|patch|axes|line2d|text)_\d+"', "", svg)
    return re.sub(r"\s*\n\s*", "\n", svg)


def _as_attributes(match: re.Match[str]) -> str:
    """A style as attributes of its element: a page that forbids styles in pictures shows the light colours then."""
    pairs = (entry.split(":", 1) for entry in match[1].split(";") if ":" in entry)
    return "".join(f' {name.strip()}="{value.strip()}"' for name, value in pairs)


def _rounded(text: str) -> str:
    value = float(text)
    # Small values are scales of shapes, of which a hundredth would be a large part.
    return text if abs(value) < 1 else f"{value:.2f}".rstrip("0").rstrip(".")
