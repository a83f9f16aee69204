"""The commands of the project: reasoningbank NAME --help."""

import sys

from core.terminal import need_packages, stop_quietly

if sys.argv[:1] == ["-m"]:
    stop_quietly()  # a script is being started: its imports may take seconds
    if "scripts.doctor" not in sys.orig_argv:  # which says what is missing
        need_packages()
