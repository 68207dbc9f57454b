"""Prints pins, their checks and their bumps: lines for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer

from bot.hub.pin_checks import Bump, PinCheck
from bot.hub.pin_manifest import PinManifest
from bot.hub.pins import Shown, fact_lines, facts


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_shown(shown: Shown, *, full: bool, as_json: bool) -> None:
    """Prints the blocks on standard output, and on standard error what a consumer should mind."""
    for warning in shown.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if as_json:
        artifacts = [
            {"artifact": each.artifact.name, "pins": [pin.to_plain() for pin in each.pins], **facts(each)}
            for each in shown.artifacts
        ]
        _print_json(
            {
                "repository": shown.repo,
                "revision": shown.revision,
                "identity": shown.release.identity,
                "warnings": list(shown.warnings),
                "artifacts": artifacts,
            }
        )
        return
    for each in shown.artifacts:
        typer.echo(each.block())
        if full:
            for line in fact_lines(each):
                typer.echo(_printable(f"  {line}"))


def print_checks(manifest: PinManifest, checks: Sequence[PinCheck], *, as_json: bool) -> None:
    """Prints what was found of each pin."""
    if as_json:
        ok = all(check.status == "ok" for check in checks)
        pins = [_check(check) for check in checks]
        _print_json({"manifest": str(manifest.path), "ok": ok, "pins": pins, "incomplete": list(manifest.incomplete)})
        return
    _print_incomplete(manifest)
    for check in checks:
        pin = check.placed.pin
        typer.echo(_printable(f"{check.placed.where(manifest.path)}: {pin.repo}@{pin.revision[:12]}/{pin.file}"))
        how = {"hub": "as the Hub says", "download": "downloaded", "": ""}[check.method]
        typer.echo(_printable(f"  {check.status}: {check.reason or how}"))
        if check.newest:
            typer.echo("  it is what the newest release offers")
        elif check.newest_pin:
            newest = check.newest_pin
            typer.echo(_printable(f"  newest: {newest.revision[:12]}/{newest.file}, sha256 {newest.sha256}"))
        for line in (*check.changes, *check.notes):
            typer.echo(_printable(f"  {line}"))


def _check(check: PinCheck) -> dict[str, Any]:
    return {
        "line": check.placed.line,
        "key": check.placed.key,
        **check.placed.pin.to_plain(),
        "status": check.status,
        "reason": check.reason,
        "found": check.found,
        "method": check.method,
        "newest": check.newest,
        "newest_pin": check.newest_pin.to_plain() if check.newest_pin else None,
        "changes": list(check.changes),
        "notes": list(check.notes),
    }


def print_bumps(manifest: PinManifest, bumps: Sequence[Bump], *, dry_run: bool, as_json: bool) -> None:
    """Prints what was moved, what was not, and why."""
    if as_json:
        _print_json(
            {
                "manifest": str(manifest.path),
                "written": not dry_run and any(bump.outcome == "bumped" for bump in bumps),
                "pins": [_bump(bump) for bump in bumps],
                "incomplete": list(manifest.incomplete),
            }
        )
        return
    _print_incomplete(manifest)
    words = {"bumped": "would be moved" if dry_run else "moved", "current": "nothing newer", "kept": "not moved"}
    for bump in bumps:
        pin = bump.group[0].pin
        typer.echo(_printable(f"{bump.group[0].where(manifest.path)}: {pin.repo}/{pin.file}"))
        typer.echo(_printable(f"  {words[bump.outcome]}: {bump.reason}"))
        for before, after in zip(bump.group, bump.pins, strict=False):
            typer.echo(_printable(f"  {before.pin.revision[:12]} -> {after.revision[:12]}: {after.file}"))
        for note in bump.notes:
            typer.echo(_printable(f"  {note}"))


def _bump(bump: Bump) -> dict[str, Any]:
    return {
        "line": bump.group[0].line,
        "key": bump.group[0].key,
        "outcome": bump.outcome,
        "reason": bump.reason,
        "before": [placed.pin.to_plain() for placed in bump.group],
        "after": [pin.to_plain() for pin in bump.pins],
        "notes": list(bump.notes),
    }


def _print_incomplete(manifest: PinManifest) -> None:
    for sentence in manifest.incomplete:
        typer.echo(_printable(f"warning: {sentence}"), err=True)


def _printable(text: str) -> str:
    """Text that cannot move a terminal's cursor; names come from a repository that anybody may have written."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
