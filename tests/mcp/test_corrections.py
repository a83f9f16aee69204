"""Corrections win: a lesson that is saved again, changed or deleted, at once, and what brings the old one back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from mcp_kit import here, lessons_in, run_here  # noqa: F401 - run_here is a fixture
from mcp_kit import served as served_by
from memory_kit import item, record

from core.errors import UserError
from core.memory.__main__ import main as bank_command
from core.memory.by_hand import set_status, successor
from core.types import Lesson
from mcp_server.tools import MemoryTools

TASK = "connect to the staging database"
OLD = {"query": TASK, "title": "Port of the database", "content": "It listens on port 5432."}
NEW = OLD | {"content": "It listens on port 6432, behind pgbouncer."}


def shown(service, query=TASK, top_k=9):
    """(id, body) of each lesson that a client is shown."""
    found = MemoryTools(service).retrieve_memory(query, top_k)
    return [(lesson["id"], lesson["body"]) for lesson in lessons_in(found.structured_content)]


def told(answer):
    return answer.structured_content


@pytest.fixture
def served(tmp_path):
    with here(tmp_path / "b.sqlite", "memory.consolidate.background=false") as (_, service):
        yield MemoryTools(service), service


def test_a_lesson_saved_again_takes_the_place_of_the_older_one_at_once(served):
    tools, service = served
    old = told(tools.save_lesson(**OLD))["memory_id"]
    before = service.bank.history.seq()
    new = told(tools.save_lesson(**NEW | {"query": f" {TASK.upper()}", "title": "port of  the database"}))
    assert new == {"status": "saved", "memory_id": new["memory_id"], "replaces": [old]}
    assert shown(service) == [(new["memory_id"][:8], NEW["content"])]
    assert service.bank.get(old).status == "superseded"
    assert told(tools.get_detail(old))["status"] == "superseded"
    # Another task, or another title, is another lesson.
    for other in (NEW | {"query": f"{TASK} of production"}, NEW | {"title": "Name of the database"}):
        assert "replaces" not in told(tools.save_lesson(**other))
    assert service.bank.history.rollback(before) > 0  # the addition and what it replaced are one change
    assert shown(service) == [(old[:8], OLD["content"])]


def test_the_first_words_saved_once_more_win_again_and_so_does_what_was_deleted(served):
    tools, service = served
    first = told(tools.save_lesson(**OLD))["memory_id"]
    second = told(tools.save_lesson(**NEW))["memory_id"]
    third = told(tools.save_lesson(**OLD))
    assert third["replaces"] == [second] and third["memory_id"] not in (first, second)
    assert shown(service) == [(third["memory_id"][:8], OLD["content"])]
    assert told(tools.save_lesson(**OLD | {"query": "another task"}))["status"] == "saved"
    tools.delete_lesson(third["memory_id"])
    assert TASK not in str(shown(service, top_k=1)) and (again := told(tools.save_lesson(**OLD)))["status"] == "saved"
    assert again["memory_id"] != third["memory_id"] and told(tools.save_lesson(**OLD))["status"] == "saved"


def test_of_two_clients_that_save_at_once_one_lesson_stays(served):
    tools, service = served
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: tools.save_lesson(**OLD | {"content": f"It listens on port {n}."}), range(5000, 5008)))
    assert service.bank.statuses() == {"active": 1, "superseded": 7}
    assert len(shown(service)) == 1


def test_an_update_changes_what_is_given_and_drops_the_harmful_marks_of_the_old_text(served):
    tools, service = served
    old = told(tools.save_lesson(**OLD, tags=["db"]))["memory_id"]
    tools.mark_helpful(old)
    tools.mark_harmful(old)
    made = told(tools.update_lesson(old[:8], content=NEW["content"]))
    assert made == {"status": "updated", "memory_id": made["memory_id"], "replaces": [old]}
    record = service.bank.get(made["memory_id"])
    assert (record.items[0].title, record.items[0].content, record.tags) == (OLD["title"], NEW["content"], ("db",))
    assert (record.n_helpful, record.n_harmful, record.original_query) == (1, 0, TASK)
    assert shown(service) == [(made["memory_id"][:8], NEW["content"])]
    assert told(tools.mark_helpful(old))["id"] == made["memory_id"]  # an id that a conversation still holds
    assert told(tools.update_lesson(old, title="Its port"))["replaces"] == [made["memory_id"]]
    with pytest.raises(UserError, match="nothing would change"):
        tools.update_lesson(old, title="Its port")
    with pytest.raises(UserError, match="content has 10001 characters"):
        tools.update_lesson(old, content="x" * 10_001)


def test_one_of_several_lessons_of_a_record_is_updated_or_deleted(served):
    tools, service = served
    three = tuple(Lesson(title=f"Title {n}", description="", content=f"Content {n}.") for n in range(3))
    service.bank.add(replace(record("a" * 16, item(1)), original_query=TASK, items=three))
    assert [lesson[0] for lesson in shown(service)] == [f"{'a' * 8}-{n}" for n in range(3)]
    with pytest.raises(UserError, match=f"stands for 3 lessons: give {'a' * 16}-0 to -2"):
        tools.update_lesson("aaaaaaaa", content="x")
    made = told(tools.update_lesson("aaaaaaaa-1", content="Better."))["memory_id"]
    assert [body for _, body in shown(service)] == ["Content 0.", "Better.", "Content 2."]
    tools.delete_lesson("aaaaaaaa-0")  # as the conversation knows it
    assert [body for _, body in shown(service)] == ["Better.", "Content 2."]
    assert successor(service.bank, service.bank.get(made)).id != made


def test_a_deleted_lesson_can_be_brought_back_and_one_deleted_for_good_leaves_no_version(served, tmp_path, capsys):
    tools, service = served
    old = told(tools.save_lesson(**OLD))["memory_id"]
    new = told(tools.update_lesson(old, content=NEW["content"]))["memory_id"]
    assert told(tools.delete_lesson(new[:6])) == {"status": "deleted", "memory_id": new, "deleted": [new]}
    assert shown(service) == []
    with pytest.raises(UserError, match="was deleted: save it anew"):
        tools.update_lesson(new, content="x")
    assert bank_command(["status", str(tmp_path / "b.sqlite"), new, "active"]) == 0
    assert shown(service) == [(new[:8], NEW["content"])]
    assert told(tools.delete_lesson(new, permanent=True))["deleted"] == [new, old]
    assert "5432" not in str(service.bank.records()) and service.bank.get(old) is None


def test_a_correction_that_waits_for_a_person_takes_the_place_when_it_is_released(tmp_path):
    with here(tmp_path / "b.sqlite", "memory.consolidate.background=false") as (_, service):
        old = told(MemoryTools(service).save_lesson(**OLD))["memory_id"]
    with here(tmp_path / "b.sqlite", "memory.hygiene.review=true") as (_, service):
        tools = MemoryTools(service)
        new = told(tools.save_lesson(**NEW))
        assert (new["status"], new["will_replace"]) == ("quarantined", [old])
        assert [id for id, _ in shown(service)] == [old[:8]]
        set_status(service.bank, new["memory_id"], "active", "reviewed")
        assert [id for id, _ in shown(service)] == [new["memory_id"][:8]]
        set_status(service.bank, old, "active", "by hand")  # brings the old one back, and does not hide the new one
        assert len(shown(service)) == 2


def test_the_beginning_of_an_id_does_if_it_is_of_one(tmp_path):
    ids = ["abcd000000000001", "abcd000000000002", "ef01000000000003"]

    with served_by(tmp_path / "b.sqlite") as (client, service):
        service.bank.add_many([record(id, item(n)) for n, id in enumerate(ids)])
        assert client.ask("get_detail", memory_id="ef01")["id"] == ids[2]
        several = client.refused("get_detail", memory_id="abcd0")
        assert several == f"the id abcd0 is the beginning of several: give one of {ids[0]}, {ids[1]}."
        assert "too short: give at least its first 4" in client.refused("delete_lesson", memory_id="ef0")
        for unknown in ("ffff", "1000"):
            assert "there is no memory" in client.refused("delete_lesson", memory_id=unknown)


def test_of_equals_the_newer_is_shown_first_where_a_bank_serves_an_agent(tmp_path):
    """Same task, same cosine: the paper's bank shows the older one, a server the newer, also the last of many."""
    same = [replace(record(f"id{n}", item(n)), original_query=TASK) for n in range(100)]
    for words, first in (((), "id99"), (("preset=paper_faithful",), "id0")):
        with here(tmp_path / first, *words, "retrieval=cosine", "memory.key=query") as (_, service):
            service.bank.add_many(same)
            assert [hit.record.id for hit in service.bank.retrieve(TASK, 1)] == [first]


def test_the_same_task_run_again_and_again_leaves_one_lesson_of_it(tmp_path, run_here):  # noqa: F811
    """Its closing words; and a success with nothing new stores nothing."""
    bank, words = tmp_path / "b.sqlite", ("--closing-words", "--task", "Deploy the site")
    failing = ["sh", "-c", 'echo "Try $0: clear the cache before the upload."; exit 1']
    for n in range(3):
        _, said, found = run_here(bank, *words, command=[*failing, str(n)], status=1)
        assert (found["memories_retrieved"], found["memories_learned"]) == (min(n, 1), 1)
    assert "memory: [1] Deploy the site (from a failed attempt, " in said
    *_, found = run_here(bank, *words, command=["echo", "The site is live."])
    assert (found["memories_retrieved"], found["memories_learned"]) == (1, 0)
    assert found["why_not"] == "a success, and the bank has a lesson of this task"
    with here(bank) as (_, service):
        assert service.bank.statuses() == {"active": 1, "superseded": 2}
        [only] = service.bank.records(status="active")
        assert only.items[0].content == "Try 2: clear the cache before the upload."
