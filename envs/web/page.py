"""What an agent reads of a page, and what it may answer: the accessibility tree as text, and actions as calls.

    RootWebArea 'Enter Text Task', focused
            [14] textbox '', clickable
            [15] button 'Submit', clickable
    > fill('14', 'Myron')

The text is BrowserGym's form of Chromium's tree, with an id for each element, and can be read back. An action is read
by a fixed form, its arguments as literals; it is never evaluated.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

# Chromium breaks each text into lines of its own since 2025; they say nothing new.
UNSEEN_ROLES = ("LineBreak", "InlineTextBox")
HIDDEN = "hidden"  # a role that is none of Chromium's
# Where in Playwright's log of a failed action its reason stands. The rest of the log differs from run to run, and
# quotes the page's source, which may hold more than a page shows.
_REASON = re.compile(r"element is (?:not \w+|outside of the viewport)")
_COVERED = re.compile(r'- <[^\n]*? bid="(\w+)"[^\n]* intercepts pointer events')
MAX_CHARS = 20_000  # of an action
MAX_WAIT_MS = 10_000  # a longer one would be taken for an engine that hangs
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_LINE = re.compile(rf"(\t*)(?:\[(\w+)\] )?(\w[\w-]*)(?: ({_QUOTED}))?(?: value=(?:{_QUOTED}|[^,]*))?((?:, .*)?)")
_CLICKED = "button link checkbox radio tab menuitem switch".split()
_TYPED = "textbox searchbox spinbutton Date InputTime".split()
_QUOTES = re.compile(r'"([^"]{1,100})"')


def tree_text(tree: dict[str, Any], properties: dict[str, dict[str, Any]]) -> str:
    """One line an element: its id in brackets, its role, name, value and state.

    Elements without a role of their own (`generic`) are there if they can be clicked. Addresses are left out: that of
    a page on disk holds a path of this machine, and BrowserGym's own text had none before Chromium gave them.

    tree, properties   BrowserGym's observation `axtree_object` and `extra_element_properties`; the tree is changed
    """
    from browsergym.utils.obs import IGNORED_AXTREE_PROPERTIES, flatten_axtree_to_str

    for node in tree["nodes"]:
        of_node = properties.get(node.get("browsergym_id"), {})
        if node["role"]["value"] == "generic" and not of_node.get("clickable"):
            node["role"]["value"] = HIDDEN
    return flatten_axtree_to_str(
        tree,
        extra_properties=properties,
        with_clickable=True,
        skip_generic=False,
        ignored_roles=(*UNSEEN_ROLES, HIDDEN),
        ignored_properties=(*IGNORED_AXTREE_PROPERTIES, "url"),
    )


def short_error(error: str) -> str:
    """The message to the agent about a failed action: the error's first line, and the reason from Playwright's log."""
    first, _, log = error.partition("\n")
    if covered := _COVERED.search(log):
        return f"{first} (element {covered[1]} is in the way)"
    reason = _REASON.search(log)
    return f"{first} ({reason[0]})" if reason else first


@dataclass(frozen=True, kw_only=True)
class Element:
    """A line of a page. text: its name, or else what stands below it; options: of a list to choose from."""

    bid: str  # "" where it has none
    role: str
    text: str
    clickable: bool
    options: tuple[str, ...] = ()


def elements(page: str) -> list[Element]:
    """The lines of a page in their order; one that cannot be read is left out."""
    lines = [match for line in page.split("\n") if (match := _LINE.fullmatch(line))]
    found = []
    for place, match in enumerate(lines):
        depth, bid, role, name, states = match.groups()
        below = []
        for other in lines[place + 1 :]:
            if len(other[1]) <= len(depth):
                break
            below.append(other)
        own = _name(name)
        text = own or " ".join(_name(other[4]) for other in below if other[3] == "StaticText")
        options = tuple(_name(other[4]) for other in below if other[3] == "option") if role != "option" else ()
        clickable = ", clickable" in states
        found.append(Element(bid=bid or "", role=role, text=text, clickable=clickable, options=options))
    return found


def offers(page: str, goal: str) -> list[str]:
    """Actions that the page offers, in its order: clicks, choices, and texts that the goal has in quotes."""
    words = list(dict.fromkeys(_QUOTES.findall(goal))) or goal.rstrip(".").split()[-3:]
    found = []
    for each in (each for each in elements(page) if each.bid):
        if each.role in _TYPED:
            found += [f"fill({each.bid!r}, {word!r})" for word in words]
        elif each.role in ("combobox", "listbox"):
            found += [f"select_option({each.bid!r}, {option!r})" for option in each.options]
        if each.clickable or each.role in _CLICKED:
            found.append(f"click({each.bid!r})")
    return list(dict.fromkeys(found)) or ["scroll(0, 200)"]


def _name(quoted: str | None) -> str:
    return ast.literal_eval(quoted) if quoted else ""


def calls(action: str, allowed: Collection[str], most: int = 1) -> str:
    """The calls of an action, one a line, in one way of writing. Raises ValueError, whose text the agent is shown.

    allowed   the names of the functions
    most      how many calls an action may have
    """
    if len(action) > MAX_CHARS:
        raise ValueError(f"The action has more than {MAX_CHARS} characters.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a text is not our code's mistake
            statements = ast.parse(action.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"This is not a call such as click('12'): {action[:200]!r}") from None
    if not statements:
        raise ValueError("There is no action.")
    if len(statements) > most:
        raise ValueError(f"{'Only one action' if most == 1 else f'At most {most} actions'} can be taken at a time.")
    return "\n".join(_call(statement, allowed) for statement in statements)


def _call(statement: ast.stmt, allowed: Collection[str]) -> str:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError("An action is a call such as click('12').")
    name = call.func.id
    if name not in allowed:
        raise ValueError(f"There is no action {name}. The actions are: {', '.join(allowed)}.")
    try:
        by_place = [ast.literal_eval(value) for value in call.args]
        by_name = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ValueError("The arguments of an action are texts in quotes, numbers, or lists of them.") from None
    if None in by_name:
        raise ValueError("The arguments of an action are given by place or by name.")
    if name == "noop" and any(not 0 <= wait <= MAX_WAIT_MS for wait in [*by_place, *by_name.values()] if _number(wait)):
        raise ValueError(f"noop waits for at most {MAX_WAIT_MS} milliseconds.")
    addresses = [*by_place, *by_name.values()] if name == "goto" else []
    if not all(str(address).strip().lower().startswith(("http://", "https://")) for address in addresses):
        raise ValueError("goto takes an address that begins with http:// or https://.")  # else a file of this machine
    return f"{name}({', '.join([*map(repr, by_place), *(f'{key}={value!r}' for key, value in by_name.items())])})"


def _number(value: object) -> bool:
    return isinstance(value, (int, float))
