"""The bot itself as a wheel, made from what is installed: the same code runs elsewhere, published or not."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib import metadata
from pathlib import Path

import bot
from bot.card.environment import templates_folder

DISTRIBUTION = "hub-publishing-bot"
_TAG = "py3-none-any"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_wheel(folder: Path) -> Path:
    """Writes the wheel into a folder. The same code gives the same bytes.

    Returns:
        The file, called as wheels are.
    """
    name = f"{DISTRIBUTION.replace('-', '_')}-{bot.__version__}"
    package = Path(bot.__file__).parent
    files = {
        f"bot/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and "templates" not in path.relative_to(package).parts[:1]
    }
    templates = templates_folder()
    files |= {
        f"bot/templates/{path.relative_to(templates).as_posix()}": path.read_bytes()
        for path in sorted(templates.rglob("*"))
        if path.is_file()
    }
    files[f"{name}.dist-info/METADATA"] = _metadata().encode()
    files[f"{name}.dist-info/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: {DISTRIBUTION}\nRoot-Is-Purelib: true\nTag: {_TAG}\n".encode()
    )
    files[f"{name}.dist-info/entry_points.txt"] = b"[console_scripts]\nbot = bot.cli:main\n"
    record = f"{name}.dist-info/RECORD"
    lines = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    wheel = folder / f"{name}-{_TAG}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(zipfile.ZipInfo(path, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return wheel


def _metadata() -> str:
    """What is installed says which packages and extras the bot needs."""
    return metadata.distribution(DISTRIBUTION).read_text("METADATA") or ""


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
