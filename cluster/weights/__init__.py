"""Formats of weight files as pure functions on bytes: where a tensor lies, which rows a rank owns."""
