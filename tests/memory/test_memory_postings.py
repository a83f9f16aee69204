"""Search by words in a bank that is searched often: its postings in memory give the scores of SQLite's FTS5."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest
from test_memory import record

from core.errors import UserError
from core.memory.__main__ import main
from core.memory.bank import MemoryBank
from core.memory.filter import Filter
from core.memory.policies.lexical import Lexical
from core.memory.sqlite import lexicons
from core.memory.sqlite.postings import Postings
from core.models.embedding import HashingEmbedder
from core.types import Lesson

# Words that FTS5 takes apart, joins, folds or does not know.
ODD = "snake_case_name case_name a_b _ __ 1_000 x² ½ naïve naive e\u0301te été straße STRASSE ﬁne İstanbul".split()
ODD += ["w1_w2", "日本語", "日本", "ಕನ್ನಡ", "हिन्दी"]
WORDS = [*(f"w{n}" for n in range(80)), *ODD]


def drawn(rng: random.Random, most: int) -> str:
    return " ".join(rng.choices(WORDS, [1 / (place + 1) for place in range(len(WORDS))], k=rng.randrange(most)))


@pytest.fixture
def made():
    rng = random.Random(7)

    def one(number: int):
        lessons = tuple(Lesson(title=drawn(rng, 5), description="", content=drawn(rng, 40)) for _ in range(2))
        return record(drawn(rng, 20), task=str(number), id=f"r{number}", items=lessons)

    return [one(number) for number in range(120)]


@pytest.fixture
def bank(tmp_path):
    bank = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=HashingEmbedder(dim=16), policy=Lexical(top_k=3))
    yield bank
    bank.close()


def questions(n: int = 60) -> list[str]:
    rng = random.Random(3)
    return [drawn(rng, 25) for _ in range(n)] + ["none of these", "w1 w2", *ODD]


def answers(bank, where=None, **kwargs):
    asked = [bank.lexical(text, 9, where=where, **kwargs) for text in questions()]
    return [[(hit.record.namespace, hit.record.id, hit.score) for hit in hits] for hits in asked]


def test_postings_give_the_scores_of_fts5(bank, made, monkeypatch):
    bank.add_many(made)
    other = bank.of("other")
    reads, often = [], lexicons.OFTEN
    monkeypatch.setattr(lexicons, "Postings", lambda *given: reads.append(1) or Postings(*given))
    ways = [(bank, {}), (bank, {"where": Filter(statuses=("archived", "active"))}), (bank, {"exclude_task": "3"})]
    for shared in (False, True):
        if shared:
            other.add_many([record("w1 w2 naive", id="theirs"), *made[:9]])
            ways += [(other, {}), (bank, {"everyone": True})]
        with bank.change("set one aside") as change:
            change.update("r5", status="archived")
        reads.clear()
        monkeypatch.setattr(lexicons, "OFTEN", 10**9)  # never
        by_fts5 = [answers(view, **given) for view, given in ways]
        assert not reads and sum(map(len, by_fts5[0])) > 300
        monkeypatch.setattr(lexicons, "OFTEN", often)
        with bank.change("starts to count anew") as change:
            change.update("r6", n_used=1 + shared)
        assert [answers(view, **given) for view, given in ways] == by_fts5
        assert len(reads) == (3 if shared else 1)  # of the file, and of each namespace


def test_postings_follow_every_change(bank, made):
    bank.add_many(made)
    for _ in range(lexicons.OFTEN + 1):
        assert not bank.lexical("zebra", 9)
    bank.add(record("a zebra", id="new"))
    assert [hit.record.id for hit in bank.lexical("zebra", 9)] == ["new"]
    for _ in range(lexicons.OFTEN + 1):
        assert bank.lexical("zebra", 9)
    with bank.change("see it inside") as change:
        change.update("new", status="archived")
        assert not bank.lexical("zebra", 9)
    assert not bank.lexical("zebra", 9)
    with bank.change("taken back") as change:
        change.update("new", status="active")
    assert [hit.record.id for hit in bank.lexical("zebra", 9)] == ["new"]


def test_a_large_bank_keeps_no_postings(bank, made, monkeypatch):
    bank.add_many(made)
    monkeypatch.setattr(lexicons, "MOST", len(made) - 1)
    monkeypatch.setattr(lexicons, "Postings", None)  # a TypeError where it is called
    assert all(bank.lexical("w1", 3) for _ in range(2 * lexicons.OFTEN))


@pytest.mark.parametrize(
    "damage",
    ["DELETE FROM lexicon_docsize WHERE id = 7", "UPDATE lexicon_docsize SET sz = x'0101' WHERE id = 7"],
    ids=["unknown record", "another number of words"],
)
def test_a_damaged_full_text_index_is_said_and_mended(bank, made, tmp_path, damage):
    bank.add_many(made)
    asked = bank.lexical(questions()[0], 9)
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as db, db:
        db.execute(damage)
    for _ in range(lexicons.OFTEN - 2):  # with that above one fewer
        bank.lexical("never said", 3)
    for _ in range(3):  # each time: whoever asks again is not answered from it
        with pytest.raises(UserError, match="doctor"):
            bank.lexical("never said", 3)
    bank.close()
    assert main(["doctor", str(tmp_path / "b.sqlite")]) == 0
    again = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=HashingEmbedder(dim=16), policy=Lexical(top_k=3))
    with closing(again):
        assert [again.lexical(questions()[0], 9) for _ in range(lexicons.OFTEN + 1)] == [asked] * (lexicons.OFTEN + 1)
