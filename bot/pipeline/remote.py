"""`bot publish --on hf-jobs`: builds and measures on a machine of the Hub, and publishes from here.

The Job gets the bot, the recipe, and a token that is good for one private repository, through which both sides hand
over. What it leaves there is read as any other hand-over (`bot.pipeline.receiving`): it opened a stranger's model.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bot.canonical import write_atomically
from bot.errors import BotError, HubError, RecipeError, StepError
from bot.pipeline import handover
from bot.pipeline.context import Context
from bot.pipeline.prepare import prepare_unopened
from bot.pipeline.receiving import publish_handover
from bot.pipeline.releasing import Outcome, nothing_left, respect_withheld
from bot.recipe import LICENSE_FOLDER, Recipe

if TYPE_CHECKING:
    from bot.hub.client import Hub

MOST_OUT = handover.MOST_FILES
_POLL = 5.0
_SHOWN = 20
"""Lines of a failed Job's log that are shown."""


@dataclass(frozen=True)
class Machine:
    """Where a Job runs and what it is given.

    Attributes:
        flavor: The machine, as the Hub names it: `cpu-basic`, `t4-small`, …
        scratch: A private repository that both sides write to, `owner/name`; its owner pays for the Job.
        token: Good for that repository and no other.
        image: The container, with a Python and pip in it.
        seconds: How long the Job may take.
    """

    flavor: str
    scratch: str
    token: str
    image: str = "python:3.12"
    seconds: int = 2 * 3600

    @property
    def has_gpu(self) -> bool:
        """Whether CUDA figures can be taken there."""
        return not self.flavor.startswith("cpu")


def publish_remotely(
    context: Context,
    recipe: Recipe,
    machine: Machine,
    *,
    dry_run: bool = False,
    reopen: bool = False,
    retry: bool = False,
    poll: float = _POLL,
) -> Outcome:
    """Builds on a machine of the Hub, unless there is nothing to do, and publishes what comes back.

    Args:
        context: The surroundings; nothing is opened here.
        recipe: What to do.
        machine: Where to build.
        dry_run: Do everything but write to the target.
        reopen: Publish again what a person closed.
        retry: Try again what was withheld before.
        poll: Seconds between two looks at the Job.

    Raises:
        RecipeError: The scratch repository or its token is not what it has to be.
        StepError: The Job failed; the end of its log is part of the message.
        BotError: As `publish_handover`.
    """
    _require_scratch(context.hub, recipe, machine)
    upstream, ((_, plan),) = recipe.plan.upstream, recipe.plan.measure.samples.items()
    commit = context.hub.head(upstream.repo, upstream.follow).sha if upstream.repo else str(upstream.sha256)
    samples = context.hub.head(plan.repo, plan.revision, repo_type="dataset").sha
    identity = prepare_unopened(context, recipe, commit=commit, samples_commit=samples).identity
    done = nothing_left(context, recipe, identity, dry_run=dry_run, reopen=reopen)
    if done is not None:
        return done
    if not retry:
        respect_withheld(context, recipe, identity)
    if machine.has_gpu and "cuda" in recipe.plan.measure.timings.providers:
        context = replace(context, require=context.require | {"cuda"})
    with _branch(context, machine.scratch) as branch:
        _send(context, recipe, machine, branch)
        _run(context, recipe, machine, branch, poll)
        folder = context.work.temporary(context.work.root / "jobs")
        try:
            _bring(context, machine.scratch, branch, folder / "out")
            return publish_handover(context, recipe, folder / "out", dry_run=dry_run, reopen=reopen, retry=retry)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _require_scratch(hub: Hub, recipe: Recipe, machine: Machine) -> None:
    """The scratch repository is private, and its token is good for it and not for the target.

    Raises:
        RecipeError: They are not so.
    """
    from bot.hub.client import Hub, NotFound
    from bot.hub.jobs import may_write

    where, target = machine.scratch, recipe.plan.target.repo
    if where.lower() == target.lower():
        raise RecipeError("is the target itself.", where=where, remedy="Name another repository with --scratch.")
    try:
        private = hub.head(where).private
    except NotFound:
        remedy = "Create it on the Hub as a private repository."
        raise RecipeError("there is no such scratch repository.", where=where, remedy=remedy) from None
    if not private:
        raise RecipeError(
            "is public, and what a Job leaves there has not been looked at.", where=where, remedy="Make it private."
        )
    job = Hub(hub.endpoint, machine.token, policy=hub.policy)
    if not may_write(job, where):
        raise RecipeError("the Job's token may not write there.", where=where, remedy="Give it one that may.")
    if may_write(job, target):
        raise RecipeError(
            f"the Job's token may write to {target} as well, and a Job opens strangers' models.",
            where=where,
            remedy="Make a fine-grained token that may write to the scratch repository and to nothing else.",
        )


@contextmanager
def _branch(context: Context, scratch: str) -> Iterator[str]:
    """A branch of the scratch repository for one run; gone afterwards."""
    from bot.hub.jobs import drop_branch, open_branch

    branch = f"run-{secrets.token_hex(6)}"
    open_branch(context.hub, scratch, branch)
    try:
        yield branch
    finally:
        try:
            drop_branch(context.hub, scratch, branch)
        except BotError as error:
            context.reporter.warn(f"the branch {branch} of {scratch} is left behind: {error}")


def _send(context: Context, recipe: Recipe, machine: Machine, branch: str) -> None:
    """Puts the bot and the recipe into the branch."""
    from bot.pipeline.own_wheel import write_wheel

    folder = context.work.temporary(context.work.root / "jobs")
    try:
        wheel = write_wheel(folder)
        files = {f"in/{wheel.name}": wheel}
        texts = [recipe.path, recipe.card_template, *([recipe.code] if recipe.code else [])]
        texts += sorted(path for path in (recipe.folder / LICENSE_FOLDER).rglob("*") if path.is_file())
        for path in texts:
            files[f"in/recipes/{recipe.name}/{path.relative_to(recipe.folder).as_posix()}"] = path
        context.reporter.stage("send", f"{machine.scratch}@{branch}")
        context.hub.commit(
            machine.scratch,
            files,
            message=f"Build {recipe.name}",
            description="",
            revision=branch,
            parent=context.hub.head(machine.scratch, branch).sha,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(context: Context, recipe: Recipe, machine: Machine, branch: str, poll: float) -> None:
    """Starts the Job, follows it to its end, and ends it if this process is interrupted.

    Raises:
        StepError: It did not complete.
    """
    import huggingface_hub

    from bot.hub import jobs

    hub, namespace = context.hub, machine.scratch.partition("/")[0]
    plan = jobs.JobPlan(
        image=machine.image,
        command=["python", "-c", Path(__file__).with_name("job_script.py").read_text("utf-8")],
        variables={
            "HF_ENDPOINT": hub.endpoint,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "BOT_SCRATCH": machine.scratch,
            "BOT_BRANCH": branch,
            "BOT_RECIPE": recipe.name,
            "BOT_REQUIRE": " ".join(sorted(context.require)),
            "BOT_EXTRAS": "gpu" if "cuda" in context.require else "cpu",
            "BOT_CLIENT": f"huggingface_hub=={huggingface_hub.__version__}",
        },
        hidden={"HF_TOKEN": machine.token},
        flavor=machine.flavor,
        seconds=machine.seconds,
    )
    job = jobs.start(hub, namespace, plan)
    context.reporter.stage("job", f"{hub.endpoint}/jobs/{namespace}/{job} on {machine.flavor}")
    ended = False
    try:
        state, deadline = jobs.state(hub, namespace, job), time.monotonic() + machine.seconds + 600
        while not state.has_ended and time.monotonic() < deadline:
            context.reporter.update(0, 0, f"job {state.stage.lower()}")
            time.sleep(poll)
            state = jobs.state(hub, namespace, job)
        ended = state.has_ended
    finally:
        if not ended:
            jobs.cancel(hub, namespace, job)
    if state.stage != "COMPLETED":
        said = "\n".join(jobs.last_lines(hub, namespace, job, _SHOWN))
        raise StepError(
            f"the Job ended as {state.stage}{f' ({state.message})' if state.message else ''}. Its log ends:\n{said}",
            where=f"{hub.endpoint}/jobs/{namespace}/{job}",
            remedy="The log says what happened; where a machine was too small, name another: --on hf-jobs:FLAVOR.",
        )


def _bring(context: Context, scratch: str, branch: str, folder: Path) -> None:
    """Brings what the Job has left to this machine, as a hand-over; reading it is another matter.

    Raises:
        HubError: There are too many files, or one could not be had.
    """
    from bot.hub.download import Expected
    from bot.hub.paths import why_unsafe

    commit = context.hub.head(scratch, branch).sha
    tree = {path: file for path, file in context.hub.tree(scratch, commit).items() if path.startswith("out/")}
    if len(tree) > MOST_OUT:
        raise HubError(f"holds {len(tree)} files of the Job.", where=f"{scratch}@{branch}")
    folder.mkdir(parents=True)
    for path, file in tree.items():
        name = path.removeprefix("out/")
        if why := why_unsafe(name):
            raise HubError(f"cannot be brought here: {why}.", where=f"{scratch}@{branch}: {path!r}")
        if file.bytes == 0:
            write_atomically(folder / name, b"")
            continue
        expected = Expected(bytes=file.bytes, sha256=file.sha256, blob="" if file.sha256 else file.blob)
        context.hub.download(scratch, commit, path, folder / name, expected)
