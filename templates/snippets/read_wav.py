import wave

import numpy as np


def read_wav(path, rate):
    """A sound of 16-bit PCM at this rate: its samples in -1..1, a row for each channel."""
    with wave.open(path) as sound:
        if sound.getsampwidth() != 2 or sound.getframerate() != rate:
            raise SystemExit(f"{path} should be 16-bit PCM at {rate} Hz")
        frames = np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
        return frames.reshape(-1, sound.getnchannels()).T / 32768
