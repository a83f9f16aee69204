"""Lessons in languages that the embedder does not read: found by words if the policy says so, and kept apart."""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count

import pytest

from benchmarks import recall
from core.memory.bank import MemoryBank
from core.memory.consolidation.consolidator import Consolidator
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.policies.cosine import Cosine
from core.memory.policies.four_factor import FourFactor
from core.memory.policies.hybrid import Hybrid
from core.memory.policies.lexical import Lexical
from core.memory.policies.points import Points
from core.memory.policies.rrf import RRF
from core.memory.policies.trust import Trust
from core.models.cache import CachedEmbedder
from core.models.embedding import HashingEmbedder, MiniLMEmbedder, NamedEmbedder
from core.models.english import is_english

LESSONS = recall.language_lessons()
LANGUAGES = [language for language in LESSONS if language != "English"]
SOME = ("Chinese", "Russian", "German")
# Short lessons on unlike subjects, which MiniLM takes for one another.
SHORT = (
    "数据库要备份。 接口要设超时。 日志要分级别。 密码要加盐。 图片要压缩。 缓存要清理。 测试先写。 线程加锁。".split()
)


@dataclass(kw_only=True)
class ReadsAll(MiniLMEmbedder):
    """MiniLM that takes any language for one that it reads."""

    def reads(self, text):
        return True


@pytest.fixture(scope="module")
def minilm():
    return CachedEmbedder(inner=MiniLMEmbedder())


@pytest.fixture
def open_bank(tmp_path, minilm):
    with ExitStack() as banks:
        numbers = count()

        def build(given, policy=None, **changes):
            life = Consolidator(every=1_000, deduplicate=Deduplicate())
            policy = policy or Cosine(other_languages_by_words=True)
            values = {"embedder": minilm, "policy": policy, "consolidate": life} | changes
            bank = MemoryBank(path=str(tmp_path / f"bank{next(numbers)}.sqlite"), **values)
            bank.add_many([recall.record(place, lesson) for place, lesson in enumerate(given)])
            return banks.enter_context(closing(bank))

        yield build


def first(bank, given):
    """Of each lesson's question the id of the record that comes first."""
    hits = [bank.retrieve(lesson["question"], 1) for lesson in given]
    return [hit[0].record.id if hit else None for hit in hits]


def right(given):
    return [str(place) for place in range(len(given))]


@pytest.mark.parametrize("language", SOME)
def test_each_question_finds_its_lesson_whatever_the_threshold(open_bank, language):
    given = LESSONS[language]
    assert first(open_bank(given), given) == right(given)
    policy = Cosine(min_score=0.99, other_languages_by_words=True)
    assert first(open_bank(given, policy), given) == right(given)


@pytest.mark.parametrize("language", ["Japanese", "Russian"])
def test_whatever_the_policy(subtests, open_bank, language):
    given = LESSONS[language]
    bank = open_bank(given)
    for policy in (Trust, Hybrid, FourFactor, RRF, Lexical, Points):
        with subtests.test(policy=policy):
            bank.policy = policy(other_languages_by_words=True)
            n_right = sum(a == b for a, b in zip(first(bank, given), right(given), strict=True))
            assert n_right >= len(given) - (language == "Russian") * 6


@pytest.mark.parametrize("language", SOME)
def test_nothing_is_superseded_on_unlike_subjects(open_bank, language):
    bank = open_bank(LESSONS[language])
    bank.consolidate.consolidate(bank)
    assert bank.statuses() == {"active": len(LESSONS[language])}


def test_short_lessons_that_are_one_to_the_embedder_are_kept_apart(open_bank, minilm):
    given = [{"title": text, "content": text, "question": text} for text in SHORT]
    rows = minilm.embed(SHORT)
    assert (rows @ rows.T > 0.9).sum() > len(SHORT)  # more than each with itself
    bank = open_bank(given)
    bank.consolidate.consolidate(bank)
    assert bank.statuses() == {"active": len(SHORT)}
    assert first(bank, given) == right(given)


def test_equal_texts_are_still_one_lesson(open_bank):
    lesson = LESSONS["Chinese"][0]
    bank = open_bank([lesson, {**lesson, "title": "另一个标题"}])
    bank.consolidate.consolidate(bank)
    assert bank.statuses() == {"active": 1, "superseded": 1}


def test_it_is_said_once_what_is_done_with_other_languages(open_bank, caplog, subtests):
    by_words = "retrieved by words"
    cases = [
        ("Chinese", None, ("embedder=openai", "multilingual", by_words), 24),
        ("Chinese", Cosine(), ("cosines that say little (retrieval.other_languages_by_words=true",), 0),
        ("English", None, None, 0),
    ]
    for language, policy, said, n_by_words in cases:
        with subtests.test(language, said=said), caplog.at_level(logging.WARNING):
            caplog.clear()
            bank = open_bank(LESSONS[language], policy)
            for lesson in LESSONS[language]:
                bank.retrieve(lesson["question"], 1)
                bank.of("another").retrieve(lesson["question"], 1)
            told = [record.getMessage() for record in caplog.records]
            assert len(told) == (said is not None) and all(part in told[0] for part in said or ())
            assert bank.counts[by_words] == n_by_words


def shown(hits):
    """What a query got: the ids and their scores, without the times at which the records were written."""
    return [(hit.record.id, hit.score, hit.similarity, hit.warning) for hit in hits]


def test_english_is_ranked_as_if_there_were_no_other_language(open_bank):
    given = LESSONS["English"]
    one = open_bank(given)
    other = open_bank(given, embedder=CachedEmbedder(inner=ReadsAll()))
    for lesson in given:
        assert shown(one.retrieve(lesson["question"], 24)) == shown(other.retrieve(lesson["question"], 24))
        (hits, n_removed), (hits_there, n_removed_there) = (
            bank.retrieve_and_count(lesson["question"], 5) for bank in (one, other)
        )
        assert shown(hits) == shown(hits_there) and n_removed == n_removed_there


def test_a_query_that_shares_no_word_gets_what_the_policy_ranks_but_reaches_no_threshold(open_bank):
    bank = open_bank(LESSONS["English"])
    assert len(bank.retrieve("如何备份数据库？", 3)) == 3
    bank.policy = Cosine(min_score=0.1, other_languages_by_words=True)
    assert bank.retrieve("如何备份数据库？", 3) == []
    assert bank.retrieve_and_count("如何备份数据库？", 3) == ([], 0)


def test_an_embedder_that_reads_them_is_used_as_ever(open_bank):
    bank = open_bank(LESSONS["Chinese"], Cosine(min_score=0.99), embedder=HashingEmbedder(dim=4096))
    assert bank.retrieve("怎样判断一个二次方程有没有实数根？", 1) == []
    assert bank.retrieve(LESSONS["Chinese"][0]["title"], 1)[0].similarity == 1.0


def test_who_reads_what():
    chinese = "如何备份数据库？"
    assert [MiniLMEmbedder().reads(text) for text in ("How are you?", chinese)] == [True, False]
    assert [NamedEmbedder().reads(text) for text in ("How are you?", chinese)] == [True, False]
    assert not CachedEmbedder(inner=MiniLMEmbedder()).reads(chinese)
    for embedder in (NamedEmbedder(name="text-embedding-3-small"), HashingEmbedder()):
        assert embedder.reads(chinese)


# Texts


def test_what_is_english(subtests):
    for language in LESSONS:
        with subtests.test(language):
            texts = [lesson[part] for lesson in LESSONS[language] for part in ("content", "question")]
            assert {is_english(text) for text in texts} == {language == "English"}
    english = [
        "",
        "42",
        "Solve for θ, where α + β + θ = π.",
        "SELECT * FROM orders WHERE la = 'en' AND un IN (1, 2)",
        "Click the button '提交订单' to submit the order of the user.",
        "The naïve Müller-Lyer résumé of Zoë is a text about a café.",
        "Ｆｉｘ ｔｈｅ ｂｕｇ",
        "👍 done 🎉",
        "Translate 'la maison' into English.",
    ]
    other = [  # with names in English
        "在 pytest 中如何设置 timeout 参数",
        "pytest 에서 timeout 을 설정하는 방법은?",
        "Как настроить timeout в pytest?",
        "Wie setze ich das Zeitlimit in pytest?",
        "Hoe stel ik het tijdslimiet in voor een test?",
        "วิธีสำรองฐานข้อมูลก่อนย้าย",
        "Veritabanı taşınmadan önce bir yedek için ne yapmalı?",
    ]
    for text in (*english, *other):
        with subtests.test(text=text):
            assert is_english(text) is (text in english)
