"""stream.mode=async: tasks overlap, and are learned from in the order in which they end.

A task begins as soon as one has ended. It reads the bank as it then is, before the bank learns from another one, and
records which version that was. So a recorded order is all that is needed to repeat a run exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue

from core.concurrency import worker_pool
from core.errors import UserError
from core.run.records import place_of
from core.run.resume import Order
from core.types import Episode, Task
from workflows.episode import as_ended
from workflows.reasoningbank import ReasoningBank, Turn


def overlapped(
    workflow: ReasoningBank, tasks: list[Task], window: int, order: Order | None = None
) -> Iterator[Episode]:
    """Run the tasks that are not recorded yet, up to `window` at once; yields each episode once it is recorded.

    When the budget is used up, or an error within a task ends the run, the tasks under way are waited for and recorded;
    where the caller ends it (stop_after_broken), they are waited for, and run again when the run goes on.

    order   to be repeated; None: as it comes
    """
    rows, stopped, error = workflow.records.rows, None, None
    with worker_pool(window) as pool:
        flight = Flight(workflow=workflow, tasks=tasks, pool=pool, window=window, order=order)
        while (place := flight.next_to_end()) is not None:
            try:
                episode = flight.land(place)
            except Exception as broke:  # noqa: BLE001 - raised below, after what others have done is safe
                error = error or broke
            else:
                if episode.status != "stopped":
                    workflow.consolidate(episode)
                    yield episode
                    continue
                stopped = stopped or episode
            flight.begin_no_more()
        if error is not None:
            raise error
        if stopped is not None:  # as the last line, which its task replaces when it runs again
            stopped = as_ended(stopped, len(rows), stopped.place, stopped.seen)
            workflow.consolidate(stopped)
            yield stopped


@dataclass(kw_only=True)
class Flight:
    """The tasks under way. One thread calls it; each task has a thread of its own in the pool."""

    workflow: ReasoningBank
    tasks: list[Task]
    pool: ThreadPoolExecutor
    window: int
    order: Order | None
    _waiting: deque[int] = field(init=False)  # places of the tasks that have not begun
    _seen: dict[int, int] = field(init=False)  # {place: the version of the bank}, in an order that is repeated
    _begun: dict[int, tuple[Turn, Future[Episode]]] = field(default_factory=dict, init=False)  # by place
    _ended: SimpleQueue[int] = field(default_factory=SimpleQueue, init=False)  # places, in the order of their ends

    def __post_init__(self) -> None:
        rows, order = self.workflow.records.rows, self.order or []
        done = [(place_of(row), row.get("seen")) for row in rows if "retries" not in row]
        if self.order is not None and done != order[: len(done)]:
            raise UserError("what this run has done is in another order than stream.order_from: give another run_dir.")
        self._seen = dict(order)
        places = {*range(len(self.tasks))} - {place for place, _ in done}
        self._waiting = deque(sorted(places, key=lambda place: (self._seen.get(place, 0), place)))

    def next_to_end(self) -> int | None:
        """Begin what may begin now, then wait for a task to end: its place. None when there is none under way."""
        while self._waiting and self._may_begin(self._waiting[0]):
            self._begin(self._waiting.popleft())
        if not self._begun:
            return None
        if self.order is None:
            return self._ended.get()
        place, _ = self.order[len(self.workflow.records.rows)]
        return place if place in self._begun else None

    def land(self, place: int) -> Episode:
        """The episode of a task, which is the next to be recorded. Raises what ended it."""
        turn, result = self._begun.pop(place)
        return as_ended(result.result(), len(self.workflow.records.rows), place, turn.seen)

    def begin_no_more(self) -> None:
        self._waiting.clear()

    def _may_begin(self, place: int) -> bool:
        if self.order is not None:
            return self._seen[place] <= len(self.workflow.records.rows)
        a_pass = {self.tasks[other].visit for other in self._begun}  # the next one begins when this one is over
        return len(self._begun) < self.window and a_pass <= {self.tasks[place].visit}

    def _begin(self, place: int) -> None:
        """Start a task and wait until it has retrieved: nothing is written to the bank meanwhile."""
        before, seen = self.workflow.records.rollouts.begun(place), len(self.workflow.records.rows)
        seen = seen if before is None else before.seen
        if self._seen.get(place, seen) != seen:
            raise UserError("rollouts.jsonl lacks what a task had retrieved: repeat it in a new run_dir.")
        turn = Turn(index=place, task=self.tasks[place], seen=seen, write_waits=True)

        def end(_: Future[Episode]) -> None:
            turn.has_read.set()  # also where it broke before
            self._ended.put(place)

        result = self.pool.submit(self.workflow.run_task, turn)
        result.add_done_callback(end)
        self._begun[place] = (turn, result)
        if self._waiting:
            self.workflow.bank.prefetch(self.tasks[self._waiting[0]].query)
        turn.has_read.wait()
