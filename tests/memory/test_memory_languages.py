"""Lessons in languages that the embedder does not read: found by words if the policy says so, and kept apart."""

from __future__ import annotations

import logging
from dataclasses import dataclass

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
    banks = []

    def build(given, policy=None, **changes):
        path = str(tmp_path / f"bank{len(banks)}.sqlite")
        life = Consolidator(every=1_000, deduplicate=Deduplicate())
        policy = policy or Cosine(other_languages_by_words=True)
        values = {"embedder": minilm, "policy": policy, "consolidate": life} | changes
        banks.append(MemoryBank(path=path, **values))
        banks[-1].add_many([recall.record(place, lesson) for place, lesson in enumerate(given)])
        return banks[-1]

    yield build
    for bank in banks:
        bank.close()


def first(bank, given):
    """Of each lesson's question the id of the record that comes first."""
    hits = [bank.retrieve(lesson["question"], 1) for lesson in given]
    return [hit[0].record.id if hit else None for hit in hits]


def right(given):
    return [str(place) for place in range(len(given))]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_question_finds_its_lesson_whatever_the_threshold(open_bank, language):
    given = LESSONS[language]
    assert first(open_bank(given), given) == right(given)
    policy = Cosine(min_score=0.99, other_languages_by_words=True)
    assert first(open_bank(given, policy), given) == right(given)


@pytest.mark.parametrize("language", ["Chinese", "Japanese", "Russian"])
def test_whatever_the_policy(subtests, open_bank, language):
    given = LESSONS[language]
    bank = open_bank(given)
    for policy in (Trust, Hybrid, FourFactor, RRF, Lexical, Points):
        with subtests.test(policy=policy):
            bank.policy = policy(other_languages_by_words=True)
            n_right = sum(a == b for a, b in zip(first(bank, given), right(given), strict=True))
            assert n_right >= len(given) - (language == "Russian") * 6


@pytest.mark.parametrize("language", LANGUAGES)
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


def test_it_is_said_once_with_an_embedder_that_can(open_bank, caplog):
    with caplog.at_level(logging.WARNING):
        bank = open_bank(LESSONS["Chinese"])
        for lesson in LESSONS["Chinese"]:
            bank.retrieve(lesson["question"], 1)
            bank.of("another").retrieve(lesson["question"], 1)
    [said] = [record.getMessage() for record in caplog.records if "understands only English" in record.getMessage()]
    assert "embedder=openai" in said and "multilingual" in said and "retrieved by words" in said
    assert bank.counts["retrieved by words"] == 24


def test_without_the_option_it_is_said_how_to_rank_by_words(open_bank, caplog):
    with caplog.at_level(logging.WARNING):
        bank = open_bank(LESSONS["Chinese"], Cosine())
        bank.retrieve(LESSONS["Chinese"][0]["question"], 1)
    [said] = [record.getMessage() for record in caplog.records]
    assert "cosines that say little (retrieval.other_languages_by_words=true" in said
    assert bank.counts["retrieved by words"] == 0


def test_nothing_is_said_of_english(open_bank, caplog):
    with caplog.at_level(logging.WARNING):
        bank = open_bank(LESSONS["English"])
        bank.retrieve("How do I test something that depends on the clock?", 1)
    assert not caplog.records and not bank.counts


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


def test_names_in_english_are_found_within_another_language(open_bank):
    given = [
        {"title": "超时", "content": "在 pytest 中用 pytest-timeout 设置每个测试的超时。"},
        {"title": "端口", "content": "在 Docker 里用 EXPOSE 声明端口。"},
    ]
    bank = open_bank(given)
    assert bank.retrieve("怎么给 pytest 的测试设置时限？", 1)[0].record.id == "0"
    assert bank.retrieve("Docker 的端口怎么声明？", 1)[0].record.id == "1"


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


def test_other_languages_are_no_english(subtests):
    for language in LANGUAGES:
        with subtests.test(language):
            texts = [lesson[part] for lesson in LESSONS[language] for part in ("content", "question")]
            assert [text for text in texts if is_english(text)] == []


def test_english_with_formulas_names_and_code_is_english(subtests):
    cases = [
        *(lesson[part] for lesson in LESSONS["English"] for part in ("content", "question")),
        "",
        "42",
        "Solve for θ, where α + β + θ = π.",
        "Find λ and μ such that λ² + μ² = 1",
        "SELECT * FROM orders WHERE la = 'en' AND un IN (1, 2)",
        "descriptor = os.open(path, os.O_RDWR | os.O_CREAT)",
        "Smith et al. 2020 and Liu et al. 2018",
        "Click the button '提交订单' to submit the order of the user.",
        "The naïve Müller-Lyer résumé of Zoë is a text about a café.",
        "find a USB-C cable by Señor Frog's under 30 dollars",
        "Ｆｉｘ ｔｈｅ ｂｕｇ",
        "👍 done 🎉",
        "pip install -U numpy pandas",
        "Translate 'la maison' into English.",
    ]
    for text in cases:
        with subtests.test(text=text):
            assert is_english(text)


def test_texts_with_english_names_in_another_language_are_no_english(subtests):
    cases = [
        "在 pytest 中如何设置 timeout 参数",
        "pytestでタイムアウトを設定する方法",
        "pytest 에서 timeout 을 설정하는 방법은?",
        "Как настроить timeout в pytest?",
        "Wie setze ich das Zeitlimit in pytest?",
        "Come si imposta il limite di tempo nella configurazione?",
        "Hoe stel ik het tijdslimiet in voor een test?",
        "Jak ustawić limit czasu w pliku, który się nie otwiera?",
        "วิธีสำรองฐานข้อมูลก่อนย้าย",
        "כיצד לגבות את מסד הנתונים לפני ההעברה?",
        "Πώς παίρνω αντίγραφο της βάσης;",
        "Veritabanı taşınmadan önce bir yedek için ne yapmalı?",
    ]
    for text in cases:
        with subtests.test(text=text):
            assert not is_english(text)
