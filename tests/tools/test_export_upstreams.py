"""The upstreams of the recipes that export from torch: sounds in pieces, texts in lines, random weights that say so."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path

import export_upstreams
import make_random_torch
import numpy as np
import pytest

from bot.graph.export.weights import read_weights


def sound(samples: int, rate: int = 100) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(np.arange(samples, dtype="<i2").tobytes())
    return stream.getvalue()


def test_a_sound_is_cut_into_whole_pieces() -> None:
    found = export_upstreams.pieces(sound(505))
    frames = []
    for piece in found:
        with wave.open(io.BytesIO(piece)) as file:
            assert (file.getframerate(), file.getnframes()) == (100, 200)
            frames.append(np.frombuffer(file.readframes(200), "<i2"))
    assert (np.concatenate(frames) == np.arange(400)).all()
    assert export_upstreams.pieces(sound(199)) == []


def test_paragraphs_are_lines_of_plain_text() -> None:
    page = "<h1>No</h1><p>One\n two&amp;three</p><p></p><ul><li>no</li></ul><p>four</p>"
    assert export_upstreams.paragraphs(page) == ["One two&three", "four"]


@pytest.mark.parametrize("architecture", ["bert", "dinov2", "wavlm"])
def test_a_random_model_says_so_and_is_the_same_again(tmp_path: Path, architecture: str) -> None:
    config, weights = make_random_torch.write(architecture, "tiny", 0, tmp_path / "a")
    again = make_random_torch.write(architecture, "tiny", 0, tmp_path / "b")
    other = make_random_torch.write(architecture, "tiny", 1, tmp_path / "c")
    assert json.loads(config.read_text())["model_type"] == architecture
    first, second, third = (read_weights(path) for path in (weights, again[1], other[1]))
    assert first.random
    assert all((value == second.tensors[name]).all() for name, value in first.tensors.items())
    assert any((value != third.tensors[name]).any() for name, value in first.tensors.items())


def test_nothing_is_written_to_a_hub_that_is_not_on_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    assert export_upstreams.main(["--endpoint", "https://hub.example", "--token-file", str(token)]) == 2
    assert "not on this machine" in capsys.readouterr().err
