"""stream.mode=async: tasks overlap, and are consolidated in the order of their completion.

A task begins as soon as another one has ended. It retrieves before the next episode is consolidated, and its episode
records the bank's version at that time (`seen`). So the recorded order and
the same model replies repeat a run exactly.
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
    """Run the tasks that are not recorded yet, up to `window` concurrently; yields each episode once it is recorded.

    If the run's budget is used up, or an error in a task ends the run, the tasks in flight are waited for and recorded.
    If the caller ends the run (stop_after_broken), they are waited for, but run again when the run is resumed.

    order   the completion order of an earlier run, to be replayed; None: no replay
    """
    rows, stopped, error = workflow.records.rows, None, None
    with worker_pool(window) as pool:
        flight = Flight(workflow=workflow, tasks=tasks, pool=pool, window=window, order=order)
        while (place := flight.next_to_end()) is not None:
            try:
                episode = flight.land(place)
            except Exception as broke:  # noqa: BLE001 - raised below, once the tasks in flight are recorded
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
        if stopped is not None:  # written last, because its task replaces this line when it runs again
            stopped = as_ended(stopped, len(rows), stopped.place, stopped.seen)
            workflow.consolidate(stopped)
            yield stopped


@dataclass(kw_only=True)
class Flight:
    """The tasks in flight. Called from one thread; each task runs in its own thread of the pool.

    order   see `overlapped`
    """

    workflow: ReasoningBank
    tasks: list[Task]
    pool: ThreadPoolExecutor
    window: int
    order: Order | None
    _waiting: deque[int] = field(init=False)  # stream positions of the tasks that have not begun
    _versions: dict[int, int] = field(init=False)  # {position: the bank's version that `order` requires}
    _begun: dict[int, tuple[Turn, Future[Episode]]] = field(default_factory=dict, init=False)  # by position
    _ended: SimpleQueue[int] = field(default_factory=SimpleQueue, init=False)  # positions, in order of completion

    def __post_init__(self) -> None:
        rows, order = self.workflow.records.rows, self.order or []
        done = [(place_of(row), row.get("seen")) for row in rows if "retries" not in row]
        if self.order is not None and done != order[: len(done)]:
            raise UserError("this run's tasks are in another order than stream.order_from has: give another run_dir.")
        self._versions = dict(order)
        places = {*range(len(self.tasks))} - {place for place, _ in done}
        self._waiting = deque(sorted(places, key=lambda place: (self._versions.get(place, 0), place)))

    def next_to_end(self) -> int | None:
        """Begin the tasks that may begin now, wait for one to end and return its position; None if none is in flight.

        With `order`, the position that the order names next; None if that task is not in flight.
        """
        while self._waiting and self._may_begin(self._waiting[0]):
            self._begin(self._waiting.popleft())
        if not self._begun:
            return None
        if self.order is None:
            return self._ended.get()
        place, _ = self.order[len(self.workflow.records.rows)]
        return place if place in self._begun else None

    def land(self, place: int) -> Episode:
        """Take a task out of flight: its episode, the next to be recorded. Raises the error that ended the task."""
        turn, result = self._begun.pop(place)
        return as_ended(result.result(), len(self.workflow.records.rows), place, turn.bank_version)

    def begin_no_more(self) -> None:
        """Begin no further task; those in flight go on."""
        self._waiting.clear()

    def _may_begin(self, place: int) -> bool:
        if self.order is not None:
            return self._versions[place] <= len(self.workflow.records.rows)
        a_pass = {self.tasks[other].visit for other in self._begun}  # a pass begins only after the one before it
        return len(self._begun) < self.window and a_pass <= {self.tasks[place].visit}

    def _begin(self, place: int) -> None:
        """Start a task and wait until it has retrieved, so that nothing is written to the bank before that."""
        before, version = self.workflow.records.rollouts.begun(place), len(self.workflow.records.rows)
        version = version if before is None else before.seen
        if self._versions.get(place, version) != version:
            raise UserError("rollouts.jsonl lacks what a task had retrieved: repeat it in a new run_dir.")
        turn = Turn(index=place, task=self.tasks[place], bank_version=version, stream_consolidates=True)

        def end(_: Future[Episode]) -> None:
            turn.has_read.set()  # also if the task broke before it retrieved
            self._ended.put(place)

        result = self.pool.submit(self.workflow.run_task, turn)
        result.add_done_callback(end)
        self._begun[place] = (turn, result)
        if self._waiting:
            self.workflow.bank.prefetch(self.tasks[self._waiting[0]].query)
        turn.has_read.wait()
