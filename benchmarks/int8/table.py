"""What eight bits do to detectors and encoders: one table per network.

    python benchmarks/int8/table.py                      # YuNet, YOLO11n with random weights, MiniLM, DINOv2 ViT-S
    python benchmarks/int8/table.py --only yunet nudenet

Each network is quantised as a whole, with its head in float, and with what `keep: auto` finds, by the steps that a
recipe uses, on calibration samples. It is judged on other samples: detections kept, mean average precision against the
float network, outputs that died, bytes, and the time beside the float network's, the two taking turns in one process.
The networks come out of published packages, pinned by their sha256, when the benchmark runs.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from subjects import DEFAULT, ROOT, SUBJECTS, Answers, Subject

from bot.graph import tasks
from bot.judging import Judge, JudgeArguments
from bot.measure.accuracy import Context, compare, pair_outputs
from bot.measure.batch_invariance import check_batch_invariance
from bot.measure.dead_outputs import check_dead_outputs
from bot.measure.decode import parse_decision
from bot.measure.detection.labels import read_truths
from bot.measure.latency import Timed, measure_latency
from bot.measure.providers import device_name, runtime_name
from bot.measure.sessions import open_session, run_rows

RESULTS = ROOT / "benchmarks" / "results" / "int8.json"
SUBJECT = "faces"
"""What every decision is called here."""


class Reading(Judge):
    """Judges what is compared of the outputs, not the outputs themselves."""

    subject: Subject

    def _answers(self, model: Path, rows: list[int]) -> Answers:
        return self.subject.reading(super()._answers(model, rows))


def answers_of(subject: Subject, model: Path) -> Answers:
    """A network's answers to all judged samples, as far as they are compared."""
    session = open_session(model, "cpu", 0)
    arrays = {name: np.load(path, mmap_mode="r") for name, path in subject.judged.items()}
    needed = {each.name for each in session.get_inputs()}
    parts: dict[str, list[np.ndarray]] = {}
    for _, rows in run_rows(session, {name: array for name, array in arrays.items() if name in needed}, 8):
        for name, values in rows.items():
            parts.setdefault(name, []).append(values)
    return subject.reading({name: np.concatenate(values) for name, values in parts.items()})


def quantize(subject: Subject, step: str, parameters: dict[str, Any], output: Path, scratch: Path) -> dict[str, Any]:
    """Runs one step; `auto` is judged by the subject's gates."""
    count = len(np.load(next(iter(subject.calibration.values())), mmap_mode="r"))
    given = JudgeArguments(
        reference=str(subject.model),
        plans={SUBJECT: subject.plan},
        gates=subject.gates,
        samples=tuple(str(row) for row in range(count)),
        size=subject.size,
    )
    judge = Reading(given, subject.calibration)
    judge.subject = subject
    arguments = {
        "step": step,
        "source": str(subject.model),
        "output": str(output),
        "parameters": parameters,
        "scratch": str(scratch),
        "calibration": {name: str(path) for name, path in subject.calibration.items()},
    }
    answer: Any = tasks.step(arguments, lambda *_: None, judge.evaluate)
    return dict(answer["report"])


def judge(subject: Subject, model: Path, expected: Answers, seconds: float) -> dict[str, Any]:
    """All figures of one file."""
    answers = answers_of(subject, model)
    pairs = pair_outputs(expected, answers)
    plans = {SUBJECT: parse_decision(SUBJECT, subject.plan)}
    count = len(next(iter(expected.values())))
    truths = read_truths(subject.objects) if subject.objects is not None else None
    context = Context(tuple(str(row) for row in range(count)), {"artifact": "candidate"}, subject.size, truths)
    figures = {each.metric: each.value for each in compare(pairs, plans, context) if each.subject == SUBJECT}
    dead = check_dead_outputs(pairs)
    row: dict[str, Any] = {
        "bytes": model.stat().st_size,
        **figures,
        "dead": dead.status == "failed",
        "why": dead.reason,
    }
    sessions = [open_session(path) for path in (subject.model, model)]
    same = [{each.name for each in session.get_inputs()} for session in sessions]
    if same[0] == same[1]:
        arrays = {name: np.load(path, mmap_mode="r") for name, path in subject.judged.items() if name in same[0]}
        row["batch_invariance"] = check_batch_invariance(*sessions, arrays).status
        timed = Timed(model, subject.model, "candidate", "source", "cpu", 0, seconds, 40, 3, "")
        for each in measure_latency(timed, {name: subject.judged[name] for name in same[0]}, (1,), lambda *_: None):
            row["times as fast" if each.subject == "speedup" else "ms"] = each.value
    return row


def table_of(
    subject: Subject, folder: Path, seconds: float, only: list[str] | None, before: dict[str, Any]
) -> dict[str, Any]:
    """One network's rows; where only some are asked for, the others stay as they were."""
    expected = answers_of(subject, subject.model)
    rows: dict[str, Any] = {"float": judge(subject, subject.model, expected, seconds)}
    wanted = [(name, "quantize_static", parameters) for name, parameters in subject.variants.items()]
    if only is not None:
        wanted = [each for each in wanted if each[0] in only]
    if subject.dynamic and (only is None or "dynamic" in only):
        wanted.append(("dynamic, MatMul and Gemm", "quantize_dynamic", {}))
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    for name, step, parameters in wanted:
        started = time.monotonic()
        output = folder / "candidate.onnx"
        report = quantize(subject, step, parameters, output, scratch)
        made = time.monotonic() - started
        rows[name] = {**judge(subject, output, expected, seconds), "seconds": round(made, 1), "parameters": parameters}
        rows[name] |= {
            key: report[key]
            for key in ("nodes_quantized", "nodes_kept", "kept_because", "search", "cost")
            if key in report
        }
        say(subject.name, name, rows[name])
    for name, path in subject.others.items():
        rows[name] = judge(subject, path, expected, seconds)
        say(subject.name, name, rows[name])
    order = ["float", *subject.variants, "dynamic, MatMul and Gemm", *subject.others]
    rows = {name: rows[name] if name in rows else before[name] for name in order if name in rows or name in before}
    return {"rows": rows, "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def say(subject: str, name: str, row: dict[str, Any]) -> None:
    """One row, for people who watch."""
    shown = {key: row[key] for key in row if isinstance(row[key], int | float | bool | str) and key != "why"}
    cells = ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in shown.items()
    )
    print(f"{subject} | {name}: {cells}", flush=True)


def markdown(results: dict[str, Any]) -> str:
    """The tables of docs/int8.md."""
    lines = []
    for name, table in results["subjects"].items():
        rows = table["rows"]
        detector = "found" in rows["float"]
        if detector:
            head = "kept | lost | new | mAP | overlap | largest score change | dead outputs"
        else:
            head = "mean cosine | smallest cosine | order | same nearest | batch invariance"
        lines += [f"**{name}**", "", f"| | bytes | {head} | times as fast |", "|---" * (head.count("|") + 4) + "|"]
        for label, row in rows.items():
            cells = [label, f"{row['bytes']:,}"]
            if detector:
                found = int(row["found"])
                cells += [f"{found - int(row['lost'])} of {found}", str(int(row["lost"])), str(int(row["new"]))]
                cells += [
                    f"{row[key]:.3f}" if key in row else "–" for key in ("map", "mean_overlap", "max_score_drift")
                ]
                cells.append("yes" if row["dead"] else "none")
            else:
                cells += [f"{row[key]:.4f}" for key in ("mean_cosine", "min_cosine", "ranking", "nearest")]
                cells.append(row.get("batch_invariance", "–"))
            cells.append(f"{row['times as fast']:.2f}" if "times as fast" in row else "–")
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark, print the tables and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(SUBJECTS), default=DEFAULT, metavar="NETWORK")
    parser.add_argument("--variants", nargs="+", metavar="ROW", help="only these rows, beside the float network's")
    parser.add_argument("--seconds", type=float, default=8.0, help="of timing for each file")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "hub-publishing-bot" / "packages")
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: %(default)s")
    options = parser.parse_args()
    before: dict[str, Any] = json.loads(options.out.read_text()) if options.out.is_file() else {"subjects": {}}
    for key in options.only:
        with tempfile.TemporaryDirectory() as scratch:
            subject = SUBJECTS[key](Path(scratch), options.cache)
            there = before["subjects"].get(subject.name, {}).get("rows", {})
            made = table_of(subject, Path(scratch), options.seconds, options.variants, there)
            before["subjects"][subject.name] = made
        before |= {"device": device_name("cpu"), "runtime": runtime_name()}
        options.out.write_text(json.dumps(before, indent=1, ensure_ascii=False) + "\n")
    print(markdown(before))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
