"""Credentials are never stored; personal data is, unless memory.redact=personal."""

from __future__ import annotations

import json

import pytest
from conftest import TOY, read_rows
from mcp_kit import here as served
from memory_kit import Compass, item, record

from core.memory.bank import MemoryBank
from core.memory.open import read_records
from core.memory.policies.cosine import Cosine
from core.redact import HIDDEN
from core.types import Lesson
from envs import toy_script
from mcp_server.tools import MemoryTools

KEY = "ghp_" + "aB3dE6gH9jaB3dE6gH9jaB"
PASSWORD = "hunter2" + "secret9"
PERSONAL = ("ann.lee@kestrel.io", "+49 30 1234567", "4111 1111 1111 1111")
SAID = f"Ask {PERSONAL[0]} or call {PERSONAL[1]}, card {PERSONAL[2]}, password: {PASSWORD}, token {KEY}."


def leaky(messages, role, sample):
    """The toy's model, whose lessons tell what they should not."""
    reply = toy_script.play(messages, role, sample)
    return reply.replace("## Content ", f"## Content {SAID} ") if role == "extractor" else reply


def stored(path):
    return "".join(r.text + r.original_query for r in read_records(path, "default"))


@pytest.mark.parametrize("hides", [False, True])
def test_what_a_run_stores(here, tmp_path, monkeypatch, hides):
    monkeypatch.chdir(tmp_path)
    words = ("memory.path=given.sqlite", "memory.redact=personal") if hides else ()
    run_dir, _ = here(*TOY, "limit=3", "llm.script.path=test_memory_redaction.leaky", *words)
    texts = stored(tmp_path / "given.sqlite" if hides else run_dir / "bank.sqlite")
    assert KEY not in texts and PASSWORD not in texts and HIDDEN in texts and "The word of the" in texts
    assert [part in texts for part in PERSONAL] == [not hides] * 3
    for file in run_dir.glob("*.jsonl"):
        assert KEY not in file.read_text(encoding="utf-8"), file.name
    [row, *_] = read_rows(run_dir)
    assert PERSONAL[0] in json.dumps(row["records"])  # episodes hold what the model wrote


def test_a_run_that_is_killed_makes_the_same_bank_again(here, tmp_path):
    words = (*TOY, "limit=3", "llm.script.path=test_memory_redaction.leaky", "memory.redact=personal")
    run_dir, _ = here(*words)
    episodes = run_dir / "episodes.jsonl"
    whole, kept = episodes.read_bytes(), read_records(run_dir / "bank.sqlite", "default")
    episodes.write_bytes(b"".join(whole.splitlines(keepends=True)[:1]))  # killed after the first episode
    (run_dir / "summary.json").unlink()
    for file in run_dir.glob("bank.sqlite*"):
        file.unlink()
    here(*words, f"run_dir={run_dir}")
    again = read_records(run_dir / "bank.sqlite", "default")
    assert episodes.read_bytes() == whole
    assert [(r.id, r.items, r.provenance) for r in again] == [(r.id, r.items, r.provenance) for r in kept]
    assert kept[0].provenance["hygiene"] == ["card", "email", "phone", "secret"]


@pytest.mark.parametrize(
    ("preset", "redact"), [("production", "personal"), ("paper_faithful", "secrets"), ("reasoningbank_mcp", "secrets")]
)
def test_the_server_stores_no_credential_whatever_its_preset(tmp_path, preset, redact):
    with served(tmp_path / "b.sqlite", f"preset={preset}", f"memory.redact={redact}") as (_, service):
        MemoryTools(service).save_lesson(f"Write to {PERSONAL[0]}", "Ask", SAID)
        [record] = service.bank.records()
        texts = record.text + record.original_query
        assert KEY not in texts and PASSWORD not in texts
        assert [part in texts for part in PERSONAL] == [redact == "secrets"] * 3
        assert list(record.query_embedding) == service.bank.embedder.embed([record.original_query])[0].tolist()


def test_a_query_that_was_given_with_its_vector_is_embedded_as_it_is_stored(tmp_path):
    bank = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=Compass(), policy=Cosine(), redact="personal")
    given = [record("a", item(0), query=f"@40 write to {PERSONAL[0]}"), record("b", item(0), query="@50 plain")]
    bank.add_many(given, Compass().embed(["@90", "@90"]))
    assert [hit.record.id for hit in bank.nearest("@40", 1)] == ["a"] and bank.nearest("@40", 1)[0].score == 1.0
    assert bank.nearest("@90", 1)[0].record.id == "b"
    plain = Lesson(title="t", description="d", content="2 + 2 = 4, and 1000000 of order 7.")
    bank.add(record("c", plain, query="@60 plain"))
    assert bank.get("c").items == (plain,) and "hygiene" not in bank.get("c").provenance
    bank.close()
