"""Random adds, uses, merges, marks, crashes and rollbacks: the bank always is what a plain Python model says.

Two tenants live in it, with the same ids: what one does never shows with the other.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_kit import Compass, item, record
from memory_model import ALIKE, DUPLICATE, EVERY, Model

from core.errors import UserError
from core.memory import by_hand
from core.memory.bank import MemoryBank
from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.consolidator import Consolidator
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.merge import Merge, Voting
from core.memory.policies.cosine import Cosine
from core.memory.records import EpisodeFeedback

TENANTS = ("ann", "bob")
WHO = st.sampled_from(TENANTS)
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

    @initialize(on_add=st.booleans())
    def begin(self, on_add):
        self.folder, self.on_add = Path(tempfile.mkdtemp()), on_add
        self.models = {who: Model(on_add) for who in TENANTS}
        self.indexes = dict.fromkeys(TENANTS, 0)
        self.seqs = {who: [0] for who in TENANTS}
        self.forgot = self.lost_its_past = False
        self.open()

    def open(self):
        life = Consolidator(
            every=EVERY,
            confidence=Confidence(),
            deduplicate=Deduplicate(title_distance=0, min_score=DUPLICATE, on_add=self.on_add),
            merge=Merge(min_score=ALIKE, most=4, author=Voting()),
        )
        path = str(self.folder / "bank.sqlite")
        self.bank = MemoryBank(path=path, embedder=Compass(), policy=Cosine(), consolidate=life)
        self.views = {who: self.bank.of(who) for who in TENANTS}

    def teardown(self):
        if hasattr(self, "bank"):
            self.bank.close()
            shutil.rmtree(self.folder)

    def both(self, who, crash, act, steps):
        """Do `act` with a tenant's bank and as many of the model's transactions as were committed before the crash."""
        bank, model = self.views[who], self.models[who]
        plain, n_committed, crashed, before = bank.change, 0, False, bank.history.seq()

        @contextmanager
        def change(reason, wait_s=None):
            nonlocal n_committed
            with plain(reason, wait_s) as inner:
                yield inner
                if inner.made and n_committed == crash:
                    raise Crash
                n_committed += inner.made

        bank.change = change
        try:
            act(bank)
        except Crash:
            crashed = True
        bank.change = plain
        started = len(model.history)
        for _ in steps:
            if crashed and len(model.history) >= started + n_committed:
                break
        if crashed:
            model.go_back(started + n_committed)
            self.open_again()
        else:
            model.strike()
        self.seqs[who] += [entry["seq"] for entry in self.bank.history.journal() if entry["seq"] > before]
        assert len(self.seqs[who]) == len(model.history), "as many journal entries as the model has transactions"

    @rule(who=WHO, lives=st.lists(LIFE, min_size=1, max_size=6), crash=st.integers(-8, 12))
    def live_some_episodes(self, who, lives, crash):
        """Add records and learn their episodes, as the harness does it."""
        made, seen, model = [], [], self.models[who]
        ids = list(model.now.records)
        for angle, words, query, outcome, trust, label, used in lives:
            index = self.indexes[who]
            changes = {"outcome": outcome, "trust": trust, "tick": index, "namespace": who}
            made.append(record(f"r{index:03}", item(angle, words), query=f"@{query} q{index}", **changes))
            used = tuple(ids[place] for place in used if place < len(ids))
            seen.append(EpisodeFeedback(index=index, label=label, used=used, new=((made[-1].id, None),)))
            self.indexes[who] += 1

        def act(bank):
            for record_, experience in zip(made, seen, strict=True):
                bank.add(record_)
                bank.learn_from(experience)

        def steps():
            for record_, experience in zip(made, seen, strict=True):
                yield from model.add(record_)
                yield from model.learn(experience)

        self.both(who, crash, act, steps())

    @rule(who=WHO, crash=st.integers(-4, 3))
    def go_over_everything(self, who, crash):
        self.both(who, crash, lambda bank: bank.consolidate.consolidate(bank), self.models[who].consolidate())

    @rule(who=WHO, crash=st.integers(-4, 3))
    def go_on_after_a_crash(self, who, crash):
        self.both(who, crash, lambda bank: bank.learn(None), self.models[who].due())

    @precondition(lambda self: self.all_have_records())
    @rule(who=WHO, places=st.lists(st.integers(0, 99), max_size=3), crash=st.integers(-2, 0))
    def show(self, who, places, crash):
        ids = [*(self.pick(who, place) for place in places), "nobody"]
        self.both(who, crash, lambda bank: bank.count_shown(ids), self.models[who].show(ids))

    @precondition(lambda self: self.all_have_records())
    @rule(who=WHO, place=st.integers(0, 99), helpful=st.booleans(), crash=st.integers(-2, 0))
    def mark(self, who, place, helpful, crash):
        id = self.pick(who, place)
        self.both(who, crash, lambda bank: by_hand.mark_record(bank, id, helpful), self.models[who].mark(id, helpful))

    @precondition(lambda self: self.all_have_records())
    @rule(
        who=WHO,
        place=st.integers(0, 99),
        status=st.sampled_from(["active", "quarantined", "archived"]),
        crash=st.integers(-2, 0),
    )
    def set_aside_or_bring_back(self, who, place, status, crash):
        id = self.pick(who, place)
        self.both(
            who, crash, lambda bank: by_hand.set_status(bank, id, status), self.models[who].set_status(id, status)
        )

    @precondition(lambda self: any(self.merges(who) for who in TENANTS))
    @rule(place=st.integers(0, 99), crash=st.integers(-2, 0))
    def undo_a_merge(self, place, crash):
        merges = [(who, id) for who in TENANTS for id in self.merges(who)]
        who, id = merges[place % len(merges)]
        self.both(who, crash, lambda bank: by_hand.unmerge(bank, id), self.models[who].unmerge(id))

    @rule(who=WHO, back=st.integers(0, 12), crash=st.integers(-2, 0))
    def roll_back(self, who, back, crash):
        model, before = self.models[who], self.bank.history.seq()
        to = max(0, len(model.history) - 1 - back)
        least = int(self.bank._store.meta("undo_from") or 0)
        assert self.lost_its_past or not least
        if self.seqs[who][to] < least:
            with pytest.raises(UserError, match=f"does not tell what was before its entry {least}"):
                self.views[who].history.rollback(self.seqs[who][to])
            return
        steps = model.rollback(to, lambda: self.bank.history.seq() > before)
        self.both(who, crash, lambda bank: bank.history.rollback(self.seqs[who][to]), steps)

    @precondition(lambda self: self.all_have_records())
    @rule(who=WHO, place=st.integers(0, 99), crash=st.integers(-3, 0))
    def forget(self, who, place, crash):
        id, self.forgot = self.pick(who, place), True
        self.both(who, crash, lambda bank: bank.history.forget(id=id), self.models[who].forget(id))

    @rule()
    def open_again(self):
        self.bank.close()
        self.open()

    @rule()
    def rebuild_from_the_journal(self):
        """The database is gone; its journal tells nothing of before a `forget`, at which its file was written anew."""
        self.lost_its_past = self.forgot
        self.bank.close()
        (self.folder / "bank.sqlite").unlink()
        self.open()

    def all_have_records(self):
        return all(model.now.records for model in self.models.values())

    def pick(self, who, place):
        ids = list(self.models[who].now.records)
        return ids[place % len(ids)]

    def merges(self, who):
        return [r.id for r in self.models[who].active() if r.parents]

    @invariant()
    def the_records_are_the_models(self):
        def plain(r):
            tasks = {"tasks": r.provenance["tasks"]} if r.parents else {}
            fields = {"query_embedding": (), "created_at": "", "provenance": tasks, "confidence": near(r.confidence)}
            return replace(r, **fields)

        for who, model in self.models.items():
            assert [plain(r) for r in self.bank.records(who)] == [plain(r) for r in model.now.records.values()]

    @invariant()
    def whatever_may_be_found_has_its_vector(self):
        for who in self.models:
            for r in self.bank.records(who):
                assert list(r.query_embedding) == Compass().embed([r.original_query])[0].tolist(), r

    @invariant()
    def the_links_are_the_models(self):
        for who, model in self.models.items():
            assert {link[:3] for link in self.views[who].links()} == model.now.links

    @invariant()
    def what_is_retrieved_is_what_brute_force_finds(self):
        for who, model in self.models.items():
            for query, task in (("@0", None), ("@60", "task r001"), ("@110", "task r003")):
                found = [hit.record.id for hit in self.views[who].retrieve(query, top_k=50, exclude_task=task)]
                assert found == [r.id for r in model.nearest(query, task)]

    @invariant()
    def a_merge_holds_together(self):
        for who, model in self.models.items():
            for merged in (r for r in self.bank.records(who) if r.parents):
                parents = [model.now.records[id] for id in merged.parents if id in model.now.records]
                assert {r.outcome for r in parents} <= {merged.outcome}
                assert merged.trust == min(r.trust for r in parents)


def near(confidence):
    return None if confidence is None else round(confidence, 7)


BankAndModel.TestCase.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestBankAndModel = BankAndModel.TestCase
