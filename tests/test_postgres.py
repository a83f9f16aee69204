"""What a bank in PostgreSQL promises beyond the bank's own tests: tenants, writers that die, moving, the graph."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from conftest import REPO, TOY, command, read_rows
from memory_kit import Compass, item, record

from core.errors import StopRun, UserError
from core.memory.__main__ import main
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.memory.postgres import search
from core.memory.postgres.setup import TENANTS
from core.memory.postgres.store import Postgres
from core.memory.store.bank_file import read_records
from core.memory.store.database import Busy
from core.memory.store.filter import Filter
from core.models.embedding import HashingEmbedder
from core.types import Lesson, MemoryRecord

ENV = {**os.environ, "PYTHONPATH": f"{REPO}:{REPO / 'tests'}"}


@pytest.fixture
def url(postgres):
    return postgres.new()


@pytest.fixture
def open_bank(url):
    banks = []

    def opened(path=url, embedder=None, **fields):
        banks.append(MemoryBank(path=path, embedder=embedder or Compass(), policy=Cosine(), **fields))
        return banks[-1]

    yield opened
    for bank in banks:
        bank.close()


def raw(url, namespace=None):
    """A client's own connection with the application's role."""
    import psycopg

    db = psycopg.connect(url, autocommit=True)
    if namespace is not None:
        db.execute("SELECT set_config('reasoningbank.namespace', %s, false)", (namespace,))
    return db


def filled(bank):
    """Something in every table that has tenants, in the bank's namespace."""
    bank.key = "item"
    bank.add(record("r", item(10), item(20), query="@30 open it"))
    bank.add(record("m", item(10), query="@40 close it", parents=("r",), provenance={"tasks": ["task r"]}))
    with bank.change("more") as change:
        change.link("m", "supersedes", "r")
        change.fact("key", "value")
        change.update("r", n_used=1)
    bank.jobs().put(f"job of {bank.namespace}", bank.namespace, {"what": "learn"})


def counts(db):
    return {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TENANTS}


def test_raw_sql_with_the_applications_role_reads_and_writes_one_namespace(open_bank, url):
    import psycopg

    ann, bob = open_bank(namespace="ann"), open_bank(namespace="bob")
    filled(ann)
    with raw(url, "bob") as db:
        assert set(counts(db).values()) == {0}
    with raw(url) as db:
        assert set(counts(db).values()) == {0}  # a session that says nothing
    with raw(url, "ann") as db:
        assert 0 not in counts(db).values()
    filled(bob)
    with raw(url, "bob") as db:
        assert {row[0] for row in db.execute("SELECT namespace FROM records")} == {"bob"}
        assert db.execute("DELETE FROM records").rowcount == 2
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute("INSERT INTO facts VALUES ('ann', 'k', 'v')")
    assert ann.ids() == {"r"} and bob.ids() == set()


def test_a_role_that_is_bound_to_a_tenant_sees_no_other_whatever_it_says(open_bank, postgres, url):
    filled(open_bank(namespace="ann"))
    filled(open_bank(namespace="bob"))
    with raw(url) as db:
        db.execute("SELECT bind_role('bob_only', 'bob'), bind_role('bob_only', 'rob')")
    database = urlsplit(url).path[1:]
    tables = ", ".join((*TENANTS, "meta", "journal"))
    postgres.admin(
        database,
        "DROP ROLE IF EXISTS bob_only",
        "CREATE ROLE bob_only LOGIN",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO bob_only",
        "GRANT SELECT ON members TO bob_only",
    )
    his = url.replace("bank_app", "bob_only")
    for said in ("ann", "*", "bob"):
        with raw(his, said) as db:
            seen = {row[0] for table in TENANTS for row in db.execute(f"SELECT namespace FROM {table}")}
            assert seen == ({"bob"} if said != "ann" else set())
    bank = open_bank(his, namespace="bob")
    assert bank.add(record("new", item(50))) and bank.retrieve("@30", 5) and len(bank) == 3
    postgres.admin(database, "DROP OWNED BY bob_only", "DROP ROLE bob_only")


def test_the_same_id_in_two_tenants(open_bank):
    ann, bob = open_bank(namespace="ann"), open_bank(namespace="bob")
    assert ann.add(record("same", item(10), query="@10 of ann")) and bob.add(
        record("same", item(20), query="@20 of bob")
    )
    assert not ann.add(record("same", item(30)))
    assert [bank.retrieve("@15")[0].record.original_query for bank in (ann, bob)] == ["@10 of ann", "@20 of bob"]
    assert ann.forget(id="same") == ["same"] and bob.get("same").original_query == "@20 of bob"


def test_a_nul_comes_back_as_it_went_in(open_bank, tmp_path):
    odd = "a\0b \U000f0000 c \U000f00000 d"
    given = record("r\0", Lesson(title=odd, description=odd, content=odd), query=f"@10 {odd}", task_id=odd, tags=(odd,))
    bank = open_bank(namespace="n\0s")
    assert bank.add(given) and not bank.add(given)
    assert bank.add_many([given, *(record(f"{n}\0", item(n), query=f"@{n} \0") for n in range(30))]) == 30  # copied
    found = bank.get("r\0")
    assert (found.original_query, found.items, found.task_id, found.tags) == (
        given.original_query,
        given.items,
        odd,
        (odd,),
    )
    assert bank.get("7\0").original_query == "@7 \0" and bank.retrieve("@10", 1, exclude_task=odd)[0].record.id != "r\0"
    assert [hit.record.id for hit in bank.lexical("c", 1)] == ["r\0"] and bank.titles()[0][0] == "r\0"


def test_a_bank_moves_between_both_databases(url, tmp_path):
    file, back = str(tmp_path / "a.sqlite"), str(tmp_path / "b.sqlite")
    first = MemoryBank(path=file, embedder=HashingEmbedder(), policy=Cosine())
    for bank in (first.of("ann"), first.of("bob")):
        bank.add_many(
            [record(f"r{n}", item(n), query=f"@{n} {bank.namespace}", tick=n, last_used=n) for n in range(40)]
        )
        with bank.change("more") as change:
            change.update("r3", status="archived", confidence=0.5, last_used=1e9 + 0.125)
            change.link("r4", "refines", "r3", "note")
    first.close()
    for source, target, name in ((file, url, "1"), (url, back, "2")):
        assert main(["export", source, str(tmp_path / name)]) == 0
        assert main(["import", target, str(tmp_path / name), "--embedder", "hashing-256"]) == 0
    assert main(["export", back, str(tmp_path / "3")]) == 0
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes() == (tmp_path / "3").read_bytes()


def test_searches_find_what_they_find_in_sqlite_with_the_same_scores(open_bank, tmp_path):
    rng, words = random.Random(3), "open the door box key lamp blue red é naïve 日本 x2".split()
    made = [
        MemoryRecord(
            **vars(
                record(
                    f"r{n}",
                    item(0, words=" ".join(rng.choices(words, k=6))),
                    outcome=rng.choice(("success", "failure")),
                )
            )
            | {
                "original_query": " ".join(rng.choices(words, k=8)),
                "domain": rng.choice("ab"),
                "tags": (rng.choice("xy"),),
            }
        )
        for n in range(120)
    ]
    both = [open_bank(str(tmp_path / "b.sqlite"), HashingEmbedder()), open_bank(embedder=HashingEmbedder())]
    for bank in both:
        bank.add_many(made)
    filters = [None, Filter(domain="a"), Filter(tags=("x",), outcome="success"), Filter(min_confidence=0.65)]
    for where in filters:
        for _ in range(5):
            query = " ".join(rng.choices(words, k=3))
            for ask in ("nearest", "lexical"):
                sqlite, postgres = (
                    [(hit.record.id, hit.score) for hit in getattr(bank, ask)(query, 7, where=where)] for bank in both
                )
                if ask == "nearest":
                    assert postgres == sqlite and sqlite
                else:
                    assert [score for _, score in postgres] == pytest.approx([score for _, score in sqlite], abs=1e-8)


def test_the_graph_finds_nearly_all_and_a_small_tenant_is_searched_exactly(open_bank, url, monkeypatch):
    monkeypatch.setattr(search, "GRAPH_FROM", 1000)
    rows = np.random.default_rng(1).standard_normal((3000, 32), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    class Rows:
        name = "rows"

        def embed(self, texts):
            return rows[[int(text) for text in texts]]

    bank = open_bank(embedder=Rows())
    made = [record(str(n), item(1), query=str(n), namespace="big" if n % 20 else "small") for n in range(3000)]
    bank.add_many(made, rows, keep_namespaces=True)
    bank.close()
    bank = open_bank(embedder=Rows(), index="hnsw", store=Postgres(exact_below=500))
    assert bank._store.rows("SELECT indisvalid FROM pg_index WHERE indexrelid = 'vectors_graph'::regclass") == [(True,)]
    in_graph = {name: bank._search._in_graph(bank._store.of(name), False) for name in ("big", "small", None)}
    assert in_graph == {"big": True, "small": False, None: True}
    for name, least in (("big", 0.97), ("small", 1.0)):
        mine, found = [n for n in range(3000) if made[n].namespace == name], 0
        for n in mine[:40]:
            exact = [mine[place] for place in np.argsort(-(rows[mine] @ rows[n]), kind="stable")[:5]]
            hits = bank.of(name).nearest(str(n), 5, exclude_task=None)
            assert {hit.record.namespace for hit in hits} == {name} and len(hits) == 5
            assert hits[0].record.id == str(n) and hits[0].score == pytest.approx(1, abs=1e-5)
            found += len({int(hit.record.id) for hit in hits} & set(exact))
        assert found / 200 >= least
    assert bank.add_many([record("new", item(1), query="7", namespace="big")], keep_namespaces=True) == 1
    assert {hit.record.id for hit in bank.of("big").nearest("7", 2)} == {"7", "new"}


def test_ids_and_journal_entries_are_in_the_order_of_commits(open_bank):
    """Who reads up to an id misses nothing below it, whatever commits later."""
    n, banks, seen, missed = 40, [open_bank(namespace=str(n)) for n in range(4)], set(), []

    def write(bank):
        for number in range(n):
            bank.add(record(f"{number}", item(number)))

    threads = [threading.Thread(target=write, args=(bank,)) for bank in banks]
    reader = open_bank()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or len(seen) < 4 * n:
        now = {row[0] for row in reader._store.of(None).rows("SELECT rowid FROM records")}
        missed += [rowid for rowid in now - seen if rowid < max(seen, default=0)]
        seen = now
    assert missed == []
    assert [entry["seq"] for entry in reader.journal()] == list(range(1, 4 * n + 1))


WRITER = """
import sys
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from memory_kit import Compass, item, record
url, name, log = sys.argv[1:]
bank = MemoryBank(path=url, embedder=Compass(), policy=Cosine())
with open(log, "ab", buffering=0) as told:
    for n in range(60):
        bank.add(record(f"{name} {n}", item(n)))  # again after a kill: known already, or not
        told.write(f"{name} {n}\\n".encode())
"""


def test_what_was_acknowledged_to_writers_that_are_killed_is_there_once(open_bank, url, tmp_path):
    rng, running, kills = random.Random(1), {}, 0

    def start(name):
        log = tmp_path / name
        return subprocess.Popen([sys.executable, "-c", WRITER, url, name, str(log)], env=ENV)

    names = [f"w{n}" for n in range(8)]
    running = {name: start(name) for name in names}
    while running:
        for name, process in list(running.items()):
            if process.poll() is not None and process.returncode == 0:
                del running[name]
            elif kills < 12 and (tmp_path / name).exists() and rng.random() < 0.1:
                process.send_signal(signal.SIGKILL)
                kills += process.wait() == -signal.SIGKILL
                running[name] = start(name)
        time.sleep(0.02)
    told = {line for name in names for line in (tmp_path / name).read_text().splitlines()}
    bank = open_bank()
    ids = [one.id for one in bank.records()]
    assert kills >= 8 and told <= set(ids) and len(set(ids)) == len(ids) == 8 * 60
    assert [entry["seq"] for entry in bank.journal()] == list(range(1, 8 * 60 + 1))


def test_what_was_acknowledged_outlives_the_server():
    from scripts.bench.embedded_postgres import Server, missing

    if reason := missing():
        pytest.skip(reason)
    server = Server(durable=True)
    try:
        bank = MemoryBank(path=server.new(), embedder=Compass(), policy=Cosine())
        for n in range(20):
            bank.add(record(str(n), item(n)))
        server.kill()
        with pytest.raises(StopRun, match="cannot be reached"):
            bank.add(record("lost", item(1)))
        with pytest.raises(StopRun, match="cannot be reached"):
            bank.retrieve("@1")
        server.start()
        assert bank.ids() == {str(n) for n in range(20)}  # with a new connection
        assert bank.add(record("again", item(1))) and len(bank) == 21
        bank.close()
    finally:
        server.close()


def test_a_run_that_is_killed_loses_and_repeats_nothing(postgres, tmp_path):
    words = (*TOY, "limit=12", "llm.delay_s=0.01", "memory=consolidated_offline", "memory.consolidate.every=4")

    def start(folder, url):
        line = command(*words, f"run_dir={folder}", f"memory.path={url}")
        return subprocess.Popen(line, stdout=-3, stderr=-3, env=ENV, cwd=tmp_path)

    urls = [postgres.new(), postgres.new()]
    assert start(tmp_path / "whole", urls[0]).wait(120) == 0
    path, killed, rng = tmp_path / "killed/episodes.jsonl", 0, random.Random(2)
    while killed < 3:
        had = path.stat().st_size if path.exists() else 0
        process, until = start(tmp_path / "killed", urls[1]), had + rng.randint(1, 4000)
        while process.poll() is None and (path.stat().st_size if path.exists() else 0) < until:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        assert process.returncode != 0 or killed >= 1
        if process.returncode == 0:
            break
    assert start(tmp_path / "killed", urls[1]).wait(120) == 0
    assert read_rows(tmp_path / "killed") == read_rows(tmp_path / "whole")

    def kept(url):
        plain = {"created_at": "", "provenance": None}
        return [vars(one) | plain for one in read_records(url, "default")]

    assert kept(urls[0]) == kept(urls[1]) and len(kept(urls[0])) >= 12


def test_the_harness_and_the_mcp_server_share_a_bank(url, tmp_path):
    def tool(*words):
        line = [sys.executable, "-m", "mcp_server", *words, "--bank", url, "--embedder", "hashing-256"]
        done = subprocess.run(line, capture_output=True, text=True, env=ENV, cwd=REPO, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pytest.importorskip("mcp")
    words = ("limit=10", "llm.delay_s=0.02", f"run_dir={tmp_path}/run", f"memory.path={url}")
    running = subprocess.Popen(command(*TOY, *words), stdout=-3, env=ENV)
    tool("save_lesson", "--query", "fix the login", "--title", "Wait", "--content", "Wait for the page.")
    assert running.wait(120) == 0
    assert "Wait for the page" in tool("retrieve_memory", "--query", "fix the login")
    kept = read_records(url, "default")
    assert {one.id for one in kept} >= {r["id"] for row in read_rows(tmp_path / "run") for r in row["records"]}
    assert sum(one.label_source == "client" for one in kept) == 1 and len({one.id for one in kept}) == len(kept)


def test_what_is_forgotten_is_in_no_table_and_the_command_says_what_it_cannot_promise(open_bank, url, capsys):
    filled(open_bank())
    assert main(["forget", url, "--id", "r"]) == 0
    assert "(WAL), backups" in capsys.readouterr().out
    with raw(url, "*") as db:
        left = "".join(str(db.execute(f"SELECT * FROM {table}").fetchall()) for table in TENANTS)
        assert "open it" not in left and "close it" not in left
        assert db.execute("SELECT count(*) FROM vectors").fetchone() == (0,)


def test_others_that_write_for_too_long_are_a_busy(open_bank):
    one, other = open_bank(), open_bank()
    with one.change("long") as change:
        change.fact("a", "1")
        with pytest.raises(Busy, match="others are writing"), other.change("short", 0.1):
            pass
        assert other.fact("a") is None
    with other.change("then", 0.1) as change:
        change.fact("b", "2")
    assert (one.fact("a"), one.fact("b")) == ("1", "2")


def test_bad_urls_are_one_sentence(url, postgres, tmp_path, caplog):
    def opened(path, **fields):
        return MemoryBank(path=path, embedder=Compass(), policy=Cosine(), **fields)

    with pytest.raises(UserError, match="PGPASSWORD") as caught:
        opened("postgresql://ann:geheim@localhost/bank")
    assert "geheim" not in str(caught.value)
    with pytest.raises(StopRun, match="cannot be reached"):
        opened(f"postgresql://ann@/bank?host={tmp_path}")
    with pytest.raises(UserError, match="no URL"):
        opened(str(tmp_path / "bank.sqlite"), store=Postgres())
    postgres.admin("postgres", "CREATE DATABASE bare OWNER bank_app")
    with pytest.raises(UserError, match="CREATE EXTENSION vector"):
        opened(postgres.url("bare"))
    postgres.admin("bare", "CREATE EXTENSION vector")
    with pytest.raises(UserError, match="holds no bank"):
        opened(postgres.url("bare"), read_only=True)
    with pytest.raises(UserError, match=r"namespace=\*"):
        opened(url, namespace="*")
    opened(url.replace("bank_app", "postgres")).close()
    assert "above row-level security" in caplog.text
    assert not Path("postgresql:").exists()
