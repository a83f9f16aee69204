"""Shown is what is recorded as retrieved, and nobody learns from or is judged by what an attempt only quotes."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from conftest import TOY, read_json, read_rows

from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.memory.policies.random import Random
from core.models.embedding import HashingEmbedder
from core.run.records import not_shown, shown_in
from core.types import Lesson, MemoryRecord, content_id
from envs import toy_script

NARROW = (*TOY, "retrieval.top_k=4", "agent.max_memory_chars=330")  # room for two lessons of the toy world


def n_items(row) -> int:
    return len(re.findall(r"^\[\d+\] ", row["trajectories"][0]["opening"][0]["content"], re.MULTILINE))


def test_the_episode_records_what_its_prompt_held(here, capsys):
    run_dir, _ = here(*NARROW, "limit=20")
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    assert max(len(row["retrieved"]) for row in rows) == 4
    for row in rows:
        assert [found["n_items"] for found in row["retrieved"]] == [1] * len(row["retrieved"])
        assert sum(found["n_shown"] for found in row["retrieved"]) == n_items(row) <= 2
        assert not_shown(row) == len(row["retrieved"]) - n_items(row)
        assert shown_in(row) == [found["id"] for found in row["retrieved"]][: n_items(row)]
    assert summary["n_not_shown"] == sum(map(not_shown, rows)) > 20
    printed = capsys.readouterr().out
    assert printed.count("warning: not every retrieved lesson fits into the prompt") == 1
    assert "retrieved lessons not shown" in printed


def test_only_what_was_shown_counts_as_used(here, tmp_path):
    run_dir, _ = here(*NARROW, "limit=20", "memory=confidence")
    uses = Counter(id for row in read_rows(run_dir) for id in shown_in(row))
    bank = MemoryBank(path=str(run_dir / "bank.sqlite"), embedder=HashingEmbedder(), policy=Cosine(), read_only=True)
    assert {record.id: record.n_used for record in bank.records() if record.n_used} == uses
    bank.close()


def test_by_default_the_papers_sizes_are_shown_whole(here, capsys):
    run_dir, _ = here(*TOY, "limit=12", "retrieval.top_k=4")
    assert read_json(run_dir / "summary.json")["n_not_shown"] == 0
    assert "warning" not in capsys.readouterr().out
    assert all(found["n_shown"] == 1 for row in read_rows(run_dir) for found in row["retrieved"])


@pytest.mark.parametrize(("key", "quoted"), [("strip_lessons=true", False), ("strip_lessons=false", True)])
def test_judge_selector_and_distiller_read_no_quotes(here, monkeypatch, key, quoted):
    """The student says its lesson again word by word, and acts as before."""
    asked, toys_own = [], toy_script.play

    def play(messages, role, sample):
        text = messages[-1]["content"]
        said = toys_own(messages, role, sample)
        asked.append((role, text))
        lesson = re.search(r'The word of the \w+ family is "\w+"\.', messages[0]["content"])
        return said.replace("Thought:", f"Thought: {lesson.group()}") if role == "agent" and lesson else said

    monkeypatch.setattr("envs.toy_script.play", play)
    run_dir, rate = here(*TOY, "workflow=matts_parallel", "limit=12", key)
    assert rate == pytest.approx(8 / 12, abs=1e-4)
    thoughts = [step["thought"] for row in read_rows(run_dir) for t in row["trajectories"] for step in t["steps"]]
    assert sum('family is "' in thought for thought in thoughts) == 3 * 11  # what is recorded is what was said
    for role in ("judge", "selector", "extractor"):
        prompts = [text for asker, text in asked if asker == role]
        assert any('family is "' in text for text in prompts) == quoted
        assert any("[memory item]" in text for text in prompts) != quoted
        assert all("Action: say" in text for text in prompts)


def test_a_random_draw_depends_on_the_task_and_not_on_its_words(tmp_path):
    bank = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=HashingEmbedder(), policy=Random())
    for n in range(30):
        item = Lesson(title=f"T{n}", description="d", content="c")
        facts = {"source_trajectory_id": "t", "score": 1.0, "outcome": "success", "label_source": "llm"}
        bank.add(MemoryRecord(id=content_id(n), original_query=f"q{n}", items=(item,), task_id=f"old/{n}", **facts))
    draw = {t: bank.retrieve("the same words", exclude_task=t)[0].record.id for t in ("a", "b", "c", "d")}
    assert len(set(draw.values())) > 1
    assert draw["a"] == bank.retrieve("other words", exclude_task="a")[0].record.id
    bank.allow_self = True  # may be shown its own; its draw is still its own
    assert draw["a"] == bank.retrieve("the same words", exclude_task="a")[0].record.id
    bank.close()
