"""What the tests of the web share: an env in a real browser, and which processes it leaves behind."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from envs.web.browser import installed
from envs.web.miniwob_env import MiniwobEnv

FAST = {"slow_mo_ms": 0, "settle_s": 0.05}  # enough for pages that nothing moves on
needs_browser = [
    pytest.mark.skipif(
        find_spec("browsergym") is None or find_spec("miniwob") is None, reason="the extra web is not installed"
    ),
    pytest.mark.skipif(installed() is None, reason="no Chromium is installed (apt-get install chromium)"),
]


def make(folder: Path, *kinds: str, seeds: int = 1, **keys) -> MiniwobEnv:
    told = {"instructions": "", "max_steps": 10, "cache_dir": str(folder)}
    return MiniwobEnv(**(told | FAST | {"kinds": list(kinds), "seeds": seeds} | keys))


def processes(mark: str) -> dict[int, str]:
    """The living processes, by id and with their command, whose environment holds a text: who set it started them."""
    found = {}
    for place in (place for place in Path("/proc").iterdir() if place.name.isdecimal()):
        try:  # of a process that is dead and not yet reaped the environment is empty
            if mark.encode() in (place / "environ").read_bytes():
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def browsers(mark: str) -> list[int]:
    """Of these the browsers, and not what they started for each page."""
    return [pid for pid, words in processes(mark).items() if "--user-data-dir=" in words and "--type=" not in words]


def all_gone(mark: str, within_s: float = 20.0) -> bool:
    end = time.monotonic() + within_s
    while left := processes(mark):
        if time.monotonic() > end:
            print(left)
            return False
        time.sleep(0.1)
    return True
