"""The files of a run directory. episodes.jsonl is the source of truth; bank and summary can be rebuilt from it.

An episode is one line, appended and fsynced as a whole. A line torn by a crash is cut off at the next start, and its
task runs again: the same command with the same directory resumes the run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from core.checksum import damaged, whole_json
from core.errors import UserError
from core.file_lock import FileLock
from core.interrupt import Interrupts
from core.jsonl import JsonLines, in_strings, refused
from core.memory.hygiene.scrub import scrub
from core.memory.protocol import Did
from core.memory.records import record_from
from core.redact import Redactor
from core.run.files import (
    AS_READ,
    EPISODES,
    MANIFEST,
    ROLLOUTS,
    SUMMARY,
    TIMINGS,
    changed_files,
    check_tasks,
    noted_files,
    place_of,
    read_episodes,
    read_file,
)
from core.run.growth import check_growth
from core.run.keys import differences, what_decides_outcomes
from core.run.manifest import BY_CONTENT, run_id, without_limit
from core.run.unfinished import RolloutLog
from core.run.upgrade import with_derived_keys
from core.setting import OUTCOME, blanks_for
from core.terminal import say_once
from core.textfile import write_whole
from core.types import NOT_TAKEN, Episode, MemoryRecord, Usage, total

# Fields of a record that are written only if a policy has set them, so that lines of the plain bank stay short.
_BY_POLICIES = (
    "domain tags confidence n_used n_used_success n_helpful n_harmful last_used trust parents provenance".split()
)
_NOT_SCRUBBED = frozenset("id task_id task_type source_trajectory_id parents namespace gold".split())
MOST_KEYS = 4  # that differ and are named in one line
_UNSET = {f.name: {} if f.default is MISSING else f.default for f in fields(MemoryRecord) if f.name in _BY_POLICIES}


class RunRecords:
    """The records of one run directory, locked by one process at a time.

    `rows` are the episodes as dictionaries (schema 2), including those of earlier starts; see `current`. The last of
    this start may be one that the run's budget stopped.
    Raises UserError if another process writes there, if the directory was made with another configuration, or if its
    records are damaged; StopRun if the disk refuses a write.

    redact           removes secrets from everything that is written
    scrub_episodes   remove credentials and personal data from an episode's texts, and so from the lessons made of it
    task_ids         ids of the run's tasks, in stream order
    waits            wait for another process that writes there, instead of raising UserError
    """

    def __init__(
        self,
        path: str | Path,
        fingerprint: dict[str, Any],
        interrupts: Interrupts,
        redact: Redactor = Redactor({}),  # noqa: B008 - it holds nothing
        scrub_episodes: bool = False,
        task_ids: Sequence[str] = (),
        waits: bool = False,
        allow_changed_parts: bool = False,
    ) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.run = run_id(fingerprint)  # the manifest's "run"; bank records name it in their provenance
        self._interrupts = interrupts
        self._redact = redact
        self._scrub_episodes = scrub_episodes
        self._allow_changed_parts = allow_changed_parts
        self._lock = self._take_lock(waits)
        try:
            self._open(fingerprint, task_ids)
        except BaseException:
            self._lock.close()  # in a sweep this process goes on, and may open the folder again
            raise
        self._last_end = time.monotonic()  # of an episode, or of the start
        self._retrieve_s: dict[int, float] = {}

    def _open(self, fingerprint: dict[str, Any], task_ids: Sequence[str]) -> None:
        before_growth = self._check_fingerprint(fingerprint)
        self.rows: list[dict] = self._read_episodes()
        self._check_unchanged()
        if before_growth is not None:
            check_growth(self.path, before_growth, fingerprint, task_ids, self.rows)
        if (manifest := self.read_json(MANIFEST)) is not None:
            check_tasks(self.path / EPISODES, self.rows, manifest["task_ids"])
        self._episodes = JsonLines(self.path / EPISODES, durable=True, redact=self._redact.values)
        self._timings = self._opened(TIMINGS)
        self.rollouts = RolloutLog(self.path / ROLLOUTS, redact=self._redact.values)
        self.rollouts.drop(row["index"] for row in self.rows)  # left by a crash after the episode was written

    def _check_unchanged(self) -> None:
        """Raise UserError if a file is not as the last start left it. A damaged summary is only mentioned."""
        summary = self.summary()
        if summary is None and (self.path / SUMMARY).exists():
            say_once(f"note: {self.path / SUMMARY} is damaged: this start writes it again when it ends.")
        if changed := changed_files(self.path, summary):
            raise UserError(f"{changed[0]} Restore a copy of it, or give another run_dir.")

    @contextmanager
    def timing_retrieval(self, index: int) -> Iterator[None]:
        """Measure an episode's retrieval for its line in timings.jsonl; includes embedding the query."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._retrieve_s[index] = round(time.perf_counter() - began, 6)

    def append(self, *episodes: Episode) -> None:
        """Write finished episodes, durably, before the bank learns from them."""
        rows = [self.row_of(episode) for episode in episodes]
        if self._stopped_before:  # the last line is a stopped episode, whose task has now run again
            self._episodes.drop_last()
            self._stopped_before = False
        safe = f"{len(self.rows)} finished episodes are safe"
        self._episodes.append(*rows, hint=safe)
        self.rows += rows
        self._timings.append(*map(self._timing_of, episodes), hint=safe)
        for episode in episodes:
            if episode.status != "stopped":  # a stopped one keeps its finished attempts for the next start
                self.rollouts.forget(episode.index)

    def _timing_of(self, episode: Episode) -> dict[str, Any]:
        """The line in timings.jsonl of an episode that has just been written."""
        before, self._last_end = self._last_end, time.monotonic()
        cached = total(usage.cached_tokens for usage in episode.usage.values())
        timing = {"index": episode.index, "task_id": episode.task_id, "ended": time.time()}
        timing |= {"wall_s": round(self._last_end - before, 4), "retrieve_s": self._retrieve_s.pop(episode.index, None)}
        return timing | {"cached_tokens": cached}

    def row_of(self, episode: Episode) -> dict:
        """An episode as its row in episodes.jsonl, without credentials; with `scrub_episodes` scrubbed as well."""
        row = episode_row(in_strings(episode, self._redact.certain, but=_NOT_SCRUBBED))
        return scrubbed(row) if self._scrub_episodes else row

    def lines(self, name: str) -> JsonLines:
        """Open a further file, NAME.jsonl, redacted and scrubbed like the episodes."""
        clean = (lambda text: scrub(self._redact.certain(text))[0]) if self._scrub_episodes else self._redact.certain
        return self._opened(f"{name}.jsonl", redact=clean)

    def wall_s(self) -> float:
        """Wall-clock seconds spent on episodes, finished or stopped, over all starts."""
        return sum(t.get("wall_s", 0.0) for t in self._timings.read())

    def shielded(self) -> AbstractContextManager[None]:
        """A context in which Ctrl-C is delayed until the end; for writes."""
        return self._interrupts.shielded()

    def write_json(self, name: str, value: dict) -> None:
        """`write_text` of redacted JSON data, with a checksum."""
        self.write_text(name, whole_json(self.safe(value)))

    def write_summary(self, value: dict) -> None:
        """Write summary.json, with the size and hash of each file of lines (`noted_files`)."""
        stopped = self._stopped_before or (self.rows and self.rows[-1]["status"] == "stopped")
        files = noted_files(self.path, len(self._episodes.last()) if stopped else 0)
        self.write_text(SUMMARY, whole_json(self.safe(value) | {"files": files}))

    def write_text(self, name: str, text: str) -> None:
        """Write a whole file or none of it."""
        try:
            write_whole(self.path / name, text)
        except OSError as error:
            raise refused(self.path / name, error, f"{len(self.rows)} finished episodes are safe") from error

    def read_json(self, name: str) -> dict | None:
        """The content of a file written by write_json; None if there is none. Raises UserError if it is damaged."""
        return read_file(self.path, name)

    def summary(self) -> dict | None:
        """The summary of the last start; None if there is none, or if it is damaged."""
        try:
            return self.read_json(SUMMARY)
        except UserError:
            return None

    def answers(self) -> dict[str, str | None]:
        """{task id: its answer, redacted}; of a retried or repeated task the last one."""
        return self.safe({row["task_id"]: answer_of(row)["answer"] for row in current(self.rows)})

    def close(self) -> None:
        """Close the files and release the directory's lock."""
        self._episodes.close()
        self._timings.close()
        self.rollouts.close()
        self._lock.close()

    def safe(self, value: Any) -> Any:
        """The value as redacted JSON data, as it would be read back from a file."""
        return in_strings(json.loads(json.dumps(value, default=str)), self._redact)

    def _take_lock(self, waits: bool) -> FileLock:
        lock = FileLock(self.path / ".lock")
        if lock.take():
            return lock
        if not waits:
            lock.close()
            raise UserError(f"run_dir={self.path} is being written by another process.")
        print(f"{self.path.name} is being written by another process: waiting for it.", flush=True)
        lock.take(wait_s=None, poll_s=0.2)
        return lock

    def _check_fingerprint(self, fingerprint: dict[str, Any]) -> dict[str, Any] | None:
        """The directory's manifest if only `limit` has changed; None if nothing has, or if the directory is new.

        Raises UserError for another configuration and for a damaged manifest.
        """
        try:
            if (manifest := self.read_json(MANIFEST)) is None:
                episodes = self.path / EPISODES
                if episodes.exists() and episodes.stat().st_size > 0:
                    raise UserError(f"run_dir={self.path} holds episodes but no manifest.json: it cannot be continued.")
                return None
            self.run = manifest["run"]
            then, now = (
                self.safe(each | {"config": what_decides_outcomes(each["config"], *BY_CONTENT)})
                for each in (manifest["fingerprint"], fingerprint)
            )
            if self._allow_changed_parts:
                then["parts"] = now.get("parts")
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(self.path / MANIFEST, str(error)) from error
        if not (changes := differences(then, now)):
            return None
        if not (apart := differences(without_limit(then), without_limit(now))):
            return manifest
        if not read_episodes(self.path / EPISODES):  # a start that ended before its first episode is no run
            self._forget_start()
            self.run = run_id(fingerprint)
            return None
        if all(change.startswith("parts.") for change in apart):
            names = ", ".join(change.removeprefix("parts.").partition(":")[0] for change in apart)
            raise UserError(
                f"run_dir={self.path} was made with another source of {names}: give another run_dir, that source, or, "
                "if what is there would have come out the same, allow_changed_parts=true."
            )
        keys = [change.partition(":")[0].removeprefix("config.") for change in changes]
        named = ", ".join(keys[:MOST_KEYS]) + (f" and {len(keys) - MOST_KEYS} more" if len(keys) > MOST_KEYS else "")
        data = all(change.startswith("dataset.") for change in apart)
        what = "other tasks, whose data have changed since" if data else "another configuration"
        raise UserError(
            f"run_dir={self.path} was made with {what} ({named}): give another run_dir, or its values.\n"
            + "\n".join(f"  {change}" for change in changes)
        )

    def _forget_start(self) -> None:
        """Remove what a start without an episode wrote of its configuration; its calls, which were paid, stay."""
        for file in (self.path / MANIFEST, self.path / SUMMARY, self.path / ROLLOUTS, *self.path.glob(".hydra/*.yaml")):
            file.unlink(missing_ok=True)

    def _opened(self, name: str, **how: Any) -> JsonLines:
        return JsonLines(self.path / name, as_read=AS_READ[name], **how)

    def _read_episodes(self) -> list[dict]:
        """The finished episodes. A last one that the budget stopped is left out: its line stays in the file until its
        task has run again."""
        rows = read_episodes(self.path / EPISODES)
        self._stopped_before = bool(rows) and rows[-1]["status"] == "stopped"
        return rows[:-1] if self._stopped_before else rows


def every_try(run_dir: Path) -> list[dict]:
    """All episodes of a run, also the earlier tries of tasks that were tried again, but not one that was stopped."""
    return [row for row in read_episodes(run_dir / EPISODES) if row["status"] != "stopped"]


def current(rows: list[dict]) -> list[dict]:
    """One episode per task, in stream order: of a retried task the last try."""
    last = {place_of(row): row for row in rows}
    return [last[place] for place in sorted(last)]


def episode_row(row: dict[str, Any]) -> dict[str, Any]:
    """An episode's fields as its row, without values that can differ between identical runs or are stored elsewhere.

    The fields themselves are changed.
    """
    row["trajectories"] = [with_derived_keys(trajectory) for trajectory in row["trajectories"]]
    if row["retries"] is None:
        del row["retries"]
    if not row["validated"]:
        del row["validated"]
    for record in row["records"]:
        del record["query_embedding"], record["created_at"]
        for name, default in _UNSET.items():
            if (tuple(record[name]) if isinstance(record[name], list) else record[name]) == default:
                del record[name]
    for judgement in (row["verdict"], *row["verdicts"], row["selection"] or {}):
        judgement.pop("usage", None)  # counted in the usage of its role
        judgement.pop("error", None)  # listed in learning_errors
        if judgement.get("confidence_parsed"):
            del judgement["confidence_parsed"]  # left out unless it is False
    usages = [*row["usage"].values(), *(t["usage"] for t in row["trajectories"])]
    for usage in usages:
        usage.pop("cached_tokens", None)  # depends on what the provider has cached
    return row


def as_memory_sees(row: dict, withheld: frozenset[str]) -> dict:
    """An episode's row as a memory may see it, without what is kept back of the truth (core/setting.py)."""
    if not withheld:
        return row
    attempts = [each | blanks_for(each, withheld) for each in row["trajectories"]]
    told = row | {"trajectories": attempts}
    if OUTCOME in withheld:
        for attempt in attempts:
            attempt["steps"] = [{**step, "status": None} for step in attempt["steps"]]
        told["reward"] = None
        told["status"] = row["status"] if row["status"] in ("infra_error", "stopped") else None
    return told


def scrubbed(value: Any) -> Any:
    """Part of an episode's row without credentials and personal data. Ids and the env's answer are kept."""
    return in_strings(value, lambda text: scrub(text)[0], but=_NOT_SCRUBBED)


def usage_of(row: dict) -> Usage:
    """The usage of all roles in an episode's row, summed."""
    return sum((Usage(**usage) for usage in row["usage"].values()), Usage())


def records_of(row: dict) -> list[MemoryRecord]:
    """The memory records that an episode's row added to the bank; the answer's comes first."""
    return [record_from(values) for values in row["records"]]


def outcomes_of(row: dict) -> list[str]:
    """success | failure | infra_error for each attempt, by the env's own evaluation."""
    return [
        "infra_error" if attempt["ended_by"] == "infra_error" else "success" if attempt["success"] else "failure"
        for attempt in row["trajectories"]
    ]


def answer_of(row: dict) -> dict:
    """The attempt that is the task's answer."""
    return row["trajectories"][row["chosen"]]


def evaluated(row: dict) -> bool:
    """Whether the env has evaluated the episode's answer; if not, `status` is meaningless."""
    return was_graded(answer_of(row))


def was_graded(attempt: dict) -> bool:
    """Whether the env has evaluated an attempt; if not, its `success` is meaningless."""
    return attempt.get("info", {}).get("evaluated", True)


def status_of(row: dict) -> str:
    """success | failure | infra_error; "unknown" if the env did not evaluate the answer."""
    return row["status"] if evaluated(row) else "unknown"


def shown_in(row: dict) -> list[str]:
    """The ids of the records that an episode's prompts showed, in whole or in part."""
    return [found["id"] for found in row["retrieved"] if found["n_shown"]]


def did_in(row: dict) -> list[Did]:
    """Every step of an episode's attempts, without single-turn attempts, which run nothing."""
    did = []
    for attempt in row["trajectories"]:
        taken = [step for step in attempt["steps"] if step["observation"] != NOT_TAKEN]  # a note is no action
        steps = [Did(step["action"], step["observation"]) for step in taken]
        if len(steps) > 1 or any(step.observation for step in steps):
            if attempt["ended_by"] in ("goal", "end"):  # the environment's last word
                steps[-1] = steps[-1]._replace(ended=True)
            did += steps
    return did


def not_shown(row: dict) -> int:
    """Number of retrieved lessons that did not fit into the prompt."""
    return sum(found["n_items"] - found["n_shown"] for found in row["retrieved"])
