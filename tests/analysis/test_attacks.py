"""Attacks on a run that used to pass the audit: keys of answers, the same questions again, what was changed later."""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from conftest import TOY, read_json, read_rows, write_rows
from report_kit import run_once

from analysis.answer_key import many_answers, named_answers, quoted_questions
from analysis.audit import audit
from analysis.load import load_runs
from analysis.notes import memory_settings_notes
from analysis.runs import read_run
from core.errors import UserError
from core.run.metrics import summarise
from core.types import Task
from envs.toy import ToyEnv
from workflows.reasoningbank import ReasoningBank

WORDS = {family: ToyEnv(instructions="", max_steps=5).word(family) for family in ("amber", "birch", "cedar", "dune")}
INSTRUCTIONS = "You open locked boxes by saying the right word.\nThe only action is: say WORD"


@pytest.fixture
def toy(tmp_path_factory):
    return lambda *words: run_once(tmp_path_factory, *TOY, "limit=16", *words)


@pytest.fixture
def copy(toy, tmp_path):
    return lambda *words: Path(shutil.copytree(toy(*words), tmp_path / "copy"))


def told(run_dir):
    return audit(read_run(run_dir))


def rewrite(run_dir, rows):
    """Write the rows, and the summary that they have."""
    write_rows(run_dir, rows)
    summary = read_json(run_dir / "summary.json") | summarise(rows, len(rows))
    (run_dir / "summary.json").write_text(json.dumps(summary))


# What was changed after it was written


def solved(row):
    """The episode as one that was solved, in all that its row says."""
    attempt = row["trajectories"][0]
    step, word = attempt["steps"][-1], attempt["gold"]
    for name in ("text", "action"):
        step[name] = re.sub(r"say \w+", f"say {word}", step[name])
    step["observation"] = f'The box is open: the word of the {row["task_type"]} family was indeed "{word}".'
    attempt |= {"success": True, "reward": 1.0, "ended_by": "goal", "info": {"won": True}}
    row |= {"status": "success", "reward": 1.0}
    for verdict in (row["verdict"], *row["verdicts"]):
        verdict["label"] = "success"


def test_rewritten_episodes_are_broken(copy):
    run_dir = copy("arm=reasoningbank")
    assert told(run_dir)["broken"] == {}
    rows = read_rows(run_dir)
    for row in rows:
        solved(row)
    rewrite(run_dir, rows)
    assert len(told(run_dir)["broken"]["content_ids"]) >= 4


def test_success_written_into_the_row_alone_is_broken(copy):
    run_dir = copy("arm=no_memory")
    rows = read_rows(run_dir)
    for row in rows:
        row["trajectories"][0] |= {"success": True, "reward": 1.0, "info": {"won": True}}
        row |= {"status": "success", "reward": 1.0}
    rewrite(run_dir, rows)
    report = told(run_dir)
    assert report["broken"] == {} and len(report["look"]["odd_endings"]) == 16  # the toy world keeps no other facts


def a_prompt(row):
    row["trajectories"][0]["opening"][0]["content"] += "\nBe bold."


def an_observation(row):
    steps = row["trajectories"][0]["steps"]
    steps.insert(0, {**steps[0], "observation": "Nothing happens.", "action": "look"})


def a_reply(row):
    row["trajectories"][0]["steps"][0]["text"] += " "


def a_lesson(row):
    for lesson in (*row["lessons"], *row["records"][0]["items"]):
        lesson["content"] = "Say sesame."


@pytest.mark.parametrize("change", [a_prompt, an_observation, a_reply, a_lesson])
def test_one_changed_thing_in_one_episode_is_broken(copy, change):
    run_dir = copy("arm=reasoningbank")
    rows = read_rows(run_dir)
    change(rows[3])
    write_rows(run_dir, rows)
    assert "content_ids" in told(run_dir)["broken"]


def replace_lessons(bank, say="Say nothing at all."):
    with closing(sqlite3.connect(bank)) as db, db:
        items = json.dumps([{"title": "Words", "description": "What opens.", "content": say}])
        db.execute("UPDATE records SET items = ?", (items,))


def test_lessons_replaced_between_two_starts_are_noticed_by_the_next_start_and_by_the_audit(here, tmp_path):
    words = (*TOY, "limit=16", "budget.run.calls=24")
    run_dir, _ = here(*words, run_dir=tmp_path / "run")
    assert 0 < len(read_rows(run_dir)) < 16
    other = Path(shutil.copytree(run_dir, tmp_path / "other"))
    here(*TOY, "limit=16", run_dir=other)  # untouched, it goes on
    assert told(other)["broken"] == {}
    replace_lessons(run_dir / "bank.sqlite")
    with pytest.raises(UserError, match="records in the bank hold other lessons than the episodes that made them"):
        here(*TOY, "limit=16", run_dir=run_dir)
    replace_lessons(other / "bank.sqlite")
    assert len(told(other)["broken"]["changed_lessons"]) == 16


def test_lessons_replaced_in_a_given_bank_are_broken(here, toy, tmp_path):
    bank = shutil.copy(toy() / "bank.sqlite", tmp_path / "bank.sqlite")
    run_dir, _ = here(*TOY, "limit=4", "setting=frozen", f"memory.path={bank}", run_dir=tmp_path / "clean")
    assert told(run_dir)["broken"] == {}
    replace_lessons(bank)
    run_dir, _ = here(*TOY, "limit=4", "setting=frozen", f"memory.path={bank}", run_dir=tmp_path / "forged")
    assert len(told(run_dir)["broken"]["changed_lessons"]) >= 1


# The same questions again


@dataclass(kw_only=True)
class Renamed(ToyEnv):
    """The toy world's boxes under other ids, their questions as `written`."""

    written: str = "same"

    def _tasks(self, split):
        return [  # its first page stays as it was
            Task(id=f"quiz/{number}", query=WRITTEN[self.written](task.query), type=task.type)
            for number, task in enumerate(super()._tasks(split))
        ]

    def _reset(self, task):
        return super()._reset(replace(task, query=f"Open the {task.type} box: box 1 of the {task.type} family."))


WRITTEN = {
    "same": lambda text: text,
    "in capitals with other signs": lambda text: text.upper().replace(":", ";").replace(".", "!"),
    "in another order": lambda text: " ".join(reversed(text.split())),
    "with a slip": lambda text: text.replace("Open", "Opens"),
}


@pytest.mark.parametrize("written", WRITTEN)
def test_a_bank_of_the_same_questions_under_other_ids_is_a_look(here, toy, tmp_path, written):
    words = (f"env._target_={__name__}.Renamed", f"+env.written={written}", "setting=frozen")
    words = tuple(word if " " not in word else word.replace("=", "='", 1) + "'" for word in words)
    run_dir, _ = here(*TOY, *words, f"memory.path={toy() / 'bank.sqlite'}", "limit=16", run_dir=tmp_path / "run")
    look = told(run_dir)["look"]
    assert "16 of 16 tasks have a twin" in look["twins_retrieved"][0]
    assert any("16 of 16 tasks have a twin" in line and "given bank" in line for line in look["near_duplicate_tasks"])
    if written in ("same", "in capitals with other signs"):
        assert "16 the same" in look["twins_retrieved"][0]


def test_other_questions_are_no_twins(here, toy, tmp_path):
    words = ("env=customs", "llm=free", "embedder=hashing", "limit=12")
    bank = here(*words, run_dir=tmp_path / "first")[0] / "bank.sqlite"
    run_dir, _ = here(*TOY, "setting=frozen", f"memory.path={bank}", "limit=8", run_dir=tmp_path / "run")
    assert "twins_retrieved" not in told(run_dir)["look"]


def test_a_bank_that_an_identical_run_made_is_not_broken_and_what_was_learned_later_is(here, tmp_path):
    words = (*TOY, "limit=8", f"memory.path={tmp_path / 'bank.sqlite'}")
    for name in ("one", "two", "three"):
        run_dir, _ = here(*words, run_dir=tmp_path / name)
        assert told(run_dir)["broken"] == {}
    first = tmp_path / "one"
    assert told(first)["broken"] == {}  # though others have filled its bank since
    rows = read_rows(first)
    rows[1]["retrieved"] = [{"id": rows[6]["records"][0]["id"], "score": 1.0, "n_items": 1, "n_shown": 1}]
    write_rows(first, rows)
    assert "of the later episode 6" in told(first)["broken"]["self_retrieval"][0]


# Keys of answers


KEYS = {
    "sentences": "\n".join(f'The word of the {family} family is "{word}".' for family, word in WORDS.items()),
    "one line": ", ".join(f"{family}={word}" for family, word in WORDS.items()),
    "data": json.dumps([{"family": family, "opens": word} for family, word in WORDS.items()], indent=1),
    "of two families, in capitals": f"AMBER {WORDS['amber']} BIRCH {WORDS['birch']} and nothing on the others",
}


@pytest.mark.parametrize("name", ["sentences", "data", "of two families, in capitals"])
def test_a_key_of_the_answers_in_every_system_prompt_is_a_look(here, tmp_path, name):
    text = json.dumps(f"{INSTRUCTIONS} {KEYS[name]}".replace("\n", " "))
    run_dir, _ = here(*TOY, "arm=no_memory", f"env.instructions={text}", "limit=16", run_dir=tmp_path / "run")
    assert "the system prompt holds" in told(run_dir)["look"]["answer_key"][0]


@pytest.mark.parametrize("words", [(), ("setting=train",), ("arm=matts_parallel",)])
def test_a_clean_run_holds_no_key(toy, words):
    assert "answer_key" in told(toy(*words))["ok"]


def rows_of(answers, ask=lambda n: f"What do they say is fact {n}?"):
    return [
        {"task_id": str(n), "index": n, "query": ask(n), "chosen": 0, "trajectories": [{"gold": gold}]}
        for n, gold in enumerate(answers)
    ]


def found(rows, text):
    return many_answers(rows, text) or named_answers(rows, text) or quoted_questions(rows, text)


LETTERS, NUMBERS = random.Random(3).choices("ABCD", k=40), [17 * n % 911 for n in range(3, 33)]
TITLES = [f"{one} {two}" for one in ("Green", "Stone", "Silver") for two in ("harbour", "mill", "tower", "bridge")]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (rows_of(map(str, NUMBERS)), "Answers: " + " ".join(map(str, sorted(NUMBERS)))),
        (rows_of(TITLES), f"It is one of {', '.join(sorted(TITLES))}, or none."),
        (rows_of(LETTERS), " ".join(f"{n}:{letter}" for n, letter in enumerate(LETTERS))),
        (rows_of(LETTERS), "\n".join(f"{letter} for fact {n}" for n, letter in enumerate(LETTERS))),
        (rows_of(["7"] * 20), "\n".join(f"What do they say is fact {n}? seven" for n in range(20))),
    ],
)
def test_a_key_is_found_whatever_its_form(rows, text):
    assert found(rows, f"You answer questions. Think first.\n{text}")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (rows_of(LETTERS), "Choose one of A, B, C and D. End with: The answer is (X).\n" + "A) or B)? C) or D)? " * 9),
        (rows_of(["positive", "negative", "neutral", "mixed"] * 6), "Say positive, negative, neutral or mixed."),
        (rows_of(map(str, NUMBERS)), "Steps 1 to 9. The answer is a whole number from 0 to 999, like 52 or 120."),
        (rows_of([str(n % 10) for n in range(40)]), "0 1 2 3 4 5 6 7 8 9 are the digits."),
        (rows_of(["go north", "go south", "take lamp", "look"] * 5), "Actions: go north, go south, take lamp, look."),
        (rows_of(TITLES), "The Silver tower stands by the Stone bridge. Name a place."),
        (rows_of(TITLES, lambda n: f"Which of {', '.join(TITLES)} has fact {n}?"), f"It is one of {TITLES}."),
    ],
)
def test_a_list_of_what_may_be_answered_is_no_key(rows, text):
    assert found(rows, text) is None


def test_a_key_in_a_template_or_in_a_lesson_of_a_given_bank_is_a_look(here, toy, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "judge.jinja").write_text(f'{KEYS["sentences"]} {{{{ trajectory }}}} Status: "success" or "failure"')
    run_dir, _ = here(*TOY, f"prompts={own}", "limit=16", run_dir=tmp_path / "prompts_run")
    assert any("template" in line for line in told(run_dir)["look"]["answer_key"])
    bank = shutil.copy(toy() / "bank.sqlite", tmp_path / "bank.sqlite")
    replace_lessons(bank, KEYS["one line"])
    run_dir, _ = here(*TOY, "limit=16", "setting=frozen", f"memory.path={bank}", run_dir=tmp_path / "lesson_run")
    assert any(line.startswith("the lesson") for line in told(run_dir)["look"]["answer_key"])


# What else tells the answer


@dataclass(kw_only=True)
class AnswersInQueries(ReasoningBank):
    """Looks for lessons by the task and its answer."""

    def retrieve(self, task):
        word = WORDS[task.type]
        return self.bank.retrieve(f"{task.query} {word} {word}", exclude_task=task.id)


def test_a_search_by_another_text_than_the_question_is_a_look(here, toy, tmp_path):
    run_dir, _ = here(*TOY, f"workflow._target_={__name__}.AnswersInQueries", "limit=16", run_dir=tmp_path / "run")
    assert "by another text than the task's query" in told(run_dir)["look"]["other_queries"][0]
    for words in ((), ("arm=two_passes",), ("memory.key=joined",)):
        assert "other_queries" not in told(toy(*words))["look"]


@dataclass(kw_only=True)
class TellingTypes(ToyEnv):
    """Types that are the answer; the questions do not name the family."""

    def _tasks(self, split):
        tasks = super()._tasks(split)
        return [replace(task, type=WORDS[task.type], query=f"Open box {number}.") for number, task in enumerate(tasks)]

    def _reset(self, task):
        family = task.id.split("/")[1]
        return super()._reset(replace(task, type=family, query=f"Open the box of the {family} family."))


def test_types_that_tell_the_answer_are_a_look(here, toy, tmp_path):
    words = (f"env._target_={__name__}.TellingTypes", "arm=no_memory", "limit=16")
    run_dir, _ = here(*TOY, *words, run_dir=tmp_path / "run")
    assert any(
        "type of the task: the own answer in 16 of 16" in line for line in told(run_dir)["look"]["gold_by_chance"]
    )
    assert "gold_by_chance" in told(toy("arm=no_memory"))["ok"]  # the questions name their families


def test_the_table_says_what_a_label_from_outside_means(here, tmp_path):
    bank = here(*TOY, "limit=4", run_dir=tmp_path / "first")[0] / "bank.sqlite"
    with closing(sqlite3.connect(bank)) as db, db:
        db.execute("UPDATE records SET label_source = 'client'")
    run_dir, _ = here(*TOY, "limit=4", "setting=frozen", f"memory.path={bank}", run_dir=tmp_path / "run")
    [note] = [each for each in memory_settings_notes(load_runs([run_dir])) if "memory.path" in each]
    assert "The label client is of no judge here" in note
    assert memory_settings_notes(load_runs([tmp_path / "first"])) == []
