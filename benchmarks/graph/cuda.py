"""The files of `peers.py` on an NVIDIA GPU: how long they take there, and how much of the device they use.

    python benchmarks/graph/cuda.py FOLDER [--models faceage-full] [--batches 1 5 10]

FOLDER is that of `peers.py`; what is not there is made first. Inputs and outputs stay on the device (IO binding). Every
file runs at every batch size with CUDA graphs off and on (`enable_cuda_graph`, one captured graph per batch size by
`gpu_graph_id`), the files of a model taking turns. The device's peaks are not read from a table: a chain of large
float16 products gives its operations a second, and a copy of half a gigabyte its bytes a second, both with ONNX
Runtime's own kernels in the same process. From them and the time follow two shares, of which the larger one says what a
file waits for: the work of the source's products over the first, and the bytes of weights, inputs and outputs over the
second. What the files answer on the GPU is compared with what the source answers on the CPU.

Without a GPU it says so and exits with 4. `--provider cpu` goes the same way on the CPU, to try the script; its figures
are nothing to keep.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import onnx
import onnxruntime
from device import Bound, Device, NoDeviceError, in_turns, peaks, require_cuda
from judging import distance, first_line, reference, runs_of
from peers import MODELS, measured
from work import least_bytes, operations

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PEERS_BY_DEFAULT = (
    *("two-step", "onnxconverter-common", "ort-float16", "ort-optimizer"),
    *("bot-float16-auto", "bot-rebuild", "bot-rebuild-calibrated", "bot-rebuild-twin", "bot-rebuild-packed"),
    *("bot-rebuild-summed", "bot-rebuild-summed-twin"),
)


def made_by(peer: str, place: Path, folder: Path) -> Path | str:
    """The file that a tool makes of a model, kept from the last time; or why there is none."""
    output = folder / "cuda" / place.name / peer / "model.onnx"
    if output.exists():
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    scratch = output.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, str(HERE / "peer_tools.py"), peer, str(place / "source.onnx"), str(output), str(scratch)]
    done = measured(command, 3600)
    shutil.rmtree(scratch)
    if done["status"] == 0 and output.exists():
        return output
    lines = done["output"].strip().splitlines()
    return lines[-1] if lines else f"exit status {done['status']}"


def batches_of(place: Path, wanted: list[int]) -> dict[int, dict[str, np.ndarray]]:
    """The inputs of one run per batch size, of those that the model allows."""
    found = {size: place / f"batch_{size}.npz" for size in wanted}
    return {size: dict(np.load(path)) for size, path in found.items() if path.exists()}


def accuracy(session: Any, device: Device, place: Path, about: dict[str, Any]) -> dict[str, Any]:
    """How far the device's answers are from those of the source on the CPU."""
    found = []
    for number, run in enumerate(runs_of(place / "samples.npz")):
        bound = device.bind(session, run, 1000 + number)
        bound.run()
        found.append(bound.answers())
    return distance(reference(place, 0), found, about.get("decode"))


def _answers(session: Any, device: Device, place: Path, about: dict[str, Any]) -> dict[str, Any]:
    try:
        return accuracy(session, device, place, about)
    except Exception as error:  # the runtime has no common class for its errors
        return {"reason": first_line(error)}


def model_on_device(place: Path, folder: Path, given: argparse.Namespace, limits: dict[str, float]) -> dict[str, Any]:
    """All files of one model, in turns."""
    about = json.loads((place / "about.json").read_text("utf-8"))
    feeds = batches_of(place, given.batches)
    source = onnx.load(place / "source.onnx")
    work = {}
    for batch in feeds:
        try:
            work[batch] = operations(source, batch)
        except ValueError as error:
            print(f"{place.name}: {error}")
    del source
    files: dict[str, Path | str] = {"source": place / "source.onnx"}
    files |= {peer: made_by(peer, place, folder) for peer in given.peers}
    rows: dict[str, Any] = {name: {"reason": path} for name, path in files.items() if isinstance(path, str)}
    for graphs in (False, True):
        device = Device(given.provider, graphs=graphs, strict=given.strict)
        sessions: dict[str, Any] = {}
        for name, path in files.items():
            if isinstance(path, Path):
                _open(device, name, path, sessions, rows, graphs)
        if not graphs:
            for name, session in sessions.items():
                rows[name]["accuracy"] = _answers(session, device, place, about)
        for number, (batch, fed) in enumerate(feeds.items(), start=1):
            _time_batch(device, sessions, files, fed, (number, batch), (rows, work, limits, given.seconds))
    return {"about": about["what"], "operations": {str(batch): count for batch, count in work.items()}, "files": rows}


def _open(device: Device, name: str, path: Path, sessions: dict[str, Any], rows: dict[str, Any], graphs: bool) -> None:
    rows.setdefault(name, {"batches": {}})
    try:
        sessions[name] = device.open(path)
    except Exception as error:  # the runtime has no common class for its errors
        rows[name]["with_graphs" if graphs else "reason"] = first_line(error)


def _time_batch(
    device: Device,
    sessions: dict[str, Any],
    files: dict[str, Path | str],
    fed: dict[str, np.ndarray],
    which: tuple[int, int],
    into: tuple[dict[str, Any], dict[int, int], dict[str, float], float],
) -> None:
    """One batch size, all files in turns; a file that fails is left out and says why."""
    number, batch = which
    rows, work, limits, seconds = into
    mode = "graphs" if device.graphs else "plain"
    bound: dict[str, Bound] = {}
    for name, session in sessions.items():
        try:
            bound[name] = device.bind(session, fed, number)
            bound[name].run()
        except Exception as error:  # the runtime has no common class for its errors
            rows[name]["batches"].setdefault(str(batch), {})[mode] = {"reason": first_line(error)}
            bound.pop(name, None)
    times = in_turns([each.run for each in bound.values()], seconds * len(bound)) if bound else []
    for (name, each), milliseconds in zip(bound.items(), times, strict=True):
        path = files[name]
        assert isinstance(path, Path)
        moved = least_bytes(path, fed, each.answers())
        rows[name]["batches"].setdefault(str(batch), {})[mode] = shares(milliseconds, work.get(batch), moved, limits)


def shares(milliseconds: float, work: int | None, moved: int, limits: dict[str, float]) -> dict[str, float]:
    """The time, and the shares of the device's peaks that it amounts to."""
    seconds = milliseconds / 1e3
    found = {"ms": milliseconds, "share_of_bandwidth": moved / seconds / limits["bytes_per_s"]}
    if work is not None:
        found["share_of_fp16_peak"] = work / seconds / limits["flops_per_s"]
    return found


def device_report(provider: str) -> dict[str, str]:
    """What it ran on: name, driver and clocks as the driver tells them."""
    if provider == "cpu":
        return {"device": "the CPU: nothing to keep"}
    query = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit"
    try:
        told = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "--id=0"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {"device": "unknown"}
    return dict(zip(query.split(","), (part.strip() for part in told.strip().split(",")), strict=False))


def table(results: dict[str, Any]) -> str:
    """The figures as Markdown."""
    limits = results["peaks"]
    lines = [
        f"Peaks: {limits['flops_per_s'] / 1e12:.1f} TFLOP/s in float16, {limits['bytes_per_s'] / 1e9:.0f} GB/s.",
        "",
    ]
    for model, found in results["models"].items():
        lines += [f"## {model}", "", "| file | batch | ms | ms, CUDA graph | of fp16 peak | of bandwidth | accuracy |"]
        lines.append("|---|---|---|---|---|---|---|")
        for name, row in found["files"].items():
            if "batches" not in row or not row["batches"]:
                lines.append(f"| {name} | | {row.get('reason', '')[:80]} | | | | |")
                continue
            lines += [_line(name, batch, modes, row) for batch, modes in row["batches"].items()]
        lines.append("")
    return "\n".join(lines)


def _line(name: str, batch: str, modes: dict[str, Any], row: dict[str, Any]) -> str:
    timed = [modes.get(mode, {}).get("ms") for mode in ("plain", "graphs")]
    best = min((each for each in modes.values() if "ms" in each), key=lambda each: each["ms"], default={})
    parts = [f"{each:.2f}" if each else "–" for each in timed]
    parts += [f"{best[key]:.1%}" if key in best else "–" for key in ("share_of_fp16_peak", "share_of_bandwidth")]
    found = row.get("accuracy", {})
    if "finite" not in found:
        said = "–"
    elif not found["finite"]:
        said = "**NaN or infinite**"
    else:
        said = f"{found['years_mean']:.4f} years" if "years_mean" in found else f"{found['relative']:.1e}"
    return f"| {name} | {batch} | {' | '.join(parts)} | {said} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of peers.py")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["faceage-full"])
    parser.add_argument("--peers", nargs="*", default=list(PEERS_BY_DEFAULT), help="tools of peers.py")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 5, 10])
    parser.add_argument("--seconds", type=float, default=3.0, help="per file and batch size (default: 3)")
    parser.add_argument(
        "--strict", action="store_true", help="enable_skip_layer_norm_strict_mode, for runtimes to 1.26"
    )
    parser.add_argument("--provider", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--peak-size", type=int, default=8192, help="of the square matrices (default: 8192)")
    parser.add_argument("--peak-numbers", type=int, default=1 << 28, help="in the copied vector (default: 2^28)")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/graph_cuda.json; on the CPU none")
    given = parser.parse_args()
    if given.provider == "cuda":
        try:
            require_cuda()
        except NoDeviceError as error:
            print(f"no figures: {error}", file=sys.stderr)
            return 4
    print(report(given))
    return 0


def report(given: argparse.Namespace) -> str:
    """Runs everything, writes the results, and returns the table."""
    from material import prepare

    folder = given.folder.resolve()
    scratch = folder / "cuda"
    scratch.mkdir(parents=True, exist_ok=True)
    device = Device(given.provider, strict=given.strict)
    limits = peaks(device, scratch, given.peak_size, given.peak_numbers, given.seconds)
    results: dict[str, Any] = {
        "command": "python benchmarks/graph/cuda.py FOLDER",
        "device": device_report(given.provider),
        "onnxruntime": onnxruntime.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "strict": given.strict,
        "peaks": limits,
        "models": {},
    }
    out = given.out or (ROOT / "benchmarks" / "results" / "graph_cuda.json" if given.provider == "cuda" else None)
    for model in given.models:
        results["models"][model] = model_on_device(prepare(model, folder), folder, given, limits)
        if out is not None:
            out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", "utf-8")
    return table(results)


if __name__ == "__main__":
    sys.exit(main())
