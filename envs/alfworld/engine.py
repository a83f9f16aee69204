"""ALFWorld's engine as it runs in a worker process: textworld's PDDL engine with ALFWorld's names for things.

It loads one game file and nothing else: the stock AlfredTWEnv walks and shuffles a whole split, and textworld's gym
layer adds a step limit of its own.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError
from single_turn_bench.files import write_whole

PLACEHOLDERS = {"r": "receptacle", "ko": "knife"}  # the grammar's variables; all others are objects
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
        textgen.EvalSymbol.derive = _derive
        self._env = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
        self._path: str | None = None

    def load(self, path: str) -> Opening:
        """Start the game of a file from its beginning."""
        if path != self._path:
            self._path = None  # a load that fails half-way leaves nothing to go on with
            self._env.load(path)
            self._path = path
        turn = _turn(self._env.reset(), valid=True)
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
        write_whole(Path(path), json.dumps({**game, "solvable": True, "walkthrough": plan}).encode())

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


def _derive(symbol: Any, context: dict[str, Any] | None = None) -> list[Any]:
    """What an expression of the grammar says. TextWorld 1.7.0 evaluates it with locals() that Python 3.13 ignores."""
    from textworld.envs.pddl import textgen

    variables = (context or symbol.context)["variables"]
    return [textgen.TerminalSymbol(eval(symbol.expression, vars(textgen), dict(variables)))]


def _form(template: str) -> str:
    """'take {o} from {r}' -> 'take (object) from (receptacle)'."""
    return re.sub(r"\[?\{(\w+)[^{}]*\}\]?", lambda match: f"({PLACEHOLDERS.get(match[1], 'object')})", template)
