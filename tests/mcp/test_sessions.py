"""Learning from old sessions: each format made by hand as its program writes it."""

from __future__ import annotations

import json
import zipfile

import pytest
from mcp_kit import MODEL, here

from core.errors import UserError
from mcp_server.sessions import attempts_of, files_of, learn_sessions, map_of, sessions_of

ASKED, DID = "Make the parser accept empty files", "I return early for an empty file."
SECRET = "ghp_" + "a1B2" * 9


def lines(*rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def claude(role, content):
    return {"type": role, "message": {"role": role, "content": content}}


def text(said, kind="text"):
    return [{"type": kind, "text": said}]


def codex(role, kind, said):
    return {"type": "response_item", "payload": {"type": "message", "role": role, "content": text(said, kind)}}


CLAUDE = lines(
    claude("user", ASKED),
    claude("assistant", [{"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}]),
    claude("user", [{"type": "tool_result", "content": f"token {SECRET}"}]),
    claude("assistant", text(DID)),
    claude("user", "yes, go on"),
    claude("assistant", text("Done.")),
    claude("user", "Now rename the module to reader"),
    claude("assistant", text("Renamed.")),
)
CODEX = lines(
    {"type": "session_meta", "payload": {"id": "x"}},
    codex("user", "input_text", ASKED),
    codex("assistant", "output_text", DID),
)
ATIF = {
    "schema_version": "ATIF-v1.4",
    "agent": {"name": "a", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": ASKED},
        {
            "step_id": 2,
            "source": "agent",
            "message": DID,
            "tool_calls": [{"tool_call_id": "1", "function_name": "bash", "arguments": {"command": "ls"}}],
            "observation": {"results": [{"source_call_id": "1", "content": "parser.py"}]},
        },
    ],
}
OWN = lines({"task": ASKED, "log": [{"role": "user", "content": ASKED}, {"role": "assistant", "content": DID}]})
SAMPLE = {
    "input": ASKED,
    "messages": [
        {"role": "user", "content": ASKED},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": DID}],
            "tool_calls": [{"id": "1", "function": "bash", "arguments": {"command": "ls"}}],
        },
        {"role": "tool", "content": "parser.py"},
    ],
}


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "old"
    made.mkdir()
    (made / "claude.jsonl").write_text(CLAUDE)
    (made / "codex.jsonl").write_text(CODEX)
    (made / "atif.json").write_text(json.dumps(ATIF))
    with zipfile.ZipFile(made / "log.eval", "w") as log:
        log.writestr("samples/1_epoch_1.json", json.dumps(SAMPLE))
        log.writestr("header.json", "{}")
    (made / "notes.txt").write_text("nothing")
    return made


def test_each_format_is_read_as_the_tasks_in_it(folder):
    found = {file.name: attempts_of(file, None) for file in files_of(folder)}
    assert list(found) == ["atif.json", "claude.jsonl", "codex.jsonl", "log.eval"]
    first, second = found["claude.jsonl"]
    assert (first.query, second.query) == (ASKED, "Now rename the module to reader")
    assert [turn["role"] for turn in first.turns] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert first.turns[1]["content"] == 'Bash({"command": "ls"})'
    for name in ("codex.jsonl", "atif.json", "log.eval"):
        [attempt] = found[name]
        assert attempt.query == ASKED and DID in attempt.turns[1]["content"], name
    for name in ("atif.json", "log.eval"):
        said = "\n".join(turn["content"] for turn in found[name][0].turns)
        assert 'bash({"command": "ls"})' in said and "parser.py" in said
    own = folder / "own.jsonl"
    own.write_text(OWN)
    [attempt] = attempts_of(own, map_of("query=task,messages=log"))
    assert attempt.query == ASKED and attempt.turns[-1]["content"] == DID


def test_nothing_is_sent_before_yes_and_a_session_is_learned_once(folder, tmp_path, capsys):
    sessions = [attempts_of(file, None) for file in files_of(folder)]
    with here(tmp_path / "b.sqlite", *MODEL) as (_, service):
        assert learn_sessions(service, "", sessions, yes=False) == 0
        said = capsys.readouterr().out
        assert "4 sessions, 5 tasks, 0 of them learned before" in said and "nothing was sent" in said
        assert len(service.bank) == 0 and service.roles()["judge"].meter.totals()["total"]["calls"] == 0
        assert learn_sessions(service, "", sessions, yes=True) == 0
        stored = len(service.bank)
        assert stored >= 1 and "5/5" in capsys.readouterr().out
        calls = service.roles()["judge"].meter.totals()["total"]["calls"]
        assert learn_sessions(service, "", sessions, yes=True) == 0
        assert "5 of them learned before" in capsys.readouterr().out
        assert (len(service.bank), service.roles()["judge"].meter.totals()["total"]["calls"]) == (stored, calls)
    assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.glob("b.sqlite*"))


def test_what_is_no_session_is_one_sentence_or_nothing(tmp_path):
    for name, held in (("a.json", "{"), ("a.eval", "no zip"), ("a.json", '{"steps": [1]}')):
        (tmp_path / name).write_text(held)
        with pytest.raises(UserError, match="cannot be read as a session"):
            attempts_of(tmp_path / name, None)
    (tmp_path / "b.json").write_text("[1]")
    assert attempts_of(tmp_path / "b.json", None) == []
    with pytest.raises(UserError, match="give query=KEY,messages=KEY"):
        map_of("query=x")


def test_what_is_damaged_is_named_and_left_out(folder, capsys):
    (folder / "settings.json").write_text("// no JSON")
    assert len(sessions_of([folder], None)) == 4 and "settings.json cannot be read" in capsys.readouterr().err
    own = folder / "own.jsonl"
    own.write_text(OWN + lines({"task": ASKED, "log": "all as one text"}) + '{"task": "Mend')
    [[_]] = sessions_of([own], map_of("query=task,messages=log"))
    said = capsys.readouterr().err
    assert "line 2 is torn, or has no list" in said and "line 3 is torn" in said
    with pytest.raises(UserError, match="line 1 has no question: --map names the keys"):
        sessions_of([own], map_of("query=question,messages=log"))
