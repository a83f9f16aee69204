"""The engine of environments in a browser, as it runs in a worker process: BrowserGym around one kept Chromium.

Three things of BrowserGym are replaced while it runs here. It starts a browser for each episode: one is kept, and an
episode has a context of its own (cookies, storage, tabs). It starts a second browser for its chat: a list of messages
does. It takes a picture at each step: nobody looks at it.
"""

from __future__ import annotations

import ast
import re
import time
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from core.errors import UserError

# A page as text: the accessibility tree of Chromium in BrowserGym's form, with an id for each element.

# Chromium breaks each text into lines of its own since 2025; they say nothing new.
UNSEEN_ROLES = ("LineBreak", "InlineTextBox")
HIDDEN = "hidden"  # a role that is none of Chromium's
# Where in Playwright's log of a failed action its reason stands. The rest of the log differs from run to run, and
# quotes the page's source, which may hold more than a page shows.
_REASON = re.compile(r"element is (?:not \w+|outside of the viewport)")
_COVERED = re.compile(r'- <[^\n]*? bid="(\w+)"[^\n]* intercepts pointer events')


def tree_text(tree: dict[str, Any], properties: dict[str, dict[str, Any]]) -> str:
    """One line an element: its id in brackets, its role, name, value and state.

    Elements without a role of their own (`generic`) are there if they can be clicked. Addresses are left out: that of
    a page on disk holds a path of this machine, and BrowserGym's own text had none before Chromium told them.

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
    """What an agent is told of an action that failed: the first line, and the reason from Playwright's log."""
    first, _, log = error.partition("\n")
    if covered := _COVERED.search(log):
        return f"{first} (element {covered[1]} is in the way)"
    reason = _REASON.search(log)
    return f"{first} ({reason[0]})" if reason else first


# An agent's action as calls of BrowserGym's functions: read as literals by a fixed form, never evaluated.

MAX_CHARS = 20_000
MAX_WAIT_MS = 10_000  # a longer one would be taken for an engine that hangs


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
        given = [ast.literal_eval(value) for value in call.args]
        named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ValueError("The arguments of an action are texts in quotes, numbers, or lists of them.") from None
    if None in named:
        raise ValueError("The arguments of an action are given by place or by name.")
    if name == "noop" and any(not 0 <= wait <= MAX_WAIT_MS for wait in [*given, *named.values()] if _number(wait)):
        raise ValueError(f"noop waits for at most {MAX_WAIT_MS} milliseconds.")
    addresses = [*given, *named.values()] if name == "goto" else []
    if not all(str(address).strip().lower().startswith(("http://", "https://")) for address in addresses):
        raise ValueError("goto takes an address that begins with http:// or https://.")  # else a file of this machine
    return f"{name}({', '.join([*map(repr, given), *(f'{key}={value!r}' for key, value in named.items())])})"


def _number(value: object) -> bool:
    return isinstance(value, (int, float))


MISSING = "An environment in a browser needs the extra web: pip install -c constraints.txt -e '.[web]'"
NO_SANDBOX = (
    "The browser's sandbox does not work here (it needs user namespaces, and a user other than root): "
    "env.browser_sandbox=false goes without."
)
WAIT_S = 0.5  # what BrowserGym itself waits after each action


@dataclass(frozen=True, kw_only=True)
class WebSettings:
    """What stays the same while a browser lives.

    browser       its program
    tasks         the module that registers BrowserGym's tasks, such as browsergym.miniwob; None: openended alone
    actions       the names of BrowserGym's functions that an action may call
    most_calls    how many calls an action may have
    slow_mo_ms    how long Playwright waits before each operation
    settle_s      how long a page may settle after an action
    sandbox       Chromium's own, which root cannot use; without it a page that breaks out of the browser is this user
    hosts         the only names and addresses that the browser reaches; None: all
    """

    browser: str
    tasks: str | None
    actions: tuple[str, ...]
    most_calls: int = 1
    slow_mo_ms: float = 0
    settle_s: float = WAIT_S
    sandbox: bool = False
    hosts: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Visit:
    """An episode to begin.

    task      by BrowserGym's name: "miniwob.click-test", "openended"
    options   of the task: {start_url, goal}, ...
    viewport  {width, height} in pixels; None: the task's
    context   Playwright's options of a new context: record_har_path, storage_state, offline, ...
    """

    task: str
    seed: int
    options: dict[str, Any] = field(default_factory=dict)
    viewport: dict[str, int] | None = None
    context: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class View:
    """What is there after an action. error: of the action, "" for none; said: what the agent wrote to the user."""

    goal: str
    page: str
    error: str
    done: bool
    tabs: tuple[str, ...]  # titles, the active one marked by *
    said: tuple[str, ...]
    info: dict[str, Any]  # the task's own


class WebEngine:
    """One episode at a time; `open` ends the one before. Not thread-safe. Raises UserError without the packages.

    A browser that died is started anew by the next `open`. What breaks raises Playwright's errors.
    """

    def __init__(self, settings: WebSettings) -> None:
        try:
            import browsergym.core
            import browsergym.core.env as module
            from browsergym.core.action import functions
            from browsergym.core.action.highlevel import HighLevelActionSet
            from playwright.sync_api import sync_playwright

            if settings.tasks:
                import_module(settings.tasks)
        except ImportError as error:
            raise UserError(f"{MISSING} ({error})") from None
        self.settings = settings
        self._playwright = sync_playwright().start()
        self._kept = _Kept(self._playwright.chromium, settings)
        self._kept.ready()
        browsergym.core._set_global_playwright(
            SimpleNamespace(chromium=self._kept, selectors=self._playwright.selectors)
        )
        module.Chat = _Chat
        module.extract_screenshot = lambda page: None
        wait = settings.settle_s / WAIT_S
        module.time = SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(seconds * wait))
        chosen = [getattr(functions, name) for name in settings.actions if name != "noop"]  # which is always one
        self._functions = HighLevelActionSet(subsets=["custom"], custom_actions=chosen).python_includes
        self._env: Any = None

    def open(self, visit: Visit) -> View:
        """Begin an episode on a page of its own."""
        import gymnasium

        self.finish()
        self._kept.ready()
        self._env = gymnasium.spec(f"browsergym/{visit.task}").entry_point(
            task_kwargs=visit.options,
            viewport=visit.viewport,
            locale="en-US",
            timezone_id="UTC",
            pw_context_kwargs=visit.context,
            action_mapping=self._code,
        )
        seen, info = self._env.reset(seed=visit.seed)
        return self._view(seen, done=False, info=info)

    def act(self, action: str) -> View:
        """Take an action. One that cannot be taken is a View with its error."""
        seen, _, done, _, info = self._env.step(action)
        return self._view(seen, done=done, info=info)

    def finish(self) -> None:
        """End the episode: its context is closed, and what it recorded (a HAR file) is whole then. Idempotent."""
        env, self._env = self._env, None
        if env is not None and self._kept.alive:
            env.close()

    def close(self) -> None:
        self.finish()
        self._playwright.stop()  # which ends the browser

    def _code(self, action: str) -> str:
        return f"{self._functions}\n{calls(action, self.settings.actions, self.settings.most_calls)}"

    def _view(self, seen: dict[str, Any], *, done: bool, info: dict[str, Any]) -> View:
        active = int(seen["active_page_index"][0])
        said = (message for message in seen["chat_messages"][1:] if message["role"] in ("assistant", "infeasible"))
        return View(
            goal=" ".join(seen["goal"].split()),
            page=tree_text(seen["axtree_object"], seen["extra_element_properties"]),
            error=short_error(seen["last_action_error"]),
            done=bool(done),
            tabs=tuple(f"{'*' * (n == active)}{title}" for n, title in enumerate(seen["open_pages_titles"])),
            said=tuple(message["message"] for message in said),
            info=dict(info["task_info"]),
        )


class _Kept:
    """Stands where BrowserGym looks for Playwright's chromium and for a browser: the same one each time."""

    def __init__(self, chromium: Any, settings: WebSettings) -> None:
        self._chromium, self._settings, self._browser = chromium, settings, None

    @property
    def alive(self) -> bool:
        return self._browser is not None and self._browser.is_connected()

    def ready(self) -> None:
        if self.alive:
            return
        it, words = self._settings, []
        if it.hosts is not None:
            words = [
                f"--host-resolver-rules={', '.join(['MAP * ~NOTFOUND', *(f'EXCLUDE {host}' for host in it.hosts)])}"
            ]
        options = {
            "executable_path": it.browser,
            "slow_mo": it.slow_mo_ms,
            "chromium_sandbox": it.sandbox,
            "args": words,
        }
        try:
            self._browser = self._chromium.launch(**options)
        except Exception as error:
            if it.sandbox and "sandbox" in str(error).lower():
                raise UserError(NO_SANDBOX) from error
            raise

    def launch(self, **_options: Any) -> _Kept:
        return self

    def new_context(self, **options: Any) -> Any:
        return self._browser.new_context(**options)

    def close(self) -> None:
        pass  # an episode is over, not the browser


class _Chat:
    """BrowserGym's chat without its window."""

    def __init__(self, *_args: Any, **_options: Any) -> None:
        self.messages: list[dict[str, Any]] = []

    def add_message(self, role: str, msg: str) -> None:
        self.messages.append({"role": role, "message": msg, "timestamp": 0.0})

    def close(self) -> None:
        pass


# The text of a page (envs/web/engine.py), read back: its elements, and actions that they offer.

_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_LINE = re.compile(rf"(\t*)(?:\[(\w+)\] )?(\w[\w-]*)(?: ({_QUOTED}))?(?: value=(?:{_QUOTED}|[^,]*))?((?:, .*)?)")
_CLICKED = "button link checkbox radio tab menuitem switch".split()
_TYPED = "textbox searchbox spinbutton Date InputTime".split()
_QUOTES = re.compile(r'"([^"]{1,100})"')


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
