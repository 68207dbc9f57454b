"""Filters for templates: how a number is written. None of them can make a number up.

Each takes a `Number` or a `Text` from the record, and gives finished output that still carries its origin.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from jinja2.exceptions import FilterArgumentError
from markupsafe import Markup, escape

from bot.card.markdown import plain_text, url_path, visible_lines
from bot.card.numbers import Kind, Number, Text, stronger

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def _number(value: Any) -> Number:
    if not isinstance(value, Number):
        raise FilterArgumentError(f"expects a number of the record, found {type(value).__name__}")
    return value


def _text(value: Any) -> Text:
    if not isinstance(value, Text):
        raise FilterArgumentError(f"expects a text of the record, found {type(value).__name__}")
    return value


def thousands(value: Number) -> Markup:
    """611872451 as 611,872,451."""
    return _number(value).show(f"{value.value:,}")


def significant(value: Number, digits: int = 2) -> Markup:
    """Rounded to some significant digits, without an exponent where a person would write none."""
    return _number(value).show(_significant(float(value.value), digits))


def _significant(value: float, digits: int) -> str:
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    rounded = f"{value:.{digits}g}"
    return f"{float(rounded):,.0f}" if "e" in rounded else rounded


def scientific(value: Number, digits: int = 3) -> Markup:
    """156500 as 1.57e5."""
    mantissa, exponent = f"{_number(value).value:.{digits - 1}e}".split("e")
    return value.show(f"{mantissa}e{int(exponent)}")


def percent(value: Number) -> Markup:
    """A share as a percentage: 99.5%, 10%."""
    return _number(value).show(f"{_significant(value.value * 100, 3)}%")


def millions(value: Number) -> Markup:
    """A count of parameters: 304M, 4.2M, 87k."""
    count = _number(value).value
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return value.show(f"{_significant(count / size, 3)}{letter}")
    return value.show(str(count))


def megabytes(value: Number) -> Markup:
    """A size for people, in units of a thousand: 612 MB."""
    count = float(_number(value).value)
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return value.show(f"{_significant(count / size, 3)} {unit}")
    return value.show(f"{count:.0f} bytes")


def fraction(value: Number) -> Markup:
    """0.00392… as 1/255, where it is a fraction of one by a small whole number; else as it is."""
    exact = Fraction(_number(value).value).limit_denominator(1024)
    is_fraction = exact.numerator == 1 and exact.denominator > 1 and float(exact) == value.value
    return value.show(str(exact)) if is_fraction else value.show(repr(value.value))


def words(value: Number) -> Markup:
    """A small count as a word."""
    count = _number(value).value
    return value.show(_WORDS[int(count)] if count in range(len(_WORDS)) else f"{count:,}")


def plural(value: Number, one: str, many: str) -> str:
    """The noun for a count."""
    return one if _number(value).value == 1 else many


def several(items: Sequence[Any]) -> bool:
    """Whether there is more than one."""
    return len(items) > 1


def count(items: Sequence[Any] | Mapping[Any, Any]) -> Number:
    """How many there are of what the record lists."""
    if not items:
        raise FilterArgumentError("cannot count an empty list: test for it first")
    path, kind, ledger = _origin(next(iter(items.values() if isinstance(items, Mapping) else items)))
    parent = path.rsplit("[", 1)[0] if path.endswith("]") else path.rsplit(".", 1)[0]
    return Number(len(items), f"count of {parent}", kind, ledger)


def _origin(item: Any) -> tuple[str, Kind, Any]:
    if isinstance(item, Number | Text):
        return item.field, item.kind, item.ledger
    if isinstance(item, tuple):
        return _origin(item[0])
    return item._path, item._kind, item._ledger


def total(numbers: Iterable[Number]) -> Number:
    """The sum of numbers of the record."""
    items = [_number(number) for number in numbers]
    if not items:
        raise FilterArgumentError("cannot add up an empty list: test for it first")
    kind = stronger(*(item.kind for item in items))
    origin = items[0].field if len(items) == 1 else f"({' + '.join(item.field for item in items)})"
    return Number(sum(item.value for item in items), origin, kind, items[0].ledger)


def median(numbers: Sequence[Number]) -> Number:
    """The median of numbers of the record."""
    from statistics import median as middle

    items = [_number(number) for number in numbers]
    origin = f"median of {items[0].field.rsplit('[', 1)[0]}"
    return Number(middle(item.value for item in items), origin, items[0].kind, items[0].ledger)


def smallest(numbers: Iterable[Number]) -> Number:
    """The smallest of numbers of the record."""
    return _extreme(numbers, "smallest", min)


def largest(numbers: Iterable[Number]) -> Number:
    """The largest of numbers of the record."""
    return _extreme(numbers, "largest", max)


def _extreme(numbers: Iterable[Number], word: str, choose: Callable[..., Any]) -> Number:
    items = [_number(number) for number in numbers]
    if not items:
        raise FilterArgumentError(f"there is no {word} of an empty list: test for it first")
    chosen: Number = choose(items, key=lambda item: item.value)
    kind = stronger(*(item.kind for item in items))
    origin = chosen.field if len(items) == 1 else f"{word} of ({', '.join(item.field for item in items)})"
    return Number(chosen.value, origin, kind, chosen.ledger)


def is_fixed(size: Any) -> bool:
    """Whether an axis has one size, and not a name or none."""
    return isinstance(size, Number)


def index_range(value: Number) -> Markup:
    """The indices of something that has this many entries: 0..99."""
    return _number(value).show(f"0..{int(value.value) - 1}")


def enumerated(names: Sequence[Text]) -> Markup:
    """What each index stands for: 0 is female, 1 is male."""
    return Markup(", ").join(
        name.show(f"{index} is {name.ledger.escape(name.raw)}") for index, name in enumerate(names)
    )


def series(numbers: Sequence[Number]) -> Markup:
    """A list of numbers, the middle of a long even one left out: 0, 1, 2, …, 100."""
    steps = {round(after.value - before.value, 9) for before, after in pairwise(numbers[1:])}
    if len(numbers) > 6 and len(steps) == 1:
        return Markup("{}, {}, {}, …, {}").format(*numbers[:3], numbers[-1])
    return join(numbers)


_PLURALS = {"year": "years", "pixel": "pixels"}


def units(unit: Text) -> Text:
    """A unit in the plural."""
    return _text(unit).replace_raw(_PLURALS.get(unit.raw, unit.raw))


def inline(value: Any) -> Markup:
    """Any part of the record on one line."""
    if isinstance(value, Text):
        return code(value)
    if isinstance(value, Number):
        return escape(value)
    if value is None or isinstance(value, bool):
        return Markup({None: "none", True: "yes", False: "no"}[value])  # noqa: S704
    if isinstance(value, Mapping):
        return Markup(", ").join(Markup("{} {}").format(code(key), inline(value[key])) for key in value) or Markup(
            "none"
        )
    return Markup(", ").join(inline(item) for item in value) or Markup("none")


def code(value: Text) -> Markup:
    """As code."""
    return _text(value).show(value.ledger.code(value.raw))


def python(value: Any) -> Markup:
    """As a Python literal, in plain ASCII: for code that a reader copies."""
    if isinstance(value, Text):
        literal = json.dumps(value.raw) if value.raw.isascii() and value.raw.isprintable() else ascii(value.raw)
        return value.show(literal)
    if isinstance(value, Number):
        return value.show(f"{value.value:.15g}")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Markup("[{}]").format(Markup(", ").join(python(item) for item in value))
    raise FilterArgumentError(f"cannot write {type(value).__name__} as code")


def python_series(numbers: Sequence[Number]) -> Markup:
    """Numbers as a numpy array in code, a run of whole numbers as a range: np.array([0.25, *range(1, 81)])."""
    values = [number.value for number in numbers]
    run = len(values)
    while run and values[run - 1] == values[-1] - (len(values) - run) and float(values[run - 1]).is_integer():
        run -= 1
    if len(values) - run < 4:
        return Markup("np.array({})").format(python(numbers))
    last = numbers[-1].show(f"range({int(values[run])}, {int(values[-1]) + 1})")
    head = Markup("").join(Markup("{}, ").format(python(number)) for number in numbers[:run])
    return Markup("np.array([{}*{}])").format(head, last)


def identifier(value: Text) -> Markup:
    """A name as a Python variable."""
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in _text(value).raw)
    return value.show(name if name.isidentifier() else f"_{name}")


def short(value: Text, length: int = 12) -> Text:
    """The beginning of a digest."""
    return _text(value).replace_raw(value.raw[:length])


LOCAL_OWNER = "local-user"
"""The embedded Hub's own account. On the public Hub its repositories are nobody's, or somebody else's."""


def hub_link(repo: Text, kind: str | Text = "model") -> Markup:
    """A link to a repository on the Hub."""
    return _hub_link(repo, _text(repo), kind)


def commit_link(source: Any) -> Markup:
    """A source's commit, linked to the repository as it was then."""
    path = f"/tree/{url_path(source.commit.raw)}"
    return _hub_link(code(short(source.commit)), source.repo, source.repo_type, source.commit, path)


def source_file_link(file: Any, source: Any) -> Markup:
    """A file of a source, linked to it as it was at that commit."""
    path = f"/blob/{url_path(source.commit.raw)}/{url_path(file.path.raw)}"
    return _hub_link(file.path, source.repo, source.repo_type, file.path, path)


def _hub_link(label: Any, repo: Text, kind: str | Text, of: Text | None = None, path: str = "") -> Markup:
    """A link below a repository's page; only the label where there is no such page."""
    if not repo or not repo.ledger.links or repo.raw.startswith(f"{LOCAL_OWNER}/"):
        return escape(label)
    prefix = "datasets/" if kind == "dataset" else ""
    url = f"https://huggingface.co/{prefix}{url_path(repo.raw)}{path}"
    return Markup("[{}]({})").format(label, (of or repo).show(url))


def file_link(path: Text, label: Text | None = None) -> Markup:
    """A link to a file of the same repository."""
    return Markup("[{}]({})").format(label if label is not None else path, path.show(url_path(_text(path).raw)))


def url(path: Text) -> Markup:
    """The path of a file of the same repository, for the inside of a link."""
    return path.show(url_path(_text(path).raw))


def url_link(url: Text) -> Markup:
    """A web address as a link, if it is one; else as inert text."""
    raw = plain_text(_text(url).raw)
    if not raw.startswith("https://") or set(raw) & set(" <>\"'()[]\\`|"):
        return escape(url)
    return Markup("<{}>").format(url.show(raw))


def origin_link(origin: Text) -> Markup:
    """Where a licence's text comes from; an address at its beginning is linked."""
    address, space, rest = _text(origin).raw.partition(" ")
    if not address.startswith("https://"):
        return escape(origin)
    return Markup("{}{}{}").format(url_link(origin.replace_raw(address)), space, origin.replace_raw(rest))


def join(items: Iterable[Any], separator: str = ", ", last: str | None = None) -> Markup:
    """Items one after the other; `last` goes before the last one."""
    shown = [escape(item) for item in items]
    if last is None or len(shown) < 2:
        return Markup(separator).join(shown)  # noqa: S704
    return Markup(separator).join(shown[:-1]) + Markup(last) + shown[-1]  # noqa: S704


def verbatim(value: Text) -> Markup:
    """Several lines of text in an HTML page, as they are."""
    return value.show(str(escape(visible_lines(_text(value).raw))))


def codes(items: Iterable[Any]) -> list[Markup]:
    """Each as a code span."""
    return [code(item) for item in items]


def shape(dimensions: Sequence[Any] | None) -> Markup:
    """A tensor's shape: `B×3×224×224`, dynamic axes by their names."""
    if dimensions is None:
        return Markup("any shape")
    return Markup(" × ").join(escape("?" if each is None else each) for each in dimensions)


_FIGURES = {
    "mean_absolute": "mean absolute difference, {}",
    "max_absolute": "largest absolute difference, {}",
    "relative": "relative difference, {}",
    "agreement": "same decision, {}",
    "flips": "decisions that differ, {}",
    "mean_cosine": "mean cosine, {}",
    "min_cosine": "smallest cosine, {}",
    "ranking": "order by cosine, {}",
    "nearest": "same nearest neighbour, {}",
    "kept": "share of the detections that are kept, {}",
    "lost": "detections lost, {}",
    "new": "new detections, {}",
    "found": "detections of the source, {}",
    "mean_score_drift": "mean change of the score, {}",
    "max_score_drift": "largest change of the score, {}",
    "mean_box_drift": "mean shift of a box, {}",
    "max_box_drift": "largest shift of a box, {}",
    "mean_overlap": "mean overlap of a box with the source's, {}",
    "min_overlap": "smallest overlap of a box with the source's, {}",
    "mean_point_drift": "mean shift of a landmark, {}",
    "max_point_drift": "largest shift of a landmark, {}",
    "map": "mean average precision against the source, {}",
    "label_map": "mean average precision by the labels, {}",
    "source_label_map": "the source's own by the labels, {}",
    "label_map_change": "change of it, {}",
    "label_map_coco": "mean average precision by the labels, over all overlaps, {}",
}

_COUNTED = frozenset({"flips", "non_finite_values", "lost", "new", "found"})
_SHARES = frozenset({"kept", "map", "label_map", "source_label_map", "label_map_coco", "mean_overlap", "min_overlap"})


def figure_name(figure: Any) -> Markup:
    """What a difference from the source is called: mean absolute difference, age."""
    subject = figure.subject
    if subject.startswith("output:"):
        subject = Markup("output {}").format(code(subject.replace_raw(subject.raw.removeprefix("output:"))))
    if figure.metric == "non_finite_values":
        every = figure.subject == "finite"
        return Markup("NaN or infinite values") if every else Markup("NaN or infinite values, {}").format(subject)
    pattern = _FIGURES.get(figure.metric.raw)
    if pattern is None:
        return Markup("{}, {}").format(figure.metric.replace_raw(figure.metric.raw.replace("_", " ")), subject)
    return Markup(pattern).format(subject)  # noqa: S704


def figure_label(figure: Any) -> Markup:
    """What any figure is called: as above, or the time for a batch, or how many times as fast one is."""
    if figure.subject == "latency":
        return Markup("time for a batch of {}").format(figure.batch)
    if figure.subject == "speedup":
        return Markup("times as fast, batch {}").format(figure.batch)
    return figure_name(figure)


def plain_entries(report: Any) -> Any:
    """Those entries of a report that are one figure or one word."""
    return report.only(lambda value: isinstance(value, str | int | float))


def provider_name(provider: Text) -> Markup:
    """A provider for people."""
    names = {"cpu": "CPU provider", "cuda": "CUDA provider", "fp16-emulation": "true fp16, emulated", "": "—"}
    return provider.show(names.get(provider.raw) or provider.ledger.escape(provider.raw))


def cosine(value: Number) -> Markup:
    """A cosine, with as many digits as tell it from one."""
    return _number(value).show(f"{value.value:.6f}")


def limit(verdict: Any) -> Markup:
    """A verdict's limit: at most 0.02 years; all, where every decision must agree."""
    if verdict is None or verdict.limit is None:
        return Markup("")
    if verdict.rule.raw.endswith(".agreement"):
        return verdict.limit.show("all") if verdict.limit == 1 else Markup("at least {}").format(percent(verdict.limit))
    word = "at most" if verdict.comparison == "max" else "at least"
    if verdict.rule.raw.endswith("_cosine"):
        return Markup("{} {}").format(word, cosine(verdict.limit))
    return Markup("{} {}").format(word, with_unit(verdict.limit, verdict.unit))


def verdict_value(verdict: Any) -> Markup:
    """What a gate found: 0.012 years, 99.5%."""
    if verdict.value is None:
        return Markup("")
    if verdict.rule.raw.endswith(".agreement"):
        return percent(verdict.value)
    return with_unit(verdict.value, verdict.unit)


def moves(image: Mapping[str, Any]) -> bool:
    """Whether a mean is subtracted from an image input."""
    return any(image["mean"])


def divides(image: Mapping[str, Any]) -> bool:
    """Whether an image input is divided by a standard deviation."""
    return any(each != 1 for each in image["std"])


def pil_filter(resample: Text) -> Markup:
    """Pillow's name for a resampling filter."""
    names = {"area": "BOX", "nearest": "NEAREST", "bilinear": "BILINEAR", "bicubic": "BICUBIC", "lanczos": "LANCZOS"}
    return resample.show(names[resample.raw])


def value_with_unit(figure: Any) -> Markup:
    """A measurement for people: 0.012 years, 200 of 200, none, 13.2 ms."""
    value = _number(figure.value)
    metric, unit = figure.metric.raw, figure.unit.raw
    if metric == "agreement":
        agreed = value.value * figure.samples.value
        if not figure.samples or abs(agreed - round(agreed)) > 1e-6:
            return percent(value)
        return Markup("{} of {}").format(value.show(str(round(agreed))), figure.samples)
    if metric in _COUNTED:
        return value.show(f"{value.value:,.0f}" if value.value else "none")
    if metric in {"mean_cosine", "min_cosine"}:
        return value.show(f"{value.value:.6f}")
    if metric in _SHARES | {"ranking", "nearest"}:
        return value.show(f"{value.value:.4f}")
    return with_unit(value, figure.unit if unit else None)


def with_unit(value: Number, unit: Text | None, shown: str = "") -> Markup:
    """A number and its unit, in the plural where it is one that has a plural."""
    shown = shown or _significant(float(_number(value).value), 3 if unit == "ms" else 2)
    if unit is None or not unit:
        return value.show(shown)
    plural_unit = _PLURALS.get(unit.raw, unit.raw)
    return Markup("{} {}").format(value.show(shown), unit.replace_raw(plural_unit))


def signed(value: Number, unit: Text) -> Markup:
    """A difference of two figures, with its sign: +0.003 years, −1.2 ms."""
    shown = _significant(abs(float(_number(value).value)), 2)
    sign = "+" if value.value > 0 else "−" if value.value < 0 else "±"
    return with_unit(value, unit, shown=f"{sign}{shown}")


def letterboxed(image: Any) -> bool:
    """Whether a picture keeps its aspect ratio and gets bars."""
    return "fit" in image and bool(image["fit"] == "letterbox")


FILTERS: dict[str, Callable[..., Any]] = {
    "letterboxed": letterboxed,
    "thousands": thousands,
    "significant": significant,
    "scientific": scientific,
    "percent": percent,
    "millions": millions,
    "megabytes": megabytes,
    "fraction": fraction,
    "words": words,
    "plural": plural,
    "several": several,
    "count": count,
    "total": total,
    "median": median,
    "smallest": smallest,
    "largest": largest,
    "is_fixed": is_fixed,
    "url": url,
    "index_range": index_range,
    "enumerated": enumerated,
    "series": series,
    "units": units,
    "inline": inline,
    "code": code,
    "codes": codes,
    "verbatim": verbatim,
    "python": python,
    "python_series": python_series,
    "identifier": identifier,
    "short": short,
    "hub_link": hub_link,
    "commit_link": commit_link,
    "source_file_link": source_file_link,
    "file_link": file_link,
    "url_link": url_link,
    "join": join,
    "shape": shape,
    "figure_name": figure_name,
    "figure_label": figure_label,
    "plain_entries": plain_entries,
    "provider_name": provider_name,
    "cosine": cosine,
    "limit": limit,
    "verdict_value": verdict_value,
    "moves": moves,
    "divides": divides,
    "origin_link": origin_link,
    "pil_filter": pil_filter,
    "value_with_unit": value_with_unit,
    "with_unit": with_unit,
    "signed": signed,
}

_LINKS = ("hub_link", "commit_link", "source_file_link", "file_link", "url_link", "url")

MARKDOWN_ONLY = frozenset(["python", "python_series", "identifier", *_LINKS])
"""Filters whose output is Markdown or code in Markdown, and so is not for a page."""
