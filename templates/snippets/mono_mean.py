sound = sound.mean(axis=0)  # noqa: F821
