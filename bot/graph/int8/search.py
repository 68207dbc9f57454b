"""`keep: auto`: the fewest groups of nodes that have to stay float for the recipe's limits to hold.

Each group of nodes is quantised alone, which shows how much noise it brings; the groups are ranked by it. If the
noisiest k stay float and the limits hold, k is enough, and the smallest such k is found by halving. Then each of them
is tried in eight bits after all, the least noisy first: what stays is a set of which no group can be left out. The true
smallest set would take as many trials as there are sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bot.errors import StepError
from bot.graph.int8.distance import Group
from bot.graph.steps import Judgement, Progress
from bot.records import Json

Try = Callable[[frozenset[str]], Judgement]
"""Judges the model in which these nodes are quantised and no others."""


@dataclass
class Search:
    """What was found.

    Attributes:
        kept: The groups that stay float, the noisiest first.
        noise: Per group, the noise that it brings alone.
        trials: How many candidates were judged.
        judgement: Of the result.
        everything: Of the model with all groups quantised.
    """

    kept: list[Group]
    noise: dict[str, float]
    trials: int
    judgement: Judgement
    everything: Judgement

    def to_plain(self) -> dict[str, Json]:
        """As plain JSON data, figures to four digits."""
        return {
            "trials": self.trials,
            "groups": len(self.noise) or None,
            "groups_kept": len(self.kept),
            "why_not_everything": self.everything.reason,
            "noise_of_everything": _digits(self.everything.noise),
            "noise": _digits(self.judgement.noise),
            "figures": {name: _digits(value) for name, value in sorted(self.judgement.figures.items())},
            "kept": [
                {"group": group.name, "nodes": len(group.nodes), "noise_alone": _digits(self.noise[group.name])}
                for group in self.kept
            ],
        }


@dataclass
class _Trials:
    """Counts, and tells how far the search is."""

    attempt: Try
    groups: Sequence[Group]
    progress: Progress
    expected: int
    done: int = 0
    seen: dict[frozenset[str], Judgement] = field(default_factory=dict)

    def quantizing(self, groups: Sequence[Group]) -> Judgement:
        """Judges the model in which these groups are quantised."""
        nodes = frozenset(name for group in groups for name in group.nodes)
        if nodes not in self.seen:
            self.seen[nodes] = self.attempt(nodes)
            self.done += 1
            self.progress(min(self.done, self.expected), self.expected, "search")
        return self.seen[nodes]

    def keeping(self, kept: Sequence[Group]) -> Judgement:
        """Judges the model in which these groups stay float, and all others do not."""
        names = {group.name for group in kept}
        return self.quantizing([group for group in self.groups if group.name not in names])


def search(groups: Sequence[Group], attempt: Try, progress: Progress) -> Search:
    """Finds which groups stay float.

    Args:
        groups: All that can be quantised.
        attempt: Judges a candidate.
        progress: Told of every trial.

    Raises:
        StepError: The limits hold for no candidate but the float model itself.
    """
    trials = _Trials(attempt, groups, progress, expected=len(groups) + 2 * len(groups).bit_length() + 2)
    everything = trials.keeping([])
    if everything.passed:
        return Search([], {}, trials.done, everything, everything)
    noise = {group.name: trials.quantizing([group]).noise for group in groups}
    ranked = sorted(groups, key=lambda group: (-noise[group.name], group.name))
    kept = ranked[: _smallest(lambda count: trials.keeping(ranked[:count]).passed, len(ranked) - 1)]
    if not trials.keeping(kept).passed:
        raise StepError(
            f"no group of nodes can be in eight bits: {trials.keeping(kept).reason}.",
            where="keep: auto",
            remedy="Loosen the recipe's gates for this artifact, calibrate on more samples, or leave the step out.",
        )
    for group in reversed(list(kept)):
        fewer = [each for each in kept if each is not group]
        if trials.keeping(fewer).passed:
            kept = fewer
    return Search(kept, noise, trials.done, trials.keeping(kept), everything)


def _smallest(passes: Callable[[int], bool], most: int) -> int:
    """The smallest count that passes, by halving; `most` where none below does."""
    low, high = 1, max(most, 1)
    while low < high:
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
