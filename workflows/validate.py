"""memory.validate: a new lesson is a candidate until it has helped on earlier tasks of the stream.

Memory that is written without a test may make an agent worse (2605.12978, SkillsBench 2602.12670). The gate plays
earlier tasks again, with the lesson and without it, and believes the judge: no label of the environment is used that
the setting does not give. What it found is part of the episode after which it was due, so that a killed run finds it
again or repeats it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from core.errors import check_numbers
from core.memory.lexical import terms, words_of
from core.run.metrics import VALID, VALIDATION
from core.run.records import current, records_of
from core.types import CANDIDATE, Episode, MemoryRecord, Scored, Task, Usage

FIRST_SAMPLE = 1000  # numbers of the trials' attempts, apart from those of the run: they are seeds of their own


class Trial(NamedTuple):
    """An attempt at an earlier task. solved   as judged; None: it broke. stopped   the run's budget ended it."""

    solved: bool | None
    usage: Usage
    stopped: bool


Play = Callable[[Task, list[Scored], int], Trial]  # (task, what the prompt shows, number of the attempt)


@dataclass(kw_only=True)
class Gate:
    """Tries candidates: the status of each is then active, quarantined or archived.

    After every `every` tasks each candidate is tried on the n earlier tasks that share most words with the one that
    taught it, which is not among them. Each is played twice from the same seed, with the candidate alone in the
    prompt and with nothing in it. More solved with it: active. As many: quarantined. Fewer: archived, which takes it
    back for good. A candidate that could not be tried, because no earlier task is there or the trials broke, waits.
    With several new lessons the attempts without one are shared.

    every   tasks between two rounds of trials
    n       earlier tasks for each candidate
    """

    every: int = 10
    n: int = 3

    def __post_init__(self) -> None:
        check_numbers(self, "memory.validate", "every", "n", least=1, whole=True)

    def tried(self, episode: Episode, rows: list[dict[str, Any]], play: Play) -> Episode:
        """The episode with the trials that are due after it, and what they cost; "stopped" if the budget ended them.

        rows   those of the episodes before it
        """
        if episode.status == "stopped" or (episode.index + 1) % self.every:
            return episode
        known = {found["id"] for row in rows for found in row.get("validated", ())}
        records = [record for row in rows for record in records_of(row)] + list(episode.records)
        waiting = [each for each in records if each.status == CANDIDATE and each.id not in known]
        trials = Trials(play=play, sample=FIRST_SAMPLE + episode.index)
        past = _past(rows, episode)
        found = [self._trial(trials, record, past) for record in waiting]
        if trials.stopped:
            return replace(episode, status="stopped", lessons=(), records=())
        usage = episode.usage | ({VALIDATION: trials.usage} if trials.usage.calls else {})
        return replace(episode, validated=tuple(filter(None, found)), usage=usage)

    def _trial(self, trials: Trials, record: MemoryRecord, past: list[Task]) -> dict[str, Any] | None:
        """{id, tasks: those it was tried on, won_with, won_without, status}; None if it could not be tried."""
        pairs = []
        for task in self._held_out(record, past):
            pair = trials.solved(task, None), trials.solved(task, record)
            if trials.stopped:
                return None
            if None not in pair:
                pairs.append((task.id, *pair))
        if not pairs:
            return None
        won_without, won_with = (sum(pair[place] for pair in pairs) for place in (1, 2))
        gain = won_with - won_without
        status = "active" if gain > 0 else "archived" if gain < 0 else CANDIDATE
        counts = {"tasks": [task for task, *_ in pairs], "won_with": won_with, "won_without": won_without}
        return {"id": record.id, **counts, "status": status}

    def _held_out(self, record: MemoryRecord, past: list[Task]) -> list[Task]:
        """The n earlier tasks that share most words with the record's query, of equals the latest; not its own."""
        own = _words(record.original_query)

        def shared(task: Task) -> float:
            words = _words(task.query)
            return (own & words).total() / max((own | words).total(), 1)

        others = [task for task in reversed(past) if task.id != record.task_id]
        return sorted(others, key=shared, reverse=True)[: self.n]


def _words(text: str) -> Counter[str]:
    return Counter(terms(words_of(text)))


@dataclass(kw_only=True)
class Trials:
    """One round of trials. Each task is played once without a lesson, however many are tried on it."""

    play: Play
    sample: int

    def __post_init__(self) -> None:
        self.usage, self.stopped = Usage(), False
        self._without: dict[str, bool | None] = {}

    def solved(self, task: Task, record: MemoryRecord | None) -> bool | None:
        """Whether an attempt, shown this record alone, is judged a success; None if attempt or judge broke."""
        if record is not None:
            return self._played(task, [Scored(record=record, score=1.0)])
        if task.id not in self._without:
            self._without[task.id] = self._played(task, [])
        return self._without[task.id]

    def _played(self, task: Task, memories: list[Scored]) -> bool | None:
        if self.stopped:
            return None
        trial = self.play(task, memories, self.sample)
        self.usage += trial.usage
        self.stopped = trial.stopped
        return trial.solved


def _past(rows: list[dict[str, Any]], episode: Episode) -> list[Task]:
    """The tasks that count so far, each once, in the order of the stream; that of the episode is the last."""
    done = [(row["task_id"], row["query"], row["task_type"]) for row in current(rows) if row["status"] in VALID]
    if episode.status in VALID:
        done.append((episode.task_id, episode.query, episode.task_type))
    return [Task(id=id, query=query, type=kind) for id, query, kind in dict.fromkeys(done)]
