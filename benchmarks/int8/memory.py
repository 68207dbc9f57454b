"""How much memory calibrating takes, by the number of pictures: it should not depend on it.

    python benchmarks/int8/memory.py

Calibrates YOLO11n with random weights on 640 × 640 pictures, each number of them in a process of its own, and notes the
largest anonymous memory that the process had. The pictures themselves are a mapped file, which the kernel may drop.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
RESULTS = ROOT / "benchmarks" / "results" / "int8_memory.json"


def anonymous_mb() -> float:
    """Anonymous memory of this process now."""
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def child(model: Path, images: Path, method: str) -> None:
    """Calibrates, and prints the largest anonymous memory in MB and the seconds."""
    from bot.graph.int8.calibrate import How, calibrate
    from bot.graph.int8.prepare import prepare
    from bot.graph.model_file import read_model

    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], anonymous_mb())

    watcher = threading.Thread(target=watch)
    with tempfile.TemporaryDirectory() as scratch:
        proto = prepare(read_model(model), Path(scratch))
        watcher.start()
        started = time.monotonic()
        how = How(method)  # type: ignore[arg-type]
        found = calibrate(proto, {"images": images}, how, Path(scratch), lambda *_: None, model.name)
    seconds = time.monotonic() - started
    done.set()
    watcher.join()
    print(json.dumps({"samples": found.samples, "peak_mb": round(peak[0]), "seconds": round(seconds, 1)}))


def main() -> int:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[3, 30, 300])
    parser.add_argument("--method", default="minmax", choices=["minmax", "percentile", "entropy"])
    parser.add_argument("--size", default="n", choices=["n", "mini"])
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child, options.method)
        return 0

    import make_random_yolo

    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        model, images = Path(scratch) / "yolo.onnx", Path(scratch) / "images.npy"
        make_random_yolo.write(model, options.size)
        for count in options.counts:
            array = np.lib.format.open_memmap(images, "w+", np.float32, (count, 3, 640, 640))
            drawn = [make_random_yolo.drawn(640, seed)[0] for seed in range(3)]
            for row in range(count):
                array[row] = drawn[row % len(drawn)] * (0.5 + row / count / 2)
            del array
            command = [sys.executable, __file__, "--child", str(model), str(images), "--method", options.method]
            rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            print(rows[-1], flush=True)
    result = {"model": f"YOLO11 {options.size}, random weights, 640 × 640", "method": options.method, "rows": rows}
    RESULTS.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
