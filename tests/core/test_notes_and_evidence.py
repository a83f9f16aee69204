"""What a distiller says beside its lessons: the steps that it quotes, and its notes on several attempts."""

from __future__ import annotations

import json

import pytest
from conftest import TOY, read_rows

from core.learning.attempts import Attempts
from core.learning.lessons import Contrast, only_quotes
from core.learning.structured import parse_thoughts
from core.memory.hygiene.guard import Guard
from core.models.base import Role
from core.models.offline import ScriptedModel
from core.types import Extraction, Lesson, MemoryRecord, Step, Task, Trajectory, Verdict

ITEM = "# Memory Item 1\n## Title One\n## Description Two.\n## Content Three."
OBJECT = {"items": [{"title": "One", "description": "Two.", "content": "Three."}]}


def test_what_stands_before_the_lessons(subtests):
    cases = [
        (f"Thoughts: The second one checked.\n```\n{ITEM}\n```", "The second one checked."),
        (f"**Thoughts:** The second\none checked.\n\n```markdown\n{ITEM}\n```", "The second\none checked."),
        (f"The second one checked.\n{ITEM}", "The second one checked."),
        (f"```\n{ITEM}\n```", ""),
        (json.dumps({"thoughts": "The second one checked.", **OBJECT}), "The second one checked."),
        (json.dumps(OBJECT), ""),
        (f"<think>private</think>Thoughts: open\n{ITEM}", "open"),
        ("no lesson here", ""),
        ("", ""),
        (None, ""),
    ]
    for reply, thoughts in cases:
        with subtests.test(reply=reply):
            assert parse_thoughts(reply) == thoughts


def trajectory(*observations, number=0):
    steps = tuple(Step(text="look", thought="", action="look", observation=text) for text in observations)
    return Trajectory(
        id=f"t{number}",
        sample=number,
        opening=(),
        steps=steps,
        answer="x",
        ended_by="end",
        reward=0.0,
        success=False,
        gold="",
    )


@pytest.mark.parametrize(("notes", "kept"), [(True, "The second one checked."), (False, "")])
def test_the_notes_of_a_comparison_are_kept_where_they_are_asked_for(notes, kept):
    model = ScriptedModel(script=lambda *_: f"Thoughts: The second one checked.\n```\n{ITEM}\n```")
    role = Role(name="extractor", llm=model, temperature=0.0, max_tokens=None)
    tries = [trajectory("a"), trajectory("b", number=1)]
    verdicts = [Verdict(label="failure", source="llm"), Verdict(label="success", source="llm")]
    attempts = Attempts(task=Task(id="t", query="q"), trajectories=tries, evaluate=lambda _: verdicts, memories=[])
    made = Contrast(role=role, seed=0, notes=notes).parallel(attempts)
    assert (made.notes, [lesson.title for lesson in made.lessons]) == (kept, ["One"])


def test_the_steps_that_a_lesson_quotes_are_its_evidence():
    first, second = "the red door opens only with the brass key", "you need a lamp before going down the stairs"
    attempt = trajectory(first, "nothing happens", second, first)
    lessons = tuple(Lesson(title="t", description="d", content=text) for text in (first, "own words only", second))
    assert only_quotes(Extraction(lessons=lessons[:1]), attempt).evidence == (1, 4)
    made = only_quotes(Extraction(lessons=lessons), attempt)
    assert (made.evidence, made.n_dropped, len(made.lessons)) == ((1, 3, 4), 1, 2)
    assert only_quotes(Extraction(lessons=lessons[1:2]), attempt).evidence == ()


def says(messages, role, sample):
    """A player that is always wrong, and a comparison that names a person."""
    if role == "extractor":
        return f"Thoughts: ask ann@example.org\n{ITEM}"
    return "Thoughts: x\nAction: say it" if role == "agent" else 'Status: "failure"'


def test_notes_reach_the_record_in_its_provenance(here):
    words = ("limit=1", "arm=matts_parallel", "k=2", "+contrast.notes=true", f"llm.script.path={__name__}.says")
    run_dir, _ = here(*TOY, *words)
    [record] = read_rows(run_dir)[0]["records"]
    assert record["provenance"]["notes"] == "ask ann@example.org"


def test_the_guard_takes_credentials_out_of_notes():
    record = MemoryRecord(
        id="r",
        original_query="q",
        items=(Lesson(title="t", description="d", content="c"),),
        source_trajectory_id="",
        score=1.0,
        outcome="success",
        label_source="llm",
        task_id="t",
        provenance={"notes": "curl -u ann:Kq7-mzR2x https://a.io"},
    )
    cleaned, found = Guard()._scrubbed(record)
    assert cleaned.provenance["notes"] == "curl -u ann:[removed secret] https://a.io" and "secret" in found
