"""From a sound file that nobody vouches for to the waveform that a network takes.

WAV files are read here by hand: the standard library's reader knows no floating point and, before Python 3.12, no
WAVE_FORMAT_EXTENSIBLE. Resampling is by a windowed sinc: the band limit is half of the lower rate, the window Kaiser's.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from bot.records import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BYTES = 256 * 1024 * 1024
MAX_SECONDS = 3600
RATES = (1_000, 384_000)
MAX_CHANNELS = 32

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_ZEROS = 16
"""Zero crossings of the sinc on each side, counted at the lower rate."""

_KAISER_BETA = 8.0
"""Stop band at about -80 dB (Kaiser's formula: 0.1102 (A - 8.7) with A = 81)."""


class SoundError(Exception):
    """A sound cannot be used. Its text is one of a few fixed reasons, so that they can be counted."""


class AudioSpec(Record):
    """How a network wants its sounds: one channel, a fixed length.

    Attributes:
        sample_rate: In Hz; sounds of other rates are resampled.
        seconds: Length of a row: longer sounds are cut from the beginning, shorter ones followed by silence.
        minimum_seconds: Shorter sounds are passed over.
        channels: `mean` mixes all channels into one; `first` takes the first.
        normalize: `none`, or `zero-mean-unit-variance` over the sound itself, silence behind it not counted (the
            feature extractors of wav2vec 2.0 and its kin do that where they are told to).
    """

    sample_rate: int = Field(ge=RATES[0], le=RATES[1])
    seconds: float = Field(gt=0.0, le=600.0)
    minimum_seconds: float = Field(default=0.0, ge=0.0)
    channels: Literal["mean", "first"] = "mean"
    normalize: Literal["none", "zero-mean-unit-variance"] = "none"

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return (round(self.seconds * self.sample_rate),)

    @property
    def dtype(self) -> str:
        """Of one sample."""
        return "<f4"


@dataclass(frozen=True)
class Sound:
    """A decoded sound.

    Attributes:
        samples: float32 [channels, samples], in -1..1.
        rate: In Hz.
    """

    samples: NDArray[Any]
    rate: int


def decode_wav(data: bytes) -> Sound:
    """Decodes a WAV file: PCM of 8, 16, 24 or 32 bits, or floating point of 32 or 64, up to 32 channels.

    Raises:
        SoundError: It is too large, broken, of a kind that is not read here, empty, or not finite.
    """
    import numpy as np

    if len(data) > MAX_BYTES:
        raise SoundError("file too large")
    kind, channels, rate, bits, body = _chunks(data)
    if not RATES[0] <= rate <= RATES[1] or not 1 <= channels <= MAX_CHANNELS:
        raise SoundError("rate or channels make no sense")
    width = bits // 8
    count = len(body) // (width * channels) if width else 0
    if not count:
        raise SoundError("empty")
    if count > MAX_SECONDS * rate:
        raise SoundError("too long")
    values = _values(body[: count * width * channels], kind, bits)
    if not np.isfinite(values).all():
        raise SoundError("not finite")
    return Sound(np.ascontiguousarray(values.reshape(count, channels).T, dtype=np.float32), rate)


def _chunks(data: bytes) -> tuple[int, int, int, int, bytes]:
    """Kind, channels, rate and bits of the `fmt ` chunk, and the content of the `data` chunk."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise SoundError("no WAV file")
    place, form = 12, None
    while place + 8 <= len(data):
        name, size = data[place : place + 4], struct.unpack_from("<I", data, place + 4)[0]
        body = data[place + 8 : place + 8 + size]
        if name == b"fmt " and len(body) >= 16:
            kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
            if kind == _EXTENSIBLE and len(body) >= 26:
                kind = struct.unpack_from("<H", body, 24)[0]
            form = (kind, channels, rate, bits)
        elif name == b"data" and form is not None:
            return (*form, body)
        place += 8 + size + size % 2
    raise SoundError("broken file")


def _values(body: bytes, kind: int, bits: int) -> Any:
    import numpy as np

    if kind == _FLOAT and bits in (32, 64):
        return np.frombuffer(body, f"<f{bits // 8}")
    if kind == _PCM and bits == 8:  # the one width that is unsigned
        return (np.frombuffer(body, np.uint8).astype(np.float32) - 128.0) / 128.0
    if kind == _PCM and bits in (16, 32):
        return np.frombuffer(body, f"<i{bits // 8}").astype(np.float64) / 2.0 ** (bits - 1)
    if kind == _PCM and bits == 24:
        parts = np.frombuffer(body, np.uint8).reshape(-1, 3).astype(np.int32)
        whole = parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16
        return (whole - ((whole & 0x800000) << 1)).astype(np.float64) / 2.0**23
    raise SoundError("an encoding that is not read here")


def to_waveform(sound: Sound, spec: AudioSpec) -> Any:
    """One sample for a network: float32 [seconds · sample_rate].

    Raises:
        SoundError: The sound is shorter than `minimum_seconds`.
    """
    import numpy as np

    if sound.samples.shape[1] < spec.minimum_seconds * sound.rate:
        raise SoundError("shorter than minimum_seconds")
    mono = sound.samples[0] if spec.channels == "first" else sound.samples.mean(axis=0, dtype=np.float64)
    length = spec.row_shape[0]
    # Resampling the whole of a long sound, most of which is cut off, would be for nothing.
    needed = math.ceil((length / spec.sample_rate + 1.0) * sound.rate)
    values = resample(np.asarray(mono[:needed], np.float64), sound.rate, spec.sample_rate)[:length]
    if spec.normalize == "zero-mean-unit-variance":
        values = (values - values.mean()) / np.sqrt(values.var() + 1e-7)
    row = np.zeros(length, np.float32)
    row[: len(values)] = values
    return row


def resample(values: Any, rate: int, wanted: int) -> Any:
    """A waveform at another rate.

    Args:
        values: float64 [samples].
        rate: Its rate, in Hz.
        wanted: The other one.

    Returns:
        float64 [ceil(samples · wanted / rate)], in phase with the original.
    """
    import numpy as np

    if rate == wanted:
        return values
    divisor = math.gcd(rate, wanted)
    up, down = wanted // divisor, rate // divisor
    taps, reach = _filters(up, down)
    count = -(-len(values) * up // down)
    padded = np.pad(values, (reach, reach + 1))
    # Output n lies at n * down / up between two input samples: one of `up` sets of weights, over 2 * reach inputs.
    place = np.arange(count) * down
    first, phase = place // up, place % up
    offsets = np.arange(1, 2 * reach + 1)
    result = np.empty(count)
    for start in range(0, count, 1 << 16):
        part = slice(start, start + (1 << 16))
        window = padded[np.minimum(first[part, None] + offsets, len(padded) - 1)]
        result[part] = (window * taps[phase[part]]).sum(axis=1)
    return result


@lru_cache(maxsize=8)
def _filters(up: int, down: int) -> tuple[Any, int]:
    """Weights [up, 2 * reach] of the inputs around an output, per phase, and how many lie on each side."""
    import numpy as np

    cutoff = min(1.0, up / down)
    reach = math.ceil(_ZEROS / cutoff)
    # Distance from the output to input k of its window, in input samples.
    distance = np.arange(1 - reach, reach + 1)[None] - np.arange(up)[:, None] / up
    inside = np.clip(1 - (distance / reach) ** 2, 0.0, None)
    taps = cutoff * np.sinc(cutoff * distance) * np.i0(_KAISER_BETA * np.sqrt(inside)) / np.i0(_KAISER_BETA)
    return taps / taps.sum(axis=1, keepdims=True), reach
