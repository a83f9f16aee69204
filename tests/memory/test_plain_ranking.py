"""A policy's ranking is its own: by words, by a part of the query or corrections first only if an option says so."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from conftest import REPO
from memory_kit import Compass, item, record

from benchmarks import recall
from core.make import make
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.memory.ports import CORRECTS, REVISES
from core.models.cache import CachedEmbedder
from core.models.embedding import MiniLMEmbedder

OPTIONS = ("other_languages_by_words", "ignore_preamble", "corrections_first")
RULES = "Keep each function small and its name plain. Run the linter before you finish. Ask if something is unclear. "
PREAMBLE = "".join(f"Part {n}. {RULES}" for n in range(5))  # which all of these tasks have around their own sentence


class OnlyEnglish(Compass):
    def reads(self, text):
        return text.isascii()


def bank_of(path, policy, *queries, embedder=None):
    """A bank whose records "0", "1", ... have these queries."""
    bank = MemoryBank(path=str(path / "b.sqlite"), embedder=embedder or OnlyEnglish(), policy=policy)
    bank.add_many([record(str(n), item(200), query=query, tick=n) for n, query in enumerate(queries)])
    return bank


def found(bank, query):
    return [(hit.record.id, hit.score) for hit in bank.retrieve(query, 99)]


def say_corrected(bank, newer, older):
    with bank.change("a correction") as change:
        change.link(newer, REVISES, older, f"{CORRECTS}1, 2, cosine 0.95")


# Option: the records' queries, the query, the ranking by hand (cosines of 0, 60 and 90 degrees), that of the option.
BY_HAND = {
    "other_languages_by_words": (
        ["@60 看日志", "@90 备份数据库"],
        "@0 怎样备份数据库",
        [("0", 0.5), ("1", 0.0)],
        ["1"],
    ),
    "ignore_preamble": (
        [f"@0 {PREAMBLE} Look.", f"@0 {PREAMBLE} Listen.", "@60 Move.", "@90 Write."],
        f"@0 {PREAMBLE} @90 Write it.",
        [("0", 1.0), ("1", 1.0), ("2", 0.5), ("3", 0.0)],
        ["3", "2", "0", "1"],
    ),
    "corrections_first": (["@0 old", "@60 new"], "@0 old", [("0", 1.0), ("1", 0.5)], ["1", "0"]),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_a_ranking_by_hand_without_an_option_and_with_it(tmp_path, option):
    queries, query, cosines, otherwise = BY_HAND[option]
    with closing(bank_of(tmp_path, Cosine(), *queries)) as bank:
        if option == "corrections_first":
            say_corrected(bank, "1", "0")
        assert found(bank, query) == cosines
        assert bank.retrieve(query, 1)[0].record.id == cosines[0][0]
        bank.policy = Cosine(**dict.fromkeys(OPTIONS, True) | {option: False})
        newer_first = sorted(cosines, key=lambda hit: (-hit[1], -int(hit[0])))  # of equals, by corrections_first
        assert found(bank, query) == (cosines if option == "corrections_first" else newer_first)
        bank.policy = Cosine(**{option: True})
        assert [id for id, _ in found(bank, query)] == otherwise


def test_retrieval_cosine_is_the_inner_product_of_the_embeddings(tmp_path, compose):
    policy = make(compose("retrieval=cosine").retrieval)
    assert isinstance(policy, Cosine) and not any(getattr(policy, option) for option in OPTIONS)
    embedder = CachedEmbedder(inner=MiniLMEmbedder())
    given = recall.language_lessons()
    lessons = [lesson for language in ("Chinese", "Russian", "German", "English") for lesson in given[language][:4]]
    long = [f"{PREAMBLE}\n{lesson['title']}" for lesson in given["English"][:4]]
    keys = [*(lesson["title"] for lesson in lessons), *long, long[0]]
    with closing(bank_of(tmp_path, policy, *keys, embedder=embedder)) as bank:
        for newer, older in ((3, 0), (7, 4), (len(keys) - 1, 16), (15, 12)):
            say_corrected(bank, str(newer), str(older))
        rows = embedder.embed(keys)
        asked = [lesson["question"] for lesson in lessons]
        for query in (*asked, *(f"{PREAMBLE}\n{question}" for question in asked)):
            cosines = np.round(rows.astype(np.float64) @ embedder.embed([query])[0].astype(np.float64), 6)
            wanted = sorted(range(len(keys)), key=lambda n: (-cosines[n], n))
            hits = found(bank, query)
            assert [score for _, score in hits] == pytest.approx([cosines[n] for n in wanted], abs=2e-6)
            assert [id for id, _ in hits] == [str(n) for n in wanted]


def test_no_configuration_of_a_run_sets_an_option():
    """Only a server's; ranking.yaml has their defaults, which a run keeps."""
    files = [path for path in (REPO / "config").rglob("*.yaml") if any(o in path.read_text("utf-8") for o in OPTIONS)]
    assert sorted(path.name for path in files) == ["mcp.yaml", "ranking.yaml"]
