"""stream.split_by=type: each task type has its own stream and its own bank, and the streams run concurrently.

An episode of one type does not affect another type, so the number of concurrent streams changes no result.
episodes.jsonl keeps the order of the whole stream: an episode that finishes before earlier ones waits in ahead.jsonl.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.build import part
from core.concurrency import worker_pool
from core.errors import UserError
from core.memory.by_type import BANKS
from core.run.cells import safe
from core.run.records import records_of
from core.run.unfinished import trajectory_of
from core.types import Episode, Lesson, Selection, Task, Usage, Verdict
from workflows.reasoningbank import ReasoningBank, Turn

SPLITS = (None, "type")
MOST_NAME = 100  # characters of a bank's file name


def side_by_side_by_type(
    workflow: ReasoningBank, tasks: list[Task], workers: int, stop_after: int | None = None
) -> Iterator[Episode]:
    """Run the tasks that are not recorded yet, up to `workers` concurrently, each of a different type.

    Yields each episode, in the order of `tasks`, once it is recorded.

    stop_after   after this many consecutive infra errors a type's stream waits until all earlier episodes are yielded,
                 because the run may end there
    """
    records = workflow.records
    todo = range(len(records.rows), len(tasks))
    kept = {index: records.ahead.rows[index] for index in todo if index in records.ahead.rows}  # by an earlier start
    left = [index for index in todo if index not in kept]
    streams = Streams(workflow=workflow, tasks=tasks, todo=left, stop_after=stop_after)
    with streams.running(workers) if workers > 1 else nullcontext():
        for index in todo:
            if index not in kept and workers <= 1:
                yield workflow.run_task(Turn(index=index, task=tasks[index]))
                continue
            episode = episode_of(kept[index]) if index in kept else streams.episode(index)
            with records.shielded():
                records.append(episode)
            yield episode


@dataclass(kw_only=True)
class Streams:
    """The streams of all types, one thread each.

    todo         stream positions of the tasks to run
    stop_after   see `side_by_side_by_type`
    """

    workflow: ReasoningBank
    tasks: list[Task]
    todo: list[int]
    stop_after: int | None
    _made: dict[int, Future[Episode | None]] = field(init=False)  # by position; None: not run, because the run ends
    _ends: threading.Event = field(default_factory=threading.Event, init=False)
    _error: BaseException | None = field(default=None, init=False)  # the first error that ended a stream
    _due: int = field(default=-1, init=False)  # the position waited for: all before it are yielded
    _came: threading.Condition = field(
        default_factory=threading.Condition, init=False
    )  # `_due` has changed, or the run ends

    def __post_init__(self) -> None:
        self._made = {index: Future() for index in self.todo}

    def running(self, workers: int) -> ExitStack:
        """A context in which the streams run. On exit, each stream first finishes its current task."""
        places: dict[str, list[int]] = {}
        for index in self.todo:
            places.setdefault(self.tasks[index].type, []).append(index)
        block, at_once = ExitStack(), threading.Semaphore(workers)
        pool = block.enter_context(worker_pool(len(places) or 1))
        block.callback(self._end)
        for mine in places.values():
            pool.submit(self._run, mine, at_once)
        return block

    def _end(self) -> None:
        with self._came:
            self._ends.set()
            self._came.notify_all()

    def episode(self, place: int) -> Episode:
        """Wait for the episode of the task at this position. Raises the error that ended its stream."""
        with self._came:
            self._due = place
            self._came.notify_all()
        made = self._made[place].result()
        if made is None and self._error is not None:  # the error is of another type's stream
            raise self._error
        return self._one(place) if made is None else made  # the run's budget stops this one too

    def _run(self, places: list[int], at_once: threading.Semaphore) -> None:
        n_broken = 0  # in a row
        for index in places:
            if self.stop_after is not None and n_broken >= self.stop_after:
                with self._came:
                    self._came.wait_for(lambda index=index: self._due >= index or self._ends.is_set())
                n_broken = 0
            try:
                with at_once:
                    made = None if self._ends.is_set() else self._one(index)
            except BaseException as error:  # noqa: BLE001 - raised by `episode` at this position
                self._error = self._error or error
                self._end()
                self._made[index].set_exception(error)
                continue
            if made is not None and made.status == "stopped":
                self._end()
            n_broken = n_broken + 1 if made is not None and made.status == "infra_error" else 0
            self._made[index].set_result(made)

    def _one(self, index: int) -> Episode:
        """Run a task. On return it is stored in ahead.jsonl, and its bank has learned from it."""
        episode = self.workflow.run_task(Turn(index=index, task=self.tasks[index], stream_consolidates=True))
        if episode.status != "stopped":  # its task will run again
            row = self.workflow.records.row_of(episode)
            self.workflow.records.ahead.add(row)
            self.workflow.add_records(row)
            self.workflow.teach(row)
        return episode


def banks_of(run_dir: Path, tasks: list[Task], config: dict[str, Any]) -> dict[str, str] | None:
    """{type of task: the path of its bank}; None if the run has one bank, or learns nothing.

    Raises UserError for settings with which the types cannot have banks of their own.
    """
    memory = config["memory"]
    learns = config["setting"]["learn"] and part(config["workflow"]).has_memory and part(memory).learns
    if config["stream"].get("split_by") is None or not learns:
        return None
    if memory.get("path") is not None:
        raise UserError("stream.split_by makes its own banks: leave out memory.path.")
    if memory.get("domain") != "type" or config["retrieval"].get("domain") != "same":
        raise UserError(
            "stream.split_by=type keeps what each type of task teaches apart: give memory.domain=type "
            "retrieval.domain=same as well."
        )
    types = dict.fromkeys(task.type for task in tasks)
    if len(types) < 2:
        raise UserError("stream.split_by=type: all tasks are of one type, so there is nothing to split.")
    return {name: str(run_dir / BANKS / f"{safe(name, MOST_NAME)}.sqlite") for name in types}


def episode_of(row: dict[str, Any]) -> Episode:
    """An Episode from its row (schema 2)."""
    parts = {
        "verdict": Verdict(**row["verdict"]),
        "verdicts": tuple(Verdict(**each) for each in row["verdicts"]),
        "selection": row["selection"] and Selection(**row["selection"]),
        "retrieved": tuple(row["retrieved"]),
        "trajectories": tuple(trajectory_of(each) for each in row["trajectories"]),
        "lessons": tuple(Lesson(**each) for each in row["lessons"]),
        "usage": {role: Usage(**each) for role, each in row["usage"].items()},
        "learning_errors": tuple(row["learning_errors"]),
        "records": tuple(records_of(row)),
    }
    return Episode(**row | parts)
