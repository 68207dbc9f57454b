"""Takes samples out of a data set and writes the tensors that networks are fed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bot.canonical import digest
from bot.errors import UpstreamError
from bot.measure.arrays import RowWriter, npy_name
from bot.measure.detection.labels import placed_objects
from bot.measure.images import PictureError, decode
from bot.measure.loaders import SamplePlan
from bot.measure.preprocess import BoxOutsideError, ImageSpec, placement, to_tensor
from bot.measure.samples.candidate import Candidate, in_order
from bot.measure.samples.image_folder import ImageFolder
from bot.measure.samples.wider_face import WiderFace
from bot.records import Json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Progress = Callable[[int, int, str], None]

NAMED = 100
"""So many skipped pictures are named by digest; of the rest only the number is told."""

Data = WiderFace | ImageFolder

_OPENERS: dict[str, Callable[[dict[str, Path], SamplePlan], Data]] = {
    "wider_face": WiderFace,
    "image_folder": ImageFolder,
}


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
    specs: dict[str, ImageSpec],
    out: Path,
    progress: Progress,
) -> dict[str, Json]:
    """Takes the samples of a plan, in the order of their rank, and writes one array per input.

    A picture that cannot be used is counted and passed over, and the next one in order takes its place.

    Args:
        loader: One of `bot.measure.loaders.LOADERS`.
        files: The loader's files.
        plan: Which samples, and how many.
        specs: How each input wants its pictures.
        out: An existing folder; KEY.npy (float32, one row per sample) is written for each input.
        progress: Told of every sample.

    Returns:
        `count`; `digest` over the list of sample digests; `samples`, each with its digest and label; `skipped`, number
        by reason; `skipped_samples`, the first of them by digest.

    Raises:
        UpstreamError: The data set cannot be read, or holds too few samples that can be used.
    """
    collection = Collection()
    with ExitStack() as stack:
        data: Data = _OPENERS[loader](files, plan)
        stack.enter_context(data)
        low, high = plan.portion
        candidates = [each for each in in_order(data.candidates(collection.skipped)) if low <= each.place < high]
        wanted = plan.count or len(candidates)
        writers = {
            key: stack.enter_context(RowWriter(out / npy_name(key), spec.row_shape, "<f4"))
            for key, spec in specs.items()
        }
        for candidate in candidates:
            if len(collection.samples) == wanted:
                break
            rows = _take(data, candidate, plan, specs, collection)
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
    data: Data,
    candidate: Candidate,
    plan: SamplePlan,
    specs: dict[str, ImageSpec],
    collection: Collection,
) -> dict[str, NDArray[np.float32]]:
    """The tensors of one sample by input; none, and a note why, if it cannot be used."""
    name = candidate.rank
    try:
        content = data.read(candidate.path)
        name = candidate.sample_digest(content)
        picture = decode(content)
        if min(picture.size) < plan.minimum_px:
            raise PictureError("smaller than minimum_px")
        rows = {key: to_tensor(picture, candidate.box, spec) for key, spec in specs.items()}
    except (PictureError, BoxOutsideError) as error:
        collection.skip(str(error) or "box outside the picture", name)
        return {}
    label: Json = dict(candidate.label) or None
    sample: dict[str, Json] = {"digest": name, "label": label}
    if plan.take == "pictures":
        placed = {key: placed_objects(candidate.label, placement(picture.size, spec)) for key, spec in specs.items()}
        sample["objects"] = {key: [*objects] for key, objects in placed.items() if objects is not None}
    collection.samples.append(sample)
    return rows


def _too_few(loader: str, plan: SamplePlan, collection: Collection) -> UpstreamError:
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(collection.skipped.items())) or "none"
    return UpstreamError(
        f"{plan.count or 'some'} samples were wanted and {len(collection.samples)} found (passed over: {reasons})",
        where=f"samples {loader}",
        remedy="Ask for fewer samples, or for smaller ones, in measure.samples of the recipe.",
    )
