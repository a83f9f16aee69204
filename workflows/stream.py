"""The stream: tasks one after another, because each may read what the one before it wrote."""

from __future__ import annotations

from collections.abc import Iterator

from core.concurrency import ordered_map
from core.types import Episode, Task
from workflows.base import Workflow


def stream(workflow: Workflow, tasks: list[Task], workers: int) -> Iterator[Episode]:
    """Run the tasks that have no record yet; yields each once it is recorded, in order.

    Where nothing is learned, up to `workers` of them run at once. The run's budget ends the stream.
    """
    if workflow.meter.exhausted():
        return
    todo = list(enumerate(tasks))[len(workflow.records.rows) :]

    def solve(place: int) -> Episode:
        if workflow.learns and place + 1 < len(todo):
            workflow.bank.expect(todo[place + 1][1].query)
        return workflow.solve(*todo[place])

    for episode in ordered_map(solve, range(len(todo)), 1 if workflow.learns else workers):
        workflow.consolidate(episode)
        yield episode
        if episode.status == "stopped":
            return
