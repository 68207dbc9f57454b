"""Judges what was measured: which artifacts go out, which are withheld, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from bot.recipe import Recipe
from bot.recipe_plan import GatePlan
from bot.records import Json, Measurement, Status, Verdict

EMULATION = "fp16-emulation"
"""The provider of figures that were taken as half-precision hardware would compute them."""


def judge(
    recipe: Recipe,
    artifact: str,
    measurements: Sequence[Measurement],
    checks: Iterable[Mapping[str, Json]],
    *,
    require: Collection[str] = (),
) -> tuple[Verdict, ...]:
    """Holds one artifact against the recipe's limits and against the gates that every artifact passes through.

    Args:
        recipe: Says the limits.
        artifact: Its key.
        measurements: All figures about it.
        checks: What the gates of its own accord said: `rule`, `status`, `reason`, `value`.
        require: Providers that must have been measured, though the recipe calls them optional.

    Returns:
        A verdict per check, and per limit and provider that it was measured on.
    """
    verdicts = [_of_check(artifact, check) for check in checks]
    for rule, gate in recipe.plan.gates.get(artifact, {}).items():
        found = [measurement for measurement in measurements if measurement.key == rule]
        if found:
            verdicts += [_of_figure(artifact, rule, gate, measurement) for measurement in found]
        else:
            verdicts.append(_not_measured(recipe, artifact, rule, gate, require))
    return tuple(verdicts)


def withheld(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """The artifacts that are not published, in the order in which they were judged."""
    return tuple(dict.fromkeys(verdict.artifact for verdict in verdicts if verdict.withholds))


def _of_check(artifact: str, check: Mapping[str, Json]) -> Verdict:
    value = check.get("value")
    status: Status = "not measured"
    if check["status"] in ("passed", "failed"):
        status = "passed" if check["status"] == "passed" else "failed"
    return Verdict(
        artifact=artifact,
        rule=str(check["rule"]),
        comparison="holds",
        value=float(value) if isinstance(value, int | float) else None,
        provider=str(check.get("provider", "")),
        status=status,
        required=bool(check.get("required", True)),
        reason=str(check.get("reason", "")),
    )


def _of_figure(artifact: str, rule: str, gate: GatePlan, measurement: Measurement) -> Verdict:
    comparison, limit = _limit(gate)
    value = measurement.value
    passed = value <= limit if comparison == "max" else value >= limit
    sign = "≤" if comparison == "max" else "≥"
    unit = f" {measurement.unit}" if measurement.unit else ""
    where = f" on {measurement.provider}" if measurement.provider else ""
    found = f"{rule}{where} is {value:.6g}{unit}"
    return Verdict(
        artifact=artifact,
        rule=rule,
        comparison=comparison,
        limit=limit,
        value=value,
        unit=measurement.unit,
        provider=measurement.provider,
        status="passed" if passed else "failed",
        reason=f"{found}; the limit is {sign} {limit:.6g}{unit}",
    )


def _not_measured(recipe: Recipe, artifact: str, rule: str, gate: GatePlan, require: Collection[str]) -> Verdict:
    comparison, limit = _limit(gate)
    provider = rule.split(".")[1] if rule.startswith(("speedup.", "latency.")) else ""
    wanted = recipe.plan.measure.timings.providers.get(provider, "required") if provider else "required"  # type: ignore[call-overload]
    required = wanted == "required" or provider in require
    reason = f"{rule} was not measured here"
    if provider and not required:
        reason += f": the recipe calls the provider {provider} optional"
    return Verdict(
        artifact=artifact,
        rule=rule,
        comparison=comparison,
        limit=limit,
        provider=provider,
        status="not measured",
        required=required,
        reason=reason,
    )


def _limit(gate: GatePlan) -> tuple[Literal["max", "min"], float]:
    if gate.max is not None:
        return "max", gate.max
    return "min", gate.min or 0.0
