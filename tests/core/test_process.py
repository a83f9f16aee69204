"""core/process.py: the child answers, fails loudly, is replaced when it dies, and never outlives its parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import forkserver
import pytest
from conftest import WITH_KITS, wait_for

from core.errors import InfraError, TransientError, UserError
from core.process import WorkerPool, WorkerProcess, WorkerTimeout

ROOT = Path(__file__).parents[2]


class Counter:
    """Something to host."""

    def __init__(self, start: int = 0, mark: str | None = None):
        if start < 0:
            raise UserError("start at 0 or above")
        self.n = start
        self.mark = mark

    def add(self, k: int) -> int:
        self.n += k
        return self.n

    def fail(self, error: Exception) -> None:
        raise error

    def lock(self):
        return threading.Lock()  # what cannot be pickled

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def leave(self, code: int) -> None:
        os._exit(code)

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        if self.mark:
            Path(self.mark).write_text("closed")


@pytest.fixture
def worker():
    worker = WorkerProcess(factory=Counter, timeout_s=30)
    worker.start()
    yield worker
    worker.close()


def gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            # a killed child of another parent stays a zombie until it is reaped: dead all the same
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_a_close_from_another_thread_cuts_a_call_short(worker):
    """As Ctrl-C does it: at once, with an error of ours in the thread that waits, and no process is left."""
    pid, raised = worker.pid, []

    def call():
        try:
            worker.call("sleep", 60)
        except BaseException as error:  # noqa: BLE001 - whatever it is
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.5)
    worker.close()
    assert gone(pid)
    thread.join(15)  # the call itself would be cut short after 30 s
    assert [type(error) for error in raised] == [InfraError]
    worker.close()
    with pytest.raises(InfraError, match="start it first"):
        worker.call("pid")


def test_a_close_between_the_answers_arrival_and_its_reading_is_an_infra_error(worker, monkeypatch):
    read = Connection._recv_bytes

    def closed(connection, *words):
        worker.close()
        return read(connection, *words)

    monkeypatch.setattr(Connection, "_recv_bytes", closed)
    with pytest.raises(InfraError, match="the worker process was closed"):
        worker.call("pid")


def test_many_closes_and_calls_at_once_raise_nothing_but_infra_errors():
    for _ in range(5):
        worker, odd = WorkerProcess(factory=Counter, timeout_s=30), []
        worker.start()
        pid = worker.pid

        def use(work, worker=worker, odd=odd):
            try:
                work(worker)
            except InfraError:
                pass
            except BaseException as error:  # noqa: BLE001 - whatever it is
                odd.append(error)

        works = [lambda worker: worker.call("sleep", 60), WorkerProcess.close, WorkerProcess.abort, WorkerProcess.close]
        threads = [threading.Thread(target=use, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert odd == [] and gone(pid)


def test_the_object_lives_in_another_process_and_keeps_its_state(worker):
    assert worker.call("add", 2) == 2
    assert worker.call("add", 3) == 5
    pid = worker.call("pid")
    assert pid == worker.pid != os.getpid()
    worker.start()
    assert worker.pid == pid, "start is a no-op while the child lives"


def test_an_interrupt_from_the_terminal_does_not_reach_the_child(worker):
    assert os.getsid(worker.pid) != os.getsid(0)


def in_a_daemon(answers) -> None:
    worker = WorkerProcess(factory=Counter)
    worker.start()
    answers.put(worker.call("add", 7))
    worker.close()


def test_it_works_inside_a_daemonic_process_as_launchers_make_them():
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    launcher = context.Process(target=in_a_daemon, args=(answers,), daemon=True)
    launcher.start()
    assert answers.get(timeout=30) == 7
    launcher.join()


def test_an_exception_becomes_infra_error_with_the_childs_traceback_and_a_fresh_child_follows(worker):
    with pytest.raises(InfraError, match=r"(?s)^ZeroDivisionError: boom.*in fail"):
        worker.call("fail", ZeroDivisionError("boom"))
    with pytest.raises(InfraError, match="start it first"):
        worker.call("add", 1)
    worker.start()
    assert worker.call("add", 1) == 1, "a new object"


@pytest.mark.parametrize("error", [UserError("yours"), TransientError("later"), InfraError("broken")])
def test_the_harness_own_errors_keep_their_type(worker, error):
    with pytest.raises(type(error), match=f"^{error}$"):
        worker.call("fail", error)


def test_a_users_error_does_not_cost_the_child(worker):
    pid = worker.pid
    with pytest.raises(UserError):
        worker.call("fail", UserError("yours"))
    assert worker.call("pid") == pid


def test_what_cannot_be_sent_is_an_error_and_not_a_hang(worker):
    with pytest.raises(InfraError, match="pickle"):
        worker.call("lock")


def test_a_worker_that_is_killed_or_exits_becomes_infra_error_and_is_replaced(worker):
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(InfraError, match=r"died \(exit code -9\)"):
        worker.call("add", 1)
    worker.start()
    with pytest.raises(InfraError, match=r"died \(exit code 3\)"):
        worker.call("leave", 3)
    worker.start()
    assert worker.call("add", 1) == 1


def test_a_call_that_takes_too_long_is_cut_short():
    worker = WorkerProcess(factory=Counter, timeout_s=5)
    worker.start()
    pid, worker.timeout_s = worker.pid, 0.2
    with pytest.raises(WorkerTimeout, match=r"within 0.2 s"):
        worker.call("sleep", 60)
    assert gone(pid)
    worker.timeout_s = 30
    worker.start()
    with pytest.raises(WorkerTimeout, match=r"within 0.1 s"):
        worker.call("sleep", 60, timeout_s=0.1)


def test_the_factorys_error_is_raised_by_start():
    worker = WorkerProcess(factory=partial(Counter, -1))
    with pytest.raises(UserError, match="start at 0"):
        worker.start()
    assert worker.pid is None


def test_close_lets_the_object_close_waits_and_is_idempotent(tmp_path):
    worker = WorkerProcess(factory=partial(Counter, mark=str(tmp_path / "mark")))
    worker.start()
    pid = worker.pid
    worker.close()
    assert (tmp_path / "mark").read_text() == "closed"
    assert gone(pid, within_s=0.2)
    worker.close()
    worker.kill()


@pytest.mark.parametrize("busy", [False, True])
def test_the_child_ends_when_its_parent_is_killed(tmp_path, busy):
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, threading, time\n"
        "from functools import partial\n"
        "from core.process import WorkerProcess\n"
        "from test_process import Counter\n"
        # no guard by __name__: the child does not run its parent's script
        f"worker = WorkerProcess(factory=partial(Counter, mark={str(tmp_path / 'mark')!r}))\n"
        "worker.start()\n"
        f"if {busy}:\n"
        "    threading.Thread(target=worker.call, args=('sleep', 600), daemon=True).start()\n"
        "    time.sleep(0.3)\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = forkserver.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=WITH_KITS)
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pid)
    assert (tmp_path / "mark").exists() is not busy, "an idle child still closes its object"


@pytest.fixture
def pool():
    made = WorkerPool(partial(WorkerProcess, factory=Counter, timeout_s=30), size=3)
    yield made
    made.close()


@pytest.mark.slow
def test_a_pool_grows_only_while_all_are_busy_and_a_call_that_hangs_or_dies_harms_no_other(pool):
    def one(number):
        with pool.lease() as worker:
            try:
                bad = {0: ("sleep", 60), 1: ("leave", 3)}
                return worker.call(*bad.get(number, ("pid",)), timeout_s=2)
            except InfraError as error:
                return error

    assert pool.pids() == []
    assert len({one(2) for _ in range(5)}) == len(pool.pids()) == 1
    with ThreadPoolExecutor(24) as threads:
        answers = list(threads.map(one, range(24)))
    assert [type(each) for each in answers[:2]] == [WorkerTimeout, InfraError]
    assert all(isinstance(pid, int) for pid in answers[2:]) and len(set(answers[2:])) <= 5  # two were replaced
    assert 1 <= len(pool.pids()) <= 3
    assert len({one(2) for _ in range(5)}) == 1  # it is kept


@pytest.mark.slow
def test_a_worker_of_a_pool_that_was_killed_while_idle_is_started_again_and_a_closed_pool_begins_anew(pool):
    with pool.lease() as worker:
        first = worker.call("pid")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: worker._process.poll() is not None)
    with pool.lease() as worker:
        second = worker.call("pid")
    assert second != first and pool.pids() == [second]
    pool.close()
    assert pool.pids() == [] and gone(second)
    with pool.lease() as worker:
        assert worker.call("pid") != second
    assert len(pool.pids()) == 1


def test_a_pool_whose_workers_cannot_start_says_why_each_time():
    pool = WorkerPool(partial(WorkerProcess, factory=partial(Counter, -1), timeout_s=30), size=1)
    for _ in range(2):
        with pytest.raises(UserError, match="start at 0"), pool.lease():
            pass
    assert pool.pids() == []
