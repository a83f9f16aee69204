"""The ScienceWorld game as the jar offers it: load a task, play actions, ask what would be valid.

The package's Python class is not used for this. Each of its steps lists all valid actions and asks for three texts that
nobody reads; the list is fetched one element at a time; its JVM has no heap cap, and its text differs between runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from core.errors import InfraError, UserError
from envs.scienceworld_jvm import Jvm


@dataclass(kw_only=True)
class Engine(Jvm):
    """One game in one JVM. Its random numbers and settings are global there, so it plays one episode at a time.

    heap   searching some gold paths fails with less than 256m
    """

    _game: Any = field(default=None, init=False, repr=False)

    def start(self) -> bool:
        """Start the JVM and a game in it unless it is alive; whether it did. Raises what `Jvm.start` raises."""
        if started := super().start():
            self._game = self.call(self.gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface)
        return started

    def load(self, task: str, variation: int, simplification: str, *, gold: bool = False) -> None:
        """Set up a task at its beginning (0.1 s); with gold, search the path for `gold_path` first (0.1 to 20 s)."""
        complaint = self._ask("load", task, variation, simplification, gold)
        if complaint:
            raise UserError(f"ScienceWorld cannot load {task} {variation}: {complaint}")

    def step(self, action: str) -> tuple[str, int, bool]:
        """Play an action: (text, score from -100 to 100, completed). Does not list the valid actions."""
        text = self._ask("step", action)
        score = round(100 * self._ask("getScore"))
        if score < 0 or text.startswith("Unknown action."):
            self._check_state()
        return text.strip(), score, self._ask("getCompleted")

    def valid_actions(self) -> list[str]:
        """All actions that make sense now, sorted; 300 to 10 000. Draws from the game's random numbers."""
        return self._fetch("getValidActionObjectCombinations")

    def gold_path(self) -> list[str]:
        """The actions that solve the task loaded last with gold=True."""
        return self._fetch("getGoldActionSequence")

    def description(self) -> str:
        """What the loaded task asks for."""
        return " ".join(self._ask("getTaskDescription").split())

    def goals(self) -> list[str]:
        """The steps that the loaded task consists of, in order."""
        ordered = self._ask("getGoalProgressStr").split("Unordered and Optional")[0]
        return re.findall(r"^\d+\t\w+\s+\S+\t(.+)$", ordered, flags=re.MULTILINE)

    def simplifications(self) -> list[str]:
        """The names that a simplification string may be made of, apart from "easy"."""
        return self._ask("getPossibleSimplifications").strip().split(", ")

    def variations(self, task: str, split: str) -> list[int]:
        """The variations of a task in the official split (train, dev or test)."""
        # The split is a function of the name alone; the setter spares loading every task just to ask for it
        self._ask("taskStr_$eq", task)
        listed = self._ask(f"getVariations{split.title()}")
        text = self.call(listed.toString)
        self._drop(listed)
        return [int(number) for number in re.findall(r"\d+", text)]

    def _ask(self, method: str, *args: Any) -> Any:
        if self.gateway is None:
            raise InfraError("the ScienceWorld engine is not running: reset first")
        return self.call(getattr(self._game, method), *args)

    def _fetch(self, method: str) -> list[str]:
        """A list of texts, joined over there: py4j would take one exchange per element."""
        listed = self._ask(method)
        text = self.call(self.gateway.jvm.java.lang.String.join, "\n", listed)
        self._drop(listed)
        return text.split("\n") if text else []

    def _check_state(self) -> None:
        """Raise InfraError after an error inside the engine, which from then on gives -100 as for a failed task."""
        option = self._ask("agentInterface")
        state = self.call(option.get)
        if self.call(state.isInErrorState):
            raise self.broken(self.call(state.getErrorStateMessage))
        self._drop(option, state)

    def _drop(self, *references: Any) -> None:
        """Tell the JVM that these objects are no longer needed; else it keeps them, and all they refer to, for good."""
        for reference in references:
            self.call(self.gateway.detach, reference)
