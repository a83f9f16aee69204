"""The contract that every database of a bank keeps (core/memory/store/contract.py), as tests to inherit.

    class TestMine(StoreContract):
        def open(self, place, **how):        # place: as make_place gives it; how: read_only
            return MyStore(place, **how)

SQLite and PostgreSQL inherit it in test_store_contract.py. A database outside this repository is tested in the same
way, with this folder on PYTHONPATH (CONTRIBUTING.md).
"""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from core.errors import UserError
from core.memory.filter import STATUSES, Filter
from core.memory.store.contract import BankStore, Busy, SearchSettings
from core.memory.store.jobs import Jobs
from core.memory.store.schema import to_record
from core.types import Lesson, MemoryRecord

ANN, EVERYONE = Filter(namespace="ann"), Filter(everyone=True)


def vector(angle: float) -> Any:
    return np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))], dtype=np.float32)


def record(id: str, angle: float = 0, **changes: Any) -> MemoryRecord:
    """A record of the tenant ann whose query points to an angle, and its lesson to the opposite one."""
    values = {
        "id": id,
        "namespace": "ann",
        "original_query": f"{angle} query of {id}",
        "items": (Lesson(title=f"{angle + 180}", description="", content=f"words of {id}"),),
        "source_trajectory_id": "",
        "score": 1.0,
        "outcome": "success",
        "label_source": "hand",
        "task_id": f"task {id}",
    }
    return MemoryRecord(**values | changes)


def embed(made: MemoryRecord) -> list[tuple[str, int, bytes]]:
    query = ("query", -1, vector(float(made.original_query.split()[0])).tobytes())
    return [query, *(("item", n, vector(float(item.title)).tobytes()) for n, item in enumerate(made.items))]


class StoreContract:
    """Inherit, name it Test..., give `open`."""

    def make_place(self, folder: Any, request: Any) -> Any:
        """What names a database of its own for one test: here a file that is not there yet."""
        return folder / "bank"

    def open(self, place: Any, **how: Any) -> BankStore:
        raise NotImplementedError

    @pytest.fixture
    def place(self, tmp_path, request):
        return self.make_place(tmp_path, request)

    @pytest.fixture
    def store(self, place):
        with closing(self.open(place)) as store:
            yield store.of("ann")

    def change(self, store, reason="change", namespace="ann", wait_s=None):
        return store.change(reason, namespace, embed, "angles", wait_s)

    def add(self, store, *records):
        for one in records:
            with self.change(store, f"add {one.id}", one.namespace) as change:
                assert change.add(one)

    def found(self, store, angle, k=9, where=ANN, exclude=None, kinds=("query",), distinct=True):
        search = store.search(SearchSettings(approximate=False, read_only=False))
        hits = search.nearest(vector(angle), k, where, exclude, kinds=kinds, distinct=distinct)
        return [(hit.record.id, hit.score) for hit in hits]

    def held(self, store):
        """All that is rolled back: the records by their ids, links, facts; with the number of journal entries."""
        rows = store.of(None).rows(f"{store.dialect.records} ORDER BY r.rowid")
        links, facts = (store.of(None).rows(f"SELECT * FROM {name} ORDER BY 1, 2, 3") for name in ("links", "facts"))
        n = store.rows("SELECT count(*) FROM journal")[0][0]
        return [to_record(row) for row in rows], links, facts, n

    def test_a_new_bank_is_empty(self, store):
        assert (store.count(), store.dim(), store.meta("embedder")) == (0, None, None)
        assert self.found(store, 0) == [] and self.held(store) == ([], [], [], 0)

    def test_a_record_comes_back_as_it_went_in(self, store, place):
        odd = "a\0b \U000f0000 é 日本"
        made = record("r\0", 30, task_id=odd, tags=("x", odd), confidence=0.1, last_used=1e9 + 0.125, tick=2**40)
        made = MemoryRecord(**vars(made) | {"items": (Lesson(title="9", description=odd, content=odd),)})
        self.add(store, made)
        with closing(self.open(place)) as other:
            (kept,), *_, n = self.held(other)
            assert (other.meta("embedder"), other.dim(), n) == ("angles", 2, 1)
        assert list(kept.query_embedding) == vector(30).tolist()
        assert MemoryRecord(**vars(kept) | {"query_embedding": ()}) == made

    def test_a_change_is_made_whole_or_not_at_all_and_noted_once(self, store, place):
        self.add(store, record("a"), record("b", 10))
        before = self.held(store)
        with pytest.raises(ZeroDivisionError), self.change(store) as change:
            change.update("a", n_used=7)
            change.link("a", "refines", "b")
            change.fact("x", "1")
            change.add(record("c"))
            assert change.get("c") is not None and store.is_changing  # it sees what it has done so far
            raise ZeroDivisionError
        with self.change(store), pytest.raises(RuntimeError, match="nested"), self.change(store):
            pass
        assert self.held(store) == before  # a change that did nothing is not noted either
        with self.change(store) as change:
            assert not change.add(record("a", 99)) and change.add(record("c", 20))
            change.update("a", n_used=7)
        with closing(self.open(place)) as other:
            assert self.held(other) == self.held(store) and self.held(store)[-1] == before[-1] + 1
        with pytest.raises(UserError, match="cannot be changed"), self.change(store) as change:
            change.update("a", original_query="another")

    def test_each_change_can_be_undone_and_that_too(self, store):
        states = [self.held(store)[:3]]
        self.add(store, record("a"), record("b", 10))
        steps = [
            lambda change: change.update("a", items=(Lesson(title="40", description="", content="other"),), n_used=3),
            lambda change: (change.link("a", "supersedes", "b", "why"), change.update("b", status="archived")),
            lambda change: change.fact("x", "1"),
            lambda change: change.remove("a"),
            lambda change: (change.fact("x", None), change.unlink("a", "supersedes", "b")),
        ]
        states += [(self.held(store)[0][:1], [], []), self.held(store)[:3]]
        for step in steps:
            with self.change(store) as change:
                step(change)
            states.append(self.held(store)[:3])
        for seq in (*range(len(states) - 1, -1, -1), len(states) - 1):
            with self.change(store, "back") as change:
                change.roll_back(seq)
            store.embed_missing(embed, ("query", "item"))
            assert self.held(store)[:3] == states[seq]
            assert {id for id, _ in self.found(store, 0)} == {r.id for r in states[seq][0] if r.status == "active"}

    def test_tenants_are_kept_apart(self, store):
        self.add(store, record("same", 10), record("same", 20, namespace="bob"))
        bob, both = Filter(namespace="bob"), store.of(None)
        assert self.found(store, 10) == self.found(store.of("bob"), 20, where=bob) == [("same", 1.0)]
        assert [r[1] for r in self.found(both, 20, where=EVERYONE)] == [1.0, 0.984808] and both.count() == 2
        with self.change(store) as change:
            change.erase(["same"])
        assert self.found(store, 10) == [] and len(self.found(store.of("bob"), 20, where=bob)) == 1

    def test_what_is_erased_is_nowhere(self, store):
        self.add(store, record("a"), record("b", 10))
        with self.change(store) as change:
            change.erase(["a"])
        with self.change(store, "back") as change:
            change.roll_back(0)
            change.roll_back(2)
        assert [r.id for r in self.held(store)[0]] in ([], ["b"])
        assert store.texts("ann", None).gone is None
        assert "words of a" not in str([store.of(None).rows(f"SELECT * FROM {t}") for t in ("records", "undo_records")])

    def test_a_search_is_a_plain_sort_of_what_the_filter_passes(self, store):
        made = []
        for n in range(40):
            about = {"status": STATUSES[n % 2], "outcome": ("success", "failure")[n % 3 == 0]}
            about |= {"domain": "de"[n % 2 if n % 5 else 0], "tags": ("Big",) if n % 4 == 0 else ()}
            merged = {"parents": ("0",), "provenance": {"tasks": ["task 7", "task 8"]}} if n == 20 else {}
            made.append(record(str(n), (37 * n) % 360, confidence=None if n % 2 else n / 40, **about | merged))
        self.add(store, *made)
        angle_of = {one.id: float(one.original_query.split()[0]) for one in made}
        score = {id: round(float(vector(angle) @ vector(50)), 6) for id, angle in angle_of.items()}
        prior = {"success": 0.7, "failure": 0.6}
        for where in (
            ANN,
            Filter(namespace="ann", outcome="failure"),
            Filter(namespace="ann", domain=("e", "x")),
            Filter(namespace="ann", tags=("big",), statuses=STATUSES),
            Filter(namespace="ann", min_confidence=0.65),
        ):
            for exclude in (None, "task 4", "task 8"):
                wanted = [
                    one
                    for one in made
                    if one.status in where.statuses
                    and where.outcome in (None, one.outcome)
                    and (where.domain is None or one.domain in where.domain)
                    and (not where.tags or one.tags)
                    and (one.confidence if one.confidence is not None else prior[one.outcome])
                    >= (where.min_confidence or 0)
                    and one.task_id != exclude
                    and not (one.id == "20" and exclude == "task 8")
                ]
                ranked = sorted(wanted, key=lambda one: (-score[one.id], int(one.id)))[:9]
                found = self.found(store, 50, where=where, exclude=exclude)
                assert found == [(one.id, score[one.id]) for one in ranked]

    def test_the_keys_of_what_was_replaced_lead_to_what_replaced_it(self, store):
        self.add(store, record("a", 0), record("b", 90), record("c", 150), record("d", 200))
        with self.change(store, "merge") as change:
            change.add(record("m", 300, parents=("a", "b"), provenance={"tasks": ["task a", "task b"]}))
            for id in "ab":
                change.update(id, status="archived")
                change.link("m", "supersedes", id)
        with self.change(store, "duplicate") as change:
            change.update("d", status="superseded")
            change.link("d", "duplicate_of", "c")
        best = {angle: self.found(store, angle, 1) for angle in (0, 90, 150, 200, 300)}
        assert best == {0: [("m", 1.0)], 90: [("m", 1.0)], 150: [("c", 1.0)], 200: [("c", 1.0)], 300: [("m", 1.0)]}
        assert self.found(store, 20, 9, kinds=("item",))[-1][0] == "m" and len(self.found(store, 0)) == 2
        assert self.found(store, 200, exclude="task d")[0] == ("c", 0.642788)  # by its own key alone
        assert self.found(store, 90, exclude="task b") == [("c", 0.5)]
        rows = dict(store.rows("SELECT id, rowid FROM records"))
        search = store.search(SearchSettings(approximate=False, read_only=False))
        hits = search.those([(rows["d"], -1, 3.0), (rows["a"], -1, 2.0), (rows["b"], -1, 1.0)], ANN, None)
        assert [(hit.record.id, hit.score) for hit in hits] == [("c", 3.0), ("m", 2.0)]
        assert [hit.record.id for hit in search.those([(rows["d"], -1, 3.0)], ANN, "task d")] == []
        with self.change(store, "back") as change:
            change.roll_back(4)
        assert [self.found(store, angle, 1)[0][0] for angle in (0, 90, 150, 200)] == list("abcd")

    def test_the_texts_are_those_that_changed(self, store):
        self.add(store, record("a"), record("b", 10))
        first = store.texts("ann", None)
        assert first.gone is None and [row[1] for row in first.added] == ["0 query of a", "10 query of b"]
        assert store.texts("ann", first.state)[1:] == ([], [])
        with self.change(store) as change:
            change.update("a", items=())
            change.add(record("c", namespace="ann"))
        self.add(store, record("z", namespace="bob"))
        state, gone, added = store.texts("ann", first.state)
        assert dict(store.rows("SELECT id, rowid FROM records"))["a"] in gone
        assert sorted(row[1] for row in added) == ["0 query of a", "0 query of c"]
        assert len(store.texts(None, None).added) == 4 and store.texts("ann", state)[1:] == ([], [])

    def test_missing_keys_are_made_and_all_are_made_anew(self, store):
        self.add(store, record("a"), record("b", 10))
        with store.of(None).unjournaled() as db:
            db.execute("DELETE FROM keys WHERE kind = 'item'")
        assert store.embed_missing(embed, ("query", "item"), most=1) == (0, 2)
        assert store.embed_missing(embed, ("query", "item"))[0] == 2
        assert store.embed_missing(embed, ("query",)) == (0, 0)
        assert self.found(store, 180, 1, kinds=("item",)) == [("a", 1.0)]

        def turned(one):
            return [("query", -1, vector(float(one.original_query.split()[0]) + 90).tobytes())]

        assert store.reembed(turned, lambda db: db.execute("INSERT INTO meta VALUES ('noted', '1')")) == 2
        assert store.meta("noted") == "1" and self.found(store, 90, 1) == [("a", 1.0)]
        assert self.found(store, 180, 1, kinds=("item",)) == [] and self.held(store)[-1] == 2

    def test_writers_take_turns_and_give_up_in_time(self, store, place):
        with closing(self.open(place)) as other:
            with self.change(store) as change:
                change.add(record("mine"))
                with pytest.raises(Busy), self.change(other, wait_s=0.1):
                    pass
                assert self.found(other.of("ann"), 0) == []  # a reader does not wait
            names = [f"{writer} {n}" for writer in "xy" for n in range(15)]
            mine = [threading.Thread(target=self.add, args=(one, *map(record, names[at : at + 15])))
                    for one, at in ((store, 0), (other, 15))]  # fmt: skip
            for thread in mine:
                thread.start()
            for thread in mine:
                thread.join()
            assert [row[0] for row in store.rows("SELECT seq FROM journal ORDER BY seq")] == list(range(1, 32))
            assert {r.id for r in self.held(other)[0]} == {"mine", *names}
            assert len(self.found(other.of("ann"), 0, 99)) == 31  # it has noticed what the first one wrote

    def test_one_process_leads_the_queue(self, store, place):
        with closing(self.open(place)) as other:
            one, two = Jobs(store), Jobs(other)
            one.put("a", "ann", {"n": 1})
            assert two.get("a").payload == {"n": 1} and one.lead() and not two.lead()
            one.leave()
            assert two.lead() and two.next().id == "a"
            two.end("a", "completed", {})
            two.leave()
        assert one.counts() == {"completed": 1} and self.held(store)[-1] == 0

    def test_what_is_only_read_stays_as_it_is(self, store, place):
        self.add(store, record("a"))
        before = self.held(store)
        with closing(self.open(place, read_only=True)) as reader:
            with pytest.raises(UserError, match="reading only"), self.change(reader) as change:
                change.add(record("b"))
            assert self.found(reader.of("ann"), 0) == [("a", 1.0)]
        assert self.held(store) == before

    def test_compacting_and_rebuilding_change_nothing(self, store):
        self.add(store, *(record(str(n), n) for n in range(20)))
        before, hits = self.held(store), self.found(store, 5)
        assert len(store.compact()) == 2 and store.size() > 0
        list(store.rebuild())
        store.drop_indexes()
        store.empty_log()
        assert (self.held(store), self.found(store, 5)) == (before, hits)
