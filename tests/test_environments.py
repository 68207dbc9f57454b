"""The environment that a recipe requires: locked, installed from wheels, and what a worker runs in."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from bot import environments
from bot.environments import Environment, ensure_environment, read_lock, why_not_own, write_lock
from bot.errors import RecipeError, StepError
from bot.recipe import Recipe, load_recipe
from bot.work import WorkFolder
from bot.worker import Worker
from tests.world import CARD, RECIPE, ROOT

NEEDED = ("numpy",)
"""What stands for the worker's packages here: it is installed, and no wheel of it has to be had."""


def wheel(folder: Path, name: str, version: str, code: str, requires: str = "") -> tuple[Path, str]:
    """A wheel of one module, and its sha256."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    about += f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": code,
        f"{name}-{version}.dist-info/METADATA": about,
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            archive.writestr(place, text)
            hashed = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{place},sha256={hashed},{len(text)}")
        archive.writestr(
            f"{name}-{version}.dist-info/RECORD", "\n".join([*rows, f"{name}-{version}.dist-info/RECORD,,"])
        )
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, the only place that pip finds any in."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    # What a .pth or a module of it would do is the test's business: it must not happen outside a worker.
    wheel(folder, "colours", "1.5", f"open({str(tmp_path / 'mark')!r}, 'w')\nRED = 'red'\n", "shades==2.0")
    wheel(folder, "shades", "2.0", "DARK = 'dark'\n")
    for key, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(environments, "WORKER_PACKAGES", ())
    return folder


def recipe(folder: Path, requires: str) -> Recipe:
    place = folder / "network"
    (place / "licenses").mkdir(parents=True, exist_ok=True)
    (place / "licenses" / "LICENSE").write_text("Permission is granted to all.\n")
    (place / "card.md.j2").write_text(CARD)
    (place / "recipe.yaml").write_text(RECIPE.replace("OPEN", "commit") + f"requires: {requires}\n")
    return load_recipe(place)


def ensure(given: Recipe, work: Path) -> tuple[Environment, list[str]]:
    told: list[str] = []
    environment = ensure_environment(given, WorkFolder(work).entry, lambda done, total, text: told.append(text))
    return environment, told


def test_without_requirements_the_bot_s_own_is_used(tmp_path: Path) -> None:
    assert ensure(recipe(tmp_path, "{}"), tmp_path / "work")[0] == Environment()


def test_where_the_packages_are_here_the_bot_s_own_is_used(tmp_path: Path) -> None:
    given = recipe(
        tmp_path, f"{{packages: [numpy=={metadata.version('numpy')}, pydantic=={metadata.version('pydantic')}]}}"
    )
    assert ensure(given, tmp_path / "work")[0] == Environment()


def test_a_local_version_satisfies_its_public_one() -> None:
    from bot.recipe_plan import Requires

    torch = metadata.version("torch")
    assert not why_not_own(Requires(packages=(f"torch=={torch.partition('+')[0]}",)))
    assert "2.0.0 is required" in why_not_own(Requires(packages=("torch==2.0.0",)))


def test_what_is_not_here_needs_a_lock(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"colours is not installed.*bot lock network"):
        ensure(recipe(tmp_path, "{packages: [colours==1.5]}"), tmp_path / "work")


@pytest.mark.parametrize("python", [">=3.99", "3.6"])
def test_a_python_that_is_not_here_is_an_error_with_a_remedy(tmp_path: Path, python: str) -> None:
    with pytest.raises(RecipeError, match="no other on the PATH will do") as error:
        ensure(recipe(tmp_path, f'{{python: "{python}"}}'), tmp_path / "work")
    assert "python3.N" in error.value.remedy and "recipe.yaml:" in error.value.where


def test_a_python_that_is_no_version_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="should be versions of Python"):
        ensure(recipe(tmp_path, '{python: "three"}'), tmp_path / "work")


@pytest.mark.parametrize(
    "package", ["torch", "torch>=2", "torch==2.13.0; python_version>'3'", "git+https://x/y", "-r x"]
)
def test_only_exact_versions_may_be_required(tmp_path: Path, package: str) -> None:
    with pytest.raises(RecipeError, match=r"requires\.packages"):
        recipe(tmp_path, f"{{packages: ['{package}']}}".replace("'3'", "''3''"))


def test_locked_installed_and_run_in(tmp_path: Path, wheels: Path) -> None:
    given = recipe(tmp_path, "{packages: [colours==1.5]}")
    path = write_lock(given, lambda *_: None)
    text = path.read_text()
    assert set(read_lock(text, "lock").items()) == {("colours", "1.5"), ("shades", "2.0")}
    assert "://" not in text and str(wheels) not in text and text.count("--hash=sha256:") == 2
    environment, told = ensure(load_recipe(given.folder), tmp_path / "work")
    assert environment.name == "requirements.lock" and environment.interpreter is not None
    assert {"colours", "shades"} <= set(told)
    assert not (tmp_path / "mark").exists()
    # A worker runs in it: it sees those packages and none of the bot's.
    (tmp_path / "probe").mkdir()
    (tmp_path / "probe" / "probe.py").write_text(
        "import sys\n"
        "def look(arguments, progress):\n"
        "    import shades\n"
        "    try:\n"
        "        import numpy\n"
        "    except ImportError:\n"
        "        numpy = None\n"
        "    try:\n"
        "        open(arguments['packages'] + '/shades.py', 'a')\n"
        "        writable = True\n"
        "    except OSError:\n"
        "        writable = False\n"
        "    return {'dark': shades.DARK, 'numpy': numpy is not None, 'writable': writable, 'version': sys.version}\n"
    )
    answer = Worker(tasks={"probe": "probe:look"}).call(
        "probe",
        {"packages": environment.interpreter.packages},
        extra_path=[tmp_path / "probe"],
        interpreter=environment.interpreter,
    )
    assert answer == {"dark": "dark", "numpy": False, "writable": False, "version": sys.version}
    # It is there now: nothing is installed again, and no wheel is needed.
    for each in wheels.iterdir():
        each.unlink()
    again, told = ensure(load_recipe(given.folder), tmp_path / "work")
    assert again == environment and not told


def test_another_wheel_than_the_locked_one_is_refused(tmp_path: Path, wheels: Path) -> None:
    given = recipe(tmp_path, "{packages: [colours==1.5]}")
    write_lock(given, lambda *_: None)
    wheel(wheels, "shades", "2.0", "DARK = 'changed'\n")
    with pytest.raises(StepError, match=r"(?i)hash"):
        ensure(load_recipe(given.folder), tmp_path / "work")
    assert not list((tmp_path / "work" / "environments").glob("[!.]*"))


def test_a_source_archive_is_never_built(tmp_path: Path, wheels: Path) -> None:
    """A setup.py is code that runs on installing."""
    import io
    import tarfile

    (wheels / "colours-1.5-py3-none-any.whl").unlink()
    with tarfile.open(wheels / "colours-1.5.tar.gz", "w:gz") as archive:
        data = f"open({str(tmp_path / 'mark')!r}, 'w')\n".encode()
        entry = tarfile.TarInfo("colours-1.5/setup.py")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    with pytest.raises(StepError, match="colours"):
        write_lock(recipe(tmp_path, "{packages: [colours==1.5]}"), lambda *_: None)
    assert not (tmp_path / "mark").exists()


def test_a_lock_that_does_not_have_what_is_required_is_refused(tmp_path: Path, wheels: Path) -> None:
    given = recipe(tmp_path, "{packages: [colours==1.5]}")
    write_lock(given, lambda *_: None)
    changed = recipe(tmp_path, "{packages: [colours==1.6]}")
    with pytest.raises(RecipeError, match=r"colours==1\.6 is required, and the lock has colours 1\.5"):
        ensure(changed, tmp_path / "work")


def test_a_lock_without_the_worker_s_packages_is_refused(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = recipe(tmp_path, "{packages: [colours==1.5]}")
    write_lock(given, lambda *_: None)
    monkeypatch.setattr(environments, "WORKER_PACKAGES", NEEDED)
    with pytest.raises(RecipeError, match="the lock lacks numpy"):
        ensure(load_recipe(given.folder), tmp_path / "work")


@pytest.mark.parametrize(
    "line", ["colours", "colours==1.5", "colours>=1 --hash=sha256:" + "0" * 64, "-r other.txt", "./x.whl"]
)
def test_a_lock_without_hashes_is_no_lock(line: str) -> None:
    with pytest.raises(RecipeError, match="should be NAME==VERSION --hash") as error:
        read_lock(f"# a comment\n\n{line}\n", "requirements.lock")
    assert error.value.where == "requirements.lock:3"


def test_lines_may_be_continued() -> None:
    text = "colours==1.5 \\\n    --hash=sha256:" + "0" * 64 + " \\\n    --hash=sha256:" + "1" * 64 + "  # why\n"
    assert read_lock(text, "lock") == {"colours": "1.5"}


def test_the_lock_is_part_of_the_identity(tmp_path: Path) -> None:
    given = recipe(tmp_path, "{packages: [colours==1.5]}")
    before = given.identity_parts()
    (given.folder / "requirements.lock").write_text("colours==1.5 --hash=sha256:" + "0" * 64 + "\n")
    assert load_recipe(given.folder).identity_parts() != before


def test_the_command_writes_it(tmp_path: Path, wheels: Path) -> None:
    given = recipe(tmp_path, "{packages: [colours==1.5]}")
    script = "import bot.environments as e; e.WORKER_PACKAGES = (); from bot.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "lock", "network", "--recipes", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(given.folder / "requirements.lock")
    assert "colours==1.5 --hash=sha256:" in (given.folder / "requirements.lock").read_text()
