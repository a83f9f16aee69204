"""An agent's action as calls of BrowserGym's functions: read as literals by a fixed form, never evaluated."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection

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
