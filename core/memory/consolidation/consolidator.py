"""Consolidation of the bank after each episode (`memory.consolidate`).

Each episode updates the counters of the records that it used. Whenever there are enough new records, a round runs the
policies (deduplicate, merge, contradict, prune) over them. Both repeat exactly: the progress is stored in the bank
(Progress), in the same transaction as the changes, so that after a crash the same call continues from there.
"""

from __future__ import annotations

import json
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

from core.errors import OverBudget, UserError, check_numbers, check_positive
from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.context import ConsolidationContext, ConsolidationPolicy, ProposedChange
from core.memory.ports import Consolidates, OpenBank, OpenChange
from core.memory.records import EpisodeFeedback
from core.memory.uses import after_use
from core.models.base import Role
from core.types import Usage

# Progress of consolidation, stored in the bank.


class LaterVersion(UserError):
    """The stored progress is of a later version, which this one cannot read."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of consolidation, one per run and namespace of a bank."""

    folded: int = 0  # episodes with a lower index have been counted
    fresh: tuple[str, ...] = ()  # ids of the records that wait for a round
    round: tuple[str, ...] = ()  # ids of the records of the running round, including those that it added
    step: int = 0  # number of policies finished in this round
    usage: Usage = field(default_factory=Usage)  # cost of all model calls so far
    arrived: tuple[str, ...] = ()  # ids of the records that `deduplicate.on_add` has not checked yet

    def begun(self, every: int) -> Progress:
        """The progress after starting the next round, if none is running and at least `every` records wait."""
        if self.round or len(self.fresh) < every:
            return self
        return replace(self, fresh=(), round=self.fresh, step=0)

    def to_text(self) -> str:
        """Convert to JSON, without an empty `arrived`, which older versions cannot read."""
        values = asdict(self)
        if not self.arrived:
            del values["arrived"]
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_text(cls, text: str | None) -> Progress:
        """Convert from JSON; None: a new Progress. LaterVersion for fields that only a later version knows."""
        if text is None:
            return cls()
        values = json.loads(text)
        if unknown := sorted((values.keys() - vars(cls())) | (values["usage"].keys() - vars(Usage()))):
            raise LaterVersion(f"the bank's consolidation was begun by a later version: {', '.join(unknown)} is its.")
        ids = {name: tuple(values.get(name, ())) for name in ("fresh", "round", "arrived")}
        return cls(**values | ids | {"usage": Usage(**values["usage"])})


log = logging.getLogger(__name__)

MAX_REASON = 2000  # max. characters of a journal entry's reason; its undo rows are complete


@dataclass(kw_only=True)
class Consolidator(Consolidates):
    """Runs the policies, in the order below, over the records added since the last round (`memory.consolidate`).

    every          number of new records that starts a round (20 in agentic-flow's ReasoningBank)
    background     run rounds in a separate thread, for a server; must be false in a run that has to repeat exactly
    candidates     number of nearest records, by their lessons, that a new record is compared with
    ticks_per_day  tasks of the stream that count as a day, if the bank's clock is the stream
    confidence, deduplicate, merge, contradict, prune   the policies; null leaves one out
    role, seed     set at runtime: the extractor's model and the run's seed
    run            set at runtime: a name that separates this run's episodes from those of other runs on the same bank;
                   "" if only this run uses the bank
    """

    counts_within: ClassVar[bool] = True

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
    vectors: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # cache: {text: vector}
    _round_lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)  # held during a round
    _start_lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)  # guards what follows
    _pool: ThreadPoolExecutor | None = field(default=None, init=False, repr=False)
    _begun: list[Future] = field(default_factory=list, init=False, repr=False)  # rounds in the background
    _waiting: set[str] = field(default_factory=set, init=False, repr=False)  # namespaces whose round has yet to start

    def __post_init__(self) -> None:
        check_numbers(self, "consolidate", "every", "candidates", least=1, whole=True)
        check_positive(self, "consolidate", "ticks_per_day")
        self._on_add = self.deduplicate is not None and self.deduplicate.on_add
        self._policies = [p for p in (self.deduplicate, self.merge, self.contradict, self.prune) if p is not None]

    def learn(self, bank: OpenBank, feedback: EpisodeFeedback | None) -> None:
        """Count an episode, then run the rounds that are due.

        An episode that was counted before changes nothing. feedback None: only the rounds that are due, as after a
        crash.
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

    def consolidate(self, bank: OpenBank) -> None:
        """Run one round now over all active records of the bank's namespace, regardless of `every`."""
        ids = tuple(id for id, _ in bank.titles())
        if self._policies and ids:
            with bank.change("consolidate: a round over all records") as change:
                self._save(bank, change, replace(self.progress(bank), fresh=(), round=ids, step=0))
        self._run_rounds(bank)

    def progress(self, bank: OpenBank) -> Progress:
        """The progress stored for this run and the bank's namespace."""
        return Progress.from_text(bank.fact(self._key(bank)))

    def usage(self, bank: OpenBank) -> Usage:
        """Cost of all rounds of this run."""
        return self.progress(bank).usage

    def close(self) -> None:
        """Wait for a round in the background, and raise the error that ended it, if any."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        ended, self._begun = self._begun, []
        _raise_error(ended)

    def _count(self, bank: OpenBank, seen: EpisodeFeedback) -> None:
        """Count an episode's uses and new records and store the progress, in one transaction."""
        if self._is_counted(bank, seen) or (not seen.new and all(bank.get(id) is None for id in seen.used)):
            return  # nothing would change, so no transaction is needed
        with bank.change(f"learn: episode {seen.index}") as change:
            if not self._is_counted(bank, seen):  # checked again: inside the transaction no other process can count it
                self.count(bank, change, seen)

    def count(self, bank: OpenBank, change: OpenChange, seen: EpisodeFeedback) -> None:
        """Count an episode inside a change, which may be the one that adds its records. Call `learn(None)` afterwards.

        If the stored progress is of a later version, nothing is counted and a warning is logged; the records are kept.
        """
        try:
            before = self.progress(bank)
        except LaterVersion as error:
            log.warning(f"stored, but not consolidated before you run `reasoningbank bank consolidate`: {error}")
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

    def _is_counted(self, bank: OpenBank, seen: EpisodeFeedback) -> bool:
        return seen.index is not None and seen.index < self.progress(bank).folded

    def _check_arrived(self, bank: OpenBank) -> None:
        """Run `deduplicate` on the records that have just been added (deduplicate.on_add)."""
        while self.deduplicate is not None and self._on_add and (ids := self.progress(bank).arrived):
            ctx = ConsolidationContext(bank=bank, settings=self, fresh=ids)
            proposed = self.deduplicate.plan(ctx)
            reason = f"deduplicate on add: {'; '.join(each.reason for each in proposed) or 'nothing'}"
            with bank.change(reason[:MAX_REASON]) as change:
                present = self.progress(bank)
                left = tuple(id for id in present.arrived if id not in ids)
                if left != present.arrived:  # else another process has done this
                    self._make(bank, change, proposed)
                    self._save(bank, change, replace(present, arrived=left))

    def _run_rounds(self, bank: OpenBank) -> None:
        """Run the policies of the rounds that are due, each in one transaction that also stores that it is done."""
        # In the background only one process runs them, since others would plan the same again. PostgreSQL has no such
        # lock: if several processes plan, `_write` makes only the changes of the first.
        turn = bank.try_lock("rounds") if self.background else nullcontext(True)
        with self._round_lock, turn as is_mine:
            while is_mine and (at := self.progress(bank)).round:
                ctx = ConsolidationContext(bank=bank, settings=self, fresh=at.round)
                for number, policy in list(enumerate(self._policies))[at.step :]:
                    if (proposed := policy.plan(ctx)) or ctx.usage.calls:
                        reason = f"{policy.name}: {'; '.join(each.reason for each in proposed) or 'nothing'}"
                        self._write(bank, at, reason, proposed, ctx.usage, step=number + 1)
                        break
                else:
                    self._write(bank, at, "consolidate: the round is over", [], Usage(), step=None)

    def _write(
        self,
        bank: OpenBank,
        at: Progress,
        reason: str,
        proposed: list[ProposedChange],
        spent: Usage,
        step: int | None,
    ) -> None:
        """Make the changes that a policy proposed, except those whose records have changed since.

        at     progress for which they were planned; nothing is done if it is no longer the current one
        step   number of policies finished after this one; None: the round is over
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

    def _make(self, bank: OpenBank, change: OpenChange, proposed: list[ProposedChange]) -> tuple[str, ...]:
        """Make the proposed changes whose records have not changed since; returns the ids of the records added."""
        made, get = (), cache(bank.get)  # each record is read once, before the first change
        for each in [each for each in proposed if each.still_holds(get)]:
            if each.add is not None:
                change.add(each.add)
                made = (*made, each.add.id)
            for id, fields in each.updates.items():
                change.update(id, **fields)
            for link in each.links:
                change.link(*link)
            if each.erase:
                bank.erase(change, each.erase)
        return made

    def _start_rounds(self, bank: OpenBank) -> None:
        """Queue the rounds that are due for the background thread, after those of other tenants; does not wait."""
        with self._start_lock:
            ended = [round for round in self._begun if round.done()]
            self._begun = [round for round in self._begun if round not in ended]
            if bank.namespace not in self._waiting and self.progress(bank).round:
                self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="consolidate")
                self._waiting.add(bank.namespace)
                self._begun.append(self._pool.submit(self._run_in_background, bank))
        _raise_error(ended)

    def _run_in_background(self, bank: OpenBank) -> None:
        with self._start_lock:
            self._waiting.discard(bank.namespace)  # records added from here on may miss this round, and queue it again
        self._run_rounds(bank)

    def _key(self, bank: OpenBank) -> str:
        return f"consolidate:{self.run}:{bank.namespace}"

    def _save(self, bank: OpenBank, change: OpenChange, progress: Progress) -> None:
        change.fact(self._key(bank), progress.to_text())


def _raise_error(ended: list[Future]) -> None:
    """Raise the first error that ended one of these rounds; OverBudget is only logged."""
    for round in ended:
        try:
            round.result()
        except OverBudget as error:  # the bank stores the round, which continues when there is a budget again
            log.warning(f"consolidation waits: {error}")
