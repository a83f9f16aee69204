"""Single-turn envs: the contract, the shuffled options, and datasets at hand through the real loop."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import REPO, read_json, read_rows
from env_contract import EnvContract

from core.errors import UserError
from envs.base import EnvView
from envs.questions import QuestionsEnv
from envs.single_turn import ChoiceEnv, MathEnv
from envs.toy import ToyEnv
from single_turn_bench.specs import SPECS

DATA = REPO.parent / "shared/data"
QUESTIONS = [
    {"id": f"q{n}", "question": f"Which is number {n}?", "options": [f"thing {n}.{i}" for i in range(3 + n % 8)]}
    | {"metadata": {"answer_index": n % 3, "domain": "even" if n % 2 == 0 else "odd"}}
    for n in range(60)
]


@pytest.fixture(scope="module")
def questions(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("qa") / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    return path


class TestToyContract(EnvContract):
    def make_env(self, folder):
        return ToyEnv(instructions="Open.", max_steps=5)


class TestMathContract(EnvContract):
    invalid_action = None

    def make_env(self, folder):
        rows = [{"id": str(n), "question": f"What is {n} thousand and 7?", "answer": f"{n},007"} for n in (41, 42, 43)]
        path = folder / "own.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return MathEnv(instructions="Solve.", max_steps=1, dataset="math500", path=str(path))


class TestChoiceContract(EnvContract):
    invalid_action = None

    def make_env(self, folder):
        path = folder / "own.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
        return ChoiceEnv(instructions="Choose.", max_steps=1, dataset="mmlu_pro", path=str(path))


def choice_env(path, **changes):
    return ChoiceEnv(instructions="Choose.", max_steps=1, dataset="mmlu_pro", path=str(path), **changes)


def test_options_are_shuffled_by_seed_and_id_and_the_key_moves_with_them(questions):
    keys = {}
    for seed in (0, 1):
        env = choice_env(questions, seed=seed, shuffle_options=True)
        for row, task in zip(QUESTIONS, env.tasks(), strict=True):
            env.reset(task)
            right = row["options"][row["metadata"]["answer_index"]]
            assert f"({env.get_ground_truth()}) {right}" in task.query.splitlines()
            assert sorted(line[4:] for line in task.query.splitlines()[2:]) == sorted(row["options"])
            keys.setdefault(seed, []).append(env.get_ground_truth())
    assert keys[0] != keys[1]
    assert len(set(keys[0])) >= 5  # not always the same letter
    env.reset(env.tasks()[5])
    _, reward, done, info = env.step(f"I think the answer is ({env.get_ground_truth()}).")
    assert (reward, done, info["won"], info["rule"]) == (1.0, True, True, "statement")
    assert sorted(map(int, info["order"].split(","))) == list(range(8))


def test_options_are_shuffled_where_the_set_says_so_and_never_where_one_names_others(tmp_path, compose):
    painkillers = {"id": "opioid", "question": "Which is an opioid?", "answer": "D"}
    painkillers["options"] = ["morphine", "ibuprofen", "fentanyl", "both A and C"]
    shown = {}
    for shuffled in (False, True):
        rows = [painkillers, QUESTIONS[7]]  # of thing 7.0 to thing 7.9, the second is right
        with questions_env(tmp_path, rows, shuffle_options=shuffled, seed=1) as env:
            assert env.describe().get("kept_in_order") == (1 if shuffled else None)
            for task in env.tasks():
                env.reset(task)
                shown[task.id, shuffled] = (env.get_ground_truth(), task.query.splitlines()[2:])
    assert shown["mine/opioid", True] == shown["mine/opioid", False]
    assert shown["mine/opioid", True] == ("D", ["(A) morphine", "(B) ibuprofen", "(C) fentanyl", "(D) both A and C"])
    assert shown["mine/q7", False] == ("B", [f"({letter}) thing 7.{n}" for n, letter in enumerate("ABCDEFGHIJ")])
    assert shown["mine/q7", True] != shown["mine/q7", False]
    said = {name: compose(f"env={name}").env.shuffle_options for name in ("gpqa_diamond", "mmlu_pro")}
    assert said == {name: SPECS[name].shuffled for name in said} == {"gpqa_diamond": True, "mmlu_pro": False}


def test_recorded_attempts_are_graded_again():
    def attempt(answer, gold, **info):
        return {"answer": answer, "gold": gold, "info": {"won": True, **info}}

    with MathEnv.regrader({"timeout_s": 3.0}) as grade:
        assert [grade(attempt(answer, "41,007")) for answer in ("41007", "41008", None)] == [True, False, False]
    with ChoiceEnv.regrader({}) as grade:
        assert [grade(attempt(answer, "B", order="2,0,1")) for answer in ("B", "A", None)] == [True, False, False]
        assert grade(attempt("B", "B")) is None  # how many options there were is not known
    with ToyEnv.regrader({}) as grade:  # what the env noted at the time
        assert (grade(attempt(None, "bababa")), grade({"info": {}})) == (True, None)


def test_subjects_and_ids_are_selected(questions):
    assert len(choice_env(questions, subject="odd").tasks()) == 30
    first = choice_env(questions).tasks()[0].id
    assert [task.id for task in choice_env(questions, ids=[first]).tasks()] == [first]
    with pytest.raises(UserError, match="no subject nonsense"):
        choice_env(questions, subject="nonsense").tasks()


def test_gold_solves_everything_and_random_is_the_floor(here, questions, tmp_path):
    words = ("env=mmlu_pro", f"env.path={questions}", "workflow=vanilla", "llm=scripted", "embedder=hashing")
    assert here(*words, "agent=gold", run_dir=tmp_path / "gold")[1] == 1.0
    run_dir, rate = here(*words, "agent=random", run_dir=tmp_path / "random")
    assert 0.02 < rate < 0.5
    again, _ = here(*words, "agent=random", run_dir=tmp_path / "again")
    assert (run_dir / "episodes.jsonl").read_bytes() == (again / "episodes.jsonl").read_bytes()
    assert set(read_json(run_dir / "summary.json")["by_type"]) == {"even", "odd"}


def test_gold_solves_the_bundled_problems(here):
    run_dir, rate = here("workflow=vanilla", "agent=gold", "llm=scripted", "embedder=hashing", "limit=null")
    assert rate == 1.0
    assert {row["trajectories"][0]["info"]["rule"] for row in read_rows(run_dir)} == {"boxed"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("agent=gold",), "agent=gold plays the answers"),
        (("agent=random", "workflow=vanilla"), "has no list of actions"),
    ],
)
def test_what_gold_and_random_cannot_play_is_refused(here, words, why):
    with pytest.raises(UserError, match=why):
        here(*words, "llm=scripted", "embedder=hashing")


AT_HAND = [
    ("math500", "math/math500_test.jsonl", 500),
    ("aime24", "math/aime2024.jsonl", 30),
    ("aime25", "math/aime2025.jsonl", 30),
    ("gsm8k", "math/gsm8k_test.jsonl", 1319),
    ("mmlu_pro", "choice", 2312),
]


@pytest.mark.skipif(not DATA.is_dir(), reason="the real datasets are not beside this checkout")
@pytest.mark.parametrize(("name", "path", "count"), AT_HAND, ids=[name for name, _, _ in AT_HAND])
def test_gold_solves_the_real_datasets(here, name, path, count):
    words = (f"env={name}", f"env.path={DATA / path}", "workflow=vanilla", "agent=gold", "llm=scripted")
    run_dir, rate = here(*words, "embedder=hashing", "limit=200")
    assert rate == 1.0
    assert read_json(run_dir / "manifest.json")["fingerprint"]["dataset"]["n_tasks"] == min(count, 200)


OF_ALL_KINDS = [
    {"id": "capital", "question": "What is the capital of Peru?", "answer": "Lima"},
    {"id": "sides", "question": "How many sides has a cube?", "answer": "6"},
    {"id": "half", "question": "What is half of x + 1?", "answer": "\\frac{x+1}{2}"},
    {"id": "fruit", "question": "Which is a fruit?", "options": ["stone", "apple", "car"], "answer": "B"},
    {"id": "shown", "question": "Which is red?\nA) a leaf\nB) a cherry", "answer": "b"},
    {"id": "day", "question": "When was it?", "answer": "2024-05-01"},
    {"id": "either", "question": "Who wrote it?", "answer": ["Mark Twain", "Samuel Clemens"]},
]


class TestQuestionsContract(EnvContract):
    invalid_action = None

    def make_env(self, folder):
        return questions_env(folder, OF_ALL_KINDS)


def questions_env(folder, rows, **changes):
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return QuestionsEnv(instructions="Answer.", max_steps=1, path=str(path), **changes)


REPLIES = [
    ("capital", "It is Lima.\n<answer>LIMA.</answer>", True),
    ("capital", "<answer>Cusco, not Lima</answer>", False),
    ("sides", "So <answer>6.0</answer>", True),
    ("sides", "<answer>12</answer>", False),
    ("half", r"<answer>\frac{1}{2}x + 0.5</answer>", True),
    ("shown", "<answer>(B)</answer>", True),
    ("shown", "<answer>A</answer>", False),
    ("day", "**2024-05-01**", True),
    ("day", "<answer>2018</answer>", False),  # nothing is calculated from a date
    ("either", "The answer is Samuel Clemens.", True),
]


def test_each_row_of_a_file_is_graded_by_its_own_kind_now_and_by_the_audit(subtests, tmp_path):
    with questions_env(tmp_path, OF_ALL_KINDS) as env, QuestionsEnv.regrader({}) as grade:
        tasks = {task.id: task for task in env.tasks()}
        for which, reply, right in REPLIES:
            with subtests.test(reply=reply):
                env.reset(tasks[f"mine/{which}"])
                gold = env.get_ground_truth()
                _, reward, _, info = env.step(reply)
                again = grade({"answer": info["answer"], "gold": gold, "info": info})
                assert (bool(reward), env.evaluate(info["answer"]), again) == (right, right, right)


def test_a_number_in_the_signs_of_another_language_is_a_number(tmp_path):
    for number, same in (("1.234,50 €", "1234.5"), ("1'234.50", "1,234.5"), ("1 234,5 km", "1234.5")):
        with questions_env(tmp_path, [{"question": "How much?", "answer": number}]) as env:
            env.reset(env.tasks()[0])
            assert env.describe()["kinds"] == {"number": 1}
            assert env.step(f"<answer>{same}</answer>")[1] == 1.0


def test_each_row_is_asked_for_its_own_kind_of_answer(tmp_path, compose):
    asked = dict(compose("env=questions").env.answer_form)
    with questions_env(tmp_path, OF_ALL_KINDS, answer_form=asked) as env:
        told = {}
        for task in env.tasks():
            env.reset(task)
            told[task.id.removeprefix("mine/")] = env.instructions
        assert EnvView(env, uses_gold=False).instructions == told["either"]
    assert told["sides"] == "Answer. End with the number alone, between <answer> and </answer>."
    kinds = {"capital": "text", "sides": "number", "half": "math", "fruit": "letter", "shown": "letter", "day": "text"}
    assert told == {name: f"Answer. {asked[kind]}" for name, kind in {**kinds, "either": "text"}.items()}
    with pytest.raises(UserError, match=r"env.answer_form.nmber: .* did you mean number\?"):
        questions_env(tmp_path, OF_ALL_KINDS, answer_form={"nmber": "A number."})


def test_a_reply_that_was_cut_off_states_an_answer_only_if_its_end_could_not_have_changed_it(subtests, tmp_path):
    cases = [
        ("sides", "So it has 6", "6", False),  # or 600
        ("sides", "The answer is 6", "6", False),
        ("sides", "<answer>6", "6", False),
        ("sides", "<answer>6</answer>", "6", True),
        ("sides", r"So \boxed{6}, as", "6", True),
        ("sides", "The answer is 6.\nTo check, count", "6", True),
        ("fruit", "The answer is B", "B", False),  # or Both
        ("fruit", "The answer is (B)", "B", True),
        ("fruit", "<answer>apple", "B", False),
        ("capital", "<answer>Lima", "Lima", False),
        ("capital", "<answer>Lima</answer>", "Lima", True),
    ]
    with questions_env(tmp_path, OF_ALL_KINDS) as env:
        tasks = {task.id.removeprefix("mine/"): task for task in env.tasks()}
        for name, reply, answer, stated in cases:
            with subtests.test(reply=reply):
                for cut_off in (False, True):
                    env.reset(tasks[name])
                    env.cut_off = cut_off
                    info = env.step(reply)[3]
                    whole = info["rule"] != "last_number"
                    assert (info["answer"], info["stated"]) == (answer, stated if cut_off else whole)


def test_a_kind_that_is_given_wins_and_one_that_cannot_be_is_refused_in_a_sentence(tmp_path):
    rows = [{"question": "Which year?", "answer": "1984"}, {"question": "Which film?", "answer": "Alien"}]
    with questions_env(tmp_path, rows, kind="text") as env:
        env.reset(env.tasks()[0])
        assert not env.step("<answer>1984.0</answer>")[3]["won"]
        assert env.describe()["kinds"] == {"text": 2}
    with questions_env(tmp_path, [row | {"kind": "text"} for row in rows]) as env:
        assert env.tasks() and env.describe()["kinds"] == {"text": 2}
    with questions_env(tmp_path, [row | {"kind": "trivia"} for row in rows]) as env:  # a column of the dataset's own
        assert [task.type for task in env.tasks()] == ["number", "text"]
    refused = {"number": "'Alien' is not a number", "letter": "a letter of what?", "txt": "did you mean text?"}
    for kind, says in refused.items():
        with pytest.raises(UserError, match=re.escape(says)):
            questions_env(tmp_path, rows, kind=kind).tasks()
    with pytest.raises(UserError, match=r"mine/[0-9a-f]+: its kind 'nmber' is not one of.*did you mean number\?"):
        questions_env(tmp_path, [rows[0] | {"kind": "nmber"}, rows[1] | {"kind": "text"}]).tasks()


def test_a_run_over_a_file_is_headed_by_its_name_and_gold_solves_it(tmp_path, main_here):
    (tmp_path / "my.quiz.csv").write_text("question,answer\nCapital of Peru?,Lima\n2+2?,4\n")
    words = ["env=questions", f"env.path={tmp_path / 'my.quiz.csv'}", "agent=gold", "workflow=vanilla"]
    code, said, _ = main_here(*words, "llm=scripted", "embedder=hashing", f"run_dir={tmp_path / 'run'}")
    assert code == 0 and "vanilla on my" in said
    assert read_json(tmp_path / "run/summary.json")["success_rate"] == 1.0
