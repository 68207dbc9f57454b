"""Runs a model over all samples and keeps its outputs."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from bot.errors import StepError
from bot.measure.arrays import RowWriter, npy_name, open_array
from bot.measure.providers import device_name, runtime_name
from bot.measure.samples.collect import Progress
from bot.measure.sessions import open_session, run_rows
from bot.records import Json


def run_model(
    model: Path, feeds: dict[str, Path], batch: int, provider: str, threads: int, out: Path, progress: Progress
) -> dict[str, Json]:
    """Runs a model and writes one array per output.

    Args:
        model: The file.
        feeds: Path of the .npy by input, one row per sample.
        batch: Samples per run.
        provider: The recipe's name of it.
        threads: For one operator; 0 leaves it to the runtime.
        out: An existing folder.
        progress: Told of every batch.

    Returns:
        `outputs` with file, dtype and shape by name; `runtime`, `device`, `provider`.

    Raises:
        StepError: The provider is not here, or the runtime cannot open or run the model, or an output's shape depends
            on the sample.
    """
    session = open_session(model, provider, threads)
    arrays = {name: open_array(path) for name, path in feeds.items()}
    total = max((len(array) for array in arrays.values()), default=0)
    writers: dict[str, RowWriter] = {}
    with ExitStack() as stack:
        for done, rows in run_rows(session, arrays, batch, model.name):
            for name, block in rows.items():
                if name not in writers:
                    writers[name] = stack.enter_context(
                        RowWriter(out / npy_name(_safe(name)), block.shape[1:], block.dtype)
                    )
                writers[name].append(block)
            progress(done, total, model.name)
    outputs: dict[str, Json] = {
        name: {"file": str(writer.path), "dtype": writer.dtype.name, "shape": list(writer.shape)}
        for name, writer in writers.items()
    }
    return {"outputs": outputs, "runtime": runtime_name(), "device": device_name(provider), "provider": provider}


def _safe(name: str) -> str:
    """An output's name as part of a file name. Names come from the model and are not to be trusted."""
    if not name or name.startswith(".") or "\0" in name or "\\" in name or len(name.encode()) > 200:
        raise StepError(f"the output {name!r} has a name that no file can have")
    return name
