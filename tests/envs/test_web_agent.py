"""agent=web and what is read of a page: prompts, transcripts, actions, elements. No browser."""

from __future__ import annotations

import pytest

from core.agent import LEFT_OUT, ReActAgent, WebAgent
from core.errors import UserError
from core.learning.transcript import final_state, transcript
from core.page import PAGE, has_page, without_page
from core.types import Step, Trajectory
from envs.web.page import MAX_CHARS, calls, elements, offers, short_error

ALLOWED = ("click", "fill", "noop", "select_option")
TREE = """RootWebArea 'Search', focused
	[12] textbox 'Name: "first"' value='a, b', clickable
		StaticText 'a, b'
	[13] combobox '' value='red', hasPopup='menu', expanded=False
		MenuListPopup ''
			[14] option 'red', selected=True
			[15] option "it's", selected=False
	StaticText 'Find'
	[16] generic, clickable
		StaticText 'nisl'
		StaticText 'more'
	[17] generic
	[a18] button 'Go'
"""


def page(n: int) -> str:
    return f"{PAGE}\nRootWebArea 'Page {n}', focused\n\t[12] button 'Go', clickable"


def talk(n_steps: int) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": "You act."}, {"role": "user", "content": f"Goal: buy\n\n{page(0)}"}]
    for n in range(1, n_steps + 1):
        error = f"Error: no element {n}\n\n" if n == 2 else ""
        messages += [
            {"role": "assistant", "content": f"Thought: t{n}\nAction: click('{n}')"},
            {"role": "user", "content": f"{error}{page(n)}"},
        ]
    return messages


@pytest.mark.parametrize(("keep", "shown"), [(1, [4]), (2, [3, 4]), (9, [0, 1, 2, 3, 4]), (None, [0, 1, 2, 3, 4])])
def test_only_the_newest_pages_are_sent_and_all_else_stays(keep, shown):
    messages = talk(4)
    sent = WebAgent(answer_format="", keep_observations=keep).seen(messages)
    text = "\n".join(message["content"] for message in sent)
    assert [n for n in range(5) if f"'Page {n}'" in text] == shown
    assert text.count(LEFT_OUT) == 5 - len(shown)
    assert [message["role"] for message in sent] == [message["role"] for message in messages]
    assert sent[1]["content"].startswith("Goal: buy\n\n")
    assert all(f"Thought: t{n}\nAction: click('{n}')" in text for n in range(1, 5))
    assert "Error: no element 2\n\n" in text
    assert messages == talk(4), "the record of the attempt is not the prompt"


def test_what_follows_a_page_stays():
    asked = f"{page(1)}\n\nCheck what you did.\n\n{page(2)}"
    assert without_page(asked, "(-)") == "(-)\n\nCheck what you did.\n\n(-)"
    assert not has_page("Goal: buy") and without_page("Goal: buy", "(-)") == "Goal: buy"


def test_the_conversation_of_other_agents_only_grows_and_a_number_of_pages_is_checked():
    assert ReActAgent(answer_format="").seen(talk(3)) == talk(3)
    with pytest.raises(UserError, match=r"agent.keep_observations=0"):
        WebAgent(answer_format="", keep_observations=0)


def test_the_learner_sees_thoughts_actions_and_errors_but_no_page():
    steps = [
        Step(text="", thought=f"t{n}", action=f"click('{n}')", observation=message["content"])
        for n, message in enumerate(talk(3)[3::2], 1)
    ]
    values = {"id": "t", "sample": 0, "opening": (), "answer": None, "ended_by": "end", "reward": 0.0}
    text = transcript(Trajectory(**values, steps=tuple(steps), success=False, gold=""))
    assert "Page" not in text and "RootWebArea" not in text
    assert "Action: click('2')\nObservation: Error: no element 2\n\n(a page)" in text


def test_the_judge_is_shown_the_last_page_also_after_a_reply_without_an_action():
    opening = tuple(talk(0))
    values = {"id": "t", "sample": 0, "answer": None, "ended_by": "step_limit", "reward": 0.0, "success": False}

    def shown(*observations, opening=opening):
        steps = tuple(Step(text="", thought="", action="", observation=seen) for seen in observations)
        return final_state(Trajectory(**values, opening=opening, steps=steps, gold=""))

    assert shown(page(1), f"Error: no\n\n{page(2)}") == f"Error: no\n\n{page(2)}"
    assert shown(page(1), "No action.") == f"No action.\n\n{page(1)}"
    assert shown("No action.") == f"No action.\n\n{page(0)}"
    assert shown("You see a desk.", opening=({"role": "user", "content": "A room."},)) == "You see a desk."
    assert shown() == ""


ACTIONS = [
    ("click('a51')", "click('a51')"),
    ("  click( \"12\" , button = 'left' )  # here", "click('12', button='left')"),
    ("fill('3', 'it\\'s')", "fill('3', \"it's\")"),
    ("fill('3', \"two\\nlines\")", "fill('3', 'two\\nlines')"),
    ("select_option('c48', ['red', 'blue'])", "select_option('c48', ['red', 'blue'])"),
    ("noop()", "noop()"),
    ("noop(-0.5 + 1)", None),
    ("click('12'); click('13')", None),
    ("click('12')\nclick('13')", None),
    ("goto('http://example.org')", None),
    ("click(open('/etc/passwd').read())", None),
    ("click(*['12'])", None),
    ("click(**{'bid': '12'})", None),
    ("click.__globals__['x']('12')", None),
    ("page.goto('12')", None),
    ("fill('3','it's')", None),
    ("noop(1e9)", None),
    ("noop(wait_ms=10001)", None),
    ("noop(1e999)", None),
    ("import os", None),
    ("click", None),
    ("(" * 5000, None),
    ("click('" + "x" * MAX_CHARS + "')", None),
    ("click('\ud800')", None),
    ("", None),
]


def test_an_action_is_a_call_with_literals_or_is_refused(subtests):
    for action, read in ACTIONS:
        with subtests.test(action=action):
            if read is None:
                with pytest.raises(ValueError):
                    calls(action, ALLOWED)
            else:
                assert calls(action, ALLOWED) == read


def test_several_calls_where_they_are_allowed():
    assert calls("click('1')\nfill('2', 'x')", ALLOWED, most=2) == "click('1')\nfill('2', 'x')"
    with pytest.raises(ValueError, match="one action"):
        calls("click('1')\nfill('2', 'x')", ALLOWED)


def test_a_page_is_read_back():
    found = elements(TREE.rstrip("\n"))
    assert [each.bid for each in found if each.clickable] == ["12", "16"]
    assert [(each.role, each.text) for each in found if each.bid in ("12", "16", "a18")] == [
        ("textbox", 'Name: "first"'),
        ("generic", "nisl more"),
        ("button", "Go"),
    ]
    assert next(each for each in found if each.role == "combobox").options == ("red", "it's")
    assert offers(TREE.rstrip("\n"), 'Enter "Ann" and press Go.') == [
        "fill('12', 'Ann')",
        "click('12')",
        "select_option('13', 'red')",
        "select_option('13', \"it's\")",
        "click('16')",
        "click('a18')",
    ]
    assert offers("RootWebArea ''", "Wait.") == ["scroll(0, 200)"]


def test_an_error_is_told_without_what_differs_from_run_to_run():
    log = "Error: Timeout 500ms exceeded.\nCall log:\n  - 3 × waiting 20ms\n    - element is not visible\n - retrying"
    assert short_error(log) == "Error: Timeout 500ms exceeded. (element is not visible)"
    log = 'Error: Timeout.\n - <div bid="136" data-answer="7">…</div> from <p bid="9">…</p> intercepts pointer events'
    assert short_error(log) == "Error: Timeout. (element 136 is in the way)"
    assert short_error("no reason\nCall log: 20 ms") == "no reason"
    assert short_error("") == ""
