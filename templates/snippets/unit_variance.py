sound = (sound - sound.mean()) / (sound.var() + 1e-7) ** 0.5  # noqa: F821
