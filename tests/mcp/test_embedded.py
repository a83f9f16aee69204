"""A bank in somebody else's program: `reasoningbank_harness.open_bank`, with its own process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from conftest import REPO
from mcp_kit import ENV, MODEL, TRAJECTORY

from reasoningbank_harness import BankError, open_bank

HASHED = "embedder=hashing"
TASK = "Make the parser accept empty files"


@pytest.fixture(scope="module", autouse=True)
def surroundings():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENV.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def opened(tmp_path):
    """Open a bank of a test's own, with settings; closed after it."""
    with ExitStack() as banks:

        def build(*settings, path=tmp_path / "b.sqlite", **how):
            return banks.enter_context(closing(open_bank(path, HASHED, *settings, **how)))

        yield build


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("bank") / "b.sqlite"


@pytest.fixture(scope="module")
def bank(place):
    with closing(open_bank(place, HASHED)) as opened:
        yield opened


def test_what_is_added_is_found_by_every_program_that_has_the_bank_open(bank, opened, place):
    other = opened(path=place)
    words = (TASK, "Check first", "Handle an empty file before the loop.", "Empty files")
    id = bank.add(*words, tags=["parser"])
    assert bank.add(*words, tags=["parser"]) == id
    [lesson] = other.retrieve(TASK).lessons
    assert (lesson.id, lesson.title, lesson.description) == (id, "Check first", "Empty files")
    assert (lesson.content, lesson.task, lesson.outcome) == ("Handle an empty file before the loop.", TASK, "success")
    assert 0.5 < lesson.score <= 1 and lesson.content in other.retrieve(TASK).text
    other.add(TASK, "Not this", "Do not skip the header.", success=False)
    assert len(bank.retrieve(TASK, top_k=5).lessons) == 2
    assert opened(path=place, agent_id="ann").retrieve(TASK).lessons == () and bank.retrieve("zzz qqq").text == ""


def test_a_model_distils_an_attempt_and_any_characters_travel(opened):
    bank = opened(*MODEL, "memory.hygiene=null")  # whose guard takes out what is invisible
    learned = bank.learn(TASK, TRAJECTORY)
    assert (learned.success, learned.titles, learned.state) == (True, ("Check for empty input first",), "active")
    assert bank.retrieve(TASK).lessons[0].id == learned.id
    assert not bank.learn(f"{TASK} twice", TRAJECTORY, success=False).success
    with pytest.raises(BankError, match="no lesson that could be read"):
        bank.learn("UNREADABLE", TRAJECTORY)
    with pytest.raises(BankError, match=r"trajectory: .*role"):
        bank.learn(TASK, [{"content": "no role"}])
    odd = 'Zeile eins\nZeile zwei\u2028 "quoted" \\ 日本語 \U0001f600 \x85 \t end'
    bank.add(odd, "标题 é", odd)
    [lesson] = bank.retrieve(odd).lessons
    assert lesson.task == odd and lesson.content == odd.strip() and lesson.title == "标题 é"
    assert bank.retrieve("half a pair \ud800 and \x00") is not None


def test_errors_are_the_banks_own_sentences_and_end_nothing(bank, opened, tmp_path):
    for settings, how, why in (
        (("retrieval.topk=3",), {}, "retrieval.topk"),
        ((), {"path": tmp_path}, "is a folder"),
    ):
        with pytest.raises(BankError, match=why):
            opened(*settings, **how)
    for call, why in (
        (lambda: bank.retrieve("  "), "query is empty"),
        (lambda: bank.retrieve(TASK, top_k=0), "top_k=0: give a whole number from 1 to 50"),
        (lambda: bank.learn(TASK, TRAJECTORY), "no model is configured"),
        (lambda: bank.learn(TASK, [{"role": "user", "content": object()}]), "cannot be written as JSON"),
    ):
        with pytest.raises(BankError, match=why):
            call()
    assert bank.add(TASK, "Still", "there")


def test_a_process_that_ends_is_said_and_loses_nothing(opened):
    bank = opened()
    id = bank.add(TASK, "Kept", "what was added")
    os.kill(bank._process.pid, signal.SIGKILL)
    with pytest.raises(BankError, match=r"has ended \(exit status -9"):
        for _ in range(2):  # the first line may still be written into the pipe
            bank.retrieve(TASK)
    again = opened()
    assert again.retrieve(TASK).lessons[0].id == id
    for closed in (bank, again):
        closed.close()
        closed.close()
    with pytest.raises(BankError, match="the bank is closed"):
        again.retrieve(TASK)


def test_threads_share_a_bank_and_ctrl_c_leaves_it_usable(bank):
    words = ("one", "two", "three", "four")
    for word in words:
        bank.add(f"task {word}", word, f"lesson {word}")
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda word: bank.retrieve(f"task {word}").lessons[0].title, words * 3))
    assert found == [*words] * 3
    os.kill(bank._process.pid, signal.SIGINT)  # as a terminal sends it to all of its processes
    answer = bank._answer
    bank._answer = lambda number: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        bank.retrieve("task one")
    bank._answer = answer
    assert bank.retrieve("task two").lessons[0].title == "two"


def test_the_example_of_the_readme_runs(tmp_path):
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(from reasoningbank_harness .*?)```", readme, re.DOTALL)
    for expected in ("Fix the flaky test of the parser\n", "Set the seed before the first random draw."):
        line = [sys.executable, "-c", f"{code}\nprint(prompt)"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **ENV}, check=True)
        assert expected in done.stdout
    assert (tmp_path / "lessons.sqlite").exists()


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
