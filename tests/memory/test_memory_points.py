"""retrieval=points: every term of the insight memory server's scoring, computed by hand; what counts as a match."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from conftest import TOY, read_rows
from test_memory import record

from core.errors import UserError
from core.memory.bank import MemoryBank
from core.memory.filter import Filter, normal_tag
from core.memory.policies.points import Asked, Points
from core.memory.policies.trust import FAILED, HARMFUL
from core.models.embedding import HashingEmbedder
from core.types import Lesson


def insight(id, title="Other", content="nothing of it", tags=(), **changes):
    items = (Lesson(title=title, description="", content=content),)
    return record(f"query {id}", task=id, id=id, items=items, tags=tags, **changes)


@pytest.fixture
def points_of(tmp_path):
    """{id: points} of what a query finds in a bank of these records whose stream stands at tick 100."""
    banks = []

    def ask(query, *records, **policy):
        bank = MemoryBank(
            path=str(tmp_path / f"{len(banks)}.sqlite"), embedder=HashingEmbedder(), policy=Points(top_k=50, **policy)
        )
        banks.append(bank)
        bank.add_many([*records, insight("now", "Stands for the present", "zzz", tick=100)])
        bank.embedder.embed = None  # the task is not embedded
        return {hit.record.id: hit.score for hit in bank.retrieve(query)}

    yield ask
    for bank in banks:
        bank.close()


# An age of 45 days halves; not used for 45 days earns no bonus: twice the points of each term are the term.
def test_each_term_by_hand(subtests, points_of):
    cases = [
        ({"title": "jwt auth"}, 10 / 2),  # the exact title, whatever its case, instead of the 5
        ({"title": "Notes on JWT auth"}, 5 / 2),
        ({"content": "Rotate the JWT."}, 3 / 2),
        ({"tags": ("auth",)}, 2 / 2),
        ({"tags": ("auth", "JWT", "api")}, 4 / 2),
        ({"title": "JWT auth", "content": "A jwt.", "tags": ("jwt",)}, 15 / 2),
        ({"title": "JWT auth", "n_helpful": 1}, (10 + 1 + 5 * (1 / 2)) / 2),
        ({"title": "JWT auth", "n_helpful": 5, "n_harmful": 1}, (10 + 5 + 5 * (3 / 7)) / 2),
        ({"title": "JWT auth", "n_harmful": 1}, (10 + 5 * (-2 / 2)) / 2),
        ({"content": "jwt", "n_harmful": 4}, (3 + 5 * (-8 / 5)) / 2),  # -5 / 2: returned all the same
        ({"title": "JWT auth", "last_used": 94}, (10 + 3) / 2),  # 6 days ago
        ({"title": "JWT auth", "last_used": 93}, 10 / 2),  # 7 days ago
        ({"title": "JWT auth", "tick": 100}, 13),  # fresh: as if used when it was made, and not decayed
        ({"title": "JWT auth", "tick": 94}, 13 * (84 / 90)),  # within 7 days it decays too
        ({"title": "JWT auth", "tick": 10}, 10 * 0.1),
        ({"content": "jwt", "n_harmful": 4, "tick": 1}, -5 * 0.1),  # harm fades as everything does
    ]
    for changes, expected in cases:
        with subtests.test(changes=changes):
            found = points_of("JWT auth", insight("a", **{"tick": 55} | changes))
            assert found == {"a": pytest.approx(expected, abs=1e-6)}


def test_what_matches_nothing_is_not_returned_whatever_its_marks(points_of):
    loved = insight("loved", "Bread", "Knead how you like the dough", ("food",), n_helpful=99, tick=100)
    assert points_of("how do you rotate the keys", loved) == {}
    assert points_of("", loved) == points_of("?!", loved) == {}


def test_what_counts_as_a_match(subtests):
    cases = [
        ("hook", "Hooks of React", True),
        ("auth", "Authentication", True),
        ("api", "rapid", True),  # the whole query stands in it, as the original looks for it
        ("api design", "rapid", False),
        ("api design", "rest-api", True),
        ("how to use it", "user", False),
        ("how to use it", "How to use it well", True),
        ("C++ templates", "c++", True),
        ("C++", "c++ and rust", True),
        ("测试", "并发测试", True),
        ("ＡＰＩ", "api", True),
    ]
    for query, text, yes in cases:
        with subtests.test(query=query, text=text):
            assert Asked(query).matches(text) is yes


def test_more_words_in_common_decide_between_equal_points_then_the_older(points_of):
    made = [
        insight("one", "Rotate it", tick=55),
        insight("two", "Rotate keys", tick=55),
        insight("late", "Rotate them", tick=55),
    ]
    assert list(points_of("rotate the signing keys", *made)) == ["two", "one", "late"]


def test_a_record_of_several_lessons_earns_each_term_once(points_of):
    items = tuple(Lesson(title=t, description="of jwt", content="jwt") for t in ("JWT", "JWT twice", "jwt"))
    assert points_of("jwt", record("q", id="many", items=items, tick=55)) == {"many": pytest.approx(6.5)}


def test_negative_trust_and_failures_carry_a_warning(tmp_path):
    bank = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=HashingEmbedder(), policy=Points(top_k=9))
    harmful, failed = insight("harmful", "jwt", n_harmful=1), insight("failed", "jwt", outcome="failure")
    bank.add_many([harmful, failed, insight("good", "jwt")])
    warnings = {hit.record.id: hit.warning for hit in bank.retrieve("jwt")}
    assert warnings == {"good": "", "failed": FAILED, "harmful": HARMFUL}
    bank.policy = Points(top_k=9, warn=False)
    assert {hit.warning for hit in bank.retrieve("jwt")} == {""}
    bank.close()


def test_days_on_the_wall_clock(tmp_path):
    def ago(days):
        return datetime.now(UTC) - timedelta(days=days)

    bank = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=HashingEmbedder(), policy=Points(top_k=9), clock="wall")
    for id, made, last_used in (
        ("unused", 45, None),
        ("used", 45, ago(6.9).timestamp()),
        ("idle", 9, ago(7.1).timestamp()),
        ("ticks", 9, 12),  # once counted on a stream
    ):
        bank.add(insight(id, "jwt", created_at=ago(made).isoformat(), last_used=last_used))
    found = {hit.record.id: hit.score for hit in bank.retrieve("jwt")}
    expected = {"idle": 10 * 0.9, "ticks": 10 * 0.9, "used": 13 / 2, "unused": 10 / 2}
    assert found == {id: pytest.approx(points, abs=1e-3) for id, points in expected.items()}
    bank.close()


def test_tags_are_filtered_without_their_case_however_they_were_stored(tmp_path):
    assert (normal_tag(" React "), normal_tag("Machine  Learning")) == ("react", "machine-learning")
    bank = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=HashingEmbedder(), policy=Points(top_k=9))
    bank.add_many([insight("a", "jwt", tags=("React", "Machine Learning")), insight("b", "jwt", tags=("vue",))])
    for tags in (("react",), ("REACT", "machine-learning"), ("React", "Machine Learning")):
        assert [hit.record.id for hit in bank.retrieve("jwt", where=Filter(tags=tags))] == ["a"]
        assert [hit.record.id for hit in bank.nearest("jwt", 9, where=Filter(tags=tags))] == ["a"]
        assert [hit.record.id for hit in bank.lexical("jwt", 9, where=Filter(tags=tags))] == ["a"]
    bank.close()


def test_it_is_a_policy_of_the_harness(here, tmp_path):
    run_dir, _ = here(*TOY, "limit=8", "retrieval=points", run_dir=tmp_path / "run")
    shown = [hit for row in read_rows(run_dir) for hit in row["retrieved"]]
    assert shown and all(hit["score"] > 0 for hit in shown)
    with pytest.raises(UserError, match="retrieval.ticks_per_day"):
        here(*TOY, "limit=1", "retrieval=points", "retrieval.ticks_per_day=0", run_dir=tmp_path / "bad")
