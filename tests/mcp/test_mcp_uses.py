"""What the server notes when it shows a lesson, and what it says of a save that did not stay as it was."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest
from mcp_kit import MODEL, TRAJECTORY, here, lessons_in, served

from core.memory.sqlite.database import BUSY_S
from mcp_server.tools import MemoryTools

ON_ADD = ("memory.consolidate.deduplicate.on_add=true", "memory.consolidate.background=false")
AT_ONCE = {"async_mode": False}
LESSON = {"query": "make the parser accept empty files", "title": "Test for empty input", "content": "Return early."}


def used(service, id):
    record = service.bank.get(id)
    return record.n_used, record.n_used_success


@pytest.mark.parametrize("preset", ["production", "paper_faithful"])
def test_each_retrieval_counts_and_an_extraction_does_not_count_the_same_use_again(tmp_path, preset):
    with served(tmp_path / "b.sqlite", f"preset={preset}", *MODEL) as (client, service):
        id = client.ask("save_lesson", **LESSON)["memory_id"]
        found = client.ask("retrieve_memory", query=LESSON["query"])
        assert lessons_in(found)[0]["id"] in (id, id[:8]) and used(service, id) == (1, 0)
        seen = [{"role": "tool", "content": found["formatted_prompt"]}, *TRAJECTORY]
        for success in (True, False):
            client.ask("extract_memory", trajectory=seen, query="another task", success_signal=success, **AT_ONCE)
            assert used(service, id) == (1, 1)
        client.ask("retrieve_memory", query=LESSON["query"])
        assert used(service, id) == (2, 1)


def test_with_uses_cited_only_what_the_assistant_names_counts(tmp_path):
    """By id or title in its own turns; a number there means something else, and retrieval alone counts nothing."""
    with served(tmp_path / "b.sqlite", "memory.uses=cited", *MODEL) as (client, service):
        id = client.ask("save_lesson", **LESSON)["memory_id"]
        found = client.ask("retrieve_memory", query=LESSON["query"])
        seen = {"role": "tool", "content": found["formatted_prompt"]}
        for said, uses in (
            ("Nothing fits, [1].", 0),
            (f"By {id[:8]} I test.", 1),
            ("Test for empty input: yes.", 2),
        ):
            turns = [seen, {"role": "assistant", "content": said}]
            client.ask("extract_memory", trajectory=turns, query="another task", success_signal=True, **AT_ONCE)
            assert used(service, id) == (uses, uses)


def test_a_locked_bank_does_not_keep_a_retrieval(tmp_path, caplog):
    with served(tmp_path / "b.sqlite") as (client, service):
        id = client.ask("save_lesson", **LESSON)["memory_id"]
        with closing(sqlite3.connect(service.bank.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            found = client.ask("retrieve_memory", query=LESSON["query"])
            assert time.monotonic() - began < BUSY_S  # as long as a writer waits
        assert lessons_in(found)[0]["id"] in (id, id[:8]) and used(service, id) == (0, 0)
    assert [r.message for r in caplog.records if "not counted" in r.message]


def test_a_save_that_is_a_duplicate_says_so(tmp_path):
    again = LESSON | {"query": "let the CSV reader take files without rows"}
    with served(tmp_path / "b.sqlite", *ON_ADD) as (client, _):
        first = client.ask("save_lesson", **LESSON)
        client.ask("mark_helpful", memory_id=first["memory_id"])  # so that it is the better one
        second, third = (client.ask("save_lesson", **again) for _ in range(2))
    assert first == {"status": "saved", "memory_id": first["memory_id"]}
    assert (second["status"], second["duplicate_of"]) == ("duplicate", first["memory_id"])
    assert (third["status"], third["duplicate_of"]) == ("already_known", first["memory_id"])


def test_a_save_that_was_merged_at_once_says_so(tmp_path):
    merging = ["memory.consolidate.every=1", "memory.consolidate.merge.min_score=0.5", "memory.consolidate.prune=null"]
    merging += ["memory.consolidate.deduplicate=null", "memory.consolidate.background=false"]
    with served(tmp_path / "b.sqlite", *merging) as (client, service):
        for number, words in enumerate(("Handle", "Please handle", "Handled")):
            content = f"{words} an empty file, then read the header and the rows of the file."
            saved = client.ask("save_lesson", query=f"task {number}", title="Empty files", content=content)
        [merged] = [record for record in service.bank.records() if record.parents]
    assert (saved["status"], saved["replaced_by"]) == ("archived", merged.id)


def test_an_extraction_that_is_a_duplicate_says_so(tmp_path):
    how = {"trajectory": TRAJECTORY, "success_signal": True} | AT_ONCE
    with served(tmp_path / "b.sqlite", *MODEL, *ON_ADD, "memory.hygiene=null") as (client, _):
        first = client.ask("extract_memory", query="one task", **how)
        client.ask("mark_helpful", memory_id=first["memory_id"])
        second = client.ask("extract_memory", query="another task", **how)
    assert (first["state"], second["state"]) == ("active", "superseded")
    assert second["duplicate_of"] == first["memory_id"]


def test_what_a_client_saves_is_stored_as_it_is_also_where_it_repeats_a_lesson(tmp_path):
    """A correction quotes what it corrects: what a client writes itself is no copy that slipped in."""
    long = LESSON | {"content": "Handle an empty file before the loop over its lines, with a test of its own."}
    more = long["content"] + " Not of a stream, though."
    with here(tmp_path / "b.sqlite") as (_, service):
        tools = MemoryTools(service)
        tools.save_lesson(**long)
        again = tools.save_lesson(**long | {"query": f"please {LESSON['query']}", "content": more}).structured_content
        assert again == {"status": "saved", "memory_id": again["memory_id"]}
        assert service.bank.get(again["memory_id"]).items[0].content == more
