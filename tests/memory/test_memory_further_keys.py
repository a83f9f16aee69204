"""What was merged into another record, or superseded by it, is found by its own task's query with the score it had.

It keeps its keys, and is found by them however it comes back.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from memory_kit import Compass, item, on_both_stores, open_life_bank, record

from core.errors import InfraError
from core.memory import by_hand, formats
from core.memory.__main__ import main
from core.memory.bank import MemoryBank
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.merge import Merge, Voting
from core.memory.filter import Filter
from core.memory.policies.cosine import Cosine
from core.memory.policies.four_factor import FourFactor
from core.memory.policies.hybrid import Hybrid
from core.memory.policies.lexical import Lexical
from core.memory.policies.rrf import RRF
from core.memory.policies.trust import Trust

TASKS = {"@0 red": "r0", "@50 green": "r1", "@100 blue": "r2", "@170 pale": "lone", "@240 dark": "copy"}


def life(path, **fields):
    policies = {"deduplicate": Deduplicate(title_distance=0, min_score=0.99), "merge": Merge(author=Voting())}
    return open_life_bank(path, **policies | fields)


def fill(bank):
    """r0, r1, r2 teach alike and are merged; copy is superseded as a duplicate of lone."""
    lessons = [
        item(0, "look once"),
        item(10, "look twice"),
        item(20, "look well"),
        item(180, "wait"),
        item(180, "wait"),
    ]
    for k, ((query, id), lesson) in enumerate(zip(TASKS.items(), lessons, strict=True)):
        bank.add(record(id, lesson, query=query, tick=k))


def merge_of(bank):
    return next(r for r in bank.records() if r.parents)


def best(bank, query, **how):
    hits = bank.retrieve(query, 5, **how)
    return (hits[0].record.id, hits[0].score) if hits else None


@pytest.fixture
def bank(tmp_path):
    with closing(life(tmp_path / "bank.sqlite")) as bank:
        fill(bank)
        yield bank


def held(bank):
    merged = merge_of(bank).id
    return dict.fromkeys(("r0", "r1", "r2"), merged) | dict.fromkeys(("lone", "copy"), "lone")


POLICIES = [Cosine(), Hybrid(), FourFactor(), Trust(), RRF(), Lexical()]


def test_each_parents_task_finds_what_holds_its_lesson_now(subtests, bank):
    similarity = {}
    for policy in POLICIES:
        with subtests.test("before", policy=policy):
            bank.policy = policy
            assert [best(bank, query)[0] for query in TASKS] == list(TASKS.values())
            similarity[type(policy)] = {query: bank.nearest(query, 1)[0].score for query in TASKS}
    bank.consolidate.consolidate(bank)
    wanted = {query: held(bank)[id] for query, id in TASKS.items()}
    for policy in POLICIES:
        with subtests.test("after", policy=policy):
            bank.policy = policy
            assert {query: best(bank, query)[0] for query in TASKS} == wanted
            after = {query: bank.nearest(query, 1)[0].score for query in TASKS}
            assert after == similarity[type(policy)] == dict.fromkeys(TASKS, 1.0)


@on_both_stores
@pytest.mark.parametrize(("key", "unit"), [("item", "record"), ("joined", "item")])
def test_with_lessons_as_keys_too_and_each_lesson_once(bank, key, unit):
    bank.reembed(key)
    bank.unit = unit
    asked = [item(180).text, item(10).text, *(TASKS if key == "joined" else ())]
    before = [bank.nearest(query, 1)[0].score for query in asked]
    bank.consolidate.consolidate(bank)
    assert [bank.nearest(query, 1)[0].score for query in asked] == before
    for query in asked:
        hits = bank.nearest(query, 9)
        assert sorted(hit.record.id for hit in hits) == sorted({merge_of(bank).id, "lone"})


def test_a_threshold_and_the_filters_hold_for_what_is_found_so(bank):
    bank.policy = Cosine(min_score=0.9)
    bank.consolidate.consolidate(bank)
    assert best(bank, "@50 green") == (merge_of(bank).id, 1.0) and best(bank, "@75 between") is not None
    assert best(bank, "@210 far") is None
    assert bank.retrieve("@50 green", where=Filter(domain="other")) == []
    assert bank.of("another").retrieve("@50 green") == []
    assert best(bank, "@50 green", where=Filter(everyone=True)) == (merge_of(bank).id, 1.0)


def test_a_task_finds_nothing_by_what_it_taught_itself(bank):
    bank.policy = Cosine()
    bank.consolidate.consolidate(bank)
    for id in ("r0", "r1", "r2"):
        hits = bank.retrieve("@50 green", 5, exclude_task=f"task {id}")
        assert merge_of(bank).id not in {hit.record.id for hit in hits}
    [found] = [h for h in bank.retrieve("@240 dark", 5, exclude_task="task copy") if h.record.id == "lone"]
    assert found.score == pytest.approx(0.342020)  # by its own query, 70 degrees away
    assert best(bank, "@240 dark") == ("lone", 1.0)


@on_both_stores
def test_chains_lead_to_the_last_one(tmp_path):
    with closing(life(tmp_path / "b.sqlite")) as bank:
        fill(bank)
        bank.consolidate.consolidate(bank)
        first = merge_of(bank)
        bank.add(record("s0", item(0, "look here"), query="@300 more", tick=5))
        bank.add(record("s1", item(10, "look there"), query="@320 more", tick=5))
        bank.add(record("twin", item(0, "look here"), query="@280 twin", tick=6))
        bank.consolidate.consolidate(bank)
        [last] = bank.records(status="active")[1:]
        assert first.id in last.parents and bank.get("twin").status == "superseded"
        asked = ["@0 red", "@50 green", "@100 blue", "@300 more", "@320 more", "@280 twin"]
        assert [best(bank, query) for query in asked] == [(last.id, 1.0)] * 6
        by_hand.unmerge(bank, last.id)
        assert best(bank, "@50 green") == (first.id, 1.0) and best(bank, "@300 more") == ("s0", 1.0)


def test_what_was_forgotten_is_no_key_any_more(bank):
    bank.consolidate.consolidate(bank)
    assert best(bank, "@240 dark") == ("lone", 1.0)
    bank.history.forget(id="copy")
    assert dict(hit_scores(bank, "@240 dark"))["lone"] == pytest.approx(0.342020)


def hit_scores(bank, query):
    return [(hit.record.id, hit.score) for hit in bank.retrieve(query, 9)]


@pytest.mark.parametrize("form", ["jsonl", "mcp"])
def test_an_export_takes_them_along(bank, tmp_path, form):
    bank.consolidate.consolidate(bank)
    wanted = [best(bank, query) for query in TASKS]
    formats.export(bank, tmp_path / ("out.jsonl" if form == "jsonl" else "out"), form)
    with closing(life(tmp_path / "other.sqlite")) as other:
        formats.load(other, tmp_path / ("out.jsonl" if form == "jsonl" else "out"), form)
        assert [best(other, query) for query in TASKS] == wanted


@on_both_stores
def test_what_was_split_is_found_by_the_query_of_its_whole(tmp_path):
    """The other server's file holds a memory for each lesson of a merged record: they all hold its parents' lessons."""
    with closing(life(tmp_path / "b.sqlite")) as bank:
        parents = ("old1", "old2")
        bank.add(record("old1", item(0, "look"), query="@0 red"))
        bank.add(record("old2", item(40, "wait"), query="@50 green"))
        bank.add(record("m", item(0, "look"), item(40, "wait"), query="@200 both", parents=parents))
        with bank.change("merge") as change:
            for id in parents:
                change.update(id, status="archived")
                change.link("m", "supersedes", id)
        formats.export(bank, tmp_path / "out", "mcp")
        assert best(bank, "@50 green") == ("m", 1.0)
    with closing(life(tmp_path / "other.sqlite")) as other:
        formats.load(other, tmp_path / "out", "mcp")
        halves = {r.id for r in other.records() if r.parents}
        assert len(halves) == 2
        for query in ("@0 red", "@50 green"):
            assert {id for id, score in hit_scores(other, query) if score == 1.0} == halves
            assert {hit.record.id for hit in other.lexical(query, 9)} == halves
        with other.change("by hand") as change:
            change.update(min(halves), status="archived")
        assert hit_scores(other, "@0 red") == [(max(halves), 1.0)]
        other.history.rollback(other.history.seq() - 1)
        assert {id for id, score in hit_scores(other, "@0 red") if score == 1.0} == halves


def test_what_a_merge_takes_does_not_grow_with_those_before(tmp_path):
    with closing(life(tmp_path / "b.sqlite")) as bank:
        gone = [record(f"d{k}", item(0), query=f"@{k}", status="superseded") for k in range(600)]
        bank.add_many([*gone, record("keeper", item(0), query="@1 keeper")])
        steps = []  # of SQLite's virtual machine, in tens
        bank._store._db.set_progress_handler(lambda: steps.__setitem__(-1, steps[-1] + 1), 10)
        for one in gone:
            steps.append(0)
            with bank.change("by hand") as change:
                change.link(one.id, "duplicate_of", "keeper")
        assert max(steps[-10:]) < 1.5 * max(steps[:10])


def test_another_process_s_merge_is_noticed(tmp_path):
    with closing(life(tmp_path / "b.sqlite")) as bank, closing(life(tmp_path / "b.sqlite")) as other:
        fill(bank)
        assert best(other, "@50 green") == ("r1", 1.0)
        bank.consolidate.consolidate(bank)
        assert best(other, "@50 green") == (merge_of(bank).id, 1.0)


@on_both_stores
def test_many_keys_of_few_records_leave_room_for_the_others(tmp_path):
    """All the nearest keys belong to one record: the next best ones are found all the same."""
    with closing(life(tmp_path / "b.sqlite")) as bank:
        gone = [
            record(f"{x}{k}", item(0), query=f"@{at + k % 30} task {k}", tick=k)
            for x, at in (("d", 0), ("e", 60))
            for k in range(300)
        ]
        bank.add_many([replace(one, status="superseded") for one in gone])
        for id, query in (("d", "@200 d"), ("e", "@200 e"), ("own", "@95 one")):
            bank.add(record(id, item(180), query=query))
        with bank.change("by hand") as change:
            for one in gone:
                change.link(one.id, "duplicate_of", one.id[0])
        scores = [(id, round(score, 3)) for id, score in hit_scores(bank, "@0")]
        assert scores == [("d", 1.0), ("e", 0.5), ("own", -0.087)]
        assert {hit.record.id for hit in bank.lexical("task 7", 9)} == {"d", "e"}


class OnlyEnglish(Compass):
    def reads(self, text):
        return text.isascii()


def test_where_words_are_compared_the_words_of_a_duplicate_s_task_count(tmp_path):
    with closing(life(tmp_path / "b.sqlite", embedder=OnlyEnglish())) as bank:
        bank.policy = Cosine(other_languages_by_words=True)
        lesson = item(0, "先看说明")
        for k, query in enumerate(("登录网站", "下载文件")):
            bank.add(record(f"r{k}", lesson, query=query, tick=k))
        bank.add(record("other", item(90, "别着急"), query="比较价格", tick=2))
        bank.consolidate.consolidate(bank)
        assert bank.get("r1").status == "superseded"
        assert [best(bank, query)[0] for query in ("登录网站", "下载文件", "比较价格")] == ["r0", "r0", "other"]


def test_in_a_graph_too(tmp_path, monkeypatch):
    from core.memory.sqlite import index

    monkeypatch.setattr(index, "GRAPH_FROM", 50)
    monkeypatch.setattr(index, "TAIL", 10)
    path = str(tmp_path / "b.sqlite")
    with closing(life(path)) as bank:
        bank.add_many([record(f"x{k}", item(120 + k, f"do {k}"), query=f"@{180 + k} x {k}") for k in range(100)])
        fill(bank)
        bank.add(record("again", item(180), query="@20 again"))
        with bank.change("by hand") as change:
            change.update("again", status="superseded")
            change.link("again", "duplicate_of", "lone")
    with closing(MemoryBank(path=path, embedder=Compass(), policy=Cosine(), index="hnsw")) as bank:
        assert best(bank, "@20 again") == ("lone", 1.0)


# What was set aside comes back


def bare(bank):
    """The ids of the records without a vector."""
    return {r.id for r in bank.records() if not r.query_embedding}


def found(bank, query="@0", k=10):
    return {hit.record.id for hit in bank.retrieve(query, top_k=k)}


def unmerge(bank):
    by_hand.unmerge(bank, merge_of(bank).id)
    return {"r0", "r1", "r2", "lone"}


def activate(bank):
    by_hand.set_status(bank, "r1", "active")
    return {"r1", merge_of(bank).id, "lone"}


def quarantine_and_release(bank):
    by_hand.set_status(bank, "copy", "quarantined")
    by_hand.set_status(bank, "copy", "active")
    return {"copy", merge_of(bank).id, "lone"}


def roll_back(bank):
    bank.history.rollback(5)  # after the five adds
    return {"r0", "r1", "r2", "lone", "copy"}


def forget_the_merge(bank):
    bank.history.forget(id=merge_of(bank).id)
    return {"r0", "r1", "r2", "lone"}


def forget_the_keeper(bank):
    bank.history.forget(id="lone")
    return {"copy", merge_of(bank).id}


WAYS = [unmerge, activate, quarantine_and_release, roll_back, forget_the_merge, forget_the_keeper]


@on_both_stores
@pytest.mark.parametrize("key", ["query", "item"])
def test_what_comes_back_has_its_vectors_and_is_found(subtests, tmp_path, key):
    for way in WAYS:
        with subtests.test(way.__name__):
            path = tmp_path / f"{way.__name__}.sqlite"
            with closing(life(path)) as bank:
                fill(bank)
                bank.consolidate.consolidate(bank)
                bank.reembed(key)
                found(bank)  # the index exists already
                back = way(bank)
                assert found(bank) == back and not bare(bank)
                for r in bank.records(status="active"):
                    assert np.array_equal(np.float32(r.query_embedding), Compass().embed([r.original_query])[0])
            with closing(life(path)) as again:
                again.key = key
                assert found(again) == back


class Broken(Compass):
    """A provider that is gone."""

    def embed(self, texts):
        raise InfraError("gone")


class Dying(Compass):
    """The process ends while it embeds."""

    def embed(self, texts):
        raise KeyboardInterrupt


@pytest.mark.parametrize("how", [Broken, Dying])
def test_what_comes_back_without_keys_is_embedded_at_the_next_opening(tmp_path, how, caplog):
    """A rollback brings back the texts of lessons, whose keys went when the texts were changed."""
    path = tmp_path / "bank.sqlite"
    with closing(life(path)) as bank:
        bank.reembed("item")
        bank.add(record("r", item(10, "look here")))
        with bank.change("reword") as change:
            change.update("r", items=(item(100, "look there"),))
        assert bank.nearest("@100", 1, key="item")[0].score == 1.0
    bank = life(path, embedder=how())
    if how is Broken:
        bank.history.rollback(1)
        assert "wait for their vectors: gone" in caplog.text
    else:
        with pytest.raises(KeyboardInterrupt):
            bank.history.rollback(1)
    bank._store.close()
    with closing(life(path)) as bank:
        assert bank.nearest("@10", 1, key="item")[0].score == 1.0
        assert bank.nearest("@100", 1, key="item")[0].score < 1.0


def test_the_doctor_finds_every_key_and_a_rebuilt_bank_is_whole(tmp_path):
    path = tmp_path / "bank.sqlite"
    with closing(life(path)) as bank:
        fill(bank)
        bank.consolidate.consolidate(bank)
        assert next(bank.verify_indexes()) == "6 records, each with its vectors"
    path.write_bytes(b"damaged" * 1000)
    with closing(life(path)) as bank:
        assert not bare(bank) and found(bank) == {merge_of(bank).id, "lone"}
        assert bank.retrieve("@240 dark", 1)[0].score == 1.0
        assert found(bank) != unmerge(bank) == found(bank)


def test_compact_gives_the_room_back_and_changes_nothing(tmp_path, capsys):
    path = tmp_path / "bank.sqlite"
    embedder = Wide()
    with closing(life(path, embedder=embedder, merge=None)) as bank:
        bank.add_many([record(f"r{k}", item(0), query=f"@{k % 360} task {k}", tick=k) for k in range(300)])
        with bank.change("erase") as change:
            bank.erase(change, tuple(f"r{k}" for k in range(250)))
        state = (bank.records(), bank.links(), bank.history.journal(), found(bank, "@0"))
        there, left = bank.compact()
        assert there - left > 250 * 4 * Wide.dim
        assert (bank.records(), bank.links(), bank.history.journal(), found(bank, "@0")) == state
    before = path.stat().st_size
    assert main(["compact", str(path)]) == 0
    assert capsys.readouterr().out == f"{before} bytes before, {path.stat().st_size} after\n"
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


class Wide(Compass):
    """As many numbers as real embedders give."""

    dim = 384

    def embed(self, texts):
        return np.pad(super().embed(texts), ((0, 0), (0, self.dim - 2)))
