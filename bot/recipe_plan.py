"""What a recipe.yaml may say: one frozen model per part of it, and the JSON Schema that editors check it with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)


def _number(value: Any) -> Any:
    """Lets a number be written as the fraction that it is: `1/255`."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9.]+\s*/\s*[0-9.]+", value):
        above, below = value.split("/")
        if float(below):
            return float(Fraction(above.strip()) / Fraction(below.strip()))
    return value


def _repository(value: str) -> str:
    part = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
    if not re.fullmatch(f"{part}/{part}", value) or ".." in value or "--" in value or value.endswith(".git"):
        raise ValueError("should be a repository, written owner/name")
    return value


def _relative_path(value: str) -> str:
    segments = value.split("/")
    if not value or value.startswith("/") or "\\" in value or any(part in {"", ".", "..", ".git"} for part in segments):
        raise ValueError("should be a relative path with forward slashes, without empty parts, . or ..")
    return value


def _duration(value: Any) -> Any:
    """`90s`, `15m`, `6h` or `2d`, as seconds."""
    match = re.fullmatch(r"(\d+)\s*([smhd])", str(value))
    if not match:
        raise ValueError("should be a duration such as 90s, 15m, 6h or 2d")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _frozen(value: Any) -> Any:
    """Whether a file is frozen; a sha256 says that it lies in the target already."""
    if isinstance(value, bool) or (isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)):
        return value
    raise ValueError(
        "should be true, false, or the sha256 of a file that lies in the target: 64 lower-case hexadecimal digits"
    )


OnChange = Literal["new_name", "replace"]
Number = Annotated[float, BeforeValidator(_number)]
Frozen = Annotated[
    bool | str,
    BeforeValidator(_frozen),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^[0-9a-f]{64}$"}]}),
]
RepositoryId = Annotated[str, AfterValidator(_repository)]
RelativePath = Annotated[str, AfterValidator(_relative_path)]
Key = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]


class Plan(BaseModel):
    """Base of all parts of a recipe: frozen, and a misspelt key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class Upstream(Plan):
    """Where the model comes from."""

    repo: RepositoryId | None = Field(None, description="The model repository on the Hub, owner/name.")
    url: str | None = Field(None, description="An https address, for a source that is not on the Hub; needs sha256.")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="Of the file at url.")
    follow: str = Field("main", description="The branch or tag whose newest commit is read.")
    cooldown: Annotated[int, BeforeValidator(_duration)] = Field(
        0, description="How long an upstream commit must have settled before it is acted on: 90s, 15m, 6h, 2d."
    )
    files: dict[Key, RelativePath] = Field(description="The files to read, under names that the recipe uses for them.")
    copies: tuple[RelativePath, ...] = Field((), description="Files carried along under source/, never run.")

    @model_validator(mode="after")
    def _one_origin(self) -> Upstream:
        if (self.repo is None) == (self.url is None):
            raise ValueError("should name exactly one of repo and url")
        if (self.url is None) != (self.sha256 is None):
            raise ValueError("url and sha256 belong together")
        if self.url is not None and (len(self.files) != 1 or self.copies):
            raise ValueError("a source with a url is one file: files takes one entry and copies none")
        if not self.files:
            raise ValueError("files should name at least one file")
        return self


class Requires(Plan):
    """The environment that a torch module is built and exported in."""

    python: str = Field("", description="Which versions of Python: >=3.12, or ==3.11.* for any 3.11.")
    packages: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_]+$")], ...] = Field(
        (), description="NAME==VERSION each; requirements.lock beside the recipe has all of them with their hashes."
    )


class Target(Plan):
    """Where the release goes."""

    repo: RepositoryId = Field(description="The model repository on the Hub, owner/name.")
    open: Literal["pull-request", "commit"] = Field("pull-request", description="How a release arrives there.")
    runtime: str = Field(
        "onnxruntime>=1.22",
        pattern=r"^onnxruntime>=\d+\.\d+(\.\d+)?$",
        description="The oldest ONNX Runtime that the files must open in.",
    )


class AlsoLicense(Plan):
    """A licence that applies besides the main one, such as a backbone's."""

    name: str = Field(description="Its full name.")
    file: RelativePath = Field(description="Its text, in the recipe's licenses folder and in the target repository.")
    notice: str = Field("", description="A sentence that it wants shown, such as: Built with DINOv3.")


class License(Plan):
    """The licence of the release."""

    id: str = Field(
        pattern=r"^[a-z0-9][a-z0-9.+-]*$", description="The Hub's id of it: apache-2.0, mit, cc0-1.0, other."
    )
    name: str | None = Field(None, description="Its name, where id is other.")
    link: str | None = Field(None, description="Its address, where id is other.")
    file: RelativePath = Field("LICENSE", description="Its text, in the recipe's licenses folder and in the target.")
    also: tuple[AlsoLicense, ...] = ()
    upstream: str | None = Field(None, description="The id that the upstream card declares, where it is another one.")

    @model_validator(mode="after")
    def _named(self) -> License:
        if self.id == "other" and not self.name:
            raise ValueError("id: other needs the licence's name")
        return self


class Card(Plan):
    """What the card's front matter declares."""

    title: str | None = Field(None, description="Heading of the card; the target's name if left out.")
    summary: str = Field("", description="A sentence that says what the model does.")
    pipeline_tag: str | None = None
    tags: tuple[str, ...] = ()
    language: tuple[str, ...] = ()
    library_name: str = "onnx"
    base_model_relation: Literal["adapter", "merge", "quantized", "finetune"] | None = Field(
        None, description="Left out for a plain conversion: the Hub has no word for one."
    )
    datasets: tuple[RepositoryId, ...] = Field((), description="Data sets on the Hub that the source was trained on.")
    reported: tuple[str, ...] = Field(
        (), description="Sentences of the upstream card, verbatim; the card quotes them as the source's own claims."
    )


class StepPlan(Plan):
    """A step of a build, by name, with its parameters."""

    name: str
    parameters: dict[str, JsonValue] = {}


def _step(value: Any) -> Any:
    """A step is written as its name, or as a mapping from its name to its parameters."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, parameters),) = value.items()
        if isinstance(name, str) and (parameters is None or isinstance(parameters, Mapping)):
            return {"name": name, "parameters": dict(parameters or {})}
    raise ValueError("should be a step's name, or its name with its parameters: {float16: {keep: [Softmax]}}")


Step = Annotated[StepPlan, BeforeValidator(_step)]


Candidate = Annotated[dict[str, dict[str, JsonValue]], Field(min_length=1)]
"""Whole parameters for some of an artifact's steps, by the step's name."""


class ArtifactPlan(Plan):
    """A file to make."""

    file: RelativePath = Field(description="Its path in the target repository.")
    made_from: Key | None = Field(None, alias="from", description="Which upstream file; needed if there are several.")
    frozen: Frozen = Field(
        False,
        description="true: once published, never written again. A sha256: a file that lies in the target already.",
    )
    on_change: OnChange | None = Field(None, description="As the recipe's on_change, for this file alone.")
    steps: tuple[Step, ...] = Field((), description="In order; for a file that lies in the target, how it was made.")
    tune: tuple[Candidate, ...] = Field(
        (), description="Parameters that bot tune tries for the steps, by the step's name; publishing reads the steps."
    )

    @property
    def taken_over(self) -> str:
        """The sha256 of the file that lies in the target already; empty for one that is made here."""
        return self.frozen if isinstance(self.frozen, str) else ""


class ImagePlan(Plan):
    """How a picture becomes the tensor that the model reads: crop, resize, scale, then (x - mean) / std, NCHW."""

    size: tuple[int, int] = Field(description="Height and width in pixels.")
    resample: Literal["nearest", "bilinear", "bicubic", "area", "lanczos"] = "bilinear"
    scale: Number = Field(description="What each 8-bit value is multiplied by: 1/255.")
    mean: tuple[Number, Number, Number] = Field((0.0, 0.0, 0.0), description="Subtracted after scaling, per channel.")
    std: tuple[Number, Number, Number] = Field((1.0, 1.0, 1.0), description="Divided by after that, per channel.")
    crop_padding: Number = Field(0.0, ge=0, description="Widens a face's box by this share of its side, on each side.")
    color: Literal["RGB", "BGR"] = "RGB"
    fit: Literal["stretch", "letterbox"] = Field(
        "stretch", description="letterbox keeps the aspect ratio and fills the rest with pad_value."
    )
    place: Literal["center", "top-left"] = Field("center", description="Where a letterbox puts the picture.")
    pad_value: int = Field(0, ge=0, le=255, description="Pixel value, 0 to 255, of the bars of a letterbox: 114.")

    @model_validator(mode="after")
    def _bars_of_a_letterbox(self) -> ImagePlan:
        if self.fit != "letterbox" and self.model_fields_set & {"place", "pad_value"}:
            raise ValueError("place and pad_value belong to fit: letterbox")
        return self


class AudioPlan(Plan):
    """How a sound becomes the waveform that the model reads: one channel, one rate, one length."""

    sample_rate: int = Field(ge=1000, le=384_000, description="In Hz; sounds of other rates are resampled.")
    seconds: Number = Field(gt=0, le=600, description="Longer sounds are cut, shorter ones followed by silence.")
    minimum_seconds: Number = Field(0.0, ge=0, description="Shorter sounds are passed over.")
    channels: Literal["mean", "first"] = Field("mean", description="What becomes of several channels.")
    normalize: Literal["none", "zero-mean-unit-variance"] = Field("none", description="Of the sound as a whole.")


class TextPlan(Plan):
    """How a text becomes the numbers that the model reads."""

    tokenizer: Key = Field(description="Which of upstream.files is the tokenizer.json.")
    max_length: int = Field(ge=1, le=65_536, description="Tokens: longer texts are cut, shorter ones padded.")
    give: Literal["ids", "mask", "types"] = Field(
        "ids", description="The tokens' numbers; 1 for a token and 0 for padding; or the segment of each token."
    )
    dtype: Literal["int64", "int32"] = "int64"


class TensorPlan(Plan):
    """Numbers from a seed, for an input that another network's features go into."""

    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, description="Of one sample.")
    values: Literal["normal", "uniform", "ones", "mask"] = Field(
        "normal", description="mask: ones from the beginning up to a length from the seed, then zeros."
    )
    scale: Number = Field(1.0, gt=0, description="Standard deviation of normal, and half the range of uniform.")
    dtype: Literal["float32", "int64", "bool"] = "float32"


InputKind = Literal["image", "audio", "text", "tensor"]


class InputPlan(Plan):
    """What goes into one input of the graph: one of these."""

    image: ImagePlan | None = None
    audio: AudioPlan | None = None
    text: TextPlan | None = None
    tensor: TensorPlan | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> InputPlan:
        if len(self.model_fields_set) != 1 or not (self.image or self.audio or self.text or self.tensor):
            raise ValueError("should be exactly one of image, audio, text and tensor")
        return self

    @property
    def kind(self) -> InputKind:
        """Which one."""
        kinds: tuple[InputKind, ...] = ("image", "audio", "text", "tensor")
        return next(kind for kind in kinds if getattr(self, kind) is not None)

    @model_serializer(mode="wrap")
    def _only_the_one(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {kind: value for kind, value in serialize(self).items() if value is not None}


class SamplesPlan(Plan):
    """A data set to measure on."""

    loader: str | None = Field(None, description="How it is laid out; the entry's own name if left out.")
    repo: RepositoryId
    revision: str = Field("main", description="A commit, to measure on the very same data for ever; or a branch.")
    split: str = "validation"
    count: int = Field(ge=1, description="How many samples to take.")
    minimum_px: int = Field(1, ge=1, description="Faces smaller than this are left out.")
    take: Literal["boxes", "pictures"] = Field(
        "boxes", description="boxes: each face is a sample. pictures: each picture, its boxes being its labels."
    )
    portion: tuple[Number, Number] = Field(
        (0.0, 1.0), description="Only pictures whose path's digest lies in this part of all: [0, 1/2] and [1/2, 1]."
    )

    @model_validator(mode="after")
    def _portion_rises(self) -> SamplesPlan:
        low, high = self.portion
        if not 0 <= low < high <= 1:
            raise ValueError("portion should be two numbers from 0 to 1, the lower one first")
        return self

    def selection(self) -> dict[str, JsonValue]:
        """What the loader needs to know: which samples, not where they come from."""
        chosen: dict[str, JsonValue] = {"split": self.split, "count": self.count, "minimum_px": self.minimum_px}
        return chosen | {"take": self.take, "portion": list(self.portion)}


DetectionMetric = Literal[
    "kept",
    "lost",
    "new",
    "found",
    "mean_score_drift",
    "max_score_drift",
    "mean_box_drift",
    "max_box_drift",
    "mean_overlap",
    "min_overlap",
    "mean_point_drift",
    "max_point_drift",
    "map",
    "label_map",
    "source_label_map",
    "label_map_change",
    "label_map_coco",
]
DETECTION_METRICS: tuple[DetectionMetric, ...] = get_args(DetectionMetric)

Metric = (
    Literal["mean_absolute", "max_absolute", "agreement", "flips"]
    | Literal["mean_cosine", "min_cosine", "ranking", "nearest"]
    | DetectionMetric
)

DETECTORS = ("yolo", "yunet")
YUNET_OUTPUTS = tuple(f"{part}_{stride}" for part in ("cls", "obj", "bbox", "kps") for stride in (8, 16, 32))

_METRICS: dict[str, tuple[str, ...]] = {
    "argmax": ("agreement", "flips"),
    "cosine": ("mean_cosine", "min_cosine", "ranking", "nearest"),
    "yolo": DETECTION_METRICS,
    "yunet": DETECTION_METRICS,
}
"""The metrics of those decodings that know no others."""


class DetectionPlan(Plan):
    """What counts as a detection, and as the same detection."""

    score: Number = Field(0.25, gt=0, lt=1, description="Lowest score that a consumer takes for a detection.")
    nms: Number = Field(0.45, gt=0, le=1, description="Overlap above which the weaker of two boxes is suppressed.")
    match: Number = Field(0.5, gt=0, lt=1, description="Overlap from which on two boxes are the same detection.")
    limit: int = Field(300, ge=1, le=10_000, description="Most detections in one picture.")
    end_to_end: bool = Field(False, description="The graph suppresses by itself and gives (batch, boxes, 6).")


class AccuracyPlan(Plan):
    """A decision that the model's output stands for, compared with what the source decides."""

    decode: Literal["coral", "expectation", "argmax", "sigmoid", "none", "cosine", "yolo", "yunet"]
    made_from: str = Field(
        "", alias="from", description="The output that it is decoded from; yunet knows its twelve by name."
    )
    of: Key | None = Field(None, description="Which upstream file has that output; needed if there are several.")
    unit: str = ""
    labels: tuple[str, ...] = Field((), description="Names of the classes, for argmax.")
    values: tuple[Number, ...] = Field((), description="What each class stands for, for expectation.")
    detection: DetectionPlan = Field(
        DetectionPlan(), description="For yolo and yunet: what counts as a detection, and as the same."
    )
    mask: str = Field(
        "", description="The input whose zeros mark positions of a sequence that do not count; each other one does."
    )
    metrics: tuple[Metric, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that it is decoded from."""
        return YUNET_OUTPUTS if self.decode == "yunet" else (self.made_from,)

    @model_validator(mode="after")
    def _complete(self) -> AccuracyPlan:
        if bool(self.made_from) == (self.decode == "yunet"):
            raise ValueError("from is missing" if self.decode != "yunet" else "decode: yunet takes no from")
        if self.decode == "expectation" and not self.values:
            raise ValueError("decode: expectation needs values, one per class")
        if self.mask and not set(self.metrics) <= {"mean_absolute", "max_absolute", "mean_cosine", "min_cosine"}:
            raise ValueError("with a mask, the metrics are mean_absolute, max_absolute, mean_cosine and min_cosine")
        detector = self.decode in DETECTORS
        if not detector and "detection" in self.model_fields_set:
            raise ValueError("detection belongs to decode: yolo and decode: yunet")
        known = _METRICS.get(self.decode)
        if known is not None and not set(self.metrics) <= set(known):
            raise ValueError(f"decode: {self.decode} knows the metrics {', '.join(known)}")
        if strange := [metric for metric in self.metrics if metric in DETECTION_METRICS and not detector]:
            raise ValueError(f"decode: {self.decode} has no metric {strange[0]}: it is one of detectors")
        return self


class TimingsPlan(Plan):
    """What is timed, against what."""

    providers: dict[Literal["cpu", "cuda"], Literal["required", "optional"]] = {"cpu": "required"}
    batches: tuple[Annotated[int, Field(ge=1)], ...] = Field((1,), min_length=1)
    baseline: str = Field("source", description="The artifact that the others are compared with, or source.")


class MeasurePlan(Plan):
    """What is measured."""

    samples: dict[Key, SamplesPlan] = Field(min_length=1, max_length=1)
    accuracy: dict[Key, AccuracyPlan] = {}
    timings: TimingsPlan = TimingsPlan()


class CalibrationPlan(Plan):
    """The samples that quantize_static looks at: of the same data set as the judged ones, and other ones."""

    count: int | None = Field(None, ge=1, description="How many samples to take.")
    portion: tuple[Number, Number] = Field(
        (0.0, 1.0), description="As of measure.samples, with which it has no part in common."
    )
    judged: bool = Field(False, description="The judged samples themselves are looked at; the card says so.")

    @model_validator(mode="after")
    def _one_set(self) -> CalibrationPlan:
        if (self.count is not None) == self.judged:
            raise ValueError("should have either count and portion, or judged: true")
        return self

    def selection(self, judged: SamplesPlan) -> dict[str, JsonValue]:
        """What the loader needs to know."""
        return judged.selection() | {"count": self.count, "portion": list(self.portion)}


class GatePlan(Plan):
    """A limit that a figure must keep."""

    max: Number | None = None
    min: Number | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> GatePlan:
        if (self.max is None) == (self.min is None):
            raise ValueError("should give exactly one of max and min")
        return self


class RecipePlan(Plan):
    """A whole recipe.yaml."""

    upstream: Upstream
    requires: Requires | None = Field(None, description="For export_torch: Python and packages, exactly.")
    target: Target
    license: License
    card: Card = Card()
    artifacts: dict[Key, ArtifactPlan] = Field(min_length=1)
    inputs: dict[str, InputPlan] = Field(min_length=1, description="Per graph input: NAME, or FILE/NAME.")
    calibration: CalibrationPlan | None = Field(None, description="What quantize_static calibrates on.")
    measure: MeasurePlan
    gates: dict[Key, dict[str, GatePlan]] = {}
    on_change: OnChange = Field(
        "new_name",
        description="Where a published file's new bytes go: beside it under a new name, or in its place (replace).",
    )
    all_or_nothing: bool = Field(False, description="One artifact that fails its gates withholds all of them.")
    rebuild_on: Literal["identity", "tools"] = Field(
        "identity", description="tools: new tool versions make a new release."
    )
    retry: int = Field(
        0, ge=0, description="Raise it by one to have a release tried again that was withheld, or closed by a person."
    )
    runner: str = Field(
        "ubuntu-latest",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=100,
        description="Label of the GitHub runner that builds and measures: that of your own machine with a GPU, say.",
    )

    @model_validator(mode="after")
    def _calibrates_on_others(self) -> RecipePlan:
        if self.calibration is None or self.calibration.judged:
            return self
        (judged,) = self.measure.samples.values()
        low = max(self.calibration.portion[0], judged.portion[0])
        high = min(self.calibration.portion[1], judged.portion[1])
        if low < high:
            raise ValueError(
                f"calibration.portion and the portion of measure.samples have {low:g} to {high:g} in common: what is "
                "judged should not have been calibrated on"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _is_mapping(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError("a recipe is a mapping; see docs/recipes.md")
        return value


def json_schema() -> dict[str, Any]:
    """The JSON Schema of recipe.yaml, for editors."""
    schema = RecipePlan.model_json_schema(by_alias=True)
    number = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^-?[0-9.]+\s*/\s*[0-9.]+$"}]}
    duration = {"type": "string", "pattern": r"^\d+\s*[smhd]$"}
    step = {"anyOf": [{"type": "string"}, {"type": "object", "minProperties": 1, "maxProperties": 1}]}
    definitions = schema["$defs"]
    definitions["StepPlan"] = step
    definitions["Upstream"]["properties"]["cooldown"].update(duration)
    with_numbers = ("ImagePlan", "GatePlan", "AccuracyPlan", "DetectionPlan", "SamplesPlan", "CalibrationPlan")
    for name in with_numbers:
        _replace_numbers(definitions[name], number)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "recipe.yaml", **schema}


def _replace_numbers(node: Any, number: Mapping[str, Any]) -> None:
    """Lets every number in a part of the schema be a fraction as well."""
    items = list(node.items()) if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if isinstance(value, dict) and value.get("type") == "number":
            kept = {name: value[name] for name in ("description", "default", "title") if name in value}
            node[key] = {**number, **kept}
        else:
            _replace_numbers(value, number)
