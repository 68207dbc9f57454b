"""Read-only views of the records for templates: every leaf is a `Number` or a `Text` that knows its field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from bot.card.markdown import plain_text
from bot.card.numbers import Kind, Ledger, Number, Text
from bot.recipe_plan import YUNET_OUTPUTS
from bot.records import Artifact, Measurement, Release, Source, StepRecord, Verdict

_SHOWN_PROPERTIES: dict[type[BaseModel], dict[str, str]] = {
    Release: {"published": "artifacts", "short_identity": "identity"},
    Measurement: {"key": "key"},
    Verdict: {"withholds": "status"},
}
"""Computed properties that a template may read, and the field that each stands for."""


def view(value: Any, path: str, kind: Kind, ledger: Ledger) -> Any:
    """A template's view of any part of a record.

    Args:
        value: A record or plain data.
        path: The place of it in the release record.
        kind: What numbers below it are, unless their field says otherwise.
        ledger: Where what is printed is entered.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return Text(value, path, kind, ledger)
    if isinstance(value, int | float):
        return Number(value, path, kind, ledger)
    if isinstance(value, BaseModel):
        return RecordView(value, path, kind, ledger)
    if isinstance(value, Mapping):
        return MapView(value, path, kind, ledger)
    if isinstance(value, Sequence):
        return ListView([view(item, _item_path(path, item, index), kind, ledger) for index, item in enumerate(value)])
    raise TypeError(f"{path} is neither a record nor plain data: {type(value).__name__}")


def measurement_path(measurement: Measurement) -> str:
    """The place of a measurement in the release record, as the origin of a number names it."""
    return plain_text(_item_path("measurements", measurement, 0))


def _item_path(path: str, item: Any, index: int) -> str:
    """`artifacts[fp16]`, `measurements[fp16 age.mean_absolute cpu]`, `shape[0]`."""
    match item:
        case Artifact():
            label = item.name
        case Measurement():
            detail = () if item.key.count(".") > 1 else (item.provider,)
            label = " ".join(part for part in (item.artifact, item.key, *detail) if part)
        case Verdict():
            label = f"{item.artifact} {item.rule}"
        case Source():
            label = item.repo or item.url
        case StepRecord():
            label = item.name
        case _:
            label = str(index)
    return f"{path}[{label}]"


def _kind_of(record: BaseModel, name: str, inherited: Kind) -> Kind:
    """The kind of a record's field, where it differs from that of the record itself."""
    match record, name:
        case Release(), "declared" | "target" | "runtime" | "recipe":
            return "declared"
        case Release(), "measurements":
            return "measured"
        case Source(), "license":
            return "reported"
        case StepRecord(), "parameters":
            return "declared"
        case Verdict(), "limit":
            return "declared"
        case Verdict(), "value" | "reason":
            return "measured"
    return inherited


class RecordView:
    """A record: its fields, and those of its properties that templates may read."""

    __slots__ = ("_kind", "_ledger", "_path", "_record")

    def __init__(self, record: BaseModel, path: str, kind: Kind, ledger: Ledger) -> None:
        self._record = record
        self._path = path
        self._kind = kind
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        shown = _SHOWN_PROPERTIES.get(type(self._record), {})
        if name not in type(self._record).model_fields and name not in shown:
            raise AttributeError(name)
        parts = (self._path, shown.get(name, name))
        path = ".".join(part for part in parts if part)
        kind = _kind_of(self._record, name, self._kind)
        return view(getattr(self._record, name), path, kind, self._ledger)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordView) and self._record == other._record

    def __hash__(self) -> int:
        return hash(self._path)


class MapView(Mapping[str, Any]):
    """A mapping with text keys. The keys are data too."""

    __slots__ = ("_data", "_kind", "_ledger", "_path")

    def __init__(self, data: Mapping[str, Any], path: str, kind: Kind, ledger: Ledger) -> None:
        self._data = data
        self._path = path
        self._kind = kind
        self._ledger = ledger

    def __getitem__(self, key: str | Text) -> Any:
        name = key.raw if isinstance(key, Text) else key
        kind: Kind = "reported" if (self._path, name) == ("declared.card", "reported") else self._kind
        return view(self._data[name], _key_path(self._path, name), kind, self._ledger)

    def __iter__(self) -> Iterator[Any]:
        for key in self._data:
            yield Text(key, _key_path(self._path, key), self._kind, self._ledger)

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, key: object) -> bool:
        return (key.raw if isinstance(key, Text) else key) in self._data

    def only(self, wanted: Callable[[Any], bool]) -> MapView:
        """The entries whose plain value is wanted."""
        kept = {key: value for key, value in self._data.items() if wanted(value)}
        return MapView(kept, self._path, self._kind, self._ledger)


def _key_path(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{key}]"


class ListView(tuple[Any, ...]):
    """A list of views."""

    __slots__ = ()

    def __new__(cls, items: Sequence[Any]) -> ListView:
        return super().__new__(cls, items)


MEDIA = ("audio", "text", "tensor")
"""What an input is filled with that is no picture, as a recipe writes it."""


class Queries:
    """Questions that templates ask of a release, as functions."""

    def __init__(self, release: Release, ledger: Ledger) -> None:
        self.release = release
        self.ledger = ledger
        self.view = RecordView(release, "", "recorded", ledger)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By the names that templates call them by."""
        return {
            "artifact": self.artifact,
            "figures": self.figures,
            "figure": self.figure,
            "source_figure": self.source_figure,
            "step": self.step,
            "verdict": self.verdict,
            "verdicts_of": self.verdicts_of,
            "verdicts_in_order": self.verdicts_in_order,
            "inputs_of": self.inputs_of,
            "decisions_of": self.decisions_of,
            "input_groups": self.input_groups,
            "output_groups": self.output_groups,
            "usage_groups": self.usage_groups,
            "media_of": self.media_of,
            "media_groups": self.media_groups,
            "tokenizer_repo": self.tokenizer_repo,
            "tokenizer_file": self.tokenizer_file,
            "export_tables": self.export_tables,
        }

    def artifact(self, name: str | Text) -> Any:
        """The artifact with this key; None if there is none."""
        return next((each for each in self.view.artifacts if each.name == name), None)

    def figures(self, artifact: str | Text, *, subject: str = "", provider: str | Text = "", key: str = "") -> ListView:
        """An artifact's measurements, all or those of one subject, provider or key."""
        return ListView(
            [
                each
                for each in self.view.measurements
                if each.artifact == artifact
                and (not subject or each.subject == subject)
                and (not provider or each.provider == provider)
                and (not key or each.key == key)
            ]
        )

    def figure(self, artifact: str | Text, key: str | Text, *, provider: str | Text = "") -> Any:
        """One measurement of an artifact; None if it was not taken."""
        name = key.raw if isinstance(key, Text) else key
        return next(iter(self.figures(artifact, key=name, provider=provider)), None)

    def source_figure(self, artifact: Any, key: str) -> Any:
        """One measurement of the upstream file that an artifact was made from; None if it was not taken."""
        return self.figure(f"source:{artifact.made_from.raw}", key)

    def step(self, artifact: Any, *names: str) -> Any:
        """The first step of an artifact with one of these names; None if it was made without."""
        return next((step for step in artifact.steps if step.name in names), None)

    def verdict(self, artifact: str | Text, rule: str | Text) -> Any:
        """What a gate said of an artifact; None if the recipe has no such gate."""
        return next((each for each in self.verdicts_of(artifact) if each.rule == rule), None)

    def verdicts_of(self, artifact: str | Text) -> ListView:
        """What all gates said of an artifact."""
        return ListView([each for each in self.view.verdicts if each.artifact == artifact])

    def verdicts_in_order(self) -> ListView:
        """What all gates said: what withholds first, then what was not measured, then what passed."""
        return ListView(sorted(self.view.verdicts, key=lambda each: (not each.withholds, each.status == "passed")))

    def inputs_of(self, artifact: Any) -> ListView:
        """The inputs of an artifact's graph: pairs of the signature and the recipe's plan for it, which may be None."""
        declared = self.view.declared["inputs"] if "inputs" in self.release.declared else {}
        pairs = []
        for signature in artifact.signature.inputs:
            keys = (f"{artifact.made_from.raw}/{signature.name.raw}", signature.name.raw)
            plan = next((declared[key] for key in keys if key in declared), None)
            pairs.append((signature, plan["image"] if plan is not None and "image" in plan else None))
        return ListView(pairs)

    def media_of(self, artifact: Any) -> ListView:
        """The inputs of an artifact that are filled with no picture: triples of kind, plan and signature."""
        found = []
        for signature, plan in zip(artifact.signature.inputs, self._plans_shown(artifact), strict=True):
            kind = next((kind for kind in MEDIA if plan is not None and kind in plan), None)
            if kind is not None:
                found.append((kind, plan[kind], signature))
        return ListView(found)

    def _plans_shown(self, artifact: Any) -> list[Any]:
        """What the recipe says of each input of an artifact; None where it says nothing."""
        declared = self.view.declared["inputs"] if "inputs" in self.release.declared else {}
        names = [signature.name.raw for signature in artifact.signature.inputs]
        keys = [(f"{artifact.made_from.raw}/{name}", name) for name in names]
        return [next((declared[key] for key in pair if key in declared), None) for pair in keys]

    def media_groups(self) -> ListView:
        """One artifact for each kind of input that a snippet can fill: one sound, or nothing but a text's tokens."""
        found = []
        for group in self.input_groups():
            artifact = group[0]
            kinds = [kind for kind, *_ in self.media_of(artifact)]
            if len(kinds) == len(artifact.signature.inputs) and (kinds == ["audio"] or set(kinds) == {"text"}):
                found.append(artifact)
        return ListView(found)

    def tokenizer_repo(self, plan: Any) -> Any:
        """Where a reader gets a tokenizer: from the release itself if it carries it, else from the source."""
        record = self.view.source.files[plan["tokenizer"]]
        carried = any(copy.path == record.path for copy in self.view.copies)
        return self.view.target if carried or not self.release.source.repo else self.view.source.repo

    def tokenizer_file(self, plan: Any) -> Any:
        """The path of a tokenizer there."""
        path = self.view.source.files[plan["tokenizer"]].path
        carried = any(copy.path == path for copy in self.view.copies)
        return path.replace_raw(f"source/{path.raw}") if carried else path

    def export_tables(self) -> ListView:
        """What the exported graphs were held against: triples of an artifact, its rows, and what it must not be fed.

        Artifacts that were exported alike stand together, as the first of them.
        """
        found: list[Any] = []
        seen: list[Any] = []
        for artifact in self.view.published:
            step = self.step(artifact, "export_torch")
            report = self.release.artifact(artifact.name.raw).steps[0].report if step is not None else {}
            if report.get("truth") and report not in seen:
                seen.append(report)
                found.append((artifact, step.report["truth"], step.report["refused"]))
        return ListView(found)

    def decisions_of(self, artifact: Any) -> ListView:
        """What the recipe decodes from an artifact's outputs: triples of subject, plan and the output's signature."""
        declared = self.view.declared["accuracy"] if "accuracy" in self.release.declared else {}
        outputs = {output.name.raw: output for output in artifact.signature.outputs}
        triples = []
        for subject in declared:
            plan = declared[subject]
            output = plan["from" if "from" in plan else "made_from"].raw or YUNET_OUTPUTS[0]
            if output in outputs and _belongs(plan, artifact):
                triples.append((subject, plan, outputs[output]))
        return ListView(triples)

    def input_groups(self) -> ListView:
        """The published artifacts, those with the same inputs together."""
        return self._groups(lambda artifact: (artifact.signature.inputs, self._plans(artifact)))

    def output_groups(self) -> ListView:
        """The published artifacts, those with the same outputs together."""
        return self._groups(lambda artifact: artifact.signature.outputs)

    def usage_groups(self) -> list[ListView]:
        """One artifact for each kind of input, those that are prepared alike but for the size together."""
        groups: list[tuple[Any, list[Any]]] = []
        for artifact in (group[0] for group in self.input_groups()):
            record = self.release.artifact(artifact.name.raw)
            plans = [plan and plan.get("image") for plan in self._plans(record)]
            if len(plans) != 1 or not plans[0]:
                continue  # What goes into it is more than one picture: a snippet would have to guess.
            key = ({**plans[0], "size": None}, record.signature.inputs[0].dtype)
            same = next((members for other, members in groups if other == key), None)
            if same is None:
                groups.append((key, same := []))
            same.append(artifact)
        return [ListView(members) for _, members in groups]

    def _plans(self, artifact: Artifact) -> list[Any]:
        declared: Any = self.release.declared.get("inputs", {})
        names = [signature.name for signature in artifact.signature.inputs]
        return [declared.get(f"{artifact.made_from}/{name}", declared.get(name)) for name in names]

    def _groups(self, key: Callable[[Artifact], Any]) -> ListView:
        groups: list[tuple[Any, list[Any]]] = []
        for artifact in self.release.published:
            same = next((members for other, members in groups if other == key(artifact)), None)
            if same is None:
                groups.append((key(artifact), same := []))
            same.append(self.artifact(artifact.name))
        return ListView([ListView(members) for _, members in groups])


def _belongs(plan: MapView, artifact: Any) -> bool:
    """Whether an accuracy plan is about the upstream file that an artifact was made from."""
    return "of" not in plan or plan["of"] is None or bool(plan["of"] == artifact.made_from)
