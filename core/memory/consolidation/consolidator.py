"""Consolidation of the bank after each episode (`memory.consolidate`).

Each episode updates the counters of the records that it used. Whenever enough new records have come, a round runs the
policies (deduplicate, merge, contradict, prune) over them. Both repeat exactly: how far they have come is stored in the
bank (Progress), in the same transaction as what they changed, so that after a crash the same call goes on from there.
"""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.checks import check_numbers, check_positive
from core.errors import OverBudget
from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.context import ConsolidationContext, ConsolidationPolicy, ProposedChange
from core.memory.consolidation.episode_feedback import EpisodeFeedback, feedback_of
from core.memory.consolidation.progress import Progress
from core.models.base import Role
from core.types import MemoryRecord, Usage

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank
    from core.memory.store.changes import Change

log = logging.getLogger(__name__)

MAX_REASON = 2000  # characters of a journal entry's reason; the entry itself holds everything


@dataclass(kw_only=True)
class Consolidator:
    """memory.consolidate: which policies run, in this order, over the records that came since the last round.

    every          new records after which a round begins (20 in agentic-flow's ReasoningBank)
    background     run rounds in a thread of their own, for a server; a run that must repeat exactly says false
    candidates     nearest records, by query and by words each, that a new record is compared with
    ticks_per_day  tasks of the stream that count as a day, where the bank's clock is the stream
    confidence, deduplicate, merge, contradict, prune   the policies; null leaves one out
    role, seed     given at runtime: the extractor's model and the run's seed
    run            given at runtime: a name that tells this run's episodes from those of other runs on the same bank;
                   "" where the bank is the run's own
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
    _round_lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)  # one round at a time
    _start_lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)  # for _pool, _running
    _pool: ThreadPoolExecutor | None = field(default=None, init=False, repr=False)
    _running: Future | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_numbers(self, "consolidate", "every", "candidates", least=1, whole=True)
        check_positive(self, "consolidate", "ticks_per_day")
        self._policies = [p for p in (self.deduplicate, self.merge, self.contradict, self.prune) if p is not None]

    def learn(self, bank: MemoryBank, episode: dict[str, Any] | EpisodeFeedback | None) -> None:
        """Count an episode (a row of episodes.jsonl, or its feedback), then run the rounds that are due.

        An episode that was counted before changes nothing. With None only the rounds run, as after a crash.
        """
        if bank.read_only:
            return
        if episode is not None:
            self._count(bank, feedback_of(episode) if isinstance(episode, dict) else episode)
        if self.background:
            self._start_rounds(bank)
        else:
            self._run_rounds(bank)

    def consolidate(self, bank: MemoryBank) -> None:
        """Run one round now over every active record of the bank's namespace, whatever `every` says."""
        ids = tuple(record.id for record in bank.records(namespace=bank.namespace, status="active"))
        if self._policies and ids:
            with bank.change("consolidate: a round over all records") as change:
                self._save(bank, change, replace(self.progress(bank), fresh=(), round=ids, step=0))
        self._run_rounds(bank)

    def progress(self, bank: MemoryBank) -> Progress:
        """How far consolidation has come."""
        return Progress.from_text(bank.fact(self._key(bank)))

    def usage(self, bank: MemoryBank) -> Usage:
        """What all rounds of this run have cost."""
        return self.progress(bank).usage

    def close(self) -> None:
        """Wait for a round in the background; raises the error that ended it."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        self._await_running()

    def _count(self, bank: MemoryBank, seen: EpisodeFeedback) -> None:
        """Count one episode's uses and new records, and that it was counted, in one transaction."""
        if self._is_counted(bank, seen) or (not seen.new and all(bank.get(id) is None for id in seen.used)):
            return  # nothing would change, so no transaction is needed
        with bank.change(f"learn: episode {seen.index}") as change:
            if self._is_counted(bank, seen):  # asked again: only inside the transaction can no other process do it
                return
            before = self.progress(bank)
            ctx = ConsolidationContext(bank=bank, settings=self, fresh=before.round)
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

    def _is_counted(self, bank: MemoryBank, seen: EpisodeFeedback) -> bool:
        return seen.index is not None and seen.index < self.progress(bank).folded

    def _used(self, ctx: ConsolidationContext, record: MemoryRecord, label: str | None) -> dict[str, Any]:
        """The new fields of a record that was shown to an agent whose attempt was judged `label`."""
        fields = {"n_used": record.n_used + 1, "n_used_success": record.n_used_success + (label == "success")}
        if self.confidence is not None:
            fields["confidence"] = self.confidence.after_use(record, ctx.idle_days(record), label)
        return fields | {"last_used": ctx.now()}

    def _run_rounds(self, bank: MemoryBank) -> None:
        """Run the policies of the rounds that are due, each in one transaction that also stores that it is done."""
        with self._round_lock, self._one_process(bank) as mine:
            while mine and (at := self.progress(bank)).round:
                for number in range(at.step, len(self._policies)):
                    policy, ctx = self._policies[number], ConsolidationContext(bank=bank, settings=self, fresh=at.round)
                    if (proposed := policy.plan(ctx)) or ctx.usage.calls:
                        reason = f"{policy.name}: {'; '.join(each.reason for each in proposed) or 'nothing'}"
                        self._write(bank, at, reason, proposed, ctx.usage, step=number + 1)
                        break
                else:
                    self._write(bank, at, "consolidate: the round is over", [], Usage(), step=None)

    @contextmanager
    def _one_process(self, bank: MemoryBank) -> Iterator[bool]:
        """Whether this process may run rounds. In the background only one does: others would plan the same again."""
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
        self,
        bank: MemoryBank,
        at: Progress,
        reason: str,
        proposed: list[ProposedChange],
        spent: Usage,
        step: int | None,
    ) -> None:
        """Make the changes that a policy proposed at some progress, except those whose records have changed since.

        step   policies of the round that are then done; None: the round is over
        """
        with bank.change(reason[:MAX_REASON]) as change:
            present = self.progress(bank)
            if (present.round, present.step) != (at.round, at.step):
                return  # another process has done this
            made = ()
            for each in [each for each in proposed if each.still_holds(bank)]:
                if each.add is not None:
                    change.add(each.add)
                    made = (*made, each.add.id)
                for id, fields in each.updates.items():
                    change.update(id, **fields)
                for link in each.links:
                    change.link(*link)
            if step is None:
                after = replace(present, round=(), step=0).begun(self.every)
            else:
                after = replace(present, step=step, round=(*present.round, *made), usage=present.usage + spent)
            self._save(bank, change, after)

    def _start_rounds(self, bank: MemoryBank) -> None:
        """Run the rounds that are due in the background, unless they are running already."""
        with self._start_lock:
            if self._running is not None and not self._running.done():
                return
            self._await_running()
            if self.progress(bank).round:
                self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="consolidate")
                self._running = self._pool.submit(self._run_rounds, bank)

    def _await_running(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            try:
                running.result()
            except OverBudget as error:  # the bank stores the round, which goes on when there is a budget again
                log.warning(f"consolidation waits: {error}")

    def _key(self, bank: MemoryBank) -> str:
        return f"consolidate:{self.run}:{bank.namespace}"

    def _save(self, bank: MemoryBank, change: Change, progress: Progress) -> None:
        change.fact(self._key(bank), progress.to_text())
