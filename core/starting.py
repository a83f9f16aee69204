"""The first seconds of a program: a line that says what is being loaded, and a short message on Ctrl-C.

Imports nothing large, so that it can be a program's first import.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from core.streams import unfiltered

_ROOT = Path(__file__).resolve().parents[1]

_SHOWS = ("-h", "--h", "-c", "--cf", "-i", "--i", "-s", "--s", "--v")  # flags of Hydra that print something and end
_LEAST_MEMORY = 600 << 20  # bytes of address space; the smallest run needs 520 MiB on two cores
_BACK = "\r\x1b[2K"  # to the line's beginning, and all of it blank


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
    elif not any(word.startswith(_SHOWS) for word in sys.argv[1:]):
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


def stop_quietly() -> None:
    """Let Ctrl-C end the program immediately, with "stopped." and exit status 130: nothing needs cleanup yet."""
    signal.signal(signal.SIGINT, _stop)


def stop_in_order() -> None:
    """Undo `stop_quietly`: Ctrl-C raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def stage(doing: str) -> None:
    """In a terminal, replace the current line by what the program does now."""
    if sys.stderr.isatty() and not any(word.startswith(_SHOWS) for word in sys.argv[1:]):
        print(f"{_BACK}{doing} ...", end="", file=unfiltered(sys.stderr), flush=True)


def started() -> None:
    """In a terminal, clear the line of `stage`."""
    if sys.stderr.isatty():
        print(_BACK, end="", file=unfiltered(sys.stderr), flush=True)


@contextmanager
def loading(what: str) -> Iterator[None]:
    """A context for loading something large during a run: the progress line and main.log show it."""
    log, began = logging.getLogger("run.loading"), time.monotonic()
    log.info("loading %s", what, extra={"doing": f"loading {what}"})
    try:
        yield
    finally:
        log.info("%s: loaded in %.1f s", what, time.monotonic() - began, extra={"doing": ""})


def _stop(_number: int, _frame: object) -> None:
    """Exits without an exception, which an interrupted import could turn into any other."""
    os.write(2, b"\nstopped.\n")
    os._exit(130)
