"""A lesson is found by what it says (memory.key=joined), however long it is, in new banks and in old ones."""

from __future__ import annotations

from contextlib import closing

import pytest
from mcp_kit import served
from memory_kit import on_both_stores
from test_memory import record as made_of

from benchmarks import recall
from core.errors import UserError
from core.memory.__main__ import main as memory_command
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.memory.sqlite import search
from core.memory.sqlite.index import VectorIndex
from core.memory.store.keys import CHARS, PLACES, joined
from core.models.embedding import HashingEmbedder
from core.types import Lesson


def record(id, query, *contents, tags=()):
    items = tuple(Lesson(title=f"title{n}", description="", content=text) for n, text in enumerate(contents))
    return made_of(query, task=id, id=id, items=items, tags=tags)


RECORDS = (
    record("a", "fold the blue towel", "zebra quagga okapi", "penguin walrus"),
    record("b", "zebra quagga", "copper tin zinc lead", tags=("metal",)),
    record("c", "paint a fence", "zebra"),
)


def bank_at(path, key, **more):
    return MemoryBank(path=str(path), embedder=HashingEmbedder(), key=key, **{"policy": Cosine(), **more})


@pytest.fixture
def bank(tmp_path):
    with closing(bank_at(tmp_path / "b.sqlite", "joined")) as bank:
        bank.add_many(list(RECORDS))
        yield bank


@pytest.fixture
def old(tmp_path):
    """The path of a bank of queries alone."""
    with closing(bank_at(tmp_path / "old.sqlite", "query")) as bank:
        bank.add_many(list(RECORDS))
    return tmp_path / "old.sqlite"


def test_nothing_is_embedded_while_the_bank_is_locked(tmp_path, monkeypatch):
    bank, changing = bank_at(tmp_path / "b.sqlite", "joined"), []

    def embed(texts, original=bank.embedder.embed):
        changing.append(bank._store.is_changing)
        return original(texts)

    monkeypatch.setattr(bank.embedder, "embed", embed)
    bank.add_many(list(RECORDS))
    assert set(changing) == {False} and len(changing) > 1
    bank.close()


def test_a_key_that_there_is_not_changes_nothing(bank):
    with pytest.raises(UserError, match="key=lessons: choose query, item, joined"):
        bank.reembed("lessons")
    assert bank.key == "joined" and bank.nearest("zebra", 1)


def n_keys(bank):
    return dict(bank._store.rows("SELECT kind, count(*) FROM keys GROUP BY 1"))


def ids(hits):
    return [hit.record.id for hit in hits]


@on_both_stores
def test_query_and_each_item_count_as_one_text_and_a_record_comes_once(bank):
    hits = bank.nearest("zebra quagga", 3)
    assert ids(hits) == ["a", "b", "c"]  # two of the seven words of its better item, and two of the eight of b's
    assert ids(bank.nearest("zebra quagga copper", 1)) == ["b"]
    assert ids(bank.nearest("fold the blue towel", 1)) == ["a"]
    assert ids(bank.nearest("walrus penguin", 1)) == ["a"]
    assert ids(bank.nearest("metal", 1)) == ["b"]  # tags count
    assert len(bank.nearest("zebra", 99)) == 3
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert ids(bank.nearest("zebra quagga", 3, exclude_task="b")) == ["a", "c"]


def test_a_search_by_query_and_lessons_sees_one_state_of_the_bank(bank, tmp_path, monkeypatch):
    other, whole = bank_at(tmp_path / "b.sqlite", "joined"), VectorIndex.search

    def beside(*given):
        found = whole(*given)
        other.add(record("new", "something else", "walrus penguin egg"))  # another process, between the two
        return found

    with monkeypatch.context() as patch:
        patch.setattr(VectorIndex, "search", beside)
        assert "new" not in ids(bank.nearest("title0 walrus penguin egg", 9))
    assert ids(bank.nearest("title0 walrus penguin egg", 9))[0] == "new"
    other.close()


@pytest.mark.parametrize("key", ["query", "joined"])
def test_what_another_process_adds_of_the_same_task_meanwhile_is_not_retrieved(bank, tmp_path, monkeypatch, key):
    other, whole = bank_at(tmp_path / "b.sqlite", "joined"), search.IndexSearch._from_task

    def beside(*given):
        found = whole(*given)
        other.add(record("c", "walrus penguin egg", "walrus penguin egg"))
        return found

    bank.history.forget(id="c")
    with monkeypatch.context() as patch:
        patch.setattr(search.IndexSearch, "_from_task", beside)
        assert "c" not in ids(bank.nearest("walrus penguin egg", 9, exclude_task="c", key=key))
    assert "c" in ids(bank.nearest("walrus penguin egg", 9, key=key))
    other.close()


@on_both_stores
def test_single_lessons_are_found_once_each(bank):
    hits = bank.nearest("walrus penguin", 9, unit="item")
    assert hits[0].record.items == RECORDS[0].items[1:]
    assert len(hits) == len({(hit.record.id, hit.record.items) for hit in hits}) == 4


@pytest.mark.parametrize("key", ["item", "joined"])
def test_the_best_lesson_of_a_record_ranks_it(tmp_path, key):
    """Two lessons of one record around one of another: the record's better one decides."""
    with closing(bank_at(tmp_path / "k.sqlite", key)) as bank:
        bank.add_many([record("far", "x1", "owl"), record("near", "x2", "owl crow", "owl crow jay rook daw pie")])
        hits = bank.nearest("title0 owl crow", 2)
    assert ids(hits) == ["near", "far"] and hits[0].score > hits[1].score


def test_the_papers_bank_does_not_look_at_content(old):
    with closing(bank_at(old, "query")) as bank:
        assert bank.nearest("walrus penguin", 1)[0].score < 0.01
        assert n_keys(bank) == {"query": 3}


def test_a_long_lesson_is_found_by_its_end(tmp_path):
    long = record("long", "q", "filler words only " * 200 + "the heron eats frogs at dusk")
    found = joined(long)
    assert len(found) > 4 and all(len(text) < CHARS + 50 for _, text in found)
    assert [place for place, _ in found] == [PLACES * number for number in range(len(found))]
    assert "".join(text.split("\n", 3)[3] for _, text in found) == long.items[0].content
    bank = bank_at(tmp_path / "b.sqlite", "joined")
    bank.add_many([long, *RECORDS])
    assert ids(bank.nearest("heron eats frogs at dusk", 1)) == ["long"]
    assert bank.nearest("heron eats frogs at dusk", 1, unit="item")[0].record.items == long.items
    bank.close()


def test_a_lesson_without_content_and_a_code_block_keep_their_texts():
    assert joined(record("a", "q", "")) == [(0, "q\ntitle0\n\n")]
    code = "def f():\n    return 1\n" * 100
    assert "".join(text.split("\n", 3)[3] for _, text in joined(record("a", "q", code))) == code


@on_both_stores
def test_a_bank_of_queries_gets_keys_of_its_lessons_when_it_is_opened_for_them(tmp_path, capsys):
    path = tmp_path / "old.sqlite"
    old = bank_at(path, "query")
    old.add_many(list(RECORDS))
    bank = bank_at(path, "joined")
    before, seq = bank.nearest("walrus penguin", 3), bank.history.seq()
    assert ids(before)[0] == "a" and n_keys(bank) == {"query": 3, "joined": 4}
    later = bank_at(path, "query")  # whoever adds from now on stores them, too
    later.add(record("new", "q", "walrus penguin egg"))
    later.close()
    assert ids(bank.nearest("walrus penguin egg", 1)) == ["new"]
    old.add(record("older", "q", "heron"))  # an opening from before does not know it
    assert n_keys(bank) == {"query": 5, "joined": 5}
    assert memory_command(["reembed", str(path)]) == 0
    assert capsys.readouterr().out == "5 records embedded anew, with their lessons\n"
    assert ids(bank.nearest("heron", 1)) == ["older"]  # an open server sees them
    assert [hit for hit in bank.nearest("walrus penguin", 9) if hit in before] == before
    assert bank.history.seq() == seq + 2
    for one in (old, bank):
        one.close()
    again = bank_at(path, "joined", read_only=True)
    assert ids(again.nearest("heron", 1)) == ["older"]
    again.close()


def test_a_large_bank_of_queries_is_searched_by_them_until_it_is_embedded(old, monkeypatch, caplog):
    monkeypatch.setattr("core.memory.keyed.MOST_MISSING", 2)
    bank_at(old, "joined").close()
    caplog.clear()
    with closing(bank_at(old, "joined")) as bank:
        assert bank.nearest("walrus penguin", 1)[0].score < 0.01 and ids(bank.nearest("paint a fence", 1)) == ["c"]
        assert "reembed" in caplog.text
        with closing(bank_at(old, "joined", read_only=True)) as frozen:
            assert ids(frozen.nearest("paint a fence", 1)) == ["c"]
        bank.add(record("new", "q", "walrus penguin egg"))  # what is added is found by what it says
        assert ids(bank.nearest("walrus penguin egg", 1)) == ["new"]
        assert memory_command(["reembed", str(old)]) == 0
        assert ids(bank.nearest("penguin walrus", 2)) == ["new", "a"]  # the fewer other words


def test_a_bank_of_queries_that_is_only_read_says_what_it_lacks(old, caplog):
    with pytest.raises(UserError, match="no vectors for memory.key=item: run `.*reembed .* --key item`"):
        bank_at(old, "item", read_only=True)
    with pytest.raises(UserError, match="give memory.key=query"):  # retrieval.key=query stands there already
        bank_at(old, "item", read_only=True, policy=Cosine(key="query"))
    with closing(bank_at(old, "joined", read_only=True)) as bank:
        assert "are found by their query alone until you run" in caplog.text
        assert ids(bank.nearest("paint a fence", 1)) == ["c"]


def test_keys_of_items_and_joined_ones_lie_side_by_side(tmp_path):
    path = tmp_path / "b.sqlite"
    tagged = record("t", "q", "walrus penguin", tags=("metal",))  # its texts differ between the kinds
    for key, text in (("joined", "q\ntitle0 (metal)\n\nwalrus penguin"), ("item", tagged.items[0].text)):
        bank = bank_at(path, key)
        bank.add(tagged)
        assert [hit.score for hit in bank.nearest(text, 1)] == [1.0]
        bank.close()
    bank = bank_at(path, "query")
    assert n_keys(bank) == {"query": 1, "joined": 1, "item": 1}
    bank.reembed("item")
    assert n_keys(bank) == {"query": 1, "item": 1}
    bank.close()


def test_the_kinds_of_keys_are_noted_together_with_them(tmp_path, bank, monkeypatch):
    other = bank_at(tmp_path / "b.sqlite", "joined")
    was = bank._store.rows("SELECT * FROM keys ORDER BY 1, 2, 3")

    def broken(db):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(other, "_note_kinds", broken)
        with pytest.raises(KeyboardInterrupt):
            other.reembed("item")
    assert bank._store.rows("SELECT * FROM keys ORDER BY 1, 2, 3") == was
    assert other.key == "joined"
    other.close()


@on_both_stores
def test_reembed_leaves_what_others_do_meanwhile_as_they_did_it(tmp_path, bank, monkeypatch):
    other = bank_at(tmp_path / "b.sqlite", "joined")
    embedded, whole = [], other.keys_of

    def beside(record_):
        embedded.append(record_.id)
        if embedded == ["a"]:  # while the vectors are made
            bank.add(record("late", "q", "walrus", tags=("metal",)))
            bank.history.forget(id="b")
            with bank.change("shorter") as change:
                change.update("c", items=record("c", "", "heron").items)
        return whole(record_)

    monkeypatch.setattr(other, "keys_of", beside)
    assert other.reembed("item") == 3
    assert embedded == ["a", "b", "c", "c", "late"]
    other.close()
    assert n_keys(bank) == {"query": 3, "item": 4}
    again = bank_at(tmp_path / "b.sqlite", "item")
    assert [hit.score for hit in again.nearest("title0\n\nheron", 1)] == [1.0]
    assert [hit.score for hit in again.nearest("title0\n\nwalrus", 1)] == [1.0]
    assert ids(again.nearest("title0\n\nwalrus", 1)) == ["late"]
    again.close()


def test_what_an_insight_says_is_found_over_mcp_and_stored_with_its_vectors(tmp_path):
    with served(tmp_path / "b.sqlite", "memory.consolidate=null", "server.answer_fields=true") as (client, service):
        words = {"title": "Cloth care", "tags": ["home"], "content": "Velvet wants steam and never an iron."}
        insight = client.ask("add_insight", **words)["id"]
        words = {"query": "tidy up", "title": "Metal", "content": "Copper shines after vinegar with salt."}
        saved = client.ask("save_lesson", **words)["memory_id"]
        for query, id in (("velvet steam never iron", insight), ("copper vinegar salt shines", saved)):
            assert client.ask("retrieve_memory", query=query)["memories"][0]["memory_id"] == id
        assert client.ask("retrieve_memory", query="unlike anything stored here")["memories"] == []
        assert n_keys(service.bank) == {"query": 2, "joined": 2}
        assert service.bank.get(insight).original_query.splitlines()[0] == "Cloth care (home)"


def test_the_recall_bench_measures(monkeypatch):
    """On hashed words and ten lessons: the way through the server's tools works, and content is found."""
    rows = [row | {"question": row["content"]} for row in recall.lessons()[:10]]
    monkeypatch.setattr(recall, "lessons", lambda: rows)
    original = recall.Service
    monkeypatch.setattr(recall, "Service", lambda path, cfg: original(path, cfg, embedder="hashing-256"))
    for tool in ("add_insight", "save_lesson"):
        assert recall.measure(tool, ())["recall@1"] >= 0.9
    assert recall.measure("save_lesson", ("memory.key=query", "retrieval=cosine"))["recall@1"] < 0.9
