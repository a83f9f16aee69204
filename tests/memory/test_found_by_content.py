"""A lesson is found by what it says (memory.key=both), however long it is, in new banks and in old ones."""

from __future__ import annotations

import pytest
from conftest import REPO
from mcp.client.client import Client
from mcp_kit import ask, here, run

from benchmarks import recall
from core.errors import UserError
from core.memory.__main__ import main as memory_command
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.memory.sqlite import search
from core.memory.sqlite.index import VectorIndex
from core.memory.store.items import PLACES, WINDOW, windows
from core.models.embedding import HashingEmbedder
from core.types import Lesson, MemoryRecord


def record(id, query, *contents, tags=()):
    items = tuple(Lesson(title=f"title{n}", description="", content=text) for n, text in enumerate(contents))
    return MemoryRecord(
        id=id,
        original_query=query,
        items=items,
        source_trajectory_id="",
        score=1.0,
        outcome="success",
        label_source="hand",
        task_id=id,
        tags=tags,
    )


RECORDS = (
    record("a", "fold the blue towel", "zebra quagga okapi", "penguin walrus"),
    record("b", "zebra quagga", "copper tin zinc lead", tags=("metal",)),
    record("c", "paint a fence", "zebra"),
)


def bank_at(path, key, **more):
    return MemoryBank(path=str(path), embedder=HashingEmbedder(), policy=Cosine(), key=key, **more)


@pytest.fixture
def bank(tmp_path):
    bank = bank_at(tmp_path / "b.sqlite", "both")
    bank.add_many(list(RECORDS))
    yield bank
    bank.close()


def ids(hits):
    return [hit.record.id for hit in hits]


def test_the_better_of_query_and_items_counts_and_a_record_comes_once(bank):
    hits = bank.nearest("zebra quagga", 3)
    assert ids(hits) == ["b", "a", "c"] and hits[0].score == 1.0
    assert ids(bank.nearest("fold the blue towel", 1)) == ["a"]
    assert ids(bank.nearest("walrus penguin", 1)) == ["a"]
    assert ids(bank.nearest("metal", 1)) == ["b"]  # tags count
    assert len(bank.nearest("zebra", 99)) == 3
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert ids(bank.nearest("zebra quagga", 3, exclude_task="b")) == ["a", "c"]


@pytest.mark.sqlite_file
def test_a_search_by_query_and_lessons_sees_one_state_of_the_bank(bank, tmp_path, monkeypatch):
    other, whole = bank_at(tmp_path / "b.sqlite", "both"), VectorIndex.search

    def beside(*given):
        found = whole(*given)
        other.add(record("new", "something else", "walrus penguin egg"))  # another process, between the two
        return found

    with monkeypatch.context() as patch:
        patch.setattr(VectorIndex, "search", beside)
        assert "new" not in ids(bank.nearest("title0 walrus penguin egg", 9))
    assert ids(bank.nearest("title0 walrus penguin egg", 9))[0] == "new"
    other.close()


@pytest.mark.sqlite_file
@pytest.mark.parametrize("key", ["query", "both"])
def test_what_another_process_adds_of_the_same_task_meanwhile_is_not_retrieved(bank, tmp_path, monkeypatch, key):
    other, whole = bank_at(tmp_path / "b.sqlite", "both"), search._Excluded.not_from

    def beside(*given):
        found = whole(*given)
        other.add(record("c", "walrus penguin egg", "walrus penguin egg"))
        return found

    bank.history.forget(id="c")
    with monkeypatch.context() as patch:
        patch.setattr(search._Excluded, "not_from", beside)
        assert "c" not in ids(bank.nearest("walrus penguin egg", 9, exclude_task="c", key=key))
    assert "c" in ids(bank.nearest("walrus penguin egg", 9, key=key))
    other.close()


def test_single_lessons_are_found_once_each(bank):
    hits = bank.nearest("walrus penguin", 9, unit="item")
    assert hits[0].record.items == RECORDS[0].items[1:]
    assert len(hits) == len({(hit.record.id, hit.record.items) for hit in hits}) == 4


@pytest.mark.parametrize("key", ["item", "both"])
def test_the_best_lesson_of_a_record_ranks_it(tmp_path, key):
    """Two lessons of one record around one of another: the record's better one decides."""
    bank = bank_at(tmp_path / "k.sqlite", key)
    bank.add_many([record("far", "x1", "owl"), record("near", "x2", "owl crow", "owl crow jay rook daw pie")])
    question = "title0 owl crow"
    hits = bank.nearest(question, 2)
    bank.close()
    assert ids(hits) == ["near", "far"] and hits[0].score > hits[1].score


def test_the_papers_bank_does_not_look_at_content(tmp_path):
    bank = bank_at(tmp_path / "b.sqlite", "query")
    bank.add_many(list(RECORDS))
    assert bank.nearest("walrus penguin", 1)[0].score < 0.01
    assert bank._store.rows("SELECT count(*) FROM item_vectors") == [(0,)]
    bank.close()


def test_a_long_lesson_is_found_by_its_end(tmp_path):
    long = record("long", "q", "filler words only " * 200 + "the heron eats frogs at dusk")
    found = windows(long)
    assert len(found) > 4 and all(len(text) < WINDOW + 50 for _, text in found)
    assert [place for place, _ in found] == [PLACES * number for number in range(len(found))]
    assert "".join(text.split("\n", 2)[2] for _, text in found) == long.items[0].content
    bank = bank_at(tmp_path / "b.sqlite", "both")
    bank.add_many([long, *RECORDS])
    assert ids(bank.nearest("heron eats frogs at dusk", 1)) == ["long"]
    assert bank.nearest("heron eats frogs at dusk", 1, unit="item")[0].record.items == long.items
    bank.close()


@pytest.mark.sqlite_file
def test_a_lesson_without_content_and_a_code_block_keep_their_texts():
    assert windows(record("a", "q", "")) == [(0, "title0\n\n")]
    code = "def f():\n    return 1\n" * 100
    assert "".join(text.split("\n", 2)[2] for _, text in windows(record("a", "q", code))) == code


def test_an_older_bank_is_searched_by_content_and_reembed_stores_it(tmp_path, capsys):
    path = tmp_path / "old.sqlite"
    old = bank_at(path, "query")
    old.add_many(list(RECORDS))
    old.close()
    bank = bank_at(path, "both")
    before = bank.nearest("walrus penguin", 3)
    assert ids(before)[0] == "a" and bank._store.rows("SELECT count(*) FROM item_vectors") == [(0,)]
    seq = bank.history.seq()
    assert memory_command(["reembed", str(path)]) == 0
    assert capsys.readouterr().out == "3 records embedded anew, with their lessons\n"
    assert bank._store.rows("SELECT count(*) FROM item_vectors") == [(4,)]
    assert bank.nearest("walrus penguin", 3) == before  # an open server sees them
    assert bank.history.seq() == seq
    bank.close()
    again = bank_at(path, "both", read_only=True)
    assert again.nearest("walrus penguin", 3) == before
    again.close()


def test_a_large_older_bank_is_searched_as_before_until_it_is_embedded(tmp_path, monkeypatch, caplog):
    path = tmp_path / "old.sqlite"
    old = bank_at(path, "query")
    old.add_many(list(RECORDS))
    old.close()
    monkeypatch.setattr("core.memory.bank.MOST_MISSING", 2)
    bank = bank_at(path, "both")
    assert bank.nearest("walrus penguin", 1)[0].score < 0.01 and ids(bank.nearest("paint a fence", 1)) == ["c"]
    assert "reembed" in caplog.text
    bank.add(record("new", "q", "walrus penguin egg"))  # what is added is found by what it says
    assert ids(bank.nearest("walrus penguin egg", 1)) == ["new"]
    assert memory_command(["reembed", str(path)]) == 0
    assert ids(bank.nearest("penguin walrus", 2)) == ["a", "new"]
    bank.close()


def test_vectors_of_lessons_that_were_made_for_another_key_are_not_mixed_in(tmp_path, capsys):
    path = tmp_path / "b.sqlite"
    tagged = record("t", "q", "walrus penguin", tags=("metal",))  # its text differs between the keys
    bank = bank_at(path, "both")
    bank.add(tagged)
    bank.close()
    for read_only in (False, True):
        with pytest.raises(UserError, match="memory.key=both and this run uses memory.key=item.*reembed"):
            bank_at(path, "item", read_only=read_only)
    plain = bank_at(path, "query")
    plain.add(record("u", "q2", "walrus penguin", tags=("metal",)))
    hits = plain.nearest("walrus penguin", 2, key="item")  # one stored, one made on the way: in one and the same way
    assert len(hits) == 2 and hits[0].score == hits[1].score
    plain.close()
    assert memory_command(["reembed", str(path), "--key", "item"]) == 0
    again = bank_at(path, "item")
    assert [hit.score for hit in again.nearest(tagged.items[0].text, 2)] == [1.0, 1.0]
    again.close()
    with pytest.raises(UserError, match="memory.key=item and this run uses memory.key=both"):
        bank_at(path, "both")
    assert memory_command(["reembed", str(path)]) == 0
    bank_at(path, "both").close()


def test_an_open_bank_stores_no_vectors_of_lessons_beside_those_that_another_has_made_for_its_key(tmp_path, bank):
    path = tmp_path / "b.sqlite"
    assert memory_command(["reembed", str(path), "--key", "item"]) == 0
    words = bank._store.rows("SELECT record, place FROM item_vectors")
    for n in (1, 30):
        with pytest.raises(UserError, match="memory.key=item and this run uses memory.key=both"):
            bank.add_many([record(f"new{number}", "q", "walrus") for number in range(n)])
    assert len(bank) == 3 and bank._store.rows("SELECT record, place FROM item_vectors") == words
    assert bank.recent(1)[0].id == "c" and [entry["reason"] for entry in bank.history.journal()] == ["add"]
    bank.key = "query"
    assert bank.add(record("new", "q", "walrus"))  # it stores none


@pytest.mark.sqlite_file
def test_the_key_of_the_vectors_is_noted_together_with_them(tmp_path, bank, monkeypatch):
    other = bank_at(tmp_path / "b.sqlite", "both")
    was = bank._store.rows("SELECT * FROM item_vectors ORDER BY 1, 2")

    def broken(db, key):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("core.memory.bank.note_key", broken)
        with pytest.raises(KeyboardInterrupt):
            other.reembed("item")
    assert bank._store.rows("SELECT * FROM item_vectors ORDER BY 1, 2") == was
    assert other.key == "both"
    other.close()


def test_reembed_leaves_what_others_do_meanwhile_as_they_did_it(tmp_path, bank, monkeypatch):
    other = bank_at(tmp_path / "b.sqlite", "both")
    embedded, whole = [], other._embed

    def beside(record_):
        embedded.append(record_.id)
        if embedded == ["a"]:  # while the vectors are made
            bank.add(record("late", "q", "walrus", tags=("metal",)))
            bank.history.forget(id="b")
            with bank.change("shorter") as change:
                change.update("c", items=record("c", "", "heron").items)
        return whole(record_)

    monkeypatch.setattr(other, "_embed", beside)
    assert other.reembed("item") == 3
    assert embedded == ["a", "b", "c", "c", "late"]
    other.close()
    left = bank._store.rows("SELECT rowid FROM records ORDER BY 1")
    for table in ("SELECT rowid FROM vectors ORDER BY 1", "SELECT DISTINCT record FROM item_vectors ORDER BY 1"):
        assert bank._store.rows(table) == left
    again = bank_at(tmp_path / "b.sqlite", "item")
    assert [hit.score for hit in again.nearest("title0\n\nheron", 1)] == [1.0]
    assert [hit.score for hit in again.nearest("title0\n\nwalrus", 1)] == [1.0]
    assert ids(again.nearest("title0\n\nwalrus", 1)) == ["late"]
    again.close()


@pytest.mark.parametrize("before", ["opened", "forgotten", "embedded without"])
def test_a_bank_without_vectors_of_lessons_may_be_opened_with_either_key(tmp_path, before):
    path = tmp_path / "b.sqlite"
    bank = bank_at(path, "both")
    if before != "opened":
        bank.add(record("one", "q", "walrus"))
    if before == "forgotten":
        bank.history.forget(id="one")
    if before == "embedded without":
        bank.key = "query"
        bank.reembed()
    bank.close()
    bank_at(path, "item", read_only=True).close()
    bank = bank_at(path, "item")
    bank.add(record("two", "q2", "penguin"))
    bank.close()
    with pytest.raises(UserError, match="memory.key=item and this run uses memory.key=both"):
        bank_at(path, "both")


def test_what_an_insight_says_is_found_over_mcp_and_stored_with_its_vectors(tmp_path):
    async def go(server):
        async with Client(server) as client:
            words = {"title": "Cloth care", "tags": ["home"], "content": "Velvet wants steam and never an iron."}
            insight = await ask(client, "add_insight", **words)
            saved = await ask(
                client, "save_lesson", query="tidy up", title="Metal", content="Copper shines after vinegar with salt."
            )
            hits = [
                (await ask(client, "retrieve_memory", query=query))["memories"]
                for query in ("velvet steam never iron", "copper vinegar salt shines", "unlike anything stored here")
            ]
            return insight["id"], saved["memory_id"], hits

    with here(tmp_path / "b.sqlite", "memory.consolidate=null") as (server, service):
        insight, saved, (first, second, none) = run(go(server))
        assert [first[0]["memory_id"], second[0]["memory_id"], none] == [insight, saved, []]
        assert service.bank._store.rows("SELECT count(*) FROM item_vectors") == [(2,)]
        assert service.bank.get(insight).original_query.splitlines()[0] == "Cloth care (home)"


@pytest.mark.sqlite_file
def test_the_data_of_the_recall_bench_holds_what_its_docstring_says():
    rows, others = recall.lessons(), recall.strangers()
    assert (len(rows), len(others), sum(row["hard"] for row in rows)) == (200, 100, 164)
    assert len({row["title"] for row in rows}) == 200 and len({*others, *(row["question"] for row in rows)}) == 300
    small = {"with", "from", "that", "this", "have", "what", "when", "your", "more", "than", "does", "them", "they"}
    for row in rows:
        title, question = (
            {word[:5] for word in "".join(c if c.isalpha() else " " for c in row[part].lower()).split()}
            for part in ("title", "question")
        )
        assert not {word for word in title & question if len(word) > 3} - {*small, *(w[:5] for w in small)}, row
        assert 1 <= len(row["tags"]) <= 2 and row["content"] and row["domain"]


def test_the_recall_bench_measures(monkeypatch, capsys):
    """On hashed words and ten lessons: the way through the server's tools works, and content is found."""
    rows = [row | {"question": row["content"]} for row in recall.lessons()[:10]]
    monkeypatch.setattr(recall, "lessons", lambda: rows)
    original = recall.Service
    monkeypatch.setattr(recall, "Service", lambda path, cfg: original(path, cfg, embedder="hashing-256"))
    assert recall.main(["--only", "trust"]) == 0
    assert recall.main(["--only", "now", "--as", "save_lesson"]) == 0
    out = capsys.readouterr().out
    figures = {line[:33].strip(): line[33:].split() for line in out.splitlines()}
    assert float(figures["now: as the tool stores it"][0]) >= 0.9
    assert float(figures["title+tags+content, trust"][0]) >= 0.9
    assert float(figures["before: title (tags), trust"][0]) < 0.9


@pytest.mark.sqlite_file
def test_the_licence_is_the_one_declared():
    text = (REPO / "LICENSE").read_text()
    assert "Apache License" in text and "Copyright 2026 the reasoningbank-harness authors" in text
    assert 'license = "Apache-2.0"' in (REPO / "pyproject.toml").read_text()
