"""The examples for sounds run as they stand, and prepare a sound as the samples of the measurements were."""

from __future__ import annotations

import io
import re
import runpy
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from releases import release_of, template

from bot.card.card import render_card
from bot.measure.sounds import AudioSpec, decode_wav, to_waveform
from bot.recipe import load_recipe
from bot.records import Release, TensorSignature

ROOT = Path(__file__).parents[2]


def spoken(plan: dict[str, Any]) -> Release:
    """A release of the recipe for WavLM whose input is filled in this way."""
    release = release_of(load_recipe(ROOT / "recipes" / "wavlm-base-plus"))
    artifact = release.artifact("fp32")
    signature = artifact.signature.model_copy(
        update={"inputs": (TensorSignature(name="waveform", dtype="float32", shape=("batch", "samples")),)}
    )
    artifact = artifact.model_copy(update={"signature": signature})
    declared = {**release.declared, "inputs": {"waveform": {"audio": plan}}}
    return release.model_copy(update={"artifacts": (artifact,), "declared": declared, "withheld": ()})


def stereo() -> bytes:
    values = np.random.default_rng(0).integers(-3000, 3000, (1600, 2), dtype=np.int16)
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((2, 2, 16_000, 0, "NONE", ""))
        file.writeframes(values.astype("<i2").tobytes())
    return stream.getvalue()


def write_echo(path: Path) -> None:
    """A graph that gives back the waveform it is fed."""
    value = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "samples"])
        for name in ("waveform", "features")
    ]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["waveform"], ["features"])], "echo", [value[0]], [value[1]]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


@pytest.mark.parametrize("channels", ["mean", "first"])
@pytest.mark.parametrize("normalize", ["none", "zero-mean-unit-variance"])
def test_it_prepares_as_the_measurements_do(
    channels: str, normalize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"sample_rate": 16_000, "seconds": 0.1, "minimum_seconds": 0.0, "channels": channels, "normalize": normalize}
    release = spoken(plan)
    card = render_card(release, template=template(release.recipe), template_name="x/card.md.j2").text
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    sound = tmp_path / "speech.wav"
    sound.write_bytes(stereo())
    write_echo(tmp_path / release.artifacts[0].file)
    script = tmp_path / "example.py"
    script.write_text(code)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repo, file: str(tmp_path / file))
    monkeypatch.setattr(sys, "argv", ["example.py", str(sound)])
    found = runpy.run_path(str(script))["outputs"]["features"]
    expected = to_waveform(decode_wav(sound.read_bytes()), AudioSpec.model_validate(plan))
    np.testing.assert_allclose(found[0], expected, atol=1e-5)
    assert ("its first channel" in card) == (channels == "first")
    assert ("standard deviation" in " ".join(card.split())) == (normalize != "none")


@pytest.mark.parametrize(("bits", "rate"), [(1, 16_000), (2, 8000)])
def test_a_sound_of_another_kind_is_refused_in_words(
    bits: int, rate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bot.card.environment import templates_folder

    sound = tmp_path / "speech.wav"
    with wave.open(str(sound), "wb") as file:
        file.setparams((1, bits, rate, 0, "NONE", ""))
        file.writeframes(bytes(200))
    read_wav = runpy.run_path(str(templates_folder() / "snippets" / "read_wav.py"))["read_wav"]
    with pytest.raises(SystemExit, match="should be 16-bit PCM at 16000 Hz"):
        read_wav(str(sound), 16_000)
