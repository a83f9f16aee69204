"""Finds the Chromium to drive, and picks the environment variables that its process may see."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.process import OURS, WorkerProcess

NAMES = "chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable chrome".split()
APT = "apt-get install -y --no-install-recommends chromium-headless-shell"
# What a browser needs to start where it is installed in an unusual way. No key, no proxy, no name of a display.
KEPT = "HOME LD_LIBRARY_PATH PATH TMPDIR XDG_CACHE_HOME XDG_CONFIG_HOME XDG_RUNTIME_DIR".split()


def installed() -> str | None:
    """The path of an installed browser; None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def find_browser(given: str | None) -> str:
    """The program of env.browser, else the one that is installed. Raises UserError, in one sentence."""
    if given:
        path = shutil.which(Path(given).expanduser())
        if path is None:
            raise UserError(f"env.browser={given} is not a program that can be started.")
        return path
    if (path := installed()) is None:
        raise UserError(f"No Chromium is installed: {APT} (or name any with env.browser=PATH).")
    return path


def version_of(program: str) -> str:
    """As in "Chromium 156.0.8078.79". Raises UserError where it does not start."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"The browser {program} does not start: {error}") from None
    return done.stdout.strip()


def may_sandbox() -> bool:
    """Whether Chromium's own sandbox is to be used: by everyone but root, for whom it does not start."""
    return not hasattr(os, "geteuid") or os.geteuid() != 0


def browser_worker(factory: Callable[[], Any], timeout_s: float) -> WorkerProcess:
    """A process for an engine and its browser, not started yet. timeout_s: for one call."""
    return WorkerProcess(factory=factory, timeout_s=timeout_s, path=OURS, environment=environment())


def environment() -> dict[str, str]:
    """The variables of the worker process and of the browser: of ours what `KEPT` names; one language, one clock."""
    return {name: os.environ[name] for name in KEPT if name in os.environ} | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
