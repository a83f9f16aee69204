"""ALFWorld (Shridhar et al. 2021): household tasks in text, six types, played in the real engine.

A first observation, an action and its answer:

    You are in the middle of a room. Looking quickly around you, you see a cabinet 2, a cabinet 1, ... and a toaster 1.

    Your task is to: heat some apple and put it in diningtable.
    > go to microwave 1
    You arrive at microwave 1. The microwave 1 is closed.

Success is the engine's `won`. Two releases of the games are in use, which differ in their wording (`move X to Y`,
`put X in/on Y`): the commands listed to the agent are read from each game's own grammar.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.process import WorkerProcess
from core.types import Task
from envs.alfworld.engine import AlfworldEngine, GameState, Opening
from envs.alfworld.games import FETCH, SPLITS, Game, default_cache, find_data, has_games, list_games
from envs.base import BaseEnv, EnvStateError

GAMES_PER_PROCESS = 200  # the engine keeps half a megabyte of every game it has seen
OFFICIAL, GENERATED = "valid_seen", "generated"
NOT_THE_BENCHMARK = (
    "env=alfworld: without game files generated games are played (split generated), which are not the benchmark; "
    f"{FETCH} brings the real ones."
)
BANNER = "-= Welcome to TextWorld, ALFRED! =-"


@dataclass(kw_only=True)
class AlfworldEnv(BaseEnv):
    """The engine runs in a process of its own, which is kept from task to task. Its keys: config/env/alfworld.yaml."""

    split: str | None = None
    data: str | None = None
    show_admissible: bool = False
    match: str = "exact"
    generated_games: int = 200
    cache_dir: str | None = None
    _worker: WorkerProcess = field(init=False, repr=False)
    _games: dict[str, dict[str, Game]] = field(default_factory=dict, init=False, repr=False)  # split -> task id -> game
    _game: Game | None = field(default=None, init=False, repr=False)
    _opening: Opening | None = field(default=None, init=False, repr=False)
    _turn: GameState | None = field(default=None, init=False, repr=False)
    _n_resets: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self.split = self.split or self.settled({"data": self.data})["split"]
        _check_split(self.split)
        if self.match not in ("exact", "nearest"):
            raise UserError(f"env.match={self.match} is neither exact nor nearest")
        self._worker = WorkerProcess(factory=AlfworldEngine)

    @classmethod
    def settled(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        if config.get("split") is not None:
            return {}
        return {"split": OFFICIAL if has_games(config.get("data")) else GENERATED}

    @classmethod
    def notice(cls, config: Mapping[str, Any]) -> str:
        return NOT_THE_BENCHMARK if config["split"] == GENERATED else ""

    def admissible(self) -> list[str]:
        """The commands that the running game would accept now, sorted."""
        self._need_game()
        return list(self._turn.admissible)

    def walkthrough(self) -> list[str]:
        """Commands that win the running game, to be asked for before the first step: the game file's own, or else the
        planner's, which can take it some seconds."""
        self._need_game()
        return list(self._opening.walkthrough or self._worker.call("plan"))

    def get_ground_truth(self) -> str:
        """The goal, and one way to reach it where the game file knows one."""
        self._need_game()
        way = self._opening.walkthrough
        return self._game.query + (f" One way: {'; '.join(way)}" if way else "")

    def evaluate(self, prediction: str | None) -> bool:
        """Whether the running game is won; an answer in words counts for nothing here."""
        return self._turn is not None and self._turn.won

    def describe(self) -> dict[str, Any]:
        games = sorted(self._listed(self.split).items())
        rows = json.dumps([(task_id, game.sha256) for task_id, game in games])
        return {
            "dataset": f"alfworld/{self.split}",
            "sha256": hashlib.sha256(rows.encode()).hexdigest(),
            "n_games": len(games),
            "match": self.match,
            "show_admissible": self.show_admissible,
        }

    def close(self) -> None:
        super().close()
        self._worker.close()

    def abort(self) -> None:
        super().abort()
        self._worker.abort()

    def _tasks(self, split: str | None) -> list[Task]:
        games = self._listed(split or self.split)
        return [Task(id=task_id, query=game.query, type=game.type) for task_id, game in games.items()]

    def _reset(self, task: Task) -> str:
        self._turn = self._opening = None
        self._game = self._listed(task.id.split("/")[1] if "/" in task.id else self.split).get(task.id)
        if self._game is None:
            raise UserError(f"no such ALFWorld task here: {task.id}")
        self._n_resets += 1
        if self._n_resets % GAMES_PER_PROCESS == 0:
            self._worker.close()
        self._worker.start()
        self._game.prepare(self._worker)
        self._opening = self._worker.call("load", self._game.path)
        self._turn = self._opening.turn
        scene = self._turn.observation.removeprefix(BANNER).strip()
        return f"{scene}\n\nCommands: {', '.join(self._opening.commands)}{self._hint()}"

    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        command = nearest(action, self._turn.admissible) if self.match == "nearest" else action
        self._turn = self._worker.call("step", command)
        info: dict[str, Any] = {"valid": self._turn.valid, "won": self._turn.won}
        if command != action:
            info["played"] = command
        if self.show_admissible:
            info |= {"admissible": self.admissible(), "hint_chars": len(self._hint())}
        return self._turn.observation + self._hint(), float(self._turn.won), self._turn.won, info

    def _need_game(self) -> None:
        if self._opening is None:
            raise EnvStateError("no game: call reset first")

    def _hint(self) -> str:
        """The hint appended to an observation (info["hint_chars"])."""
        return f"\n\nAdmissible commands: {'; '.join(self._turn.admissible)}" if self.show_admissible else ""

    def _listed(self, split: str) -> dict[str, Game]:
        """Task id -> game, in the benchmark's order."""
        _check_split(split)
        if split not in self._games:
            cache = Path(self.cache_dir).expanduser().resolve() if self.cache_dir else default_cache()
            if split == GENERATED:
                from envs.alfworld.generate import generate

                games = generate(self.seed, self.generated_games, cache)
            else:
                games = list_games(find_data(self.data), split, cache)
            self._games[split] = {f"alfworld/{split}/{game.folder}": game for game in games}
        return self._games[split]


def _check_split(split: str) -> None:
    if split not in (*SPLITS, GENERATED):
        raise UserError(f"env.split={split} is none of {', '.join((*SPLITS, GENERATED))}")


# What env.match=nearest takes for the same word.
ALIKE = 0.8  # how similar two names must be to count as one with a typing error
MOST = 2  # letters more or fewer that a typing error makes
SYNONYMS = {
    "move": "put place insert drop",
    "take": "pick grab get",
    "go": "goto walk navigate",
    "use": "toggle turn switch",
    "examine": "check inspect",
    "clean": "wash rinse",
    "cool": "chill",
}
VERBS = {synonym: verb for verb, synonyms in SYNONYMS.items() for synonym in synonyms.split()}
FILLERS = frozenset("a an the some to in on in/on into onto from with using at of up off".split())


def nearest(command: str, admissible: Sequence[str]) -> str:
    """The admissible command that was meant, or the command itself when there is none or no single best one.

        "1. Put the Apple 1 in fridge 1."  ->  "move apple 1 to fridge 1"      (the release's own wording)
        "go to cabnet 4"                   ->  "go to cabinet 4"
        "go to sofa" (there is one)        ->  "go to sofa 1"
        "go to cabinet 9" (there are 4)    ->  unchanged: "Nothing happens."

    The form of a command is mended, never its meaning: it is only ever replaced by an admissible one that has the same
    verb and names the same numbered things in the same order. Where the command has no number, there must be only one
    admissible command of these names.
    """
    if command.strip() in admissible:
        return command
    wanted = _words(command)
    numbered = any(word.isdigit() for word in wanted)  # "go to sofa" names the sofa where there is only one
    scored = []
    for choice in admissible:
        words = [word for word in _words(choice) if numbered or not word.isdigit()]
        scored.append((_likeness(wanted, words), choice))
    scored.sort(reverse=True)
    if not scored or scored[0][0] == 0 or (len(scored) > 1 and scored[0][0] == scored[1][0]):
        return command
    return scored[0][1]


def _words(command: str) -> list[str]:
    """The verb and the things with their numbers: 'Put the apple 1 in/on fridge 2.' -> [move, apple, 1, fridge, 2]."""
    text = re.sub(r"^[\s\d.>*-]*", "", command[:500].lower())
    words = [word for word in re.findall(r"[a-z/]+|\d+", text) if word not in FILLERS]
    return [VERBS.get(words[0], words[0]), *words[1:]] if words else []


def _likeness(wanted: list[str], choice: list[str]) -> float:
    """0 unless every word has its counterpart; numbers must be equal, and names nearly so."""
    if len(wanted) != len(choice) or wanted[:1] != choice[:1]:
        return 0.0
    ratios = [_ratio(a, b) for a, b in zip(wanted, choice)]
    return min(ratios, default=0.0)


def _ratio(a: str, b: str) -> float:
    if a == b:
        return 1.0
    if abs(len(a) - len(b)) > MOST or not (a.isalpha() and b.isalpha()):  # towelholder is no mistyped handtowelholder
        return 0.0
    ratio = SequenceMatcher(None, a, b).ratio()
    return ratio if ratio >= ALIKE else 0.0
