"""The standard streams of a program as its surroundings leave them: closed, broken, or not in UTF-8.

What is printed to them is printable (core/escaping.py) and holds no secret (core/redact.py), whoever wrote it:
`open_standard_streams` sees to that.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from typing import Any

from core.redact import shown

_NAMES = ("stdin", "stdout", "stderr")


def open_standard_streams() -> None:
    """Call first in a program, before it opens anything.

    A service or a launcher may start it with closed streams. Then the next file that is opened, such as the bank's
    journal, would get the number 1 or 2, and what other code prints would be written into it. A text that the stream's
    encoding lacks is written as an escape instead of ending the program.
    """
    for number in range(len(_NAMES)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    for number, name in enumerate(_NAMES):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="backslashreplace")
    print_printable()


class Printable:
    """A text stream to which only printable text is written; in all else the stream that it stands before.

    A carriage return at the beginning stays: a library's progress line goes back to its beginning with it. Bytes
    (`buffer`) are not looked at: they are for programs.
    """

    def __init__(self, stream: Any) -> None:
        # The Console of rich writes to a stream of this name; it has sequences of its own (core/console.py).
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        lead = "\r" if text.startswith("\r") else ""
        self.rich_proxied_file.write(lead + shown(text.removeprefix("\r")))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def unfiltered(stream: Any) -> Any:
    """The stream for our own control sequences: behind `Printable`, and what rich puts before it while it is live."""
    while (behind := getattr(stream, "rich_proxied_file", None)) is not None:
        stream = behind
    return stream


def print_printable() -> None:
    """Let stdout and stderr be `Printable`, also after rich has put its own stream, which reads sequences, before."""
    for name in _NAMES[1:]:
        if not isinstance(stream := getattr(sys, name), Printable):
            setattr(sys, name, Printable(stream))


class _GoesOn(io.FileIO):
    """A stream for output that nobody may read any more: what cannot be written is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def go_on_without_readers() -> None:
    """For a long run: `| head` or a full disk behind stdout or stderr ends what it prints, and not the run."""
    for number, name in enumerate(_NAMES[1:], 1):
        old = getattr(sys, name)
        raw = io.BufferedWriter(_GoesOn(number, "w", closefd=False))
        new = io.TextIOWrapper(raw, old.encoding, "backslashreplace", line_buffering=number == 2 or old.isatty())
        setattr(sys, name, new)
    print_printable()


def reader_is_gone() -> int:
    """End writing to stdout after a BrokenPipeError, as of `| head`: returns the exit code."""
    _drop_output()
    return 0


def cannot_print(error: OSError) -> int:
    """Say that stdout cannot be written, as on a full disk; returns the exit code. Any other error is raised again."""
    if error.filename is not None:
        raise error
    _drop_output()
    print(f"error: what this prints cannot be written: {error.strerror}.", file=sys.stderr)
    return 2


def _drop_output() -> None:
    """Python would write what is left in the buffer at its end, and complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
