"""Texts through upstream's tokenizer, numbers from a seed, and the loaders that bring samples of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import make_random_torch
import numpy as np
import pytest
from measuring_material import ignore_progress

from bot.errors import RecipeError, UpstreamError
from bot.measure import tasks
from bot.measure.specs import parse_input_spec
from bot.measure.tensors import TensorSpec, to_numbers
from bot.measure.texts import TextError, TextSpec, decode_text, to_tokens
from tests.measure.test_sounds import TONE, wav

TEXTS = "All human beings\n\nborn  free and equal\nAll human beings\n  dignity\n\xe9t\xe9 unknown words\n"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_random_torch.write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"))


def test_ids_masks_and_types_are_those_of_one_text(tokenizer: str) -> None:
    given = {
        give: to_tokens("All human beings", TextSpec(tokenizer=tokenizer, max_length=7, give=give))
        for give in ("ids", "mask", "types")
    }
    assert given["ids"].tolist() == [2, 4, 5, 6, 3, 0, 0] and given["ids"].dtype == np.int64
    assert given["mask"].tolist() == [1, 1, 1, 1, 1, 0, 0] and given["types"].tolist() == [0] * 7


def test_a_long_text_is_cut_with_its_last_token(tokenizer: str) -> None:
    spec = TextSpec(tokenizer=tokenizer, max_length=4, dtype="int32")
    row = to_tokens("all human beings are born", spec)
    assert row.tolist() == [2, 4, 5, 3] and row.dtype == np.int32


@pytest.mark.parametrize(
    ("text", "says"),
    [("{}", "is not a tokenizer"), ("[" * 10_000, "is not a tokenizer"), ("\0\1\2", "is not a tokenizer")],
)
def test_what_is_no_tokenizer_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(UpstreamError, match=says) as error:
        to_tokens("a", TextSpec(tokenizer=str(path), max_length=4))
    assert error.value.where == "tokenizer.json"


def test_a_tokenizer_without_a_token_for_padding_is_refused(tmp_path: Path, tokenizer: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(Path(tokenizer).read_text().replace("[PAD]", "[NOPE]"))
    with pytest.raises(UpstreamError, match="no token for padding"):
        to_tokens("a", TextSpec(tokenizer=str(path), max_length=4))


@pytest.mark.parametrize(("data", "says"), [(b"  ", "empty"), (b"\xff\xfe", "not UTF-8"), (b"a" * 30_000, "too long")])
def test_a_text_that_cannot_be_used_is_one_of_a_few_reasons(data: bytes, says: str) -> None:
    with pytest.raises(TextError, match=says):
        decode_text(data)


def take(folder: Path, loader: str, files: dict[str, str], inputs: dict[str, Any], **plan: Any) -> dict[str, Any]:
    out = folder / "out"
    out.mkdir(exist_ok=True)
    arguments = {"loader": loader, "files": files, "plan": plan, "inputs": inputs, "out": str(out)}
    answer: Any = tasks.samples(arguments, ignore_progress)
    return {**answer, **{path.stem: np.load(path) for path in out.glob("*.npy")}}


def test_lines_of_text_are_samples_each_once(tmp_path: Path, tokenizer: str) -> None:
    (tmp_path / "texts.txt").write_text(TEXTS, "utf-8")
    inputs = {
        "ids": {"text": {"tokenizer": tokenizer, "max_length": 6}},
        "mask": {"text": {"tokenizer": tokenizer, "max_length": 6, "give": "mask"}},
        "noise": {"tensor": {"shape": [3]}},
    }
    found = take(tmp_path, "text_lines", {"texts": str(tmp_path / "texts.txt")}, inputs)
    assert found["count"] == 4 and found["ids"].shape == (4, 6) and found["noise"].shape == (4, 3)
    assert (found["mask"] == (found["ids"] != 0)).all()
    # No order of lines decides what is taken: the same text has the same digest, and the same numbers beside it.
    (tmp_path / "texts.txt").write_text("\n".join(reversed(TEXTS.split("\n"))), "utf-8")
    again = take(tmp_path, "text_lines", {"texts": str(tmp_path / "texts.txt")}, inputs)
    assert again["digest"] == found["digest"] and (again["noise"] == found["noise"]).all()


def test_sounds_are_samples_and_broken_ones_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "sounds").mkdir()
    names = [f"sounds/{number}.wav" for number in range(4)]
    for number, name in enumerate(names[:3]):
        (tmp_path / name).write_bytes(wav(TONE * (number + 1) / 4, rate=8000))
    (tmp_path / names[3]).write_bytes(b"RIFF")
    listed = "".join(json.dumps({"file_name": name}) + "\n" for name in names)
    (tmp_path / "metadata.jsonl").write_text(listed)
    files = {"sounds": str(tmp_path / "sounds"), "metadata": str(tmp_path / "metadata.jsonl")}
    found = take(tmp_path, "audio_folder", files, {"waveform": {"audio": {"sample_rate": 16_000, "seconds": 0.1}}})
    assert found["waveform"].shape == (3, 1600) and found["waveform"].dtype == np.float32
    assert found["skipped"] == {"no WAV file": 1}
    np.testing.assert_allclose(sorted(np.abs(found["waveform"]).max(axis=1)), [0.125, 0.25, 0.375], atol=0.01)


def test_an_input_of_another_kind_than_the_samples_is_refused(tmp_path: Path, tokenizer: str) -> None:
    (tmp_path / "texts.txt").write_text(TEXTS)
    inputs = {"waveform": {"audio": {"sample_rate": 16_000, "seconds": 1}}}
    with pytest.raises(RecipeError, match="takes a sound, and the samples of text_lines are something else"):
        take(tmp_path, "text_lines", {"texts": str(tmp_path / "texts.txt")}, inputs)


@pytest.mark.parametrize("values", ["normal", "uniform", "ones", "mask"])
def test_numbers_from_a_seed_are_the_same_again(values: Any) -> None:
    spec = TensorSpec(shape=(50, 2), values=values, scale=2.0)
    rows = [to_numbers(f"{number:064x}", "x_0", spec) for number in range(20)]
    assert all((row == to_numbers(f"{number:064x}", "x_0", spec)).all() for number, row in enumerate(rows))
    assert rows[0].shape == (50, 2) and rows[0].dtype == np.float32
    if values == "normal":
        assert abs(np.std(rows) - 2.0) < 0.1
    elif values == "uniform":
        assert 1.9 < np.abs(rows).max() <= 2.0
    elif values == "mask":
        lengths = {int(row[:, 0].sum()) for row in rows}
        assert len(lengths) > 5 and min(lengths) >= 1
        assert all((np.diff(row[:, 0]) <= 0).all() for row in rows)
    else:
        assert np.unique(rows).tolist() == [1.0]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"audio": {"sample_rate": 16_000}}, r"inputs.x.audio.seconds"),
        ({"text": {"tokenizer": "t", "max_length": 0}}, r"inputs.x.text.max_length"),
        ({"tensor": {"shape": [2], "values": "zeros"}}, r"inputs.x.tensor.values"),
        ({"video": {}}, "image, audio, text, tensor"),
        ({"audio": {}, "text": {}}, "should have one key"),
    ],
)
def test_a_description_that_is_not_understood_names_its_place(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        parse_input_spec("x", spec)
