"""Publishes converted models on the Hugging Face Hub: nothing unproven, no number typed by hand."""

__version__ = "0.1.0"
