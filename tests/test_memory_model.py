"""Random adds, uses, merges, marks, crashes and rollbacks: the bank always is what a plain Python model says."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_kit import Compass, item, record
from memory_model import ALIKE, DUPLICATE, EVERY, Model

from core.memory.bank import MemoryBank
from core.memory.consolidation import by_hand
from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.consolidator import Life
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.episode_feedback import Experience
from core.memory.consolidation.merge import Merge
from core.memory.consolidation.merge_authors import Voting
from core.memory.policies.base import Cosine

ANGLES = st.sampled_from(range(0, 80, 10))
LIFE = st.tuples(  # of a record: where it points, its words, its query, its outcome, its trust; and of its episode
    ANGLES,
    st.sampled_from(["look", "think"]),
    ANGLES,
    st.sampled_from(["success", "success", "failure"]),
    st.sampled_from([1.0, 0.5]),
    st.sampled_from(["success", "failure"]),
    st.lists(st.integers(0, 30), max_size=3),
)


class Crash(BaseException):
    """The process ends here."""


class BankAndModel(RuleBasedStateMachine):
    """Every rule does the same to both; `crash` says before which commit, if any, the process ends."""

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp())
        self.model, self.index, self.seqs = Model(), 0, [0]
        self.open()

    def open(self):
        life = Life(
            every=EVERY,
            confidence=Confidence(),
            deduplicate=Deduplicate(title_distance=0, min_score=DUPLICATE),
            merge=Merge(min_score=ALIKE, most=4, author=Voting()),
        )
        path = str(self.folder / "bank.sqlite")
        self.bank = MemoryBank(path=path, embedder=Compass(), policy=Cosine(), consolidate=life)

    def teardown(self):
        if hasattr(self, "bank"):
            self.bank.close()
            shutil.rmtree(self.folder)

    def both(self, crash, act, steps):
        """Do `act` with the bank and as many of the model's transactions as were committed before the crash."""
        plain, n_committed, crashed = self.bank.change, 0, False

        @contextmanager
        def change(reason):
            nonlocal n_committed
            with plain(reason) as inner:
                yield inner
                if inner.made and n_committed == crash:
                    raise Crash
                n_committed += inner.made

        self.bank.change = change
        try:
            act()
        except Crash:
            crashed = True
        self.bank.change = plain
        started = len(self.model.history)
        for _ in steps:
            if crashed and len(self.model.history) >= started + n_committed:
                break
        if crashed:
            self.model.go_back(started + n_committed)
            self.open_again()
        else:
            self.model.strike()
        self.seqs += [entry["seq"] for entry in self.bank.journal()][len(self.seqs) - 1 :]
        assert len(self.seqs) == len(self.model.history), "as many journal entries as the model has transactions"

    @rule(lives=st.lists(LIFE, min_size=1, max_size=6), crash=st.integers(-8, 12))
    def live_some_episodes(self, lives, crash):
        """Add records and learn their episodes, as the harness does it."""
        made, seen, ids = [], [], list(self.model.now.records)
        for angle, words, query, outcome, trust, label, used in lives:
            name, changes = f"r{self.index:03}", {"outcome": outcome, "trust": trust, "tick": self.index}
            made.append(record(name, item(angle, words), query=f"@{query} q{self.index}", **changes))
            used = tuple(ids[place] for place in used if place < len(ids))
            seen.append(Experience(index=self.index, label=label, used=used, added=name))
            self.index += 1

        def act():
            for record_, experience in zip(made, seen, strict=True):
                self.bank.add(record_)
                self.bank.learn(experience)

        def steps():
            for record_, experience in zip(made, seen, strict=True):
                yield from self.model.add(record_)
                yield from self.model.learn(experience)

        self.both(crash, act, steps())

    @rule(crash=st.integers(-4, 3))
    def go_over_everything(self, crash):
        self.both(crash, lambda: self.bank.consolidate.consolidate(self.bank), self.model.consolidate())

    @rule(crash=st.integers(-4, 3))
    def go_on_after_a_crash(self, crash):
        self.both(crash, lambda: self.bank.learn(None), self.model.rounds())

    @precondition(lambda self: self.model.now.records)
    @rule(place=st.integers(0, 99), helpful=st.booleans(), crash=st.integers(-2, 0))
    def mark(self, place, helpful, crash):
        id = self.pick(place)
        self.both(crash, lambda: by_hand.mark(self.bank, id, helpful), self.model.mark(id, helpful))

    @precondition(lambda self: self.model.now.records)
    @rule(
        place=st.integers(0, 99),
        status=st.sampled_from(["active", "quarantined", "archived"]),
        crash=st.integers(-2, 0),
    )
    def set_aside_or_bring_back(self, place, status, crash):
        id = self.pick(place)
        self.both(crash, lambda: by_hand.set_status(self.bank, id, status), self.model.set_status(id, status))

    @precondition(lambda self: self.merges())
    @rule(place=st.integers(0, 99), crash=st.integers(-2, 0))
    def undo_a_merge(self, place, crash):
        id = self.merges()[place % len(self.merges())]
        self.both(crash, lambda: by_hand.unmerge(self.bank, id), self.model.unmerge(id))

    @rule(back=st.integers(0, 12), crash=st.integers(-2, 0))
    def roll_back(self, back, crash):
        to, before = max(0, len(self.model.history) - 1 - back), self.bank.seq()
        steps = self.model.rollback(to, lambda: self.bank.seq() > before)
        self.both(crash, lambda: self.bank.rollback(self.seqs[to]), steps)

    @precondition(lambda self: self.model.now.records)
    @rule(place=st.integers(0, 99), crash=st.integers(-3, 0))
    def forget(self, place, crash):
        id = self.pick(place)
        self.both(crash, lambda: self.bank.forget(id=id), self.model.forget(id))

    @rule()
    def open_again(self):
        self.bank.close()
        self.open()

    def pick(self, place):
        ids = list(self.model.now.records)
        return ids[place % len(ids)]

    def merges(self):
        return [r.id for r in self.model.active() if r.parents]

    @invariant()
    def the_records_are_the_models(self):
        def plain(r):
            tasks = {"tasks": r.provenance["tasks"]} if r.parents else {}
            fields = {"query_embedding": (), "created_at": "", "provenance": tasks, "confidence": near(r.confidence)}
            return replace(r, **fields)

        assert [plain(r) for r in self.bank.records()] == [plain(r) for r in self.model.now.records.values()]

    @invariant()
    def the_links_are_the_models(self):
        assert {link[:3] for link in self.bank.links()} == self.model.now.links

    @invariant()
    def what_is_retrieved_is_what_brute_force_finds(self):
        for query, task in (("@0", None), ("@60", "task r001"), ("@110", "task r003")):
            found = [hit.record.id for hit in self.bank.retrieve(query, top_k=50, exclude_task=task)]
            assert found == [r.id for r in self.model.nearest(query, task)]

    @invariant()
    def a_merge_holds_together(self):
        records = self.model.now.records
        for merged in (r for r in self.bank.records() if r.parents):
            parents = [records[id] for id in merged.parents if id in records]
            assert {r.outcome for r in parents} <= {merged.outcome}
            assert merged.trust == min(r.trust for r in parents)


def near(confidence):
    return None if confidence is None else round(confidence, 7)


BankAndModel.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestBankAndModel = BankAndModel.TestCase
