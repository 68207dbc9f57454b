"""This project's graph steps beside the tools that people use, on the same models, in one run.

    python benchmarks/graph/peers.py FOLDER [--models faceage-mini yunet] [--peers bot-float16 onnxslim]

Models and samples are laid out in FOLDER first (see `material.py`); the full-size network needs 10 GB there, and some
of the tools 13 GB of memory. Every conversion and every judgement is a process of its own, with a time limit; wall time
and peak memory of a conversion are the operating system's figures for that process, imports included. NVIDIA ModelOpt
gets an environment of its own in FOLDER, since it needs other versions of the same packages.

Results go into benchmarks/results/graph_peers.json after every file, and the table into docs/graph-benchmarks.md.
What is in the results already and is not asked for stays as it is; `--table` only writes the table anew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from peer_table import MODELS, write_table
from peer_tools import PEERS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

MODELOPT = "nvidia-modelopt==0.47.0"
MODELOPT_NEEDS = (
    *("torch", "onnx~=1.21.0", "onnxruntime~=1.24.2", "onnxconverter-common~=1.16.0", "onnxslim>=0.1.76"),
    *("onnx-graphsurgeon>=0.6.1", "onnxscript", "polygraphy>=0.53.4", "lief", "ml_dtypes", "ninja", "numpy"),
    *("nvidia-ml-py", "packaging", "setuptools>=80", "tqdm", "PyYAML>=6.0", "omegaconf>=2.3.0", "pulp<4.0"),
    *("pydantic>=2", "regex", "rich", "safetensors", "scipy"),
)
"""What its extra `onnx` asks for on a machine without a GPU: onnxruntime in place of onnxruntime-gpu, and no cupy."""


_LAUNCH = """
import os, sys
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, code, used = os.wait4(pid, 0)
os.write(int(sys.argv[1]), f"{os.waitstatus_to_exitcode(code)} {used.ru_maxrss}".encode())
"""
"""Starts a program and says how it ended and how much memory it took. Between this process and the program there has to
be a small one: Linux counts the memory of the process that starts a program as the program's own."""


def measured(command: Sequence[str], limit_s: float, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Runs a program and takes its time and memory from outside.

    Returns:
        `status`: 0, or what it exited with, or `time-out`; `wall_s`; `peak_rss_mb` of the process and what it waited
        for, None after a time-out; `output`, what it printed.
    """
    read, write = os.pipe()
    heard, told = os.pipe()
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LAUNCH, str(told), *command],
        stdout=write,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        pass_fds=(told,),
        start_new_session=True,
    )
    os.close(write)
    os.close(told)
    os.set_blocking(read, False)
    os.set_blocking(heard, False)
    printed = bytearray()
    timed_out = False
    while process.poll() is None:
        with contextlib.suppress(BlockingIOError):
            printed += os.read(read, 1 << 16)
        if time.monotonic() - started > limit_s and not timed_out:
            timed_out = True
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.02)
    wall = time.monotonic() - started
    with contextlib.suppress(BlockingIOError):
        while block := os.read(read, 1 << 16):
            printed += block
    answer = os.read(heard, 100).split() if not timed_out else []
    os.close(read)
    os.close(heard)
    return {
        "status": int(answer[0]) if answer else "time-out" if timed_out else process.returncode,
        "wall_s": round(wall, 2),
        "peak_rss_mb": int(answer[1]) // 1024 if answer else None,
        "output": printed.decode("utf-8", errors="replace"),
    }


def modelopt_python(folder: Path) -> tuple[Path | None, str]:
    """The interpreter of ModelOpt's environment, made if it is not there; or None and why not."""
    place = folder / "modelopt"
    python = place / "bin" / "python"
    if (place / "ready").exists():
        return python, ""
    shutil.rmtree(place, ignore_errors=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [*pip, "--no-deps", MODELOPT],
        [*pip, *MODELOPT_NEEDS],
        [str(python), "-c", "import modelopt.onnx.autocast"],
    ):
        done = measured(command, 1800)
        if done["status"] != 0:
            lines = [line for line in done["output"].splitlines() if line.strip()]
            return None, f"its environment cannot be made here: {lines[-1][:300] if lines else done['status']}"
    (place / "ready").touch()
    return python, ""


def command_for(peer: str, place: Path, output: Path, scratch: Path, python: Path | None) -> list[str]:
    """The program that makes one file."""
    if peer != "modelopt":
        source = str(place / "source.onnx")
        return [sys.executable, str(HERE / "peer_tools.py"), peer, source, str(output), str(scratch)]
    return [
        *(str(python), "-m", "modelopt.onnx.autocast", "--onnx_path", str(place / "source.onnx")),
        *("--output_path", str(output), "--low_precision_type", "fp16", "--keep_io_types"),
        *("--calibration_data", str(place / "batch_1.npz"), "--log_level", "ERROR"),
    ]


def convert_and_judge(peer: str, place: Path, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    python, missing = modelopt_python(folder) if peer == "modelopt" else (None, "")
    if missing:
        return {"made": False, "reason": missing}
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    made = scratch / "made"
    made.mkdir(parents=True)
    output = made / "model.onnx"
    # ModelOpt's result depends on the order of sets: without a fixed seed it is another one each time.
    done = measured(command_for(peer, place, output, scratch, python), given.timeout, {"PYTHONHASHSEED": "0"})
    row: dict[str, Any] = {"wall_s": done["wall_s"], "peak_rss_mb": done["peak_rss_mb"]}
    lines = [line.strip() for line in done["output"].splitlines() if line.strip()]
    if done["status"] == 3:
        return {"made": False, "not_for_this_model": lines[-1] if lines else ""}
    if done["status"] != 0 or not output.exists():
        return {
            **row,
            "made": False,
            "reason": _cleaned(lines[-1] if lines else f"exit status {done['status']}", given),
        }
    least = ["--least", str(given.least), "--seconds", str(given.seconds), "--threads", str(given.threads)]
    judged = measured([sys.executable, str(HERE / "judging.py"), str(place), str(output), *least], given.timeout)
    try:
        found = json.loads(judged["output"].splitlines()[-1])
    except (IndexError, ValueError):
        lines = judged["output"].splitlines()
        reason = f"could not be judged ({judged['status']}): {lines[-1] if lines else ''}"
        return {**row, "made": True, "reason": _cleaned(reason, given)}
    return {**row, "made": True, **json.loads(_cleaned(json.dumps(found), given))}


def _cleaned(text: str, given: argparse.Namespace) -> str:
    """Without the names of this machine's folders."""
    for folder, name in ((given.folder.resolve(), "FOLDER"), (ROOT, "."), (Path(sys.prefix), "PREFIX")):
        text = text.replace(str(folder), name)
    return text[:4000]


def machine(threads: int) -> dict[str, Any]:
    """What it ran on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {"processor": name, "cores": os.cpu_count(), "threads": threads, "system": platform.system()}


def versions() -> dict[str, str]:
    """Of the tools, and of what judges them."""
    names = ("onnx", "onnxruntime", "onnxconverter-common", "onnxslim", "onnxscript", "onnx-ir", "numpy")
    return {name: version(name) for name in names} | {"nvidia-modelopt": MODELOPT.partition("==")[2]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for models, environments and results on the way")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--timeout", type=float, default=1500.0, help="seconds for one process (default: 1500)")
    parser.add_argument("--seconds", type=float, default=5.0, help="for the clock, per batch size (default: 5)")
    parser.add_argument("--least", type=int, default=5, help="pairs of timed runs at least (default: 5)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "graph_peers.json")
    parser.add_argument("--markdown", type=Path, default=ROOT / "docs" / "graph-benchmarks.md")
    parser.add_argument("--table", action="store_true", help="only write the table, from results that are there")
    given = parser.parse_args()
    results = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {"models": {}}
    if not given.table:
        run(given, results)
    write_table(results, given.markdown)
    print(f"wrote {given.markdown}")
    return 0


def run(given: argparse.Namespace, results: dict[str, Any]) -> None:
    """Every model and every tool, the results written after each."""
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    given.folder.mkdir(parents=True, exist_ok=True)
    results |= {"command": "python benchmarks/graph/peers.py FOLDER", "machine": machine(given.threads)}
    results |= {"versions": versions(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    for model in given.models:
        place = _material(model, given.folder)
        rows = results["models"].setdefault(model, {})
        rows["about"] = json.loads((place / "about.json").read_text("utf-8"))["what"]
        rows["source"] = {"bytes": (place / "source.onnx").stat().st_size}
        for peer in given.peers:
            load = os.getloadavg()[0]
            row = convert_and_judge(peer, place, given.folder, given)
            rows.setdefault("peers", {})[peer] = {**row, "load_average_before": round(load, 1)}
            print(f"{model:14} {peer:22} {_summary(row)}", flush=True)
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", "utf-8")
    shutil.rmtree(given.folder / "scratch", ignore_errors=True)


def _material(model: str, folder: Path) -> Path:
    """Lays out a model in a process of its own: this one stays small, for a child's memory begins with its parent's."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; import material as m; "
    code += "m.prepare(sys.argv[2], Path(sys.argv[3]))"
    done = measured([sys.executable, "-c", code, str(HERE), model, str(folder.resolve())], 3600)
    if done["status"] != 0:
        raise SystemExit(f"{model} cannot be laid out:\n{done['output']}")
    return (folder / model).resolve()


def _summary(row: dict[str, Any]) -> str:
    if not row["made"]:
        return row.get("not_for_this_model") or f"fails: {row.get('reason', '')[:120]}"
    ratio = row.get("latency", {}).get("1", {}).get("ratio")
    return (
        f"{row['wall_s']} s, {row['peak_rss_mb']} MB, {row.get('nodes')} nodes, {row.get('casts')} casts, "
        f"CPU {row.get('cpu')}, emulated {row.get('emulated')}, ratio {ratio}"
    )[:400]


if __name__ == "__main__":
    sys.exit(main())
