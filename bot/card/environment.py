"""The sandbox that templates run in."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound, Undefined
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup, escape

from bot.card.filters import FILTERS, MARKDOWN_ONLY
from bot.card.lint import check_template, loose_digits
from bot.card.numbers import Ledger, Number, NumberOnCard, Text
from bot.card.plots import error_figures, plot_path
from bot.card.tables import EMULATION, accuracy_tables, timing_tables
from bot.card.views import Queries, view
from bot.errors import RecipeError
from bot.records import Release

SHARED = "shared/"
"""Prefix of the templates that all recipes share."""

_KEPT_FILTERS = ("first", "last", "list", "select", "reject", "selectattr", "rejectattr", "map", "unique", "sort")
"""Jinja's own filters that only choose among things. The others make strings, which would lose their origin."""


def templates_folder() -> Path:
    """The shared templates: inside the installed package, or beside it in a checkout."""
    inside = Path(str(files("bot"))) / "templates"
    return inside if inside.is_dir() else inside.parent.parent / "templates"


class _Loader(BaseLoader):
    """The recipe's template, and the shared ones; each is checked for typed numbers as it is read."""

    def __init__(self, own: Mapping[str, str], *, check: bool) -> None:
        self.own = own
        self.check = check

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        text = self.own.get(template)
        if text is None:
            path = templates_folder() / template.removeprefix(SHARED)
            if not template.startswith(SHARED) or ".." in template or not path.is_file():
                raise TemplateNotFound(template)
            text = path.read_text("utf-8")
        if self.check:
            check_template(text, template)
        return text, template, lambda: True


def _finalize(value: Any) -> Markup:
    """What every `{{ … }}` passes through: only what has an origin, or was escaped before, comes out."""
    if isinstance(value, Undefined):
        str(value)  # Raises, and says the name.
    if isinstance(value, Markup | Number | Text):
        return escape(value)
    if isinstance(value, str):
        return escape(Text(value, "", "constant", _Unmarked()))
    raise RecipeError(f"{value!r} is not something that a card can print")


class _Unmarked(Ledger):
    """For literals in a template's own expressions: escaped, but without an origin."""

    def mark(self, text: str, origin: str, kind: object) -> Markup:
        return Markup(text)  # noqa: S704 - escaped by the caller


def environment(release: Release, ledger: Ledger, own: Mapping[str, str], *, html: bool = False) -> Environment:
    """A sandboxed environment that shows one release.

    Args:
        release: All that templates may know.
        ledger: Where what is printed is entered.
        own: Templates by name, besides the shared ones.
        html: Templates are HTML: their own digits are not figures, and are not looked for.
    """
    from numpy import finfo, float16

    result = ImmutableSandboxedEnvironment(
        loader=_Loader(own, check=not html),
        autoescape=True,
        finalize=None if html else _finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    unfit = MARKDOWN_ONLY if html else frozenset()
    own_filters = {name: filter_ for name, filter_ in FILTERS.items() if name not in unfit}
    result.filters = {name: result.filters[name] for name in _KEPT_FILTERS} | own_filters
    queries = Queries(release, ledger)
    constants = {"fp16_largest": int(finfo(float16).max)}
    result.globals = {
        "release": queries.view,
        "constants": view(constants, "constants", "constant", ledger),
        "accuracy_tables": lambda artifacts, **options: accuracy_tables(queries, artifacts, **options),
        "emulated": lambda tables: any(EMULATION in table.providers for table in tables),
        "timing_tables": lambda artifacts: timing_tables(queries, artifacts),
        "error_figures": lambda artifact: error_figures(queries, artifact),
        "snippet_code": lambda name: _snippet_code(name, ledger),
        "plot": lambda kind, artifact=None: _plot(queries, kind, artifact),
        **queries.functions(),
    }
    return result


def _snippet_code(name: str, ledger: Ledger) -> Markup:
    """A function that usage snippets share, as it stands in templates/snippets; what it imports the snippet has."""
    code = (templates_folder() / "snippets" / f"{name}.py").read_text("utf-8")
    body = re.sub(r"\A(?:import .*\n)+\n*", "", code).replace("  # noqa: F821", "").rstrip("\n")
    return Text(body, f"snippets.{name}", "constant", ledger).show(body)


def _plot(queries: Queries, kind: Any, artifact: Any) -> Text | None:
    """The path of a picture; None if there is no such picture."""
    release = queries.release
    record = release.artifact(artifact.name.raw) if artifact is not None else None
    path = plot_path(release, kind, record)
    origin = f"artifacts[{record.name}].name" if record is not None else "artifacts"
    return None if path is None else Text(path, origin, "recorded", queries.ledger)


def render(environment_: Environment, name: str, **context: Any) -> str:
    """Renders a template.

    Raises:
        RecipeError: The template is wrong, or names something that there is not; says file and line.
    """
    try:
        return environment_.get_template(name).render(**context)
    except TemplateSyntaxError as error:
        raise RecipeError(str(error.message), where=f"{error.filename or name}:{error.lineno}") from None
    except TemplateNotFound as error:
        raise RecipeError(f"there is no template {error.name!r}", where=_place(error, name)) from None
    except RecipeError as error:
        if error.where:
            raise
        raise RecipeError(error.what, where=_place(error, name), remedy=error.remedy) from None
    except (TemplateError, SecurityError, TypeError, KeyError, AttributeError, ValueError, ZeroDivisionError) as error:
        what = f"the template fails: {type(error).__name__}: {error}"
        raise RecipeError(what, where=_place(error, name)) from error


def _place(error: BaseException, name: str) -> str:
    """File and line in the template, from the traceback that Jinja rewrites."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(".j2")]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else name


def finish(text: str, ledger: Ledger, name: str) -> tuple[str, tuple[NumberOnCard, ...]]:
    """Takes the marks out of what was rendered, if every digit in it has one.

    Raises:
        RecipeError: A digit has no origin.
    """
    for line, word in loose_digits(text):
        raise RecipeError(
            f"line {line} of the result has a number that comes from no field: {word!r}",
            where=name,
            remedy="Print a field of the record instead.",
        )
    return ledger.finish(text)
