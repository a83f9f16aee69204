"""env=reasoning_gym: its answers, its splits, its worker, and why some families are refused, on the real package."""

import builtins
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from env_contract import EnvContract
from omegaconf import OmegaConf

from core.errors import InfraError, UserError
from core.process import BARE, WorkerPool, WorkerProcess
from core.types import Task
from envs.reasoning_gym import env as reasoning_gym_env
from envs.reasoning_gym import worker as reasoning_gym_worker
from envs.reasoning_gym.env import ReasoningGymEnv
from envs.reasoning_gym.families import EXECUTES, HASH_SEED, NO_GOLD, NONSENSE, REFUSED, wrong_gold
from envs.reasoning_gym.worker import BATCH, NEARLY, Gym, Gyms
from single_turn_bench.verbatim import verbatim_answer

ROOT = Path(__file__).resolve().parents[2]
DEFAULTS = list(OmegaConf.load(ROOT / "config/env/reasoning_gym.yaml").env.families)
installed = pytest.mark.skipif(not find_spec("reasoning_gym"), reason="the extra reasoning_gym is not installed")


def make(*families, per_family=3, **keys):
    return ReasoningGymEnv(instructions="", max_steps=1, families=list(families), per_family=per_family, **keys)


def of(reason):
    return [name for name, why in REFUSED.items() if why.startswith(reason)]


REPLIES = [
    ("<answer>no</answer> wait. <answer> dog, cat. </answer>", "dog, cat.", "tag"),
    ("<answer>1 2\n3 4</answer>\nThe answer is 7.", "1 2\n3 4", "tag"),
    ("<think>\\boxed{1}</think> It is \\boxed{A\\# \\#B}.", "A# #B", "boxed"),
    ("so \\boxed{\\text{two words}}", "two words", "boxed"),
    ("The answer is 7. No: the answer is **'dog, cat'**.", "dog, cat", "statement"),
    ("Final answer: $3a0$", "3a0", "statement"),
    ("The answer is:\n```\n0 1\n1 0\n```\nDone.", "0 1\n1 0", "statement"),
    ("The answer is:\n\n[[0,1],\n[1,0]]\n\nThat is it.", "[[0,1],\n[1,0]]", "statement"),
    ("I sort them.\n`dog, cat`", "dog, cat", "last_line"),
    ("67 days, 01:04:00", "67 days, 01:04:00", "last_line"),
    ("<answer></answer>", None, "none"),
    ("", None, "none"),
    (" \n", None, "none"),
]


def test_an_answer_is_read_as_it_was_written(subtests):
    for reply, answer, rule in REPLIES:
        with subtests.test(reply=reply):
            assert (verbatim_answer(reply).answer, verbatim_answer(reply).rule) == (answer, rule)


def test_a_refused_family_is_named_with_its_reason(subtests):
    for family in REFUSED:
        with subtests.test(family), pytest.raises(UserError, match=rf"{family} is not played: "):
            make("ab", family)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"per_family": 0}, "per_family=0"),
        ({"order": "mixed"}, "order='mixed'"),
        ({"options": {"dice": {"num_dice": 2}}}, "dice is not among env.families"),
        ({"options": {"ab": {"seed": 2}}}, "ab.seed is decided by env.seed"),
    ],
)
def test_a_wrong_key_is_told(keys, said):
    with pytest.raises(UserError, match=said):
        make("ab", **keys)


def test_a_family_named_twice_is_refused():
    with pytest.raises(UserError, match="only once"):
        make("ab", "ab")


def test_without_the_package_the_pip_line_is_told(monkeypatch):
    monkeypatch.setattr(reasoning_gym_worker, "find_spec", lambda name: None)
    with make("ab") as env, pytest.raises(UserError, match=r'pip install "reasoning-gym==0.1.25"'):
        env.tasks()


# The worker, around a package of one family whose scorer can be made to break.


class Echo:
    """Task n has the answer n. Other answers say what the scorer shall do."""

    def __init__(self, flag, seed):
        self.flag, self.seed = flag, seed

    def __getitem__(self, index):
        return {"question": f"What is {index} of {self.seed}?", "answer": str(index)}

    def score_answer(self, answer, entry):
        how = Path(self.flag).read_text() if Path(self.flag).exists() else answer
        if how == "raise":
            raise ValueError
        if how == "hang":
            while True:
                pass
        if answer == "die":
            os._exit(3)
        if answer == "environment":
            return len(os.environ) / 100
        if answer == "memory":
            return len(bytearray(8 << 30))
        odd = {"twice": 2.0, "minus": -1.0, "nan": float("nan")}
        return odd[answer] if answer in odd else float(int(answer) == int(entry["answer"]))


class EchoGym(Gym):
    def __init__(self, flag):
        super().__init__(5.0, {})
        made = SimpleNamespace(DATASETS={"echo": None})
        self._package = SimpleNamespace(factory=made, create_dataset=lambda name, seed, size: Echo(flag, seed))


@pytest.fixture
def echo(monkeypatch, tmp_path):
    monkeypatch.setattr(reasoning_gym_worker, "find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "reasoning_gym", SimpleNamespace())
    library = tmp_path / "library"
    library.mkdir()
    (library / "reasoning_gym.py").touch()
    path = [str(ROOT), str(ROOT / "tests" / "envs"), str(library)]
    kind = {"path": path, "environment": BARE}
    workers = WorkerPool(partial(WorkerProcess, factory=partial(EchoGym, str(tmp_path / "flag")), **kind), size=2)
    with make("echo", timeout_s=0.5) as env:
        env._gyms = Gyms(workers)
        env.reset()
        yield env
    workers.close()


@pytest.mark.parametrize(
    ("answer", "scorer", "score"),
    [
        ("hang", "timeout", 0.0),
        ("die", "died", 0.0),
        ("junk", "raised ValueError", 0.0),
        ("memory", "raised MemoryError", 0.0),
        ("twice", "ok", 0.99),
        ("minus", "ok", 0.0),
        ("nan", "ok", 0.0),
        ("", "no answer", 0.0),
    ],
)
def test_an_answer_that_breaks_the_scorer_is_wrong_and_says_so(echo, answer, scorer, score):
    _, reward, done, info = echo.step(answer)
    assert (reward, done, info["won"], info["scorer"], info["score"]) == (score, True, False, scorer, score)
    assert not echo.evaluate(info["answer"])
    echo.reset(echo.tasks()[1])
    assert echo.step(echo.walkthrough()[0])[1] == 1.0, "the next answer is scored as ever"


@pytest.mark.parametrize("how", ["hang", "raise"])
def test_a_scorer_that_breaks_at_every_answer_is_an_infra_error(echo, tmp_path, how):
    (tmp_path / "flag").write_text(how)
    with pytest.raises(InfraError):
        echo.step("7")
    (tmp_path / "flag").unlink()
    echo.reset(echo.tasks()[0])
    assert echo.step(echo.walkthrough()[0])[1] == 1.0


def test_a_worker_killed_from_outside_is_replaced(echo):
    [first] = echo._gyms.workers.pids()
    os.kill(first, signal.SIGKILL)
    assert echo.step(echo.walkthrough()[0])[3]["scorer"] == "ok"
    assert first not in echo._gyms.workers.pids()


def test_the_worker_sees_no_environment_of_ours(echo, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    assert echo.step("environment")[1] == len(BARE) / 100


def test_envs_share_a_few_workers_however_many_score_at_once(echo):
    """128 replies at once: one scorer each were 128 processes."""
    envs = [make("echo", timeout_s=0.5) for _ in range(128)]
    for env in envs:
        env._gyms = echo._gyms
        env.reset()
    with ThreadPoolExecutor(128) as threads:
        infos = list(threads.map(lambda env: env.step(env.walkthrough()[0])[3], envs))
    assert all(info["won"] for info in infos)
    assert 1 <= len(echo._gyms.workers.pids()) <= 2
    assert make("ab")._gyms is make("dice", "ab")._gyms is not make("ab", options={"ab": {"length": 5}})._gyms


# The real package.


@installed
class TestReasoningGym(EnvContract):
    invalid_action = None

    def make_env(self, folder):
        return make("base_conversion", "time_intervals")


@pytest.fixture(scope="module")
def every_default():
    with make(*DEFAULTS) as env:
        yield env


@installed
def test_every_default_family_is_solved_by_its_gold_answer_and_by_no_nonsense(every_default):
    tasks = every_default.tasks()
    assert len(tasks) == 3 * len(DEFAULTS)
    for task in tasks:
        every_default.reset(task)
        gold = every_default.get_ground_truth()
        _, reward, done, info = every_default.step(every_default.walkthrough()[0])
        assert (reward, done, info["won"], info["scorer"]) == (1.0, True, True, "ok"), task
        for nonsense in {"zzz", "nan", "13.5", "?", "[]", gold[::-1]} - {gold}:
            every_default.reset(task)
            assert not every_default.step(f"<answer>{nonsense}</answer>")[3]["won"], (task, nonsense)


ADDED = {
    "game_of_life": lambda gold: f"{gold.strip()[:-1]}, [7]]",
    "letter_jumble": lambda gold: f"{gold} zzz zzz",
    "time_intervals": lambda gold: gold.replace("days", "hours"),
    "word_sorting": lambda gold: f"{gold}, zzz, zzz",
}


@installed
def test_the_gold_answer_with_more_behind_it_is_no_success():
    rewards = {family: [] for family in ADDED}
    with make(*ADDED, per_family=10) as env:
        for task in env.tasks():
            env.reset(task)
            gold = env.get_ground_truth()
            if (answer := ADDED[task.type](gold)) != gold:
                _, reward, _, info = env.step(f"<answer>{answer}</answer>")
                assert not info["won"], (task, answer)
                rewards[task.type].append(reward)
    taken = [family for family, given in rewards.items() if NEARLY in given]
    assert taken == list(ADDED), "of each family some are such as the package's own scorer takes"


@pytest.mark.parametrize(
    ("family", "question", "gold", "wrong"),
    [
        ("family_relationships", "What is Ann to Bob?", "mother-in-law", True),
        ("family_relationships", "What is Ann to Bob?", "mother", False),
        ("family_relationships", "What is Tom to Ann?", "nephew", True),
        ("calendar_arithmetic", "from Tuesday, December 20, 2022 to Friday, January 6, 2022?", "14", True),
        ("calendar_arithmetic", "from Tuesday, December 20, 2022 to Friday, December 23, 2022?", "4", False),
        ("calendar_arithmetic", "from Friday, December 29, 2023 to Thursday, February 29, 2023?", "45", True),
        ("time_intervals", "from 00:00:00.000 to 00:00:01.001", "00:00:01.000", True),
        ("time_intervals", "from 2024-01-15 (Monday) 14:30:45 +0000 to", "3 days, 00:00", True),
        ("time_intervals", "from 2024-01-15 (Monday) to 2024-01-18 (Thursday)", "3 days", False),
        ("ab", "B# #A", "#A B#", False),
    ],
)
def test_a_gold_answer_that_is_wrong_is_known(family, question, gold, wrong):
    assert wrong_gold(family, question, gold) is wrong


@installed
def test_tasks_whose_gold_answer_is_wrong_are_left_out_and_counted():
    families = ["calendar_arithmetic", "family_relationships", "time_intervals"]
    with make(*families, per_family=60) as env:
        puzzles = env._puzzles("test")
        left_out = env.describe()["left_out"]
    assert [family for family in families if left_out.get(family)] == families
    assert not [puzzle for puzzle in puzzles if wrong_gold(puzzle.family, puzzle.question, puzzle.gold)]
    assert Counter(puzzle.family for puzzle in puzzles) == dict.fromkeys(families, 60)


@installed
def test_a_part_mark_is_a_reward_and_no_success(every_default):
    every_default.reset(next(task for task in every_default.tasks() if task.type == "simple_equations"))
    gold = every_default.get_ground_truth()
    _, reward, _, info = every_default.step(f"<answer>{gold} zzz</answer>")
    assert 0 < reward == info["score"] < 1
    assert not info["won"]


@installed
def test_no_question_is_in_both_splits_whatever_the_seed():
    """string_synthesis soon repeats itself; task 1 of the package's seed 0 is task 0 of its seed 1."""
    asked = {"train": [], "test": []}
    for seed in (0, 1):
        with make("string_synthesis", per_family=40, seed=seed) as env:
            for split, found in asked.items():
                found.append({task.query for task in env.tasks(split)})
                assert len(found[-1]) == 40
    assert not set.union(*asked["train"]) & set.union(*asked["test"])
    assert asked["test"][0] != asked["test"][1]


@installed
def test_tasks_are_named_by_their_content_and_fewer_are_the_first_of_more():
    with make("base_conversion", "ab", order="blocked") as env, make("base_conversion", per_family=30) as more:
        ids = [task.id for task in env.tasks()]
        assert ids[:3] == [task.id for task in more.tasks()][:3]
        assert [task.type for task in env.tasks()] == ["base_conversion"] * 3 + ["ab"] * 3
    assert ids[0] == "reasoning_gym/test/base_conversion/81dc8666cbe5c437"


@installed
def test_families_take_turns(every_default):
    assert [task.type for task in every_default.tasks()] == DEFAULTS * 3


@installed
def test_options_change_the_tasks_and_wrong_ones_are_told():
    with make("dice", options={"dice": {"num_dice": 2}}) as easy, make("dice") as usual:
        assert easy.tasks() != usual.tasks()
        assert easy.describe()["sha256"] != usual.describe()["sha256"]
    for wrong in ({"dices": 2}, {"num_dice": 0}):
        with make("dice", options={"dice": wrong}) as env, pytest.raises(UserError, match=r"env.options.dice"):
            env.tasks()


@installed
def test_an_unknown_family_and_one_with_too_few_tasks_are_told(monkeypatch):
    with make("abc") as env, pytest.raises(UserError, match="has no abc; it has ab, "):
        env.tasks()
    monkeypatch.setattr(reasoning_gym_env, "MOST_BATCHES", 2)
    with (
        make("ab", per_family=100) as env,
        pytest.raises(UserError, match=r"different tasks of ab.*lower env.per_family"),
    ):
        env.tasks()


@installed
def test_a_task_of_other_families_is_refused(every_default):
    with pytest.raises(UserError, match="is not a task of these families"):
        every_default.reset(Task(id="reasoning_gym/test/ab/0123456789abcdef", query="?"))
    with pytest.raises(UserError, match="split='dev'"):
        every_default.tasks("dev")


# Why families are refused. The package is asked directly.


def dataset(family, seed=4, size=4):
    import reasoning_gym

    return reasoning_gym.create_dataset(family, seed=seed, size=size)


def executed(family, monkeypatch):
    """Whether a part of the answer reaches eval, exec or compile while it is scored."""
    ran = []

    def spy(real):
        def call(code, *rest, **keys):
            ran.append(str(code))
            return real(code, *rest, **keys)

        return call

    made = dataset(family)
    entry = made[0]
    with monkeypatch.context() as patch:
        for name in ("eval", "exec", "compile"):
            patch.setattr(builtins, name, spy(getattr(builtins, name)))
        for answer in ("77771+77772", "[77771, 77772]", "77771*X + 77772 + C", "[['77771', '77772']]", "f(77771)"):
            try:
                made.score_answer(answer, entry)
            except Exception:  # noqa: BLE001 - whatever it makes of the answer, did it run it?
                continue
    return any("77771" in code for code in ran)


@installed
@pytest.mark.parametrize("family", of(EXECUTES))
def test_refused_as_the_answer_is_executed(family, monkeypatch):
    assert executed(family, monkeypatch)


@installed
def test_no_other_family_executes_the_answer(monkeypatch):
    from reasoning_gym.factory import DATASETS

    played = [family for family in sorted(DATASETS) if family not in REFUSED]
    assert len(played) == 79
    assert not [family for family in played if executed(family, monkeypatch)]


@installed
@pytest.mark.parametrize("family", of(NO_GOLD))
def test_refused_as_there_is_no_gold_answer(family):
    assert dataset(family)[0]["answer"] is None


HASHED = """
import json, random, sys
import reasoning_gym
told = {}
for family in sys.argv[1].split():
    random.seed(7)
    made = reasoning_gym.create_dataset(family, seed=7, size=20)
    told[family] = [[made[n]["question"], made[n]["answer"]] for n in range(2 if family == "knight_swap" else 20)]
print("told:", json.dumps(told))
"""


@installed
def test_refused_as_the_tasks_depend_on_the_hash_seed():
    told = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", HASHED, " ".join([*of(HASH_SEED), *DEFAULTS])]
        env = {"PATH": os.defpath, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, cwd=ROOT)
        told.append(json.loads(done.stdout.rpartition("told:")[2]))
    assert [family for family in told[0] if told[0][family] != told[1][family]] == of(HASH_SEED)


WRONG = {
    "coin_flip": lambda gold: "0" if float(gold) > 0.01 else gold,
    "complex_arithmetic": lambda gold: "nan",
    "decimal_arithmetic": lambda gold: gold[:5] if len(gold) > 10 else gold,
    "game_of_life_halting": lambda gold: "zzz",
    "gsm_symbolic": lambda gold: f"-{gold}",
    "number_sorting": lambda gold: re.sub(r"\d[\d.]*", lambda number: str(float(number[0]) + 0.5), gold),
    "pool_matrix": lambda gold: re.sub(r"\d[\d.]*", lambda number: str(float(number[0]) * 1.005), gold),
}


@installed
@pytest.mark.parametrize("family", of(NONSENSE))
def test_refused_as_a_wrong_answer_is_accepted(family):
    made = dataset(family, size=BATCH)
    entries = [made[n] for n in range(BATCH)]
    wrong = [(WRONG[family](entry["answer"]), entry) for entry in entries]
    assert [1 for answer, entry in wrong if answer != entry["answer"] and made.score_answer(answer, entry) == 1.0]
