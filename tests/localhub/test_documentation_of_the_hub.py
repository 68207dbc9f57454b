"""docs/localhub.md names every address that the embedded Hub answers, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from bot.localhub.app import routes
from bot.localhub.web import Route

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "localhub.md").read_text()
DONE, _, LEFT_OUT = TEXT.partition("## Endpoints")[2].partition("### Left out")


def address(route: Route) -> str:
    """Return the address of a route as the table writes it: ``{id}`` for owner and name, with or without a kind."""
    if route.pattern.startswith("/api/"):
        return route.pattern.replace("/{kind}/{ns}/{name}", "/{kind}/{id}")
    return route.pattern.replace("/{kind}/{ns}/{name}", "/{id}").replace("/{ns}/{name}", "/{id}")


def rows(text: str) -> list[list[str]]:
    """Return the cells of the rows of a table that begins with methods."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in cells if re.fullmatch(r"[A-Z]+", row[0])]


def test_the_table_is_what_the_application_answers() -> None:
    real = {(route.method, address(route)): route.handler.__module__.rpartition(".")[2] for route in routes()}
    written = {(method, path.strip("`")): module.strip("`") for method, path, _, module in rows(DONE)}
    assert written == real
    assert len(rows(DONE)) == len(written), "an address stands in the table twice"
    assert all(len(what) > 5 for _, _, what, _ in rows(DONE))


def test_what_is_left_out_is_not_there() -> None:
    addresses = {address(route) for route in routes()}
    named = re.findall(
        r"`(?:[A-Z]+ )?([^`]*/[^`]*)`", "\n".join(line for line in LEFT_OUT.splitlines() if line[:1] == "|")
    )
    assert len(named) > 5
    for path in named:
        ending = path.removeprefix("...").rstrip(".")
        assert not any(each.endswith(ending) for each in addresses), f"{path} is answered"
