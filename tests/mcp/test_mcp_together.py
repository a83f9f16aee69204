"""Retrievals of several clients at once: the same answers as one by one, each showing counted, errors kept apart."""

from __future__ import annotations

import asyncio
import threading

from mcp.client.client import Client
from mcp_kit import ask, here, run
from memory_kit import item, record

from core.memory.bank import MemoryBank

QUERIES = [f"sort the files of kind {number % 6} {'again' * (number % 2)}" for number in range(24)]


async def _lessons(client):
    for number in range(6):
        words = {"title": f"Lesson {number}", "content": f"Content {number}, on files."}
        await ask(client, "save_lesson", query=f"sort the files of kind {number}", **words)


def test_at_once_or_alone_the_answers_and_the_counts_are_the_same(tmp_path):
    async def go(server, at_once):
        async with Client(server) as client:
            await _lessons(client)
            calls = [ask(client, "retrieve_memory", query=query, top_k=2) for query in QUERIES]
            return await asyncio.gather(*calls) if at_once else [await call for call in calls]

    answers, counts = [], []
    for at_once in (True, False):
        # A policy that does not rank by use, so that the order in which calls come in changes nothing.
        with here(tmp_path / str(at_once), "retrieval=cosine", "server.answer_fields=true") as (server, service):
            found = run(go(server, at_once))
            answers.append([[(hit["memory_id"], hit["score"]) for hit in each["memories"]] for each in found])
            counts.append({record.id: record.n_used for record in service.bank.records()})
    assert answers[0] == answers[1] and len(answers[0][0]) == 2
    assert counts[0] == counts[1] and sum(counts[0].values()) == 48


def test_one_that_breaks_breaks_no_other(tmp_path, monkeypatch):
    real = MemoryBank.retrieve

    def breaking(bank, query, *rest, **how):
        if "kind 3" in query:
            raise RuntimeError("this one")
        return real(bank, query, *rest, **how)

    async def go(server):
        async with Client(server) as client:
            await _lessons(client)
            monkeypatch.setattr(MemoryBank, "retrieve", breaking)
            return await asyncio.gather(*(client.call_tool("retrieve_memory", {"query": q}) for q in QUERIES))

    with here(tmp_path / "bank") as (server, _):
        found = run(go(server))
    assert [each.is_error for each in found] == ["kind 3" in query for query in QUERIES]


def test_what_cannot_be_counted_while_others_write_is_said_and_answered_all_the_same(tmp_path, caplog):
    with here(tmp_path / "bank") as (_, service):
        service.bank.add(record("a", item(10)))
        inside, over = threading.Event(), threading.Event()

        def write():
            with service.bank.change("slow"):
                inside.set()
                assert over.wait(30)

        other = threading.Thread(target=write)
        other.start()
        assert inside.wait(30)
        service.count_shown(service.bank, ["a"])
        over.set()
        other.join()
        assert "not counted: others" in caplog.text and service.bank.get("a").n_used == 0
        service.count_shown(service.bank, ["a"])
        assert service.bank.get("a").n_used == 1
