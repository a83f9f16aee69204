"""Retrievals of several clients made together: the same answers as alone, each showing counted, errors kept apart."""

from __future__ import annotations

import asyncio
import threading

from mcp.client.client import Client
from mcp_kit import ask, here, run
from memory_kit import item, record

from core.memory.bank import MemoryBank
from mcp_server.retrievals import RECENT, SharedEmbedder


def test_the_last_vectors_are_kept_and_no_more():
    embedder, made = SharedEmbedder(name="hashing-64"), []
    real = embedder.measure
    embedder.measure = lambda texts: made.append(texts) or real(texts)
    first = embedder.embed(["a", "b", "a"])
    assert made == [["a", "b"]] and (first[0] == first[2]).all()
    assert (embedder.embed(["b", "c"])[0] == first[1]).all() and made[1:] == [["c"]]
    for number in range(RECENT):
        embedder.embed([f"text {number}"])
    embedder.embed(["a"])
    assert made[-1] == ["a"] and len(embedder._recent) == RECENT


async def _lessons(client):
    for number in range(6):
        words = {"title": f"Lesson {number}", "content": f"Content {number}, on files."}
        await ask(client, "save_lesson", query=f"sort the files of kind {number}", **words)


QUERIES = [f"sort the files of kind {number % 6} {'again' * (number % 2)}" for number in range(24)]


async def _asked(client, at_once):
    calls = [ask(client, "retrieve_memory", query=query, top_k=2) for query in QUERIES]
    if at_once:
        return await asyncio.gather(*calls)
    return [await call for call in calls]


def test_together_or_alone_the_answers_and_the_counts_are_the_same(tmp_path):
    async def go(server, at_once):
        async with Client(server) as client:
            await _lessons(client)
            return await _asked(client, at_once)

    answers, counts = [], []
    for name, words, at_once in (("a", [], True), ("b", [], False), ("c", ["server.batch=1"], False)):
        # A policy that does not rank by use, so that the order in which calls come in changes nothing.
        with here(tmp_path / name, "retrieval=cosine", *words) as (server, service):
            found = run(go(server, at_once))
            answers.append([[(hit["memory_id"], hit["similarity"]) for hit in each["memories"]] for each in found])
            counts.append({record.id: record.n_used for record in service.bank.records()})
            if name == "a":
                assert service.retrievals.made == 24 > service.retrievals.batches
            if name == "c":
                assert service.retrievals.made == 0
    assert answers[0] == answers[1] == answers[2] and len(answers[0][0]) == 2
    assert counts[0] == counts[1] == counts[2] and sum(counts[0].values()) == 48


def test_one_that_breaks_breaks_no_other(tmp_path, monkeypatch):
    real = MemoryBank.retrieve_and_count

    def breaking(bank, query, *rest):
        if "kind 3" in query:
            raise RuntimeError("this one")
        return real(bank, query, *rest)

    async def go(server):
        async with Client(server) as client:
            await _lessons(client)
            monkeypatch.setattr(MemoryBank, "retrieve_and_count", breaking)
            return await asyncio.gather(*(client.call_tool("retrieve_memory", {"query": q}) for q in QUERIES))

    with here(tmp_path / "bank") as (server, _):
        found = run(go(server))
    assert [each.is_error for each in found] == ["kind 3" in query for query in QUERIES]


def test_a_fault_after_the_search_reaches_who_asked_and_the_next_is_answered(tmp_path, monkeypatch):
    import mcp_server.retrievals as retrievals

    async def go(server, service):
        async with Client(server) as client:
            await _lessons(client)
            with monkeypatch.context() as broken:
                broken.setattr(retrievals.Retrievals, "_count_each", lambda *_: 1 / 0)
                calls = (client.call_tool("retrieve_memory", {"query": query}) for query in QUERIES[:4])
                found = await asyncio.wait_for(asyncio.gather(*calls), 20)
            return found, await ask(client, "retrieve_memory", query=QUERIES[0])

    with here(tmp_path / "bank") as (server, service):
        found, later = run(go(server, service))
    assert all(each.is_error for each in found) and later["memories"]


def test_what_a_batch_shows_is_one_transaction_a_namespace(tmp_path):
    with here(tmp_path / "bank") as (_, service):
        ann, bob = service.bank.of("ann"), service.bank.of("bob")
        for bank in (ann, bob):
            bank.add_many([record(id, item(10)) for id in ("a", "b")])
        seq = ann.history.seq()
        shown = [(ann, ["a", "b"]), (bob, ["b"]), (ann, ["a"]), (ann, ["gone", "a"])]
        asked_together(service, shown)
        assert [bank.get(id).n_used for bank in (ann, bob) for id in ("a", "b")] == [3, 1, 0, 1]
        assert [entry["reason"] for entry in ann.history.journal()[seq:]] == ["shown", "shown"]


def test_a_batch_waits_once_for_others_that_write(tmp_path, caplog):
    with here(tmp_path / "bank") as (_, service):
        banks = [service.bank.of(f"agent {number}") for number in range(8)]
        for bank in banks:
            bank.add(record("a", item(10)))
        inside, over = threading.Event(), threading.Event()

        def write():
            with service.bank.change("slow"):
                inside.set()
                assert over.wait(30)

        other = threading.Thread(target=write)
        other.start()
        assert inside.wait(30)
        asked_together(service, [(bank, ["a"]) for bank in banks])
        over.set()
        other.join()
        [_] = [told for told in caplog.records if "not counted: others" in told.message]  # one for each wait
        assert [bank.get("a").n_used for bank in banks] == [0] * 8
        asked_together(service, [(bank, ["a"]) for bank in banks])
        assert [bank.get("a").n_used for bank in banks] == [1] * 8


def test_the_next_are_made_while_what_was_shown_is_counted_and_then_are_counted_together(tmp_path, monkeypatch):
    made, counted, over = [], [], threading.Event()

    def count(bank, times):
        counted.append(dict(times))
        return over.wait(30)

    async def go(retrievals):
        calls = []
        for number in range(4):
            calls.append(
                asyncio.create_task(retrievals.retrieve(bank, "", lambda n=number: made.append(n) or (n, ["a"])))
            )
            await until(lambda n=number: len(made) == n + 1)
            await until(lambda: counted)
        assert counted == [{"a": 1}] and not any(call.done() for call in calls)  # none is answered before its count
        calls[3].cancel()  # its client goes; what it was shown counts all the same
        over.set()
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)

    with here(tmp_path / "bank") as (_, service):
        bank, retrievals = service.bank, service.retrievals
        monkeypatch.setattr(retrievals, "_count", count)
        *found, gone = run(go(retrievals))
    assert found == [0, 1, 2] and isinstance(gone, asyncio.CancelledError)
    assert counted == [{"a": 1}, {"a": 3}]


async def until(true):
    """Wait for a condition, at most 20 s."""
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


def asked_together(service, shown):
    """One batch of retrievals, each of a bank and the ids that it shows: they gather while another is made."""
    at_work, gathered, asked = threading.Event(), threading.Event(), service.retrievals

    def hold():
        at_work.set()
        assert gathered.wait(30)
        return [], []

    async def go():
        holding = asyncio.ensure_future(asked.retrieve(service.bank, "hold", hold))
        await asyncio.to_thread(at_work.wait, 30)
        calls = [asyncio.ensure_future(asked.retrieve(bank, "q", lambda ids=ids: (ids, ids))) for bank, ids in shown]
        while len(asked._waiting) < len(shown):
            await asyncio.sleep(0.01)
        gathered.set()
        return await asyncio.gather(holding, *calls)

    before = asked.batches
    assert run(go())[1:] == [ids for _, ids in shown] and asked.batches == before + 2
