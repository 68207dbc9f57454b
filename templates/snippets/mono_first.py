sound = sound[0]  # noqa: F821
