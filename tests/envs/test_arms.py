"""The arms of the paper's tables in the real multi-turn engines, played by llm=free; gold reaches no prompt."""

from __future__ import annotations

import pytest
from conftest import REPO, read_json, read_rows

from analysis.audit import audit
from analysis.runs import read_run
from core.models.offline import FreePlayer

WORDS = ("llm=free", "embedder=hashing", "max_steps=3", "limit=2")
ONE = "env.workers=1"  # an engine takes seconds to start


def play_arm(here, monkeypatch, arm, *words):
    """(rows, summary, [(role, prompt)]) of a short run."""
    prompts, original = [], FreePlayer.chat

    def chat(self, request):
        prompts.append((request.role, "\n".join(message["content"] for message in request.messages)))
        return original(self, request)

    monkeypatch.setattr(FreePlayer, "chat", chat)
    run_dir, _ = here(*WORDS, f"arm={arm}", *words)
    report = audit(read_run(run_dir))
    assert report["broken"] == {}
    assert {"gold_by_chance", "one_system_prompt", "shown_items", "regraded", "gold_in_learning_prompts"} <= {
        *report["ok"]
    }
    return read_rows(run_dir), read_json(run_dir / "summary.json"), prompts


def check(rows, summary, prompts, arm):
    assert (summary["n"], summary["n_infra_error"], summary["n_learning_errors"]) == (2, 0, 0)
    attempts = {"matts_parallel": 3, "matts_sequential": 2}.get(arm, 1)
    assert {len(row["trajectories"]) for row in rows} == {attempts}
    assert all(len(t["steps"]) == 3 for row in rows for t in row["trajectories"])
    for row in rows:
        golds = {attempt["gold"] for attempt in row["trajectories"]}
        assert len(golds) == 1
        secret = golds.pop().removeprefix(row["query"])
        assert len(secret) > 10
        assert not any(secret in prompt for _, prompt in prompts)


@pytest.fixture
def alfworld(tmp_path_factory):
    pytest.importorskip("alfworld", reason="the alfworld extra is not installed")
    cache = tmp_path_factory.getbasetemp() / "alfworld-arms"
    return ("env=alfworld", "env.split=generated", "env.generated_games=4", f"env.cache_dir={cache}")


@pytest.mark.parametrize("arm", ["matts_parallel", "awm"])
def test_alfworld(here, monkeypatch, alfworld, arm):
    check(*play_arm(here, monkeypatch, arm, *alfworld), arm)


def test_the_list_of_commands_is_for_the_agent_alone(here, monkeypatch, alfworld):
    words = (*alfworld, ONE, "env.show_admissible=true")
    rows, summary, prompts = play_arm(here, monkeypatch, "matts_sequential", *words)
    check(rows, summary, prompts, "matts_sequential")
    for role, prompt in prompts:
        assert ("Admissible commands: " in prompt) == (role == "agent"), role
    assert {role for role, _ in prompts} == {"agent", "judge", "extractor"}
    first = rows[0]["trajectories"][0]
    sent = prompts[len(first["steps"])][1]  # the second round's opening goes on from the first round's conversation
    assert all(step["observation"] in sent and step["hint_chars"] for step in first["steps"])


def test_scienceworld(here, monkeypatch):
    pytest.importorskip("scienceworld", reason="the scienceworld extra is not installed")
    words = (ONE, "env=scienceworld", "env.task_names=[find-animal,lifespan-longest-lived]")
    check(*play_arm(here, monkeypatch, "matts_sequential", *words), "matts_sequential")


def test_lessons_are_retrieved_where_the_agent_is_stuck(here, monkeypatch, alfworld):
    """It is stuck at each step here."""
    monkeypatch.setattr("workflows.rollout._Attempt.is_stuck", lambda attempt: True)
    rows, summary, prompts = play_arm(here, monkeypatch, "reasoningbank", "retrieval.when=stuck", *alfworld, ONE)
    check(rows, summary, prompts, "reasoningbank")
    assert not any("<memory_items>" in prompt for role, prompt in prompts if role != "agent")
    assert any("step" in hit for row in rows for hit in row["retrieved"])


def test_every_arm_says_in_its_first_comment_what_it_is():
    for path in (REPO / "config/arm").glob("*.yaml"):
        package, comment, *_ = path.read_text().splitlines()
        assert package == "# @package _global_"
        assert comment.startswith("# ")
