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
    return f"click({_found(page, role, text).bid!r})"


def _found(page: Page, role: str, text: str) -> Element:
    candidates = (each for each in page if each.bid and each.text == text)
    found = next((each for each in candidates if each.role == role or (not role and each.clickable)), None)
    if found is None:
        raise UserError(f"agent=gold finds no {role} {text!r} on the page.")
    return found


def _fields(page: Page) -> list[str]:
    return [each.bid for each in page if each.role == "textbox"]


def _quoted(goal: str) -> list[str]:
    return re.findall(r'"([^"]*)"', goal)


def _asked(goal: str, pattern: str) -> tuple[str, ...]:
    found = re.search(pattern, goal)
    if found is None:
        raise UserError(f"agent=gold does not understand this goal: {goal}")
    return found.groups()


def _only_button(goal: str, page: Page) -> list[str]:
    return [f"click({next(each.bid for each in page if each.role == 'button')!r})"]


def _button_one(goal: str, page: Page) -> list[str]:
    return [_click(page, "button", "ONE")]


def _named_button(goal: str, page: Page) -> list[str]:
    return [_click(page, "button", _quoted(goal)[0])]


def _one_then_two(goal: str, page: Page) -> list[str]:
    return [_click(page, "button", "ONE"), _click(page, "button", "TWO")]


def _boxes(role: str) -> Callable[[str, Page], list[str]]:
    def solve(goal: str, page: Page) -> list[str]:
        (names,) = _asked(goal, r"Select (.+) and click Submit")
        chosen = [] if names == "nothing" else names.split(", ")
        return [*(_click(page, role, name) for name in chosen), _click(page, "button", "Submit")]

    return solve


def _named_link(goal: str, page: Page) -> list[str]:
    return [_click(page, "", _quoted(goal)[0])]


def _dialog(goal: str, page: Page) -> list[str]:
    name = _quoted(goal)[0]
    return [_click(page, "button", "Close" if name == "x" else name)]


def _focus(goal: str, page: Page) -> list[str]:
    place = re.search(r"(\d+)\w\w input", goal)
    return [f"focus({_fields(page)[int(place[1]) - 1 if place else 0]!r})"]


def _type(button: str) -> Callable[[str, Page], list[str]]:
    """The quoted texts into the fields in their order, the last one into all that are left; then a button."""

    def solve(goal: str, page: Page) -> list[str]:
        texts, fields = _quoted(goal), _fields(page)
        texts += texts[-1:] * (len(fields) - len(texts))
        return [*(f"fill({bid!r}, {text!r})" for bid, text in zip(fields, texts)), _click(page, "button", button)]

    return solve


def _list(goal: str, page: Page) -> list[str]:
    (name,) = _asked(goal, r"Select (.+) from the list")
    chooser = next(each for each in page if each.role == "combobox")
    return [f"select_option({chooser.bid!r}, {name!r})", _click(page, "button", "Submit")]


def _tab(goal: str, page: Page) -> list[str]:
    return [_click(page, "link", *_asked(goal, r"(Tab #\d)"))]


def _filled(page: Page, value: object, role: str = "textbox") -> list[str]:
    bid = next(each.bid for each in page if each.role == role)
    return [f"fill({bid!r}, {str(value)!r})", _click(page, "button", "Submit")]


def _arithmetic(goal: str, page: Page) -> list[str]:
    text = " ".join(each.text for each in page if each.role == "StaticText")
    first, sign, second = _asked(text, r"(\d+) ([-+x]) (\d+) =")
    one, two = int(first), int(second)
    return _filled(page, {"+": one + two, "-": one - two, "x": one * two}[sign])


def _algebra(goal: str, page: Page) -> list[str]:
    text = " ".join(each.text for each in page if each.role == "StaticText")
    first, sign, second, right = _asked(text, r"(x|\d+) ([-+]) (x|\d+) = (-?\d+)")
    whole = int(right)
    if second == "x":
        return _filled(page, whole - int(first) if sign == "+" else int(first) - whole)
    return _filled(page, whole - int(second) if sign == "+" else whole + int(second))


def _table(goal: str, page: Page) -> list[str]:
    (name,) = _asked(goal, r"the value of (.+) into")
    cells = [each.text for each in page if each.role == "cell"]
    return _filled(page, cells[cells.index(name) + 1])


def _date(goal: str, page: Page) -> list[str]:
    month, day, year = _asked(goal, r"(\d\d)/(\d\d)/(\d{4})")
    return _filled(page, f"{year}-{month}-{day}", "Date")


def _time(goal: str, page: Page) -> list[str]:
    hours, minutes, half = _asked(goal, r"(\d+):(\d\d) (AM|PM)")
    return _filled(page, f"{int(hours) % 12 + 12 * (half == 'PM'):02}:{minutes}", "InputTime")


def _movie(goal: str, page: Page) -> list[str]:
    genre, director, year = _asked(goal, r"Search for (\w+) movies directed by (\w+) from year (\d+)")
    values = {"Genre": genre, "Director": director, "Year": year}
    names = [each.text for each in page if each.role == "rowheader"]
    fills = [f"fill({bid!r}, {values[name]!r})" for name, bid in zip(names, _fields(page), strict=True)]
    return [*fills, f"click({[each.bid for each in page if each.clickable][-1]!r})"]


SOLUTIONS: dict[str, Callable[[str, Page], list[str]]] = {
    "choose-list": _list,
    "click-button": _named_button,
    "click-button-sequence": _one_then_two,
    "click-checkboxes": _boxes("checkbox"),
    "click-checkboxes-large": _boxes("checkbox"),
    "click-checkboxes-transfer": _boxes("checkbox"),
    "click-dialog": _dialog,
    "click-dialog-2": _dialog,
    "click-link": _named_link,
    "click-option": _boxes("radio"),
    "click-tab": _tab,
    "click-test": _only_button,
    "click-test-2": _button_one,
    "enter-date": _date,
    "enter-password": _type("Submit"),
    "enter-text": _type("Submit"),
    "enter-time": _time,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "login-user": _type("Login"),
    "multi-orderings": _movie,
    "read-table": _table,
    "simple-algebra": _algebra,
    "simple-arithmetic": _arithmetic,
    "unicode-test": _named_button,
}
