"""The records that the stages hand to one another.

All are frozen. Serialised, they are RFC 8785 canonical JSON, so equal records have equal bytes and no NaN can hide in
one. The `Release` gathers the others: it is all that a card, a review page or the publisher may read.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from bot.canonical import canonical_json, digest
from bot.errors import VerificationError

SCHEMA_VERSION = 1
"""Raised when a record changes so that an older reader would misread it."""

Json = JsonValue
"""Plain JSON data."""

Sha256 = str
"""64 lower-case hexadecimal digits."""


class Record(BaseModel):
    """Base of all records: frozen, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_plain(self) -> dict[str, Any]:
        """The record as plain JSON data."""
        return self.model_dump(mode="json")

    def to_json(self) -> bytes:
        """The record as canonical JSON.

        Raises:
            ValueError: A figure in it is NaN or infinite.
        """
        return canonical_json(self.to_plain())

    @classmethod
    def from_json(cls, data: bytes | str, *, where: str = "") -> Self:
        """Reads a record.

        Args:
            data: JSON, canonical or not.
            where: What to name in the error: a file, or repository and path.

        Raises:
            VerificationError: The data is not such a record.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the top level"
            raise VerificationError(
                f"is not a valid {cls.__name__} record: at {place}: {first['msg']}",
                where=where,
                remedy="It was damaged, or written by another version of the bot.",
            ) from error


class FileRecord(Record):
    """One file, as it lies in a repository or in the work folder.

    Attributes:
        path: Path in its repository, with forward slashes.
        bytes: Size.
        sha256: Of the whole content.
    """

    path: str
    bytes: int = Field(ge=0)
    sha256: Sha256 = Field(pattern="^[0-9a-f]{64}$")


class Terms(Record):
    """The licence that a repository declares, and its licence texts, at one commit.

    Attributes:
        repo: `owner/name`, as the card that led here writes it.
        commit: The full commit sha; empty where the repository could not be read.
        license: The licence id that the card declares, in lower case; None if it declares none.
        license_name: The licence's name, where the id is `other`.
        license_link: Where its text is: an address, or a path in the repository.
        texts: The licence texts, by path.
        problem: What is wrong with the card's front matter, so that it cannot be read; empty if it can.
        unchecked: Why nothing of the repository can be read: it is gated, or not there; empty if it can.
    """

    repo: str
    commit: str = ""
    license: str | None = None
    license_name: str = ""
    license_link: str = ""
    texts: tuple[FileRecord, ...] = ()
    problem: str = ""
    unchecked: str = ""


Reason = Literal["new", "upstream files", "recipe", "samples", "licence", "tools", "retry", "pull request outdated"]
"""Why a recipe is due. These words go into workflows, so that no text from elsewhere is among them."""


class Due(Record):
    """A recipe that something is to be done about.

    Attributes:
        recipe: Its name.
        target: `owner/name` of the repository that it publishes in.
        upstream: `owner/name` of the repository that it reads, or an address.
        commit: The upstream's newest commit.
        identity: Of the release that publishing would make.
        reasons: Why.
        since: Date of the change that makes it due, ISO 8601, as far as anybody told.
        runner: Label of the runner that the recipe asks for.
    """

    recipe: str
    target: str
    upstream: str
    commit: str
    identity: str
    reasons: tuple[Reason, ...]
    since: str = ""
    runner: str


class Source(Record):
    """What was read from one repository, at one exact commit.

    Attributes:
        repo: `owner/name`; empty for a source that is not on the Hub.
        repo_type: `model` or `dataset`.
        url: Where it came from when it is not on the Hub.
        commit: The full commit sha.
        committed_at: Date of that commit, ISO 8601 in UTC.
        files: The files that the recipe names, under the recipe's own keys.
        copies: Files that travel with the release unread.
        license: The licence id that the repository's card declares, if any.
        license_name: The licence's name as the card declares it, where the id is `other`.
        license_link: Where the card says that the licence's text is.
        license_texts: Licence files at that commit.
        license_problem: Why what the card declares cannot be read; empty if it can.
        bases: The licences of what the repository's card names as its base models.
        random_weights: The model says of itself that its weights are random. Such a release goes to embedded Hubs only.
    """

    repo: str = ""
    repo_type: Literal["model", "dataset"] = "model"
    url: str = ""
    commit: str
    committed_at: str = ""
    files: dict[str, FileRecord] = {}
    copies: tuple[FileRecord, ...] = ()
    license: str | None = None
    license_name: str = ""
    license_link: str = ""
    license_texts: tuple[FileRecord, ...] = ()
    license_problem: str = ""
    bases: tuple[Terms, ...] = ()
    random_weights: bool = False

    @property
    def terms(self) -> Terms:
        """The repository's own licence, in the form that those of its base models have."""
        return Terms(
            repo=self.repo,
            commit=self.commit,
            license=self.license,
            license_name=self.license_name,
            license_link=self.license_link,
            texts=self.license_texts,
            problem=self.license_problem,
        )

    def with_terms(self, terms: Terms, bases: tuple[Terms, ...] = ()) -> Source:
        """The same source with its licence, and those of its base models."""
        return self.model_copy(
            update={
                "license": terms.license,
                "license_name": terms.license_name,
                "license_link": terms.license_link,
                "license_texts": terms.texts,
                "license_problem": terms.problem,
                "bases": bases,
            }
        )


class TensorSignature(Record):
    """An input or an output of a graph.

    Attributes:
        name: As in the graph.
        dtype: `float32`, `float16`, `int64`, …
        shape: One entry per axis: a size, a symbol for a dynamic axis, or None for one that is not described at all;
            None in place of the list where the rank itself is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


class Signature(Record):
    """What a consumer must know to open a model file and to run it.

    Attributes:
        inputs: In the graph's order.
        outputs: In the graph's order.
        opsets: Version per operator domain; the default domain is `ai.onnx`.
        ir_version: Of the file.
        minimum_runtime: The oldest ONNX Runtime that reads this IR version and these opsets, as `major.minor`.
        external_files: Names of the files beside it that hold weights.
        minimum_runtime_on: The same per provider, where its kernels compute the file rightly only from a later one on.
        not_on: Providers that have no kernel for something in it.
    """

    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]
    opsets: dict[str, int]
    ir_version: int
    minimum_runtime: str
    external_files: tuple[str, ...] = ()
    minimum_runtime_on: dict[str, str] = {}
    not_on: tuple[str, ...] = ()


class Census(Record):
    """What a graph consists of, subgraphs and model-local functions included.

    Attributes:
        nodes: Their number.
        by_op: Nodes per operator; operators of another domain than ONNX's own are written `domain:Op`.
        casts: Number of Cast nodes.
        parameters: Number of elements of all initializers and constants, per dtype.
    """

    nodes: int
    by_op: dict[str, int]
    casts: int
    parameters: dict[str, int]


class Inspection(Record):
    """What a look at one model file tells, without running it.

    Attributes:
        signature: Inputs, outputs, versions.
        census: Nodes and parameters.
        metadata: The file's own key-value pairs: untrusted text.
        random_weights: The file says of itself that its weights are random (metadata key `random_weights`).
    """

    signature: Signature
    census: Census
    metadata: dict[str, str] = {}
    random_weights: bool = False


class StepRecord(Record):
    """One step of a build, as it was done.

    Attributes:
        name: The step's name in the recipe.
        parameters: All of them, defaults included.
        report: What the step counted or decided, such as the casts that it removed.
    """

    name: str
    parameters: dict[str, Json] = {}
    report: dict[str, Json] = {}


OnChange = Literal["new_name", "replace"]
"""What becomes of a published file when a later release has other bytes for it."""


class EarlierFile(Record):
    """A file that the target held before a release.

    Attributes:
        path: In the target.
        sha256: Of its content.
        revision: A commit that holds it.
    """

    path: str
    sha256: Sha256
    revision: str


class Artifact(Record):
    """A file that the release offers, and how it was made.

    Attributes:
        name: Its key in the recipe.
        file: Path in the target repository.
        made_from: Key of the upstream file; for a file that was taken over, of the one that it is compared with.
        frozen: Once published it is never written again.
        taken_over: It lay in the target before, made by hand: it was measured and is described, and neither built nor
            uploaded. Its steps are what the recipe declares of how it was once made, without a report.
        on_change: Whether a later release with other bytes goes beside it or in its place.
        steps: In order.
        bytes: Size.
        sha256: Of the file.
        weights: The files beside it that hold its weights, in the signature's order, by their paths in the target.
        sidecar: The JSON file beside an exported graph that says what a consumer has to know of it.
        signature: Inputs, outputs, versions.
        census: Nodes and parameters.
        built_with: Versions of the tools that took part, by package name.
        before: What the target held of it before: under the same path if this release replaced it, under another if
            that file stays beside it; None if there was none.
    """

    name: str
    file: str
    made_from: str
    frozen: bool = False
    taken_over: bool = False
    on_change: OnChange = "new_name"
    steps: tuple[StepRecord, ...]
    bytes: int
    sha256: Sha256
    weights: tuple[FileRecord, ...] = ()
    sidecar: FileRecord | None = None
    signature: Signature
    census: Census
    built_with: dict[str, str]
    before: EarlierFile | None = None

    @property
    def digest(self) -> Sha256:
        """Of all that decides what it answers: a graph has the same bytes whatever the weights beside it are."""
        return digest([self.sha256, *(each.sha256 for each in self.weights)]) if self.weights else self.sha256


class Measurement(Record):
    """One figure that was measured.

    Attributes:
        subject: What it is about: a decision such as `age`, an output's name, `speedup`, `latency`, `open`.
        metric: Such as `mean_absolute`, `max_absolute`, `agreement`, `median`, `ratio`.
        value: The figure.
        unit: `year`, `ms`, `` for a pure number.
        artifact: Key of the artifact that it is about; `source:KEY` for the upstream file itself.
        against: What it was compared with: `source:KEY` or an artifact's key; empty for an absolute figure.
        provider: `cpu`, `cuda`, …, or `reference` for a figure that no runtime took part in.
        device: The processor's or accelerator's name.
        runtime: Name and version of the runtime.
        batch: Samples per run; None where it does not matter.
        threads: Threads that the runtime was given; None where it does not matter.
        samples: How many samples went in.
        samples_digest: Digest of the list of samples.
        method: One sentence that says how it was taken.
        runs: Each raw run of a timing, in `unit`.
        runs_against: Each raw run of what it was compared with, paired with `runs`.
        worst_sample: Digest of the sample with the largest difference.
        histogram: Edges and counts of the differences, where it has one.
        spread: How far the figure may be off when it is measured again on another machine, in `unit`; None for one that
            is not meant to come out the same, such as a timing.
    """

    subject: str
    metric: str
    value: float
    unit: str = ""
    artifact: str
    against: str = ""
    provider: str = ""
    device: str = ""
    runtime: str = ""
    batch: int | None = None
    threads: int | None = None
    samples: int = 0
    samples_digest: str = ""
    method: str
    runs: tuple[float, ...] = ()
    runs_against: tuple[float, ...] = ()
    worst_sample: str = ""
    histogram: Histogram | None = None
    spread: float | None = Field(None, ge=0)

    @property
    def key(self) -> str:
        """The name that gates and cards call it by: `age.mean_absolute`, `speedup.cpu.batch_1`."""
        if self.subject in {"latency", "speedup"}:
            return f"{self.subject}.{self.provider}.batch_{self.batch}"
        return f"{self.subject}.{self.metric}"


class Histogram(Record):
    """Counts between edges: `len(edges) == len(counts) + 1`."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


Status = Literal["passed", "failed", "not measured"]


class Verdict(Record):
    """What one gate said of one artifact.

    Attributes:
        artifact: Key of the artifact.
        rule: The figure's name, or the name of a gate that every artifact passes through.
        comparison: `max`, `min`, or `holds` for a gate without a figure.
        limit: The recipe's limit; None for a gate without a figure.
        value: What was measured; None if nothing was.
        unit: Of both.
        provider: What the figure was measured on.
        status: Passed, failed or not measured.
        required: A required gate that failed or was not measured withholds the artifact.
        reason: In words, for people.
    """

    artifact: str
    rule: str
    comparison: Literal["max", "min", "holds"]
    limit: float | None = None
    value: float | None = None
    unit: str = ""
    provider: str = ""
    status: Status
    required: bool = True
    reason: str = ""

    @property
    def withholds(self) -> bool:
        """Whether this verdict keeps its artifact from being published."""
        return self.required and self.status != "passed"


class LicenseRecord(Record):
    """A licence that travels with the release.

    Attributes:
        name: Its id (`apache-2.0`) or its full name.
        file: The path of its text in the target repository; empty where only the id is declared.
        sha256: Of the text.
        notice: A sentence that the licence wants shown.
        origin: Where the text came from.
    """

    name: str
    file: str = ""
    sha256: str = ""
    notice: str = ""
    origin: str = ""


class Release(Record):
    """All that is known of one release. What is not in here cannot be said on a card.

    Attributes:
        schema_version: Of this record.
        identity: sha256 of what makes it this release and no other.
        recipe_id: sha256 of the recipe's part of that; empty in a record of an older bot.
        recipe: The recipe's name.
        recipe_text: recipe.yaml as it was read, for the record.
        recipe_parts: sha256 of each part of the recipe's folder: its meaning, its code, its card, its licence texts.
        target: `owner/name` of the repository that it is published in.
        runtime: The runtime that the target promises, such as `onnxruntime>=1.22`.
        source: The upstream model.
        samples: The data sets that it was measured on.
        samples_digest: Digest of the list of samples that were used.
        artifacts: Those that the recipe asks for, withheld ones included.
        measurements: Every figure.
        verdicts: Every gate.
        withheld: Keys of the artifacts that are not published.
        all_or_nothing: One withheld artifact withholds all.
        licenses: The licence first, then those that apply besides.
        declared: What the recipe declares and the card shows: inputs, decoding, tags.
        copies: Files that are carried under `source/`.
        bot_version: Of the bot that made the record.
        random_weights: Some upstream file has random weights.
    """

    schema_version: Literal[1] = 1
    identity: Sha256
    recipe_id: str = ""
    recipe: str
    recipe_text: str
    recipe_parts: dict[str, Sha256] = {}
    target: str
    runtime: str
    source: Source
    samples: tuple[Source, ...] = ()
    samples_digest: str = ""
    artifacts: tuple[Artifact, ...]
    measurements: tuple[Measurement, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    withheld: tuple[str, ...] = ()
    all_or_nothing: bool = False
    licenses: tuple[LicenseRecord, ...] = ()
    declared: dict[str, Json] = {}
    copies: tuple[FileRecord, ...] = ()
    bot_version: str
    random_weights: bool = False

    PATH: ClassVar[str] = "release.json"
    TRAILER: ClassVar[str] = "Release-Id"

    @property
    def published(self) -> tuple[Artifact, ...]:
        """The artifacts that go out."""
        if self.all_or_nothing and self.withheld:
            return ()
        return tuple(artifact for artifact in self.artifacts if artifact.name not in self.withheld)

    @property
    def built(self) -> tuple[Artifact, ...]:
        """The artifacts that go out and that the bot made: those that were taken over are not among them."""
        return tuple(artifact for artifact in self.published if not artifact.taken_over)

    @property
    def short_identity(self) -> str:
        """Enough of the identity for people and file names."""
        return short(self.identity)

    def artifact(self, name: str) -> Artifact:
        """The artifact with this key."""
        return next(artifact for artifact in self.artifacts if artifact.name == name)

    def measurements_of(self, artifact: str) -> tuple[Measurement, ...]:
        """All figures about one artifact."""
        return tuple(measurement for measurement in self.measurements if measurement.artifact == artifact)


Measurement.model_rebuild()


def short(identity: Sha256) -> str:
    """Enough of an identity for people and file names."""
    return identity[:12]


def identity_of(parts: dict[str, Any]) -> Sha256:
    """The identity of a release from the parts that make it up: digests and plain data."""
    return digest({"schema": SCHEMA_VERSION, **parts})
