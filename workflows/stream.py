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
    for episode in ordered_map(lambda item: workflow.solve(*item), todo, 1 if workflow.learns else workers):
        workflow.consolidate(episode)
        yield episode
        if episode.status == "stopped":
            return
