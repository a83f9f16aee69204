"""reasoningbank run around stand-ins with names and arguments of real programs, once the bank holds a lesson."""

from __future__ import annotations

import json
import os
import sys

import pytest
from mcp_kit import ENV

from core.errors import UserError
from mcp_server.__main__ import main
from mcp_server.run import find_task, hand_over, parser

P = "Export the orders of March"
LESSON = "Sort the rows by date first."
STAND_IN = f"""#!{sys.executable} -SE
import json, os, sys
given = {{name: os.environ.get("REASONINGBANK_" + name) for name in ("MEMORY", "TASK", "MEMORY_FILE")}}
file = open(given["MEMORY_FILE"]).read() if given["MEMORY_FILE"] else None
stdin = sys.stdin.read() if os.environ.get("READ_STDIN") else None
with open(os.environ["SEEN"], "a") as seen:
    print(json.dumps({{"argv": sys.argv[1:], "file": file, "stdin": stdin, **given}}), file=seen)
"""
AGENTS = (
    ["claude", "-p", P, "--model", "opus", "--allowedTools", "Bash(git log:*)", "Read"],
    ["claude", "--output-format", "json", "-p", "--append-system-prompt", "Use {memory} and {prompt}.", P],
    ["codex", "exec", "-m", "gpt-5", "-c", 'model_reasoning_effort="high"', "--json", P],
    ["codex", "exec", "--full-auto", P, "-i", "a.png", "b.png"],
    ["claude", "--allowedTools", "Bash(git log:*)", "Read", "-p", P],
    ["/usr/bin/claude", "--new-option", "x", "-p", "--", P],
    ["gemini", f"--prompt={P}", "-y"],
    ["qwen", "-y", P],
    ["opencode", "run", "-m", "a/b", "--title", "March", P],
    ["ollama", "run", "--format", "json", "llama3:8b", P],
    ["llm", "-m", "gpt-4o", "-o", "temperature", "0", "-s", "be brief", P],
    ["aider", "--yes", "--model", "sonnet", "--message", P, "orders.py"],
    ["goose", "run", "--no-session", "-t", P],
    ["cursor-agent", "-p", "--output-format", "text", P],
    ["copilot", "-p", P, "--allow-all-tools"],
    ["openhands", "--headless", "-t", P],
)
OTHERS = (
    ["psql", "-p", "5432", "-c", "SELECT count(*) FROM orders"],
    ["docker", "run", "-p", "80:80", "-t", "-m", "512m", "image", "run", "exec it"],
    ["docker", "exec", "-it", "box", "bash", "-c", "echo one two"],
    ["ssh", "-p", "2222", "host", "run the report"],
    ["bash", "-c", "echo {memory} and {prompt}"],
    ["git", "commit", "-m", "Say {memory} in the docs"],
    ["python3.99", "-m", "http.server", "-p", "8000"],
    ["kubectl", "exec", "-t", "pod", "--", "sh", "-c", "two words"],
    ["npx", "claude", "-p", P],
    ["env", "A=1", "claude", "-p", P],
    ["claude", "mcp", "add", "box"],
    ["claude", "--append-system-prompt", "Be brief"],
    ["claude", "--append-system-prompt=Be brief", "-p", "fix"],
    ["claude", "-p", "two prompts", "or three"],
    ["codex", "exec", "-c", "model = o", "fix"],
    ["codex", "exec", "-"],
    ["aider", "-f", "my task.md"],
    ["goose", "run", "-i", "my file.md"],
    ["gemini", "-p"],
    ["claude", "-p", " "],
    ["llm", "logs", "-n", "3"],
    ["claude", "-p", "/review 12"],
)


# Those that are run as well: the prompt behind an option and in another place, and each reason to leave one alone.
RUN = ("aider", "qwen", "psql", "bash", "npx")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(words, command): what the stand-in saw; None if nothing was run, with exit code 2."""
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("REASONINGBANK_TASK", raising=False)
    programs, bank, seen = tmp_path / "bin", tmp_path / "b.sqlite", tmp_path / "seen"
    programs.mkdir()
    for name in {command[0] for command in (*AGENTS, *OTHERS)} | {"my-agent"}:
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("SEEN", str(seen))
    saved = ["save_lesson", "--bank", str(bank), "--embedder", "hashing-256"]
    assert main([*saved, "--query", P, "--title", "Sort", "--content", LESSON]) == 0

    def ran(words, command):
        seen.unlink(missing_ok=True)
        status = main(["run", "--bank", str(bank), *map(str, words), "--", *command])
        assert status == (0 if seen.exists() else 2)
        return json.loads(seen.read_text()) if seen.exists() else None

    return ran


def test_of_each_agents_command_the_prompt_alone_is_changed(monkeypatch, subtests):
    monkeypatch.delenv("REASONINGBANK_TASK", raising=False)
    for command in AGENTS:
        with subtests.test(" ".join(command)):
            task, prompt = find_task(parser().parse_args(["--bank", "b"]), command)
            assert task == P
            changed = zip(command, hand_over(command, prompt, task, LESSON), strict=True)
            [(old, new)] = [(old, new) for old, new in changed if old != new]
            assert new == old.removesuffix(P) + f"{LESSON}\n\nTask: {P}"


def test_the_task_that_is_named_is_found_where_it_stands_alone(subtests):
    given = parser().parse_args(["--bank", "b", "--task", "fix"])
    for command, place in (
        (["claude", "--append-system-prompt", "Be brief", "-p", "fix"], 4),
        (["codex", "exec", "--an-option", "fix"], 3),
        (["agent", "--task", "fix"], 2),
        (["agent", "-v", "--prompt=fix", "--model", "x"], 2),
        (["python", "agent.py", "--goal", "fix"], 3),
        (["git", "commit", "-m", "fix"], None),
        (["git", "commit", "--message", "fix"], None),
        (["agent", "--task", "fix now"], None),
        (["agent", "--task", "fix", "--title", "fix"], None),
        (["agent", "--task"], None),
        (["claude", "-p", "fix", "fix"], None),
        (["claude", "-p", "fixed"], None),
        (["agent", "fix"], None),
    ):
        with subtests.test(" ".join(command)):
            _, prompt = find_task(given, command)
            assert (prompt and prompt.place) == place
            changed = hand_over(command, prompt, "fix", LESSON)
            assert [n for n, word in enumerate(changed) if LESSON in word] == ([] if place is None else [place])


def test_any_other_command_is_left_as_it_is_or_refused(monkeypatch, subtests):
    for command in OTHERS:
        with subtests.test(" ".join(command)), monkeypatch.context() as patch:
            patch.delenv("REASONINGBANK_TASK", raising=False)
            task, prompt = find_task(parser().parse_args(["--bank", "b", "--task", P]), command)
            assert (task, prompt) == (P, None) and hand_over(command, prompt, task, LESSON) == command
            with pytest.raises(UserError, match="--task TEXT"):
                find_task(parser().parse_args(["--bank", "b"]), command)
            patch.setenv("REASONINGBANK_TASK", "the outer task")
            assert find_task(parser().parse_args(["--bank", "b"]), command) == ("the outer task", None)


def test_of_an_agents_command_that_is_run_the_prompt_alone_is_changed(run, subtests):
    for command in (each for each in AGENTS if each[0] in RUN):
        with subtests.test(" ".join(command)):
            got = run([], command)
            assert got["TASK"] == P
            changed = [(old, new) for old, new in zip(command[1:], got["argv"], strict=True) if old != new]
            assert len(changed) == 1 and changed[0][0] == P
            assert LESSON in changed[0][1] and changed[0][1].endswith(f"Task: {P}")
            assert LESSON in got["MEMORY"] and LESSON in got["file"]


def test_any_other_command_is_run_as_it_is_or_not_at_all(run, capsys, subtests):
    for command in (each for each in OTHERS if each[0] in RUN):
        with subtests.test(" ".join(command)):
            got = run(["--task", P], command)
            assert got["argv"] == command[1:] and got["TASK"] == P
            assert LESSON in got["MEMORY"] and LESSON in got["file"]
            capsys.readouterr()
            assert run([], command) is None and "--task TEXT" in (said := capsys.readouterr().err)
            assert said.startswith("error: ") and said.count("\n") == 1


def test_agents_and_domains_are_apart(run, tmp_path):
    saved = ["save_lesson", "--bank", str(tmp_path / "b.sqlite"), "--agent-id", "one", "memory.domain=api"]
    assert main([*saved, "--query", P, "--title", "Sort", "--content", "Sort them by their number."]) == 0
    for words, expected in (
        (["--agent-id", "one", "--domain", "api"], 1),
        (["--agent-id", "one", "--domain", "web"], 0),
        (["--agent-id", "two", "--domain", "api"], 0),
    ):
        assert ("by their number" in run(words, ["claude", "-p", P])["MEMORY"]) == expected, words


def test_the_lessons_reach_an_unknown_agent_in_each_way(run, tmp_path, monkeypatch):
    command = ["my-agent", "--context", "{memory}", "--ask", "{prompt}", "--note", "the {memory}", "-p", "x y"]
    got = run(["--task", P], command)
    assert LESSON in got["argv"][1] and got["argv"][3] == f"{got['argv'][1]}\n\nTask: {P}"
    assert got["argv"][4:] == command[5:]
    (tmp_path / "TASK.md").write_bytes(b"\xef\xbb\xbf" + P.encode())
    got = run(["--task-file", tmp_path / "TASK.md", "--memory-file", tmp_path / "lessons.md"], ["my-agent"])
    assert got["argv"] == [] and got["TASK"] == P and LESSON in (tmp_path / "lessons.md").read_text()
    monkeypatch.setenv("REASONINGBANK_TASK", P)
    assert LESSON in run([], ["my-agent", "-m", "a b"])["MEMORY"]
    monkeypatch.setenv("READ_STDIN", "1")
    for how, rest in (("memory", ""), ("prompt", f"\n\nTask: {P}")):
        got = run(["--task", P, "--stdin", how], ["claude", "-p", P])
        assert LESSON in got["stdin"] and got["stdin"].endswith(rest) and got["argv"] == ["-p", P]


def test_a_placeholder_is_no_task(run, capsys):
    for command in (["claude", "-p", "{memory}"], ["claude", "-p", "{prompt}"], ["codex", "exec", "{prompt}"]):
        assert run([], command) is None and "--task TEXT" in capsys.readouterr().err
        assert LESSON in run(["--task", P], command)["argv"][-1]


def test_without_lessons_nothing_is_changed(run):
    assert run(["--domain", "other"], ["claude", "-p", P])["argv"] == ["-p", P]
