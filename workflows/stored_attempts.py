"""attempts_from=RUN: judge and distil the attempts of a finished run once more, with other parts, and act nowhere.

The loop is the same; only `Rollout` is another one, which returns what the run recorded: the records that a task
retrieved, and its attempts. Retrieved records count as read, so the setting decides whether their labels are allowed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError
from core.memory.open import read_records
from core.memory.records import record_from
from core.run.files import EPISODES, MANIFEST, SUMMARY, changed_files, read_episodes, read_file
from core.run.records import current
from core.run.unfinished import trajectory_of
from core.setting import ANSWERS, ORACLE, labels_of
from core.types import Lesson, MemoryRecord, Scored, Task, Trajectory, Usage, content_id
from envs.base import BaseEnv
from workflows.reasoningbank import ReasoningBank
from workflows.rollout import Rollout


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A finished run whose attempts are learned from again.

    rows     its episodes in the order in which it learned from them, without tasks that broke
    tasks    the task of each row
    shown    {id: record} of all records that its attempts retrieved
    n_broken number of its tasks that broke
    """

    path: Path
    manifest: dict[str, Any]
    rows: list[dict[str, Any]]
    tasks: list[Task]
    shown: dict[str, MemoryRecord]
    n_broken: int = 0
    _at: dict[tuple[str, int], dict[str, Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        at = {(task.id, task.visit): row for task, row in zip(self.tasks, self.rows, strict=True)}
        object.__setattr__(self, "_at", at)

    @classmethod
    def read(cls, path: str | Path) -> StoredRun:
        """Read a run. Raises UserError if it is not finished, or its attempts were not stored whole."""
        path = Path(path)
        if lacking := [name for name in (MANIFEST, EPISODES) if not (path / name).is_file()]:
            raise UserError(f"{path} holds no run: there is no {lacking[0]} in it.")
        try:
            manifest = read_file(path, MANIFEST) or {}
            rows = read_episodes(path / EPISODES, manifest["task_ids"])
            for error in changed_files(path, read_file(path, SUMMARY)):
                raise error
        except (KeyError, TypeError) as error:
            raise UserError(f"{path} is no whole run: {error}.") from error
        every, n_tasks = current([row for row in rows if row["status"] != "stopped"]), len(manifest["task_ids"])
        if len(every) < n_tasks:
            raise UserError(f"{path} is not finished: {len(every)} of its {n_tasks} tasks have run.")
        visits = _visits(every)
        whole = sorted(
            ((row, visit) for row, visit in zip(every, visits, strict=True) if row["status"] != "infra_error"),
            key=lambda each: each[0]["index"],
        )
        rows = [row for row, _ in whole]
        _refuse_incomplete(path, manifest["config"], rows)
        tasks = [
            Task(id=row["task_id"], query=row["query"], type=row["task_type"], visit=visit) for row, visit in whole
        ]
        shown = _shown(path, manifest["config"], rows)
        return cls(path=path, manifest=manifest, rows=rows, tasks=tasks, shown=shown, n_broken=len(every) - len(rows))

    @property
    def dataset(self) -> dict[str, Any]:
        """The run's data set, as its manifest has it, with an id of the attempts."""
        attempts = [[row["task_id"], *(each["id"] for each in row["trajectories"])] for row in self.rows]
        return {**self.manifest["fingerprint"]["dataset"], "attempts": content_id(attempts)}

    @property
    def labels(self) -> set[str]:
        """The label sources behind the lessons that its attempts were shown."""
        given = self.manifest["bank_labels"] if self.shown else ()
        return set(given).union(*map(labels_of, self.shown.values()))

    @property
    def provenance(self) -> dict[str, Any]:
        """What each new record says of where its attempt comes from, with gold labels of what the attempt was shown."""
        notes = {"use_gold": self.labels & {ORACLE, ANSWERS}, "show_answer": ANSWERS in self.labels}
        return {"attempts_of": self.manifest["run"]} | {name: True for name, noted in notes.items() if noted}

    @property
    def n_attempts(self) -> int:
        """The number of attempts at a task, at most."""
        return max(len(row["trajectories"]) for row in self.rows)

    def memories(self, task: Task) -> list[Scored]:
        """The records that the task retrieved for its attempts' openings; what came later, the attempts hold."""
        hits = [hit for hit in self._at[task.id, task.visit]["retrieved"] if "step" not in hit]
        return [Scored(record=self._shown(hit), score=hit["score"], rewritten="items" in hit) for hit in hits]

    def _shown(self, hit: dict[str, Any]) -> MemoryRecord:
        """The record as the attempts saw it."""
        record = self.shown[hit["id"]]
        return replace(record, items=tuple(Lesson(**item) for item in hit["items"])) if "items" in hit else record

    def attempt(self, task: Task, sample: int) -> Trajectory | None:
        """An attempt at the task, without its usage, which that run paid; None if that run made none of this number."""
        for row in self._at[task.id, task.visit]["trajectories"]:
            if row["sample"] == sample:
                return replace(trajectory_of(row), usage=Usage())
        return None

    def longest(self) -> list[Trajectory]:
        """The attempts at the task on which most was said, for an estimate."""
        row = max(self.rows, key=lambda row: len(json.dumps(row["trajectories"])))
        return list(map(trajectory_of, row["trajectories"]))

    def check(self, workflow: ReasoningBank) -> None:
        """Raise UserError for a workflow that would learn nothing from these attempts, or needs others."""
        if not workflow.learns:
            raise UserError(
                f"nothing would be learned from {self.path}: its setting, workflow or memory does not learn; "
                "give another, e.g. setting=test_time or arm=reasoningbank."
            )
        if workflow.judge.n_more:
            raise UserError("judge=self_consistency asks for further attempts, and none are made here.")
        asked, refined = workflow.k or 1, workflow.r or 0
        before = (self.manifest["config"].get("workflow") or {}).get("r") or 0
        if max(asked, 1 + refined) > self.n_attempts or (refined and not before) or (asked > 1 and before):
            made = f"{before} refinements of one attempt" if before else f"k={self.n_attempts}"
            raise UserError(f"the attempts of {self.path} are {made} a task, not k={asked} with r={refined}.")

    def notes(self) -> Iterator[str]:
        """Lines for the user about what the attempts are."""
        if self.n_broken:
            yield f"{self.path}: {self.n_broken} of its tasks broke, and nothing can be learned from them."
        if n := sum(bool(row["retrieved"]) for row in self.rows):
            labels = "+".join(sorted(self.labels)) or "none"
            yield f"{self.path}: {n} of {len(self.rows)} tasks were attempted with lessons in view (labels: {labels})."


@dataclass(kw_only=True)
class StoredAttempts(Rollout):
    """Returns the attempts of a stored run."""

    stored: StoredRun

    def retrieved(self, task: Task) -> list[Scored] | None:
        return self.stored.memories(task)

    def run(self, env: BaseEnv, task: Task, memories: list[Scored], sample: int = 0) -> Trajectory:
        made = self.stored.attempt(task, sample)
        return made or self.broken(task, InfraError("no such attempt was stored", "not_stored"), sample)

    def refine(
        self, env: BaseEnv, task: Task, memories: list[Scored], before: list[Trajectory], *, restart: bool
    ) -> Trajectory:
        """The stored round. A round that is not stored was cut off before its first step, which ends the rounds."""
        made = self.stored.attempt(task, len(before))
        return made or replace(before[-1], sample=len(before), steps=(), ended_by="budget", usage=Usage())

    def replay(self, env: BaseEnv, task: Task, rounds: list[Trajectory]) -> None:
        """Nothing: no env acts."""


class NoEnv(BaseEnv):
    """Stands where an env would: nothing acts in it."""

    def __init__(self) -> None:
        super().__init__(instructions="", max_steps=1)

    def _nothing(self, *_given: Any) -> Any:
        raise NotImplementedError

    _tasks = _reset = _step = get_ground_truth = evaluate = _nothing


def stored_run(cfg: Any) -> StoredRun | None:
    """The run of `attempts_from`; None if it is not given."""
    return None if cfg.attempts_from is None else StoredRun.read(cfg.attempts_from)


def _visits(rows: list[dict[str, Any]]) -> list[int]:
    """The number of the pass of each row. rows: in stream order."""
    seen: Counter[str] = Counter()
    found = []
    for row in rows:
        found.append(seen[row["task_id"]])
        seen[row["task_id"]] += 1
    return found


def _refuse_incomplete(path: Path, config: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if not rows:
        raise UserError(f"{path} has no attempt to learn from: all of its tasks broke.")
    if config.get("scrub_episodes"):
        raise UserError(f"{path} did not store its attempts whole: scrub_episodes=true took texts out of them.")
    for row in rows:
        if any(not each["opening"] and each["ended_by"] != "infra_error" for each in row["trajectories"]):
            raise UserError(f"{path} did not store its attempts whole: that at {row['task_id']} has no opening.")


def _shown(path: Path, config: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, MemoryRecord]:
    """{id: record} of what the rows' attempts retrieved: from the episodes, else from the banks."""
    ids = {hit["id"] for row in rows for hit in row["retrieved"]}
    found = {each["id"]: record_from(each) for row in rows for each in row["records"] if each["id"] in ids}
    memory = config.get("memory") or {}
    for bank in filter(None, (path / "bank.sqlite", memory.get("path"))):
        if ids <= found.keys():
            break
        more = read_records(bank, memory.get("namespace") or "default")
        found = {record.id: record for record in more if record.id in ids} | found
    if missing := sorted(ids - found.keys()):
        given = f" {memory['path']}" if memory.get("path") else ""
        raise UserError(
            f"{path} did not store its attempts whole: {len(missing)} lessons that they were shown "
            f"({missing[0]}) are neither in its episodes nor in its bank{given}."
        )
    return found
