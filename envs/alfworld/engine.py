"""ALFWorld's engine as it runs in a worker process: textworld's PDDL engine with ALFWorld's names for things.

It loads one game file and nothing else: the stock AlfredTWEnv walks and shuffles a whole split, and textworld's gym
layer adds a step limit of its own.
"""

from __future__ import annotations

import ast
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError
from core.textfile import write_whole

PLACEHOLDERS = {"r": "receptacle", "ko": "knife"}  # the grammar's variables; all others are objects
Read = Callable[[Mapping[str, Any]], Any]  # from the variables of an expression to what it says
PLAN_LIMIT = 100  # commands; a longer plan is a sign of a broken game


@dataclass(frozen=True, kw_only=True)
class GameState:
    """The engine's response to a command. valid: whether it knew the command; admissible: commands possible next."""

    observation: str
    won: bool
    valid: bool
    admissible: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A game's first turn, the forms of its commands, and its walkthrough if the game file holds one."""

    turn: GameState
    commands: tuple[str, ...]
    walkthrough: tuple[str, ...] | None


class AlfworldEngine:
    """One game at a time; the next `load` replaces it. Raises UserError where the packages are missing."""

    def __init__(self) -> None:
        # alfworld makes this folder when it is imported, in the user's home unless told otherwise
        os.environ.setdefault("ALFWORLD_DATA", tempfile.gettempdir())
        try:
            import fast_downward
            import textworld
            from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
            from textworld.envs import PddlEnv
            from textworld.envs.pddl import textgen
        except ImportError as error:
            raise UserError(f"env=alfworld needs its extra: pip install -e '.[alfworld]' ({error})") from None
        # The engine translates the same problem at load, at reset and at every further reset of the same game, which
        # takes most of a second each time; the translation depends on its arguments alone.
        fast_downward.pddl2sas = lru_cache(maxsize=2)(fast_downward.pddl2sas)
        textgen.EvalSymbol.__init__, textgen.EvalSymbol.derive = _begin, _derive
        self._env = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
        self._parse = partial(textgen._parse_and_convert, rule_name="symbols")
        self._path: str | None = None

    def load(self, path: str) -> Opening:
        """Start the game of a file from its beginning."""
        known, self._path = self._path, None  # a load that fails half-way leaves nothing to go on with
        try:
            if path != known:
                self._env.load(path)
                for action in self._env._logic.actions.values():
                    self._parse(action.template)  # else it would be read when the command is first possible
            turn = _turn(self._env.reset(), valid=True)
        except UserError as error:
            raise UserError(f"{path} is refused: {error}.") from None
        self._path = path
        walkthrough = self._env.walkthrough
        return Opening(turn=turn, commands=self._commands(), walkthrough=tuple(walkthrough) if walkthrough else None)

    def step(self, command: str) -> GameState:
        state, _, _ = self._env.step(command)
        return _turn(state, valid=state["_last_action"] is not None)

    def plan(self) -> list[str]:
        """The planner's commands from here to the goal; empty when it finds none. Takes up to some seconds."""
        return list(self._env._pddl_state.replan(self._env._entity_infos))

    def make(self, path: str, game: Mapping[str, Any]) -> None:
        """Write a new game file together with its walkthrough, once the planner's plan has been played and has won."""
        self._path = None
        self._env.load(dict(game))
        if self._env.reset()["won"]:
            raise InfraError(f"generated game is already solved at its start: {path}")
        plan = self.plan()
        if not (0 < len(plan) <= PLAN_LIMIT and [self._env.step(command)[0]["won"] for command in plan][-1]):
            raise InfraError(f"generated game has no solution: {path}")
        write_whole(Path(path), json.dumps({**game, "solvable": True, "walkthrough": plan}))

    def _commands(self) -> tuple[str, ...]:
        """The forms of the commands that this game has: in its grammar's order, and only what its domain defines."""
        defined = self._env._pddl_state._actions
        actions = self._env._logic.actions.items()
        return tuple(dict.fromkeys(_form(action.template) for name, action in actions if name in defined))


def _turn(state: Mapping[str, Any], *, valid: bool) -> GameState:
    return GameState(
        observation=state["feedback"].strip(),
        won=bool(state["won"]),
        valid=valid,
        admissible=tuple(state["admissible_commands"]),
    )


def _begin(symbol: Any, expression: str, context: dict[str, Any] | None = None) -> None:
    """Make an expression of a grammar, which is refused here if it is none that `_reader` knows."""
    symbol.symbol, symbol.context = expression, context or {}
    symbol.read = _reader(expression)


def _derive(symbol: Any, context: dict[str, Any] | None = None) -> list[Any]:
    """What an expression of a grammar says. TextWorld evaluates it as Python, so a game file could run any program."""
    from textworld.envs.pddl import textgen

    return [textgen.TerminalSymbol(symbol.read((context or symbol.context)["variables"]))]


@lru_cache(maxsize=1000)
def _reader(expression: str) -> Read:
    """The function that says an expression such as `o.indefinite + ' ' + o.name`, `r.name or r.id` or `o`.

    Raises UserError for one that could do more than that.
    """
    try:
        return _read(ast.parse(expression.strip(), mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise UserError(f"a game must not run code, and its grammar holds {{{expression[:60]}}}") from error


def _read(node: ast.expr) -> Read:
    match node:
        case ast.Constant(value=str(text)):
            return lambda _: text
        case ast.Name(id=name):
            return lambda variables: variables[name]
        case ast.Attribute(value=ast.Name(id=name), attr="id" | "name" | "definite" | "indefinite" as attribute):
            return lambda variables: getattr(variables[name], attribute)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _read(left), _read(right)
            return lambda variables: first(variables) + second(variables)
        case ast.BoolOp(op=ast.Or(), values=values):
            parts = [_read(each) for each in values]
            return lambda variables: next((said for part in parts if (said := part(variables))), None)
    raise ValueError(ast.dump(node))


def _form(template: str) -> str:
    """'take {o} from {r}' -> 'take (object) from (receptacle)'."""
    return re.sub(r"\[?\{(\w+)[^{}]*\}\]?", lambda match: f"({PLACEHOLDERS.get(match[1], 'object')})", template)
