"""core/file_lock.py between real processes: who is kept out, and that no lock outlives its holder."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress

import forkserver
import pytest
from conftest import REPO

from core.errors import StopRun
from core.file_lock import FileLock, SharedLock, try_lock
from core.memory.sqlite.store import SqliteStore

HOLD = """
import os, sys, time
from pathlib import Path
from core.file_lock import SharedLock, try_lock
kind, path = sys.argv[1], Path(sys.argv[2])
held = try_lock(path) if kind.endswith("file") else SharedLock(path, alone=kind == "alone")
assert held is not None
child = os.fork() if kind.startswith("forked") else None
if not child:
    print("held", flush=True)
if child == 0:
    time.sleep(60)
    os._exit(0)
sys.stdin.read()
"""


@contextmanager
def holder(kind, path):
    """Another process that holds the lock until its stdin is closed; of `forked` ones the child outlives it."""
    line = [sys.executable, "-c", HOLD, kind, str(path)]
    with forkserver.Popen(
        line, cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as other:
        try:
            assert other.stdout.readline() == b"held\n"
            yield other
        finally:
            with suppress(ProcessLookupError):  # its child is left
                os.killpg(other.pid, signal.SIGKILL)


def kill(process):
    process.kill()
    process.wait()


@pytest.mark.parametrize("kind", ["file", "forked file"])
def test_no_lock_outlives_a_killed_holder(tmp_path, kind):
    path = tmp_path / "lock"
    with holder(kind, path) as other:
        assert try_lock(path) is None
        kill(other)
        with closing(try_lock(path)):  # which is None, an error, while it is held
            assert try_lock(path) is None  # neither twice in this process


def test_a_lock_is_handed_on_to_who_waits(tmp_path):
    with holder("file", tmp_path / "lock") as other, closing(FileLock(tmp_path / "lock")) as lock:
        assert not lock.take(wait_s=0.05)
        threading.Timer(0.2, other.stdin.close).start()
        assert lock.take(wait_s=30)
        lock.release()
        assert lock.take(wait_s=None)


def test_a_holder_keeps_out_every_other_and_its_file_stays(tmp_path):
    for _ in range(2):
        with closing(try_lock(tmp_path / "lock")):
            assert try_lock(tmp_path / "lock") is None
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    (tmp_path / "lock").write_bytes(b"left by an earlier version")
    with closing(try_lock(tmp_path / "lock")):
        pass
    assert (tmp_path / "lock").read_bytes() == b"left by an earlier version"


def test_one_is_closed_twice_and_by_another_thread(tmp_path):
    locks = [try_lock(tmp_path / "lock"), SharedLock(tmp_path / "shared", alone=True)]
    for _ in range(2):
        other = threading.Thread(target=lambda: [lock.close() for lock in locks])
        other.start()
        other.join()
    try_lock(tmp_path / "lock").close()
    SharedLock(tmp_path / "shared", alone=True).close()


def test_many_share_a_lock_and_one_alone_keeps_out_all(tmp_path):
    path = tmp_path / "bank.open"
    with holder("shared", path) as other, closing(SharedLock(path, alone=False)) as here:
        for end in (lambda: kill(other), here.close):
            with pytest.raises(BlockingIOError):
                SharedLock(path, alone=True)
            end()
        SharedLock(path, alone=True).close()
    assert [each.name for each in tmp_path.iterdir()] == ["bank.open"]


@pytest.mark.parametrize("kind", ["alone", "forked alone", "shared", "forked shared"])
def test_no_shared_lock_outlives_a_killed_holder(tmp_path, kind):
    with holder(kind, tmp_path / "lock") as other:
        with pytest.raises(BlockingIOError):
            SharedLock(tmp_path / "lock", alone=True)
        kill(other)
        SharedLock(tmp_path / "lock", alone=True).close()


def test_who_shares_waits_for_the_one_that_is_alone(tmp_path):
    with holder("alone", tmp_path / "lock") as other:
        began = time.monotonic()
        threading.Timer(0.3, other.stdin.close).start()
        SharedLock(tmp_path / "lock", alone=False).close()
        assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("make", [FileLock, try_lock, lambda path: SharedLock(path, alone=False)])
def test_a_folder_that_is_missing_is_said_in_one_sentence(tmp_path, make):
    with pytest.raises(StopRun, match=r"missing cannot be written, where lock would be made: .*\.$"):
        make(tmp_path / "missing" / "lock")


def test_a_file_system_without_the_locks_of_sqlite_is_refused_and_not_waited_for(tmp_path, monkeypatch):
    def none_here(*_given):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.lockf", none_here)
    for make in (lambda: SharedLock(tmp_path / "lock", alone=False), lambda: SqliteStore(tmp_path / "bank.sqlite")):
        with pytest.raises(StopRun, match="cannot be locked: No locks available; if its file system has no locks"):
            make()
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    """The existence of a file is no lock, since it would outlive a killed holder."""

    def none_here(descriptor, *, blocking):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("filelock.lock_descriptor", none_here)
    with pytest.raises(StopRun, match="cannot be locked: Function not implemented"):
        try_lock(tmp_path / "lock")
