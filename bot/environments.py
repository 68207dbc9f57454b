"""The environment that a recipe requires: one Python, exact packages, wheels only, each with its hash.

`requires` in recipe.yaml names the packages that matter, `requirements.lock` beside it all of them. pip installs them
into a folder of the work folder, found by the lock's digest. No code of theirs runs there: a wheel is unpacked, and
nothing of it is imported before a worker does that, which sees the folder read-only and has neither network nor token.

If the Python that runs the bot has exactly the required packages already, it is used as it is.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.canonical import digest, text_sha256, write_atomically
from bot.errors import RecipeError, StepError
from bot.isolation.room import Interpreter

if TYPE_CHECKING:
    from bot.recipe import Recipe
    from bot.recipe_plan import Requires

WORKER_PACKAGES = ("numpy", "onnx", "onnxruntime", "pillow", "pydantic", "rfc8785", "safetensors")
"""What the bot's own code needs in a worker; a lock has them in the versions that are installed beside the bot."""

PACKAGES = "packages"
"""The folder inside an environment's that the packages lie in."""

OWN = "the bot's own"

_OLDEST, _NEWEST = (3, 11), (3, 16)
"""Versions of Python that the bot's code runs in, and up to which another one is looked for."""

_REQUIREMENT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+_]+)((?:\s+--hash=sha256:[0-9a-f]{64})+)$")
_TAKEN = re.compile(r"Collecting ([A-Za-z0-9._-]+)|Processing \S*/([A-Za-z0-9._]+)-[0-9]")
"""What pip says when it takes up a package: its name, or the path of its wheel."""

_ASK = "import json, sys; print(json.dumps([sys.version_info[:3], sys.base_prefix, sys.path, sys.executable]))"

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Environment:
    """An environment that is ready.

    Attributes:
        name: `the bot's own`, or what the lock is called.
        digest: Of the lock and the Python; empty for the bot's own.
        interpreter: What a worker runs in; None for the bot's own.
    """

    name: str = OWN
    digest: str = ""
    interpreter: Interpreter | None = None


@dataclass(frozen=True)
class Python:
    """A Python on this machine: executable, version, prefix, and the folders of its standard library."""

    program: str
    version: tuple[int, int, int]
    prefix: str
    library: tuple[str, ...]

    @property
    def text(self) -> str:
        """The version as people write it."""
        return ".".join(map(str, self.version))


Keep = Callable[[str, Any, Callable[[Path], Any]], tuple[Path, Any]]
"""`WorkFolder.entry`: finished work by what went into it."""


def ensure_environment(recipe: Recipe, keep: Keep, progress: Progress) -> Environment:
    """Makes a recipe's environment ready, unless it is.

    Args:
        recipe: Says what it requires.
        keep: Where an environment is kept.
        progress: Told of every package.

    Raises:
        RecipeError: No Python here is of the version that it requires, or the lock is missing, damaged, or for others.
        StepError: pip could not install what the lock says.
    """
    requires = recipe.plan.requires
    if requires is None:
        return Environment()
    python = find_python(recipe, requires)
    if Path(python.program) == Path(sys.executable) and not why_not_own(requires):
        return Environment()
    if recipe.lock is None:
        problem = why_not_own(requires) or f"Python {python.text} is required, and the bot runs in another"
        recipe.fail(
            ("requires", "packages"),
            f"{problem}, and there is no requirements.lock to make an environment from",
            f"Write it: bot lock {recipe.name}.",
        )
    text = recipe.lock.read_text("utf-8")
    pins = read_lock(text, str(recipe.lock))
    _require_covered(recipe, requires, pins)
    key = {"lock": text_sha256(text), "python": python.text, "machine": f"{sys.platform}-{platform.machine()}"}
    folder, _ = keep("environments", key, lambda into: _install(python, text, len(pins), into, progress))
    packages = str(folder / PACKAGES)
    interpreter = Interpreter(python.program, python.prefix, python.library, packages)
    return Environment(recipe.lock.name, digest(key), interpreter)


# ---- which Python


def find_python(recipe: Recipe, requires: Requires) -> Python:
    """The Python that a recipe requires: the bot's own if that will do, else the newest on the PATH that does.

    Raises:
        RecipeError: There is none, or what the recipe says of it is not understood.
    """
    wanted = _versions(recipe, requires.python)
    own = ask(sys.executable)
    if own is not None and wanted.contains(own.text):
        return own
    for minor in range(_NEWEST[1], _OLDEST[1] - 1, -1):
        program = shutil.which(f"python3.{minor}")
        found = ask(program) if program else None
        if found is not None and found.version >= (*_OLDEST, 0) and wanted.contains(found.text):
            return found
    return recipe.fail(
        ("requires", "python"),
        f"Python {requires.python} is required; this is {platform.python_version()}, and no other on the PATH will do",
        "Install such a Python so that the PATH has it as python3.N, or run the bot in one.",
    )


def _versions(recipe: Recipe, text: str) -> Any:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(text if not re.fullmatch(r"[0-9]+\.[0-9]+", text) else f"=={text}.*")
    except InvalidSpecifier:
        what = f"should be versions of Python such as >=3.12, or 3.11, found {text!r}"
        recipe.fail(("requires", "python"), what)


def ask(program: str) -> Python | None:
    """What a Python says of itself; None if it does not answer. No package of it is imported."""
    try:
        answer = subprocess.run(
            [program, "-I", "-S", "-c", _ASK], capture_output=True, text=True, timeout=60, check=True
        )
        version, prefix, path, executable = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    library = tuple(str(each) for each in path if each)
    mine = Path(program) == Path(sys.executable)
    return Python(program if mine else str(executable), tuple(version), str(prefix), library)


# ---- whether the bot's own Python will do


def why_not_own(requires: Requires) -> str:
    """Why the packages that run the bot are not those that a recipe requires; empty if they are."""
    from packaging.specifiers import SpecifierSet

    for requirement in requires.packages:
        name, _, version = requirement.partition("==")
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            return f"{requirement} is required and {name} is not installed"
        if not SpecifierSet(f"=={version}").contains(installed, prereleases=True):
            return f"{requirement} is required and {name} {installed} is installed"
    return ""


# ---- the lock


def read_lock(text: str, where: str) -> dict[str, str]:
    """The packages of a lock: normalised name to version.

    Raises:
        RecipeError: It is not a lock: every requirement has one version and at least one sha256.
    """
    found = {}
    for number, line in _logical_lines(text):
        match = _REQUIREMENT.match(line)
        if match is None:
            raise RecipeError(
                f"should be NAME==VERSION --hash=sha256:HEX, found {line[:80]!r}",
                where=f"{where}:{number}",
                remedy="Write the lock anew: bot lock NAME.",
            )
        found[normalised(match[1])] = match[2]
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, those that end in a backslash joined with the next."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.split("#", 1)[0].rstrip()
        begun = begun or number
        parts.append(content.removesuffix("\\").strip())
        if content.endswith("\\"):
            continue
        whole = " ".join(part for part in parts if part)
        if whole:
            yield begun, whole
        begun, parts = 0, []


def normalised(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _require_covered(recipe: Recipe, requires: Requires, pins: Mapping[str, str]) -> None:
    """Stops unless the lock has what the recipe requires, and what the worker needs."""
    for requirement in requires.packages:
        name, _, version = requirement.partition("==")
        found = pins.get(normalised(name))
        if found is None or found.partition("+")[0] != version.partition("+")[0]:
            has = f"has {name} {found}" if found else f"lacks {name}"
            what = f"{requirement} is required, and the lock {has}"
            recipe.fail(("requires", "packages"), what, f"Write it anew: bot lock {recipe.name}.")
    for name in WORKER_PACKAGES:
        if name not in pins:
            what = f"the lock lacks {name}, which the worker needs"
            recipe.fail(("requires",), what, f"Write it anew: bot lock {recipe.name}.")


def write_lock(recipe: Recipe, progress: Progress) -> Path:
    """Resolves what a recipe requires, wheels only, and writes requirements.lock beside it.

    Returns:
        The lock. It is good for this system and processor, and for the Python that the recipe requires.

    Raises:
        RecipeError: The recipe requires nothing, or a Python that is not here.
        StepError: pip finds no such wheels.
    """
    requires = recipe.plan.requires
    if requires is None or not requires.packages:
        recipe.fail(("requires",), "names no packages to lock", "Such as: requires: {packages: [torch==2.13.0]}.")
    python = find_python(recipe, requires)
    named = {normalised(each.partition("==")[0]) for each in requires.packages}
    own = [f"{name}=={_installed(name)}" for name in WORKER_PACKAGES if normalised(name) not in named]
    progress(0, 1, "resolving")
    command = [*("install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"), *requires.packages, *own]
    answer = _pip(python, command)
    try:
        text = _lock_text(recipe.name, python, json.loads(answer)["install"])
    except (ValueError, KeyError, TypeError) as error:
        raise StepError("pip gave no report that can be read", where="bot lock") from error
    target = recipe.folder / "requirements.lock"
    write_atomically(target, text.encode())
    progress(1, 1, "locked")
    return target


def _installed(name: str) -> str:
    """The version of a package beside the bot; the runtime's build for GPUs stands for the plain one."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return metadata.version(f"{name}-gpu")


def _lock_text(name: str, python: Python, report: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        f"# The environment of the recipe {name}, as `bot lock {name}` wrote it:",
        f"# Python {python.version[0]}.{python.version[1]}, {sys.platform}, {platform.machine()}.",
    ]
    for entry in sorted(report, key=lambda each: normalised(str(each["metadata"]["name"]))):
        sha256 = entry["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{normalised(entry['metadata']['name'])}=={entry['metadata']['version']} --hash=sha256:{sha256}")
    return "\n".join(lines) + "\n"


# ---- pip


def _install(python: Python, lock: str, count: int, folder: Path, progress: Progress) -> dict[str, Any]:
    """Installs a lock into `folder/packages`."""
    listed = folder / "requirements.txt"
    listed.write_text(lock, "utf-8")
    command = [*("install", "--require-hashes", "--no-deps", "--target", str(folder / PACKAGES), "-r", str(listed))]
    seen = 0

    def tell(line: str) -> None:
        nonlocal seen
        if found := _TAKEN.match(line):
            seen += 1
            progress(min(seen, count), count + 1, found[1] or found[2])
        elif line.startswith("Installing collected"):
            progress(count, count + 1, "installing")

    _pip(python, command, tell)
    return {"packages": count}


def _pip(python: Python, command: Sequence[str], tell: Callable[[str], None] | None = None) -> str:
    """Runs pip for a Python, wheels only.

    Returns:
        What it printed.

    Raises:
        StepError: It failed.
    """
    other = [] if Path(python.program) == Path(sys.executable) else ["--python", python.program]
    wheels = ["--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    # No token of the Hub is pip's business, and a user's constraints have no hashes.
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "BOT_", "PYTHON"))}
    environment = {**kept, "PIP_USER": "0", "PIP_CONSTRAINT": os.devnull}
    whole = [sys.executable, "-m", "pip", *other, command[0], *wheels, *command[1:]]
    try:
        with (
            tempfile.TemporaryFile("w+") as complaints,
            subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=complaints, text=True, env=environment) as process,
        ):
            lines = []
            for line in process.stdout or ():
                lines.append(line)
                if tell is not None:
                    tell(line.strip())
            process.wait()
            complaints.seek(0)
            problem = complaints.read()
    except OSError as error:
        raise StepError(f"pip cannot be started: {error.strerror}", where="requirements.lock") from error
    if process.returncode:
        raise StepError(
            f"pip failed: {_last_line(problem) or process.returncode}",
            where="requirements.lock",
            remedy="Check the network and pip's index; if a wheel was withdrawn, write the lock anew with bot lock.",
        )
    return "".join(lines)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or [""])[0][:300]
