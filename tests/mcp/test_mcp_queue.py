"""The queue of attempts in the bank: once each, in order, one worker at a time, kept through repairs, not forever."""

from __future__ import annotations

import pytest
from mcp_kit import MODEL, TRAJECTORY, here
from memory_kit import item, on_both_stores, record

from core.errors import InfraError, OverBudget, StopRun, TransientError
from core.memory.__main__ import main
from core.memory.bank import MemoryBank
from core.memory.consolidation.consolidator import Consolidator
from core.memory.policies.cosine import Cosine
from core.memory.sqlite.repair import repair
from core.memory.store import jobs as queue
from core.memory.store.contract import Busy
from core.models.embedding import HashingEmbedder
from mcp_server import checks
from mcp_server.extraction import POLL_S, RETRY_S, QueueWorker, learn_attempt


@pytest.fixture
def bank(tmp_path):
    opened = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=HashingEmbedder(), policy=Cosine())
    yield opened
    opened.close()


def test_jobs_are_done_once_in_order_and_erased(bank):
    jobs = bank.jobs()
    assert (jobs.get("a"), jobs.counts(), jobs.waiting()) == (None, {}, False)
    for id in ("b", "a", "b"):
        jobs.put(id, "default", {"query": id})
    assert jobs.counts() == {"pending": 2} and jobs.counts("another") == {}
    assert (jobs.next().id, jobs.next().id) == ("b", "b")  # still under way: its worker died
    jobs.end("b", "completed", {"n": 1})
    assert jobs.next().id == "a"
    jobs.end("a", "failed", {"error": "why"})
    assert jobs.next() is None and not jobs.waiting()
    assert (jobs.get("b").payload, jobs.get("b").result) == ({}, {"n": 1})
    assert jobs.put("b", "default", {"query": "b"}).state == "completed"
    again = jobs.put("a", "default", {"query": "a"})
    assert (again.state, again.payload, again.result) == ("pending", {"query": "a"}, {})


@on_both_stores
def test_namespaces_take_turns_and_what_was_under_way_goes_first(bank, monkeypatch):
    seconds = iter(range(100))
    monkeypatch.setattr(queue, "now", lambda: f"2026-11-23T10:00:{next(seconds):02d}+00:00")
    jobs, done = bank.jobs(), []
    for id in ("ann 1", "ann 2", "ann 3", "ann 4", "bob 1", "bob 2"):
        jobs.put(id, id.partition(" ")[0], {})
    for _ in range(3):
        done.append(jobs.next().id)
        jobs.end(done[-1], "completed", {})
    assert jobs.next().id == jobs.next().id == "bob 2"  # its worker died
    jobs.end("bob 2", "failed", {})
    jobs.put("carl 1", "carl", {})
    while job := jobs.next():
        done.append(job.id)
        jobs.end(job.id, "completed", {})
    assert done == ["ann 1", "bob 1", "ann 2", "carl 1", "ann 3", "ann 4"]


def test_a_job_that_kills_every_server_fails_in_the_end(bank):
    jobs = bank.jobs()
    jobs.put("a", "default", {"query": "x"})
    for round in range(queue.MOST_DEATHS // queue.TRIES):  # tried again when nothing else waits
        assert round == 0 or jobs.retry_died()
        assert [jobs.next().id for _ in range(queue.TRIES)] == ["a"] * queue.TRIES
        assert jobs.next() is None and f"died {5 * round + 5} times" in jobs.get("a").result["error"]
    assert not jobs.retry_died() and not jobs.waiting()
    assert jobs.get("a").payload == {"query": "x"}  # not even then is its text lost


def test_failed_jobs_keep_their_text_for_another_try(tmp_path, bank, monkeypatch, capsys):
    monkeypatch.setattr(queue, "KEPT_TEXTS", 2)
    jobs = bank.jobs()
    for name in ("a", "b", "c"):
        jobs.put(name, "default", {"query": name})
        jobs.end(name, "failed", {"error": "why"})
    assert [jobs.get(name).payload for name in ("a", "b", "c")] == [{}, {"query": "b"}, {"query": "c"}]
    bank.add(record("one", item(1)))
    assert main(["retry", str(tmp_path / "b.sqlite")]) == 0
    assert "2 extractions wait" in capsys.readouterr().out
    assert [jobs.get(name).state for name in ("a", "b", "c")] == ["failed", "pending", "pending"]
    assert jobs.next().payload == {"query": "b"}


def test_one_worker_leads_and_old_jobs_are_dropped(bank, monkeypatch):
    monkeypatch.setattr(queue, "KEPT", 3)
    one, other = bank.jobs(), bank.jobs()
    assert one.lead() and one.lead() and not other.lead()
    one.leave()
    assert other.lead()
    other.leave()
    for number in range(6):
        one.put(str(number), "default", {})
        one.end(str(number), "completed", {})
    assert [one.get(str(number)) is not None for number in range(6)] == [False] * 3 + [True] * 3


def test_the_queue_is_no_change_of_the_memory(bank):
    bank.add(record("one", item(1)))
    seq = bank.history.seq()
    bank.jobs().put("a", "default", {"query": "x"})
    assert bank.history.seq() == seq and bank.history.rollback(0) == seq
    assert bank.jobs().get("a").state == "pending"


def test_the_queue_survives_the_repair_of_its_bank(bank, tmp_path):
    bank.add(record("one", item(1)))
    bank.jobs().put("a", "default", {"query": "x"})
    bank.close()
    repair(tmp_path / "b.sqlite", "a test")
    opened = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=HashingEmbedder(), policy=Cosine())
    assert opened.jobs().get("a").payload == {"query": "x"} and opened.jobs().counts() == {"pending": 1}
    assert opened.get("one") is not None
    opened.close()


@pytest.mark.parametrize(
    ("error", "pause", "state"),
    [
        (TransientError("no route", "connection"), RETRY_S, "running"),
        (StopRun("the key is refused"), RETRY_S, "pending"),
        (Busy("others are writing to the bank"), RETRY_S, "pending"),
        (OverBudget("budget.run.usd=1 (1 used)", whole_run=True), RETRY_S, "pending"),
        (OverBudget("budget.episode.usd=1 (1 used)", whole_run=False), POLL_S, "failed"),
        (InfraError("refused", "content_filter"), POLL_S, "failed"),
        (ZeroDivisionError("a bug"), POLL_S, "failed"),
    ],
)
def test_what_may_pass_is_tried_again_and_what_may_not_fails_with_its_reason(
    tmp_path, error, pause, state, monkeypatch
):
    with here(tmp_path / "b.sqlite", *MODEL) as (_, service):

        def broken(service, bank, id, payload):
            raise error

        monkeypatch.setattr("mcp_server.extraction.learn_attempt", broken)
        payload = checks.attempt(TRAJECTORY, "a task", service.settings)
        job = service.jobs.put("a job", "default", payload)
        assert QueueWorker(service)._work() == pause
        job = service.jobs.get(job.id)
        assert job.state == state
        if state == "pending":  # nothing is lost, not even a try, and the client can ask why it waits
            assert (job.tries, job.payload, job.result) == (0, payload, {"waits_for": str(error)})
        if state == "failed":
            assert str(error) in job.result["error"] or "ZeroDivisionError" in job.result["error"]
        assert service.jobs.lead()
        service.jobs.leave()


def test_what_is_erased_is_gone_from_the_queue_too(tmp_path):
    with here(tmp_path / "b.sqlite", *MODEL) as (_, service):
        payload = checks.attempt(TRAJECTORY, "a task", service.settings)
        id = service.jobs.put("a job", "default", payload).id
        QueueWorker(service)._work()
        told = service.jobs.get(id).result
        assert service.bank.history.forget(id=told["memory_id"]) == [told["memory_id"]]
        assert service.jobs.get(id) is None
    title = told["memories"][0]["title"].encode()
    assert not any(title in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())


class Killed(BaseException):
    """The end of a process, which nothing catches."""


@pytest.mark.parametrize("died_at", ["learn_from", "_check_arrived"])
def test_an_extraction_whose_server_died_right_after_storing_is_consolidated_all_the_same(
    tmp_path, died_at, monkeypatch
):
    on_add = ("memory.consolidate.deduplicate.on_add=true", "memory.consolidate.background=false")
    on_add += ("memory.hygiene.strip=false",)  # otherwise the copy is taken out before it is compared
    where = MemoryBank if died_at == "learn_from" else Consolidator

    def killed(*given):
        raise Killed

    with here(tmp_path / "b.sqlite", *MODEL, *on_add) as (_, service):
        first = checks.attempt(TRAJECTORY, "make the parser accept empty files", service.settings)
        told = learn_attempt(service, service.bank, "first", first)
        seen = [{"role": "tool", "content": f"1. [success, id={told['memory_id']}] Check"}, *TRAJECTORY]
        again = checks.attempt(seen, "let the CSV reader take empty files", service.settings)
        service.jobs.put("second", "default", again)
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(where, died_at, killed)
            QueueWorker(service)._work()
    with here(tmp_path / "b.sqlite", *MODEL, *on_add) as (_, service):
        assert service.jobs.get("second").state == "running"
        QueueWorker(service)._work()
        job, old = service.jobs.get("second"), service.bank.get(told["memory_id"])
        new = service.bank.get(job.result["memory_id"])
        assert job.state == "completed" and job.tries == 2 and job.result["duplicate_of"] == old.id
        assert (new.status, new.confidence, old.n_used_success) == ("superseded", 0.7, 1)
