"""env=miniwob in a real Chromium: the contract, gold, chance, equal runs, broken browsers, no process left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import forkserver
import pytest
from conftest import command, read_json, read_rows, wait_for
from env_contract import EnvContract
from web_kit import all_gone, browsers, make, needs_browser, processes

from core.errors import InfraError, UserError
from core.page import PAGE
from envs.web import browser
from envs.web.miniwob_env import MiniwobEnv
from envs.web.miniwob_tasks import SOLUTIONS, WEBGUM, kinds_of

pytestmark = needs_browser
STILL = """click-button click-button-sequence click-checkboxes click-link click-option click-test-2 enter-password
enter-text focus-text-2 login-user""".split()
QUICK = ("env=miniwob", "env.slow_mo_ms=0", "env.settle_s=0.05")


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """A folder for what browsers write, by which their processes are known."""
    place = tmp_path / "browsers"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    yield f"TMPDIR={place}"
    assert all_gone(f"TMPDIR={place}")


class TestContract(EnvContract):
    def make_env(self, folder: Path) -> MiniwobEnv:
        return make(folder, "enter-text", "click-button-sequence", seeds=2)

    def worker_pid(self, env: MiniwobEnv) -> int | None:
        return env.worker_pid


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    with make(tmp_path_factory.mktemp("goals"), "click-link", "email-inbox", "find-greatest", "choose-date") as made:
        yield made


def test_ten_kinds_are_solved_by_gold_and_two_runs_are_alike_to_the_byte(here, mark, tmp_path):
    """One seed of each; two again by two workers at once. No process is left, and nothing of theirs on disk."""
    words = (*QUICK, "agent=gold", "workflow=vanilla", "llm=free", f"env.kinds=[{','.join(STILL)}]")
    words += ("embedder=hashing", f"env.cache_dir={tmp_path / 'goals'}", "env.seeds=1")
    one, rate = here(*words, run_dir=tmp_path / "one")
    assert rate == 1.0 and read_json(one / "summary.json")["n"] == 10
    assert all_gone(mark) and not any(Path(mark.partition("=")[2]).iterdir())
    two, _ = here(*words, "stream.batch=2", "max_concurrency=2", "limit=2", run_dir=tmp_path / "two")
    first = (one / "episodes.jsonl").read_bytes().splitlines(keepends=True)[:2]
    assert (two / "episodes.jsonl").read_bytes() == b"".join(first)
    told = read_json(one / "manifest.json")["fingerprint"]["dataset"]
    assert told["browser"].split()[-1].count(".") == 3 and told["version"] == "1.1.0"


def test_chance_solves_few(here, mark, tmp_path):
    kinds = "click-option,enter-text,login-user"
    words = (*QUICK, "agent=random", "workflow=vanilla", "llm=free", "embedder=hashing", f"env.kinds=[{kinds}]")
    run_dir, rate = here(*words, "env.seeds=1", f"env.cache_dir={tmp_path}", "max_steps=3")
    assert rate < 0.5
    assert any(row["trajectories"][0]["steps"][-1]["valid"] for row in read_rows(run_dir))


def test_a_page_tells_what_can_be_clicked_and_nothing_of_this_machine(env):
    for task in env.tasks():
        seen = env.reset(task)
        assert seen.startswith(f"Goal: {task.query}\n\n{PAGE}\nRootWebArea ")
        assert "file:" not in seen and "url=" not in seen and str(Path.home()) not in seen
        assert "InlineTextBox" not in seen
    assert env.reset(env.tasks()[0]).count("generic, clickable") == 5  # the links, which are spans
    offered = env.admissible()
    assert len(offered) == 5 and all(action.startswith("click(") for action in offered)


def test_part_of_the_reward_is_no_success_though_browsergym_calls_it_one(env):
    """find-greatest gives 0.1 for a card that is turned and is not the greatest."""
    task = next(task for task in env.tasks() if task.type == "find-greatest")
    ended = []
    for place in range(3):
        env.reset(task)
        clicks = env.admissible()
        env.step(clicks[place])
        button = next(line for line in env._view.page.split("\n") if " button 'Submit'" in line)
        _, reward, done, info = env.step(f"click({button.split(']')[0].strip()[1:]!r})")
        ended.append((info["raw_reward"], reward, info["won"], info["won_by_browsergym"]))
        assert done and env.evaluate(None) == info["won"]
    assert sorted(ended)[-1] == (1.0, 1.0, True, True)
    assert (0.1, 0.0, False, True) in ended


def test_what_an_agent_does_wrong_is_told_shortly_and_alike(env):
    env.reset(next(task for task in env.tasks() if task.type == "choose-date"))
    field = next(action for action in env.admissible() if action.startswith("fill"))
    for action, said in {
        field: "Error: TimeoutError: Locator.fill: Timeout 500ms exceeded. (element is not editable)",
        "click('999')": 'Error: ValueError: Could not find element with bid "999"',
        "upload_file('12', '/etc/passwd')": "Error: ValueError: There is no action upload_file.",
        "goto('http://127.0.0.1')": "Error: ValueError: There is no action goto.",
        "noop(1e9)": "Error: ValueError: noop waits for at most 10000 milliseconds.",
    }.items():
        seen, _, done, info = env.step(action)
        assert seen.startswith(said) and not done and not info["valid"]
        assert f"\n\n{PAGE}\n" in seen


def test_a_browser_that_dies_is_an_infra_error_and_the_next_episode_works(mark, tmp_path):
    with make(tmp_path, "enter-text", seeds=2) as env:
        one, two = env.tasks()
        env.reset(one)
        dead = browsers(mark)
        os.kill(max(dead), signal.SIGKILL)  # of a distribution's browser the first is a shell script that starts it
        with pytest.raises(InfraError):
            env.step(env.admissible()[0])
        for task in (one, two):
            env.reset(task)
            for action in env.walkthrough():
                env.step(action)
            assert env.evaluate(None)
        assert browsers(mark) and not {*browsers(mark)} & {*dead}
        env.abort()
        assert all_gone(mark), "an attempt that is given up takes its browser with it"


def test_a_run_that_is_killed_leaves_no_browser(mark, tmp_path):
    words = command(*QUICK, "agent=random", "workflow=vanilla", "llm=free", "embedder=hashing", "env.kinds=[click-pie]")
    run = forkserver.Popen([*words, f"env.cache_dir={tmp_path}", f"run_dir={tmp_path / 'run'}", "env.seeds=10"])
    try:
        episodes = tmp_path / "run" / "episodes.jsonl"
        wait_for(lambda: run.poll() is not None or (episodes.exists() and browsers(mark)), 120)
        assert run.poll() is None
    finally:
        run.kill()
        run.wait()
    assert all_gone(mark)


def test_neither_browser_nor_worker_is_told_a_key_and_goals_are_listed_once(mark, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen")
    with make(tmp_path, "click-test", "enter-text", seeds=2) as env:
        first = env.tasks()
        assert [task.id for task in first] == [f"miniwob/{k}/{n}" for n in (0, 1) for k in ("click-test", "enter-text")]
        assert [task.type for task in first] == ["click-test", "enter-text"] * 2
        assert len(processes(mark)) > 3
        assert not processes("sk-not-to-be-seen")
    with make(tmp_path, "enter-text", "click-test", seeds=1) as env:
        assert env.tasks() == [first[1], first[0]]
        assert env.worker_pid is None


def test_kinds_are_the_published_ones_and_a_wrong_name_is_told():
    assert len(WEBGUM) == len(set(WEBGUM)) == 56
    known = kinds_of("all")
    assert len(known) == 125 and set(WEBGUM) < set(known) and set(SOLUTIONS) < set(known)
    with pytest.raises(UserError, match="no task click-tset: did you mean click-test"):
        kinds_of(["click-tset"])
    with pytest.raises(UserError, match="give webgum, all, or a list"):
        kinds_of("click-test")


def test_gold_says_what_it_can_play(env):
    env.reset(next(task for task in env.tasks() if task.type == "email-inbox"))
    with pytest.raises(UserError, match=r"cannot play email-inbox.*click-button-sequence"):
        env.walkthrough()


def test_what_is_missing_is_one_sentence(monkeypatch, tmp_path):
    with pytest.raises(UserError, match=r"env.browser=/no/such is not a program"):
        make(tmp_path, "click-test", browser="/no/such").tasks()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"No Chromium is installed: apt-get install -y .*chromium-headless-shell"):
        browser.find_browser(None)
    monkeypatch.setattr("envs.web.miniwob_tasks.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs the extra web: pip install"):
        kinds_of("webgum")
