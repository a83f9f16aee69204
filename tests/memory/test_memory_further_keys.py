"""What was merged into another record, or superseded by it, is found by its own task's query with the score it had."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from memory_kit import Compass, item, open_life_bank, record

from core.memory import by_hand, formats
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
    for k, (query, id) in enumerate(list(TASKS.items())):
        angle = 10 * k if id.startswith("r") else 180
        bank.add(
            record(id, item(angle, ["look once", "look twice", "look well", "wait", "wait"][k]), query=query, tick=k)
        )


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


@pytest.mark.parametrize("key", ["item", "joined"])
@pytest.mark.parametrize("unit", ["record", "item"])
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
        assert merge_of(bank).id not in {
            h.record.id for h in bank.retrieve(f"@{50} green", 5, exclude_task=f"task {id}")
        }
    [found] = [h for h in bank.retrieve("@240 dark", 5, exclude_task="task copy") if h.record.id == "lone"]
    assert found.score == pytest.approx(0.342020)  # by its own query, 70 degrees away
    assert best(bank, "@240 dark") == ("lone", 1.0)


def test_chains_lead_to_the_last_one(tmp_path):
    with closing(life(tmp_path / "b.sqlite")) as bank:
        fill(bank)
        bank.consolidate.consolidate(bank)
        first = merge_of(bank)
        for k, angle in enumerate((0, 10)):
            bank.add(
                record(f"s{k}", item(angle, ["look here", "look there"][k]), query=f"@{300 + 20 * k} more", tick=5)
            )
        bank.add(record("twin", item(0, "look here"), query="@280 twin", tick=6))
        bank.consolidate.consolidate(bank)
        [last] = bank.records(status="active")[1:]
        assert first.id in last.parents and bank.get("twin").status == "superseded"
        asked = ["@0 red", "@50 green", "@100 blue", "@300 more", "@320 more", "@280 twin"]
        assert [best(bank, query) for query in asked] == [(last.id, 1.0)] * 6
        by_hand.unmerge(bank, last.id)
        assert best(bank, "@50 green") == (first.id, 1.0) and best(bank, "@300 more") == ("s0", 1.0)


def undo(bank):
    by_hand.unmerge(bank, merge_of(bank).id)
    by_hand.set_status(bank, "copy", "active")


WAYS = {"by hand": undo, "rollback": lambda bank: bank.history.rollback(5)}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_undone_is_found_by_itself_again(bank, way):
    bank.consolidate.consolidate(bank)
    assert best(bank, "@240 dark") == ("lone", 1.0)
    WAYS[way](bank)
    assert [best(bank, query) for query in TASKS] == [(id, 1.0) for id in TASKS.values()]


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


@pytest.mark.sqlite_file
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


def test_many_keys_of_few_records_leave_room_for_the_others(tmp_path):
    """All the nearest keys belong to one record: the next best ones are found all the same."""
    with closing(life(tmp_path / "b.sqlite")) as bank:
        gone = [
            record(f"{x}{k}", item(0), query=f"@{at + k % 30} task {k}", tick=k)
            for x, at in (("d", 0), ("e", 60))
            for k in range(300)
        ]
        bank.add_many([replace(one, status="superseded") for one in gone])
        bank.add_many(
            [record(id, item(180), query=query) for id, query in (("d", "@200 d"), ("e", "@200 e"), ("own", "@95 one"))]
        )
        with bank.change("by hand") as change:
            for one in gone:
                change.link(one.id, "duplicate_of", one.id[0])
        assert [(id, round(score, 3)) for id, score in hit_scores(bank, "@0")] == [
            ("d", 1.0),
            ("e", 0.5),
            ("own", -0.087),
        ]
        assert {id for id, _ in hit_scores(bank, "@0")} == {hit.record.id for hit in bank.lexical("task 7", 9)} | {
            "own"
        }


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


@pytest.mark.sqlite_file
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
