"""experiment=faithfulness: what an agent uses of its memory, in worlds in which that is known."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import TOY, read_json, read_rows
from report_kit import make_run

from analysis.faithfulness import (
    NOT_USED,
    UNKNOWN,
    USED,
    build_faithfulness,
    causes_of,
    cells_of_arms,
    comparing,
    sentence,
    uses_of,
)
from analysis.stats import paired, paired_worst
from analysis.tables import load_episodes
from benchmarks.faithful_worlds import ARMS as ASKED
from benchmarks.faithful_worlds import WORLDS
from core.seeding import derive_seed
from scripts.tables import main as tables


def opened_by(order, *, last=None, lot=False, seed=0):
    """Boxes opened, by the definitions alone: a box opens if one of its family was before it, and is shown.

    order   (task, family, id of its lesson) in stream order; last: only so many attempts are shown; lot: one lesson,
            drawn by its hash
    """
    n = 0
    for place, (task, family, _) in enumerate(order):
        before = order[:place]
        if lot and before:
            before = [min(before, key=lambda one, task=task: derive_seed(seed, task, one[2], "retrieval"))]
        n += family in [kind for _, kind, _ in (before if last is None else before[-last:])]
    return n


def test_the_arms_of_the_toy_world_have_the_results_that_follow_from_their_definitions(here, tmp_path, subtests):
    """4 families of 5 boxes, in turn; a box opens to who is shown its family's word.

    No lesson (no_memory), none with a word (empty_block, placebo), none that is true (corrupt) and none of the family
    (other_task) open none. The nearest lesson is of the own family from its second box on: 16. The last five attempts
    hold the one at the own family's last box, four before: 16; an attempt has one step, which shuffling leaves: 16. The
    whole history: 16. The lesson told: 20. One drawn at random: as drawn.
    """
    answers = dict.fromkeys(("no_memory", "empty_block", "placebo", "corrupt", "other_task"), 0)
    answers |= dict.fromkeys(("reasoningbank", "recent", "shuffle", "history"), 16) | {"told_lesson": 20}
    for arm in (*answers, "random_retrieval"):
        with subtests.test(arm=arm):
            run, _ = here(*TOY, "limit=20", f"arm={arm}", run_dir=tmp_path / arm)
            rows = read_rows(run)
            order = [(row["task_id"], row["task_type"], row["records"] and row["records"][0]["id"]) for row in rows]
            assert opened_by(order) == opened_by(order, last=5) == 16
            expected = answers[arm] if arm in answers else opened_by(order, lot=True)
            assert read_json(run / "summary.json")["n_success"] == expected


def test_only_three_attempts_back_there_is_no_box_of_the_family(here):
    run, rate = here(*TOY, "arm=recent", "retrieval.top_k=3", "limit=10")
    assert rate == 0
    assert [hit["id"] for hit in read_rows(run)[9]["retrieved"]] == [
        row["records"][0]["id"] for row in reversed(read_rows(run)[6:9])
    ]


def test_history_is_cut_to_its_tokens_and_what_is_left_out_is_counted(here):
    run, rate = here(*TOY, "arm=history", "memory.max_tokens=200", "limit=20")
    rows, summary = read_rows(run), read_json(run / "summary.json")
    shown = [[hit["n_shown"] for hit in row["retrieved"]] for row in rows]
    assert [len(each) for each in shown] == list(range(20))  # all that came before
    assert all(sorted(each, reverse=True) == each for each in shown)  # the newest first
    fits = max(map(sum, shown))
    assert 2 <= fits < 4 and rate == 0  # the family's last box is four back
    assert summary["n_not_shown"] == sum(len(each) - sum(each) for each in shown) > 120


@pytest.mark.parametrize("world", ["content", "length"])  # of made-up outcomes, below: the others, too
def test_a_real_study_names_what_its_agent_uses(tmp_path, world):
    """4 seeds of 4 families by 5 boxes, shuffled, with one luck for all arms: arms that act alike open the same boxes.

    With its family's word a box opens with a chance of 0.9. The agent of `content` is told it by a lesson. That of
    `length` never says it, and guesses, with a chance of 0.9, where a lesson stands before it, else it does not act.
    """
    runs = [(arm, seed) for arm in ASKED.split(",") for seed in range(4)]
    runs += [("recent", 0), ("shuffle", 0)] if world == "content" else []
    for arm, seed in runs:
        named = ("stream.order=shuffled", f"seed={seed}", f"arm={arm}", *WORLDS[world], "env.families=4")
        make_run(tmp_path / arm / str(seed), *TOY, *named)
    _, [uses, shown] = build_faithfulness(load_episodes([str(tmp_path)]))
    assert uses.notes[0] == f"The agent uses {world}."
    of = {row[0]: dict(zip(shown.head, row, strict=True)) for row in shown.rows}
    n_lessons = {arm: of[arm]["lessons shown / task"] for arm in ASKED.split(",")}
    with_lessons = dict.fromkeys(("placebo", "corrupt", "reasoningbank"), "0.95")  # 19 of 20
    assert n_lessons == {"no_memory": "0.00", "empty_block": "0.00"} | with_lessons
    tokens = {arm: float(row["their tokens / task"]) for arm, row in of.items()}
    assert tokens["empty_block"] > 0 == tokens["no_memory"]
    for control in ("placebo", "corrupt"):  # as long as what it replaces, to a fifth
        assert tokens[control] == pytest.approx(tokens["reasoningbank"], rel=0.2)
    assert tokens.get("shuffle") == tokens.get("recent")
    place = {arm: row["tokens before them"] for arm, row in of.items()}
    assert place.pop("no_memory") == "-" and len({*place.values()}) == 1


def test_an_arm_with_a_word_of_its_own_is_compared_and_of_two_such_none():
    rows = [
        {"arm": arm, "label": label, "cell": cell}
        for arm, label, cell in (
            ("placebo", "placebo top_k=2", "a"),
            ("recent", "recent", "b"),
            ("recent", "recent top_k=2", "c"),
            ("corrupt", "corrupt top_k=2", "d"),
            ("corrupt", "corrupt top_k=3", "e"),
        )
    ]
    assert cells_of_arms(rows) == {"placebo": ["a"], "recent": ["b"], "corrupt": ["d", "e"]}


def test_the_experiment_ends_with_its_answer(program, tmp_path, capsys):
    words = ("experiment=faithfulness", *TOY, "arm=no_memory,recent,shuffle", "limit=5", "seed=0")
    done = program("main.py", "-m", *words, f"run_dir={tmp_path / 'sweep'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "What the agent uses: toy, scripted, 5 tasks" in done.stdout and "What was shown: toy" in done.stdout
    assert "missing" not in done.stdout
    assert tables([str(tmp_path / "sweep"), "--table", "faithfulness"]) == 0
    assert "| the order of their steps | recent - shuffle |" in capsys.readouterr().out


# The answer, of made-up outcomes

ARMS = "no_memory empty_block placebo random_retrieval corrupt reasoningbank shuffle recent history told_lesson".split()
RATES = {  # of success, of each world's arms
    "content": dict(zip(ARMS, (0.3, 0.3, 0.3, 0.4, 0.2, 0.8, 0.7, 0.7, 0.8, 0.9), strict=True)),
    "nothing": dict.fromkeys(ARMS, 0.4),
    "length": dict.fromkeys(ARMS, 0.7) | {"no_memory": 0.3, "empty_block": 0.3},
    "form": dict.fromkeys(ARMS, 0.7) | {"no_memory": 0.3},
}


def made_up(rates, seed, *, alone=False, n_tasks=40, n_seeds=5):
    """Compares arms with these rates. alone: each has luck of its own; else one luck decides for all of them."""
    rng = np.random.default_rng(seed)
    luck = rng.random((n_tasks, n_seeds))
    made = {
        arm: ((rng.random((n_tasks, n_seeds)) if alone else luck) < rate).astype(float) for arm, rate in rates.items()
    }

    def compare(arm, than):
        if arm not in made or than not in made:
            return None
        worst = paired_worst(made[arm], made[than], *[np.zeros((n_tasks, n_seeds), bool)] * 2)
        about = {"p_worst": worst["p"], "difference_worst": worst["difference"], "alike": 0.0}
        return paired(made[arm], made[than]) | about

    return compare


@pytest.mark.parametrize("world", RATES)
def test_the_cause_is_named_in_20_of_20_studies(world):
    assert [causes_of(uses_of(made_up(RATES[world], seed))) for seed in range(20)] == [[world]] * 20


def test_where_arms_differ_by_chance_alone_a_cause_is_named_in_at_most_7_percent():
    named = [causes_of(uses_of(made_up(RATES["nothing"], seed, alone=True))) for seed in range(200)]
    assert sum(causes not in ([], ["nothing"]) for causes in named) <= 14


def test_what_was_not_run_is_not_known_and_a_right_lesson_that_is_used_is_said():
    found = uses_of(lambda arm, than: None)
    assert {each["answer"] for each in found} == {UNKNOWN} and causes_of(found) == []
    assert sentence(found).startswith("Not known what the agent uses")
    rates = dict.fromkeys(ARMS, 0.3) | {"told_lesson": 0.9}
    found = uses_of(made_up(rates, 0, n_tasks=100))
    answers = {each["use"].pairs[0][0]: each["answer"] for each in found}
    assert answers["told_lesson"] == USED and answers["placebo"] == NOT_USED
    assert sentence(found) == (
        "The agent uses nothing of what it is shown, though it would use the content of right lessons (told_lesson)."
    )


def test_what_no_task_was_shown_is_not_called_unused(here, tmp_path):
    """An attempt at a box has one step, so `shuffle` shows what `recent` does, and both solve the same. The arms that
    learn nothing show no lesson: nobody was tempted to use one."""
    for seed in range(2):
        for arm in ("recent", "shuffle", "no_memory"):
            here(*TOY, f"arm={arm}", f"seed={seed}", "stream.order=shuffled", run_dir=tmp_path / f"{arm}-{seed}")
    _, [uses, _] = build_faithfulness(load_episodes([str(tmp_path)]))
    line = next(row for row in uses.rows if row[1] == "recent - shuffle")
    assert line[2].startswith("+0.0 [-9.") and line[4] == UNKNOWN
    frame = load_episodes([str(tmp_path)])
    arms = {arm: frame[frame["arm"] == arm] for arm in ("recent", "shuffle", "no_memory")}
    compare = comparing(arms)
    assert compare("recent", "shuffle")["differs"] == 0.0
    assert compare("recent", "no_memory")["differs"] == 39 / 40  # but for the first box of each seed

    def few(arm, than):
        return made_up(RATES["nothing"], 0, n_tasks=100)(arm, than) | {"differs": 0.05}

    assert causes_of(uses_of(made_up(RATES["nothing"], 0, n_tasks=100))) == ["nothing"]
    assert causes_of(uses_of(few)) == []  # of 5 tasks in 100 that were shown a lesson all may have been lost by it
