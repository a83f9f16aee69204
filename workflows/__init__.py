"""Workflows: the loop (reasoningbank.py), its variants, and the stream of tasks that runs it."""
