"""A release that is wrong though all its files agree with each other: only measuring or building again finds it.

The record, the list of files and the card tell the same lie, in a commit like the bot's own. A small network is really
published for it, once for all cases.
"""

from __future__ import annotations

import atexit
import hashlib
import json
from collections.abc import Callable
from typing import Any

from bot.canonical import canonical_json
from bot.hub.bundle import CARD, CARD_AS_RENDERED, README_RECORD, ids_of_bytes
from tests.chaos.place import Place
from tests.chaos.table import Result
from tests.verified import Case, change_figure, make_case, with_other_weights

Tampering = Callable[[Case], str]
"""Brings the wrong release to the Hub, and returns the commit."""


def _figure(artifact: str, provider: str) -> Tampering:
    """Half the difference, in the record, in its verdict, and on the card."""

    def work(case: Case) -> str:
        (old,) = (
            each["value"]
            for each in case.record()["measurements"]
            if (each["artifact"], each["subject"], each["provider"]) == (artifact, "score", provider)
        )

        def change(record: dict[str, Any]) -> None:
            change_figure(record, artifact, "score", provider, value=old / 2)
            for verdict in record["verdicts"]:
                if (verdict["artifact"], verdict["provider"], verdict["value"]) == (artifact, provider, old):
                    verdict["value"] = old / 2

        before = case.content(CARD)
        card = before
        for digits in (4, 3, 2):
            card = card.replace(f"{old:.{digits}g}".encode(), f"{old / 2:.{digits}g}".encode())
        if card == before:
            raise AssertionError(f"the card does not show {old}")
        told = json.loads(case.content(README_RECORD)) | {"sha256": hashlib.sha256(card).hexdigest()}
        files = {CARD: card, CARD_AS_RENDERED: card, README_RECORD: canonical_json(told)}
        return case.tampered(change, **files)

    return work


def _source(case: Case) -> str:
    def change(record: dict[str, Any]) -> None:
        record["source"]["files"]["network"]["sha256"] = "0" * 64

    return case.tampered(change)


def _license(case: Case) -> str:
    return case.tampered(lambda record: record["source"].update(license="cc0-1.0"))


def _weights(case: Case) -> str:
    other = with_other_weights(case.content("network-fp16.onnx"))

    def change(record: dict[str, Any]) -> None:
        artifact = next(each for each in record["artifacts"] if each["file"] == "network-fp16.onnx")
        artifact.update(sha256=ids_of_bytes(other).sha256, bytes=len(other))

    return case.tampered(change, **{"network-fp16.onnx": other})


LIES: dict[str, tuple[str, Tampering]] = {
    "figure and card changed": ("fp16: score.mean_absolute on cpu", _figure("fp16", "cpu")),
    "emulated figure and card changed": (
        "second: score.mean_absolute on fp16-emulation",
        _figure("second", "fp16-emulation"),
    ),
    "source changed in the record": ("somebody/network: network", _source),
    "licence upstream changed in the record": ("licence somebody/network", _license),
    "weights and record changed": ("rebuilt file network-fp16.onnx", _weights),
}


SHORT = ("figure and card changed",)
"""Those of the short form."""


class Remeasured:
    """The cases; what is published for them is published, and found to be right, when the first one is carried out."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._case: Case | None = None

    def _published(self) -> Case:
        if self._case is None:
            self._case = make_case(self._place.scratch())
            atexit.register(self._case.world.hub.kill)
            if (error := _verify(self._case, self._case.commit)) is not None:
                raise AssertionError(f"a release that nobody touched does not pass: {error}")
        return self._case

    def carry_out(self, kind: str) -> Result:
        """One release that was made wrong, and verified by somebody with nothing but the Hub."""
        name, group = f"tamper-all/{kind}", "verify | what only measuring or building again finds, exit code 8"
        case = self._published()
        part, work = LIES[kind]
        error = _verify(case, work(case))
        code, text = getattr(error, "exit_code", None), str(error or "")
        if error is None:
            return Result(name, group, "it passes", "missed")
        if code != 8 or part not in text:
            why = f"exit code {code}, and {part} is {'' if part in text else 'not '}named"
            return Result(name, group, why, "", text)
        return Result(name, group, "", "found", text)


def _verify(case: Case, revision: str) -> Exception | None:
    try:
        verified = case.verify(revision, rebuild=True)
        if not verified.verification.ok:
            raise AssertionError("the files alone give it away")
        verified.require()
    except Exception as error:
        return error
    return None
