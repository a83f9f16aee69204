"""A program forked by the tests' server is what an executed one is, and nothing of it reaches the next one."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

import forkserver
import pytest
from conftest import REPO

PROBE = """
import json, os, random, resource, signal, sys, threading
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": list(sys.flags), "name": __name__,
    "file": globals().get("__file__"), "spec": getattr(__spec__, "name", None), "names": sorted(globals()),
    "main": sys.modules["__main__"].__dict__ is globals(), "directory": os.getcwd(), "environment": dict(os.environ),
    "parent": os.getppid(), "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "signals": {number: str(signal.getsignal(number)) for number in range(1, 32)},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "threads": threading.active_count(),
    "files": [number for number in range(3, 300) if os.path.exists(f"/proc/self/fd/{number}")],
    "limits": [resource.getrlimit(number) for number in range(10)], "mask": os.umask(0o22), "said": sys.stdin.read(),
    "streams": [(s.encoding, s.errors, s.line_buffering, s.fileno(), s.name, s.mode, s.isatty())
                for s in (sys.stdin, sys.stdout, sys.stderr)],
}))
sys.exit(3)
"""
# What a program may do to itself and to the world of its process.
MESS = """
import os, random, signal, sys, threading
import numpy, hydra
os.environ["LEFT"] = "behind"; os.chdir("/"); open("/dev/null"); os.dup(1); os.umask(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN); sys.path.insert(0, "/left"); hydra.left = 1; random.seed(1)
numpy.random.seed(1); threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
DRAW = "import hydra, random, numpy; print(hasattr(hydra, 'left'), random.random(), numpy.random.random())"


def probed(tmp_path, words, fresh, **options):
    options = {"env": dict(os.environ), **options}  # C's environment has more: readline adds LINES
    done = forkserver.run(
        [sys.executable, *words], input="said\n", capture_output=True, text=True, fresh=fresh, cwd=tmp_path, **options
    )
    assert done.returncode == 3, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("options", [{}, {"start_new_session": True}, {"env": {"PYTHONPATH": str(REPO), "A": "b"}}])
def test_a_forked_program_is_as_an_executed_one(tmp_path, options):
    script = REPO / "tests/core/probe_of_this_process.py"
    try:
        script.write_text(PROBE)
        for words in (["-c", PROBE, "a", "--b"], [str(script), "a"], ["-m", script.stem, "a"]):
            if words[0] == "-m":
                options = {**options, "env": {**os.environ, "PYTHONPATH": str(script.parent)}}
            forked, executed = (probed(tmp_path, words, fresh, **options) for fresh in (False, True))
            assert forked == executed
            assert forked["parent"] == os.getpid()
    finally:
        script.unlink()


def test_nothing_of_a_program_reaches_the_next_one(tmp_path):
    before = probed(tmp_path, ["-c", PROBE], False)
    assert forkserver.run([sys.executable, "-c", MESS], cwd=tmp_path).returncode == 0
    assert probed(tmp_path, ["-c", PROBE], False) == before
    draws = [forkserver.run([sys.executable, "-c", DRAW], capture_output=True, text=True).stdout for _ in range(2)]
    assert draws[0] != draws[1]
    assert all(draw.startswith("False") for draw in draws)


def test_a_forked_program_is_stopped_and_killed_as_any_other():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        code = "import time; print(flush=True); time.sleep(60)"
        with forkserver.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1) as process:
            process.stdout.readline()
            process.send_signal(number)
            assert process.wait(30) == -number


def test_the_server_would_see_that_it_is_no_longer_as_it_began(monkeypatch, tmp_path):
    began, end = forkserver._state(), threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    with (tmp_path / "open").open("w"):
        monkeypatch.setenv("LEFT", "behind")
        monkeypatch.chdir(tmp_path)
        now = forkserver._state()
    end.set()
    thread.join()
    assert [name for name in began if now[name] != began[name]] == ["threads", "files", "environment", "directory"]
