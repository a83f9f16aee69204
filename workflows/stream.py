"""The stream: tasks one after another, because each may retrieve what an earlier one taught."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from core.concurrency import ordered_map
from core.errors import StopRun, UserError, check_choice, check_numbers
from core.run.records import current, place_of
from core.run.resume import recorded_order
from core.seeding import derive_seed
from core.types import Episode, Task
from workflows.overlap import overlapped
from workflows.reasoningbank import ReasoningBank, Turn
from workflows.split_stream import SPLITS, side_by_side_by_type


@dataclass(frozen=True, kw_only=True)
class Stream:
    """How tasks follow each other.

    batch    tasks that all see the bank as it was before the first of them, and are then consolidated in order; the
             paper's stream has 1
    order    file | shuffled | by_type (one type after another, the types shuffled); the seed shuffles
    passes   how often all tasks are run; a task does not see what it taught in an earlier pass (memory.allow_self)
    mode     in_order | async: where something is learned, `window` tasks overlap, each sees the bank as it stands when
             it begins, and they are consolidated in the order in which they end (workflows/overlap.py)
    window   how many overlap; None: mode=in_order
    order_from   folder of an asynchronous run, whose order is repeated exactly; None: as it comes
    split_by  type: each type of task has a stream and a bank of its own, and the streams run at once
    """

    batch: int = 1
    order: str = "file"
    passes: int = 1
    mode: str = "in_order"
    window: int | None = None
    order_from: str | None = None
    split_by: str | None = None

    def __post_init__(self) -> None:
        check_numbers(self, "stream", "batch", "passes", least=1)
        check_numbers(self, "stream", "window", least=1, whole=True)
        check_choice(self, "stream", "mode", ("in_order", "async"))
        if self.mode == "async" and (self.window is None or self.batch > 1):
            raise UserError("stream.mode=async overlaps tasks one by one: give stream.window=N, and no stream.batch.")
        if self.mode != "async" and (self.window, self.order_from) != (None, None):
            raise UserError("stream.window and stream.order_from act with stream.mode=async alone: give it as well.")
        check_choice(self, "stream", "order", ("file", "shuffled", "by_type"))
        check_choice(self, "stream", "split_by", SPLITS)
        if self.split_by is not None and (self.batch > 1 or self.mode == "async"):
            raise UserError("stream.split_by runs whole streams at once: leave out stream.batch and stream.mode.")

    def ordered(self, tasks: list[Task], seed: int) -> list[Task]:
        """The tasks of one pass, in the order of the stream."""
        if self.order == "shuffled":
            return sorted(tasks, key=lambda task: derive_seed(seed, task.id, "stream"))
        if self.order == "by_type":
            return sorted(tasks, key=lambda task: (derive_seed(seed, task.type, "stream"), task.type))
        return list(tasks)

    def every_pass(self, tasks: list[Task]) -> list[Task]:
        """The tasks of all passes."""
        return [replace(task, visit=number) for number in range(self.passes) for task in tasks]

    def described(self) -> dict[str, int | str]:
        """What the summary says of it: {batch, order, passes}, and {mode, window} or {split_by} where given."""
        found = {"batch": self.batch, "order": self.order, "passes": self.passes}
        found |= {"mode": self.mode, "window": self.window} if self.mode == "async" else {}
        return found | ({} if self.split_by is None else {"split_by": self.split_by})

    def settled(self, done: int, n_tasks: int) -> int:
        """How many of `done` episodes have been consolidated: all but those of an unfinished batch."""
        return done if done >= n_tasks else done - done % self.batch

    def run(
        self, workflow: ReasoningBank, tasks: list[Task], workers: int, retries: int = 0, stop_after: int | None = None
    ) -> Iterator[Episode]:
        """Run the tasks that are not recorded yet; yields each episode, in order, once it is recorded.

        Up to `workers` tasks run at once where they do not depend on each other: those of a batch, or all where nothing
        is learned. The stream ends early when the run's budget is used up.

        retries      further tries at a task that broke: at once where nothing is learned, else at the stream's end
        stop_after   so many tasks in a row that broke raise StopRun; None: never
        """
        in_a_row: set[int] = set()  # places: a task that is tried again and breaks again is one task
        with closing(self._episodes(workflow, tasks, workers, retries, stop_after)) as episodes:
            for episode in episodes:
                yield episode
                if episode.status == "stopped":
                    return
                place = episode.index if episode.retries is None else episode.retries
                in_a_row = in_a_row | {place} if episode.status == "infra_error" else set()
                if len(in_a_row) == stop_after:
                    cause = episode.trajectories[episode.chosen].error
                    raise StopRun(f"{stop_after} tasks in a row broke (stop_after_broken), the last by {cause}")

    def _episodes(
        self, workflow: ReasoningBank, tasks: list[Task], workers: int, retries: int, stop_after: int | None
    ) -> Iterator[Episode]:
        if workflow.meter.exhausted():
            return
        begun = len(workflow.records.rows)
        yield from self._first(workflow, tasks, workers, retries, stop_after)
        for _ in range(retries if workflow.learns else min(retries, 1)):
            rows = sorted(current(workflow.records.rows), key=lambda row: row["index"])  # the oldest try first
            broken = [row for row in rows if row["status"] == "infra_error"]
            if not workflow.learns:  # those of this start were tried often enough, at once
                broken = [row for row in broken if row["index"] < begun]
            yield from self._again(workflow, tasks, broken, workers, retries)

    def _first(
        self, workflow: ReasoningBank, tasks: list[Task], workers: int, retries: int, stop_after: int | None
    ) -> Iterator[Episode]:
        """The tasks that were not run yet, each at its place."""
        if self.mode == "async" and workflow.learns:
            ids = [task.id for task in tasks]
            order = None if self.order_from is None else recorded_order(self.order_from, ids, self.window)
            yield from overlapped(workflow, tasks, self.window, order)
            return
        if self.split_by is not None and workflow.learns:
            yield from side_by_side_by_type(workflow, tasks, workers, stop_after)
            return
        done = len(workflow.records.rows)
        batch = self.batch if workflow.learns else len(tasks)
        write_waits = not (workflow.learns and batch == 1)

        def run(index: int) -> Episode:
            if workflow.learns and index + 1 < len(tasks):
                workflow.bank.prefetch(tasks[index + 1].query)
            turn = Turn(index=index, task=tasks[index], write_waits=write_waits)
            return last_try(workflow, turn, 0 if workflow.learns else retries)

        for start in range(done - done % batch, len(tasks), batch):
            end = min(start + batch, len(tasks))
            todo = range(max(start, done), end)
            for episode in ordered_map(run, todo, min(workers, len(todo))):
                if write_waits:  # written in the stream's order, learned from at the batch's end
                    workflow.record(episode)
                    if episode.index == end - 1 and episode.status != "stopped":
                        workflow.update_bank(workflow.records.rows[start - end :])
                yield episode

    def _again(
        self, workflow: ReasoningBank, tasks: list[Task], broken: list[dict], workers: int, retries: int
    ) -> Iterator[Episode]:
        """Another try at the tasks of these rows, each as a further episode at the end of the stream."""
        first = len(workflow.records.rows)

        def run(number: int) -> Episode:
            row, index = broken[number], first + number
            turn = Turn(index=index, task=tasks[place_of(row)], write_waits=True)
            episode = last_try(workflow, turn, 0 if workflow.learns else retries)
            overlap = {"place": row["place"], "seen": index} if "place" in row else {}
            return replace(episode, retries=row.get("retries", row["index"]), **overlap)

        for episode in ordered_map(run, range(len(broken)), 1 if workflow.learns else min(workers, len(broken))):
            workflow.consolidate(episode)
            yield episode


def last_try(workflow: ReasoningBank, turn: Turn, retries: int) -> Episode:
    """The episode of a task; where it breaks it is tried again, so many times at most."""
    for _ in range(retries):
        if (episode := workflow.run_task(turn)).status != "infra_error":
            return episode
    return workflow.run_task(turn)
