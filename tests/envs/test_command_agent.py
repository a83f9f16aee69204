"""agent=command: a program is the attempt. Shell scripts stand for agents, a server on this machine for the model."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import forkserver
import pytest
from conftest import REPO, command, read_rows, wait_for
from provider import Provider, completion
from swe_kit import bubblewrap

from core.command_agent import CommandAgent
from core.errors import UserError
from core.models import api_forms
from scripts.audit import main as audit

pytestmark = bubblewrap
WORD = "the colour is teal"
# Solves a task where it finds the lesson in what it was given, whichever way that came.
READS = (
    "cat {task_file} AGENTS.md .claude/skills/*/SKILL.md 2>/dev/null | grep -q 'the colour is teal' && "
    "echo teal > colour.txt; true"
)
ALONE = ("agent=command", "agent.needs_model=false", "llm=scripted", "embedder=hashing")
# A model's client of ten lines, as an agent has one.
ASKS = """
import json, os, sys, urllib.error, urllib.request
asked = {"model": sys.argv[1], "messages": [{"role": "user", "content": open(sys.argv[3]).read()}]}
for turn in range(int(sys.argv[4])):
    headers = {"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(sys.argv[2] + "/chat/completions", json.dumps(asked).encode(), headers)
    try:
        said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        sys.exit(error.read().decode())
    asked["messages"] += [said, {"role": "user", "content": f"result {turn}"}]
open("colour.txt", "w").write(said["content"])
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> Path:
    """Two tasks that want the word teal in colour.txt, with a lesson that says so."""
    folder = tmp_path_factory.mktemp("tasks")
    for name in ("one", "two"):
        here = folder / name
        (here / "repo" / "src").mkdir(parents=True)
        (here / "repo" / "colour.txt").write_text("red\n")
        (here / "repo" / "AGENTS.md").write_text("Be brief.\n")
        (here / "task.md").write_text("Write the right colour into colour.txt.")
        (here / "lesson.md").write_text(f"# The colour\n\nHere {WORD}, always.\n")
        (here / "check").write_text("#!/bin/sh\ngrep -qx teal colour.txt && [ \"$(cat AGENTS.md)\" = 'Be brief.' ]\n")
        (here / "check").chmod(0o755)
    return folder


def run(line: str) -> str:
    """agent.command=LINE in Hydra's grammar."""
    quoted = line.replace("'", "\\'")
    return f"agent.command='{quoted}'"


def statuses(run_dir):
    return [row["status"] for row in read_rows(run_dir)]


def test_a_script_of_one_line_plays_a_folder(tasks, tmp_path, here):
    words = ("env=folders", f"env.path={tasks}", *ALONE, "workflow=vanilla")
    run_dir, rate = here(*words, "agent.command='echo teal > colour.txt'", run_dir=tmp_path / "right")
    assert rate == 1.0 and statuses(run_dir) == ["success", "success"]
    [attempt] = read_rows(run_dir)[0]["trajectories"]
    assert [step["action"] for step in attempt["steps"]] == ["echo teal > colour.txt", "(submit what the command left)"]
    assert "+teal" in attempt["answer"] and audit([str(run_dir)]) == 0
    words += ("agent.command='echo red >> colour.txt; exit 3'", "limit=1")
    run_dir, rate = here(*words, run_dir=tmp_path / "wrong")
    assert rate == 0.0 and "<returncode>3</returncode>" in json.dumps(read_rows(run_dir))


@pytest.mark.parametrize(("deliver", "control"), [("prompt", "no_memory"), ("file", "placebo"), ("skill", "placebo")])
def test_each_way_of_delivery_brings_the_lesson_and_a_control_does_not(deliver, control, tasks, tmp_path, here):
    """The agent solves a task if it finds the lesson."""
    words = ("env=folders", f"env.path={tasks}", "limit=1", *ALONE, run(READS), f"agent.deliver={deliver}")
    for arm, rate in (("told_lesson", 1.0), (control, 0.0)):
        run_dir, found = here(*words, f"arm={arm}", run_dir=tmp_path / arm)
        assert (arm, found) == (arm, rate)
        assert WORD not in json.dumps([row["trajectories"][0]["answer"] for row in read_rows(run_dir)])


CLIENT = """
import json, subprocess, sys
[server] = json.load(open(sys.argv[1]))["mcpServers"].values() or [None]
if server is None:
    sys.exit()
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
bridge = subprocess.Popen([server["command"], *server["args"]], **pipes)
def ask(number, method, **params):
    line = {"jsonrpc": "2.0", "method": method, "params": params} | ({"id": number} if number else {})
    bridge.stdin.write(json.dumps(line) + "\\n")
    bridge.stdin.flush()
    return number and json.loads(bridge.stdout.readline())
about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}
ask(1, "initialize", **about)
ask(0, "notifications/initialized")
tools = [tool["name"] for tool in ask(2, "tools/list")["result"]["tools"]]
assert "retrieve_memory" in tools, tools
found = ask(3, "tools/call", name="retrieve_memory", arguments={"query": "the colour"})
if "the colour is teal" in found["result"]["content"][0]["text"]:
    open("colour.txt", "w").write("teal\\n")
"""


@pytest.mark.slow
def test_lessons_are_asked_for_over_mcp(tasks, tmp_path_factory, tmp_path, here):
    """As the other ways."""
    folder = tmp_path_factory.mktemp("client")
    folder.chmod(0o755)
    (folder / "client.py").write_text(CLIENT)
    line = f"python3 {folder}/client.py {{mcp_config}}"
    words = ("env=folders", f"env.path={tasks}", *ALONE, run(line), f"agent.shows=[{folder}/client.py]")
    words += ("agent.deliver=mcp", "limit=1")
    for arm, rate in (("told_lesson", 1.0), ("no_memory", 0.0), ("placebo", 0.0)):
        _, found = here(*words, f"arm={arm}", run_dir=tmp_path / arm)
        assert (arm, found) == (arm, rate)


def test_a_file_of_ones_own_is_an_arm(tasks, tmp_path, here):
    own = tmp_path / "mine.md"
    own.write_text(f"Remember: {WORD}.")
    words = ("env=folders", f"env.path={tasks}", *ALONE, run(READS))
    words += ("arm=no_memory", "agent.deliver=file", f"agent.own_file={own}")
    _, rate = here(*words, "limit=1", run_dir=tmp_path / "run")
    assert rate == 1.0
    own.write_text("Remember nothing.")
    with pytest.raises(UserError, match="own_file"):  # half of a run would be of another file
        here(*words, "limit=1", run_dir=tmp_path / "run")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("REAL_KEY", "sk-real-of-the-test")
    made = Provider(lambda request, number: (200, completion("teal" if number % 2 == 0 else "let me look")))
    yield made
    made.close()


@pytest.fixture(scope="module")
def program_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("agent")
    folder.chmod(0o755)  # in the sandbox it is another user's
    (folder / "agent.py").write_text(ASKS)
    return folder


def asking(tasks, server, folder, turns: int) -> tuple[str, ...]:
    line = f"python3 {folder}/agent.py {{model}} {{base_url}} {{task_file}} {turns}; env > /tmp/home/env"
    return (
        *("env=folders", f"env.path={tasks}", "agent=command", run(line)),
        *(f"agent.shows=[{folder}]", "+agent.variables.KEY='{api_key}'", "embedder=hashing"),
        *("max_concurrency=1", "llm=vllm", "llm.model=hosted_vllm/small"),
        *(f"llm.api_base={server.url}", "llm.api_key_env=REAL_KEY"),
    )


def test_its_calls_of_the_model_are_passed_on_counted_and_told(tasks, server, program_folder, tmp_path, here):
    """Two calls a task, each with the tokens of `provider.completion`."""
    words = asking(tasks, server, program_folder, 2)
    run_dir, rate = here(*words, "workflow=vanilla", run_dir=tmp_path / "run")
    assert rate == 1.0
    used = [row["usage"]["agent"] for row in read_rows(run_dir)]
    one = completion("")["usage"]
    assert [(u["calls"], u["prompt_tokens"]) for u in used] == [(2, 2 * one["prompt_tokens"])] * 2
    calls = read_rows(run_dir, "calls.jsonl")
    assert [call["text"] for call in calls] == ["let me look", "teal"] * 2
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer sk-real-of-the-test"}
    assert {request["model"] for request in server.requests} == {"small"}
    thought = read_rows(run_dir)[0]["trajectories"][0]["steps"][1]["thought"]
    assert thought == "agent: let me look\nresult: result 0\nagent: teal"
    assert b"sk-real-of-the-test" not in b"".join(file.read_bytes() for file in run_dir.rglob("*") if file.is_file())
    assert audit([str(run_dir)]) == 0


def test_a_budget_ends_it(tasks, server, program_folder, tmp_path, here):
    words = (*asking(tasks, server, program_folder, 2), "workflow=vanilla", "budget.episode.calls=1", "limit=1")
    run_dir, rate = here(*words, run_dir=tmp_path / "run")
    assert rate == 0.0 and len(server.requests) == 1  # what it left then is its answer
    assert statuses(run_dir) == ["failure"]
    assert "budget of this attempt is used up" in read_rows(run_dir)[0]["trajectories"][0]["steps"][0]["observation"]


HOSTILE = {
    "forks without end": ("f() {{ f | f & }}; f; sleep 1", "red"),
    "leaves a daemon": ("setsid sh -c 'sleep 1; echo teal > /testbed/colour.txt' & disown", "red"),
    "writes outside": ("echo teal > /usr/colour.txt || echo teal > /given/task.md || echo teal > /relay/x", "red"),
    "looks for the check": (
        "[ -n \"$(find / -path /proc -prune -o -name check -exec grep -l 'grep -qx teal' {{}} +)\" ] && "
        "echo teal > colour.txt",
        "red",
    ),
    "reaches the network": (
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 8707), 2)\" && echo teal > colour.txt",
        "red",
    ),
    "rewrites history": ("echo teal > colour.txt; git add -A; git commit -qm x; git commit --amend -qm y", "teal"),
    "removes the history": ("echo teal > colour.txt; rm -rf .git; mkdir .git; echo junk > .git/HEAD", "teal"),
    "hides its change by configuration": (
        "echo teal > colour.txt; git config --global core.excludesFile /testbed/x; echo '*' > x; "
        "git config core.fsmonitor /bin/false; git update-index --assume-unchanged colour.txt; rm x",
        "teal",
    ),
    "prints without end": ("echo teal > colour.txt; yes a line that goes on and on", "teal"),
    "takes all memory": ("echo teal > colour.txt; python3 -c \"[b'x' * 10**8 * n for n in range(400)]\"", "teal"),
    "sleeps for ever": ("echo teal > colour.txt; sleep 1000", "teal"),
    "leaves another repository": ("git init -q sub; echo a > sub/a; echo teal > colour.txt", "teal"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_hostile_agent_tries_is_held(name, tasks, tmp_path, here):
    """What is in colour.txt afterwards decides, and nothing is left of the agent."""
    line, left = HOSTILE[name]
    words = ("env=folders", f"env.path={tasks}", *ALONE, "workflow=vanilla", "limit=1", "agent.timeout_s=6")
    run_dir, rate = here(*words, run(line), run_dir=tmp_path / "run")
    [row] = read_rows(run_dir)
    assert row["status"] != "infra_error" and rate == float(left == "teal")
    assert (tasks / "one" / "repo" / "colour.txt").read_text() == "red\n"
    assert not subprocess.run(["pgrep", "-f", "/testbed/colour.tx[t]"], capture_output=True, check=False).stdout


@pytest.mark.slow
def test_a_killed_run_goes_on_and_leaves_nothing(tasks, tmp_path):
    run_dir, home = tmp_path / "run", tmp_path / "tmp"
    home.mkdir()
    words = ("env=folders", f"env.path={tasks}", *ALONE, "workflow=vanilla", "limit=1", f"run_dir={run_dir}")
    words += ("agent.command='echo teal > colour.txt; sleep 20'", "agent.timeout_s=3")
    surroundings = os.environ | {"TMPDIR": str(home)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = forkserver.Popen(command(*words), env=surroundings, cwd=tmp_path, **quiet)
    wait_for(lambda: any(home.glob("reasoningbank-sandbox-*/given/task.md")))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_for(lambda: list(home.iterdir()) == [])
    done = forkserver.run(command(*words), env=surroundings, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert statuses(run_dir) == ["success"] and list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"command": " "}, "say what to run"),
        ({"command": "x {tsk}"}, "'tsk' is no field: known are {task_file}"),
        ({"command": "x", "deliver": "post"}, "choose prompt, file, skill or mcp"),
        ({"command": "x", "deliver": "mcp"}, "must hand the file {mcp_config} to the program"),
        ({"command": "x", "file": "../AGENTS.md"}, "give a path within the repository"),
        ({"command": "x", "own_file": "/nowhere"}, "cannot be read"),
        ({"command": "x", "shows": ["/nowhere"]}, "there is no /nowhere"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(wrong, said):
    with pytest.raises(UserError, match=said.replace("{", "\\{")):
        CommandAgent(answer_format="", **wrong)


STREAM = b"""event: message_start
data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":7,"output_tokens":1}}}

data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}
data: {"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{}"}}
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}
"""


def test_a_stream_of_events_is_read_as_the_answer_that_it_comes_to():
    found = api_forms.told(STREAM)
    assert found == {"model": "m", "usage": {"input_tokens": 7, "output_tokens": 9}, "text": "a{}"}
    lines = [{"choices": [{"delta": {"content": part}}]} for part in ("a", "b")] + [{"choices": [], "usage": {"x": 1}}]
    found = api_forms.told(b"\n".join(b"data: " + json.dumps(line).encode() for line in lines) + b"\ndata: [DONE]\n")
    assert found == {"usage": {"x": 1}, "text": "ab"}


@pytest.mark.parametrize("preset", sorted(file.stem for file in (REPO / "config/agent/command").glob("*.yaml")))
def test_each_preset_names_fields_that_there_are(preset, compose):
    made = compose(f"agent=command/{preset}", "env=folders", "env.path=x").agent
    agent = CommandAgent(**{key: value for key, value in made.items() if key != "_target_"})
    assert "{task_file}" in agent.command and agent.deliver == "prompt"


def test_cached_and_foreign_counts_are_read():
    """Anthropic: 5 + 100 + 7 read and written beside; Gemini by its own names; a stream of it."""
    usage = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7}
    counts = api_forms.usage_of({"usage": usage})
    assert (counts["prompt_tokens"], counts["prompt_tokens_details"]["cached_tokens"]) == (112, 100)
    part = {"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}}]}
    of_gemini = {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3, "thoughtsTokenCount": 4}}
    found = api_forms.told(
        b"data: " + json.dumps(part).encode() + b"\n\ndata: " + json.dumps(part | of_gemini).encode()
    )
    assert found["text"] == "aa" and api_forms.usage_of(found)["completion_tokens"] == 7
    assert api_forms.text_of(part) == "a" and api_forms.usage_of({}) is None


ODD = [1, "x", None, {}, [[]], {"role": 1}, {"tool_calls": [1, {"function": "x"}]}, {"tool_calls": 5}]
ODD += [{"content": [None, 3]}]


def test_nothing_that_an_agent_sends_is_an_error():
    for one in ODD:
        for asked in ({"messages": one}, {"messages": [one]}, {"choices": [one]}, {"choices": one}, {"output": [one]}):
            messages = api_forms.messages_of(asked)
            assert isinstance(api_forms.transcript(messages, api_forms.text_of(asked)), str)
            assert isinstance(api_forms.told(b"data: " + json.dumps({"choices": [{"delta": one}]}).encode()), dict)


PATHS = """
import json, os, socket, sys
from urllib.parse import urlsplit
at = urlsplit(sys.argv[1])
for line in ("POST @evil.example/v1/chat/completions", "POST /v1/files", "GET /v1/files", "GET /v1/models/%2e%2e/files",
             "DELETE /v1/chat/completions", "GET http://evil.example/v1/models", "GET /v1/../admin",
             "POST /v1/chat/completions -1"):
    with socket.create_connection((at.hostname, at.port)) as made:
        method, path, *size = line.split()
        body = "transfer-encoding: chunked\\r\\n\\r\\n-1\\r\\n" if size else "content-length: 2\\r\\n\\r\\n{}"
        head = f"{method} {path} HTTP/1.1\\r\\nhost: x\\r\\nauthorization: {os.environ['KEY']}\\r\\n"
        made.sendall(f"{head}{body}".encode())
        print(made.recv(200).split()[1].decode())
"""


def test_the_relay_reaches_the_model_alone(tasks, server, tmp_path_factory, tmp_path, here):
    folder = tmp_path_factory.mktemp("paths")
    folder.chmod(0o755)
    (folder / "paths.py").write_text(PATHS)
    words = (*asking(tasks, server, folder, 1), run(f"python3 {folder}/paths.py {{base_url}}"))
    run_dir, _ = here(*words, "workflow=vanilla", "limit=1", run_dir=tmp_path / "run")
    said = read_rows(run_dir)[0]["trajectories"][0]["steps"][0]["observation"]
    assert [word for word in said.split() if word.isdigit()] == ["403"] * 7 + ["413"] and server.requests == []


def test_a_real_checkout_and_a_linked_file_may_be_the_repository(tasks, tmp_path, here):
    """With a history of its own, and CLAUDE.md a link to AGENTS.md: the lessons are no part of the answer."""
    mine, repo = tmp_path / "tasks", tmp_path / "tasks" / "one" / "repo"
    shutil.copytree(tasks, mine)
    (repo / "CLAUDE.md").symlink_to("AGENTS.md")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for more in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *more], cwd=repo, check=True)
    reads = READS.replace("AGENTS.md", "CLAUDE.md")
    words = ("env=folders", f"env.path={mine}", *ALONE, run(reads), "agent.deliver=file", "agent.file=CLAUDE.md")
    run_dir, rate = here(*words, "arm=told_lesson", "limit=1", run_dir=tmp_path / "run")
    assert rate == 1.0 and all(WORD not in row["trajectories"][0]["answer"] for row in read_rows(run_dir))


def test_what_needs_a_conversation_or_more_steps_is_refused(tasks, here):
    words = ("env=folders", f"env.path={tasks}", *ALONE, run("x"))
    for more, why in ((("arm=matts_sequential",), "keeps no conversation"), (("max_steps=1",), "takes 2 steps")):
        with pytest.raises(UserError, match=why):
            here(*words, *more)
