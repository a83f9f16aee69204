"""+distiller.style=steps: lessons as numbered steps."""

from __future__ import annotations

import pytest
from conftest import TOY, read_json, read_rows

from core.errors import UserError
from core.learning.lessons import STEPS_CHARS, Distiller
from core.models.base import Role
from core.models.offline import ScriptedModel
from core.types import Step, Task, Trajectory, Verdict
from envs.toy_script import play

CONTENT = "1. Read the whole list.\n2. If an entry is missing, ask for it.\n3. Only then act."


def stepwise(messages, role, sample):
    """The toy world's player, whose distiller writes steps."""
    if role != "extractor":
        return play(messages, role, sample)
    return f"Thoughts: t\n```\n# Memory Item 1\n## Title Look first\n## Description One.\n## Content\n{CONTENT}\n```"


def attempt():
    steps = (Step(text="I act.", thought="", action="act", observation="done"),)
    values = {"id": "t", "sample": 0, "opening": (), "answer": None, "ended_by": "end", "reward": 0.0}
    return Trajectory(**values, steps=steps, success=False, gold="")


@pytest.mark.parametrize(("label", "words"), [("success", "succeeded"), ("failure", "guardrails")])
def test_the_model_is_asked_for_steps_and_may_write_them_out(label, words):
    prompts = []

    def script(messages, role, sample):
        prompts.append(messages[-1]["content"])
        return stepwise(messages, role, sample)

    role = Role(name="extractor", llm=ScriptedModel(script=script), temperature=0.0, max_tokens=None)
    made = {}
    for style in ("paper", "steps"):
        distiller = Distiller(role=role, seed=0, style=style)
        made[style] = distiller.distil(Task(id="t", query="q"), attempt(), Verdict(label=label, source="llm"), [], None)
    assert made["steps"].lessons[0].content == CONTENT
    assert ["numbered steps" in prompt for prompt in prompts] == [False, True]
    assert words in prompts[1]


def test_a_schema_leaves_room_for_eight_steps(monkeypatch):
    from core.learning import learner

    sizes = []
    monkeypatch.setattr(learner, "lessons_schema", lambda n, most: sizes.append(most) or {})
    role = Role(name="extractor", llm=ScriptedModel(script=stepwise), temperature=0.0, max_tokens=None)
    for style in ("paper", "steps"):
        task, verdict = Task(id="t", query="q"), Verdict(label="success", source="llm")
        Distiller(role=role, seed=0, style=style).distil(task, attempt(), verdict, [], None)
    assert sizes == [600, STEPS_CHARS]


def test_a_run_stores_steps_and_its_manifest_has_their_templates(here, tmp_path):
    plain, _ = here(*TOY, "limit=2")
    script = "llm.script.path=test_steps.stepwise"
    run_dir, _ = here(*TOY, "limit=2", "+distiller.style=steps", script, run_dir=tmp_path / "steps")
    lessons = [lesson for row in read_rows(run_dir) for lesson in row["lessons"]]
    assert lessons and all(lesson["content"].splitlines()[1].startswith("2. If") for lesson in lessons)
    then, now = (read_json(path / "manifest.json")["fingerprint"]["prompts"] for path in (plain, run_dir))
    assert not any(name.startswith("steps/") for name in then)
    assert now.keys() - then.keys() == {"steps/extract_success", "steps/extract_failure", "steps/extract_format"}


@pytest.mark.parametrize("memory", ["reasoning_bank", "synapse", "awm"])
def test_another_style_is_refused(here, memory):
    style = "prose" if memory == "reasoning_bank" else "steps"
    with pytest.raises(UserError, match="style"):
        here(*TOY, f"memory={memory}", f"+distiller.style={style}")
