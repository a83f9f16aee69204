"""The stream: tasks one after another, because each may read what the one before it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from core.concurrency import ordered_map
from core.errors import UserError
from core.seeding import derive_seed
from core.types import Episode, Task
from workflows.base import Workflow

ORDERS = ("file", "shuffled", "by_type")


@dataclass(frozen=True, kw_only=True)
class Stream:
    """How tasks follow each other.

    batch    tasks that see the bank as it stood before the first of them; then all are consolidated, in order. 1 is
             the paper's stream
    order    file | shuffled | by_type (one type after another, the types shuffled), by seed
    passes   times over all tasks; what a task taught in an earlier pass is not shown to it (memory.allow_self)
    """

    batch: int = 1
    order: str = "file"
    passes: int = 1

    def __post_init__(self) -> None:
        if self.batch < 1 or self.passes < 1:
            raise UserError(f"stream.batch={self.batch} stream.passes={self.passes}: give at least 1.")
        if self.order not in ORDERS:
            raise UserError(f"stream.order={self.order}: choose {', '.join(ORDERS)}.")

    def ordered(self, tasks: list[Task], seed: int) -> list[Task]:
        """The tasks in the order of the stream, each once."""
        if self.order == "shuffled":
            return sorted(tasks, key=lambda task: derive_seed(seed, task.id, "stream"))
        if self.order == "by_type":
            return sorted(tasks, key=lambda task: (derive_seed(seed, task.type, "stream"), task.type))
        return list(tasks)

    def settled(self, done: int, n_tasks: int) -> int:
        """How many of `done` episodes are in the bank: all but those of a batch that has not ended."""
        return done if done == n_tasks else done - done % self.batch

    def run(self, workflow: Workflow, tasks: list[Task], workers: int) -> Iterator[Episode]:
        """Run the tasks that have no record yet; yields each once it is recorded, in order.

        Up to `workers` at once of those that do not depend on each other: a batch, or all where nothing is learned. The
        run's budget ends the stream.
        """
        if workflow.meter.exhausted():
            return
        done = len(workflow.records.rows)
        batch = self.batch if workflow.learns else len(tasks)

        def run(index: int) -> Episode:
            if workflow.learns and index + 1 < len(tasks):
                workflow.bank.prefetch(tasks[index + 1].query)
            return workflow.run_task(index, tasks[index], write=batch == 1)

        for start in range(done - done % batch, len(tasks), batch):
            end = min(start + batch, len(tasks))
            todo = range(max(start, done), end)
            for episode in ordered_map(run, todo, min(workers, len(todo))):
                if batch > 1:  # run side by side: written in the stream's order, learned from when the batch has ended
                    workflow.consolidate(episode, due=end - start if episode.index == end - 1 else 0)
                yield episode
                if episode.status == "stopped":
                    return
