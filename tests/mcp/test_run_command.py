"""reasoningbank run: lessons reach any command, what it did is learned, and nothing of it stops the task."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import forkserver
import pytest
from conftest import REPO
from mcp_kit import ENV, MODEL, here, run_here  # noqa: F401 - run_here is a fixture

from core.errors import UserError
from mcp_server.run import find_task, hand_over, parser, split
from mcp_server.run_command import HEAD, TAIL, HeadAndTail
from mcp_server.task_memory import CLOSING, last_words
from mcp_server.tools import MemoryTools

AGENT = """\
import os, sys
prompt = sys.argv[-1] if len(sys.argv) > 1 else sys.stdin.read()
print("I was told:", prompt)
print("file:", open(os.environ["REASONINGBANK_MEMORY_FILE"]).read())
print()
print("Sort the rows by date first, then write the file.")
print("to stderr", file=sys.stderr)
sys.exit(int(os.environ.get("AGENT_EXIT", "0")))
"""
TASK = "Export the orders of March to a file"


@pytest.fixture
def agent(tmp_path):
    """A stand-in with the command line of an agent that is known: AGENT -p PROMPT."""
    file = tmp_path / "claude"
    file.write_text(f"#!{sys.executable}\n{AGENT}")
    file.chmod(0o755)
    return [str(file)]


def around(bank, *words, command, status=0, stdin=None, env=None):
    """(the finished process, its result object)."""
    result = Path(tempfile.mkdtemp()) / "result.json"
    line = [sys.executable, "-m", "mcp_server", "run", "--bank", str(bank), "--embedder", "hashing-256"]
    line += ["--result", str(result), *map(str, words), "--", *command]
    how = {"cwd": REPO, "env": {**os.environ, **ENV, **(env or {})}, "capture_output": True, "text": True}
    done = forkserver.run(line, input=stdin, timeout=120, **how)
    assert done.returncode == status, done.stderr
    return done, json.loads(result.read_text()) if result.is_file() else None


def taught(bank, *lessons):
    """Put lessons into a bank as a client does."""
    with here(bank) as (_, service):
        for query, content in lessons:
            MemoryTools(service).save_lesson(query=query, title=query, content=content)


SORT = "Sort the rows by date first, then write the file."


def test_a_bank_grows_around_a_command_that_names_its_own_task(tmp_path, agent):
    bank = tmp_path / "b.sqlite"
    done, first = around(bank, "--closing-words", command=[*agent, "-p", TASK])
    assert done.stdout.startswith(f"I was told: {TASK}\n")  # without lessons the prompt is the command's own, untouched
    assert "to stderr" in done.stderr
    assert (first["success"], first["exit_status"], first["memories_retrieved"]) == (True, 0, 0)
    assert first["memories_learned"] == 1 and first["verdict"]["label"] == "success" and first["warnings"] == []
    done, second = around(bank, "--closing-words", command=[*agent, "-p", TASK + " again"])
    assert "Sort the rows by date first" in done.stdout.split("file:")[0] and f"Task: {TASK} again" in done.stdout
    assert "memory: [1] " + TASK in done.stderr
    assert second["retrieved"] == [first["learned"][0]] and second["used"] == second["retrieved"]
    assert "Sort the rows by date first" in done.stdout.split("file:")[1]
    done, _ = around(bank, "--task", TASK, command=["cat"], stdin="typed")
    assert done.stdout == "typed"  # stdin is the command's own unless it is asked for


def test_exit_status_output_and_judges_are_the_commands_own(tmp_path, agent, run_here, monkeypatch):  # noqa: F811
    bank, told = tmp_path / "b.sqlite", [*agent, "-p", TASK]
    monkeypatch.setenv("AGENT_EXIT", "3")
    *_, found = run_here(bank, "--judge", "exit-code", "--closing-words", command=told, status=3)
    assert found["verdict"] == found["verdict"] | {"label": "failure", "source": "exit_code"}
    assert found["exit_status"] == 3 and found["success"] is False
    monkeypatch.delenv("AGENT_EXIT")
    failing = ["bash", "-c", "echo 'FAILED tests/test_export.py'; echo '2 failed, 10 passed in 3 s' >&2"]
    *_, found = run_here(bank, "--task", TASK, command=failing)  # the status of a pipe, for instance, hides it
    assert found["verdict"]["label"] == "failure" and found["exit_status"] == 0 and found["success"] is False
    assert "--closing-words" in found["why_not"]
    out, err, _ = run_here(bank, "--json", "--closing-words", "--task", TASK, command=["echo", "Done."])
    assert json.loads(out)["output"] == "Done.\n" and "Done." in err
    *_, found = run_here(bank, "--judge", "none", "--closing-words", command=told)
    assert found["verdict"]["label"] is None and found["memories_learned"] == 0 and "not judged" in found["why_not"]
    *_, found = run_here(bank, *MODEL, command=told)
    assert found["verdict"]["source"] == "llm" and found["memories_learned"] == 1
    *_, found = run_here(bank, "--task", TASK, command=["no-such-command"], status=127)
    assert (found["exit_status"], found["verdict"]) == (127, None)  # nothing was attempted


def test_placeholders_are_arguments_of_their_own():
    command = ["agent", "--system", "{memory}", "--ask", "{prompt}", "--note", "of {memory}"]
    filled = ["agent", "--system", "L", "--ask", f"L\n\nTask: {TASK}", "--note", "of {memory}"]
    assert hand_over(command, None, TASK, "L") == filled
    with pytest.raises(UserError, match="{prompt} stands for"):
        find_task(parser().parse_args(["--bank", "b"]), ["claude", "-p", "{prompt}"])


@pytest.mark.parametrize("n", [0, HEAD, HEAD + TAIL, HEAD + TAIL + 1, 5 * TAIL])
def test_of_a_long_output_the_beginning_and_the_end_are_kept(n):
    kept, data = HeadAndTail(), (b"0123456789" * (n // 10 + 1))[:n]
    for start in range(0, n, 65_536):
        kept.add(data[start : start + 65_536])
    whole = n <= HEAD + TAIL
    assert kept.text() == (data if whole else data[:HEAD] + b"\n[...]\n" + data[-TAIL:]).decode()


def test_what_stands_before_the_first_dashes_is_ours():
    assert split(["--bank", "b", "--", "x", "--", "y"]) == (["--bank", "b"], ["x", "--", "y"])


def test_nothing_that_memory_does_stops_the_task(tmp_path, agent):
    """What docs/run.md says can go wrong, case by case."""
    bank, command = tmp_path / "b.sqlite", [*agent, "-p", TASK]
    taught(bank, (TASK, SORT))

    def row(path, *words, says):
        done, found = around(path, *words, command=command)
        assert "I was told" in done.stdout and found["exit_status"] == 0
        assert any(says in warning["why"] for warning in found["warnings"]), found["warnings"]
        assert done.stderr.count("memory: warning") == len(found["warnings"])
        return found

    (tmp_path / "file").touch()
    row(tmp_path / "file" / "b.sqlite", says="file")  # no folder, and none can be made
    corrupt = tmp_path / "corrupt.sqlite"
    corrupt.write_bytes(b"\x00not a bank" * 500)
    row(corrupt, says="corrupt.sqlite")
    torn = tmp_path / "torn.sqlite"
    data = bank.read_bytes()
    torn.write_bytes(data[: len(data) // 2])
    assert row(torn, "--closing-words", says="set aside")["memories_learned"] == 1
    locked = tmp_path / "locked.sqlite"
    shutil.copy(bank, locked)
    holder = sqlite3.connect(locked, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    row(locked, "--memory-timeout", 1, "--learn-timeout", 0.5, "--closing-words", says="not done within")
    holder.close()
    row(bank, "embedder=openai", says="")
    row(bank, "--memory-file", tmp_path / "file" / "x.md", says="x.md")
    row(bank, *MODEL, "llm.delay_s=30", "--learn-timeout", 0.5, says="not done within")


def test_a_task_or_lessons_too_long_for_the_system_do_not_keep_the_command_from_starting(tmp_path, agent):
    bank, task = tmp_path / "b.sqlite", f"{TASK} "
    taught(bank, (TASK, SORT))
    (tmp_path / "TASK.md").write_text(task * 6_000)  # over the 128 KiB that Linux takes of one variable
    words = ("--task-file", tmp_path / "TASK.md", "--stdin", "prompt")
    shell = ["bash", "-c", 'echo "${REASONINGBANK_TASK-left out}, ${#REASONINGBANK_MEMORY}"; cat']
    done, found = around(bank, *words, command=shell, env={"REASONINGBANK_TASK": "of an outer command"})
    first, _, prompt = done.stdout.partition("\n")
    assert first.startswith("left out, ") and int(first.split()[-1]) > 0 and found["warnings"] == []
    assert "Sort the rows by date first" in prompt and prompt.rstrip().endswith((task * 6_000).rstrip())

    long = (task * 4_000)[: 128 * 1024 - 40].strip()  # fits as it is, and does not behind the lessons
    done, found = around(bank, command=[*agent, "-p", long])
    told, _, file = done.stdout.partition("file:")
    assert told == f"I was told: {long}\n" and "Sort the rows by date first" in file
    assert "too long" in found["warnings"][0]["why"]


def test_a_round_of_consolidation_that_fails_is_a_warning_and_is_counted(tmp_path, agent, run_here):  # noqa: F811
    bank = tmp_path / "b.sqlite"
    words = ("llm=scripted", "llm.script.path=mcp_kit.no_merges", "memory/consolidate/merge=llm")
    words += tuple(f"memory.consolidate.{key}" for key in ("every=1", "deduplicate=null", "background=false"))
    for number in range(3):
        *_, found = run_here(
            bank, *words, "memory.hygiene.strip=false", command=[*agent, "-p", f"{TASK}, part {number}"]
        )
        assert found["memories_learned"] == 1
    *_, copied = run_here(
        bank, *words, command=[*agent, "-p", f"{TASK}, part 4"]
    )  # the same lesson, which it was shown
    assert copied["memories_learned"] == 0 and copied["set_aside"]["state"] == "archived"
    assert "the lesson is archived" in copied["why_not"]
    assert "the model broke" in found["warnings"][0]["why"]
    with here(bank) as (_, service):
        told = json.loads(MemoryTools(service).bank_status().text)["warnings"]
    assert told["counts"] == {"learn": 1} and "the model broke" in told["last"]["why"]


def test_signals_reach_the_command_and_are_its_end(tmp_path):
    line = [sys.executable, "-m", "mcp_server", "run", "--bank", str(tmp_path / "b.sqlite")]
    waiting = "trap 'echo stopped; exit 7' TERM; echo ready; sleep 60 >/dev/null 2>&1 & wait"
    line += ["--embedder", "hashing-256", "--task", "wait", "--", "bash", "-c", waiting]
    process = forkserver.Popen(line, cwd=REPO, env={**os.environ, **ENV}, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "stopped\n"
    process.kill() if process.poll() is None and process.wait(90) is None else None
    assert process.returncode == 7


def test_it_is_said_where_no_prompt_holds_the_lessons_and_silence_is_no_failure(tmp_path, run_here, monkeypatch):  # noqa: F811
    bank, settings = tmp_path / "b.sqlite", tmp_path / "settings.yaml"
    taught(bank, *((f"{TASK} of year {n}", f"Rule {n * 'very '}well.") for n in range(4)))
    _, said, found = run_here(bank, "--task", TASK, "--judge", "heuristic", command=["true"])
    assert "no argument of true is known to be its prompt" in said
    assert (found["success"], found["verdict"]["label"], found["lessons_in"]) == (True, "success", "variables")
    assert found["memories_retrieved"] == 3
    *_, found = run_here(bank, "--task", TASK, "--judge", "heuristic", command=["false"], status=1)
    assert found["verdict"]["label"] == "failure"
    settings.write_text("retrieval:\n  top_k: 4\n")
    monkeypatch.setenv("REASONINGBANK_SETTINGS", str(settings))
    say = ["sh", "-c", 'test -n "$REASONINGBANK_MEMORY"']
    _, said, found = run_here(bank, "--task", TASK, command=say)
    assert found["memories_retrieved"] == 4 and "known to be its prompt" not in said
    *_, found = run_here(bank, "--task", TASK, "--k", 2, "--stdin", "memory", command=["cat"])
    assert (found["memories_retrieved"], found["lessons_in"]) == (2, "stdin")


def test_closing_words_begin_with_a_sentence_or_at_least_a_word():
    assert last_words("Short.") == "Short."
    assert last_words("First one. " + "word " * 399 + "end. Last.") == "Last."
    for text in (("word " * 500).strip(), "第一句。" * 600):
        said = last_words(text)
        assert text.endswith(said) and 1990 <= len(said) <= CLOSING and said.startswith(("word", "第"))
