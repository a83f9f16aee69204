"""Workflows: the loop (base.py), its variants, and the stream of tasks that runs it."""
