"""Sounds: WAV files of every kind, and resampling that keeps what it should and nothing else."""

from __future__ import annotations

import io
import struct
import wave
from typing import Any

import numpy as np
import pytest

from bot.measure.sounds import AudioSpec, Sound, SoundError, decode_wav, resample, to_waveform

TONE = np.sin(2 * np.pi * 440 * np.arange(1600) / 16_000) * 0.5


def wav(values: Any, *, kind: int = 1, bits: int = 16, rate: int = 16_000, extensible: bool = False) -> bytes:
    """A WAV file of these values, [samples] or [samples, channels]."""
    frames = np.asarray(values, np.float64)
    frames = frames[:, None] if frames.ndim == 1 else frames
    if kind == 3:
        body = frames.astype(f"<f{bits // 8}").tobytes()
    elif bits == 8:
        body = np.round(frames * 128 + 128).clip(0, 255).astype(np.uint8).tobytes()
    elif bits == 24:
        whole = np.round(frames * 2**23).clip(-(2**23), 2**23 - 1).astype("<i4")
        body = whole.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    else:
        body = (
            np.round(frames * 2.0 ** (bits - 1))
            .clip(-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)
            .astype(f"<i{bits // 8}")
            .tobytes()
        )
    channels = frames.shape[1]
    step = channels * bits // 8
    form = struct.pack("<HHIIHH", 0xFFFE if extensible else kind, channels, rate, rate * step, step, bits)
    if extensible:
        form += struct.pack("<HHIH14s", 22, bits, 0, kind, bytes(14))
    odd = struct.pack("<4sI", b"LIST", 3) + b"abc\0"  # a chunk of odd length, with its padding
    chunks = struct.pack("<4sI", b"fmt ", len(form)) + form + odd + struct.pack("<4sI", b"data", len(body)) + body
    return struct.pack("<4sI4s", b"RIFF", len(chunks) + 4, b"WAVE") + chunks


@pytest.mark.parametrize(
    ("kind", "bits", "error"),
    [(1, 8, 1 / 128), (1, 16, 1 / 2**15), (1, 24, 1 / 2**22), (1, 32, 1e-7), (3, 32, 1e-7), (3, 64, 1e-7)],
)
@pytest.mark.parametrize("extensible", [False, True])
def test_every_encoding_gives_the_same_sound(kind: int, bits: int, error: float, extensible: bool) -> None:
    two = np.stack([TONE, -0.25 * TONE], axis=1)
    sound = decode_wav(wav(two, kind=kind, bits=bits, extensible=extensible))
    assert sound.rate == 16_000 and sound.samples.shape == (2, 1600) and sound.samples.dtype == np.float32
    np.testing.assert_allclose(sound.samples, two.T, atol=error)


def test_what_the_standard_library_writes_is_read() -> None:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.array([0, 16384, -32768, 32767], "<i2").tobytes())
    np.testing.assert_allclose(decode_wav(stream.getvalue()).samples, [[0, 0.5, -1, 32767 / 32768]])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no WAV file"),
        (b"OggS" + bytes(60), "no WAV file"),
        (wav(TONE)[:40], "broken file"),
        (wav(TONE)[:30] + bytes(20), "broken file"),
        (wav([], bits=16), "empty"),
        (wav(TONE, rate=10), "make no sense"),
        (wav(TONE, rate=2**30), "make no sense"),
        (wav(np.zeros((1, 60))), "make no sense"),
        (wav(TONE, kind=3, bits=32).replace(struct.pack("<f", TONE[1]), struct.pack("<f", np.nan)), "not finite"),
        (wav(TONE).replace(struct.pack("<HH", 1, 1), struct.pack("<HH", 7, 1), 1), "encoding"),
        (
            wav(np.zeros(4000), rate=1000).replace(
                b"data" + struct.pack("<I", 8000), b"data" + struct.pack("<I", 2**32 - 1)
            ),
            "",
        ),
    ],
)
def test_a_broken_file_is_one_of_a_few_reasons(data: bytes, says: str) -> None:
    if not says:  # a length that goes beyond the file, as programs write that cannot seek: what is there counts
        assert decode_wav(data).samples.shape == (1, 4000)
        return
    with pytest.raises(SoundError, match=says):
        decode_wav(data)


@pytest.mark.parametrize(
    ("rate", "wanted"), [(8000, 16_000), (16_000, 8000), (44_100, 16_000), (16_000, 22_050), (48_000, 16_000)]
)
def test_a_tone_is_the_same_tone_at_another_rate(rate: int, wanted: int) -> None:
    seconds = 0.5
    frequency = 0.4 * min(rate, wanted) / 2
    values = np.sin(2 * np.pi * frequency * np.arange(int(seconds * rate)) / rate)
    found = resample(values, rate, wanted)
    assert len(found) == -(-len(values) * wanted // rate)
    expected = np.sin(2 * np.pi * frequency * np.arange(len(found)) / wanted)
    edge = len(found) // 10
    assert np.abs(found - expected)[edge:-edge].max() < 2e-3


def test_what_the_lower_rate_cannot_hold_is_gone() -> None:
    """A tone above half of the lower rate would come back as another one."""
    values = np.sin(2 * np.pi * 6000 * np.arange(16_000) / 16_000)
    assert np.abs(resample(values, 16_000, 8000)[400:-400]).max() < 1e-3


def test_a_constant_stays_one() -> None:
    assert np.abs(resample(np.ones(4410), 44_100, 16_000)[50:-50] - 1).max() < 1e-3


def test_a_row_has_one_length_and_one_channel() -> None:
    sound = Sound(np.stack([TONE, np.zeros(1600)]).astype(np.float32), 16_000)
    spec = AudioSpec(sample_rate=16_000, seconds=0.2)
    row = to_waveform(sound, spec)
    assert row.shape == (3200,) == spec.row_shape and row.dtype == np.float32
    np.testing.assert_allclose(row[:1600], TONE / 2, atol=1e-6)
    assert not row[1600:].any()
    first = to_waveform(sound, AudioSpec(sample_rate=16_000, seconds=0.05, channels="first"))
    np.testing.assert_allclose(first, TONE[:800], atol=1e-6)


def test_only_the_sound_itself_is_normalised() -> None:
    sound = Sound((TONE[None] + 3).astype(np.float32), 16_000)
    row = to_waveform(sound, AudioSpec(sample_rate=16_000, seconds=0.2, normalize="zero-mean-unit-variance"))
    assert abs(row[:1600].mean()) < 1e-5 and abs(row[:1600].std() - 1) < 1e-4 and not row[1600:].any()


def test_a_short_sound_is_passed_over() -> None:
    sound = Sound(TONE[None].astype(np.float32), 16_000)
    with pytest.raises(SoundError, match="minimum_seconds"):
        to_waveform(sound, AudioSpec(sample_rate=16_000, seconds=1, minimum_seconds=0.5))
