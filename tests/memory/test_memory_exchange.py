"""Banks in other forms, and the command line."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
from array import array
from contextlib import closing

import numpy as np
import pytest
from test_memory import open_bank, record  # noqa: F401 - open_bank is a fixture

from core.errors import UserError
from core.memory import formats
from core.memory.__main__ import main
from core.memory.consolidation.contradict import NLIChecker
from core.memory.formats.markdown import parse
from core.models.embedding import HashingEmbedder
from core.types import Lesson

LATEX = 'LaTeX \\frac{1}{2} "quotes"\n\n## a heading\n\ttab ünï 漢字 \x00'


@pytest.fixture
def bank(open_bank):  # noqa: F811
    made = open_bank()
    made.add_many([record(f"query number {n}", task=f"t{n}", id=f"r{n}", tick=n) for n in range(3)])
    about = {"domain": "maths", "tags": ("a", "b"), "parents": ("r0", "r1"), "created_at": "2026-01-02T03:04:05+00:00"}
    about |= {"confidence": 0.5, "n_used": 3, "n_used_success": 2, "n_helpful": 1, "n_harmful": 4, "last_used": 8}
    about |= {"trust": 0.3, "provenance": {"run": "x", "models": {"agent": "m"}}, "namespace": "tenant", "score": 0.25}
    odd = (Lesson(title=LATEX, description=LATEX, content=LATEX),)
    with made.change("more") as change:
        change.add(record(LATEX, id="odd", outcome="failure", items=odd, **about))
        change.update("r1", status="archived")
        change.link("odd", "supersedes", "r1", "why")
    return made


def test_jsonl_loses_nothing(bank, open_bank, tmp_path):  # noqa: F811
    assert formats.export(bank, tmp_path / "out.jsonl", "jsonl") == 4
    other = open_bank("other.sqlite")
    other.embedder.embed = None  # its vectors come from the file
    assert formats.load(other, tmp_path / "out.jsonl", "jsonl") == (4, 0)
    assert (other.records(), other.links()) == (bank.records(), bank.links())
    formats.export(other, tmp_path / "again.jsonl", "jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    assert formats.load(other, tmp_path / "out.jsonl", "jsonl") == (0, 4)


def test_a_bank_of_another_embedder_is_embedded_anew(bank, open_bank, tmp_path):  # noqa: F811
    formats.export(bank, tmp_path / "out.jsonl", "jsonl", namespace="default")
    other = open_bank("other.sqlite", embedder=HashingEmbedder(dim=64))
    assert formats.load(other, tmp_path / "out.jsonl", "jsonl") == (3, 0)
    assert len(other.records()[0].query_embedding) == 64
    assert other.retrieve("query number 2")[0].record.id == "r2"


def test_a_file_that_is_no_export_is_named(bank, tmp_path):
    for text, message in (
        ("", "does not begin"),
        ('{"format": "reasoning memory", "version": 1}\n{"record": {"id": 3}}\n', "line 2 holds no record"),
        ('{"format": "reasoning memory", "version": 1}\n{"rec', "line 2 is damaged"),
    ):
        (tmp_path / "bad.jsonl").write_text(text)
        with pytest.raises(UserError, match=message):
            formats.load(bank, tmp_path / "bad.jsonl", "jsonl")
    with pytest.raises(UserError, match="cannot be read"):
        formats.load(bank, tmp_path / "none.jsonl", "jsonl")


def test_markdown_has_what_is_active_and_says_what_it_leaves_out(bank, tmp_path):
    formats.export(bank, tmp_path / "bank.md", "markdown")
    text = (tmp_path / "bank.md").read_text()
    assert [section.facts["id"] for section in parse(text, "it")] == ["r0", "r2", "odd"]  # r1 is archived
    assert "marked 1 times helpful, 4 harmful, 1 archived left out" in text
    assert "- marked: helpful 1, harmful 4, trust score -1.17" in text  # (1 - 8) / (1 + 4 + 1)


def test_the_servers_files_are_read(open_bank, tmp_path):  # noqa: F811
    vector = (np.array([3.0, 4.0] + [0.0] * 254)).tolist()
    memory = {
        "memory_id": "mem_1",
        "agent_id": "claude",
        "timestamp": "2025-10-01T00:00:00+00:00",
        "success": False,
        "title": "T",
        "description": "D",
        "content": "C",
        "query": "boil some water",
        "retrieval_count": 5,
        "last_retrieved": None,
        "tags": ["x"],
        "metadata": {"embedding_model": "hashing-256"},
    }
    merged = {"is_merged": True, "merged_from": ["mem_0"]}
    plain = {**memory, "memory_id": "mem_2", "agent_id": None, "success": True, **merged}
    (tmp_path / "memories.json").write_text(json.dumps({"version": "1.0", "memories": [memory, plain]}))
    old = {"version": "1.0", "memories": [{**memory, "memory_id": "mem_0", "archived": True}]}
    (tmp_path / "archived_memories.json").write_text(json.dumps(old))
    key = {"query_text": "boil some water", "vector": vector, "created_at": ""}
    held = {"version": "1.0", "embedding_model": "unknown", "embedding_dim": 0}
    held["embeddings"] = dict.fromkeys(("mem_0", "mem_1", "mem_2"), key)
    (tmp_path / "embeddings.json").write_text(json.dumps(held))
    bank = open_bank()
    assert formats.load(bank, tmp_path / "memories.json", "mcp") == (3, 0)
    one = bank.of("claude").get("mem_1")
    assert (one.namespace, one.outcome, one.n_used, one.tags) == ("claude", "failure", 5, ("x",))
    assert np.allclose(one.query_embedding[:2], (0.6, 0.8))
    assert (bank.get("mem_2").namespace, bank.get("mem_2").parents) == ("default", ("mem_0",))
    assert bank.of("claude").get("mem_0").status == "archived"
    formats.export(bank, tmp_path / "out", "mcp")
    again = open_bank("again.sqlite")
    assert formats.load(again, tmp_path / "out", "mcp") == (3, 0)
    first, second = (
        {r.id: (r.items, r.namespace, r.status, r.query_embedding) for r in each.records()} for each in (bank, again)
    )
    assert first == second


def test_the_authors_files_are_read_and_written(bank, open_bank, tmp_path):  # noqa: F811
    text = "Thinking...\n\n# Memory Item 1\n## Title Look\n## Description Twice\n## Content Always.\n\n"
    text += "# Memory Item 2\n## Title Wait\n## Description Once\n## Content Never."
    rows = [
        {"task_id": "12", "query": "boil water", "status": "success", "memory_items": text.split("\n\n")},
        {"task_id": "13", "query": "open a door", "status": "fail", "memory_items": "no form at all"},
    ]
    (tmp_path / "shopping.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cache = {"id": "12", "text": "boil water", "embedding": [1.0, 2.0]}
    (tmp_path / "shopping_embeddings.jsonl").write_text(json.dumps(cache))
    other = open_bank("other.sqlite")
    assert formats.load(other, tmp_path / "shopping.jsonl", "authors") == (2, 0)
    first, second = other.records()
    assert [item.title for item in first.items] == ["Look", "Wait"]
    assert (second.outcome, second.items[0].content) == ("failure", "no form at all")
    formats.export(bank, tmp_path / "out.jsonl", "authors", namespace="default")
    third = open_bank("third.sqlite")
    formats.load(third, tmp_path / "out.jsonl", "authors")
    assert [r.items for r in third.records()] == [r.items for r in bank.records("default", "active")]


def run(capsys, *words):
    code = main([str(word) for word in words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_the_command_line_from_the_first_lesson_to_the_last(tmp_path, capsys):
    bank = tmp_path / "bank.sqlite"
    words = ("--query", "boil some water", "--title", "Lid", "--description", "d", "--content", "Use a lid.")
    code, out, _ = run(capsys, "add", bank, "--embedder", "hashing-256", *words, "--tag", "kitchen")
    assert (code, out.split()[1]) == (0, "added")
    id = out.split()[0]
    assert "was there" in run(capsys, "add", bank, *words)[1]
    assert id in run(capsys, "list", bank)[1]
    assert "Use a lid." in run(capsys, "show", bank, id)[1]
    assert run(capsys, "search", bank, "boil the water", "--tag", "kitchen")[1].startswith(id)
    assert run(capsys, "search", bank, "lid", "--lexical")[1].startswith(id)
    assert run(capsys, "search", bank, "boil the water", "--namespace", "else")[1] == ""
    assert "helpful 1" in run(capsys, "mark", bank, id, "helpful")[1]
    assert "quarantined" in run(capsys, "status", bank, id, "quarantined")[1]
    assert run(capsys, "search", bank, "lid", "--lexical")[1] == ""
    assert "active" in run(capsys, "status", bank, id, "active")[1]
    assert json.loads(run(capsys, "stats", bank, "--json")[1])["records"] == 1
    assert "is change 5" in run(capsys, "snapshot", bank, "here")[1]
    assert "1 record written" in run(capsys, "export", bank, tmp_path / "out.jsonl")[1]
    assert "as markdown" in run(capsys, "export", bank, tmp_path / "LESSONS.md")[1]
    assert (tmp_path / "LESSONS.md").read_text().startswith("# Memory bank: 1 record\n")
    assert run(capsys, "export", bank, "-")[0] == 2
    words = ("import", tmp_path / "new.sqlite", tmp_path / "out.jsonl", "--embedder", "hashing-256")
    assert "1 record added" in run(capsys, *words)[1]
    assert "active: 1 -> 1" in run(capsys, "consolidate", bank)[1]
    assert run(capsys, "consolidate", bank, "--only", "contradict")[0] == 2  # by which checker?
    assert "undone" in run(capsys, "rollback", bank, "--to", "here")[1]
    assert "1 record deleted" in run(capsys, "forget", bank, "--id", id)[1]
    code, out, _ = run(capsys, "doctor", bank)
    assert code == 0
    assert "the database is whole" in out
    assert run(capsys, "list", bank)[1:] == ("", "nothing is there to show.\n")


def test_forget_takes_the_beginning_of_an_id_and_the_versions_that_the_lesson_corrected(bank, capsys):
    with bank.change("correct") as change:
        change.link("r2", "supersedes", "r0", "")
        change.add(record("another", id="abcdef0123", items=()))
    bank.close()
    assert run(capsys, "forget", bank.path, "--id", "abcde")[:2] == (0, "1 record deleted for good: abcdef0123\n")
    assert run(capsys, "forget", bank.path, "--id", "r2")[:2] == (0, "2 records deleted for good: r2, r0\n")
    for words in (("--id", "abcde"), ("--task", "t7"), ("--run", "none")):
        status, out, _ = run(capsys, "forget", bank.path, *words)
        assert (status, out.partition(":")[0]) == (1, "nothing was deleted")


def test_the_bank_may_stand_behind_its_option_as_elsewhere(bank, capsys):
    bank.close()
    assert run(capsys, "list", "--bank", bank.path) == run(capsys, "list", bank.path)
    assert "query number 1" in run(capsys, "show", "--bank", bank.path, "r1")[1]
    assert "helpful 1" in run(capsys, "mark", "r1", "helpful", "--bank", bank.path)[1]
    with pytest.raises(SystemExit):  # of one word that may be the bank or a name
        run(capsys, "snapshot", "--bank", bank.path, "before")


def test_contradictions_by_hand(tmp_path, capsys, monkeypatch):
    """The cross-encoder here finds that everything contradicts everything."""
    asked = []

    def check(self, ctx, one, other):
        asked.append(self.model)
        return "contradicts", "nli 0.900"

    monkeypatch.setattr(NLIChecker, "check", check)
    bank = tmp_path / "bank.sqlite"
    for content in ("Close the lid of the pot before the water boils.", "Open the lid of the pot before water boils."):
        words = ("--query", "boil water", "--title", content, "--description", "The lid.", "--content", content)
        run(capsys, "add", bank, "--embedder", "hashing-256", *words)
    run(capsys, "consolidate", bank, "--only", "prune", "--contradict")
    assert asked == []
    assert "undo with" in run(capsys, "consolidate", bank, "--only", "contradict", "--contradict", "some/encoder")[1]
    assert asked == ["some/encoder"]
    assert json.loads(run(capsys, "stats", bank, "--json")[1])["links"] == 1
    id = run(capsys, "list", bank)[1].split()[0]
    (link,) = json.loads(run(capsys, "show", bank, id, "--json")[1])["links"]
    assert link["note"] == f"nli 0.900, cosine {link['weight']:.3f}"
    assert f"{link['note']}, {link['created_at']}" in run(capsys, "show", bank, id)[1]


def test_the_command_line_says_what_is_wrong_in_one_line(tmp_path, capsys):
    for command, *words in (("stats",), ("forget", "--id", "x"), ("import", "none.jsonl")):
        code, out, err = run(capsys, command, tmp_path / "none.sqlite", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert ("cannot be read" if command == "import" else "there is no bank") in err


@pytest.mark.parametrize(
    "text", ["", '{"query": "q", "title": "t"}', '{"format": "reasoning memory", "version": 1}\n{}']
)
def test_a_refused_import_leaves_no_bank_and_names_the_formats(tmp_path, capsys, text):
    (tmp_path / "in.jsonl").write_text(text)
    code, out, err = run(capsys, "import", tmp_path / "b.sqlite", tmp_path / "in.jsonl", "--embedder", "hashing-256")
    known = "It was read as jsonl: --format also knows markdown, mcp, insight_memory, authors, skill, agents."
    assert (code, out) == (2, "") and known in err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_path_that_holds_no_bank_is_named_for_what_it_is(tmp_path, capsys, caplog):
    """A folder, a folder in the journal's place, a bank of which the journal alone is left."""
    bank = tmp_path / "bank.sqlite"
    words = ("--query", "boil water", "--title", "Lid", "--description", "", "--content", "Use a lid.")
    run(capsys, "add", bank, "--embedder", "hashing-256", *words)
    run(capsys, "add", bank, "--namespace", "bob", *words)
    assert "active    bob      " in run(capsys, "list", bank)[1]
    assert "is a folder" in run(capsys, "list", tmp_path)[2]
    bank.unlink()
    assert "doctor" in run(capsys, "list", bank)[2]
    code, out, err = run(capsys, "add", bank, "--query", "fry", *words[2:])  # with the embedder that it had
    assert code == 0 and "rebuilt with 2 records" in caplog.text and "set aside" not in caplog.text
    assert len(run(capsys, "list", bank)[1].splitlines()) == 3
    bank.unlink()
    bank.with_name("bank.sqlite.journal").unlink()
    bank.with_name("bank.sqlite.journal").mkdir()
    for command in (("list",), ("add", *words)):
        code, out, err = run(capsys, command[0], bank, *command[1:])
        assert (code, out, err.count("\n")) == (2, "", 1) and "is a folder, and the journal" in err


def test_the_doctor_mends_a_damaged_bank(bank, tmp_path, capsys):
    before = bank.records()
    bank.close()
    path = tmp_path / "bank.sqlite"
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 9000)
    code, out, _ = run(capsys, "doctor", path)
    assert code == 0
    assert "each with its vector" in out
    shown = run(capsys, "show", path, "odd", "--namespace", "tenant", "--json")[1]
    assert json.loads(shown)["original_query"] == before[3].original_query


def test_an_import_goes_to_the_tenant_that_was_named(tmp_path, bank, open_bank):  # noqa: F811
    n = formats.export(bank, tmp_path / "out.jsonl", "jsonl")
    other = open_bank("other.sqlite")
    assert formats.load(other, tmp_path / "out.jsonl", "jsonl", "alice") == (n, 0)
    assert {kept.namespace for kept in other.records()} == {"alice"}


@pytest.mark.parametrize("filled", [False, True])
def test_embeddings_of_another_size_are_refused(tmp_path, bank, open_bank, filled):  # noqa: F811
    formats.export(bank, tmp_path / "out.jsonl", "jsonl")
    text = re.sub(
        r'"query_embedding": "[^"]+"', '"query_embedding": "AACAPwAAAAAAAAAA"', (tmp_path / "out.jsonl").read_text()
    )
    (tmp_path / "bad.jsonl").write_text(text)
    other = open_bank("other.sqlite")
    if filled:
        other.add(record("there before"))
    with pytest.raises(UserError, match="embeddings have 3 numbers, those of the bank 256"):
        formats.load(other, tmp_path / "bad.jsonl", "jsonl")
    assert len(other) == filled


def encoded(*numbers):
    return base64.b64encode(array("f", numbers).tobytes()).decode()


def test_an_import_of_what_no_record_may_hold_is_refused_as_a_whole(subtests, tmp_path, open_bank):  # noqa: F811
    cases = [
        *((name, (None, 5, ["x"], {"a": 1})) for name in ("id", "namespace", "outcome", "domain", "task_id")),
        *((name, (None, 5, float("nan"))) for name in ("original_query", "source_trajectory_id", "created_at")),
        *((name, (None, "abc", -1, 1.5, 10**30, True)) for name in ("tick", "n_used", "n_harmful")),
        *((name, ("abc", -1, 1.5, 1e30, float("nan"), True)) for name in ("trust", "confidence")),
        ("tags", ([1], [None])),
        ("parents", ([1],)),
        ("items", ([{"title": 1, "description": "b", "content": "c"}],)),
        ("provenance", ([], "x", None, {"hygiene": 5}, {"quarantine": "x"}, {"tasks": [1]})),
        ("status", (None, "weird", ["active"])),
        ("last_used", ("abc", float("inf"))),
        ("query_embedding", (encoded(*[float("nan")] * 256), encoded(*[1e3] * 256))),
    ]
    bank = open_bank()
    bank.add(record("boil water", id="r0"))
    formats.export(bank, tmp_path / "x.jsonl", "jsonl")
    head, row = map(json.loads, (tmp_path / "x.jsonl").read_text().splitlines())
    other = open_bank("other.sqlite")
    bad = [(name, {"record": row["record"] | {"id": "bad", name: value}}) for name, values in cases for value in values]
    links = (["r0", "weird", "r0", ""], ["r0", "entails"], ["r0", "entails", 5, ""], "r0")
    bad += [("link", {"link": link, "namespace": "default"}) for link in links]
    bad += [("line", {"record": whole}) for whole in (None, [], "x", 2**70, [[1]])]
    for name, line in bad:
        with subtests.test(name, line=line):
            (tmp_path / "bad.jsonl").write_text("\n".join(map(json.dumps, (head, row, line))))
            with pytest.raises(UserError):
                formats.load(other, tmp_path / "bad.jsonl", "jsonl")
            assert len(other) == 0 and other.retrieve("boil water") == []


def test_a_whole_batch_before_a_bad_record_and_another_embedders_vectors(tmp_path, open_bank, monkeypatch):  # noqa: F811
    monkeypatch.setattr("core.memory.formats.portable.BATCH", 1)
    bank = open_bank()
    bank.add(record("boil water", id="r0"))
    formats.export(bank, tmp_path / "x.jsonl", "jsonl")
    head, row = map(json.loads, (tmp_path / "x.jsonl").read_text().splitlines())
    other = open_bank("other.sqlite")
    bad = {"record": row["record"] | {"id": "bad", "status": "weird"}}
    (tmp_path / "bad.jsonl").write_text("\n".join(map(json.dumps, (head, row, bad))))
    with pytest.raises(UserError, match="status='weird' is not one of active, "):
        formats.load(other, tmp_path / "bad.jsonl", "jsonl")
    assert len(other) == 0
    row["record"]["query_embedding"] = encoded(3.0, float("nan"))  # which are made anew
    (tmp_path / "theirs.jsonl").write_text("\n".join(map(json.dumps, (head | {"embedder": "another"}, row))))
    assert formats.load(other, tmp_path / "theirs.jsonl", "jsonl") == (1, 0)


def test_a_bank_knows_its_embedders_dimensions_and_date(tmp_path, capsys):
    bank = tmp_path / "bank.sqlite"
    words = ("--query", "q", "--title", "t", "--description", "d", "--content")
    run(capsys, "add", bank, "--embedder", "hashing-256", *words, "one")
    found = json.loads(run(capsys, "stats", bank, "--json")[1])
    assert (found["embedder"], found["dimensions"]) == ("hashing-256", 256)
    with closing(sqlite3.connect(bank)) as db:
        assert found["embedder since"] == db.execute("SELECT min(at) FROM journal").fetchone()[0]
        db.execute("UPDATE journal SET at = '2026-01-01T00:00:00+00:00'")
        db.commit()
    run(capsys, "add", bank, *words, "two")
    assert json.loads(run(capsys, "stats", bank, "--json")[1])["embedder since"] == found["embedder since"]  # kept
    with closing(sqlite3.connect(bank)) as db:  # a bank from before this was noted
        db.execute("DELETE FROM meta WHERE key LIKE 'embedder\\_%' ESCAPE '\\'")
        db.commit()
    older = json.loads(run(capsys, "stats", bank, "--json")[1])
    assert (older["embedder"], older["dimensions"], older["embedder since"]) == ("hashing-256", 256, None)
    run(capsys, "add", bank, *words, "three")
    now = json.loads(run(capsys, "stats", bank, "--json")[1])
    assert (now["dimensions"], now["embedder since"]) == (256, "2026-01-01T00:00:00+00:00")


def test_a_round_by_hand_counts_days_where_it_is_told_to(open_bank, tmp_path, capsys):  # noqa: F811
    made = open_bank()
    made.add(record("q", id="old", status="archived", confidence=0.1, created_at="2020-01-01T00:00:00+00:00"))
    made.add(record("another", id="new"))
    made.close()
    words = ("consolidate", tmp_path / "bank.sqlite", "--only", "prune", "--delete-after-days", "0")
    assert "archived: 1 -> 1" in run(capsys, *words)[1]  # both were made at the same task of the stream
    assert "archived: 1 -> 0" in run(capsys, *words, "--clock", "wall")[1]


# Skills and AGENTS.md

HOSTILE = "Use <!-- reasoningbank:end --> and\n## a heading\n--force-with-lease"


@pytest.fixture
def skilled(open_bank):  # noqa: F811
    made, hostile = open_bank(), Lesson(title="Clear first", description="d", content=HOSTILE)
    made.add(record("make the parser robust", id="a", domain="Python 3"))
    made.add(record("deploy", id="b", items=(hostile,)))
    made.add(record("a harmful one", id="c", n_harmful=2))
    made.add(record("an archived one", id="d", status="archived"))
    return made


def test_a_skill_for_each_domain_that_reads_back(skilled, open_bank, tmp_path):  # noqa: F811
    assert formats.export(skilled, tmp_path / "skills", "skill") == 2
    texts = {file.parent.name: file.read_text() for file in (tmp_path / "skills").rglob("SKILL.md")}
    (python,) = set(texts) - {"lessons-general"}
    assert python.startswith("lessons-python-3-")
    head = f'---\nname: {python}\ndescription: "Lessons from earlier tasks about Python 3, such as: make the parser'
    assert texts[python].startswith(head)
    assert "harmful" not in "".join(texts.values()) and "archived" not in "".join(texts.values())
    again = open_bank("again.sqlite")
    assert formats.load(again, tmp_path / "skills", "skill") == (2, 0)
    assert again.get("a").items == skilled.get("a").items and again.get("a").domain == "Python 3"
    assert again.get("b").items[0].content == HOSTILE and again.get("b").original_query == "deploy"
    assert formats.load(again, tmp_path / "skills", "skill") == (0, 2)


def test_of_a_file_only_the_block_is_written(skilled, open_bank, tmp_path):  # noqa: F811
    file = tmp_path / "AGENTS.md"
    file.write_text("# House rules\n\nBe brief.\n")
    for _ in range(2):
        assert formats.export(skilled, file, "agents") == 2
    text = file.read_text()
    assert text.startswith("# House rules\n\nBe brief.\n\n<!-- reasoningbank:begin -->")
    assert text.count("## Clear first\n") == 1
    file.write_text(text + "\nmore of mine\n")
    formats.export(skilled, file, "agents")
    assert file.read_text() == text + "\nmore of mine\n"
    assert formats.load(open_bank("again.sqlite"), file, "agents") == (2, 0)
    file.write_text("<!-- reasoningbank:begin -->\nhalf")
    with pytest.raises(UserError, match="without the other"):
        formats.export(skilled, file, "agents")
    assert file.read_text() == "<!-- reasoningbank:begin -->\nhalf"


def test_a_skill_is_no_longer_than_clients_read(open_bank, tmp_path):  # noqa: F811
    bank = open_bank()
    lessons = [Lesson(title=f"t{n}", description="", content=f"{n} " + "x" * 900) for n in range(60)]
    bank.add_many([record(f"task {n}", id=str(n), items=(made,)) for n, made in enumerate(lessons)])
    n = formats.export(bank, tmp_path / "skills", "skill")
    text = (tmp_path / "skills" / "lessons-general" / "SKILL.md").read_text()
    about = next(line for line in text.splitlines() if line.startswith("description: "))
    assert "such as: task 0; task 1; task 10; " in about and len(about) < 1_060
    assert about.endswith('. Read them before you begin a task like these."')
    assert 10 < n < 60 and len(text) <= 20_000 and f"({60 - n} more are in the bank.)" in text


def test_a_lesson_that_was_changed_in_the_file_is_said_to_stay_as_the_bank_has_it(skilled, tmp_path, capsys):
    file = tmp_path / "AGENTS.md"
    formats.export(skilled, file, "agents")
    file.write_text(file.read_text().replace("--force-with-lease", "--force"))
    code, out, _ = run(capsys, "import", tmp_path / "bank.sqlite", file, "--format", "agents")
    assert code == 0 and "1 of them say something else in the bank, which stays" in out
