"""The connections of a bank in PostgreSQL: those that broke, those of a fork, too many readers, and vectors' format."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from memory_kit import item, record
from test_postgres import at_once, open_bank, url  # noqa: F401

from core.errors import StopRun, UserError
from core.memory.postgres import pool
from core.memory.postgres.pool import READERS
from core.memory.store.contract import Busy

PID = "SELECT pg_backend_pid()"


def read_at_once(store, n):
    """n reads that are under way together, so that as many connections are open; returns their processes."""
    meeting, found = threading.Barrier(n, timeout=30), []

    def read():
        with store.reading() as db:
            found.extend(db.rows(PID, ()))
            meeting.wait()

    at_once(n, read)
    return {pid for (pid,) in found}


def end_all(postgres, bank):
    """The server ends all sessions, as in a failover; returns once they are gone."""
    name = bank._store.rows("SELECT current_database()::text")[0][0]
    mine = f"FROM pg_stat_activity WHERE datname = '{name}' AND usename = 'bank_app'"
    postgres.admin("postgres", f"SELECT pg_terminate_backend(pid, 5000) {mine}")


def test_a_failover_between_two_calls_breaks_neither_reads_nor_writes(open_bank, postgres):  # noqa: F811
    bank = open_bank()
    bank.add(record("one", item(1)))
    before = read_at_once(bank._store, 6)
    end_all(postgres, bank)
    assert [bank._store.rows("SELECT 1") for _ in range(6)] == [[(1,)]] * 6
    assert not before & read_at_once(bank._store, 6)
    end_all(postgres, bank)
    bank.add(record("two", item(2)))
    assert bank.ids() == {"one", "two"}


def test_a_connection_that_breaks_within_a_change_breaks_the_change_alone(open_bank, postgres):  # noqa: F811
    bank = open_bank()
    bank.add(record("one", item(1)))
    with pytest.raises(StopRun, match="cannot be reached"), bank.change("broken") as change:
        change.fact("a", "1")
        end_all(postgres, bank)
        assert bank.fact("a")  # not by a new connection, which has no part in the change
    assert bank.fact("a") is None
    bank.add(record("two", item(2)))
    assert bank.ids() == {"one", "two"}


def test_a_forked_process_is_refused_and_the_bank_stays_open(open_bank):  # noqa: F811
    bank = open_bank()
    bank.add(record("one", item(1)))
    mine = bank._store.rows(PID)
    reading, writing = os.pipe()
    with bank._store._shared.lock:  # as another thread of the parent may hold it at the fork
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                for use in (lambda: bank._store.rows(PID), lambda: bank.add(record("two", item(2)))):
                    try:
                        use()
                    except UserError as error:
                        os.write(writing, f"{error}\n".encode())
                bank._store.close()
            finally:
                os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    said = os.read(reading, 10_000).decode().splitlines()
    os.close(reading)
    assert len(said) == 2 and all("before this process was forked" in line for line in said), said
    assert bank._store.rows(PID) == mine and bank.ids() == {"one"}


def test_too_many_readers_are_one_sentence(open_bank, monkeypatch):  # noqa: F811
    monkeypatch.setattr(pool, "READER_S", 0.1)
    bank = open_bank()
    bank.add(record("one", item(1)))
    end, held = threading.Event(), threading.Barrier(READERS + 1, timeout=30)

    def hold():
        with bank._store.reading():
            held.wait()
            end.wait(30)

    threads = [threading.Thread(target=hold) for _ in range(READERS)]
    for thread in threads:
        thread.start()
    held.wait()
    with pytest.raises(Busy, match=f"{READERS} others are reading the bank .* none has ended"):
        len(bank)
    end.set()
    for thread in threads:
        thread.join()
    assert len(bank) == 1


def test_no_borrower_of_a_connection_has_the_namespace_of_the_one_before(open_bank):  # noqa: F811
    ann = open_bank(namespace="ann")
    bob = ann.of("bob")
    ann.add(record("a", item(1)))
    bob.add(record("b", item(2)))
    seen = {"ann": set(), "bob": set()}

    def read(bank, name):
        for _ in range(20):
            with bank._store.of(name).reading() as db:
                seen[name] |= {row[0] for row in db.rows("SELECT namespace FROM records", ())}

    threads = [threading.Thread(target=read, args=(bank, name)) for bank, name in ((ann, "ann"), (bob, "bob")) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"ann": {"ann"}, "bob": {"bob"}}


def test_a_statement_that_the_server_times_out_is_one_sentence_and_frees_its_connection(open_bank, url):  # noqa: F811
    bank = open_bank(f"{url}&options=-cstatement_timeout%3D50ms")
    bank.add(record("one", item(1)))
    for _ in range(READERS + 1):  # more than there are connections
        with pytest.raises(StopRun, match="statement timeout") as caught:
            bank._store.rows("SELECT pg_sleep(5)")
        assert "\n" not in str(caught.value)
    assert len(bank) == 1


@pytest.mark.parametrize("numbers", [[0.1, -0.0, 3e38, 1e-45], list(range(384))])
def test_vectors_come_back_to_the_bit_by_statement_and_by_copy(open_bank, numbers):  # noqa: F811
    sent = np.array(numbers, dtype=np.float32).tobytes()
    bank = open_bank()
    with bank._store.unjournaled() as db:
        db.execute("CREATE TEMP TABLE v (x vector)")
        db.execute("INSERT INTO v VALUES ($1)", (sent,))
        db.copy("COPY v FROM STDIN WITH (FORMAT BINARY)", [(sent,), (None,)], {}, ("vector",))
        assert db.rows("SELECT x FROM v", ()) == [(sent,), (sent,), (None,)]
        assert db.rows("SELECT x::text FROM v LIMIT 1", ())[0][0].count(",") == len(numbers) - 1
