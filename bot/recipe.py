"""Reads recipes/NAME/recipe.yaml into a frozen `Recipe`; every error names file, line and key.

A recipe says what a person decided: which upstream files to read, what to make of them, what they must measure up to,
where the result goes and under which licence. It says nothing that can be measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Protocol

from pydantic import ValidationError

from bot.canonical import digest, file_sha256, text_sha256
from bot.errors import RecipeError
from bot.recipe_plan import AccuracyPlan, ArtifactPlan, InputPlan, OnChange, Plan, RecipePlan

RECIPE_FILE = "recipe.yaml"
CODE_FILE = "recipe.py"
CARD_FILE = "card.md.j2"
LICENSE_FOLDER = "licenses"
LOCK_FILE = "requirements.lock"

EXPORT = "export_torch"
"""The step that makes a graph where upstream has none; it comes first."""

EXPORT_METRICS = ("max_absolute", "mean_absolute", "min_cosine")
"""How far an exported graph is from torch, over all sizes and kinds of input that it was tried at."""
REVIEWED_FILE = "reviewed.json"

RESERVED_FOLDERS = ("recipe", "release", "source")
"""Folders of a target in which the bot keeps what belongs to a release; no model lies there."""


@dataclass(frozen=True)
class Recipe:
    """A recipe as it lies on disk.

    Attributes:
        name: The name of its folder.
        folder: Where it lies.
        plan: What it says.
        text: recipe.yaml, as written.
        lines: The line of each key, by its path from the top.
    """

    name: str
    folder: Path
    plan: RecipePlan
    text: str
    lines: Mapping[tuple[str | int, ...], int] = field(repr=False)

    @property
    def path(self) -> Path:
        """The recipe.yaml."""
        return self.folder / RECIPE_FILE

    @property
    def code(self) -> Path | None:
        """The recipe's own steps, if it has any."""
        path = self.folder / CODE_FILE
        return path if path.is_file() else None

    @property
    def card_template(self) -> Path:
        """The recipe's own part of the card."""
        return self.folder / CARD_FILE

    @property
    def review(self) -> Path | None:
        """What its author reviewed of the licences upstream, if that was written down."""
        path = self.folder / LICENSE_FOLDER / REVIEWED_FILE
        return path if path.is_file() else None

    def license_files(self) -> dict[str, Path]:
        """The licence texts that travel with the release: path in the target repository to file."""
        names = [self.plan.license.file, *(license.file for license in self.plan.license.also)]
        return {name: self.folder / LICENSE_FOLDER / name for name in names}

    def made_from(self, artifact: str) -> str:
        """The key of the upstream file that an artifact is made from."""
        return self.plan.artifacts[artifact].made_from or next(iter(self.plan.upstream.files))

    def on_change(self, artifact: str) -> OnChange:
        """Where an artifact's bytes go if it was published before with others."""
        return self.plan.artifacts[artifact].on_change or self.plan.on_change

    def accuracy_of(self, source: str) -> dict[str, AccuracyPlan]:
        """The accuracy plans about one upstream file."""
        only = self.made_from(next(iter(self.plan.artifacts)))
        return {key: plan for key, plan in self.plan.measure.accuracy.items() if (plan.of or only) == source}

    @property
    def models(self) -> tuple[str, ...]:
        """The keys of the upstream files that artifacts are made from; the others are read beside them."""
        return tuple(dict.fromkeys(self.made_from(key) for key in self.plan.artifacts))

    def exported(self, source: str) -> bool:
        """Whether the graphs that are made from an upstream file begin with an export from torch."""
        return any(
            self.made_from(key) == source and artifact.steps and artifact.steps[0].name == EXPORT
            for key, artifact in self.plan.artifacts.items()
        )

    @property
    def lock(self) -> Path | None:
        """The exact packages of the environment that the recipe requires, if they were written down."""
        path = self.folder / LOCK_FILE
        return path if path.is_file() else None

    def inputs_of(self, source: str) -> dict[str, tuple[str, InputPlan]]:
        """The inputs of one upstream file's graph: graph input to the recipe's key and its plan."""
        found = {}
        for key, plan in self.plan.inputs.items():
            scope, slash, name = key.partition("/")
            if slash and scope in self.plan.upstream.files:
                if scope == source:
                    found[name] = (key, plan)
            else:
                found[key] = (key, plan)
        return found

    def locate(self, *path: str | int) -> str:
        """`file:line` of a key, or of the nearest one above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.path}:{self.lines.get(path, 1)}"

    def fail(self, path: Sequence[str | int], what: str, remedy: str = "") -> NoReturn:
        """Raises the `RecipeError` for one key of this recipe."""
        raise RecipeError(f"{_dotted(path)}: {what}.", where=self.locate(*path), remedy=remedy)

    def meaning(self, *, retry: int | None = None) -> str:
        """The digest of what recipe.yaml says, as far as it decides a release; its comments do not.

        Args:
            retry: In place of the recipe's own `retry`.
        """
        plain = self.plan.model_dump(mode="json", by_alias=True)
        plain["retry"] = plain["retry"] if retry is None else retry
        plain["upstream"].pop("cooldown")
        plain.pop("runner")
        for artifact in plain["artifacts"].values():
            artifact.pop("tune")  # What could be built: what is built stands in the steps.
        if not plain["retry"]:
            plain.pop("retry")  # So that the key, when it came, changed no identity.
        return digest({"name": self.name, "plan": plain})

    def identity_parts(self, *, retry: int | None = None) -> dict[str, Any]:
        """What of the recipe makes a release this one and no other: its meaning, its code and its texts.

        Args:
            retry: In place of the recipe's own `retry`.
        """
        return {
            "recipe": self.meaning(retry=retry),
            "code": file_sha256(self.code) if self.code else "",
            "card": text_sha256(self.card_template.read_text("utf-8")),
            "licenses": {name: file_sha256(path) for name, path in self.license_files().items()},
            **({"environment": file_sha256(self.lock)} if self.plan.requires and self.lock else {}),
            **({"reviewed": file_sha256(self.review)} if self.review else {}),
        }


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "the recipe"


def recipe_names(folder: Path) -> list[str]:
    """The names of the recipes in a folder, sorted."""
    return sorted(path.parent.name for path in folder.glob(f"*/{RECIPE_FILE}"))


def find_recipe(name: str, folder: Path) -> Recipe:
    """Loads a recipe by its name.

    Raises:
        RecipeError: There is no such recipe, or it is wrong.
    """
    if not (folder / name / RECIPE_FILE).is_file():
        known = recipe_names(folder)
        near = get_close_matches(name, known, 1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known) or 'none'}."
        raise RecipeError(
            f"there is no recipe {name!r}",
            where=str(folder),
            remedy=f"{hint} A recipe is a folder NAME with a {RECIPE_FILE}; --recipes names the folder of recipes.",
        )
    return load_recipe(folder / name)


class Parsed(Protocol):
    """Remembers what a recipe.yaml says as plain data. Parsing one takes longer than all the rest of loading it."""

    def get(self, text: str) -> Any:
        """The data of a text; None if it is not known."""

    def put(self, text: str, data: Any) -> None:
        """Remembers the data of a text."""


class _Lines(Mapping[tuple[str | int, ...], int]):
    """The line of each key, found when somebody asks for one: only errors do."""

    def __init__(self, text: str, path: Path) -> None:
        self._text, self._path = text, path

    @cached_property
    def _found(self) -> Mapping[tuple[str | int, ...], int]:
        return parse_yaml(self._text, self._path)[1]

    def __getitem__(self, key: tuple[str | int, ...]) -> int:
        return self._found[key]

    def __iter__(self) -> Iterator[tuple[str | int, ...]]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def load_recipe(folder: Path, parsed: Parsed | None = None) -> Recipe:
    """Loads the recipe in one folder.

    Args:
        folder: The folder.
        parsed: Remembers what was parsed before, for somebody who loads very many.

    Raises:
        RecipeError: A key is missing, unknown or of the wrong type, or a file that it names does not exist.
    """
    path = folder / RECIPE_FILE
    text = _read_text(path)
    lines: Mapping[tuple[str | int, ...], int] = _Lines(text, path)
    data = parsed.get(text) if parsed is not None else None
    if data is None:
        data, lines = parse_yaml(text, path)
        if parsed is not None:
            parsed.put(text, data)
    try:
        plan = RecipePlan.model_validate(data)
    except ValidationError as error:
        raise _explain(error, path, data, lines) from None
    recipe = Recipe(name=folder.name, folder=folder, plan=plan, text=text, lines=lines)
    _check_references(recipe)
    _check_files(recipe)
    return recipe


def recipe_from_plan(name: str, folder: Path, plan: RecipePlan, text: str) -> Recipe:
    """A recipe whose YAML was parsed elsewhere, such as that of a published release.

    Args:
        name: Its name.
        folder: A folder in which nothing of it lies: it has no code, no texts and no template.
        plan: What it says.
        text: The YAML.

    Raises:
        RecipeError: Names in one part of it do not exist in another.
    """
    recipe = Recipe(name=name, folder=folder, plan=plan, text=text, lines={})
    _check_references(recipe)
    return recipe


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise RecipeError("there is no such file", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"is not UTF-8: {error.reason} at byte {error.start}", where=str(path)) from None
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}", where=str(path)) from None


def parse_yaml(text: str, path: Path) -> tuple[Any, dict[tuple[str | int, ...], int]]:
    """Parses YAML 1.2 into plain data, and the line on which each key stands.

    Raises:
        RecipeError: It is not valid.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        tree = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = str(error.problem or error.context or "not valid YAML").splitlines()[0]
        raise RecipeError(f"not valid YAML: {problem}", where=f"{path}:{line}") from None
    except YAMLError as error:
        raise RecipeError(f"not valid YAML: {str(error).splitlines()[0]}", where=f"{path}:1") from None
    return _plain(tree), dict(_key_lines(tree, ()))


def _plain(node: Any) -> Any:
    """Plain data in place of the parser's own mappings, sequences and scalars, which remember comments and style."""
    if isinstance(node, Mapping):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    if isinstance(node, bool) or node is None:
        return node
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return str(node)


def _key_lines(node: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], int]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield (*path, str(key)), node.lc.key(key)[0] + 1  # type: ignore[attr-defined]
            yield from _key_lines(value, (*path, str(key)))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield (*path, index), node.lc.item(index)[0] + 1  # type: ignore[attr-defined]
            yield from _key_lines(value, (*path, index))


_EXPECTED = {
    "missing": "is missing",
    "bool_type": "should be true or false",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "bool_parsing": "should be true or false",
    "float_type": "should be a number, or a fraction such as 1/255",
    "float_parsing": "should be a number, or a fraction such as 1/255",
    "string_type": "should be text",
    "tuple_type": "should be a list",
    "dict_type": "should be a mapping",
    "model_type": "should be a mapping",
    "literal_error": "should be {expected}",
}


def _explain(error: ValidationError, path: Path, data: Any, lines: Mapping[tuple[str | int, ...], int]) -> RecipeError:
    """Turns the first of a validation's findings into one sentence with file, line and key."""
    # A misspelt key usually comes with "missing" for the right one: the misspelling is the better message.
    finding = min(error.errors(), key=lambda each: (each["type"] != "extra_forbidden", each["type"] == "missing"))
    keys = _recipe_path(finding["loc"], data)
    kind = finding["type"]
    remedy = ""
    if kind == "extra_forbidden":
        allowed = _allowed_keys(keys[:-1])
        near = get_close_matches(str(keys[-1]), allowed, 1)
        what = "is not a key that a recipe knows here"
        remedy = f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(sorted(allowed))}."
    elif kind == "value_error":
        what = str(finding["ctx"]["error"])
    else:
        what = _EXPECTED.get(kind, str(finding["msg"]).replace("Input should", "should", 1))
        what = what.format(**finding.get("ctx", {}))
    if kind not in {"extra_forbidden", "missing"} and not isinstance(finding["input"], Mapping | list | tuple):
        what += f", found {finding['input']!r}"
    where = tuple(keys)
    while where and where not in lines:
        where = where[:-1]
    return RecipeError(f"{_dotted(keys)}: {what}.", where=f"{path}:{lines.get(where, 1)}", remedy=remedy)


def _recipe_path(location: Sequence[str | int], data: Any) -> list[str | int]:
    """The part of a validation's location that consists of the recipe's own keys."""
    keys: list[str | int] = []
    node = data
    for position, part in enumerate(location):
        if part == "[key]":
            continue
        inside = part in node if isinstance(node, Mapping) else isinstance(node, list) and part in range(len(node))
        if inside:
            node = node[part]
        elif position < len(location) - 1:
            continue
        keys.append(part)
    return keys


def _allowed_keys(path: Sequence[str | int]) -> list[str]:
    """The keys that a recipe knows at a place, from the models' own fields."""
    model: Any = RecipePlan
    for part in path:
        names = {(info.alias or name): info for name, info in model.model_fields.items()} if _is_plan(model) else {}
        model = names[part].annotation if part in names else model
        model = _plan_in(model) or model
    if not _is_plan(model):
        return []
    return [info.alias or name for name, info in model.model_fields.items()]


def _is_plan(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Plan)


def _plan_in(kind: Any) -> Any:
    """The first `Plan` inside an annotation such as dict[str, X], tuple[X, ...] or X | None."""
    if _is_plan(kind):
        return kind
    for inner in getattr(kind, "__args__", ()):
        if found := _plan_in(inner):
            return found
    return None


def _check_references(recipe: Recipe) -> None:
    """Checks that names in one part of the recipe exist in another."""
    plan = recipe.plan
    files = list(plan.upstream.files)
    for key, artifact in plan.artifacts.items():
        # An export reads several files, and is made from the first of them unless the recipe says otherwise.
        several = files[:1] if recipe.exported(recipe.made_from(key)) and artifact.made_from is None else files
        _check_file_key(recipe, ("artifacts", key, "from"), artifact.made_from, several)
        _check_artifact(recipe, key, artifact)
        _check_candidates(recipe, key, artifact)
    _check_unique_files(recipe)
    for key, accuracy in plan.measure.accuracy.items():
        _check_file_key(recipe, ("measure", "accuracy", key, "of"), accuracy.of, list(recipe.models))
    for key, given in plan.inputs.items():
        if given.text is not None:
            _check_file_key(recipe, ("inputs", key, "text", "tokenizer"), given.text.tokenizer, files)
    for source in {recipe.made_from(key) for key in plan.artifacts}:
        if not recipe.inputs_of(source):
            recipe.fail(("inputs",), f"says nothing about the inputs of {source!r}", f"Add a key {source}/INPUT.")
    baseline = plan.measure.timings.baseline
    if baseline != "source" and baseline not in plan.artifacts:
        known = ", ".join(["source", *plan.artifacts])
        recipe.fail(("measure", "timings", "baseline"), f"{baseline!r} is no artifact", f"Known: {known}.")
    for artifact_key, gates in plan.gates.items():
        if artifact_key not in plan.artifacts:
            recipe.fail(("gates", artifact_key), "is no artifact", f"Known: {', '.join(plan.artifacts)}.")
        known_rules = rules_for(recipe, artifact_key)
        for rule in gates:
            if rule not in known_rules:
                near = get_close_matches(rule, known_rules, 1)
                hint = f"Did you mean {near[0]}?" if near else f"Measured here: {', '.join(known_rules)}."
                recipe.fail(("gates", artifact_key, rule), "is not a figure that this recipe measures", hint)


def _check_artifact(recipe: Recipe, key: str, artifact: ArtifactPlan) -> None:
    place = ("artifacts", key)
    if not artifact.file.endswith(".onnx"):
        recipe.fail((*place, "file"), f"should end in .onnx, found {artifact.file!r}")
    folder = artifact.file.partition("/")[0]
    if folder in RESERVED_FOLDERS and folder != artifact.file:
        recipe.fail((*place, "file"), f"{folder}/ is for what the bot writes about a release", "Take another folder.")
    if not artifact.steps and not artifact.taken_over:
        recipe.fail(
            (*place, "steps"),
            "is missing",
            "Only a file that lies in the target already (frozen: <sha256>) may go without.",
        )
    if artifact.frozen and artifact.on_change is not None:
        recipe.fail((*place, "on_change"), "says what happens to a file that changes, and this one is frozen")


def _check_candidates(recipe: Recipe, key: str, artifact: ArtifactPlan) -> None:
    """What is tried in tuning are parameters of the artifact's own steps."""
    names = [step.name for step in artifact.steps]
    for index, candidate in enumerate(artifact.tune):
        for name in candidate:
            if names.count(name) != 1:
                found = "not among" if name not in names else "more than once among"
                what = f"{name!r} is {found} the artifact's steps"
                recipe.fail(("artifacts", key, "tune", index, name), what, f"They are: {', '.join(names) or 'none'}.")


def _check_file_key(recipe: Recipe, path: Sequence[str | int], value: str | None, files: list[str]) -> None:
    if value is None and len(files) > 1:
        recipe.fail(path, "is missing", f"There are several upstream files: {', '.join(files)}.")
    if value is not None and value not in files:
        recipe.fail(path, f"{value!r} is not among upstream.files", f"Known: {', '.join(files)}.")


def _check_unique_files(recipe: Recipe) -> None:
    taken = {
        "README.md": "the card",
        "release.json": "the record",
        **dict.fromkeys(recipe.license_files(), "a licence"),
    }
    for key, artifact in recipe.plan.artifacts.items():
        if artifact.file in taken:
            recipe.fail(("artifacts", key, "file"), f"{artifact.file!r} is already the path of {taken[artifact.file]}")
        taken[artifact.file] = f"artifact {key!r}"


def rules_for(recipe: Recipe, artifact: str) -> list[str]:
    """The figures that a gate of this artifact may name."""
    accuracy = recipe.accuracy_of(recipe.made_from(artifact))
    rules = [f"{subject}.{metric}" for subject, plan in accuracy.items() for metric in plan.metrics]
    timings = recipe.plan.measure.timings
    rules += [
        f"{subject}.{provider}.batch_{batch}"
        for subject in ("speedup", "latency")
        for provider in timings.providers
        for batch in timings.batches
    ]
    if recipe.exported(recipe.made_from(artifact)):
        rules += [f"export.{metric}" for metric in EXPORT_METRICS]
    return rules


def _check_files(recipe: Recipe) -> None:
    """Checks that the files that the recipe stands on are there."""
    for name, path in recipe.license_files().items():
        if not path.is_file():
            index = [also.file for also in recipe.plan.license.also]
            keys = ("license", "also", index.index(name), "file") if name in index else ("license", "file")
            recipe.fail(
                keys, f"there is no licence text {path}", "Put the text there, verbatim: it travels with the release."
            )
    if not recipe.card_template.is_file():
        recipe.fail((), f"there is no {recipe.card_template}", "Every recipe has the card's own words in card.md.j2.")
