"""The wheel, away from the checkout: installed, pointed at a folder of one's own, and publishing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from tests.world import CARD, PICTURES, RECIPE, ROOT, TARGET, UPSTREAM, network, picture


def test_the_wheel_publishes_a_recipe_of_ones_own(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "bot/templates/card.md.j2" in names
    assert not [name for name in names if name.startswith(("tests/", "recipes/", "tools/"))]

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--quiet", str(wheel)]
    subprocess.run(install, check=True)
    # What the wheel depends on is lent by the environment of the tests; the bot itself is the installed one.
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")

    own = tmp_path / "own"
    (own / "recipes" / "network" / "licenses").mkdir(parents=True)
    (own / "recipes" / "network" / "licenses" / "LICENSE").write_text("Permission is granted to all.\n")
    (own / "recipes" / "network" / "card.md.j2").write_text(CARD)
    (own / "recipes" / "network" / "recipe.yaml").write_text(RECIPE.replace("OPEN", "pull-request"))
    (own / "model").mkdir()
    (own / "model" / "model.onnx").write_bytes(network())
    (own / "model" / "config.json").write_text("{}\n")
    (own / "model" / "README.md").write_text("---\nlicense: mit\n---\n")
    (own / "pictures" / "images").mkdir(parents=True)
    lines = []
    for index in range(8):
        (own / "pictures" / "images" / f"{index}.png").write_bytes(picture(index))
        lines.append(json.dumps({"file_name": f"images/{index}.png", "bbox": [2, 2, 40, 40]}))
    (own / "pictures" / "metadata.jsonl").write_text("\n".join(lines))

    home = tmp_path / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", "LANG": "C.UTF-8"}

    def bot(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(tmp_path / "venv" / "bin" / "bot"), *arguments]
        return subprocess.run(command, cwd=own, env=environment, capture_output=True, text=True, check=False)

    where = subprocess.run(
        [str(python), "-c", "import bot; print(bot.__file__)"], cwd=own, capture_output=True, text=True, check=True
    )
    assert str(tmp_path) in where.stdout
    hub = ("--hub-dir", str(own / "hub"))
    assert bot("list").returncode == 0
    for kind, repository, folder in (("model", UPSTREAM, "model"), ("dataset", PICTURES, "pictures")):
        seeded = bot("hub", "seed", repository, folder, "--type", kind, *hub)
        assert seeded.returncode == 0, seeded.stderr
    done = bot("publish", "network", "--hub", "local", *hub, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["publication"]["kind"] == "pull-request"
    again = bot("publish", "network", "--hub", "local", *hub, "--json")
    assert json.loads(again.stdout)["publication"]["kind"] == "nothing"
    verified = bot("verify", f"{TARGET}@refs/pr/1", "--hub", "local", *hub)
    assert verified.returncode == 0, verified.stderr
