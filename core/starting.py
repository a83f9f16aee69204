"""The first seconds of a program: a line that says what is being loaded, and a Ctrl-C that is one sentence.

It imports nothing of size, so that it can be the first import of a program.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SHOWS = ("-h", "--h", "-c", "--cf", "-i", "--i", "-s", "--s", "--v")  # flags of Hydra that print something and end
_BACK = "\r\x1b[2K"  # to the line's beginning, and all of it blank


def begin(doing: str) -> None:
    """The program has started: say so at once, and let Ctrl-C end it with "stopped." and exit status 130.

    Without a terminal this line is the only one: `stage` and `started` write nothing there.
    """
    stop_quietly()
    if sys.stderr.isatty():
        stage(doing)
    elif not any(word.startswith(_SHOWS) for word in sys.argv[1:]):
        print(f"{doing} ...", file=sys.stderr, flush=True)


def stop_quietly() -> None:
    """Ctrl-C ends the program at once with "stopped." and exit status 130: nothing is open yet that must be closed."""
    signal.signal(signal.SIGINT, _stop)


def stop_in_order() -> None:
    """After `stop_quietly`: Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def stage(doing: str) -> None:
    """In a terminal, what is done now takes the place of the line before."""
    if sys.stderr.isatty() and not any(word.startswith(_SHOWS) for word in sys.argv[1:]):
        print(f"{_BACK}{doing} ...", end="", file=sys.stderr, flush=True)


def started() -> None:
    """In a terminal, the line goes: whatever follows has the screen to itself."""
    if sys.stderr.isatty():
        print(_BACK, end="", file=sys.stderr, flush=True)


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Around what takes seconds in the midst of a run: the progress line and main.log say so."""
    log, began = logging.getLogger("run.loading"), time.monotonic()
    log.info("loading %s", what, extra={"doing": f"loading {what}"})
    try:
        yield
    finally:
        log.info("%s: loaded in %.1f s", what, time.monotonic() - began, extra={"doing": ""})


def _stop(_number: int, _frame: object) -> None:
    """Without an exception, because an import that is cut short can make anything of it."""
    os.write(2, b"\nstopped.\n")
    os._exit(130)
