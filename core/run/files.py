"""Reading the files of a run directory: the one place where what they hold is checked before anything relies on it.

Each row is checked against the types of what a run writes (core/run/rows.py). When a run ends, its summary notes the
SHA-256 of each file of lines, so that a reader of it sees every later change. While a run is going on, a damaged line
that can still be read is not seen.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from core.checksum import damaged, has_checksum, read_whole
from core.errors import UserError
from core.jsonl import read_lines
from core.redact import HIDDEN
from core.run import rows
from core.run.rows import check_whole, checked
from core.run.upgrade import check_schema
from core.types import Episode

EPISODES, CALLS, PROMPTS, TIMINGS = "episodes.jsonl", "calls.jsonl", "prompts.jsonl", "timings.jsonl"
ROLLOUTS = "rollouts.jsonl"
NOTED = (EPISODES, CALLS, PROMPTS, TIMINGS)  # the files that a summary notes
MANIFEST, SUMMARY = "manifest.json", "summary.json"
WHOLE = {MANIFEST: rows.Manifest, SUMMARY: rows.Summary}
KINDS = {CALLS: rows.CallLine, PROMPTS: rows.PromptLine, TIMINGS: rows.TimingLine}
AS_READ = {name: partial(checked, kind=kind) for name, kind in KINDS.items()}


def read_file(run_dir: Path, name: str) -> dict[str, Any] | None:
    """The content of manifest.json or summary.json; None if there is none."""
    if (found := read_whole(run_dir / name)) is not None:
        try:
            check_whole(found, WHOLE[name])
        except ValueError as fault:
            raise UserError(f"{run_dir} is no whole run: {name}: {fault}.") from None
    return found


def has_ended(run_dir: Path, n_tasks: int) -> bool:
    """Whether a run's summary says that each of so many tasks has a result, and its episodes are not fewer lines.

    False where that cannot be read. The lines themselves are not: who opens the records does that.
    """
    try:
        summary = read_file(run_dir, SUMMARY) or {}
        with (run_dir / EPISODES).open("rb") as file:
            n_lines = sum(1 for _ in file)
    except (UserError, FileNotFoundError):
        return False
    return bool(summary.get("complete")) and summary.get("n_tasks") == n_tasks <= n_lines


def read_hydra(run_dir: Path, name: str) -> dict[str, Any]:
    """A file of .hydra; {} if there is none. It has a checksum if the manifest, which is written after it, has one."""
    return read_whole(run_dir / ".hydra" / name, must=has_checksum(run_dir / MANIFEST)) or {}


def read_episodes(path: Path, task_ids: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The complete lines of an episodes.jsonl; [] if there is no such file.

    task_ids   of the manifest; None: not checked

    Raises UserError for lines that are damaged or misplaced.
    """
    found = list(read_lines(path, _episode)) if path.is_file() else []
    for place, row in enumerate(found):
        if row["index"] != place:
            raise UserError(f"{path} line {place + 1} holds index {row['index']}.")
        first = row.get("retries")
        if first is not None and (first not in range(place) or found[first]["task_id"] != row["task_id"]):
            raise UserError(f"{path} line {place + 1} retries index {first}, which is another task's.")
    if task_ids is not None:
        check_tasks(path, found, task_ids)
    return found


def _episode(row: dict[str, Any]) -> dict[str, Any]:
    check_schema(row)
    return checked(row, Episode)


def check_tasks(path: Path, found: list[dict[str, Any]], task_ids: Sequence[str]) -> None:
    """Raise UserError for an episode that is not of the manifest's task at its place."""
    for number, row in enumerate(found, 1):
        if (place := place_of(row)) not in range(len(task_ids)):
            raise UserError(f"{path} line {number} is of place {place}, and manifest.json has {len(task_ids)} tasks.")
        if row["task_id"] != (known := task_ids[place]) and HIDDEN not in known:  # it hides more than the episodes do
            raise UserError(f"{path} line {number} is of {row['task_id']}, and manifest.json has {known} there.")


def place_of(row: dict[str, Any]) -> int:
    """The stream position of an episode's task. (`index` is the episode's own position; a retry has a later one.)"""
    return row.get("retries", row["index"])


def lines_of(run_dir: Path, name: str) -> Iterator[dict[str, Any]]:
    """The complete lines of calls.jsonl, prompts.jsonl or timings.jsonl; none if there is no such file."""
    if (run_dir / name).is_file():
        yield from read_lines(run_dir / name, AS_READ[name])


def noted_files(run_dir: Path, n_unfinished: int = 0) -> dict[str, list[Any]]:
    """{file: [its size, its SHA-256]} of NOTED, for the summary. What is noted is on the disk for good.

    n_unfinished   bytes at the end of episodes.jsonl that another line will take the place of
    """
    noted = {}
    for name in NOTED:
        if (path := run_dir / name).is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
            size = path.stat().st_size - (n_unfinished if name == EPISODES else 0)
            noted[name] = [size, _sha256(path, size)]
    return noted


def changed_files(run_dir: Path, summary: Mapping[str, Any] | None) -> list[UserError]:
    """An error for each file that no longer begins with what it held when the summary was written (`noted_files`).

    A log of calls, prompts or times that is not there any more is none: whoever asks for it is told. Neither is a file
    that no reader uses any more (columns.json of earlier versions).
    """
    found = []
    for name, (size, known) in (summary or {}).get("files", {}).items():
        path = run_dir / name
        if name in NOTED and (name == EPISODES or path.exists()) and _sha256(path, size) != known:
            found.append(damaged(path, "it is not as the run left it"))
    return found


def _sha256(path: Path, size: int) -> str:
    """Of the first bytes of a file; "" if it is shorter."""
    found, left = hashlib.sha256(), size
    try:
        with path.open("rb") as file:
            while left and (data := file.read(min(left, 1 << 20))):
                found.update(data)
                left -= len(data)
    except FileNotFoundError:
        return ""
    return "" if left else found.hexdigest()
