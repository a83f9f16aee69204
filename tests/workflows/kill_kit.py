"""Kill a run in the middle, as a machine that loses its power does."""

from __future__ import annotations

import signal
from pathlib import Path
from subprocess import DEVNULL

import forkserver
from conftest import wait_for


def kill_at(n: int, words: list[str], run_dir: Path, **options) -> None:
    """Start a program, and kill it as soon as the run has n episodes."""
    episodes = run_dir / "episodes.jsonl"
    process = forkserver.Popen(words, stdout=DEVNULL, stderr=DEVNULL, **options)
    wait_for(lambda: episodes.exists() and episodes.read_bytes().count(b"\n") >= n, 120)
    process.kill()
    assert process.wait() == -signal.SIGKILL  # it had not come to its end
