"""Retrievals of several clients at once: the same answers as one by one, each showing counted, errors kept apart."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from mcp_kit import here, served
from memory_kit import item, record

from core.memory.bank import MemoryBank

QUERIES = [f"sort the files of kind {number % 6} {'again' * (number % 2)}" for number in range(24)]


def filled(client):
    for number in range(6):
        words = {"title": f"Lesson {number}", "content": f"Content {number}, on files."}
        client.ask("save_lesson", query=f"sort the files of kind {number}", **words)


def at_once(ask, n_threads=8):
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(ask, QUERIES))


def test_at_once_or_alone_the_answers_and_the_counts_are_the_same(tmp_path):
    answers, counts = [], []
    for n_threads in (8, 1):
        # A policy that does not rank by use, so that the order in which calls come in changes nothing.
        words = ("retrieval=cosine", "server.answer_fields=true")
        with served(tmp_path / str(n_threads), *words) as (client, service):
            filled(client)
            found = at_once(lambda query, ask=client.ask: ask("retrieve_memory", query=query, top_k=2), n_threads)
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

    with served(tmp_path / "bank") as (client, _):
        filled(client)
        monkeypatch.setattr(MemoryBank, "retrieve", breaking)
        found = at_once(lambda query: client.call("retrieve_memory", query=query))
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
