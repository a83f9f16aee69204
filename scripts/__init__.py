"""Thin entries: python -m scripts.NAME --help."""
