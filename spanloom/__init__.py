"""Spanloom trains T5-family encoder-decoder models, from raw text to a model that Hugging Face loads."""

__version__ = "0.1.0"
