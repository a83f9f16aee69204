"""What the server notes when it shows a lesson, and what it says of a save that did not stay as it was."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

from mcp.client.client import Client
from mcp_kit import MODEL, TRAJECTORY, ask, here, lessons_in, run

from core.memory.sqlite.database import BUSY_S

ON_ADD = ("memory.consolidate.deduplicate.on_add=true", "memory.consolidate.background=false")
LESSON = {"query": "make the parser accept empty files", "title": "Test for empty input", "content": "Return early."}


def used(service, id):
    record = service.bank.get(id)
    return record.n_used, record.n_used_success


def test_each_retrieval_counts_and_an_extraction_does_not_count_the_same_use_again(tmp_path):
    async def go(server, service):
        async with Client(server) as client:
            id = (await ask(client, "save_lesson", **LESSON))["memory_id"]
            found = await ask(client, "retrieve_memory", query=LESSON["query"])
            assert lessons_in(found)[0]["id"] in (id, id[:8]) and used(service, id) == (1, 0)
            seen = [{"role": "tool", "content": found["formatted_prompt"]}, *TRAJECTORY]
            for success in (True, False):
                how = {"trajectory": seen, "query": "another task", "success_signal": success, "async_mode": False}
                await ask(client, "extract_memory", **how)
                assert used(service, id) == (1, 1)
            await ask(client, "retrieve_memory", query=LESSON["query"])
            assert used(service, id) == (2, 1)

    for preset in ("production", "paper_faithful"):
        with here(tmp_path / f"{preset}.sqlite", f"preset={preset}", *MODEL) as (server, service):
            run(go(server, service))


def test_with_uses_cited_only_what_the_assistant_names_counts(tmp_path):
    """By id or title in its own turns; a number there means something else, and retrieval alone counts nothing."""

    async def go(server, service):
        async with Client(server) as client:
            id = (await ask(client, "save_lesson", **LESSON))["memory_id"]
            found = await ask(client, "retrieve_memory", query=LESSON["query"])
            seen = {"role": "tool", "content": found["formatted_prompt"]}
            for said, uses in (
                ("Nothing fits, [1].", 0),
                (f"By {id[:8]} I test.", 1),
                ("Test for empty input: yes.", 2),
            ):
                turns = [seen, {"role": "assistant", "content": said}]
                how = {"trajectory": turns, "query": "another task", "success_signal": True, "async_mode": False}
                await ask(client, "extract_memory", **how)
                assert used(service, id) == (uses, uses)

    with here(tmp_path / "b.sqlite", "memory.uses=cited", *MODEL) as (server, service):
        run(go(server, service))


def test_a_locked_bank_does_not_keep_a_retrieval(tmp_path, caplog):
    async def go(server, service):
        async with Client(server) as client:
            id = (await ask(client, "save_lesson", **LESSON))["memory_id"]
            with closing(sqlite3.connect(service.bank.path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                began = time.monotonic()
                found = await ask(client, "retrieve_memory", query=LESSON["query"])
                assert time.monotonic() - began < BUSY_S  # as long as a writer waits
            assert lessons_in(found)[0]["id"] in (id, id[:8]) and used(service, id) == (0, 0)

    with here(tmp_path / "b.sqlite") as (server, service):
        run(go(server, service))
    assert [r.message for r in caplog.records if "not counted" in r.message]


def test_a_save_that_is_a_duplicate_says_so(tmp_path):
    async def go(server, service):
        async with Client(server) as client:
            first = await ask(client, "save_lesson", **LESSON)
            await ask(client, "mark_helpful", memory_id=first["memory_id"])  # so that it is the better one
            again = {**LESSON, "query": "let the CSV reader take files without rows"}
            second = await ask(client, "save_lesson", **again)
            third = await ask(client, "save_lesson", **again)
            return first, second, third

    with here(tmp_path / "b.sqlite", *ON_ADD) as (server, service):
        first, second, third = run(go(server, service))
    assert first == {"status": "saved", "memory_id": first["memory_id"]}
    assert (second["status"], second["duplicate_of"]) == ("duplicate", first["memory_id"])
    assert (third["status"], third["duplicate_of"]) == ("already_known", first["memory_id"])


def test_a_save_that_was_merged_at_once_says_so(tmp_path):
    async def go(server, service):
        async with Client(server) as client:
            for number, words in enumerate(("Handle", "Please handle", "Handled")):
                content = f"{words} an empty file, then read the header and the rows of the file."
                saved = await ask(client, "save_lesson", query=f"task {number}", title="Empty files", content=content)
            return saved, service.bank.records()

    merging = ["memory.consolidate.every=1", "memory.consolidate.merge.min_score=0.5", "memory.consolidate.prune=null"]
    merging += ["memory.consolidate.deduplicate=null", "memory.consolidate.background=false"]
    with here(tmp_path / "b.sqlite", *merging) as (server, service):
        saved, records = run(go(server, service))
    [merged] = [record for record in records if record.parents]
    assert (saved["status"], saved["replaced_by"]) == ("archived", merged.id)


def test_an_extraction_that_is_a_duplicate_says_so(tmp_path):
    async def go(server, service):
        async with Client(server) as client:
            how = {"trajectory": TRAJECTORY, "success_signal": True, "async_mode": False}
            first = await ask(client, "extract_memory", query="one task", **how)
            await ask(client, "mark_helpful", memory_id=first["memory_id"])
            return first, await ask(client, "extract_memory", query="another task", **how)

    with here(tmp_path / "b.sqlite", *MODEL, *ON_ADD, "memory.hygiene=null") as (server, service):
        first, second = run(go(server, service))
    assert first["state"] == "active", second
    assert second["state"] == "superseded", second
    assert second["duplicate_of"] == first["memory_id"]


def test_what_a_client_saves_is_stored_as_it_is_also_where_it_repeats_a_lesson(tmp_path):
    """A correction quotes what it corrects: what a client writes itself is no copy that slipped in."""
    long = LESSON | {"content": "Handle an empty file before the loop over its lines, with a test of its own."}
    more = long["content"] + " Not of a stream, though."

    async def go(server):
        async with Client(server) as client:
            await ask(client, "save_lesson", **long)
            return await ask(client, "save_lesson", **long | {"query": f"please {LESSON['query']}", "content": more})

    with here(tmp_path / "b.sqlite") as (server, service):
        again = run(go(server))
        assert again == {"status": "saved", "memory_id": again["memory_id"]}
        assert service.bank.get(again["memory_id"]).items[0].content == more
