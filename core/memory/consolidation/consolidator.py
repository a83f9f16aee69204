"""What becomes of lessons once they are stored (`memory.consolidate`).

Each episode updates the counters of the lessons that it used. Whenever enough new records have come, a round runs the
policies (deduplicate, merge, contradict, prune) over them. Both repeat exactly: how far they have come is stored in the
bank (Progress), in the same transaction as what they did, so that after a crash the same call goes on from there.
"""

from __future__ import annotations

import fcntl
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import OverBudget, UserError
from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.context import ConsolidationContext, ConsolidationPolicy, ProposedChange
from core.memory.consolidation.episode_feedback import EpisodeFeedback, feedback_of
from core.models.base import Role
from core.types import MemoryRecord, Usage

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

log = logging.getLogger(__name__)

MAX_REASON = 2000  # characters of a journal entry's reason; the entry itself holds everything


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far consolidation has come: one fact of the bank for each run and namespace."""

    folded: int = 0  # episodes with a lower index have been counted
    fresh: tuple[str, ...] = ()  # ids of the records that wait for a round
    round: tuple[str, ...] = ()  # ids of those that a round is going over now, and of those it has made
    step: int = 0  # policies of this round that are done
    usage: dict[str, Any] = field(default_factory=lambda: asdict(Usage()))  # of all models asked so far

    def begun(self, every: int) -> Progress:
        """The same with the next round begun, if none is under way and enough records wait."""
        if self.round or len(self.fresh) < every:
            return self
        return replace(self, fresh=(), round=self.fresh, step=0)


@dataclass(kw_only=True)
class Consolidator:
    """memory.consolidate: which policies run, in this order, over the records that came since the last round.

    every        new records after which a round begins (20 in agentic-flow's ReasoningBank)
    background   run rounds in a thread of their own, as a server wants it; a run that must repeat exactly says false
    candidates   near records, by query and by words each, that a fresh record is compared with
    ticks_per_day  tasks of the stream that count as a day, where the bank's clock is the stream
    confidence, deduplicate, merge, contradict, prune   the policies; null leaves one out
    role, seed, run   given at runtime: the extractor's model, the run's seed, and a name for the run that tells its
                 episodes from those of others on the same bank ("" where the bank is the run's own)
    """

    every: int = 20
    background: bool = False
    candidates: int = 50
    ticks_per_day: float = 1.0
    confidence: Confidence | None = None
    deduplicate: ConsolidationPolicy | None = None
    merge: ConsolidationPolicy | None = None
    contradict: ConsolidationPolicy | None = None
    prune: ConsolidationPolicy | None = None
    role: Role | None = None
    seed: int = 0
    run: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)  # one round at a time
    _gate: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)  # of what starts them
    _pool: ThreadPoolExecutor | None = field(default=None, init=False, repr=False)
    _running: Future | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.every < 1 or self.candidates < 1 or self.ticks_per_day <= 0:
            raise UserError(
                f"consolidate.every={self.every} candidates={self.candidates} ticks_per_day={self.ticks_per_day}: "
                "give at least 1, at least 1 and more than 0."
            )
        self._policies = [s for s in (self.deduplicate, self.merge, self.contradict, self.prune) if s is not None]

    def learn(self, bank: MemoryBank, episode: Any) -> None:
        """Take in an episode's row or an EpisodeFeedback, and run what has fallen due. None: only the latter.

        Changes nothing for an episode that is in already, but finishes a round that a crash cut off.
        """
        if bank.read_only:
            return
        if episode is not None:
            self._take_in(bank, feedback_of(episode) if isinstance(episode, dict) else episode)
        if self.background:
            self._start(bank)
        else:
            self._rounds(bank)

    def consolidate(self, bank: MemoryBank) -> None:
        """One round over every active record of the bank's namespace, now, whatever `every` says."""
        ids = tuple(record.id for record in bank.records(namespace=bank.namespace, status="active"))
        if self._policies and ids:
            with bank.change("consolidate: a round over all records") as change:
                self._save(bank, change, replace(self.progress(bank), fresh=(), round=ids, step=0))
        self._rounds(bank)

    def progress(self, bank: MemoryBank) -> Progress:
        """How far consolidation has come."""
        text = bank.fact(self._key(bank))
        if text is None:
            return Progress()
        values = json.loads(text)
        return Progress(**values | {name: tuple(values[name]) for name in ("fresh", "round")})

    def usage(self, bank: MemoryBank) -> Usage:
        """What all rounds of this run have cost."""
        return Usage(**self.progress(bank).usage)

    def close(self) -> None:
        """Wait for a round in the background; raises what broke it."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        self._settle()

    def _take_in(self, bank: MemoryBank, seen: EpisodeFeedback) -> None:
        """Count the uses and the new record of one episode: one transaction, with the mark that it is in."""
        if self._is_in(bank, seen) or (not seen.new and all(bank.get(id) is None for id in seen.used)):
            return  # nothing would change, so there is nothing to remember either
        with bank.change(f"learn: episode {seen.index}") as change:
            if self._is_in(bank, seen):  # asked in here once more: now no other thread or process can come between
                return
            before = self.progress(bank)
            ctx = self._context(bank, before)
            for id in dict.fromkeys(seen.used):
                if (record := bank.get(id)) is not None:
                    change.update(id, **self._used(ctx, record, seen.label))
            added = [(record, sure) for id, sure in seen.new if (record := bank.get(id)) is not None]
            for record, sure in added:
                if record.confidence is None and self.confidence is not None:
                    change.update(record.id, confidence=self.confidence.prior(record.outcome, sure))
            folded = before.folded if seen.index is None else seen.index + 1
            fresh = (*before.fresh, *(record.id for record, _ in added)) if self._policies else before.fresh
            self._save(bank, change, replace(before, folded=folded, fresh=fresh).begun(self.every))

    def _is_in(self, bank: MemoryBank, seen: EpisodeFeedback) -> bool:
        return seen.index is not None and seen.index < self.progress(bank).folded

    def _used(self, ctx: ConsolidationContext, record: MemoryRecord, label: str | None) -> dict[str, Any]:
        """What changes in a record that was put before an agent whose attempt was judged `label`."""
        fields = {"n_used": record.n_used + 1, "n_used_success": record.n_used_success + (label == "success")}
        if self.confidence is not None:
            fields["confidence"] = self.confidence.after_use(record, ctx.idle_days(record), label)
        return fields | {"last_used": ctx.clock()}

    def _rounds(self, bank: MemoryBank) -> None:
        """Do the steps that are due, each in one transaction together with the mark that it is done."""
        with self._lock, self._turn(bank) as mine:
            while mine and (at := self.progress(bank)).round:
                for number in range(at.step, len(self._policies)):
                    policy, ctx = self._policies[number], self._context(bank, at)
                    if (proposed := policy.plan(ctx)) or ctx.usage.calls:
                        self._write(bank, policy.name, proposed, at, number + 1, ctx.usage)
                        break
                else:
                    with bank.change("consolidate: the round is over") as change:
                        present = self.progress(bank)
                        if (present.round, present.step) == (
                            at.round,
                            at.step,
                        ):  # else another process did it
                            self._save(bank, change, replace(present, round=(), step=0).begun(self.every))

    @contextmanager
    def _turn(self, bank: MemoryBank) -> Iterator[bool]:
        """Whether this process goes over the bank. In the background one does: the others would plan the same again."""
        if not self.background:
            yield True
            return
        with Path(f"{bank.path}.rounds").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _write(
        self, bank: MemoryBank, name: str, proposed: list[ProposedChange], at: Progress, done: int, usage: Usage
    ) -> None:
        """Do what a policy has proposed at some progress, less what others have changed meanwhile; mark it done."""
        reason = f"{name}: {'; '.join(each.reason for each in proposed) or 'nothing'}"
        with bank.change(reason[:MAX_REASON]) as change:
            present = self.progress(bank)
            if (present.round, present.step) != (at.round, at.step):
                return  # another process has done this
            made = ()
            for each in [each for each in proposed if _still_holds(bank, each)]:
                if each.add is not None:
                    change.add(each.add)
                    made = (*made, each.add.id)
                for id, fields in each.updates.items():
                    change.update(id, **fields)
                for link in each.links:
                    change.link(*link)
            spent = asdict(Usage(**present.usage) + usage)
            self._save(bank, change, replace(present, step=done, round=(*present.round, *made), usage=spent))

    def _context(self, bank: MemoryBank, at: Progress) -> ConsolidationContext:
        return ConsolidationContext(
            bank=bank,
            fresh=at.round,
            confidence=self.confidence or Confidence(),
            role=self.role,
            seed=self.seed,
            candidates=self.candidates,
            ticks_per_day=self.ticks_per_day,
        )

    def _start(self, bank: MemoryBank) -> None:
        """Have the rounds that are due run in the background, one at a time."""
        with self._gate:
            if self._running is not None and not self._running.done():
                return
            self._settle()
            if self.progress(bank).round:
                self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="consolidate")
                self._running = self._pool.submit(self._rounds, bank)

    def _settle(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            try:
                running.result()
            except OverBudget as error:  # the round stands in the bank, and goes on when there is a budget again
                log.warning(f"consolidation waits: {error}")

    def _key(self, bank: MemoryBank) -> str:
        return f"consolidate:{self.run}:{bank.namespace}"

    def _save(self, bank: MemoryBank, change: Any, progress: Progress) -> None:
        change.fact(self._key(bank), json.dumps(asdict(progress), sort_keys=True))


def _still_holds(bank: MemoryBank, proposed: ProposedChange) -> bool:
    """Whether every record is as the plan saw it, and what is to be added is not there (a merge that was undone)."""
    if proposed.add is not None and bank.get(proposed.add.id) is not None:
        return False
    for seen in proposed.seen:
        record = bank.get(seen.id)
        same = record and (record.status, record.items, record.confidence) == (seen.status, seen.items, seen.confidence)
        if not same:
            return False
    return True
