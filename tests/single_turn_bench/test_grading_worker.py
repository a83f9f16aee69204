"""The worker process of the grader: limits, restarts, threads, and no orphan."""

import os
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import forkserver
import pytest

from core.errors import UserError
from single_turn_bench.equivalence import MathGrader

ROOT = Path(__file__).resolve().parents[2]
ENDLESS = "9^{9^{9}}"


def test_an_endless_answer_is_killed_at_the_limit_and_counted():
    with MathGrader(timeout_s=1.0) as grader:
        assert grader.equal("x+x", "2x")
        assert not grader.equal(ENDLESS, "x+7")
        assert (grader.n_timeouts, grader.n_restarts) == (1, 1)
        assert grader.equal("x+x+1", "2x+1")


def test_a_worker_killed_from_outside_is_replaced():
    with MathGrader() as grader:
        assert grader.equal("x+x", "2x")
        [first] = grader.workers.pids()
        os.kill(first, signal.SIGKILL)
        assert grader.equal("x+x+3", "2x+3")
        assert grader.n_timeouts == 0 and first not in grader.workers.pids()


def test_close_ends_the_worker_and_the_grader_can_be_used_again():
    grader = MathGrader()
    assert grader.equal("x+x", "2x")
    worker = grader.workers.pids()[0]
    grader.close()
    grader.close()
    assert not running(worker)
    assert grader.equal("x+x+2", "2x+2")
    assert grader.n_restarts == 0
    grader.close()


def test_files_of_the_working_directory_stand_in_for_no_library(tmp_path, monkeypatch):
    for name in ("json", "sympy", "gmpy2", "math_verify", "single_turn_bench"):  # gmpy2: sympy tries to import it
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    with MathGrader() as grader:
        assert grader.equal("x+x", "2x")
    assert not (tmp_path / "imported").exists()


def test_a_worker_without_its_library_is_one_clear_error(tmp_path, monkeypatch):
    (tmp_path / "math_verify.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with MathGrader() as grader, pytest.raises(UserError, match="pip install math-verify"):
        grader.equal("x+x", "2x")


def test_the_worker_prints_nothing_and_ignores_ctrl_c(tmp_path, monkeypatch, capfd):
    real = find_spec("math_verify").origin
    (tmp_path / "math_verify.py").write_text(
        "import os, sys; print('out', flush=True); print('err', file=sys.stderr); os.write(1, b'low')\n"
        f"sys.path.insert(0, {str(Path(real).parent.parent)!r}); del sys.modules['math_verify']; import math_verify\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with MathGrader() as grader:
        assert grader.equal("x+x", "2x")
        os.kill(grader.workers.pids()[0], signal.SIGINT)
        assert grader.equal("x+x+4", "2x+4")
        assert grader.n_restarts == 0
    assert capfd.readouterr() == ("", "")


def test_threads_share_one_grader_and_do_not_pay_for_each_other():
    with MathGrader(timeout_s=1.5) as grader:
        assert grader.equal("x+x", "2x")
        results = {}

        def grade(number):
            pred = ENDLESS if number == 0 else f"x+x+{number}"
            results[number] = grader.equal(pred, f"2x+{number}")

        threads = [threading.Thread(target=grade, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {number: number != 0 for number in range(8)}


PARENT = """
from single_turn_bench.equivalence import MathGrader
grader = MathGrader(timeout_s={limit})
grader.equal("x+x", "2x")
print(grader.workers.pids()[0], flush=True)
{then}
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    "then", ["import time; time.sleep(60)", f"grader.equal({ENDLESS!r}, 'x+7')"], ids=["idle", "busy"]
)
def test_no_orphan_survives_a_killed_parent(then):
    code = PARENT.format(limit=2, then=then)
    parent = forkserver.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    worker = int(parent.stdout.readline())
    time.sleep(0.3)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 15
    while running(worker) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not running(worker)


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
