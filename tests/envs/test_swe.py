"""env=swe: two small instances of our own, solved, spoiled and left alone; rows of SWE-bench; predictions; tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import forkserver
import pytest
from conftest import KITS, REPO, command, read_json, read_rows, wait_for
from env_contract import EnvContract
from swe_kit import apply, attempt, bubblewrap, diff, inside, make, on_a_disk_of, resolved, stand_in, write_instances
from test_swe_data import write_rows

from analysis.load import load_runs
from analysis.report.data import index_of, read_packed
from core.agent import BashAgent
from core.errors import InfraError
from envs.swe import evaluation
from envs.swe.data import family_lessons, load
from envs.swe.env import SUBMIT, SUBMITTED
from envs.swe.evaluation import begin
from envs.swe.sandbox import Limits
from scripts.audit import main as audit
from scripts.show import main as show
from scripts.tables import main as tables

pytestmark = bubblewrap
PLAYED = ("llm=scripted", "llm.script.path=swe_kit.play", "embedder=hashing")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_instances(tmp_path_factory.mktemp("swe") / "data")


@pytest.fixture(scope="module")
def shared(data):
    with make(data) as env:
        yield env


class TestContract(EnvContract):
    invalid_action = " \n "

    def make_env(self, folder: Path):
        return make(folder / "data" if (folder / "data").is_dir() else write_instances(folder / "data"))


def test_gold_solves_the_wrong_fix_does_not_and_nothing_does_not(data, shared):
    for task in shared.tasks():
        it = next(each for each in load(str(data)) if f"swe/{each.id}" == task.id)
        wrong = (it.folder.parent / "wrong.patch").read_text()
        assert resolved(it.gold, it).solved
        found = resolved(wrong, it)
        assert (found.solved, found.patch) == (False, "applied") and found.failed >= 1
        assert resolved("", it).patch == resolved("\n", it).patch == "empty"
        assert resolved("no patch\n", it).patch == "does not apply"


def test_the_last_observation_tells_nothing_of_the_tests(data, shared):
    """What the judge and the distiller read of a right and of a wrong attempt differs in nothing but the patch."""
    right, reward, told = attempt(shared, apply(data, "gold"), SUBMIT)
    wrong, nothing, told_wrong = attempt(shared, apply(data, "wrong"), SUBMIT)
    assert right == wrong and right[-1] == "The patch is submitted. It changes 1 file."
    assert (reward, told["won"], nothing, told_wrong["won"]) == (1.0, True, 0.0, False)
    assert told["answer"].startswith("diff --git a/mean.py") and told_wrong["n_failed"] == 1


def test_the_tests_are_in_no_copy_that_the_agent_sees(shared):
    said, _, _ = attempt(shared, "ls -R . /given /tmp; git log --format=%an%ad%s", "git log -p --all | grep -c hidden")
    assert "hidden" not in said[0] and "Maintainer" in said[0] and "\n0\n" in said[1]


def test_an_attempt_that_submits_nothing_is_not_solved(data, shared):
    attempt(shared, apply(data, "gold"), "git diff")
    assert not shared.evaluate(None)
    said, reward, info = attempt(shared, SUBMIT)
    assert (reward, info["patch"]) == (0.0, "empty") and "0 files" in said[-1]


@pytest.mark.parametrize(
    ("fix", "spoil"),
    [
        ("gold", "rm -rf tests && echo x > tests"),
        ("wrong", "echo 'def test_empty(): pass' > tests/test_hidden.py"),
        ("gold", "echo 'assert False' > tests/test_plain.py"),
        ("gold", "git checkout -q -b other && git mv tests/test_plain.py tests/test_moved.py"),
    ],
)
def test_the_instances_own_tests_count_whatever_the_patch_makes_of_them(data, shared, fix, spoil):
    assert attempt(shared, apply(data, fix), spoil, SUBMIT)[1] == float(fix == "gold")


def test_a_test_whose_end_breaks_has_not_passed(data, shared):
    """pytest names it twice: as passed, and as an error."""
    it = load(str(data))[0]
    fixture = "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef ends():\n    yield\n    raise OSError('closed')\n"
    given = diff("tests/conftest.py", "", fixture)
    found = resolved(it.gold, replace(it, test_patch=it.test_patch + given))
    assert (found.solved, found.failed, found.tampered) == (False, 3, "")


HANG = "echo 'while True: pass' >> mean.py"


def test_tests_that_hang_end_and_are_not_passed(data):
    with make(data, test_timeout_s=1, limits=Limits(output_mb=1)) as env:
        _, reward, info = attempt(env, HANG, SUBMIT)
        assert (reward, info["tests_killed"]) == (0.0, "time")
        _, reward, info = attempt(env, "printf 'import os\nwhile True: os.write(1, b\"9\" * 9999)' >> mean.py", SUBMIT)
        # "": the file that pytest keeps what is printed in was full, before a limit of ours was reached
        assert reward == 0.0 and info["tests_killed"] in ("output", "time", "")


@pytest.mark.parametrize("stop", ["abort", "close"])
def test_what_stops_an_attempt_stops_the_tests_of_its_patch(data, stop):
    """They are run in a sandbox of their own, in the thread of the attempt."""
    env, stopped = make(data), []

    def work():
        wait_for(lambda: env._tested_in is not None and env._tested_in._process is not None)
        wait_for(lambda: any(name.startswith("python") for name in inside(folder().name)))
        stopped.append(folder())
        getattr(env, stop)()

    def folder() -> Path:
        return env._tested_in._folder

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with pytest.raises(InfraError, match="^(aborted|the sandbox .*)$"):
            attempt(env, HANG, SUBMIT)
        thread.join()
        assert not env.evaluate(None)
        wait_for(lambda: inside(stopped[0].name) == [] and not stopped[0].exists())
    finally:
        env.close()


def test_an_abort_before_the_tests_begin_is_no_failure(data, monkeypatch):
    """Whatever is under way: here the patch is about to be applied."""
    with make(data) as env:

        def begin_and_abort(box, source, instance):
            begin(box, source, instance)
            env.abort()

        env.reset(env.tasks()[0])
        env.step(apply(data, "gold"))
        monkeypatch.setattr(evaluation, "begin", begin_and_abort)
        with pytest.raises(InfraError, match="^aborted$"):
            env.step(SUBMIT)


def test_a_disk_that_gets_full_is_no_failed_test(data, tmp_path):
    script = """
from swe_kit import apply, make, resolved
from envs.swe.env import SUBMIT
env = make(tmp)
it = env._instance(env.tasks()[0].id)
env.reset(env.tasks()[0])
env.step(apply(tmp, "gold"))
print(resolved(it.gold, it).solved)
with (disk / "others").open("w") as file:
    os.posix_fallocate(file.fileno(), 0, 150 << 20)
told(lambda: resolved(it.gold, it))
told(env.step, SUBMIT)
env.close()
"""
    said = on_a_disk_of(650, script, tmp_path, data)
    full = "InfraError: this machine's disk is full: there is no room for 512 MB where sandboxes are (TMPDIR)"
    assert said == ["True", full, full]


def test_on_a_full_disk_of_containers_no_patch_counts(data, tmp_path, monkeypatch):
    """Not even one that solves its instance: else those that do not would be left out alone."""
    programs = stand_in(tmp_path / "bin", "docker", data, "{id}")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    text, table = (programs / "docker").read_text(), "Filesystem 1024-blocks Used Available\\no 9 9 1000"
    fills = f"""if "pytest -rp" in words[-1]:
    (ROOT / "full").touch()
if words[-1].startswith("df ") and (ROOT / "full").exists():
    sys.exit(print("{table}"))
if words[0] == "run":"""
    (programs / "docker").write_text(text.replace('if words[0] == "run":', fills))
    it = replace(load(str(data))[0], folder=None)
    for begun in (True, False):  # by the tests themselves; before them
        with pytest.raises(InfraError, match="the disk of its containers is full"):
            resolved(it.gold, it, "docker", it.id.replace("__", "_1776_"))
        log = (programs / "log").read_text()
        assert ("pytest -rp" in log) is begun
        (programs / "log").write_text("")


def test_what_a_command_did_is_told_as_in_mini_swe_agent(data, shared):
    said, _, info = attempt(shared, "echo out; echo err >&2; false")
    assert said == ["<returncode>1</returncode>\n<output>\nout\nerr\n</output>"] and info["valid"]
    said, _, _ = attempt(shared, "printf 'a%.0s' $(seq 5000); printf 'b%.0s' $(seq 77); printf 'c%.0s' $(seq 5000)")
    assert f"<output_head>\n{'a' * 5000}\n</output_head>" in said[0] and "b" * 3 not in said[0]
    assert f"<output_tail>\n{'c' * 5000}\n</output_tail>" in said[0] and "77 characters left out" in said[0]
    assert attempt(shared, "true")[0] == ["<returncode>0</returncode>\n<output>\n</output>"]
    with make(data, command_timeout_s=1) as env:
        said, _, info = attempt(env, "echo begun; sleep 9")
        assert "it took longer than 1 seconds" in said[0] and "begun" in said[0] and info["valid"]
        for words in (f"echo first; echo {SUBMITTED}", f"echo '{SUBMITTED} now'", f"echo {SUBMITTED}; sleep 9"):
            assert not env.step(words)[2], "not the first line, not alone, not in time"
        assert env.step(f"printf '\\n  {SUBMITTED}  \\nx'")[2]


def test_one_block_of_bash_is_an_action():
    parse = BashAgent(answer_format="").parse
    assert parse("THOUGHT: look.\n\n```bash\nls -a\n```") == ("look.", "ls -a")
    assert parse("Thought: two lines\n```bash\ncat <<'E'\n# a\nE\n\n```\nmore") == ("two lines", "cat <<'E'\n# a\nE")
    assert parse("<think>```bash\nno\n```</think>I look.\n```bash\nls\n```") == ("I look.", "ls")
    two = "```bash\nls\n```\n```bash\npwd\n```"
    for text in ("ls", "```\nls\n```", two, "```bash\n\n```", "```python\n1\n```", ""):
        assert parse(text)[1] is None


# runs


def test_a_container_is_played_and_leaves_predictions(data, tmp_path, monkeypatch, here):
    path = write_rows(tmp_path, "jsonl", data)
    programs = stand_in(tmp_path / "bin", "docker", data, "image-{id}")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    words = ("env=swe_bench_verified", f"env.data={path}", "env.image='image-{id}'", "agent=gold", "workflow=vanilla")
    run_dir, headline = here(*words, "llm=scripted", "embedder=hashing", run_dir=tmp_path / "run")
    summary = read_json(run_dir / "summary.json")
    assert headline is None and summary["success_rate"] is None and (summary["n"], summary["complete"]) == (2, True)
    predictions = read_predictions(run_dir / "predictions.jsonl")
    assert [list(each) for each in predictions] == [["instance_id", "model_name_or_path", "model_patch"]] * 2
    assert [each["instance_id"] for each in predictions] == [it.id for it in load(str(data))]
    words += ("env.evaluation=tests", "llm=scripted", "limit=1")
    evaluated, headline = here(*words, run_dir=tmp_path / "evaluated")
    assert headline == 1.0 and read_predictions(evaluated / "predictions.jsonl") == predictions[:1]
    assert not [each for each in programs.iterdir() if each.name.startswith("reasoningbank-")]


def read_predictions(path: Path) -> list[dict]:
    """By the reader of the official harness where it is installed (swebench 5.0.2 was tried)."""
    if find_spec("swebench"):
        from swebench.harness.utils import get_predictions_from_file

        return get_predictions_from_file(str(path), "SWE-bench/SWE-bench_Verified", "test")
    return [json.loads(line) for line in path.open()]


def test_success_that_is_not_known_is_no_failure_wherever_it_is_shown(data, tmp_path, here, capsys):
    words = ("env=swe", f"env.data={data}", "env.evaluation=none", "limit=1", *PLAYED)
    run_dir, _ = here(*words, run_dir=tmp_path / "run")
    assert read_json(run_dir / "summary.json")["judge_agreement"] is None
    assert load_runs([str(run_dir)])["success"].isna().all()
    tables([str(run_dir)])
    told = capsys.readouterr().out
    assert "its success is not known: the environment did not evaluate" in told and " 0.0 " not in told
    show([str(run_dir)])
    told = capsys.readouterr().out
    assert "unknown" in told and "failure" not in told and "the judge is wrong" not in told
    index, _ = index_of([(read_packed(run_dir), "swe")], [])
    assert [row[1] for row in index["runs"][0]["rows"]] == ["unknown"]


def test_the_main_table_is_made_and_the_papers_numbers_stand_apart(data, tmp_path, cli, here, capsys):
    arms = ["no_memory", "reasoningbank", "matts_parallel"]
    words = ("experiment=main_table", "env=swe", f"env.data={data}", *PLAYED, "limit=1", "seed=0", "k=2")
    words += (f"arm={','.join(arms)}", f"run_dir={tmp_path / 'table'}")
    done = cli(*words, env={"PYTHONPATH": KITS})
    assert done.returncode == 0, done.stderr[-3000:]
    tables([str(tmp_path / "table"), "--table", "main", "--published"])
    told = capsys.readouterr().out
    assert "swe_bench_verified" in told and "34.2" in told and "another benchmark" in told
    runs = load_runs([str(tmp_path / "table")])
    assert set(runs["arm"]) == set(arms) and set(runs["status"]) == {"failure"}
    assert audit([str(tmp_path / "table")]) == 0
    *_, rate = here("env=swe", f"env.data={data}", *PLAYED, "limit=1", "arm=told_lesson", run_dir=tmp_path / "told")
    assert rate == 1.0, "a lesson of the house turns the wrong fix into the right one"


def test_memory_is_kept_for_each_repository_or_for_all(data, tmp_path, here):
    words = ("env=swe", f"env.data={data}", "env.evaluation=none", "stream.passes=2", "max_steps=1", *PLAYED)
    whole, _ = here(*words, run_dir=tmp_path / "all")
    apart, _ = here(*words, "memory.domain=type", "retrieval.domain=same", run_dir=tmp_path / "apart")
    assert [bool(row["retrieved"]) for row in read_rows(whole)] == [False, True, True, True]
    assert [bool(row["retrieved"]) for row in read_rows(apart)] == [False] * 4  # a task never reads its own lesson


def test_players_without_a_model_end(data, tmp_path, here):
    words = ("env=swe", f"env.data={data}", "embedder=hashing", "max_steps=6", "limit=1")
    run_dir, _ = here(*words, "llm=free", run_dir=tmp_path / "free")
    assert all(step["valid"] for row in read_rows(run_dir) for step in row["trajectories"][0]["steps"])
    _, rate = here(*words, "agent=random", "workflow=vanilla", "llm=scripted", run_dir=tmp_path / "random")
    assert rate == 0.0


def running(words: tuple[str, ...], home: Path, **more: str) -> tuple[subprocess.Popen, dict[str, str]]:
    """A run whose sandboxes lie in `home`, and its environment without `more`."""
    home.mkdir()
    surroundings = os.environ | {"PYTHONPATH": KITS, "TMPDIR": str(home)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return forkserver.Popen(command(*words), env=surroundings | more, cwd=home.parent, **quiet), surroundings


def test_a_run_that_is_killed_leaves_no_process_and_goes_on(data, tmp_path):
    run_dir, home = tmp_path / "run", tmp_path / "tmp"
    words = ("env=swe", f"env.data={data}", "env.evaluation=none", *PLAYED, f"run_dir={run_dir}")
    process, surroundings = running(words, home, SWE_KIT_SLEEPS="1")
    wait_for(lambda: any(name == "sleep" for name in within(home)))
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: within(home) == [] and list(home.iterdir()) == [])  # no folder of a sandbox, either
    done = forkserver.run(command(*words), env=surroundings, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [row["task_id"] for row in read_rows(run_dir)] == ["swe/empty__stats-1", "swe/shared__ranks-1"]
    assert list(home.iterdir()) == []


def test_ctrl_c_in_the_tests_of_a_patch_leaves_nothing(data, tmp_path):
    """In a run with a time limit, whose attempts have threads that nobody waits for."""
    words = ("env=swe", f"env.data={data}", *PLAYED, f"run_dir={tmp_path / 'run'}", "episode_timeout_s=600", "limit=1")
    process, _ = running(words, tmp_path / "tmp", SWE_KIT_HANGS="1")
    wait_for(lambda: any(name.startswith("python") for name in within(tmp_path / "tmp")), 240)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    wait_for(lambda: within(tmp_path / "tmp") == [])
    assert list((tmp_path / "tmp").iterdir()) == []


def within(home: Path) -> list[str]:
    """The names of the processes that have a folder of `home` among their mounts."""
    return inside(f"{home.parent.name}/{home.name}/reasoningbank-sandbox-")


# the bundled instances


def test_the_bundled_instances_begin_with_one_of_each_family_and_gold_solves_the_first(here, tmp_path):
    """Wrong fixes: test_swe_known_answer.py plays that of one instance of each family."""
    words = ("env=swe", "agent=gold", "workflow=vanilla", "llm=scripted", "limit=1")
    run_dir, rate = here(*words, run_dir=tmp_path / "gold")
    assert rate == 1.0
    found = {f"swe/{it.id}": it for it in load("bundled")}
    assert len(found) == 24 and [row["task_id"] for row in read_rows(run_dir)] == list(found)[:1]
    families = [it.type for it in found.values()]
    assert len(set(families[:4])) == 4 and set(family_lessons("bundled")) == set(families)
