"""The terminal of a program: its standard streams, whatever their state, and what it says in its first seconds.

Imports nothing large, so that it can be a program's first import. There are six ways to tell the user something:

    print                   what a command was asked for, to stdout; its one sentence of error, to stderr
    say_once                a note on files that are read, to stderr, once in a process
    logger run.notices      what the user of a run must know: on the screen, and in main.log
    logger actions          what an agent does, as it does it: on the screen alone
    the other loggers run.* what happened in a run: in main.log alone
    a module's own logger   what happened to a bank or a server, with or without a run

All of it is printable (core/escaping.py) and holds no secret (core/redact.py), whoever wrote it: that is seen to by
`open_standard_streams`, and by a filter on each handler of a log.
"""

from __future__ import annotations

import io
import logging
import os
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.redact import shown

_ROOT = Path(__file__).resolve().parents[1]
_NAMES = ("stdin", "stdout", "stderr")
_SIZES, _LEAST_SIZE = ("COLUMNS", "LINES"), 20
_SHOWS = ("-h", "--h", "-c", "--cf", "-i", "--i", "-s", "--s", "--v")  # flags of Hydra that print something and end
_LEAST_MEMORY = 600 << 20  # bytes of address space; the smallest run needs 520 MiB on two cores
_FILES_OF_A_CALL, _SPARE_FILES = 2, 16  # its connection, and what its task has open; besides what is open already
_BACK = "\r\x1b[2K"  # to the line's beginning, and all of it blank


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
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    for name in _SIZES:  # 0 in build servers and editors, where nothing would be printed: the terminal is asked
        if not os.environ.get(name, "").isdecimal() or int(os.environ[name]) < _LEAST_SIZE:
            os.environ.pop(name, None)
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
            _drop_output(self.fileno())
            return len(data)


def go_on_without_readers() -> None:
    """For a long run: `| head` or a full disk behind stdout or stderr ends what it prints, and not the run."""
    for number, name in enumerate(_NAMES[1:], 1):
        old = getattr(sys, name)
        raw = io.BufferedWriter(_GoesOn(number, "w", closefd=False))
        new = io.TextIOWrapper(raw, old.encoding, "backslashreplace", line_buffering=number == 2 or old.isatty())
        setattr(sys, name, new)
    print_printable()


def after_output_failed(error: OSError) -> int:
    """The exit code of a command that cannot write to stdout: 0 if its reader is gone, as of `| head`; else 2.

    The latter is said. An error about a file is raised again.
    """
    if error.filename is not None:
        raise error
    _drop_output(1)
    if isinstance(error, BrokenPipeError):
        return 0
    print(f"error: what this prints cannot be written: {error.strerror}.", file=sys.stderr)
    return 2


def _drop_output(number: int) -> None:
    """Python would write what is left in the buffer at its end, and complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)


# The first seconds: a line that says what is being loaded, and a short message on Ctrl-C.


def need_packages() -> None:
    """End the program with one sentence where this Python lacks the project's packages."""
    if find_spec("hydra") is not None:
        return
    made = _ROOT / ".venv" / ("Scripts" if os.name == "nt" else "bin")
    if made.is_dir() and made != Path(sys.prefix):
        cure = f"run it by {made / 'python'}, or activate its environment: source {made / 'activate'}"
    else:
        cure = "`make run` in a checkout installs them"
    sys.exit(f"error: the Python {sys.executable} lacks the project's packages: {cure}.")


def begin(doing: str) -> None:
    """Print that the program has started, and let Ctrl-C end it with "stopped." and exit status 130.

    Without a terminal this is the only line: `stage` and `started` then print nothing.
    """
    stop_quietly()
    if sys.stderr.isatty():
        stage(doing)
    elif not _shows():
        print(f"{doing} ...", file=sys.stderr, flush=True)


def refuse_little_memory() -> None:
    """End the program if `ulimit -v` leaves too little: libraries would end it by a segmentation fault."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_MEMORY:
        sys.exit(
            f"error: this process may use {limit >> 20} MiB of memory (ulimit -v), and this program needs "
            f"{_LEAST_MEMORY >> 20} MiB or more: raise the limit."
        )


def check_open_files(calls: int, setting: str) -> None:
    """Raise this process's limit of open files as far as so many calls at once need; UserError where it cannot be."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    now = len([*Path("/dev/fd").iterdir()]) + _SPARE_FILES
    if not 0 <= soft < (need := now + _FILES_OF_A_CALL * calls):  # -1: no limit
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    except (ValueError, OSError):
        raise UserError(
            f"{setting}: so many calls at once may need {need} open files, and this process may have {soft} "
            f"(ulimit -n): raise that, or give at most {max(1, (soft - now) * calls // (need - now))}."
        ) from None


def stop_quietly() -> None:
    """Let Ctrl-C end the program immediately, with "stopped." and exit status 130: nothing needs cleanup yet."""
    signal.signal(signal.SIGINT, _stop)


def stop_in_order() -> None:
    """Undo `stop_quietly`: Ctrl-C raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(_number: int, _frame: object) -> None:
    """Exits without an exception, which an interrupted import could turn into any other."""
    os.write(2, b"\nstopped.\n")
    os._exit(130)


def stage(doing: str) -> None:
    """In a terminal, replace the current line by what the program does now."""
    if sys.stderr.isatty() and not _shows():
        print(f"{_BACK}{doing} ...", end="", file=unfiltered(sys.stderr), flush=True)


def started() -> None:
    """In a terminal, clear the line of `stage`."""
    if sys.stderr.isatty():
        print(_BACK, end="", file=unfiltered(sys.stderr), flush=True)


def _shows() -> bool:
    return any(word.startswith(_SHOWS) for word in sys.argv[1:])


def prose(text: str) -> str:
    """A text to read, whose lines a terminal would break within words. Indented ones, tables and commands, stay."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(line if line.startswith("  ") else wrapper.fill(line) for line in text.split("\n"))


@contextmanager
def loading(what: str) -> Iterator[None]:
    """A context for loading something large during a run: the progress line and main.log show it."""
    log, began = logging.getLogger("run.loading"), time.monotonic()
    log.info("loading %s", what, extra={"doing": f"loading {what}"})
    try:
        yield
    finally:
        log.info("%s: loaded in %.1f s", what, time.monotonic() - began, extra={"doing": ""})


@cache  # many files of many runs would say the same
def say_once(text: str) -> None:
    """Print a note about files that are read to stderr, once in a process."""
    print(shown(text), file=sys.stderr, flush=True)


def n_said() -> int:
    """How many notes there were to print, those that had been printed before too."""
    known = say_once.cache_info()
    return known.hits + known.misses
