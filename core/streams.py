"""The standard streams of a program as its surroundings leave them: closed, broken, or not in UTF-8."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_NAMES = ("stdin", "stdout", "stderr")


def open_standard_streams() -> None:
    """Call first in a program, before it opens anything.

    A service or a launcher may start it with closed streams. Then the next file that is opened, such as the bank's
    journal, would get the number 1 or 2, and what other code prints would be written into it. A text that the stream's
    encoding lacks is written as an escape instead of ending the program.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w" if number else "r", encoding="utf-8"))  # noqa: SIM115 - stays open
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def reader_is_gone() -> int:
    """End writing to stdout after a BrokenPipeError, as of `| head`: returns the exit code.

    Python would write what is left in the buffer at its end, and complain again.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0
