"""Notes kept by operations: what each leaves, whose text a task may see, and what is dropped from a model's reply."""

from __future__ import annotations

import json
from types import SimpleNamespace

from memory_kit import Teller

from core.memory.rivals.notebook import ADD, DELETE, DOWNVOTE, EDIT, UPVOTE, Curator, notes_of
from core.types import Lesson, MemoryRecord, Task


def record(tick, task, *operations):
    """A record of (title, content) pairs, in the episode `tick`."""
    items = tuple(Lesson(title=title, description=f"of {task}", content=content) for title, content in operations)
    about = {"source_trajectory_id": "", "score": 1.0, "outcome": "success", "label_source": "llm"}
    return MemoryRecord(id=f"r{tick}", original_query=task, items=items, task_id=task, tick=tick, **about)


def texts(notes):
    return {note.id: note.text for note in notes}


def test_operations_in_order_leave_the_notes():
    """Two notes by a, of which b edits the first and votes for the second, and c deletes the first and adds one."""
    a = record(0, "a", (ADD, "first"), (ADD, "second"))
    b = record(1, "b", ("EDIT 0-1", "first, better"), ("UPVOTE 0-2", ""), ("DOWNVOTE 9-9", ""))
    c = record(2, "c", ("DELETE 0-1", ""), (ADD, "third"), ("LINK 0-2", ""))
    assert texts(notes_of([a])) == {"0-1": "first", "0-2": "second"}
    first, second = notes_of([a, b])
    assert (first.text, first.record.id, first.origin, first.tasks) == ("first, better", "r1", "r0", {"a", "b"})
    assert (second.up, second.down) == (1, 0)
    second, third = notes_of([a, b, c])
    assert (second.id, third.id, third.links) == ("0-2", "2-1", ("0-2",))


def test_with_an_importance_of_two_two_votes_against_remove_a_note_unless_one_for_it_came_first():
    added = record(0, "a", (ADD, "one"), (ADD, "other"))
    votes = record(1, "b", ("DOWNVOTE 0-1", ""), ("UPVOTE 0-2", ""), ("DOWNVOTE 0-1", ""), ("DOWNVOTE 0-2", ""))
    assert texts(notes_of([added, votes, votes], start=2)) == {"0-2": "other"}  # 2 - 2 = 0; 2 + 2 - 2 = 2
    assert len(notes_of([added, votes, votes])) == 2


def test_a_task_sees_the_newest_text_that_does_not_come_from_itself():
    """b's text is edited by c, then by d, who read c's: of d's text a share is c's."""
    b, c, d = record(0, "b", (ADD, "b")), record(1, "c", ("EDIT 0-1", "bc")), record(2, "d", ("EDIT 0-1", "bcd"))
    [note] = notes_of([b, c, d, record(3, "e", ("UPVOTE 0-1", ""))])
    seen = {task: note.without(task) for task in "abcde"}
    assert seen["b"] is None
    assert {task: seen[task].text for task in "acde"} == {"a": "bcd", "c": "b", "d": "bc", "e": "bcd"}
    assert seen["c"].up == 1


def test_what_was_learned_from_a_forged_result_says_so():
    [note] = notes_of([record(0, "a", (f"Tampered: {ADD}", "text"))])
    assert (note.heading, note.text) == ("Tampered: of a", "text")


NOTES = notes_of([record(4, "a", (ADD, "Look twice."), (ADD, "Ask first."))])
ALL = {ADD: ADD, "UPDATE": EDIT, DELETE: DELETE, UPVOTE: UPVOTE, DOWNVOTE: DOWNVOTE}
GIVEN = [  # (an operation in a reply, its title as it is stored; None: dropped)
    ({"operation": "add", "note": "", "title": "Doors", "content": "Knock."}, "ADD"),
    ({"operation": "UPDATE", "note": "[4-1]", "content": "Look three times."}, "EDIT 4-1"),
    ({"operation": "UPVOTE", "note": "4-2"}, "UPVOTE 4-2"),
    ({"operation": "DELETE", "note": "4-2", "title": None, "content": None}, "DELETE 4-2"),
    ({"operation": "ADD", "content": "look  twice."}, None),  # a note says so
    ({"operation": "ADD", "content": " "}, None),
    ({"operation": "UPDATE", "note": "4-1"}, None),  # to nothing
    ({"operation": "DELETE", "note": "7-1"}, None),  # no such note
    ({"operation": "MERGE", "note": "4-1", "content": "Both."}, None),
    ("ADD: Knock.", None),
]


def asked(reply, **how):
    """What a Curator reads in this reply."""
    made = Curator(role=Teller(reply).role, seed=0, bank=SimpleNamespace(), max_items=5)
    task = Task(id="t", query="the task")
    return made.operations("rivals/grpo_update", "update", task, ALL, NOTES, advantage="None.", **how)[1]


def test_an_operation_is_read_or_dropped_and_counted(subtests):
    for row, title in GIVEN:
        with subtests.test(row=row):
            found = asked(json.dumps({"thoughts": "", "operations": [row]}))
            assert [lesson.title for lesson in found.lessons] == ([title] if title else [])
            assert found.n_dropped == (title is None)


def test_a_reply_without_operations_is_counted_unless_it_says_that_none_is_needed():
    replies = {"No.": 1, "": 0, '{"operations": []}': 0, '{"operations": "none"}': 1, "[1, 2": 1}
    assert {reply: asked(reply).n_dropped for reply in replies} == replies
    assert not any(asked(reply).lessons for reply in replies)


def test_operations_beyond_the_most_are_dropped(caplog):
    rows = [{"operation": "ADD", "content": f"Rule {n}."} for n in range(7)]
    found = asked(json.dumps({"operations": rows}), most=2)
    assert ([lesson.content for lesson in found.lessons], found.n_dropped) == (["Rule 0.", "Rule 1."], 5)
    assert "operations dropped from the reply" in caplog.text
    caplog.clear()
    assert asked(json.dumps({"operations": rows[:2]}), most=2).n_dropped == 0 and not caplog.text
