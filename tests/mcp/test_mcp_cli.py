"""The tools by hand, the hooks of clients, and one bank for the server and the harness."""

from __future__ import annotations

import importlib
import io
import json
import re
import shlex
import socket
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path

import forkserver
import pytest
from conftest import REPO, TOY, read_json, read_rows, wait_for
from mcp_kit import MODEL, TOKEN, TRAJECTORY, calling, http_server, lessons_in
from mcp_kit import client as server_on
from mcp_kit import here as served_here

from mcp_server import checks
from mcp_server.__main__ import main, parser
from mcp_server.cli import tool_parser
from mcp_server.client_settings import CLIENTS
from mcp_server.config import load_config
from mcp_server.extraction import as_trajectory, shown_records
from mcp_server.server import CORE, MORE
from mcp_server.tool_call import tool_names
from mcp_server.tools import MemoryTools
from scripts.reasoningbank import COMMANDS


@pytest.fixture
def by_hand(capsys, tmp_path):
    """Run the server's command line in this process; returns (exit code, stdout, stderr)."""

    def call(*words, bank=tmp_path / "b.sqlite"):
        code = main([*words[:1], "--bank", str(bank), "--embedder", "hashing-256", *words[1:]])
        return (code, *capsys.readouterr())

    return call


PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
NAME = r"[a-z0-9-]+(\.[a-z0-9-]+)+/[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?"  # as the registry of MCP writes it


def test_the_commands_that_are_installed_are_there():
    assert set(PROJECT["scripts"]) == {"reasoningbank", "reasoningbank-mcp", "reasoningbank-harness"}
    for place in PROJECT["scripts"].values():
        module, _, function = place.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_the_registry_takes_server_json():
    entry = json.loads((REPO / "server.json").read_text())
    [package] = entry["packages"]
    assert {*entry} == {"$schema", "name", "title", "description", "version", "packages"}
    assert re.fullmatch(NAME, entry["name"]) and len(entry["description"]) <= 100 and len(entry["title"]) <= 100
    assert entry["version"] == package["version"] == PROJECT["version"]  # no range, not `latest`
    assert package["registryType"] == "pypi" and package["transport"] == {"type": "stdio"}
    assert package["identifier"] == PROJECT["name"]
    # The registry looks for this line in the description of the package, to see whose it is.
    assert f"<!-- mcp-name: {entry['name']} -->" in (REPO / PROJECT["readme"]).read_text()
    # uvx runs the command that is called as the package, which serves over stdio.
    assert PROJECT["scripts"][package["identifier"]] == "reasoningbank_harness.__main__:serve"


def test_every_tool_has_its_twin(by_hand):
    form = ("--query", "fill a form")
    code, out, _ = by_hand(
        "save_lesson", *form, "--title", "Tab", "--content", "Use the tab key.", "--tags", '["ui"]', "--json"
    )
    assert code == 0 and json.loads(out)["status"] == "saved"
    id = json.loads(out)["memory_id"]
    assert f"id={id[:8]} Tab" in by_hand("retrieve_memory", *form)[1]
    assert json.loads(by_hand("mark_helpful", "--memory-id", id)[1])["helpful"] == 1
    assert by_hand("delete_lesson", "--memory-id", id[:5])[0] == 0
    assert "No lesson fits" in by_hand("retrieve_memory", *form)[1]
    assert set(tool_names()) >= {*CORE, *MORE}
    for name in (*CORE, *MORE, "hook"):
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        assert left.value.code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("retrieve_memory", "--query", " "), "query is empty"),
        (("retrieve_memory", "--query", "x", "--top-k", "many"), "--top-k many is no JSON: give a number"),
        (("extract_memory", "--query", "x", "--trajectory", "@/no/such/file"), "cannot be read"),
        (("extract_memory", "--query", "x", "--trajectory", "[]"), "no model is configured"),
        (("remember", "--query", "x"), "remember is no command"),
        (("retrieve_memory", "--query", "x", "--url", "http://127.0.0.1:9/mcp"), "say where the memory is"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_exit_code_2(by_hand, words, sentence):
    code, out, err = by_hand(*words)
    *new, last = err.splitlines()
    assert (code, out) == (2, "") and last.startswith("error: ") and sentence in last
    assert all("new bank made at" in line for line in new)


@pytest.mark.parametrize("words", [["runs"], ["client", "claude"], ["retrieve_memory", "--query", "x"]])
def test_a_bank_without_its_option_is_refused_by_name(capsys, words):
    with pytest.raises(SystemExit) as left:
        main([*words, "mine.sqlite"])
    assert left.value.code == 2
    assert "'mine.sqlite' is no key=value: give a bank as --bank PATH, a command after --" in capsys.readouterr().err


def test_twins_and_hooks_work_on_a_running_server(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("REASONINGBANK_MCP_TOKEN", TOKEN)
    with http_server(tmp_path / "b.sqlite", token=TOKEN) as url:
        where = ("--url", f"{url}/mcp")
        save = ("save_lesson", *where, "--query", "tidy up", "--title", "Sweep", "--content", "From top to bottom.")
        assert main([*save]) == 0
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"prompt": "tidy up the cellar"})))
        assert main(["hook", "retrieve", *where]) == 0
        assert "From top to bottom." in capsys.readouterr().out
        for token, said in (("", "refuses a call without a token: "), ("another", "refuses the token that was sent: ")):
            monkeypatch.setenv("REASONINGBANK_MCP_TOKEN", token)
            assert main([*save]) == 2
            err = capsys.readouterr().err
            assert said in err and "REASONINGBANK_MCP_TOKEN" in err and err.count("\n") == 1
        (tmp_path / "token").write_text(TOKEN + "\n")
        save += ("--token-file", str(tmp_path / "token"))
        assert main([*save]) == 0
        assert main([*save, "--url", f"{url}/nothing"]) == 2
    assert "does not answer as a memory server" in capsys.readouterr().err


def transcript(path):
    """What Claude Code leaves of a session, in short."""

    def line(role, *content):
        return {"type": role, "message": {"role": role, "content": content}}

    thought = {"type": "thinking", "thinking": "hm"}
    lines = [
        {"type": "summary", "summary": "x"},
        {"type": "user", "message": {"role": "user", "content": "Make the parser accept empty files."}},
        line("assistant", thought, {"type": "text", "text": "I look at it."}),
        line("assistant", {"type": "tool_use", "name": "Read", "input": {"path": "parser.py"}}),
        line("user", {"type": "tool_result", "content": "def parse(): ..."}),
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{torn")
    return {"transcript_path": str(path), "hook_event_name": "SessionEnd"}


def test_hooks_retrieve_before_and_extract_after(by_hand, tmp_path, monkeypatch):
    bank = tmp_path / "b.sqlite"
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(transcript(tmp_path / "t.jsonl"))))
    # Without a model here: the server on the same bank has one.
    assert main(["hook", "extract", "--bank", str(bank), "--embedder", "hashing-256"]) == 0

    with calling(server_on(bank, "--embedder", "hashing-256", *MODEL)) as client:
        wait_for(lambda: client.ask("bank_status")["pending_jobs"] == 0)
        found = client.ask("retrieve_memory", query="Make the parser accept empty files.")
    assert lessons_in(found)[0]["title"] == "Check for empty input first"
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"prompt": "The parser should accept empty files"})))
    assert main(["hook", "retrieve", "--bank", str(bank)]) == 0


def test_of_a_long_session_the_end_is_learned_from(tmp_path, monkeypatch):
    lines = [{"message": {"role": "user", "content": "Make the parser accept empty files."}}]
    lines += [{"message": {"role": "assistant", "content": f"{n} " + "x" * 3900}} for n in range(500)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"transcript_path": str(tmp_path / "t.jsonl")})))
    bank = tmp_path / "b.sqlite"
    assert main(["hook", "extract", "--bank", str(bank), "--embedder", "hashing-256"]) == 0
    with closing(sqlite3.connect(bank)) as db:
        payload = json.loads(db.execute("SELECT payload FROM jobs").fetchone()[0])
    assert payload["trajectory"][-1]["content"].startswith("499 ")
    assert 100 < len(payload["trajectory"]) < 300 and payload["query"] == "Make the parser accept empty files."


@pytest.mark.parametrize("what", ["retrieve", "extract"])
def test_a_hook_never_gets_in_the_way(tmp_path, monkeypatch, capsys, what):
    for event in ("", "[]", "{}", '{"prompt": 3}', '{"transcript_path": "/no/such/file"}'):
        monkeypatch.setattr("sys.stdin", io.StringIO(event))
        assert main(["hook", what, "--bank", str(tmp_path / "b.sqlite")]) == 1
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("reasoningbank hook")


@pytest.mark.parametrize("words", [["retrieve", "--top_k", "3"], ["recall"], [], ["retrieve", "--top-k", "many"]])
def test_a_hook_with_a_typing_error_blocks_no_prompt(capsys, words):
    assert main(["hook", *words]) == 1  # 2 would
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("reasoningbank hook: ") and err.count("\n") == 1


def test_recalled_lessons_are_not_learned_again(tmp_path):
    with served_here(tmp_path / "b.sqlite", *MODEL) as (_, service):
        words = {"query": "click it", "title": "Wait", "content": "Wait for the page before you click."}
        saved = MemoryTools(service).save_lesson(**words).structured_content
        other = MemoryTools(service).save_lesson(**words, agent_id="b").structured_content
        seen = f"[1] id={saved['memory_id']} (from a success)\nWait for the page. id={other['memory_id']}"
        payload = {"query": "click it", "trajectory": [*TRAJECTORY, {"role": "tool", "content": seen}]}
        [hit] = shown_records(service.bank, payload)
        assert hit.record.id == saved["memory_id"]
        assert len(as_trajectory(payload).steps) == 2 and checks.attempt(payload["trajectory"], "q", service.settings)


def test_a_bank_learned_over_mcp_is_evaluated_by_the_harness(here, by_hand, capsys, tmp_path):
    run_dir, _ = here(*TOY, "limit=6", f"memory.path={tmp_path / 'b.sqlite'}", run_dir=tmp_path / "one")
    learned = read_rows(run_dir)
    family = next(row for row in learned if row["records"])
    capsys.readouterr()
    code, out, _ = by_hand("retrieve_memory", "--query", family["query"], "--json")  # the reverse: a run's bank, served
    assert code == 0 and lessons_in(json.loads(out))[0]["title"].startswith("Word of the")

    served = tmp_path / "served.sqlite"
    with served_here(served, "preset=paper_faithful") as (_, service):
        for row in learned:
            for lesson in row["lessons"]:
                MemoryTools(service).save_lesson(row["query"], **lesson)
    before = served.read_bytes()
    words = ("setting=frozen", f"memory.path={served}", "limit=6")
    frozen, _ = here(*TOY, *words, run_dir=tmp_path / "two")
    assert any(row["retrieved"] for row in read_rows(frozen))
    assert read_json(frozen / "summary.json")["setting"] == "frozen" and served.read_bytes() == before


def test_the_configurations_in_the_documentation_hold():
    """Each JSON block can be read, and each command line in it and in the shell examples is one that is taken."""
    pages = [REPO / "docs" / name for name in ("mcp.md", "own_agent.md", "coming_from.md")]
    text = "".join(page.read_text() for page in pages)
    text = text.replace("\\\n", " ")  # a command over two lines
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    servers = [server for block in blocks for key in block for server in block[key].values()]
    assert len(servers) >= 4
    for server in servers:
        if "args" in server:
            command, *words = server["args"]
            assert command == "serve" and parser().parse_intermixed_args(words).overrides is not None
        else:
            assert server.get("url")
    lines = [shlex.split(line, comments=True) for line in re.findall(r"^ +reasoningbank (.*)$", text, re.MULTILINE)]
    for words in (line for line in lines if "--help" not in line and line[0] not in COMMANDS.keys() - {"serve"}):
        if words[0] == "client":
            assert words[1] in CLIENTS
        elif words[0] == "token":
            assert {each for each in words if each[0] == "-"} <= {"--tokens", "--agent-id", "--group", "--list"}
        elif words[0] in tool_names():
            assert tool_parser(words[0]).parse_intermixed_args(words[1:])
        elif words[:2] != ["serve", "audit"]:
            assert words[0] == "serve" and load_config(parser().parse_intermixed_args(words[1:]).overrides)


@pytest.mark.parametrize(
    "words",
    [("retrieve_memory", "--query", "x"), ("bank_status",), ("list_index",), ("export_memory",)],
    ids=lambda words: words[0],
)
def test_a_command_that_only_looks_makes_no_bank(tmp_path, capsys, words):
    bank = tmp_path / "mistyped.sqlite"
    assert main([*words, "--bank", str(bank)]) == 2
    assert f"there is no bank {bank}" in capsys.readouterr().err and not any(tmp_path.iterdir())


def test_a_bank_that_is_made_is_said_once(tmp_path, capsys):
    words = ["save_lesson", "--bank", str(tmp_path / "new.sqlite"), "--embedder", "hashing-256", "--query", "a form"]
    words += ["--title", "Tab", "--content", "Use the tab key."]
    said = []
    for _ in range(2):
        assert main(words) == 0
        said.append(f"new bank made at {tmp_path / 'new.sqlite'}" in capsys.readouterr().err)
    assert said == [True, False]


@pytest.mark.parametrize(
    ("client", "above"),
    [("claude", "mcpServers"), ("cursor", "mcpServers"), ("vscode", "servers"), ("zed", "context_servers")],
)
def test_a_clients_settings_name_command_and_bank_by_absolute_paths(monkeypatch, tmp_path, capsys, client, above):
    monkeypatch.chdir(tmp_path)
    assert main(["client", client, "--bank", "my bank.sqlite", "llm=gemini"]) == 0
    out, err = capsys.readouterr()
    entry = json.loads(out)[above]["reasoningbank"]
    words = [entry["command"], *entry["args"]]
    assert Path(entry["command"]).is_absolute()
    assert words[-3:] == ["--bank", str(tmp_path / "my bank.sqlite"), "llm=gemini"]
    assert err.startswith("put this into ") and not any(tmp_path.iterdir())
    if client == "claude":  # the others' command is the same
        done = forkserver.run([*words, "--version"], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.startswith("reasoningbank-harness")


def test_codex_reads_its_settings_as_toml(capsys):
    assert main(["client", "codex", "--bank", '/b/"quoted".sqlite']) == 0
    entry = tomllib.loads(capsys.readouterr().out)["mcp_servers"]["reasoningbank"]
    assert entry["args"][-2:] == ["--bank", '/b/"quoted".sqlite']


def test_a_clients_settings_of_a_running_server_hold_the_name_of_its_token_and_not_the_token(capsys, monkeypatch):
    monkeypatch.setenv("MINE", TOKEN)
    for client, format in CLIENTS.items():
        assert main(["client", client, "--url", "http://host:8000/mcp", "--token-env", "MINE"]) == 0
        out = capsys.readouterr().out
        entry = (tomllib if client == "codex" else json).loads(out)[format.above]["reasoningbank"]
        assert entry[format.url] == "http://host:8000/mcp" and "command" not in entry and TOKEN not in out
        assert ("MINE" in out) is (client != "zed")  # which reads no variables


@pytest.mark.parametrize("word", ["preset=typo", "retreival.top_k=3"])
def test_settings_that_the_server_would_refuse_are_not_printed(capsys, word):
    assert main(["client", "cursor", word]) == 2
    out, err = capsys.readouterr()
    assert out == "" and word.partition("=")[0] in err


def test_a_port_that_another_program_has_is_one_sentence_with_a_free_one(tmp_path, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        words = ["--bank", str(tmp_path / "b.sqlite"), "--transport", "http", "--port", str(port)]
        assert main(words) == 2
    said = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1 is used by another program: --port " in said and said.count("\n") == 1
