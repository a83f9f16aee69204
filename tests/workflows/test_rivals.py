"""The rivals as arms: known answers, the same bytes after kill -9, counted tokens, caps, replies in no form."""

from __future__ import annotations

import csv
from collections import Counter

import pytest
from conftest import TOY, command, read_json, read_rows
from kill_kit import kill_at
from test_known_answer import BOX

from analysis.audit import audit
from analysis.runs import read_run
from core.errors import UserError
from core.seeding import derive_seed
from core.tokens import estimate_tokens
from envs.toy import ToyEnv
from envs.toy_script import play
from scripts.tables import main as tables

ARMS = ("dc_cumulative", "dc_synthesis", "ace", "expel", "memp", "grpo", "amem")
LUCKY = ("env.p_guess=0.2",)  # two boxes of ten open to any word


def is_lucky(family, box, p_guess, seed=0):
    """As envs/toy.py defines it; the same for every agent that tries the box."""
    return derive_seed(seed, f"toy/{family}/{box}", "luck") / 2**31 < p_guess


def learns_from_all(p_guess):
    """Boxes opened by who learns a family's word from any attempt at one of its boxes."""
    known, opened = set(), 0
    for family, box in BOX:
        opened += family in known or is_lucky(family, box, p_guess)
        known.add(family)
    return opened


def learns_from_successes(p_guess):
    """Boxes opened by who learns a family's word from a success at one of its boxes."""
    known, opened = set(), 0
    for family, box in BOX:
        won = family in known or is_lucky(family, box, p_guess)
        opened += won
        known |= {family} if won else set()
    return opened


def learns_from_pairs(p_guess):
    """Boxes opened by who keeps successes, and draws insights on the families of two attempts of different outcome.

    The partner of an attempt is the nearest one, which is of its own family if any is.
    """
    known, done, opened = set(), [], 0
    for family, box in BOX:
        won = family in known or is_lucky(family, box, p_guess)
        opened += won
        others = [other for other, outcome in done if outcome != won]
        if family in others:
            known.add(family)
        elif others:  # whichever it is, it must be known already, or this world is no known answer
            assert set(others) <= known
            known.add(family)
        known |= {family} if won else set()
        done.append((family, won))
    return opened


def lucky_alone(p_guess):
    return sum(is_lucky(family, box, p_guess) for family, box in BOX)


# By the papers. The attempts of a group have one outcome here, as luck is the box's: GRPO has nothing to contrast.
RULES = {
    "dc_cumulative": learns_from_all,
    "dc_synthesis": learns_from_all,
    "ace": learns_from_all,
    "amem": learns_from_all,
    "expel": learns_from_pairs,
    "memp": learns_from_successes,
    "grpo": lucky_alone,
}


def test_the_answers_are_those_calculated_by_hand():
    """Four families of ten boxes, tried in turn. Without luck the first box of each family fails, and with it is seen
    the family's word: who learns from any attempt opens the other 36; who needs a success, or a pair with one, has
    never any. With luck of 0.2 the lucky boxes are birch 2 and 8, dune 2 and 10, amber 3, cedar 6 and 10. No first box
    is, so 36 again, and 7 by luck alone. From successes: all of a family's boxes from its first lucky one on, 8 + 9 + 9
    + 5 = 31. From pairs: birch at its second box, where a failure stands beside it, then any family at its next
    attempt, for a success stands there: cedar at 2 and dune at 2, and amber at 3, its first after birch 2: 8 open of
    amber (3 by luck), 9 of birch and of dune, 8 of cedar: 34.
    """
    assert {arm: rule(0.0) for arm, rule in RULES.items()} == dict.fromkeys(ARMS, 0) | dict.fromkeys(
        ("dc_cumulative", "dc_synthesis", "ace", "amem"), 36
    )
    with_luck = {"expel": 34, "memp": 31, "grpo": 7}
    assert {arm: rule(0.2) for arm, rule in RULES.items()} == dict.fromkeys(ARMS, 36) | with_luck


CALLS = {  # of the extractor in 40 tasks without luck
    "dc_cumulative": 40,
    "dc_synthesis": 39,  # before each task but the first
    "ace": 80,  # reflector and curator
    "expel": 0,  # there is never a success, so no pair
    "memp": 0,
    "grpo": 0,
    "amem": 79,  # a note each, and its neighbours from the second on
}


@pytest.mark.parametrize("p_guess", [0.0, 0.2])
@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_gives_the_known_answer_and_counts_what_it_spent(here, arm, p_guess):
    run_dir, _ = here(*TOY, f"arm={arm}", f"env.p_guess={p_guess}")
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    assert (summary["n_success"], summary["n"], summary["n_learning_errors"]) == (RULES[arm](p_guess), 40, 0)
    assert p_guess or sum(row["usage"]["extractor"]["calls"] for row in rows) == CALLS[arm]
    spent = Counter()
    for call in (call for call in read_rows(run_dir, "calls.jsonl") if call["role"] != "embedder"):
        spent[call["role"]] += call["usage"]["prompt_tokens"] + call["usage"]["completion_tokens"]
    assert {role: n for role, n in summary["tokens"].items() if n} == {**spent, "total": sum(spent.values())}
    assert audit(read_run(run_dir))["broken"] == {}


@pytest.mark.parametrize("arm", ARMS)
def test_it_goes_on_to_the_same_bytes_after_kill_9(here, tmp_path, arm):
    words = (*TOY, *LUCKY, f"arm={arm}", "limit=16")
    whole = (here(*words, run_dir=tmp_path / "whole")[0] / "episodes.jsonl").read_bytes()
    run_dir, words = tmp_path / "killed", (*words, "llm.delay_s=0.01")
    kill_at(9, command(*words, f"run_dir={run_dir}"), run_dir)
    here(*words, run_dir=run_dir)
    assert (run_dir / "episodes.jsonl").read_bytes() == whole


def says_nothing(messages, role, sample):
    """A player whose extractor keeps to no form that it is asked for."""
    return "{ well: [I would say," if role == "extractor" else play(messages, role, sample)


@pytest.mark.parametrize("arm", ARMS)
def test_a_reply_in_no_form_is_counted_named_and_changes_nothing(here, caplog, arm):
    """As many replies are dropped as were asked for operations or items (no task is ever a success by these), and the
    result is that of no memory: only the lucky boxes. A-MEM keeps the attempt itself, which names the word."""
    run_dir, _ = here(*TOY, *LUCKY, f"arm={arm}", f"llm.script.path={__name__}.says_nothing", "limit=12")
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    calls = sum(row["usage"]["extractor"]["calls"] for row in rows)
    assert (summary["n"], summary["n_infra_error"], summary["n_learning_errors"]) == (12, 0, 0)
    assert summary["n_lessons_dropped"] == calls
    assert sum("toy/" in record.getMessage() for record in caplog.records) >= bool(calls)
    assert audit(read_run(run_dir))["broken"] == {}
    if arm not in ("amem", "expel"):
        assert summary["n_success"] == sum(is_lucky(family, box, 0.2) for family, box in BOX[:12])


@pytest.mark.parametrize("arm", ["dc_cumulative", "ace", "amem"])
def test_a_cap_leaves_out_whole_notes_and_counts_them(here, tmp_path, arm):
    """Notes are shown in order until the next one would exceed the cap; what is left is n_not_shown."""
    rows = read_rows(here(*TOY, f"arm={arm}", "limit=12", run_dir=tmp_path / "whole")[0])
    sizes = [sum(map(estimate_tokens, lesson.values())) for lesson in shown_lessons(rows)[-1]]
    most = sizes[0] + sizes[1]  # room for two of the last task's
    run_dir, _ = here(*TOY, f"arm={arm}", "limit=12", f"memory.max_tokens={most}", run_dir=tmp_path / "capped")
    left_out, rows = 0, read_rows(run_dir)
    for row, lessons in zip(rows, shown_lessons(rows), strict=True):
        sizes = [sum(map(estimate_tokens, lesson.values())) for lesson in lessons]
        fit = max(n for n in range(len(sizes) + 1) if sum(sizes[:n]) <= most)
        assert sum(hit["n_shown"] for hit in row["retrieved"]) == fit
        left_out += len(sizes) - fit
    assert read_json(run_dir / "summary.json")["n_not_shown"] == left_out > 0


def shown_lessons(rows):
    """Of each row the lessons that were retrieved, in order."""
    records = {record["id"]: record["items"] for row in rows for record in row["records"]}
    return [[item for hit in row["retrieved"] for item in hit.get("items", records.get(hit["id"]))] for row in rows]


@pytest.mark.parametrize(("arm", "opened"), [("ace", 72), ("amem", 76), ("dc_cumulative", 72)])
def test_in_a_second_pass_no_task_is_shown_what_comes_from_itself(here, arm, opened):
    """36 boxes in the first pass. In the second all 40 with A-MEM, where each box has a note of its own; 36 with ACE,
    where the first box of each family wrote its only note and the others voted for it; 36 with a cheatsheet, which is
    shown as it was before the box's own first attempt.
    """
    rows = read_rows(here(*TOY, f"arm={arm}", "stream.passes=2")[0])
    assert sum(row["status"] == "success" for row in rows) == opened


def a_word_a_sample(messages, role, sample):
    """A player whose second attempt at a box knows the word, from nowhere: so groups differ in outcome."""
    said = play(messages, role, sample)
    if role == "agent" and sample == 1 and said.endswith("sesame"):
        family = messages[1]["content"].partition("the ")[2].split()[0]
        return f"Thought: A guess.\nAction: say {ToyEnv(instructions='', max_steps=5, seed=0).word(family)}"
    return said


@pytest.mark.parametrize("words", [("memory=grpo",), ("arm=grpo", "k=1")])
def test_grpo_with_one_attempt_a_task_is_refused(here, words):
    with pytest.raises(UserError, match="learns from several attempts at a task alone"):
        here(*TOY, *words)


def test_grpo_learns_where_the_attempts_of_a_group_differ(here):
    """The first attempt counts: it fails at the first box of each family, where the second opens it, and the contrast
    adds the word; all later groups are of one outcome. Calls: 4 groups of 3 summaries, an advantage and an update."""
    words = (*TOY, "arm=grpo", "k=3", f"llm.script.path={__name__}.a_word_a_sample")
    run_dir, _ = here(*words)
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    assert (summary["n_success"], summary["n"], summary["n_lessons"]) == (36, 40, 4)
    assert [row["usage"]["extractor"]["calls"] for row in rows] == [5] * 4 + [0] * 36
    assert audit(read_run(run_dir))["broken"] == {}


@pytest.mark.parametrize("arm", ["ace", "dc_cumulative", "amem"])
def test_a_frozen_bank_is_shown_and_left_alone(here, tmp_path, arm):
    bank = here(*TOY, f"arm={arm}", "limit=8", run_dir=tmp_path / "learned")[0] / "bank.sqlite"
    before = bank.read_bytes()
    words = (*TOY, f"arm={arm}", "limit=16", "setting=frozen", f"memory.path={bank}")
    rows = read_rows(here(*words, run_dir=tmp_path / "frozen")[0])
    assert all(row["status"] == "success" for row in rows[8:])
    assert not any(row["records"] for row in rows)
    assert bank.read_bytes() == before


@pytest.mark.parametrize("arm", ARMS)
def test_a_dry_run_estimates_it(main_here, arm):
    status, out, errors = main_here(*TOY, f"arm={arm}", "dry_run=true")
    assert status == 0, errors
    asks_at_first = {"dc_cumulative", "ace", "memp", "grpo", "amem"}
    assert ("extractor: first prompt" in out) == (arm in asks_at_first)


def test_the_experiment_runs_all_of_them_and_tables_what_each_costs(program, tmp_path, capsys):
    done = program("main.py", "-m", "experiment=rivals", *TOY, "seed=0", "limit=8", f"run_dir={tmp_path / 'sweep'}")
    assert done.returncode == 0, done.stderr
    assert tables([str(tmp_path / "sweep"), "--table", "rivals", "--format", "csv"]) == 0
    rows = {row["arm"]: row for row in csv.DictReader(capsys.readouterr().out.splitlines())}
    assert set(rows) == {"no_memory", "history", "reasoningbank", *ARMS}
    for arm in ARMS:
        summary = read_json(next((tmp_path / "sweep").glob(f"arm={arm},*")) / "summary.json")
        assert float(rows[arm]["tokens_memory"]) == pytest.approx(summary["tokens"]["extractor"] / 8)
        assert float(rows[arm]["success"]) == pytest.approx(summary["n_success"] / 8)
