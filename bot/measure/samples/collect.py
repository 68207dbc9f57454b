"""Takes samples out of a data set and writes the tensors that networks are fed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.canonical import digest
from bot.errors import RecipeError, UpstreamError
from bot.measure.arrays import RowWriter, npy_name
from bot.measure.detection.labels import placed_objects
from bot.measure.images import PictureError, decode
from bot.measure.loaders import MATERIALS, SamplePlan
from bot.measure.preprocess import BoxOutsideError, ImageSpec, placement, to_tensor
from bot.measure.samples.candidate import Candidate, in_order
from bot.measure.samples.image_folder import ImageFolder
from bot.measure.samples.text_lines import TextLines
from bot.measure.samples.wider_face import WiderFace
from bot.measure.sounds import AudioSpec, SoundError, decode_wav, to_waveform
from bot.measure.specs import InputSpec, material_of
from bot.measure.tensors import to_numbers
from bot.measure.texts import TextError, TextSpec, decode_text, to_tokens
from bot.records import Json

if TYPE_CHECKING:
    from numpy.typing import NDArray

Progress = Callable[[int, int, str], None]

NAMED = 100
"""So many skipped samples are named by digest; of the rest only the number is told."""

Data = WiderFace | ImageFolder | TextLines

_OPENERS: dict[str, Callable[[dict[str, Path], SamplePlan], Data]] = {
    "wider_face": WiderFace,
    "image_folder": ImageFolder,
    "audio_folder": ImageFolder,  # laid out alike: a list, and the files that it names
    "text_lines": TextLines,
}

_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "picture": decode,
    "sound": decode_wav,
    "text": decode_text,
}
"""From a sample's bytes to what is in them, by `bot.measure.loaders.MATERIALS`."""


@dataclass
class Collection:
    """What was taken, and what was not and why."""

    samples: list[dict[str, Json]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    named: list[dict[str, Json]] = field(default_factory=list)

    def skip(self, reason: str, name: str) -> None:
        """Counts a picture that cannot be used, and names the first ones."""
        self.skipped[reason] += 1
        if len(self.named) < NAMED:
            self.named.append({"digest": name, "reason": reason})


def collect(
    loader: str,
    files: dict[str, Path],
    plan: SamplePlan,
    specs: dict[str, InputSpec],
    out: Path,
    progress: Progress,
) -> dict[str, Json]:
    """Takes the samples of a plan, in the order of their rank, and writes one array per input.

    A sample that cannot be used is counted and passed over, and the next one in order takes its place.

    Args:
        loader: One of `bot.measure.loaders.LOADERS`.
        files: The loader's files.
        plan: Which samples, and how many.
        specs: How each input wants its samples.
        out: An existing folder; KEY.npy (one row per sample, of the input's dtype) is written for each input.
        progress: Told of every sample.

    Returns:
        `count`; `digest` over the list of sample digests; `samples`, each with its digest and label; `skipped`, number
        by reason; `skipped_samples`, the first of them by digest.

    Raises:
        RecipeError: An input wants another kind of samples than the loader has.
        UpstreamError: The data set cannot be read, or holds too few samples that can be used.
    """
    _require_material(loader, specs)
    collection = Collection()
    with ExitStack() as stack:
        data: Data = _OPENERS[loader](files, plan)
        stack.enter_context(data)
        low, high = plan.portion
        candidates = [each for each in in_order(data.candidates(collection.skipped)) if low <= each.place < high]
        wanted = plan.count or len(candidates)
        writers = {
            key: stack.enter_context(RowWriter(out / npy_name(key), spec.row_shape, spec.dtype))
            for key, spec in specs.items()
        }
        for candidate in candidates:
            if len(collection.samples) == wanted:
                break
            rows = _take(loader, data, candidate, plan, specs, collection)
            for key, row in rows.items():
                writers[key].append(row[None])
            progress(len(collection.samples), wanted, "samples")
    if not collection.samples or (plan.count and len(collection.samples) < plan.count):
        raise _too_few(loader, plan, collection)
    return {
        "count": len(collection.samples),
        "digest": digest([sample["digest"] for sample in collection.samples]),
        "samples": list(collection.samples),
        "skipped": dict(sorted(collection.skipped.items())),
        "skipped_samples": list(collection.named),
    }


def _take(
    loader: str,
    data: Data,
    candidate: Candidate,
    plan: SamplePlan,
    specs: dict[str, InputSpec],
    collection: Collection,
) -> dict[str, NDArray[Any]]:
    """The tensors of one sample by input; none, and a note why, if it cannot be used."""
    name = candidate.rank
    try:
        content = data.read(candidate.path)
        name = candidate.sample_digest(content)
        found = _DECODERS[MATERIALS[loader]](content)
        if MATERIALS[loader] == "picture" and min(found.size) < plan.minimum_px:
            raise PictureError("smaller than minimum_px")
        rows = {key: _row(found, name, candidate, key, spec) for key, spec in specs.items()}
    except (PictureError, BoxOutsideError, SoundError, TextError) as error:
        collection.skip(str(error) or "box outside the picture", name)
        return {}
    label: Json = dict(candidate.label) or None
    sample: dict[str, Json] = {"digest": name, "label": label}
    if plan.take == "pictures":
        images = {key: spec for key, spec in specs.items() if isinstance(spec, ImageSpec)}
        placed = {key: placed_objects(candidate.label, placement(found.size, spec)) for key, spec in images.items()}
        sample["objects"] = {key: [*objects] for key, objects in placed.items() if objects is not None}
    collection.samples.append(sample)
    return rows


def _row(found: Any, sample: str, candidate: Candidate, key: str, spec: InputSpec) -> NDArray[Any]:
    """What one input is fed of one sample."""
    if isinstance(spec, ImageSpec):
        return to_tensor(found, candidate.box, spec)
    if isinstance(spec, AudioSpec):
        row: NDArray[Any] = to_waveform(found, spec)
        return row
    return to_tokens(found, spec) if isinstance(spec, TextSpec) else to_numbers(sample, key, spec)


def _require_material(loader: str, specs: dict[str, InputSpec]) -> None:
    """Stops unless every input takes what the loader has; numbers from a seed go with anything."""
    for key, spec in specs.items():
        wanted, there = material_of(spec), MATERIALS[loader]
        if wanted not in (there, "none"):
            raise RecipeError(
                f"takes a {wanted}, and the samples of {loader} are something else",
                where=f"inputs.{key}",
                remedy="Name samples of that kind in measure.samples.",
            )


def _too_few(loader: str, plan: SamplePlan, collection: Collection) -> UpstreamError:
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(collection.skipped.items())) or "none"
    return UpstreamError(
        f"{plan.count or 'some'} samples were wanted and {len(collection.samples)} found (passed over: {reasons})",
        where=f"samples {loader}",
        remedy="Ask for fewer samples, or for smaller ones, in measure.samples of the recipe.",
    )
