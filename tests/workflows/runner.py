"""Runs GitHub's workflows as they are written, as GitHub would: jobs in order, each step as it stands.

A `run:` step is run by bash. A `uses:` step is run by an equivalent of that action (`tests.workflows.known_actions`),
or, if it names an action of the repository itself, step by step. Expressions are worked out by
`tests.workflows.expressions`. Whatever is not known, an action, an input, a key, a context where it may not be used, a
function, a property, ends the test.

Left out is what no workflow here uses: services, containers, defaults, caches, secrets, `continue-on-error`,
`jobs.*.steps[*].timeout-minutes`. Jobs run one after the other, in a process and a home folder of their own.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.workflows.expressions import Strict, as_text, interpolate, is_true
from tests.workflows.issuer import Issuer, claims_of

JOB_KEYS = {
    *("name", "if", "needs", "runs-on", "timeout-minutes", "permissions", "environment", "env", "outputs", "steps"),
    *("strategy", "uses", "with"),
}
STEP_KEYS = {"name", "id", "if", "uses", "with", "env", "run", "shell"}
WORKFLOW_KEYS = {"name", "on", "concurrency", "permissions", "env", "jobs"}

# Which contexts GitHub gives at which place, after its documentation ("Context availability").
_EARLY = ("github", "inputs", "vars")
_AVAILABLE = {
    "concurrency": _EARLY,
    "env": ("github", "inputs", "vars"),
    "job if": ("github", "needs", "vars", "inputs"),
    "job": ("github", "needs", "strategy", "matrix", "vars", "inputs"),
    "matrix": ("github", "needs", "vars", "inputs"),
    "step": ("github", "needs", "strategy", "matrix", "job", "runner", "env", "vars", "steps", "inputs"),
    "composite": ("github", "job", "runner", "env", "steps", "inputs", "strategy", "matrix"),
}
_COMMAND = re.compile(r"^\s*::([A-Za-z-]+)(?: [^:]*)?::(.*)$|##\[([A-Za-z-]+)[^\]]*\](.*)$")
LABELS = {"ubuntu-latest", "gpu-box"}


class WorkflowError(AssertionError):
    """A workflow says something that GitHub would not take, or that is not known here."""


@dataclass
class Step:
    """What came of a step: its name, how it ended, what it gave, what it printed, and the environment that it had."""

    name: str
    conclusion: str
    outputs: dict[str, Any] = field(default_factory=dict)
    log: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    commands: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Job:
    """What came of a job.

    Attributes:
        key: Its key, after that of the job that called its workflow: `publish / build`.
        result: `success`, `failure` or `skipped`.
        outputs: As the workflow gives them on.
        steps: Those that were reached, those of composite actions among them.
        permissions: Of its token.
        runner: The label that it asked for.
        environment: The name of its environment.
        group: The concurrency group of its workflow.
    """

    key: str
    result: str = "skipped"
    outputs: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    permissions: dict[str, str] = field(default_factory=dict)
    runner: str = ""
    environment: str = ""
    group: str = ""

    @property
    def log(self) -> str:
        """All that its steps printed."""
        return "".join(step.log for step in self.steps)

    @property
    def summary(self) -> str:
        """Its summary in Markdown."""
        return "".join(step.summary for step in self.steps)

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The commands to the runner that were found in its log."""
        return [command for step in self.steps for command in step.commands]


@dataclass
class GitHub:
    """The side of GitHub.

    Attributes:
        folder: For workspaces, homes and artifacts.
        source: The repository of recipes, as it is checked out.
        library: The repository of the workflows and the action; the same unless somebody else's is used.
        python: A folder with the Python that `setup-python` provides.
        issuer: Signs statements about jobs.
        repository: The name of the repository of recipes.
        library_name: The name of the library.
        variables: The repository's variables.
        equivalents: What stands for an action, by its name; see `tests.workflows.known_actions`.
        artifacts: What was uploaded, by name.
        minted: The keys of the jobs that were given an identity to show.
        instead: A folder of programs that stand for some of the runner's own, where a test cannot run these.
    """

    folder: Path
    source: Path
    library: Path
    python: Path
    issuer: Issuer
    equivalents: Mapping[str, Any]
    repository: str = "somebody/models"
    library_name: str = "somebody/models"
    variables: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, Path] = field(default_factory=dict)
    minted: list[str] = field(default_factory=list)
    instead: Path | None = None

    def run(
        self,
        workflow: str,
        event: str = "workflow_dispatch",
        inputs: Mapping[str, Any] | None = None,
        reuse: Mapping[str, Job] | None = None,
    ) -> dict[str, Job]:
        """Runs a workflow of the repository of recipes.

        Args:
            workflow: Its file name.
            event: What starts it.
            inputs: For one that is started by hand.
            reuse: Jobs that are not run again, by their keys, as with "re-run failed jobs".

        Returns:
            Its jobs, by key.
        """
        path = self.source / ".github" / "workflows" / workflow
        run = Workflow(self, path, event, workflow, dict(inputs or {}), reuse=dict(reuse or {}))
        return run.all()


def load(path: Path) -> dict[str, Any]:
    """A YAML file as plain data; YAML 1.2, so that `on` is a text."""
    data = YAML(typ="safe", pure=True).load(path.read_text("utf-8"))
    if not isinstance(data, dict):
        raise WorkflowError(f"{path} is no mapping")
    return data


def known_keys(found: Mapping[str, Any], known: set[str], where: str) -> None:
    """Ends the test if something is written that is not known."""
    if strange := set(found) - known:
        raise WorkflowError(f"{where}: the keys {sorted(strange)} are not known")


class Workflow:
    """One run of one workflow file."""

    def __init__(
        self,
        github: GitHub,
        path: Path,
        event: str,
        started: str,
        inputs: dict[str, Any],
        *,
        prefix: str = "",
        granted: Mapping[str, str] | None = None,
        reuse: Mapping[str, Job] | None = None,
    ) -> None:
        self.github, self.path, self.event, self.started, self.prefix = github, path, event, started, prefix
        self.plan = load(path)
        self.granted, self.reuse = granted, dict(reuse or {})
        known_keys(self.plan, WORKFLOW_KEYS, path.name)
        triggers = self.plan["on"] if isinstance(self.plan["on"], dict) else {self.plan["on"]: None}
        trigger = "workflow_call" if prefix else event
        if trigger not in triggers:
            raise WorkflowError(f"{path.name} is not started by {trigger}")
        about = triggers[trigger] if isinstance(triggers[trigger], dict) else {}
        self.inputs = _inputs(about.get("inputs") or {}, inputs, path.name)
        self.results: dict[str, Job] = {}
        self.all_jobs: dict[str, Job] = {}

    # -- what expressions see ------------------------------------------------------------------------------------

    @property
    def in_library(self) -> bool:
        """Whether the file is one of the library's, and not of the repository of recipes."""
        return self.path.is_relative_to(self.github.library)

    def reference(self) -> str:
        """`OWNER/NAME/.github/workflows/FILE@REF`, of the file that this is."""
        name = self.github.library_name if self.in_library else self.github.repository
        return f"{name}/.github/workflows/{self.path.name}@refs/heads/main"

    def contexts(self, place: str, **more: Any) -> dict[str, Any]:
        """The contexts that may be used at a place."""
        github = {
            "repository": self.github.repository,
            "repository_owner": self.github.repository.partition("/")[0],
            "ref": "refs/heads/main",
            "ref_name": "main",
            "sha": "ab" * 20,
            "server_url": "https://github.com",
            "run_id": "1",
            "event_name": self.event,
            "workflow_ref": f"{self.github.repository}/.github/workflows/{self.started}@refs/heads/main",
        }
        every = {
            "github": Strict(github, "github"),
            "inputs": Strict(self.inputs, "inputs"),
            "vars": dict(self.github.variables),
            **more,
        }
        return {name: every[name] for name in _AVAILABLE[place] if name in every}

    def value(self, text: Any, place: str, functions: Mapping[str, Any] | None = None, **more: Any) -> Any:
        """A value of the file with its expressions worked out."""
        if isinstance(text, dict):
            return {key: self.value(each, place, functions, **more) for key, each in text.items()}
        if not isinstance(text, str):
            return text
        return interpolate(text, self.contexts(place, **more), functions or {})

    # -- jobs ----------------------------------------------------------------------------------------------------

    def all(self) -> dict[str, Job]:
        """Runs all jobs, in an order that their needs allow."""
        concurrency = self.plan.get("concurrency") or {}
        self.group = as_text(self.value(concurrency.get("group", ""), "concurrency"))
        if concurrency.get("cancel-in-progress") not in (None, True, False):
            raise WorkflowError("cancel-in-progress is true or false")
        waiting = dict(self.plan["jobs"])
        while waiting:
            ready = [key for key, plan in waiting.items() if not set(_needs(plan)) & set(waiting)]
            if not ready:
                raise WorkflowError(f"{self.path.name}: jobs need each other")
            for key in ready:
                self._job(key, waiting.pop(key))
        return self.all_jobs

    def _job(self, key: str, plan: dict[str, Any]) -> None:
        known_keys(plan, JOB_KEYS, f"{self.path.name}: {key}")
        full = f"{self.prefix}{key}"
        if full in self.reuse:
            self.results[key] = self.all_jobs[full] = self.reuse[full]
            return
        needs = {}
        for other in _needs(plan):
            before = self.results[other]
            declared = dict.fromkeys(self.plan["jobs"][other].get("outputs") or {}, "")
            outputs = Strict({**declared, **before.outputs}, f"needs.{other}.outputs")
            needs[other] = Strict({"result": before.result, "outputs": outputs}, f"needs.{other}")
        more = {"needs": Strict(needs, "needs")}
        job = Job(full, group=self.group)
        self.results[key] = self.all_jobs[full] = job
        results = [self.results[other].result for other in _needs(plan)]
        functions = {
            "success": lambda: all(result == "success" for result in results),
            "failure": lambda: "failure" in results,
            "cancelled": lambda: False,
            "always": lambda: True,
        }
        if not self._holds(plan.get("if"), "job if", functions, more):
            return
        job.permissions = self._permissions(key, plan)
        if "uses" in plan:
            self._call(job, plan, more)
            return
        job.runner = as_text(self.value(plan["runs-on"], "job", **more))
        if job.runner not in LABELS:
            raise WorkflowError(f"{full}: there is no runner {job.runner!r}")
        job.environment = as_text(self.value(plan.get("environment", ""), "job", **more))
        JobRun(self, key, plan, job, more).run()

    def _holds(self, condition: Any, place: str, functions: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
        """Whether an `if` holds; one that asks for no status means `success()` as well."""
        text = "success()" if condition is None else str(condition).strip()
        if not text.startswith("${{"):
            text = f"${{{{ {text} }}}}"
        holds = is_true(self.value(text, place, functions, **more))
        if not re.search(r"\b(success|failure|always|cancelled)\s*\(", text):
            holds = holds and functions["success"]()
        return holds

    def _permissions(self, key: str, plan: dict[str, Any]) -> dict[str, str]:
        """What a job's token may do. A workflow that says nothing leaves it to the repository, which is refused."""
        found = plan.get("permissions", self.plan.get("permissions"))
        if not isinstance(found, dict):
            raise WorkflowError(f"{key}: no permissions are written down")
        if self.granted is not None:
            beyond = {name: right for name, right in found.items() if self.granted.get(name) not in (right, "write")}
            if beyond:
                raise WorkflowError(f"{self.prefix}{key}: asks for {beyond}, which its caller was not granted")
        return dict(found)

    def _call(self, job: Job, plan: dict[str, Any], more: dict[str, Any]) -> None:
        """Runs a job that calls another workflow, once for each element of its matrix."""
        found = self.value(plan.get("strategy") or {}, "matrix", **more)
        known_keys(found, {"matrix", "fail-fast", "max-parallel"}, job.key)
        rows: list[dict[str, Any]] = (found.get("matrix") or {}).get("include") or [{}]
        if set(found.get("matrix") or {}) - {"include"} or len(rows) > 256:
            raise WorkflowError(f"{job.key}: this matrix is not known")
        path = self._local(str(plan["uses"])) or self._elsewhere(str(plan["uses"]))
        results = []
        for row in rows:
            matrix = {**more, "matrix": Strict(row, "matrix")} if "strategy" in plan else more
            name = as_text(self.value(plan.get("name", job.key), "job", **matrix))
            inputs = {each: self.value(text, "job", **matrix) for each, text in (plan.get("with") or {}).items()}
            called = Workflow(
                *(self.github, path, self.event, self.started, inputs),
                prefix=f"{self.prefix}{name} / ",
                granted=job.permissions,
                reuse=self.reuse,
            )
            jobs = called.all()
            self.all_jobs.update(jobs)
            results += [each.result for each in jobs.values()]
        job.result = "failure" if "failure" in results else "success"

    def _local(self, uses: str) -> Path | None:
        """The file of a `$/` reference, which means the repository that the workflow itself is from."""
        if not uses.startswith("$/"):
            return None
        root = self.github.library if self.in_library else self.github.source
        return root / uses.removeprefix("$/")

    def _elsewhere(self, uses: str) -> Path:
        """The file of a reference to the library by its name and a commit."""
        match = re.fullmatch(r"([\w.-]+/[\w.-]+)/(\.github/workflows/[\w.-]+)@([0-9a-f]{40})", uses)
        if match is None or match[1] != self.github.library_name:
            raise WorkflowError(f"the workflow {uses!r} is not known")
        return self.github.library / match[2]


def _needs(plan: Mapping[str, Any]) -> list[str]:
    needs = plan.get("needs") or []
    return [needs] if isinstance(needs, str) else list(needs)


def _inputs(declared: Mapping[str, Any], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The inputs of a workflow, defaults filled in and kinds checked."""
    known_keys(given, set(declared), f"{where}: inputs")
    found: dict[str, Any] = {}
    for name, about in declared.items():
        value = given.get(name, about.get("default", {"boolean": False, "number": 0}.get(about.get("type"), "")))
        if about.get("required") and name not in given:
            raise WorkflowError(f"{where}: the input {name} is missing")
        if about.get("type") == "boolean" and not isinstance(value, bool):
            raise WorkflowError(f"{where}: the input {name} is true or false")
        found[name] = value
    return found


class JobRun:
    """One run of one job on a runner of its own."""

    def __init__(self, workflow: Workflow, key: str, plan: dict[str, Any], job: Job, more: dict[str, Any]) -> None:
        self.workflow, self.key, self.plan, self.job, self.more = workflow, key, plan, job, more
        self.github = workflow.github
        self.folder = self.github.folder / f"job-{secrets.token_hex(4)}"
        self.workspace, self.temp, self.home = (self.folder / name for name in ("workspace", "temp", "home"))
        for each in (self.workspace, self.temp, self.home, self.folder / "scripts"):
            each.mkdir(parents=True)
        self.path: list[str] = []
        self.environment = self._environment()
        self.failed = False

    def _environment(self) -> dict[str, str]:
        """The variables that a runner sets. Of this machine's own none but those that pip needs goes in."""
        workflow = self.workflow
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
        set_here = {
            "CI": "true",
            "HOME": str(self.home),
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": self.github.repository,
            "GITHUB_REF": "refs/heads/main",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.temp),
            "PIP_NO_BUILD_ISOLATION": "0",  # which means: none; what builds the bot is installed here
            "PIP_NO_COMPILE": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "OMP_NUM_THREADS": "2",
        }
        found = {**kept, **set_here}
        for plan, place in ((workflow.plan, "env"), (self.plan, "job")):
            found |= {
                name: as_text(workflow.value(text, place, **(self.more if place == "job" else {})))
                for name, text in (plan.get("env") or {}).items()
            }
        if self.job.permissions.get("id-token") == "write":
            self.github.minted.append(self.job.key)
            found |= self.github.issuer.admit(self.claims())
        return found

    def claims(self) -> dict[str, Any]:
        """What GitHub says of this job."""
        claims = claims_of(self.github.repository, workflow=self.workflow.started, environment=self.job.environment)
        return {**claims, "job_workflow_ref": self.workflow.reference()}

    def run(self) -> None:
        """Runs the steps and works out what the job gives on."""
        steps: dict[str, Any] = {}
        for plan in self.plan["steps"]:
            self._step(plan, steps, self._more(steps), "step", {})
        outputs = {
            name: as_text(self.workflow.value(text, "step", **self._more(steps)))
            for name, text in (self.plan.get("outputs") or {}).items()
        }
        self.job.outputs, self.job.result = outputs, "failure" if self.failed else "success"

    def _more(self, steps: dict[str, Any]) -> dict[str, Any]:
        """The contexts of steps."""
        job = {
            "status": "failure" if self.failed else "success",
            "workflow_ref": self.workflow.reference(),
            "workflow_repository": self.workflow.reference().partition("/.github")[0],
        }
        runner = {"temp": str(self.temp), "os": "Linux", "arch": "X64", "name": "a runner"}
        return {
            **self.more,
            "job": Strict(job, "job"),
            "runner": Strict(runner, "runner"),
            "env": dict(self.environment),
            "steps": Strict(steps, "steps"),
        }

    def _functions(self) -> dict[str, Any]:
        return {
            "success": lambda: not self.failed,
            "failure": lambda: self.failed,
            "cancelled": lambda: False,
            "always": lambda: True,
        }

    def _step(
        self, plan: dict[str, Any], steps: dict[str, Any], more: dict[str, Any], place: str, outer: dict[str, str]
    ) -> None:
        """Runs one step of the job, or of a composite action.

        Args:
            plan: The step.
            steps: What is known of the steps beside it; it is added.
            more: The contexts.
            place: `step` or `composite`.
            outer: Variables of the step that uses the composite action.
        """
        known_keys(plan, STEP_KEYS, f"{self.job.key}: {plan.get('name', '?')}")
        name = str(plan.get("name") or plan.get("uses") or plan.get("run"))
        step = Step(name, "skipped")
        position = len(self.job.steps)
        if self._holds(plan, place, more):
            own = {key: as_text(self._value(text, place, more)) for key, text in (plan.get("env") or {}).items()}
            environment = {**self.environment, **outer, **own}
            if "run" in plan:
                self._bash(step, plan, environment)
            else:
                self._use(step, plan, place, more, {**outer, **own})
            self.failed = self.failed or step.conclusion == "failure"
        self.job.steps.insert(position, step)
        if "id" in plan:
            known = {"outputs": step.outputs, "outcome": step.conclusion, "conclusion": step.conclusion}
            steps[plan["id"]] = Strict(known, f"steps.{plan['id']}")

    def _holds(self, plan: Mapping[str, Any], place: str, more: dict[str, Any]) -> bool:
        inputs = more.get("inputs")
        return self.workflow._holds(plan.get("if"), place, self._functions(), {**more, **_given(inputs)})

    def _value(self, text: Any, place: str, more: dict[str, Any]) -> Any:
        return self.workflow.value(text, place, self._functions(), **more)

    # -- run: --------------------------------------------------------------------------------------------------------

    def _bash(self, step: Step, plan: Mapping[str, Any], environment: dict[str, str]) -> None:
        """A step as it stands, in the shell that GitHub takes."""
        text = str(plan["run"])
        if "${{" in text:
            raise WorkflowError(f"{step.name}: an expression inside run: is put into the script as it is")
        options = {None: ["-e"], "bash": ["--noprofile", "--norc", "-eo", "pipefail"]}[plan.get("shell")]
        script = self.folder / "scripts" / f"{secrets.token_hex(4)}.sh"
        script.write_text(text)
        files = {name: self.folder / "scripts" / f"{secrets.token_hex(4)}.{name}" for name in ("output", "summary")}
        for path in files.values():
            path.touch()
        environment |= {
            "GITHUB_OUTPUT": str(files["output"]),
            "GITHUB_STEP_SUMMARY": str(files["summary"]),
            "PATH": ":".join(
                [*self._instead(), *self.path, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
            ),
        }
        done = subprocess.run(
            ["bash", *options, str(script)],
            cwd=self.workspace,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=600,
        )
        step.log, step.environment = done.stdout, environment
        step.summary = files["summary"].read_text("utf-8")
        step.commands = list(commands_in(done.stdout))
        step.outputs = dict(outputs_in(files["output"].read_text("utf-8")))
        step.conclusion = "success" if done.returncode == 0 else "failure"

    def _instead(self) -> list[str]:
        return [str(self.github.instead)] if self.github.instead else []

    # -- uses: -------------------------------------------------------------------------------------------------------

    def _use(self, step: Step, plan: dict[str, Any], place: str, more: dict[str, Any], outer: dict[str, str]) -> None:
        uses = str(plan["uses"])
        given = {key: self._value(text, place, more) for key, text in (plan.get("with") or {}).items()}
        root = self._own_action(uses)
        if root is not None:
            self._composite(step, root, given, outer)
            return
        match = re.fullmatch(r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})", uses)
        if match is None or match[1] not in self.github.equivalents:
            raise WorkflowError(f"{step.name}: the action {uses!r} is not known")
        action = self.github.equivalents[match[1]]
        if match[2] != action.commit:
            raise WorkflowError(f"{uses} is not the commit of {action.version}")
        known_keys(given, action.inputs, uses)
        try:
            step.outputs = Strict(dict.fromkeys(action.outputs, "") | (action.run(self, given) or {}), uses)
            step.conclusion = "success"
        except ActionFailed as error:
            step.outputs, step.log, step.conclusion = Strict({}, uses), f"{error}\n", "failure"

    def _own_action(self, uses: str) -> Path | None:
        """The folder of an action that is used by its place in a repository, or by the library's name."""
        if uses.startswith("$/"):
            root = self.github.library if self.workflow.in_library else self.github.source
            return root / uses.removeprefix("$/")
        match = re.fullmatch(r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})", uses)
        return self.github.library if match and match[1] == self.github.library_name else None

    def _composite(self, step: Step, root: Path, given: dict[str, Any], outer: dict[str, str]) -> None:
        """A composite action, step by step."""
        plan = load(root / "action.yml")
        known_keys(plan, {"name", "description", "inputs", "outputs", "runs"}, "action.yml")
        if plan["runs"].get("using") != "composite":
            raise WorkflowError("action.yml is not composite")
        declared = plan.get("inputs") or {}
        known_keys(given, set(declared), "action.yml: inputs")
        inputs: dict[str, Any] = {}
        for name, about in declared.items():
            known_keys(about, {"description", "default", "required"}, f"action.yml: {name}")
            if about.get("required") and name not in given:
                raise WorkflowError(f"action.yml: the input {name} is missing")
            # An input of an action is always a text.
            inputs[name] = as_text(given.get(name, about.get("default", "")))
        steps: dict[str, Any] = {}
        before = self.failed
        for each in plan["runs"]["steps"]:
            if "run" in each and "shell" not in each:
                raise WorkflowError("a composite action names the shell of each step")
            more = {**self._more(steps), "inputs": Strict(inputs, "inputs")}
            self._step(each, steps, more, "composite", {**outer, "GITHUB_ACTION_PATH": str(root)})
        more = {**self._more(steps), "inputs": Strict(inputs, "inputs")}
        step.outputs = Strict(
            {name: self._value(about["value"], "composite", more) or "" for name, about in plan["outputs"].items()},
            "the action's outputs",
        )
        step.conclusion = "failure" if self.failed and not before else "success"


class ActionFailed(Exception):
    """An action that ends its step."""


def _given(inputs: Any) -> dict[str, Any]:
    return {} if inputs is None else {"inputs": inputs}


def commands_in(log: str) -> Iterator[tuple[str, str]]:
    """The commands that a runner finds in a log, both kinds of them."""
    for line in log.splitlines():
        if found := _COMMAND.search(line):
            yield (found[1] or found[3]).lower(), (found[2] or found[4] or "")


def outputs_in(text: str) -> Iterator[tuple[str, str]]:
    """The outputs that a step wrote into its file.

    Raises:
        WorkflowError: The file is not in the form that a runner reads.
    """
    lines = text.splitlines()
    while lines:
        line = lines.pop(0)
        if not line:
            continue
        if match := re.match(r"([^=<]+)<<(.+)$", line):
            value = []
            while lines and lines[0] != match[2]:
                value.append(lines.pop(0))
            if not lines:
                raise WorkflowError(f"the output {match[1]} has no end")
            lines.pop(0)
            yield match[1], "\n".join(value)
        elif match := re.match(r"([^=]+)=(.*)$", line):
            yield match[1], match[2]
        else:
            raise WorkflowError(f"not an output: {line!r}")


def as_json(value: Any) -> str:
    """For messages of tests."""
    return json.dumps(value, indent=1, default=str)


def copy_tree(source: Path, target: Path) -> None:
    """Copies a folder's content as an archive of it would hold it: what a link points to, and no hidden file."""
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and not any(part.startswith(".") for part in relative.parts):
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / relative)
