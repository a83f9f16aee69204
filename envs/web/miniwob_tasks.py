"""MiniWoB++'s tasks: the kinds that there are, how one is opened, what it asks for, and solutions.

The solutions are what agent=gold plays, for the kinds whose first page tells everything. They read the goal and the
page as an agent does; the page itself says whether they are right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from core.errors import UserError, meant
from envs.web.engine import MISSING, Visit, WebEngine
from envs.web.page import Element, elements

# Pages of the package that ask for speed rather than for the right action; BrowserGym has no task for them.
NO_TASK = "button-delay chase-circle hover-shape moving-items simon-says".split()
# The 56 kinds on which most language models are reported, from WebGUM (Furuta et al. 2024) on.
WEBGUM = """
book-flight choose-date choose-date-easy choose-date-medium choose-list click-button click-button-sequence
click-checkboxes click-checkboxes-large click-checkboxes-soft click-checkboxes-transfer click-collapsible
click-collapsible-2 click-color click-dialog click-dialog-2 click-link click-menu click-option click-pie
click-scroll-list click-shades click-shape click-tab click-tab-2 click-tab-2-hard click-test click-test-2 click-widget
count-shape email-inbox email-inbox-forward-nl email-inbox-forward-nl-turk email-inbox-nl-turk enter-date enter-password
enter-text enter-text-dynamic enter-time focus-text focus-text-2 grid-coordinate guess-number identify-shape login-user
login-user-popup multi-layouts multi-orderings navigate-tree search-engine social-media social-media-all
social-media-some tic-tac-toe use-autocomplete use-spinner
""".split()
Page = list[Element]
Solve = Callable[[str, Page], list[str]]  # (the goal, the page) -> actions
MAX_TIME_MS = 2_000_000_000  # an episode's: 23 days. A page's clock would end an attempt whose model is slow


def pages() -> Path:
    """The folder of the pages in the installed package. Raises UserError without the packages."""
    found = find_spec("miniwob") if find_spec("browsergym") and find_spec("browsergym.miniwob") else None
    if found is None:
        raise UserError(f"{MISSING}.")
    return Path(found.origin).parent / "html" / "miniwob"


def kinds_of(chosen: str | list[str]) -> list[str]:
    """The kinds of task that "webgum", "all" or a list of names means. Raises UserError for a name that is none."""
    known = sorted(page.stem for page in pages().glob("*.html") if page.stem not in NO_TASK)
    if isinstance(chosen, str):
        if chosen not in ("webgum", "all"):
            raise UserError(f"env.kinds={chosen}: give webgum, all, or a list of names.")
        return WEBGUM if chosen == "webgum" else known
    for name in chosen:
        if name not in known:
            raise UserError(f"env.kinds: MiniWoB++ has no task {name}{meant(str(name), known)}")
    return list(dict.fromkeys(chosen))


def visit(kind: str, seed: int) -> Visit:
    """An episode: without a network, which no page needs, and without the page's own time limit."""
    options = {"base_url": f"{pages().as_uri()}/", "episode_max_time": MAX_TIME_MS}
    return Visit(task=f"miniwob.{kind}", seed=seed, options=options, context={"offline": True})


class MiniwobEngine(WebEngine):
    """The engine, which can also list the goals of tasks without playing them."""

    def goals(self, kind: str, seeds: list[int]) -> list[str]:
        """What the page of a kind asks for with each seed."""
        from browsergym.miniwob import ALL_MINIWOB_TASKS

        task = next(task for task in ALL_MINIWOB_TASKS if task.subdomain == kind)
        self.finish()
        self._kept.ready()
        context = self._kept.new_context(viewport={"width": 500, "height": 320}, locale="en-US", timezone_id="UTC")
        try:
            page, options = context.new_page(), visit(kind, 0).options
            return [" ".join(task(seed=seed, **options).setup(page)[0].split()) for seed in seeds]
        finally:
            context.close()


def solution(kind: str, goal: str, page: str) -> list[str]:
    """The actions that solve a task, from its first page on. Raises UserError for a kind that has no solution here."""
    if kind not in SOLUTIONS:
        known = ", ".join(SOLUTIONS)
        raise UserError(f"agent=gold cannot play {kind}{meant(kind, SOLUTIONS)} It can play env.kinds=[{known}].")
    return SOLUTIONS[kind](goal, elements(page))


def _click(page: Page, role: str, text: str) -> str:
    """A click on the element of a role with a text; "" as the role: on anything that can be clicked."""
    candidates = (each for each in page if each.bid and each.text == text)
    found = next((each for each in candidates if each.role == role or (not role and each.clickable)), None)
    if found is None:
        raise UserError(f"agent=gold finds no {role} {text!r} on the page.")
    return f"click({found.bid!r})"


def _ids(page: Page, role: str) -> list[str]:
    return [each.bid for each in page if each.role == role]


def _quoted(goal: str) -> list[str]:
    return re.findall(r'"([^"]*)"', goal)


def _asked(goal: str, pattern: str) -> str:
    found = re.search(pattern, goal)
    if found is None:
        raise UserError(f"agent=gold does not understand this goal: {goal}")
    return found[1]


def _named_button(goal: str, page: Page) -> list[str]:
    return [_click(page, "button", _quoted(goal)[0])]


def _dialog(goal: str, page: Page) -> list[str]:
    name = _quoted(goal)[0]
    return [_click(page, "button", "Close" if name == "x" else name)]


def _focus(goal: str, page: Page) -> list[str]:
    place = re.search(r"(\d+)\w\w input", goal)
    return [f"focus({_ids(page, 'textbox')[int(place[1]) - 1 if place else 0]!r})"]


def _choose(role: str) -> Solve:
    def solve(goal: str, page: Page) -> list[str]:
        names = _asked(goal, r"Select (.+) and click Submit")
        chosen = [] if names == "nothing" else names.split(", ")
        return [*(_click(page, role, name) for name in chosen), _click(page, "button", "Submit")]

    return solve


def _type(button: str) -> Solve:
    """The quoted texts into the fields in their order, the last one into all that are left; then a button."""

    def solve(goal: str, page: Page) -> list[str]:
        texts, fields = _quoted(goal), _ids(page, "textbox")
        texts += texts[-1:] * (len(fields) - len(texts))
        return [*(f"fill({bid!r}, {text!r})" for bid, text in zip(fields, texts)), _click(page, "button", button)]

    return solve


def _list(goal: str, page: Page) -> list[str]:
    name, chooser = _asked(goal, r"Select (.+) from the list"), _ids(page, "combobox")[0]
    return [f"select_option({chooser!r}, {name!r})", _click(page, "button", "Submit")]


SOLUTIONS: dict[str, Solve] = {
    "choose-list": _list,
    "click-button": _named_button,
    "click-button-sequence": lambda goal, page: [_click(page, "button", "ONE"), _click(page, "button", "TWO")],
    "click-checkboxes": _choose("checkbox"),
    "click-checkboxes-large": _choose("checkbox"),
    "click-checkboxes-transfer": _choose("checkbox"),
    "click-dialog": _dialog,
    "click-dialog-2": _dialog,
    "click-link": lambda goal, page: [_click(page, "", _quoted(goal)[0])],
    "click-option": _choose("radio"),
    "click-tab": lambda goal, page: [_click(page, "link", _asked(goal, r"(Tab #\d)"))],
    "click-test": lambda goal, page: [f"click({_ids(page, 'button')[0]!r})"],
    "click-test-2": lambda goal, page: [_click(page, "button", "ONE")],
    "enter-password": _type("Submit"),
    "enter-text": _type("Submit"),
    "focus-text": _focus,
    "focus-text-2": _focus,
    "login-user": _type("Login"),
    "unicode-test": _named_button,
}
