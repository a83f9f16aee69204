"""A bank in somebody else's program: `reasoningbank_harness.open_bank`, with its own process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import REPO
from mcp_kit import ENV, MODEL, TRAJECTORY

from reasoningbank_harness import BankError, open_bank

HASHED = "embedder=hashing"
TASK = "Make the parser accept empty files"


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Open a bank of a test's own, with settings; closed after it."""
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    banks = []

    def opened(*settings, path=tmp_path / "b.sqlite", **how):
        banks.append(open_bank(path, HASHED, *settings, **how))
        return banks[-1]

    yield opened
    for bank in banks:
        bank.close()


@pytest.mark.slow
def test_what_is_added_is_found_by_every_program_that_has_the_bank_open(opened):
    one, other = opened(), opened()
    id = one.add(TASK, "Check first", "Handle an empty file before the loop.", "Empty files", tags=["parser"])
    assert one.add(TASK, "Check first", "Handle an empty file before the loop.", "Empty files", tags=["parser"]) == id
    [lesson] = other.retrieve(TASK).lessons
    assert (lesson.id, lesson.title, lesson.description) == (id, "Check first", "Empty files")
    assert (lesson.content, lesson.task, lesson.outcome) == ("Handle an empty file before the loop.", TASK, "success")
    assert 0.5 < lesson.score <= 1 and lesson.content in other.retrieve(TASK).text
    other.add(TASK, "Not this", "Do not skip the header.", success=False)
    assert len(one.retrieve(TASK, top_k=5).lessons) == 2
    assert opened(agent_id="ann").retrieve(TASK).lessons == () and one.retrieve("zzz qqq").text == ""


@pytest.mark.slow
def test_a_model_distils_an_attempt(opened):
    bank = opened(*MODEL)
    learned = bank.learn(TASK, TRAJECTORY)
    assert (learned.success, learned.titles, learned.state) == (True, ("Check for empty input first",), "active")
    assert bank.retrieve(TASK).lessons[0].id == learned.id
    assert not bank.learn(f"{TASK} twice", TRAJECTORY, success=False).success
    with pytest.raises(BankError, match="no lesson that could be read"):
        bank.learn("UNREADABLE", TRAJECTORY)
    with pytest.raises(BankError, match=r"trajectory: .*role"):
        bank.learn(TASK, [{"content": "no role"}])


@pytest.mark.slow
def test_any_characters_travel(opened):
    bank = opened("memory.hygiene=null")  # whose guard takes out what is invisible
    odd = 'Zeile eins\nZeile zwei\u2028 "quoted" \\ 日本語 \U0001f600 \x85 \t end'
    bank.add(odd, "标题 é", odd)
    [lesson] = bank.retrieve(odd).lessons
    assert lesson.task == odd and lesson.content == odd.strip() and lesson.title == "标题 é"
    assert bank.retrieve("half a pair \ud800 and \x00") is not None


@pytest.mark.slow
def test_errors_are_the_banks_own_sentences_and_end_nothing(opened, tmp_path):
    with pytest.raises(BankError, match="retrieval.topk"):
        opened("retrieval.topk=3")
    with pytest.raises(BankError, match="is a folder"):
        opened(path=tmp_path)
    bank = opened()
    with pytest.raises(BankError, match="query is empty"):
        bank.retrieve("  ")
    with pytest.raises(BankError, match=r"top_k=0: give a whole number from 1 to 50"):
        bank.retrieve(TASK, top_k=0)
    with pytest.raises(BankError, match="no model is configured"):
        bank.learn(TASK, TRAJECTORY)
    with pytest.raises(BankError, match="cannot be written as JSON"):
        bank.learn(TASK, [{"role": "user", "content": object()}])
    assert bank.add(TASK, "Still", "there")
    bank.close()
    bank.close()
    with pytest.raises(BankError, match="the bank is closed"):
        bank.retrieve(TASK)


@pytest.mark.slow
def test_a_process_that_ends_is_said_and_loses_nothing(opened):
    bank = opened()
    id = bank.add(TASK, "Kept", "what was added")
    os.kill(bank._process.pid, signal.SIGKILL)
    with pytest.raises(BankError, match=r"has ended \(exit status -9"):
        for _ in range(2):  # the first line may still be written into the pipe
            bank.retrieve(TASK)
    bank.close()
    assert opened().retrieve(TASK).lessons[0].id == id


@pytest.mark.slow
def test_threads_share_a_bank_and_ctrl_c_leaves_it_usable(opened):
    bank, found = opened(), []
    for word in ("one", "two", "three", "four"):
        bank.add(f"task {word}", word, f"lesson {word}")

    def ask(word):
        found.append((word, bank.retrieve(f"task {word}").lessons[0].title))

    threads = [threading.Thread(target=ask, args=(word,)) for word in ("one", "two", "three", "four") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12 and all(asked == title for asked, title in found)
    os.kill(bank._process.pid, signal.SIGINT)  # as a terminal sends it to all of its processes
    answer = bank._answer
    bank._answer = lambda number: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        bank.retrieve("task one")
    bank._answer = answer
    assert bank.retrieve("task two").lessons[0].title == "two"


@pytest.mark.slow
def test_the_example_of_the_readme_runs(tmp_path):
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(from reasoningbank_harness .*?)```", readme, re.DOTALL)
    for expected in ("Fix the flaky test of the parser\n", "Set the seed before the first random draw."):
        line = [sys.executable, "-c", f"{code}\nprint(prompt)"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **ENV}, check=True)
        assert expected in done.stdout
    assert (tmp_path / "lessons.sqlite").exists()


@pytest.mark.slow
def test_the_banks_process_ends_with_its_program(tmp_path):
    script = (
        "import os, sys\nfrom reasoningbank_harness import open_bank\n"
        f"bank = open_bank({str(tmp_path / 'b.sqlite')!r}, {HASHED!r})\n"
        "print(bank._process.pid, flush=True)\nos._exit(3)"
    )
    line = [sys.executable, "-c", script]
    done = subprocess.run(line, cwd=REPO, capture_output=True, text=True, env={**os.environ, **ENV}, timeout=60)
    pid, until = int(done.stdout), time.monotonic() + 20
    assert done.returncode == 3
    while is_running(pid):
        assert time.monotonic() < until
        time.sleep(0.05)


def is_running(pid):
    """Whether a process is there, and is not one that has ended and waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
