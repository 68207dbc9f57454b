"""Licences upstream: what a repository declares, what its texts are, and what of that somebody has reviewed."""
