"""What a bank in PostgreSQL promises beyond the bank's own tests: tenants, writers that die, moving, the graph."""

from __future__ import annotations

import itertools
import lzma
import random
import sys
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import forkserver
import numpy as np
import pytest
from conftest import REPO, TOY, WITH_KITS, command, read_rows, wait_for
from memory_kit import Compass, item, record

from core.errors import StopRun, UserError
from core.memory.__main__ import main
from core.memory.bank import MemoryBank
from core.memory.consolidation.consolidator import Consolidator
from core.memory.filter import Filter
from core.memory.open import read_records
from core.memory.policies.cosine import Cosine
from core.memory.postgres import connection, search
from core.memory.postgres.pool import KEPT_IDLE, READERS
from core.memory.postgres.setup import TENANTS
from core.memory.postgres.store import Postgres
from core.memory.records import EpisodeFeedback
from core.models.embedding import Embedder, HashingEmbedder
from core.types import Lesson, Usage


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


def filled(bank, query="@30 open it"):
    """Something in every table that has tenants, in the bank's namespace."""
    bank.add(record("r", item(10), item(20), query=query))
    bank.add(record("m", item(10), query="@40 close it", parents=("r",), provenance={"tasks": ["task r"]}))
    with bank.change("more") as change:
        change.link("m", "supersedes", "r")
        change.fact("key", "value")
        change.update("r", n_used=1, status="archived")
    bank.jobs().put(f"job of {bank.namespace}", bank.namespace, {"what": "learn"})


def counts(db):
    return {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TENANTS}


@contextmanager
def bound_role(postgres, url, tenant):
    """The URL of a role that is bound to a tenant, with the rights that it needs."""
    database, name = urlsplit(url).path[1:], f"{tenant}_only"
    with raw(url) as db:
        db.execute(f"SELECT bind_role('{name}', '{tenant}')")
    tables = ", ".join((*TENANTS, "meta", "journal"))
    postgres.admin(
        database,
        f"CREATE ROLE {name} LOGIN",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {name}",
        f"GRANT SELECT ON members TO {name}",
    )
    try:
        yield url.replace("bank_app", name)
    finally:
        postgres.admin(database, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def at_once(n, act):
    """Call a function in n threads at the same time."""
    threads = [threading.Thread(target=act) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


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


def test_a_role_that_is_bound_to_a_tenant_sees_no_other_whatever_it_says(open_bank, postgres, url, capsys):
    ann = open_bank(namespace="ann")
    filled(ann)
    filled(open_bank(namespace="bob"))
    with bound_role(postgres, url, "bob") as his:
        for said in ("ann", "*", "bob"):
            with raw(his, said) as db:
                seen = {row[0] for table in TENANTS for row in db.execute(f"SELECT namespace FROM {table}")}
                assert seen == ({"bob"} if said != "ann" else set())
        bank = open_bank(his, namespace="bob")
        assert bank.add(record("new", item(50))) and bank.retrieve("@30", 5) and len(bank) == 3

        # He sees no lessons of others, so it is not for him to say which keys theirs have.
        vectors = "SELECT origin, kind, place, vector FROM keys ORDER BY 1, 2, 3"
        were = ann._store.rows(vectors), ann._store.meta("kinds")
        mine = open_bank(his, namespace="bob", key="joined")
        assert mine._store.rows("SELECT DISTINCT kind FROM keys ORDER BY 1") == [("joined",), ("query",)]
        assert main(["reembed", his, "--key", "joined"]) == 2
        assert "the role sees only tenants that it is bound to" in capsys.readouterr().err
        assert (ann._store.rows(vectors), ann._store.meta("kinds")) == were


def test_a_role_that_may_act_as_the_owner_is_not_bound_and_one_that_was_is_warned_of(open_bank, postgres, url, caplog):
    import psycopg

    open_bank()
    database = urlsplit(url).path[1:]
    made = ("bank_app", "bank_member", "bank_super", "bank_guest")
    postgres.admin(
        database,
        *(f"DROP ROLE IF EXISTS {role}" for role in reversed(made[1:])),
        "CREATE ROLE bank_member LOGIN NOINHERIT",
        "GRANT bank_app TO bank_member",
        "CREATE ROLE bank_super LOGIN BYPASSRLS",
        "CREATE ROLE bank_guest LOGIN NOINHERIT",
        "GRANT bank_super TO bank_guest",  # which may SET ROLE bank_super
    )
    for role in made:
        with raw(url) as db, pytest.raises(psycopg.errors.RaiseException, match="would protect nothing"):
            db.execute(f"SELECT bind_role('{role}', 'bob')")
    with raw(url) as db:
        assert db.execute("SELECT count(*) FROM members").fetchone() == (0,)
        db.execute("INSERT INTO members VALUES ('bank_app', 'bob')")  # as an earlier version let it be
    open_bank(namespace="bob")
    assert "bound to a tenant, which protects nothing" in caplog.text
    postgres.admin(database, *(f"DROP ROLE {role}" for role in reversed(made[1:])))


def test_a_bound_role_learns_by_no_id_what_another_tenant_has_sent_or_forgotten(open_bank, postgres, url):
    ann = open_bank(namespace="ann")
    jobs = ann.jobs()
    jobs.put("the id", "ann", {"what": "hers"})
    ann.add(record("gone", item(10)))
    assert ann.history.forget(id="gone") == ["gone"]
    with bound_role(postgres, url, "bob") as his, raw(his, "bob") as db:
        row = "('the id', 'bob', 'failed', '{\"what\": \"his\"}', '{}', 0, '', '')"
        assert db.execute(f"INSERT INTO jobs VALUES {row}").rowcount == 1
        seen = [str(row) for table in (*TENANTS, "meta", "journal") for row in db.execute(f"SELECT * FROM {table}")]
    assert not any("gone" in row or "sha256" in row for row in seen)
    assert [jobs.get("the id", name).payload["what"] for name in ("ann", "bob")] == ["hers", "his"]
    assert jobs.lead()
    jobs.end(jobs.next().id, "completed", {"n": 1}, namespace="ann")
    jobs.leave()
    assert [jobs.get("the id", name).state for name in ("ann", "bob")] == ["completed", "failed"]
    assert list(ann.history.forgotten()) == ["gone"]


def test_a_nul_comes_back_as_it_went_in(open_bank):
    odd = "a\0b \U000f0000 c \U000f00000 d"
    given = record("r\0", Lesson(title=odd, description=odd, content=odd), query=f"@10 {odd}", task_id=odd, tags=(odd,))
    bank = open_bank(namespace="n\0s")
    assert bank.add(given) and not bank.add(given)
    assert bank.add_many([given, *(record(f"{n}\0", item(n), query=f"@{n} \0") for n in range(30))]) == 30  # copied
    assert bank.get("r\0").items == given.items and bank.get("7\0").original_query == "@7 \0"
    assert bank.retrieve("@10", 1, exclude_task=odd)[0].record.id != "r\0"
    assert [hit.record.id for hit in bank.lexical("c", 1)] == ["r\0"] and bank.titles()[0][0] == "r\0"


def test_searches_find_what_they_find_in_sqlite_with_the_same_scores(open_bank, tmp_path):
    rng, words = random.Random(3), "open the door box key lamp blue red é naïve 日本 x2".split()
    made = [
        replace(
            record(f"r{n}", item(0, words=" ".join(rng.choices(words, k=6)))),
            outcome=rng.choice(("success", "failure")),
            original_query=" ".join(rng.choices(words, k=8)),
            domain=rng.choice("ab"),
            tags=(rng.choice("xy"),),
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

    class Rows(Embedder):
        name = "rows"

        def embed(self, texts):
            return rows[[int(text) for text in texts]]

    bank = open_bank(embedder=Rows())
    made = [record(str(n), item(1), query=str(n), namespace="big" if n % 20 else "small") for n in range(3000)]
    made = [replace(one, outcome="failure" if n % 400 == 1 else "success") for n, one in enumerate(made)]
    bank.add_many(made, rows, keep_namespaces=True)
    bank.close()
    bank = open_bank(embedder=Rows(), index="hnsw", store=Postgres(exact_below=500))
    assert bank._store.rows("SELECT indisvalid FROM pg_index WHERE indexrelid = 'keys_query_graph'::regclass") == [
        (True,)
    ]
    in_graph = {name: bank._search._in_graph(bank._store.of(name), "query") for name in ("big", "small", None)}
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
    with bank._store.of("big").reading() as db:  # the plan was made once, and walks the graph
        plans = "SELECT name FROM pg_prepared_statements WHERE generic_plans > 20 AND statement LIKE '%halfvec%'"
        [(name,)] = db.rows(plans, ())
        db.script(f"BEGIN; {connection._IN_ITS_ORDER}")
        plan = db.rows(f"EXPLAIN EXECUTE {name}({', '.join(['NULL'] * 4)})", ())
        db.script("ROLLBACK")
        assert any("Index Scan using keys_query_graph" in line for (line,) in plan)
    with bank.of("big").change("a search within it"):
        assert bank.of("big").nearest("7", 1)
        settings = "SELECT current_setting('enable_sort'), current_setting('plan_cache_mode')"
        assert bank._store.of("big").rows(settings) == [("on", "auto")]
    # A filter that few pass: the walk through the graph ends before it has met them, and the search is made exactly.
    short = open_bank(f"{url}&options=-c%20hnsw.max_scan_tuples%3D60", embedder=Rows(), index="hnsw", store=bank.store)
    where, calls, real = Filter(namespace="big", outcome="failure"), [], short._search._found
    monkeypatch.setattr(short._search, "_found", lambda *words: calls.append(words[6]) or real(*words))
    few = [n for n in range(3000) if made[n].outcome == "failure" and n % 20]
    for n in few[:5]:
        assert {int(hit.record.id) for hit in short.nearest(str(n), 5, where=where)} == {
            few[place] for place in np.argsort(-(rows[few] @ rows[n]), kind="stable")[:5]
        }
    assert calls[:2] == [True, False]


def test_what_another_process_adds_of_the_same_task_just_before_a_search_is_not_retrieved(open_bank, monkeypatch):
    bank, other = open_bank(key="item"), open_bank(key="item")
    bank.add(record("one", item(1), query="@1"))
    real = bank._search._found

    def beside(*words):
        other.add(record("mine", item(2), query="@2"))
        other.add(record("merged", item(2), query="@2", parents=("mine",), provenance={"tasks": ["task mine"]}))
        return real(*words)

    monkeypatch.setattr(bank._search, "_found", beside)
    assert [hit.record.id for hit in bank.nearest("@2", 9, exclude_task="task mine")] == ["one"]
    assert {hit.record.id for hit in bank.nearest("@2", 9)} == {"one", "mine", "merged"}


def test_a_lesson_that_is_sent_together_with_its_commit_is_noted_once_and_only_if_it_is_new(open_bank):
    bank, other = open_bank(namespace="a"), open_bank(namespace="b")
    assert bank.add(record("0", item(0)))  # the first of a bank is sent by itself
    assert bank.add(record("1", item(1)))
    assert not bank.add(record("1", item(1)))
    assert other.add(record("1", item(2)))  # another tenant's
    kept = replace(record("2", item(3)), namespace="c")
    assert bank.add_many([kept], keep_namespaces=True) == 1
    assert bank.add_many([kept], keep_namespaces=True) == 0
    assert bank.add_many([record("3\0", item(4), status="archived")]) == 1
    assert [entry["seq"] for entry in bank.history.journal()] == [1, 2, 3, 4, 5]
    assert [len(entry["undo"]) for entry in bank.history.journal()] == [1, 1, 1, 1, 1]
    rows = bank._store.of(None).rows("SELECT namespace, id FROM records ORDER BY rowid")
    assert rows == [("a", "0"), ("a", "1"), ("b", "1"), ("c", "2"), ("a", "3\0")]
    assert bank._store.rows("SELECT count(*) FROM records") == [(3,)]  # it sees its own tenant's again
    assert bank.history.rollback(1) == 2 and [one.id for one in bank.recent(9)] == ["0"]
    assert len(other.recent(9)) == 1
    vectors = "SELECT r.namespace, r.id, k.namespace FROM keys k LEFT JOIN records r ON key_row = origin ORDER BY 1, 2"
    known = [("a", "0", "a"), ("b", "1", "b"), ("c", "2", "c")]
    assert bank._store.of(None).rows(vectors) == [*known, (None, None, "a"), (None, None, "a")]


def test_vectors_are_in_the_graph_before_the_turn_to_write_comes(open_bank, url):
    """What takes longest of an addition keeps nobody waiting."""
    other = open_bank(key="joined")
    bank = open_bank()
    bank.add(record("0", query="@10 first"))
    db, waiting = raw(url), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    thread = threading.Thread(target=other.add, args=(record("1", item(1), query="@20 second"),))
    with bank._store.unjournaled() as held:
        held.execute("SELECT 1")
        thread.start()
        wait_for(lambda: db.execute(waiting).fetchone()[0] == 1)
        assert db.execute("SELECT last_value FROM key_rows").fetchone() == (2,)
    thread.join()
    assert [hit.record.id for hit in bank.retrieve("@20", 1)] == ["1"]
    kept = "SELECT r.id, k.place FROM keys k LEFT JOIN records r ON r.key_row = k.origin WHERE place >= 0 ORDER BY 2"
    before = bank._store.of(None).rows(kept)
    assert {id for id, _ in before} == {"1"}
    assert not other.add(record("1", item(1)))  # nor does what is there already leave any
    assert bank._store.of(None).rows(kept) == before


def test_a_record_that_is_taken_out_and_comes_back_has_its_vector_again(open_bank):
    bank = open_bank()
    for n in range(3):
        bank.add(record(str(n), item(n), query=f"@{40 * n} query"))
    with bank.change("out") as change:
        change.remove("1")
    bank.add(record("1", item(1), query="@200 another"))  # of the same id
    assert [hit.record.original_query for hit in bank.retrieve("@40", 3)][-1] == "@200 another"
    embedded = list(bank.embedder.texts)
    assert bank.history.rollback(3) == 2
    assert bank.retrieve("@40", 1)[0].record.original_query == "@40 query"
    assert bank.embedder.texts == [*embedded, "@40"]


def test_a_bank_of_0_1_0_is_brought_up_to_date(postgres, url):
    """tests/data/postgres_0_1_0.sql.xz: pg_dump's of a bank with a merge and with a duplicate without its vectors."""
    dump = lzma.decompress((REPO / "tests" / "data" / "postgres_0_1_0.sql.xz").read_bytes()).decode()
    postgres.admin("postgres", "CREATE DATABASE earlier OWNER bank_app")
    postgres.admin("earlier", "CREATE EXTENSION vector", "GRANT ALL ON SCHEMA public TO bank_app")
    earlier = postgres.url("earlier")
    with raw(earlier) as db:
        db.execute(dump)
        db.execute("UPDATE public.journal SET reason = 'forget; x sha256:ab; y sha256:cd' WHERE seq = 1")
    with pytest.raises(UserError, match="older version"):
        MemoryBank(path=earlier, embedder=Compass(), policy=Cosine(), read_only=True)
    opened = []
    at_once(3, lambda: opened.append(Postgres().open(earlier)))
    for store in opened:
        store.close()
    assert len(opened) == 3
    bank = MemoryBank(path=earlier, embedder=Compass(), policy=Cosine())
    fresh = MemoryBank(path=url, embedder=Compass(), policy=Cosine())
    for made in (
        "SELECT table_name, column_name, is_nullable FROM information_schema.columns WHERE table_schema = 'public'",
        "SELECT indexname FROM pg_indexes WHERE schemaname = 'public'",
        "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal",
        "SELECT proname, regexp_replace(prosrc, '--[^\n]*', '', 'g') FROM pg_proc "  # but for its comments
        "JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = 'public'",
        "SELECT value FROM meta WHERE key = 'schema'",
    ):
        assert sorted(bank._store.rows(made)) == sorted(fresh._store.rows(made)), made
    assert bank.embedder.texts[0] == "@90 d"  # it had lost its vector
    asked = ("@0 a", "@30 b", "@60 c", "@90 d", "@200 m")
    best = {query: (hit.record.id, hit.score) for query in asked for hit in bank.retrieve(query, 1)}
    assert best == dict(zip(asked, [("a", 1.0), ("m", 1.0), ("m", 1.0), ("a", 1.0), ("m", 1.0)]))
    assert bank.retrieve("@60 c", 1, exclude_task="task c")[0].record.id == "a"
    assert [(hit.record.id, hit.score) for hit in bank.nearest("@70", 1, key="item")] == [("a", 1.0)]
    assert bank._store.rows("SELECT reason FROM journal WHERE seq = 1") == [("forget",)]  # all tenants read it
    assert bank.jobs().get("job").payload == {"what": "learn"}
    assert bank.add(record("e", item(60), query="@60 e"))
    assert bank.history.rollback(4) == 6
    assert [bank.retrieve(query, 1)[0].record.id for query in asked[:4]] == list("abcd")
    for tag, id in (("GRÖSSE", "a"), ("Machine-Learning", "c")):
        assert [hit.record.id for hit in bank.nearest("@10", 9, where=Filter(tags=(tag,)))] == [id]
        assert [hit.record.id for hit in bank.lexical("look", 9, where=Filter(tags=(tag,)))] == [id]
    assert bank.history.forget(id="c") == ["c", "m"]
    for one in (bank, fresh):
        one.close()


def test_a_lesson_that_the_server_refuses_leaves_nothing_of_its_change(open_bank):
    bank = open_bank()
    bank.add(record("0", item(0)))
    with pytest.raises(StopRun, match="dimensions"), bank.change("broken") as change:
        change.update("0", n_used=7)
        change.put(record("1", item(1)), [("query", -1, b"\0" * 4 * 20_000)])  # pgvector takes at most 16 000 numbers
    assert bank.get("0").n_used == 0 and bank.get("1") is None
    assert bank.add(record("1", item(1))) and len(bank.history.journal()) == 2


def test_the_harness_and_the_mcp_server_share_a_bank(url, tmp_path):
    def tool(*words):
        line = [sys.executable, "-m", "mcp_server", *words, "--bank", url, "--embedder", "hashing-256"]
        done = forkserver.run(line, capture_output=True, text=True, env=WITH_KITS, cwd=REPO, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pytest.importorskip("mcp")
    words = ("limit=10", "llm.delay_s=0.02", f"run_dir={tmp_path}/run", f"memory.path={url}")
    running = forkserver.Popen(command(*TOY, *words), stdout=-3, env=WITH_KITS)
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
        assert db.execute("SELECT count(*) FROM keys").fetchone() == (0,)


def test_a_schema_has_a_bank_of_its_own_beside_that_of_public(open_bank, postgres, url):
    one = open_bank()
    one.add(record("of public", item(1)))
    postgres.admin(url.partition("?")[0].rpartition("/")[2], "CREATE SCHEMA second AUTHORIZATION bank_app")
    other = open_bank(f"{url}&options=-csearch_path%3Dsecond,public")
    assert len(other) == 0 and other.add(record("of second", item(1)))
    assert (one.ids(), other.ids()) == ({"of public"}, {"of second"})
    assert [hit.record.id for hit in other.retrieve("@1")] == ["of second"]


def test_a_statement_that_fails_breaks_no_later_one_and_few_connections_stay_open(open_bank):
    import psycopg

    bank = open_bank()
    bank.add(record("one", item(1)))
    for _ in range(3):
        with pytest.raises(psycopg.Error), bank._store.reading() as db:
            db.rows_by_graph("SELECT 1 / (SELECT 0)", ())
        assert [hit.record.id for hit in bank.retrieve("@1")] == ["one"]
    meeting = threading.Barrier(12, timeout=30)

    def read():
        with bank._store.reading() as db:
            db.rows("SELECT 1", ())
            meeting.wait()

    at_once(12, read)
    assert 1 <= len(bank._store._shared._idle) <= KEPT_IDLE


def test_however_many_threads_read_at_once_the_connections_are_bounded(open_bank, monkeypatch):
    bank = open_bank()
    bank.add(record("one", item(1)))
    shared, made, read, most = bank._store._shared, [], [], [0]
    made += [shared._db, *shared._idle]
    real = shared.connect

    def connect():
        made.append(real())
        most[0] = max(most[0], sum(not db.pg.closed for db in made))  # the server counts one that is leaving, too
        return made[-1]

    monkeypatch.setattr(shared, "connect", connect)
    at_once(3 * READERS, lambda: read.append(bank._store.rows("SELECT count(*), pg_sleep(0.1) FROM records")))
    assert len(read) == 3 * READERS and {row[0][0] for row in read} == {1}
    assert KEPT_IDLE < most[0] <= READERS + 1  # with that which writes
    assert sum(not db.pg.closed for db in made) <= KEPT_IDLE + 1


def test_a_role_that_owns_no_table_works_by_the_docs_and_says_what_it_may_not(open_bank, postgres, capsys):
    recipe = (REPO / "docs/memory.md").read_text(encoding="utf-8").splitlines()
    recipe = [line.strip() for line in recipe if line.startswith(("    GRANT", "    REVOKE"))]
    assert len(recipe) == 4
    postgres.admin(
        "postgres",
        "CREATE ROLE bank_owner LOGIN",
        "CREATE DATABASE two_roles OWNER bank_owner TEMPLATE template0 ENCODING UTF8",
    )
    postgres.admin("two_roles", "CREATE EXTENSION vector")
    owners = postgres.url("two_roles", "bank_owner")
    open_bank(owners)
    postgres.admin("two_roles", *recipe)
    theirs = postgres.url("two_roles")
    bank = open_bank(theirs)
    filled(bank)
    bank.history.rollback(1)  # with the journal's rows kept from being changed
    assert main(["compact", theirs]) == 2
    assert "only the owner of its tables may compact it" in capsys.readouterr().err
    assert main(["forget", theirs, "--id", "r"]) == 0
    assert "(WAL), backups" in (said := capsys.readouterr().out) and "let the owner run compact" in said
    assert bank.ids() == set()

    bank.add(record("other", item(20)))
    assert main(["compact", owners]) == 0 and main(["forget", owners, "--id", "other"]) == 0
    said = capsys.readouterr().out
    assert "(WAL), backups" in said and "let the owner" not in said


def test_others_write_while_what_was_forgotten_is_vacuumed(open_bank, url):
    bank = open_bank()
    bank.add(record("r", item(10)))
    with raw(url) as holder, raw(url) as watcher:
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE records IN SHARE UPDATE EXCLUSIVE MODE")  # only VACUUM waits for this
        forgetting = threading.Thread(target=bank.history.forget, kwargs={"id": "r"})
        forgetting.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'VACUUM%' AND wait_event_type = 'Lock'"
        wait_for(lambda: watcher.execute(waits).fetchone() == (1,))
        with bank.change("meanwhile", wait_s=1) as change:  # a Busy where the bank's lock is held
            change.fact("key", "value")
        assert forgetting.is_alive()
        holder.execute("COMMIT")
    forgetting.join(30)
    assert not forgetting.is_alive() and bank.ids() == set()


def test_a_server_that_ends_idle_sessions_ends_none_of_the_banks(open_bank, postgres, url):
    postgres.admin("postgres", f"ALTER DATABASE {urlsplit(url).path[1:]} SET idle_session_timeout = '200ms'")
    bank = open_bank()
    bank.add(record("r", item(10)))
    one, other = bank.jobs(), bank.jobs()
    assert one.lead()
    time.sleep(1)
    assert bank.retrieve("@10") and one.leads() and not other.lead()
    one.leave()


def test_a_lead_that_cannot_be_asked_for_leaves_no_connection(open_bank, postgres, url):
    import psycopg

    bank = open_bank()
    jobs = bank.jobs()
    with raw(url) as db:
        db.execute("ALTER TABLE jobs RENAME TO elsewhere")
        with pytest.raises(psycopg.errors.UndefinedTable) as caught:
            jobs.lead()
        left = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_try_advisory_lock%'"
        wait_for(lambda: db.execute(left).fetchone() == (0,), 5)
        assert caught.tb  # it would have kept the connection
        db.execute("ALTER TABLE elsewhere RENAME TO jobs")
    assert jobs.lead()
    jobs.leave()


def test_bad_urls_are_one_sentence(url, postgres, tmp_path, caplog):
    def opened(path, **fields):
        return MemoryBank(path=path, embedder=Compass(), policy=Cosine(), **fields)

    postgres.admin("postgres", "CREATE DATABASE bare OWNER bank_app")
    bare, sqlite = postgres.url("bare"), str(tmp_path / "bank.sqlite")
    for path, fields, kind, why in (
        ("postgresql://ann:geheim@localhost/bank", {}, UserError, "PGPASSWORD"),
        ("postgresql://ann@localhost/bank?password=geheim", {}, UserError, "PGPASSWORD"),
        ("postgresql://ann@localhost/bank?sslpassword=geheim", {}, UserError, "PGPASSWORD"),
        (f"{url}&options=-csearch_path%3Dnowhere,public", {}, UserError, "bank's schema nowhere"),
        (f"postgresql://ann@/bank?host={tmp_path}", {}, StopRun, "cannot be reached"),
        (sqlite, {"store": Postgres()}, UserError, "no URL"),
        (bare, {}, UserError, "CREATE EXTENSION vector"),
        (url, {"namespace": "*"}, UserError, r"namespace=\*"),
    ):
        with pytest.raises(kind, match=why) as caught:
            opened(path, **fields)
        assert "geheim" not in str(caught.value)
    postgres.admin("bare", "CREATE EXTENSION vector")
    with pytest.raises(UserError, match="holds no bank"):
        opened(bare, read_only=True)
    opened(url.replace("bank_app", "postgres")).close()
    assert "bypasses row-level security" in caplog.text
    assert not Path("postgresql:").exists()


def test_rounds_run_in_the_background_and_what_two_processes_plan_is_made_once(open_bank):
    class Together:
        """Two processes plan the same round at the same time."""

        name = "together"
        met = threading.Barrier(2)

        def plan(self, ctx):
            self.met.wait(20)
            ctx.usage = Usage(calls=1)
            return []

    banks = [open_bank(consolidate=Consolidator(every=2, background=True, merge=Together())) for _ in range(2)]
    for id in ("a", "b"):
        banks[0].add(record(id, item(10)))
    banks[0].learn_from(EpisodeFeedback(label="success", new=(("a", None), ("b", None))))
    banks[1].learn(None)
    for bank in banks:
        bank.consolidate.close()  # raises what has ended a round
    assert [bank.consolidate.progress(bank).round for bank in banks] == [(), ()]
    assert banks[0].consolidate.usage(banks[0]).calls == 1


def test_a_bank_moves_between_both_databases_with_ids_of_any_length_and_their_links(url, tmp_path):
    """Random ids, which PostgreSQL cannot compress: an entry of its b-tree holds 2704 bytes."""
    file, back = str(tmp_path / "a.sqlite"), str(tmp_path / "b.sqlite")
    made = random.Random(7)
    signs = "xé日abcdefghijklmnopqrstuvwxyz0123456789/:.- "
    ids = ["".join(made.choices(signs, k=length)) for length in (1, 2, 64, 880, 1350, 2690, 2705, 5000)]
    with closing(MemoryBank(path=file, embedder=HashingEmbedder(), policy=Cosine())) as bank:
        bank.of("bob").add(record("of another tenant", item(1), query="@1 bob", last_used=7))
        bank.add_many([record(id, item(n), query=f"@{n}", task_id=f"task {id}") for n, id in enumerate(ids)])
        with bank.change("links") as change:
            change.update(ids[0], status="archived", confidence=0.5, last_used=1e9 + 0.125)
            for one, other in itertools.pairwise(ids):
                change.link(one, "refines", other, f"note of {other[:9]}")
                change.link(other, "contradicts", one, "")
    for source, target, name in ((file, url, "1"), (url, back, "2")):
        assert main(["export", source, str(tmp_path / name)]) == 0
        assert main(["import", target, str(tmp_path / name), "--embedder", "hashing-256"]) == 0
    assert main(["export", back, str(tmp_path / "3")]) == 0
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes() == (tmp_path / "3").read_bytes()
    with closing(MemoryBank(path=url, embedder=HashingEmbedder(), policy=Cosine())) as there:
        assert not there.add(record(ids[-1], item(3), query="@3"))  # it is there
        hits = there.retrieve("@1", 20, exclude_task=f"task {ids[-1]}")
        assert {hit.record.id for hit in hits} == set(ids[1:-1])
        before = there.history.seq()
        with there.change("more") as change:
            change.update(ids[-1], status="archived")
            change.unlink(ids[-1], "contradicts", ids[-2])
        there.history.rollback(before)
        assert there.get(ids[-1]).status == "active" and len(there.links()) == 2 * (len(ids) - 1)
        assert there.history.forget(id=ids[-1]) == [ids[-1]] and len(there.links()) == 2 * (len(ids) - 2)
