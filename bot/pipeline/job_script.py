"""What runs inside a Job: install the bot that was sent along, build, and send back what it leaves.

This file is sent as text and run by itself, so it uses nothing of the bot, and of other packages only the Hub's
library, which it installs first. The token in its environment is good for one repository; the build does not get it.
"""

import os
import subprocess
import sys
from pathlib import Path


def run(*command: str, **variables: str) -> None:
    """Runs a command, with other variables besides, and ends with its exit code if it fails."""
    print("+", " ".join(command), flush=True)  # noqa: T201
    code = subprocess.run(command, env={**os.environ, **variables}).returncode
    if code:
        sys.exit(code)


def main() -> None:
    """Does all of it, in the Job's working folder."""
    repo, branch = os.environ["BOT_SCRATCH"], os.environ["BOT_BRANCH"]
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, os.environ["BOT_CLIENT"])

    import huggingface_hub

    huggingface_hub.snapshot_download(repo, revision=branch, allow_patterns="in/*", local_dir=".")
    (wheel,) = Path("in").glob("*.whl")
    run(*pip, f"{wheel.absolute()}[{os.environ['BOT_EXTRAS']}]")
    options = [option for each in os.environ["BOT_REQUIRE"].split() for option in ("--require", each)]
    build = (sys.executable, "-m", "bot", "build", os.environ["BOT_RECIPE"], "--recipes", "in/recipes", "--out", "out")
    run(*build, *options, HF_TOKEN="")
    api = huggingface_hub.HfApi()
    api.upload_folder(repo_id=repo, revision=branch, folder_path="out", path_in_repo="out", commit_message="Built")


if __name__ == "__main__":
    main()
