"""env=mind2web on three records of our own: every measure and every protocol, with figures worked out by hand."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from conftest import read_json, read_rows
from env_contract import EnvContract

from core.errors import UserError
from core.run.metrics import averages
from envs.mind2web import data as mind2web_data
from envs.mind2web.data import SAMPLE
from envs.mind2web.env import Mind2WebEnv
from envs.mind2web.page import Page
from envs.mind2web.score import read_action, read_choice
from scripts.tables import main as tables

# What is predicted on each page: of the library's five steps, the railway's three and the tea shop's two. The tea
# shop's second is never asked: its page has no element that is right.
SAID = {
    "own-library": [
        "TYPE [12] [Dune]",  # right
        "CLICK [22]",  # another button
        "SELECT [33] [Elm Street]",  # the element is right, of the value a word is missing: F1 is 2*3/(3+4)
        "CLICK [37]",  # right
        "TYPE [52] [4711 0815]",  # right
    ],
    "own-railway": [
        "TYPE [8] [York]",  # right
        "CLICK [16]",  # the second of two right elements: not the recorded action to the letter
        "CLICK [24]",  # right; rank 6, so no candidate of the first five
    ],
    "own-tea": ["CLICK [5] [tea]"],  # right, but for a value, which a click does not have
}
CUTS = Fraction(6, 7)


def make(**fields) -> Mind2WebEnv:
    return Mind2WebEnv(**({"instructions": "", "max_steps": 60, "split": "sample"} | fields))


def play(env, said=SAID):
    """{the record's id: (measures, success, reward)} of the predictions; what is not asked is left out of them."""
    found = {}
    for task in env.tasks():
        env.reset(task)
        name, total = task.id.rpartition("/")[2], 0.0
        actions = iter(said[name])
        done = False
        while not done:
            _, reward, done, info = env.step(next(actions))
            total += reward
        assert info["won"] == env.evaluate(None)
        found[name] = (env.measures(), info["won"], total)
    return found


def figures(found):
    return averages([measures for measures, _, _ in found.values()])


def rounded(macro, micro):
    return {"macro": round(float(macro), 4), "micro": round(float(micro), 4)}


class TestById(EnvContract):
    def make_env(self, folder: Path) -> Mind2WebEnv:
        return make()


class TestByChoice(EnvContract):
    def make_env(self, folder: Path) -> Mind2WebEnv:
        return make(form="choices", choices_per_question=3, max_steps=200, history="own")


def test_the_first_five_candidates_by_hand():
    env = make(top_k=5)
    found = play(env)
    names = ("element_accuracy", "action_f1", "step_success")
    five = pytest.approx(4 + CUTS)
    assert found["own-library"][0] == dict(zip(names, [(4, 5), (five, 5), (3, 5)]))
    assert found["own-railway"][0] == dict.fromkeys(names, (2, 3))
    assert found["own-tea"][0] == dict.fromkeys(names, (1, 2))
    assert [won for _, won, _ in found.values()] == [False, False, False]
    assert [reward for *_, reward in found.values()] == pytest.approx([3 / 5, 2 / 3, 1 / 2])
    assert figures(found) == {
        "element_accuracy": rounded(Fraction(59, 90), Fraction(7, 10)),
        "action_f1": rounded(Fraction(449, 630), Fraction(11, 14)),
        "step_success": rounded(Fraction(53, 90), Fraction(3, 5)),
    }


def test_the_element_outside_the_candidates_is_wrong_and_not_asked_or_made_a_candidate():
    few = make(top_k=5)
    railway = few.tasks()[1]
    few.reset(railway)
    assert "id=24" not in few.step("TYPE [8] [York]")[0]
    assert few.step("CLICK [15]")[2]  # the third step is not asked
    assert few.measures()["element_accuracy"] == (2, 3)
    for inside in (make(top_k=7), make(top_k=5, gold_outside="first")):
        found = play(inside)
        assert found["own-railway"][:2] == (dict.fromkeys(found["own-tea"][0], (3, 3)), True)
        assert found["own-railway"][2] == pytest.approx(1.0)
        assert figures(found)["element_accuracy"] == rounded(Fraction(23, 30), Fraction(8, 10))
        assert found["own-tea"][0]["element_accuracy"] == (1, 2)  # no candidate at all is right


def test_a_task_of_which_nothing_can_be_answered_is_asked_once_and_is_wrong(tmp_path, monkeypatch):
    records = json.loads((SAMPLE / "records.json").read_text())
    for key in ("actions", "action_reprs"):
        del records[2][key][0]  # the tea shop's second step has no right element
    (tmp_path / "records.json").write_text(json.dumps(records))
    (tmp_path / "ranks.json").write_bytes((SAMPLE / "ranks.json").read_bytes())
    monkeypatch.setattr(mind2web_data, "SAMPLE", tmp_path)
    for rule in ("parts", "whole"):
        env = make(step_success=rule)
        env.reset(env.tasks()[2])
        for said in ("CLICK [5]", *env.walkthrough()):
            assert "id=5" in env.reset(env.tasks()[2])
            _, reward, done, info = env.step(said)
            assert (reward, done, info["won"]) == (0.0, True, False)
            assert env.measures() == dict.fromkeys(env.measures(), (0, 1))


def test_whole_actions_against_element_and_f1():
    whole, parts = play(make(top_k=7, step_success="whole")), play(make(top_k=7))

    def successes(found):
        return [found[name][0]["step_success"] for name in ("own-library", "own-railway", "own-tea")]

    # In whole actions the second right element is another action, and the value of a click counts, too.
    assert successes(whole) == [(3, 5), (2, 3), (0, 2)]
    assert successes(parts) == [(3, 5), (3, 3), (1, 2)]
    assert figures(whole)["step_success"] == rounded(Fraction(19, 45), Fraction(1, 2))
    assert [won for _, won, _ in whole.values()] == [False, False, False]
    assert [won for _, won, _ in parts.values()] == [False, True, False]
    for name in ("element_accuracy", "action_f1"):  # are the same either way
        assert figures(whole)[name] == figures(parts)[name]


def test_words_in_another_order_are_equal_by_f1_and_not_to_the_letter():
    for rule, right in (("parts", 1), ("whole", 0)):
        env = make(step_success=rule)
        env.reset(env.tasks()[0])
        for said in ("TYPE [12] [Dune]", "CLICK [21]", "SELECT [33] [Branch Elm Street]"):
            info = env.step(said)[3]
        assert info["n_right"] == 2 + right
        assert env.measures()["action_f1"] == (3, 5)
        env.step("click [37]")  # operations are written in capitals
        assert env.measures()["action_f1"] == (3, 5)
        env.step("TYPE [52] [4711 0815 ,]")  # a sign alone is no token
        assert env.measures()["action_f1"] == (4, 5)
        assert env.measures()["step_success"] == ((4, 5) if rule == "parts" else (2, 5))


def test_an_unread_reply_is_a_wrong_step_and_the_recording_goes_on():
    env = make()
    env.reset(env.tasks()[0])
    observation, reward, done, info = env.step("I would search for the book.")
    assert (reward, done, info["valid"]) == (0.0, False, False)
    assert observation.startswith("Step 2\n")
    for said in ("CLICK [21]", "SELECT [33] [Elm Street Branch]", "CLICK [37]", "TYPE [52] [4711 0815]"):
        *_, done, info = env.step(said)
    assert done and not info["won"]
    assert env.measures() == dict.fromkeys(env.measures(), (4, 5))


def test_the_history_is_the_recorded_one_for_the_agent_alone_or_the_agents_own():
    gold, own, short = make(), make(history="own"), make(history_length=1)
    for env in (gold, own, short):
        assert env.reset(env.tasks()[0]).endswith("Previous actions:\nNone")
        env.step("TYPE [12] [Emma]")
    told = {}
    for name, env in (("gold", gold), ("own", own), ("short", short)):
        observation, _, _, info = env.step("CLICK [22]")
        told[name] = observation.partition("Previous actions:\n")[2].splitlines()
        shown = observation[: -info["hint_chars"]] if info["hint_chars"] else observation
        assert ("Previous actions" in shown) == (name == "own")  # judge and distiller do not read what was recorded
        assert "Task: Place a hold" in shown
    assert told == {
        "gold": ["[textbox]  Title or author -> TYPE: Dune", "[button]  Search -> CLICK"],
        "own": ["<input id=12 text title or author /> -> TYPE: Emma", "<button id=22 button> Clear </button> -> CLICK"],
        "short": ["[button]  Search -> CLICK"],
    }


def choose(env, task, pick):
    """Play a task of form=choices: pick(the choices of a question as {letter: text}) -> a reply."""
    observation, done, questions = env.reset(task), False, 0
    while not done:
        listed = observation.partition("acted on next?\n")[2].partition("\n\nTask:")[0].splitlines()
        observation, _, done, info = env.step(pick(dict(line.split(". ", 1) for line in listed)))
        questions += 1
    return questions, info


def test_none_of_the_above_to_every_question_is_all_wrong():
    env = make(form="choices", choices_per_question=3, max_steps=200)
    for task in env.tasks():
        n = len(env._of("sample").read(task.id.rpartition("/")[2]).steps)
        choose(env, task, lambda listed: "A")
        assert env.measures() == dict.fromkeys(env.measures(), (0, n))
        choose(env, task, lambda listed: "Z. CLICK")  # a letter that is not there
        assert env.measures() == dict.fromkeys(env.measures(), (0, n))


def test_a_choice_wins_only_if_it_is_chosen_to_the_end():
    env = make(form="choices", choices_per_question=3, max_steps=200)
    tea = env.tasks()[2]  # four candidates: three, then the one that is left with what was chosen

    def of(text, reply, else_="A"):
        return lambda listed: next((f"{a}. {reply}" for a, said in listed.items() if text in said), else_)

    questions, _ = choose(env, tea, of("Green tea", "CLICK"))
    assert env.measures() == dict.fromkeys(env.measures(), (1, 2))
    assert questions in (1, 2)  # the right one is in the first three, and once more against the fourth; or it is that
    choose(env, tea, of("Green tea", "TYPE [tea]"))
    assert env.measures() == {"element_accuracy": (1, 2), "action_f1": (0, 2), "step_success": (0, 2)}
    asked = []

    def once(listed):
        """The first question's B, then none of the above: what was chosen is voted out."""
        asked.append(listed)
        return "B. CLICK" if len(asked) == 1 else "A. None of the above"

    choose(env, tea, once)
    assert len(asked) == 2 and asked[0]["B"] in asked[1].values()
    assert env.measures() == dict.fromkeys(env.measures(), (0, 2))
    asked.clear()
    choose(env, tea, lambda listed: asked.append(listed) or "B. CLICK")
    last = asked[-1]["B"]  # asked first, or it is the one that was left
    assert env.measures()["element_accuracy"] == (int("Green tea" in last), 2)


def test_choices_are_drawn_by_the_seed_and_not_in_the_order_of_the_ranks():
    def first(seed):
        env = make(form="choices", max_steps=200, seed=seed)
        return env.reset(env.tasks()[1])

    assert first(0) == first(0)
    assert len({first(seed) for seed in range(5)}) > 1
    env = make(form="choices", max_steps=200)
    places = []
    for task in env.tasks():
        env.reset(task)
        places.append(env.walkthrough()[0][0])
    assert set(places) != {"B"}  # the best candidate is the right one mostly


def test_a_page_is_the_candidates_and_what_is_near_them():
    items = "".join(
        f'<li backend_node_id="{n}"><text backend_node_id="{n}00">Item {n} and {" words" * 30}</text></li>'
        for n in range(10, 22)
    )
    html = (
        f'<html backend_node_id="1"><body backend_node_id="2"><div backend_node_id="3" class="too-long-a-class-name x">'
        f'<ul backend_node_id="4" role="list" title="LIST">{items}</ul></div>'
        f'<p backend_node_id="5"><text backend_node_id="500">&lt;far&gt;</text></p></body></html>'
    )
    text = Page(html).text(["15", "99"])
    # Long words are left out, and what two attributes say is said once.
    assert text.startswith("<html> <div x> <ul list>")
    assert [n for n in range(10, 22) if f"Item {n} " in text] == [12, 13, 14, 15, 16, 17, 18]
    assert "<li id=15>" in text and "id=14" not in text
    assert text.count("words") == 7 * (20 - 3)
    assert "far" not in text and "<body>" not in text
    assert Page(html).element("15") == "<li id=15> Item 15 and words words words words words"
    assert Page(html).element("99") == ""
    assert "<far>" in Page(html).text(["5"])
    with pytest.raises(UserError, match="cannot be read"):
        Page("<html>")


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        ("Action: CLICK [12]", ("CLICK", "12", "")),
        ("`TYPE [12] [New York, NY]`", ("TYPE", "12", "New York, NY")),
        ("CLICK [1] was wrong, so SELECT [3] [b]", ("SELECT", "3", "b")),
        ("TYPE [7] []", ("TYPE", "7", "")),
        ("RIGHTCLICK [12]", None),
        ("CLICK 12", None),
        ("CLICK [" * 50_000, None),
    ],
)
def test_how_an_action_is_read(reply, read):
    found = read_action(reply)
    assert (found and (found.op, found.element, found.value)) == read


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        ("C. TYPE [New York]", ("C", "TYPE", "New York")),
        ("**B** CLICK", ("B", "CLICK", "")),
        ("Not B.\nA", ("A", "", "")),
        ("A. None of the above", ("A", "", "")),
        ("A good choice", None),
        ("\n" * 100_000, None),
    ],
)
def test_how_a_choice_is_read(reply, read):
    assert read_choice(reply) == read


def test_bad_settings_are_one_sentence():
    for fields, message in (
        ({"split": "test_live"}, "test_live"),
        ({"form": "both"}, "env.form=both: choose ids or choices"),
        ({"top_k": 0}, "env.top_k=0"),
        ({"choices_per_question": 40}, "env.choices_per_question=40"),
        ({"max_steps": 4}, "the longest task of sample may take 5"),
        ({"max_steps": 60, "form": "choices"}, "may take 65"),
        ({"split": "test_task", "data": "nowhere"}, "reasoningbank fetch mind2web"),
    ):
        with pytest.raises(UserError, match=message):
            make(**fields).tasks()
    with pytest.raises(UserError, match="not a task"):
        make().reset(make().tasks()[0].__class__(id="mind2web/sample/none", query="?"))


def predict(messages, role, sample):
    """Plays SAID, one prediction a page; without `Action:` where the reply is to be taken as it is."""
    if role != "agent":
        return 'Thoughts: none.\nStatus: "failure"'
    names = {"Place a hold": "own-library", "Swap a journey": "own-railway", "Add green tea": "own-tea"}
    name = next(each for words, each in names.items() if words in messages[1]["content"])
    said = SAID[name][int(messages[-1]["content"].split()[1]) - 1]
    return said if name == "own-tea" else f"Thought: next.\nAction: {said}"


def test_a_run_records_the_measures_and_the_table_shows_them(main_here, tmp_path, capsys):
    run = tmp_path / "run"
    words = ("env=mind2web", "env.split=sample", "env.top_k=5", "llm=scripted", "llm.script.path=test_mind2web.predict")
    code, said, errors = main_here(*words, "embedder=hashing", "workflow=vanilla", f"run_dir={run}")
    assert code == 0, errors
    summary = read_json(run / "summary.json")
    assert summary["measures"]["action_f1"] == rounded(Fraction(449, 630), Fraction(11, 14))
    assert summary["measures"]["step_success"] == rounded(Fraction(53, 90), Fraction(3, 5))
    assert (summary["n_success"], summary["mean_reward"]) == (0, round(float(Fraction(53, 90)), 4))
    assert summary["n_invalid_actions"] == 0
    assert "element accuracy" in said
    first = read_rows(run)[0]["trajectories"][0]
    assert first["info"]["measures"]["element_accuracy"] == [4.0, 5]
    assert tables([str(run), "--table", "measures"]) == 0
    shown = capsys.readouterr().out
    assert "Further measures: mind2web sample, scripted, 3 tasks" in shown
    assert "| 65.6 | 70.0 | 71.3 | 78.6 | 58.9 | 60.0 |" in shown
    assert "element accuracy, macro %" in shown
