"""The stream: tasks one after another, because each may retrieve what an earlier one taught."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from core.checks import check_choice, check_numbers
from core.concurrency import ordered_map
from core.seeding import derive_seed
from core.types import Episode, Task
from workflows.base import Workflow


@dataclass(frozen=True, kw_only=True)
class Stream:
    """How tasks follow each other.

    batch    tasks that all see the bank as it was before the first of them, and are then consolidated in order; the
             paper's stream has 1
    order    file | shuffled | by_type (one type after another, the types shuffled); the seed shuffles
    passes   how often all tasks are run; a task does not see what it taught in an earlier pass (memory.allow_self)
    """

    batch: int = 1
    order: str = "file"
    passes: int = 1

    def __post_init__(self) -> None:
        check_numbers(self, "stream", "batch", "passes", least=1)
        check_choice(self, "stream", "order", ("file", "shuffled", "by_type"))

    def ordered(self, tasks: list[Task], seed: int) -> list[Task]:
        """The tasks of one pass, in the order of the stream."""
        if self.order == "shuffled":
            return sorted(tasks, key=lambda task: derive_seed(seed, task.id, "stream"))
        if self.order == "by_type":
            return sorted(tasks, key=lambda task: (derive_seed(seed, task.type, "stream"), task.type))
        return list(tasks)

    def settled(self, done: int, n_tasks: int) -> int:
        """How many of `done` episodes have been consolidated: all but those of an unfinished batch."""
        return done if done == n_tasks else done - done % self.batch

    def run(self, workflow: Workflow, tasks: list[Task], workers: int) -> Iterator[Episode]:
        """Run the tasks that are not recorded yet; yields each episode, in order, once it is recorded.

        Up to `workers` tasks run at once where they do not depend on each other: those of a batch, or all where nothing
        is learned. The stream ends early when the run's budget is used up.
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
                if batch > 1:  # written in the stream's order, learned from at the batch's end
                    workflow.consolidate(episode, due=end - start if episode.index == end - 1 else 0)
                yield episode
                if episode.status == "stopped":
                    return
