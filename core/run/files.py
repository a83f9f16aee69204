"""Reading the files of a run directory: the one place where what they hold is checked before anything relies on it.

Damage is a UserError that names the file and the line. A file that lost its end is shorter than another file notes:
that is said, and what it lost is made again where it can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from core.checksum import has_checksum, read_whole, say_once
from core.errors import UserError
from core.jsonl import read_lines
from core.line_counts import noted_lines
from core.redact import HIDDEN
from core.run.row_check import (
    check_call,
    check_episode,
    check_manifest,
    check_prompt,
    check_rollout,
    check_summary,
    check_timing,
)
from core.run.upgrade import upgraded_row

EPISODES, CALLS, PROMPTS, TIMINGS = "episodes.jsonl", "calls.jsonl", "prompts.jsonl", "timings.jsonl"
ROLLOUTS = "rollouts.jsonl"
LINES = (EPISODES, CALLS, PROMPTS, TIMINGS, ROLLOUTS)
MANIFEST, SUMMARY = "manifest.json", "summary.json"
COUNTS = ".lines"  # how many lines the files have (core/line_counts.py)
CHECKS = {EPISODES: check_episode, CALLS: check_call, PROMPTS: check_prompt, TIMINGS: check_timing}
CHECKS |= {ROLLOUTS: check_rollout}
WHOLE = {MANIFEST: check_manifest, SUMMARY: check_summary}
LOST = {  # what follows from the loss of a file's last lines
    EPISODES: "the run's command runs their tasks again",
    CALLS: "the numbers of calls are too small",
    PROMPTS: "what they were is not known",
    TIMINGS: "the time that the run took is too small",
    ROLLOUTS: "attempts of unfinished tasks are made again",
}


def read_file(run_dir: Path, name: str) -> dict[str, Any] | None:
    """The content of manifest.json or summary.json; None if there is none."""
    path = run_dir / name
    if (found := read_whole(path)) is not None and not has_checksum(path):
        try:
            WHOLE[name](found)
        except ValueError as fault:
            raise UserError(f"{run_dir} is no whole run: {name} {fault}.") from None
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
    """The complete lines of an episodes.jsonl in the current schema; [] if there is no such file.

    task_ids   of the manifest; None: not checked

    Raises UserError for lines that are damaged or misplaced.
    """
    noted = noted_lines(path.parent / COUNTS).get(EPISODES, 0)
    rows = [upgraded_row(row) for row in (read_lines(path, _check_upgraded) if path.is_file() else ())]
    for place, row in enumerate(rows):
        if row.get("index") != place:
            raise UserError(f"{path} line {place + 1} holds index {row.get('index')}.")
        first = row.get("retries")
        if first is not None and (first not in range(place) or rows[first]["task_id"] != row["task_id"]):
            raise UserError(f"{path} line {place + 1} retries index {first}, which is another task's.")
    if task_ids is not None:
        check_tasks(path, rows, task_ids)
    say_lost(path, len(rows), noted)
    return rows


def check_tasks(path: Path, rows: list[dict[str, Any]], task_ids: Sequence[str]) -> None:
    """Raise UserError for an episode that is not of the manifest's task at its place."""
    for number, row in enumerate(rows, 1):
        if (place := place_of(row)) not in range(len(task_ids)):
            raise UserError(f"{path} line {number} is of place {place}, and manifest.json has {len(task_ids)} tasks.")
        if row["task_id"] != (known := task_ids[place]) and HIDDEN not in known:  # it hides more than the episodes do
            raise UserError(f"{path} line {number} is of {row['task_id']}, and manifest.json has {known} there.")


def place_of(row: dict[str, Any]) -> int:
    """The stream position of an episode's task. (`index` is the episode's own position; a retry has a later one.)"""
    return row.get("retries", row["index"])


def lines_of(run_dir: Path, name: str) -> Iterator[dict[str, Any]]:
    """The complete lines of calls.jsonl, prompts.jsonl or timings.jsonl; none if there is no such file."""
    path, noted, n = run_dir / name, noted_lines(run_dir / COUNTS).get(name, 0), 0
    if not path.is_file():
        return
    for row in read_lines(path, CHECKS[name]):
        n += 1
        yield row
    say_lost(path, n, noted)


def say_lost_ends(run_dir: Path) -> None:
    """Say which files of a run have lost lines at their end; of its episodes this is said when they are read."""
    for name, noted in noted_lines(run_dir / COUNTS).items():
        if noted and name != EPISODES:
            path = run_dir / name
            data = path.read_bytes() if path.is_file() else b""
            say_lost(path, data.count(b"\n"), noted)


def say_lost(path: Path, n: int, noted: int) -> None:
    """Say that a file has lost lines at its end, if it has."""
    if n < noted:
        say_once(f"note: {path} has lost its end, after line {n}: {LOST[path.name]}.")


def _check_upgraded(row: Any) -> None:
    """Check a row of an earlier version in the form that it is read in."""
    try:
        row = upgraded_row(row)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"holds a field that cannot be read ({error})"
        raise ValueError(what) from None
    check_episode(row)
