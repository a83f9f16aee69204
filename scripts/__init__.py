"""Thin entries: python -m scripts.NAME --help."""

import sys

from core.starting import stop_quietly

if sys.argv[:1] == ["-m"]:
    stop_quietly()  # a script is being started: its imports may take seconds
