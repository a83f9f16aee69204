"""The bank in the report: each lesson, where it comes from, who saw it and how these tasks ended."""

from __future__ import annotations

import json

import pytest
from conftest import read_rows
from report_kit import Elements, rewritten, unpacked

from scripts import report

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def banks(tmp_path_factory):
    """The lessons of each run of a page, by the run's label."""

    def make(*arguments):
        file = tmp_path_factory.mktemp("page") / "page.html"
        assert report.main([*map(str, arguments), "-o", str(file)]) == 0
        scripts = Elements(file.read_text(encoding="utf-8")).scripts
        found = {}
        for number, run in enumerate(json.loads(scripts["index"])["runs"]):
            found[run["label"]] = unpacked(scripts[f"b{number}"]) if f"b{number}" in scripts else []
            assert len(found[run["label"]]) == run["lessons"]
        return found

    return make


@pytest.fixture(scope="module")
def learned(banks, toy_runs):
    return banks(toy_runs / "bank-0")["reasoningbank · seed 0"]


def test_a_lesson_tells_its_source_its_uses_and_how_they_ended(toy_runs, learned):
    rows = read_rows(toy_runs / "bank-0")
    lessons = learned
    assert [each["content"] for each in lessons] == [it["content"] for row in rows for it in row["lessons"]]
    assert any(each["shown"] for each in lessons)
    for each in lessons:
        source = rows[each["place"]]
        assert source["task_id"] == each["task"] and source["records"][0]["id"] == each["id"]
        assert (each["run"], each["attempts"], each["outcome"]) == (0, [0], source["verdict"]["label"])
        users = [n for n, row in enumerate(rows) if each["id"] in [hit["id"] for hit in row["retrieved"]]]
        later = [n for n in range(each["place"] + 1, len(rows)) if n not in users]
        assert each["retrieved"] == each["shown"] == users
        for places, said in ((users, each["with"]), (later, each["without"])):
            assert said == [len(places), sum(rows[n]["status"] == "success" for n in places)]


def test_what_broke_and_what_had_no_room_is_no_use_and_a_wrong_label_is_told(toy_runs, learned, banks, tmp_path):
    used = next(each for each in learned if len(each["shown"]) > 2)
    broken, unseen, other = used["shown"][0], used["shown"][1], used["place"] + 1

    def change(row):
        if row["index"] in (broken, other):
            row["status"] = "infra_error"
        if row["index"] == unseen:
            row["retrieved"][0]["n_shown"] = 0
        if row["index"] == 0:
            row["trajectories"][0]["success"] = not row["trajectories"][0]["success"]

    changed = rewritten(toy_runs / "bank-0", tmp_path / "changed", change)
    lessons = banks(changed)["reasoningbank · seed 0"]
    assert [each["wrong"] for each in lessons] == [each["place"] == 0 for each in lessons]
    after = next(each for each in lessons if each["id"] == used["id"])
    assert after["retrieved"] == used["retrieved"] and after["shown"] == [n for n in used["shown"] if n != unseen]
    assert after["with"][0] == used["with"][0] - 2
    assert after["without"][0] == used["without"][0] + 1 - (other not in used["shown"])


def test_episodes_are_enough_where_the_bank_is_gone(toy_runs, banks, learned, tmp_path):
    bare = rewritten(toy_runs / "bank-0", tmp_path / "bare", lambda row: None)
    for file in bare.glob("bank.sqlite*"):
        file.unlink()
    assert banks(bare) == {"reasoningbank · seed 0": learned}


def test_lessons_of_a_given_bank_lead_to_the_run_that_learned_them(toy_runs, banks, here, tmp_path):
    bank = toy_runs / "bank-0" / "bank.sqlite"
    words = ("env=toy", "env.seed=5", "llm=scripted", "embedder=hashing", "limit=8", "setting=frozen")
    frozen, _ = here(*words, f"memory.path={bank}", "arm=reasoningbank", run_dir=tmp_path / "frozen")
    found = banks(toy_runs / "bank-0", frozen)
    assert len(found) == 2
    learned, given = sorted(found.values(), key=lambda lessons: lessons[0]["place"] is None)
    assert [each["content"] for each in given] == [each["content"] for each in learned]
    assert {each["place"] for each in given} == {None}
    assert {each["run"] for each in given} == {each["run"] for each in learned}
    assert sum(len(each["shown"]) for each in given) == sum(len(row["retrieved"]) for row in read_rows(frozen))
    alone = banks(frozen)
    assert {each["run"] for lessons in alone.values() for each in lessons} == {None}


def test_a_merged_lesson_names_its_parents_and_begins_after_them(here, banks, tmp_path):
    words = ("env=toy", "llm=scripted", "embedder=hashing", "limit=40", "arm=reasoningbank", "memory=merge_voting")
    run, _ = here(*words, run_dir=tmp_path / "run")
    (lessons,) = banks(run).values()
    places = {each["id"]: each["place"] for each in lessons}
    merged = [each for each in lessons if each["parents"]]
    assert merged and all(each["place"] is each["run"] is None for each in merged)
    rows = read_rows(run)
    for each in merged:
        before = [places[parent] for parent in each["parents"] if places[parent] is not None]
        assert not before or min(each["shown"], default=len(rows)) > max(before)
        if len(before) == len(each["parents"]):
            assert each["with"][0] + each["without"][0] == len(rows) - 1 - max(before)
    taught = [each["place"] for each in lessons if each["place"] is not None]
    assert taught == sorted(taught)
