"""Consolidation of the bank after each episode (`memory.consolidate`).

Each episode updates the counters of the records that it used. Whenever enough new records have come, a round runs the
policies (deduplicate, merge, contradict, prune) over them. Both repeat exactly: how far they have come is stored in the
bank (Progress), in the same transaction as what they changed, so that after a crash the same call goes on from there.
"""

from __future__ import annotations

import json
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from core.errors import OverBudget, UserError, check_numbers, check_positive
from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.context import ConsolidationContext, ConsolidationPolicy, ProposedChange
from core.memory.ports import Bank, Consolidates, OpenChange
from core.memory.records import EpisodeFeedback
from core.memory.uses import after_use
from core.models.base import Role
from core.types import Usage

# How far consolidation has come, as it is stored in the bank.


class LaterVersion(UserError):
    """What is stored can be read by a later version only."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One for each run and namespace of a bank."""

    folded: int = 0  # episodes with a lower index have been counted
    fresh: tuple[str, ...] = ()  # ids of the records that wait for a round
    round: tuple[str, ...] = ()  # ids of the records of the round under way, those that it made included
    step: int = 0  # policies of this round that are done
    usage: Usage = field(default_factory=Usage)  # of all models asked so far
    arrived: tuple[str, ...] = ()  # ids of the records that `deduplicate.on_add` has yet to look at

    def begun(self, every: int) -> Progress:
        """With the next round begun, if none is under way and enough records wait."""
        if self.round or len(self.fresh) < every:
            return self
        return replace(self, fresh=(), round=self.fresh, step=0)

    def to_text(self) -> str:
        """As JSON; without `arrived` where there are none, as versions that did not know it have it."""
        values = asdict(self)
        if not self.arrived:
            del values["arrived"]
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_text(cls, text: str | None) -> Progress:
        """From JSON; the beginning for None. LaterVersion for what only a later version can read."""
        if text is None:
            return cls()
        values = json.loads(text)
        if unknown := sorted((values.keys() - vars(cls())) | (values["usage"].keys() - vars(Usage()))):
            raise LaterVersion(f"the bank's consolidation was begun by a later version: {', '.join(unknown)} is its.")
        ids = {name: tuple(values.get(name, ())) for name in ("fresh", "round", "arrived")}
        return cls(**values | ids | {"usage": Usage(**values["usage"])})


log = logging.getLogger(__name__)

MAX_REASON = 2000  # characters of a journal entry's reason; the entry itself holds everything


@dataclass(kw_only=True)
class Consolidator(Consolidates):
    """memory.consolidate: which policies run, in this order, over the records that came since the last round.

    every          new records after which a round begins (20 in agentic-flow's ReasoningBank)
    background     run rounds in a thread of their own, for a server; a run that must repeat exactly says false
    candidates     nearest records, by query and by words each, that a new record is compared with
    keep_vectors   False: what a round sets aside loses its vectors, and is embedded anew when it comes back
    ticks_per_day  tasks of the stream that count as a day, where the bank's clock is the stream
    confidence, deduplicate, merge, contradict, prune   the policies; null leaves one out
    role, seed     given at runtime: the extractor's model and the run's seed
    run            given at runtime: a name that tells this run's episodes from those of other runs on the same bank;
                   "" where the bank is the run's own
    """

    counts_within: ClassVar[bool] = True

    every: int = 20
    background: bool = False
    candidates: int = 50
    keep_vectors: bool = True
    ticks_per_day: float = 1.0
    confidence: Confidence | None = None
    deduplicate: ConsolidationPolicy | None = None
    merge: ConsolidationPolicy | None = None
    contradict: ConsolidationPolicy | None = None
    prune: ConsolidationPolicy | None = None
    role: Role | None = None
    seed: int = 0
    run: str = ""
    vectors: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # of texts that were compared
    _round_lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)  # one round at a time
    _start_lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)  # for what follows
    _pool: ThreadPoolExecutor | None = field(default=None, init=False, repr=False)
    _begun: list[Future] = field(default_factory=list, init=False, repr=False)  # rounds in the background
    _waiting: set[str] = field(default_factory=set, init=False, repr=False)  # namespaces whose round has yet to start

    def __post_init__(self) -> None:
        check_numbers(self, "consolidate", "every", "candidates", least=1, whole=True)
        check_positive(self, "consolidate", "ticks_per_day")
        self._on_add = self.deduplicate is not None and self.deduplicate.on_add
        self._policies = [p for p in (self.deduplicate, self.merge, self.contradict, self.prune) if p is not None]

    def learn(self, bank: Bank, feedback: EpisodeFeedback | None) -> None:
        """Count an episode, then run the rounds that are due.

        An episode that was counted before changes nothing. With None only what is due runs, as after a crash.
        """
        if bank.read_only:
            return
        if feedback is not None:
            self._count(bank, feedback)
        self._check_arrived(bank)
        if self.background:
            self._start_rounds(bank)
        else:
            self._run_rounds(bank)

    def consolidate(self, bank: Bank) -> None:
        """Run one round now over every active record of the bank's namespace, whatever `every` says."""
        ids = tuple(record.id for record in bank.records(namespace=bank.namespace, status="active"))
        if self._policies and ids:
            with bank.change("consolidate: a round over all records") as change:
                self._save(bank, change, replace(self.progress(bank), fresh=(), round=ids, step=0))
        self._run_rounds(bank)

    def progress(self, bank: Bank) -> Progress:
        """How far consolidation has come."""
        return Progress.from_text(bank.fact(self._key(bank)))

    def usage(self, bank: Bank) -> Usage:
        """What all rounds of this run have cost."""
        return self.progress(bank).usage

    def close(self) -> None:
        """Wait for a round in the background; raises the error that ended it."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        ended, self._begun = self._begun, []
        _raise_error(ended)

    def _count(self, bank: Bank, seen: EpisodeFeedback) -> None:
        """Count one episode's uses and new records, and that it was counted, in one transaction."""
        if self._is_counted(bank, seen) or (not seen.new and all(bank.get(id) is None for id in seen.used)):
            return  # nothing would change, so no transaction is needed
        with bank.change(f"learn: episode {seen.index}") as change:
            if not self._is_counted(bank, seen):  # asked again: only inside the transaction can no other process do it
                self.count(bank, change, seen)

    def count(self, bank: Bank, change: OpenChange, seen: EpisodeFeedback) -> None:
        """Count an episode within a change, which may be the one that adds its records; `learn(None)` then goes on.

        Where a later version has begun to count, nothing is, and a warning says so: the records are not lost for that.
        """
        try:
            before = self.progress(bank)
        except LaterVersion as error:
            log.warning(f"stored, but no round will look at it before `python -m core.memory consolidate`: {error}")
            return
        if seen.used:  # else the clock need not be read
            fields = after_use(bank.moment(), seen.label, confidence=self.confidence, ticks_per_day=self.ticks_per_day)
            change.update_usage(dict.fromkeys(seen.used), lambda _, record: fields(record, int(not seen.counted)))
        added = [(record, sure) for id, sure in seen.new if (record := bank.get(id)) is not None]
        for record, sure in added:
            if record.confidence is None and self.confidence is not None:
                change.update(record.id, confidence=self.confidence.prior(record.outcome, sure))
        folded = before.folded if seen.index is None else seen.index + 1
        new = tuple(record.id for record, _ in added) if self._policies else ()
        arrived = before.arrived + new if self._on_add else ()
        after = replace(before, folded=folded, fresh=before.fresh + new, arrived=arrived)
        self._save(bank, change, after.begun(self.every))

    def _is_counted(self, bank: Bank, seen: EpisodeFeedback) -> bool:
        return seen.index is not None and seen.index < self.progress(bank).folded

    def _check_arrived(self, bank: Bank) -> None:
        """Supersede the duplicates among the records that have just come, or the older ones that they replace."""
        while self._on_add and (ids := self.progress(bank).arrived):
            ctx = ConsolidationContext(bank=bank, settings=self, fresh=ids)
            proposed = self.deduplicate.plan(ctx)
            reason = f"deduplicate on add: {'; '.join(each.reason for each in proposed) or 'nothing'}"
            with bank.change(reason[:MAX_REASON]) as change:
                present = self.progress(bank)
                left = tuple(id for id in present.arrived if id not in ids)
                if left != present.arrived:  # else another process has done this
                    self._make(bank, change, proposed)
                    self._save(bank, change, replace(present, arrived=left))

    def _run_rounds(self, bank: Bank) -> None:
        """Run the policies of the rounds that are due, each in one transaction that also stores that it is done."""
        # In the background one process alone runs them: others would plan the same again. Where several may (a database
        # is no file to lock), `_write` makes what the first of them planned.
        turn = bank.try_lock("rounds") if self.background else nullcontext(True)
        with self._round_lock, turn as is_mine:
            while is_mine and (at := self.progress(bank)).round:
                for number in range(at.step, len(self._policies)):
                    policy, ctx = self._policies[number], ConsolidationContext(bank=bank, settings=self, fresh=at.round)
                    if (proposed := policy.plan(ctx)) or ctx.usage.calls:
                        reason = f"{policy.name}: {'; '.join(each.reason for each in proposed) or 'nothing'}"
                        self._write(bank, at, reason, proposed, ctx.usage, step=number + 1)
                        break
                else:
                    self._write(bank, at, "consolidate: the round is over", [], Usage(), step=None)

    def _write(
        self,
        bank: Bank,
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
            made = self._make(bank, change, proposed)
            if step is None:
                after = replace(present, round=(), step=0).begun(self.every)
            else:
                after = replace(present, step=step, round=(*present.round, *made), usage=present.usage + spent)
            self._save(bank, change, after)

    def _make(self, bank: Bank, change: OpenChange, proposed: list[ProposedChange]) -> tuple[str, ...]:
        """Make what is proposed, where its records have not changed since; returns the ids of the records added."""
        made = ()
        for each in [each for each in proposed if each.still_holds(bank)]:
            if each.add is not None:
                change.add(each.add)
                made = (*made, each.add.id)
            for id, fields in each.updates.items():
                change.update(id, **fields)
                if not self.keep_vectors:
                    change.drop_vectors(id)
            for link in each.links:
                change.link(*link)
            if each.erase:
                bank.erase(change, each.erase)
        return made

    def _start_rounds(self, bank: Bank) -> None:
        """Run the rounds that are due in the background, after those of other tenants; does not wait for them."""
        with self._start_lock:
            ended = [round for round in self._begun if round.done()]
            self._begun = [round for round in self._begun if round not in ended]
            if bank.namespace not in self._waiting and self.progress(bank).round:
                self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="consolidate")
                self._waiting.add(bank.namespace)
                self._begun.append(self._pool.submit(self._run_in_background, bank))
        _raise_error(ended)

    def _run_in_background(self, bank: Bank) -> None:
        with self._start_lock:
            self._waiting.discard(bank.namespace)  # what falls due from here on may come too late for this round
        self._run_rounds(bank)

    def _key(self, bank: Bank) -> str:
        return f"consolidate:{self.run}:{bank.namespace}"

    def _save(self, bank: Bank, change: OpenChange, progress: Progress) -> None:
        change.fact(self._key(bank), progress.to_text())


def _raise_error(ended: list[Future]) -> None:
    """Raise the error that ended the first of these rounds."""
    for round in ended:
        try:
            round.result()
        except OverBudget as error:  # the bank stores the round, which goes on when there is a budget again
            log.warning(f"consolidation waits: {error}")
