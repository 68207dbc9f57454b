"""How long it takes to judge a full-size half-precision file, in how much memory, and what the judgement is.

    python tools/make_random_faceage.py --size full --out FOLDER
    python benchmarks/fp16_emulation/judge.py FOLDER

It converts the network twice, plainly and in two steps, and judges both in a process of their own each. The pictures
are noise, so the differences are no accuracy of anything: they only compare the CPU provider with the emulation.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

KEPT = ("LayerNormalization", "Softmax", "Add", "Mul")
FILES = {
    "plain": [("float16_common", {})],
    "two_step": [("float16_common", {"keep": KEPT}), ("drop_cast_round_trips", {})],
}


def main() -> None:
    """Convert, judge, compare, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the fp32 model lies; everything else is written there too")
    parser.add_argument("--count", type=int, default=24, help="pictures (default: 24)")
    parser.add_argument("--batch", type=int, default=8, help="pictures in a run (default: 8)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "fp16_emulation.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_judge(options)))
        return
    _pictures(options)
    found = {}
    for name, steps in FILES.items():
        _convert(options.folder, name, steps)
        found[name] = _in_a_process(options, name)
    found["two_step"]["difference"] = _differences(options)
    result = {
        "what": "judging full-size fp16 files of the random-weight FaceAge network on noise",
        "command": f"python benchmarks/fp16_emulation/judge.py FOLDER --count {options.count} --batch {options.batch}",
        "machine": _machine(options.threads),
        "versions": {name: version(name) for name in ("onnx", "onnxruntime", "numpy", "onnxconverter-common")},
        "pictures": options.count,
        "files": found,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(json.dumps(result, indent=2))


def _machine(threads: int) -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    load = Path("/proc/loadavg").read_text().split()[0] if Path("/proc/loadavg").exists() else ""
    return {"processor": name, "threads": threads, "system": platform.system(), "load_average_before": load}


def _pictures(options: argparse.Namespace) -> None:
    import numpy as np

    pictures = np.random.default_rng(0).standard_normal((options.count, 3, 224, 224)).astype(np.float32)
    np.save(options.folder / "pictures.npy", pictures)


def _convert(folder: Path, name: str, steps: list[tuple[str, dict[str, Any]]]) -> None:
    from bot.graph.steps import StepContext, load_step

    target = folder / f"{name}.onnx"
    if target.exists():
        return
    path = folder / "faceage_dino_fp32.onnx"
    for index, (step_name, parameters) in enumerate(steps):
        step = load_step(step_name, None)
        made = target if index == len(steps) - 1 else folder / f"{name}.{index}.onnx"
        step.function(path, made, step.parameters.model_validate(parameters), StepContext(folder))
        path = made


def _in_a_process(options: argparse.Namespace, name: str) -> dict[str, Any]:
    arguments = [str(options.folder), "--count", str(options.count), "--batch", str(options.batch), "--one", name]
    answer = subprocess.run(
        [sys.executable, __file__, *arguments, "--threads", str(options.threads)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def _judge(options: argparse.Namespace) -> dict[str, Any]:
    from bot.measure.fp16_tasks import emulated_run

    path = options.folder / f"{options.one}.onnx"
    started = time.monotonic()
    processor = time.process_time()
    answer = emulated_run(
        {
            "model": str(path),
            "feeds": {"face": str(options.folder / "pictures.npy")},
            "batch": options.batch,
            "threads": options.threads,
            "out": str(options.folder / f"{options.one}.out"),
            "scratch": str(options.folder / "scratch"),
        },
        lambda *_: None,
    )
    return {
        "bytes": path.stat().st_size,
        "wall_s": round(time.monotonic() - started, 1),
        "processor_s": round(time.process_time() - processor, 1),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "ok": answer["ok"],
        "reason": answer["reason"],
        "overflowed": answer["overflowed"],
    }


def _differences(options: argparse.Namespace) -> dict[str, Any]:
    """The largest difference from fp32 in the age logits: as the CPU provider sees it, and in emulation."""
    import numpy as np

    right = _run(options, options.folder / "faceage_dino_fp32.onnx")
    on_cpu = _run(options, options.folder / "two_step.onnx")
    emulated = np.load(options.folder / "two_step.out" / "age_logits.npy")
    return {
        "output": "age_logits",
        "largest_magnitude": float(np.abs(right).max()),
        "cpu_provider": float(np.abs(on_cpu - right).max()),
        "emulation": float(np.abs(emulated - right).max()),
    }


def _run(options: argparse.Namespace, path: Path) -> Any:
    import numpy as np
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    pictures = np.load(options.folder / "pictures.npy", mmap_mode="r")
    rows = [
        session.run(["age_logits"], {"face": np.ascontiguousarray(pictures[start : start + options.batch])})[0]
        for start in range(0, len(pictures), options.batch)
    ]
    return np.concatenate(rows)


if __name__ == "__main__":
    main()
