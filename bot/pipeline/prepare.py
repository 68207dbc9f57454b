"""Before anything is built: the recipe checked against the rest, upstream fetched, and the release's identity."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bot.errors import HubError, RecipeError, UpstreamError
from bot.graph import steps
from bot.measure import loaders, providers
from bot.pipeline.context import Context
from bot.pipeline.identity import Digests, identity, recipe_id
from bot.pipeline.licensing import Licensing, declared_license, license_upstream
from bot.pipeline.sources import SourceModel, check_exports, inspect_source, open_sources
from bot.recipe import RECIPE_FILE, Recipe, load_recipe, recipe_names
from bot.records import Inspection, Source

NEWEST_COMMITS = 300
"""How far back a commit may lie that another run has built from."""


@dataclass(frozen=True)
class Prepared:
    """What the stages after fetch need.

    Attributes:
        recipe: The recipe, checked.
        source: The upstream model.
        source_files: Where its files lie: the recipe's key to path.
        copies: Where the files lie that are carried along: path upstream to path here.
        inspections: Signature and census of each source of an artifact.
        models: The sources of artifacts, by the recipe's key: ONNX files, or torch modules.
        samples: The data set.
        sample_files: Where its files lie, by the loader's names for them.
        identity: Of the release.
        recipe_id: Of the recipe's side of it.
        licensing: The licences upstream, and how they stand to what was reviewed.
    """

    recipe: Recipe
    source: Source
    source_files: dict[str, Path]
    copies: dict[str, Path]
    inspections: dict[str, Inspection]
    models: dict[str, SourceModel]
    samples: Source
    sample_files: dict[str, Path]
    identity: str
    recipe_id: str
    licensing: Licensing

    @property
    def random_weights(self) -> bool:
        """Some upstream model says of itself that its weights are random."""
        return any(inspection.random_weights for inspection in self.inspections.values())


def checked_steps(recipe: Recipe) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Every artifact's steps with all their parameters, defaults included.

    Raises:
        RecipeError: A step is unknown, or a parameter of it is wrong.
    """
    own = steps.recipe_step_names(recipe.code) if recipe.code else frozenset()
    checked: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for key, artifact in recipe.plan.artifacts.items():
        checked[key] = []
        for index, step in enumerate(artifact.steps):
            try:
                parameters = step.parameters if step.name in own else steps.parse_parameters(step.name, step.parameters)
            except ValueError as error:
                recipe.fail(("artifacts", key, "steps", index), str(error))
            checked[key].append((step.name, dict(parameters)))
    check_exports(recipe)
    return checked


def check_target_is_ours(recipe: Recipe) -> None:
    """Refuses two recipes for one target: they would close each other's pull requests.

    Raises:
        RecipeError: Another recipe beside this one has the same target.
    """
    for name in recipe_names(recipe.folder.parent):
        if name == recipe.name or not _may_name(recipe.folder.parent / name, recipe.plan.target.repo):
            continue
        try:
            other = load_recipe(recipe.folder.parent / name)
        except RecipeError:
            continue  # its own run will say what is wrong with it
        if other.plan.target.repo.lower() == recipe.plan.target.repo.lower():
            what = f"{recipe.plan.target.repo!r} is the target of the recipe {name!r} too"
            recipe.fail(("target", "repo"), what, "Give each recipe a target of its own.")


def _may_name(folder: Path, repo: str) -> bool:
    """Whether a recipe may name a repository, told without parsing it: there may be thousands of recipes.

    A name stands in the YAML as it is, unless a backslash escapes a part of it.
    """
    try:
        text = (folder / RECIPE_FILE).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False  # Its own run will say what is wrong with it.
    return repo.lower() in text.lower() or "\\" in text


def prepare(context: Context, recipe: Recipe) -> Prepared:
    """Fetches what the recipe reads, and works out which release that makes.

    Raises:
        RecipeError: The recipe does not fit its steps, its neighbours or the upstream model.
        UpstreamError: Something cannot be had, or is not a model.
        LicenseStopError: The licences upstream are not those that were reviewed.
    """
    providers.check_single_runtime()
    checked_steps(recipe)
    check_target_is_ours(recipe)
    source, files, copies = fetch_model(context, recipe)
    licensing = _license(context, recipe, source)
    _check_quotes(context, recipe, source)
    models = open_sources(context, recipe, source, files)
    inspections = {key: inspect_source(context, model) for key, model in models.items()}
    _check_signatures(recipe, inspections)
    data, data_files = fetch_samples(context, recipe)
    random_weights = any(each.random_weights for each in inspections.values())
    source = licensing.source.model_copy(update={"random_weights": random_weights})
    data = data.model_copy(update={"license": declared_license(context, data.repo, data.commit, "dataset")})
    return Prepared(
        recipe=recipe,
        source=source,
        source_files=files,
        copies=copies,
        inspections=inspections,
        models=models,
        samples=data,
        sample_files=data_files,
        identity=identity(recipe, Digests.of(source, data)),
        recipe_id=recipe_id(recipe),
        licensing=licensing,
    )


def prepare_unopened(context: Context, recipe: Recipe, *, commit: str, samples_commit: str) -> Prepared:
    """As `prepare`, at the commits that another run has read, and without opening a model or a picture.

    Of large files only their digests are read, which the Hub lists. There are no inspections and no files of models,
    and nothing is known of random weights.

    Args:
        context: The surroundings; its worker reads cards and nothing else.
        recipe: What was built.
        commit: Of the upstream repository.
        samples_commit: Of the data set.

    Raises:
        RecipeError: The recipe does not fit its steps or its neighbours.
        UpstreamError: Something cannot be had, or a commit is not one of the branch that the recipe follows.
        LicenseStopError: The licences upstream are not those that were reviewed.
    """
    checked_steps(recipe)
    check_target_is_ours(recipe)
    upstream = recipe.plan.upstream
    if upstream.repo is not None:
        _require_commit_of(context, upstream.repo, upstream.follow, commit, "model")
    ((_, plan),) = recipe.plan.measure.samples.items()
    _require_commit_of(context, plan.repo, plan.revision, samples_commit, "dataset")
    source, _, copies = fetch_model(context, recipe, at=commit, large=False)
    licensing = _license(context, recipe, source)
    _check_quotes(context, recipe, source)
    data, _ = fetch_samples(context, recipe, at=samples_commit, large=False)
    data = data.model_copy(update={"license": declared_license(context, data.repo, data.commit, "dataset")})
    return Prepared(
        recipe=recipe,
        source=licensing.source,
        source_files={},
        copies=copies,
        inspections={},
        models={},
        samples=data,
        sample_files={},
        identity=identity(recipe, Digests.of(source, data)),
        recipe_id=recipe_id(recipe),
        licensing=licensing,
    )


def _require_commit_of(
    context: Context, repo: str, revision: str, commit: str, repo_type: Literal["model", "dataset"]
) -> None:
    """Stops unless a commit is in the newest history of the branch, tag or commit that a recipe names.

    Raises:
        UpstreamError: It is not, or there is no such repository or revision.
    """
    try:
        history = context.hub.commits(repo, revision, limit=NEWEST_COMMITS, repo_type=repo_type)
        known = any(each.sha == commit for each in history)
    except HubError as error:
        raise UpstreamError(error.what, where=error.where, remedy=error.remedy) from error
    if not known:
        raise UpstreamError(
            f"{commit[:40]!r} is not among the newest {NEWEST_COMMITS} commits of {revision!r}.",
            where=repo,
            remedy="If upstream took the commit back, build again.",
        )


def fetch_model(
    context: Context, recipe: Recipe, *, at: str = "", large: bool = True
) -> tuple[Source, dict[str, Path], dict[str, Path]]:
    """The upstream model: what the recipe follows, or a commit of it; with its large files, or only their digests."""
    from bot.hub import fetch

    upstream = recipe.plan.upstream
    context.reporter.stage("fetch", upstream.repo or upstream.url or "")
    if upstream.url is not None and upstream.sha256 is not None:
        ((key, name),) = upstream.files.items()
        source, path = fetch.fetch_url(
            upstream.url,
            sha256=upstream.sha256,
            key=key,
            name=name,
            into=context.work.upstream,
            progress=context.reporter.update,
        )
        return source, {key: path}, {}
    source = fetch.fetch(
        context.hub,
        str(upstream.repo),
        revision=at or upstream.follow,
        files=upstream.files,
        copies=upstream.copies,
        into=context.work.upstream,
        progress=context.reporter.update,
        large=large,
    )
    folder = fetch.folder_of(context.work.upstream, source)
    files = {key: folder / record.path for key, record in source.files.items()}
    return source, files, {record.path: folder / record.path for record in source.copies}


def fetch_samples(
    context: Context, recipe: Recipe, *, at: str = "", large: bool = True
) -> tuple[Source, dict[str, Path]]:
    """The data set, and where its files lie: what the recipe names, or a commit of it."""
    from bot.hub import fetch

    ((name, plan),) = recipe.plan.measure.samples.items()
    loader = plan.loader or name
    context.reporter.stage("samples", plan.repo)
    try:
        wanted = loaders.required_files(loader, plan.selection())
    except ValueError as error:
        recipe.fail(("measure", "samples", name), str(error))
    data = fetch.fetch(
        context.hub,
        plan.repo,
        repo_type="dataset",
        revision=at or plan.revision,
        files=wanted,
        into=context.work.upstream,
        progress=context.reporter.update,
        large=large,
    )
    folder = fetch.folder_of(context.work.upstream, data)
    # A loader is given the folder of a pattern such as images/*, and otherwise the file itself.
    return data, {key: folder / pattern.removesuffix("/*") for key, pattern in wanted.items()}


def _license(context: Context, recipe: Recipe, source: Source) -> Licensing:
    """The licences upstream, which have to be as they were reviewed."""
    context.reporter.stage("license", source.repo)
    licensing = license_upstream(context, recipe, source)
    licensing.require_unchanged(recipe)
    return licensing


def _check_quotes(context: Context, recipe: Recipe, source: Source) -> None:
    """What the card quotes stands in the upstream's own card at this commit; only line breaks may differ."""
    quotes = recipe.plan.card.reported
    if not quotes:
        return
    if not source.repo:
        recipe.fail(("card", "reported"), "quotes a card, and a source with a url has none")
    card = context.hub.read_bytes(source.repo, source.commit, "README.md").decode("utf-8", errors="replace")
    said = " ".join(card.split())
    for index, quote in enumerate(quotes):
        if " ".join(quote.split()) not in said or not quote.strip():
            what = f"the card of {source.repo} at {source.commit[:12]} does not say {quote!r}"
            recipe.fail(("card", "reported", index), what, "Quote it word for word, or leave the quotation out.")


def _check_signatures(recipe: Recipe, inspections: dict[str, Inspection]) -> None:
    """The inputs and outputs that the recipe names are those of the model."""
    for source, inspection in inspections.items():
        wanted = recipe.inputs_of(source)
        names = [tensor.name for tensor in inspection.signature.inputs]
        for name, (key, _) in wanted.items():
            if name not in names:
                file = recipe.plan.upstream.files[source]
                recipe.fail(("inputs", key), f"{file} has no input {name!r}", f"Its inputs: {', '.join(names)}.")
        for name in names:
            if name not in wanted:
                recipe.fail(
                    ("inputs",), f"says nothing about the input {name!r} of {recipe.plan.upstream.files[source]}"
                )
        outputs = [tensor.name for tensor in inspection.signature.outputs]
        for subject, plan in recipe.accuracy_of(source).items():
            if plan.mask and plan.mask not in names:
                what = f"there is no input {plan.mask!r}"
                recipe.fail(("measure", "accuracy", subject, "mask"), what, f"The inputs: {', '.join(names)}.")
            if missing := [name for name in plan.outputs if name not in outputs]:
                path = ("measure", "accuracy", subject, "from")
                recipe.fail(path, f"there is no output {missing[0]!r}", f"The outputs: {', '.join(outputs)}.")
