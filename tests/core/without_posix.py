"""`python without_posix.py MODULE WORDS...`: `python -m MODULE WORDS...` without what Windows lacks.

Our own modules can neither import the modules in ABSENT nor read the names in LACKING. The libraries can: they are
those of this system.
"""

from __future__ import annotations

import builtins
import mmap
import os
import runpy
import signal
import sys
from collections.abc import Callable
from typing import Any

ABSENT = ("fcntl", "resource", "pwd", "grp", "termios", "pty")
LACKING = {
    os: "fork forkpty killpg getuid geteuid getgid getegid getpgid setsid sched_getaffinity fchmod chown".split(),
    signal: "SIGKILL SIGHUP SIGALRM setitimer pthread_kill".split(),
    mmap: "PROT_READ PROT_WRITE MAP_SHARED".split(),
}
OURS = ("core", "mcp_server", "prompts", "workflows", "analysis", "scripts", "single_turn_bench", "program", "__main__")


def is_ours(names: dict[str, Any]) -> bool:
    return names.get("__name__", "").split(".")[0] in OURS


def hiding(module: str, hidden: dict[str, Any]) -> Callable[[str], Any]:
    """A module's __getattr__, which has these names for the libraries alone."""

    def found(name: str) -> Any:
        if name not in hidden or is_ours(sys._getframe(1).f_globals):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return hidden[name]

    return found


def take_away() -> None:
    ordinary = builtins.__import__

    def importing(name, globals=None, *rest, **named):
        if name.split(".")[0] in ABSENT and is_ours(globals or {}):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return ordinary(name, globals, *rest, **named)

    builtins.__import__ = importing
    for module, names in LACKING.items():
        module.__getattr__ = hiding(module.__name__, {name: module.__dict__.pop(name) for name in names})


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    take_away()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
