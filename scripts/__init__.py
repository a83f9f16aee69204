"""Thin entries: python -m scripts.NAME --help."""

import sys

from core.starting import stop_quietly

if sys.argv[:1] == ["-m"] and not any(word.startswith("benchmarks") for word in sys.orig_argv):
    stop_quietly()  # a script is being started: its imports may take seconds
