"""The stream: the order in which tasks run, one after another or in batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby

from core.concurrency import ordered_groups, ordered_map
from core.errors import StopRun, check_choice, check_numbers
from core.run.metrics import VALID
from core.run.records import current, place_of
from core.seeding import derive_seed
from core.types import Episode, Task, types_before
from workflows.reasoningbank import ReasoningBank, Turn


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The order in which tasks run, and which version of the bank each one reads.

    batch   tasks that all read the bank as it was before the first of them, and are then consolidated in order; 1 is
            the paper's stream
    order   file | shuffled | by_type (one type after another, the types shuffled); shuffling depends on the seed
    first   take the first n tasks of the file, and order these; None: all. (`limit` takes the first n of the order:
            with order=shuffled these are other tasks for each seed.)
    passes  how often all tasks are run; a task does not retrieve its own lessons of an earlier pass (memory.allow_self)
    """

    batch: int = 1
    order: str = "file"
    first: int | None = None
    passes: int = 1

    def __post_init__(self) -> None:
        check_numbers(self, "stream", "batch", "passes", least=1)
        check_numbers(self, "stream", "first", least=1, whole=True)
        check_choice(self, "stream", "order", ("file", "shuffled", "by_type"))

    def ordered(self, tasks: list[Task], seed: int) -> list[Task]:
        """The tasks of one pass: the `first` ones, sorted by `order`."""
        tasks = tasks[: self.first]
        if self.order == "shuffled":
            return sorted(tasks, key=lambda task: derive_seed(seed, task.id, "stream"))
        if self.order == "by_type":
            return sorted(tasks, key=lambda task: (derive_seed(seed, task.type, "stream"), task.type))
        return list(tasks)

    def every_pass(self, tasks: list[Task]) -> list[Task]:
        """The tasks of all passes, one pass after another; `Task.visit` is the number of the pass."""
        return [replace(task, visit=number) for number in range(self.passes) for task in tasks]

    def types_before(self, tasks: list[Task]) -> dict[tuple[str, ...], tuple[str, ...]]:
        """{`Task.seeded_by`: `core.types.types_before`} of the tasks of all passes."""
        before = types_before([(task.id, task.type) for task in tasks], self.batch)
        return {task.seeded_by: types for task, types in zip(tasks, before, strict=True)}

    def described(self) -> dict[str, int | str]:
        """For summary.json: {batch, order, passes}."""
        return {"batch": self.batch, "order": self.order, "passes": self.passes}

    def n_consolidated(self, done: int, n_tasks: int) -> int:
        """How many of the `done` episodes the bank has learned from: all but those of an unfinished batch."""
        return done if done >= n_tasks else done - done % self.batch

    def run(
        self, workflow: ReasoningBank, tasks: list[Task], workers: int, retries: int = 0, stop_after: int | None = None
    ) -> Iterator[Episode]:
        """Run the tasks that are not recorded yet; yields each episode, in order, once it is recorded.

        Up to `workers` tasks run concurrently if they do not depend on each other: the tasks of a batch, or all tasks
        if the run does not learn. The stream ends early when the run's budget is used up.

        retries      number of further tries at a task that ended with an infra error: immediately if the run does not
                     learn, else at the stream's end. (`Episode.retries` is not a number of tries, but the index of the
                     task's first episode.)
        stop_after   raise StopRun after this many consecutive infra errors; None: never
        """
        in_a_row: set[int] = set()  # stream positions, so that a retried task counts once
        with closing(self._all_passes_and_retries(workflow, tasks, workers, retries)) as episodes:
            for episode in episodes:
                yield episode
                if episode.status == "stopped":
                    return
                place = episode.index if episode.retries is None else episode.retries  # an index, not a count
                in_a_row = in_a_row | {place} if episode.status == "infra_error" else set()
                if len(in_a_row) == stop_after:
                    cause = episode.trajectories[episode.chosen].error
                    raise StopRun(f"{stop_after} tasks in a row broke (stop_after_broken), the last by {cause}")

    def _all_passes_and_retries(
        self, workflow: ReasoningBank, tasks: list[Task], workers: int, retries: int
    ) -> Iterator[Episode]:
        """The first tries of all passes, then the retries; see `run` for the arguments."""
        if workflow.meter.exhausted():
            return
        begun = len(workflow.records.rows)
        yield from self._first_tries(workflow, tasks, workers, retries)
        # What a run without learning broke in this start was tried again at once: only earlier starts' tasks are left.
        for _ in range(retries if workflow.learns else min(retries, 1)):
            rows = sorted(current(workflow.records.rows), key=lambda row: row["index"])  # the oldest try first
            broken = [row for row in rows if row["status"] == "infra_error"]
            if not workflow.learns:
                broken = [row for row in broken if row["index"] < begun]
            yield from self._retry_broken(workflow, tasks, broken, workers, retries)

    def _first_tries(self, workflow: ReasoningBank, tasks: list[Task], workers: int, retries: int) -> Iterator[Episode]:
        """Run the tasks that have no episode yet; see `run` for the arguments."""
        done = len(workflow.records.rows)
        batch = self.batch if workflow.learns else len(tasks)
        stream_consolidates = not (workflow.learns and batch == 1)

        def run(index: int) -> Episode:
            turn = Turn(index=index, task=tasks[index], stream_consolidates=stream_consolidates)
            return run_with_retries(workflow, turn, 0 if workflow.learns else retries)

        for start in range(done - done % batch, len(tasks), batch):
            end = min(start + batch, len(tasks))
            todo = range(max(start, done), end)
            for ready in ordered_groups(run, todo, min(workers, len(todo))):
                for together in recorded_together(ready):
                    if stream_consolidates:  # write in the stream's order, let the bank learn at the batch's end
                        workflow.record(*together)
                        if together[-1].index == end - 1 and together[-1].status != "stopped":
                            workflow.update_bank(workflow.records.rows[start - end :])
                    yield from together

    def _retry_broken(
        self, workflow: ReasoningBank, tasks: list[Task], broken: list[dict], workers: int, retries: int
    ) -> Iterator[Episode]:
        """Try the tasks of the `broken` rows again; each try is a further episode at the end of the stream.

        retries   number of tries in each of these episodes if the run does not learn; else it is one
        """
        first = len(workflow.records.rows)

        def run(number: int) -> Episode:
            row, index = broken[number], first + number
            turn = Turn(index=index, task=tasks[place_of(row)], stream_consolidates=True)
            episode = run_with_retries(workflow, turn, 0 if workflow.learns else retries - 1)
            return replace(episode, retries=place_of(row))

        for episode in ordered_map(run, range(len(broken)), 1 if workflow.learns else min(workers, len(broken))):
            workflow.consolidate(episode)
            yield episode


def recorded_together(ready: list[Episode]) -> Iterator[list[Episode]]:
    """The episodes that are written at once. One that broke or was stopped is alone, as the stream may end with it."""
    for whole, group in groupby(ready, lambda episode: episode.status in VALID):
        episodes = list(group)
        yield from [episodes] if whole else ([episode] for episode in episodes)


def run_with_retries(workflow: ReasoningBank, turn: Turn, retries: int) -> Episode:
    """Run a task; on an infra error try it again, at most `retries` times. Returns the last try's episode."""
    for _ in range(retries):
        if (episode := workflow.run_task(turn)).status != "infra_error":
            return episode
    return workflow.run_task(turn)
