"""Search by words: BM25 over one namespace, in every script, which follows each change; the same in both databases."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from test_memory import record
from test_memory_hygiene import lesson

from core.memory import lexical
from core.memory.bank import MemoryBank
from core.memory.filter import Filter
from core.memory.lexical import Lexicon, terms, words_of
from core.memory.policies.lexical import Lexical
from core.models.embedding import HashingEmbedder

TEXTS = {
    1: "boil the water, then boil the egg",
    2: "open the door of the oven",
    3: "Öffne die Tür; naïve café x_y 3.14",
    4: "数据库要备份。接口要设超时",
    5: "авиабилеты купить заранее",
    6: "डेटाबेस का बैकअप",
    7: "water",
}


def by_hand(texts, query):
    """BM25 as the formula says it, without an index."""
    counts = {rowid: Counter(terms(words_of(text))) for rowid, text in texts.items()}
    mean = sum(each.total() for each in counts.values()) / len(counts)
    scores = Counter()
    for word in dict.fromkeys(terms(words_of(query))):
        n = sum(word in each for each in counts.values())
        idf = math.log(1 + (len(counts) - n + 0.5) / (n + 0.5))
        for rowid, each in counts.items():
            if each[word]:
                norm = 1.2 * (0.25 + 0.75 * each.total() / mean)
                scores[rowid] += idf * each[word] * 2.2 / (each[word] + norm)
    return sorted(((rowid, round(score, 9)) for rowid, score in scores.items()), key=lambda hit: (-hit[1], hit[0]))


def filled(texts=TEXTS, **options):
    made = Lexicon(**options)
    for rowid, text in texts.items():
        made.put(rowid, text)
    return made


def test_scores_are_bm25_whatever_was_added_changed_or_removed_before(subtests):
    made = filled()
    made.put(8, "water to be forgotten")
    made.put(2, "something else")
    made.put(2, TEXTS[2])
    made.remove(8)
    made.remove(99)
    for query in ("boil water", "the", "TÜR cafe", "x", "备份", "数据库", "купить", "बैकअप", "none of these", ""):
        with subtests.test(query=query):
            assert made.scores(query) == by_hand(TEXTS, query)
    assert Lexicon().scores("water") == []
    assert made.share_gone() == pytest.approx(3 / 10)


def test_words_in_every_script(subtests):
    cases = [
        ("Ｆｉｘ it, x_y!", ["fix", "it", "x", "y"]),
        ("naïve CAFÉ e\u0301te\u0301", ["naive", "cafe", "ete"]),
        ("数据库 备", ["数据", "据库", "备"]),
        ("데이터베이스", ["데이", "이터", "터베", "베이", "이스"]),
        ("डेटाबेस का", ["डेटाबेस", "का"]),
        ("it's 3.14", ["it", "s", "3", "14"]),
        ("", []),
    ]
    for text, found in cases:
        with subtests.test(text=text):
            assert terms(words_of(text)) == found
    assert terms(["билеты", "to"], parts=True) == ["билеты", "биле", "илет", "леты", "to"]


def test_parts_of_words_find_inflected_forms():
    assert filled().scores("авиабилет") == []
    assert [rowid for rowid, _ in filled(parts=True).scores("авиабилет")] == [5]


@pytest.fixture
def bank(tmp_path):
    bank = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=HashingEmbedder(dim=16), policy=Lexical(top_k=3))
    yield bank
    bank.close()


def ids(bank, query, **given):
    return [hit.record.id for hit in bank.lexical(query, 9, **given)]


def test_the_index_follows_every_change(bank):
    bank.add_many([record(f"thing {n}", task=str(n), id=f"r{n}") for n in range(20)])
    assert ids(bank, "zebra") == []
    bank.add(record("a zebra", id="new"))
    assert ids(bank, "zebra") == ["new"]
    with pytest.raises(ZeroDivisionError), bank.change("never made") as change:
        change.add(record("another zebra", id="lost"))
        assert set(ids(bank, "zebra")) == {"new", "lost"}
        raise ZeroDivisionError
    assert ids(bank, "zebra") == ["new"]
    with bank.change("set aside") as change:
        change.update("new", status="archived")
        assert ids(bank, "zebra") == []
    assert ids(bank, "zebra") == []
    before = bank.history.seq()
    with bank.change("reworded") as change:
        change.update("new", status="active", items=(lesson("about a quokka"),))
    assert ids(bank, "quokka") == ids(bank, "zebra") == ["new"]
    bank.history.rollback(before)
    assert ids(bank, "quokka") == []
    assert ids(bank, "zebra", where=Filter(statuses=("archived",))) == ["new"]
    bank.history.forget(id="new")
    assert ids(bank, "zebra", where=Filter(statuses=("archived", "active"))) == []
    assert not any("zebra" in word for each in bank._words._known.values() for word in each._postings)


def test_only_what_has_changed_is_read_again(bank, monkeypatch):
    bank.add_many([record(f"thing {n}", task=str(n), id=f"r{n}") for n in range(50)])
    put = []
    monkeypatch.setattr(
        Lexicon, "put", lambda self, rowid, text, was=Lexicon.put: put.append(rowid) or was(self, rowid, text)
    )
    assert len(ids(bank, "thing")) == 9 and len(put) == 50
    assert len(ids(bank, "thing")) == 9 and len(put) == 50
    bank.add(record("one thing more", id="new"))
    assert len(ids(bank, "thing")) == 9 and len(put) == 51


def test_an_index_of_many_removed_texts_is_made_anew(bank, monkeypatch):
    monkeypatch.setattr(lexical, "KEPT", 2)
    bank.add_many([record(f"thing {n}", task=str(n), id=f"r{n}") for n in range(10)])
    ids(bank, "thing")
    for n in range(3):
        bank.history.rollback(bank.history.seq())
        with bank.change("reworded") as change:
            change.update(f"r{n}", items=(lesson(f"about {n}"),))
        ids(bank, "about")
    assert all(each.share_gone() <= 0.3 for each in bank._words._known.values())
    for name in "abc":  # the last two namespaces are kept
        bank.of(name).lexical("thing", 1)
    assert {space for space, _ in bank._words._known} == {"b", "c"}


def test_a_tenants_scores_do_not_depend_on_another(bank):
    bank.add_many([record(f"zebra {n} thing", task=str(n), id=f"r{n}") for n in range(5)])
    bank.add(record("a quokka", id="q"))
    before = [(hit.record.id, hit.score) for hit in bank.lexical("a quokka thing", 9)]
    bank.of("other").add_many([record(f"quokka {n}", task=str(n), id=f"o{n}") for n in range(30)])
    assert [(hit.record.id, hit.score) for hit in bank.lexical("a quokka thing", 9)] == before
    assert len(bank.lexical("quokka", 99, where=Filter(everyone=True))) == 31
