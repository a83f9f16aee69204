"""What a run says while it starts, when it is stopped and at its end; what its main.log holds."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import forkserver
import pytest
import typed
from conftest import REPO, TOY, command, read_rows, wait_for
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from provider import completion

from core.interrupt import Interrupts
from core.models.offline import ScriptedModel
from core.run.display import RunProgress
from core.run.launch import override
from core.terminal import loading
from envs import single_turn
from envs.single_turn import MathEnv
from envs.toy_script import play
from single_turn_bench.equivalence import MathGrader

CHECKOUT = {"cwd": REPO, "capture_output": True, "text": True, "timeout": 120, "check": False}


def pasted_here(line):
    """What a hint said, pasted into a shell in the checkout."""
    return typed.run(forkserver, line, cwd=REPO, env=dict(os.environ), timeout=120)


def in_terminal(words, until: bytes, then) -> tuple[int, str]:
    """(exit status, what was shown) of a command in a terminal of its own; `then(process id)` once `until` is shown."""
    child, screen = pty.fork()
    if child == 0:
        os.execv(words[0], words)
    shown, told = b"", False
    while True:
        try:
            shown += os.read(screen, 4096)
        except OSError:  # the terminal of a program that has ended
            break
        if not told and until in shown:
            told = True
            then(child)
    os.close(screen)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode(errors="replace")


@pytest.mark.parametrize(
    "words",
    [command(*TOY), [sys.executable, "-m", "scripts.report", "--help"]],
    ids=["main.py", "scripts.report"],
)
def test_an_early_ctrl_c_is_one_sentence(words, monkeypatch):
    monkeypatch.chdir(REPO)
    hard = words if "main.py" in words[1] else [*words[:1], "-c", STARTED, *words[2:]]
    status, shown = in_terminal(hard, b" ...", lambda child: os.kill(child, signal.SIGINT))
    assert status == 130 and shown.strip().endswith("stopped.") and "Traceback" not in shown, shown


# As `python -m scripts.report`, and a line is shown once the package has been imported: the script itself has not.
STARTED = """
import sys
sys.argv[:] = ["-m", *sys.argv[2:]]
import scripts
print("begun ...", flush=True)
import time
time.sleep(30)
"""


def test_the_first_line_comes_before_the_imports(tmp_path):
    began = time.monotonic()
    process = subprocess.Popen(command(*TOY, "limit=1"), cwd=tmp_path, stdout=-1, stderr=-1, text=True)
    first, took = process.stderr.readline(), time.monotonic() - began
    out, _ = process.communicate(timeout=120)
    whole = time.monotonic() - began
    assert first == "loading the configuration ...\n" and process.returncode == 0
    assert took < whole / 2, (took, whole, out)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is not enforced elsewhere")
@pytest.mark.parametrize("program", [None, "scripts.tables", "core.memory", "mcp_server"])
def test_too_little_memory_is_one_sentence_and_no_crash(program):
    import resource

    limit = (300 << 20, 300 << 20)
    done = subprocess.run(
        command(*TOY) if program is None else [sys.executable, "-m", program, "stats", "nothing"],
        cwd=REPO,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "may use 300 MiB of memory (ulimit -v)" in done.stderr
    assert "Traceback" not in done.stderr


def test_in_a_terminal_the_line_is_replaced_and_gone_before_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, shown = in_terminal(command(*TOY, "limit=1"), b"never", None)
    stages = re.findall(r"\x1b\[2K([a-z][^\r\x1b]*) \.\.\.", shown)
    names = ["loading the configuration", "reading the tasks of toy", "preparing the models and the memory"]
    assert status == 0 and stages[:3] == names
    assert shown.index("\x1b[2K", shown.index(names[-1])) < shown.index("reasoningbank on toy")


def test_what_swallows_an_interrupt_cannot_keep_the_program(monkeypatch):
    monkeypatch.setattr("core.interrupt.STOP_S", 0.05)
    ended = []
    with Interrupts(lambda: ended.append(True)) as interrupts:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            time.sleep(0.3)  # a library that goes on as if nothing had been
    assert interrupts.stopped and ended == [True]
    with pytest.raises(KeyboardInterrupt), Interrupts(lambda: ended.append(False)):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    time.sleep(0.1)
    assert ended == [True]  # what ends in time is left alone


def test_a_signal_counts_while_the_main_thread_is_in_a_library(monkeypatch):
    """As in llama.cpp: no Python handler runs before the library returns."""
    monkeypatch.setattr("core.interrupt.STOP_S", 0.05)
    db = sqlite3.connect(":memory:", check_same_thread=False)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n LIMIT 1"
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
    began = time.monotonic()
    with pytest.raises((KeyboardInterrupt, sqlite3.OperationalError)), Interrupts(db.interrupt):
        db.execute(endless).fetchall()
    assert time.monotonic() - began < 2


def test_retries_and_loading_stand_in_the_progress_line(caplog, capsys):
    import logging

    caplog.set_level("INFO", "run")
    with RunProgress(4, [], "a on b") as progress:
        logging.getLogger("run.retries").warning("try 1 of 4 failed")
        assert "0/4  success - %  lessons 0  tokens 0  retries 1" in capsys.readouterr().out
        progress._live = True
        with loading("the embedder"):
            assert progress._facts() == "loading the embedder ..."
        assert progress._facts().endswith("retries 1")
    logging.getLogger("run.retries").warning("heard by nobody")
    assert progress._retries == 1


def test_the_first_action_is_shown_also_in_a_file(capsys):
    import logging

    with RunProgress(4, [], "a on b"):
        logging.getLogger("actions").info("step 1: go to bed 1 (%s)", "env/a task with a long id" * 9)
        logging.getLogger("actions").info("step 2: look (env/a task)")
    shown = capsys.readouterr().out
    assert "a on b  0/4  step 1: go to bed 1 (env/" in shown and "step 2" not in shown


def test_main_log_holds_what_was_odd(cli, serve, tmp_path):
    def answer(request, number):
        if number == 1:
            return 500, {"error": {"message": "overloaded"}}
        if number in (4, 5):
            return 400, {"error": {"message": "no such thing"}}
        return 200, completion(play(request["messages"], "agent", 0))

    server = serve(answer)
    remote = ("env=toy", "llm=vllm", f"llm.api_base={server.url}", "embedder=hashing", "workflow=vanilla")
    words = (*remote, "limit=4", "max_steps=1", "retry_broken=0", f"run_dir={tmp_path / 'run'}")
    key = {"SOME_API_KEY": "sk-very-secret-0123456789"}
    first = cli(*words, "prompts.memory_block=plain", env=key)
    assert first.returncode == 1, first.stderr
    log = (tmp_path / "run/main.log").read_text()
    assert log.count("[run.retries][WARNING] - try 1 of 4 failed, next try in ") == 1 and "overloaded" in log
    assert len(re.findall(r"is broken: bad_request", log)) == 2
    assert len(re.findall(r"is broken: bad_request.*\nTraceback", log)) == 1  # one cause, told once
    head = "vanilla prompts.memory_block=plain on toy, setting=test_time, seed=0: "
    for line in (head, "models: agent hosted_vllm/default", "versions: git "):
        assert log.count(line) == 1, line
    assert "ended: 2 of 4 tasks, 0 successes, 2 broken, " in log and "is not complete" in log
    assert cli(*words, "prompts.memory_block=plain", "retry_broken=1", env=key).returncode == 0
    log = (tmp_path / "run/main.log").read_text()
    assert "continued: 2 of 4 tasks are done" in log and "ended: 4 of 4 tasks" in log


def test_no_secret_is_in_a_refusal(cli, tmp_path):
    secret = "sk-very-secret-0123456789"
    done = cli(*TOY, "limit=1", f"agent.max_memory_chars={secret}", f"run_dir={tmp_path}", env={"X_API_KEY": secret})
    assert done.returncode == 1
    assert "error: " in done.stderr and "REDACTED" in done.stderr and secret not in done.stdout + done.stderr
    assert not any(secret.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    "path", ["plain/x-1.5", "a b, c", "it's=(1) [2] {3}", 'say "hi"', "für", "back\\slash", "tail\\"]
)
def test_a_path_in_a_hint_is_read_as_it_was(path):
    parsed = OverridesParser.create().parse_override(shlex.split(shlex.join([override("run_dir", path)]))[0])
    value = parsed.value()
    cfg = OmegaConf.create({"run_dir": value})
    assert cfg.run_dir == path


def test_nothing_recorded_is_no_hint(cli):
    done = cli("env=toy", "llm=vllm", "llm.api_base=http://127.0.0.1:9/v1", "embedder=hashing")
    assert done.returncode == 1 and "to go on" not in done.stderr


def test_a_used_up_budget_names_a_command_that_gets_further(tmp_path):
    run_dir = tmp_path / "a b"
    words = command(*TOY, "limit=6", "budget.run.calls=5", override("run_dir", run_dir))
    done = forkserver.run(words, **CHECKOUT)
    pasted = re.search(r"to go on with twice the budget.run.calls: (.*)", done.stdout)[1]
    n = len(read_rows(run_dir))
    assert pasted_here(pasted).returncode == 0
    assert len(read_rows(run_dir)) > n and "budget.run.calls=10" in pasted


@pytest.mark.parametrize("words", [(), ("arm=matts_parallel", "k=2")], ids=["workflow", "arm"])
def test_a_summary_ends_with_commands_that_work(tmp_path, words):
    done = forkserver.run(command(*TOY, *words, "limit=4", override("run_dir", tmp_path / "my run")), **CHECKOUT)
    assert done.returncode == 0, done.stderr
    said, partner, compare, show = done.stdout.strip().split("\n")[-4:]
    assert said == "next, the same without memory, what memory changed, and the run itself:"
    assert "a lesson that it learned, from a" in done.stdout
    shown = pasted_here(show)
    assert shown.returncode == 0 and "toy/amber/1" in shown.stdout, shown.stderr
    other = pasted_here(partner)
    assert other.returncode == 0, other.stderr
    assert read_rows(tmp_path / "my run-vanilla")[0]["retrieved"] == []
    said, again, page = other.stdout.strip().split("\n")[-3:]
    assert again == compare and said.startswith("next, what memory changed")
    compared = pasted_here(compare)
    assert compared.returncode == 0 and "B - A: +" in compared.stdout, compared.stderr
    assert "reasoningbank report" in page and str(Path(tmp_path / "report.html")) in page


def test_the_partner_of_a_run_without_memory_has_one(cli):
    done = cli(*TOY, "arm=no_memory", "limit=1", "memory=awm", "run_dir=one")
    _, partner, compare, _ = done.stdout.strip().split("\n")[-4:]
    words = shlex.split(partner)
    assert "arm=reasoningbank" in words and "run_dir=one-memory" in words and "memory=awm" not in words
    assert compare.split()[-3:] == ["compare", "one", "one-memory"]


@pytest.mark.parametrize(("agent", "asks"), [("react", True), ("gold", False)])
def test_the_agents_model_is_loaded_while_a_run_begins(here, monkeypatch, agent, asks):
    loaded = threading.Event()
    monkeypatch.setattr(ScriptedModel, "prepare", lambda self: loaded.set())
    here(*TOY, "limit=1", "workflow=vanilla", f"agent={agent}")
    assert loaded.wait(10) if asks else not loaded.is_set()


@pytest.mark.slow
def test_the_grading_worker_starts_while_the_model_is_asked_and_is_the_only_one_of_many_envs(monkeypatch):
    grader = MathGrader()
    monkeypatch.setattr(single_turn, "shared_grader", lambda: grader)
    with grader, ExitStack() as stack:
        envs = [MathEnv(instructions="", max_steps=1, dataset="warmup") for _ in range(8)]
        for env in map(stack.enter_context, envs):
            env.reset(env.tasks()[0])
        wait_for(grader.workers.pids)
        [first] = grader.workers.pids()
        for env in envs:
            env._row = replace(env._row, answer=r"\sqrt{3}")
            assert env.evaluate(r"\frac{\sqrt{12}}{2}")
        assert grader.workers.pids() == [first]


def test_a_text_is_broken_between_words_and_a_command_is_not(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    long = "  python main.py arm=no_memory,reasoningbank env=questions env.path=FILE.jsonl"
    made = f"from core.terminal import prose; print(prose('{'eight fit ' * 5}to-morrow\\n{long}'))"
    monkeypatch.chdir(REPO)
    _, shown = in_terminal([sys.executable, "-c", made], b"never", lambda _: None)
    first, second, command_ = shown.splitlines()
    assert (first, second, command_) == ("eight fit eight fit eight fit eight fit", "eight fit to-morrow", long)
