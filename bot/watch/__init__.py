"""Decides which recipes are due. Nothing here asks a Hub or reads a file: facts in, findings out."""
