"""MiniWoB++ (Shi et al. 2017, Liu et al. 2018): small tasks on one web page, in a real Chromium, through BrowserGym.

A first observation, an action and its answer:

    Goal: Enter "Myron" into the text field and press Submit.

    Page (accessibility tree):
    RootWebArea 'Enter Text Task', focused
            [14] textbox '', clickable
            [15] button 'Submit', clickable
    > fill('14', 'Myron')

The number in brackets is an element's id. Success is a raw reward of 1. BrowserGym calls any reward above 0 a success,
which find-greatest gives for a wrong card; both are recorded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from core.errors import UserError, check_numbers
from core.page import PAGE
from core.textfile import write_whole
from core.types import Task, content_id, digest
from envs.web.base import BrowserEnv, sendable
from envs.web.browser import find_browser, version_of
from envs.web.engine import View, WebSettings
from envs.web.miniwob_tasks import MiniwobEngine, kinds_of, pages, solution, visit

ACTIONS = tuple("noop scroll fill select_option click dblclick hover press focus clear drag_and_drop".split())


@dataclass(kw_only=True)
class MiniwobEnv(BrowserEnv):
    """The browser runs in a worker process and is kept from task to task. Its keys: config/env/miniwob.yaml."""

    kinds: str | list[str] = "webgum"
    seeds: int = 5
    cache_dir: str | None = None
    _goals: dict[str, str] = field(default_factory=dict, init=False, repr=False)  # "kind/seed" -> goal
    _playing: tuple[str, int] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_numbers(self, "env", "seeds", least=1, whole=True)
        check_numbers(self, "env", "seed", "slow_mo_ms", "settle_s", least=0)

    def walkthrough(self) -> list[str]:
        """For the kinds in envs/web/miniwob_tasks.py. Raises UserError for the others."""
        view = self.need_page()
        return solution(self._playing[0], view.goal, view.page)

    def get_ground_truth(self) -> str:
        """The goal: no page tells a way to it."""
        return self.need_page().goal

    def evaluate(self, prediction: str | None) -> bool:
        """Whether the page gave the whole reward; an answer in words counts for nothing here."""
        return self._view is not None and _raw(self._view) >= 1

    def describe(self) -> dict[str, Any]:
        rows = [(task.id, task.query) for task in self.tasks()]
        return {
            "dataset": "miniwob",
            "version": version("miniwob"),
            "sha256": digest(rows),
            "browsergym": version("browsergym-core"),
            "browser": version_of(find_browser(self.browser)),
        }

    def engine(self) -> Callable[[], Any]:
        return partial(MiniwobEngine, self.settings())

    def settings(self) -> WebSettings:
        """The engine's, by these keys. Raises UserError where there is no browser."""
        return WebSettings(
            browser=find_browser(self.browser),
            tasks="browsergym.miniwob",
            actions=ACTIONS,
            slow_mo_ms=self.slow_mo_ms,
            settle_s=self.settle_s,
        )

    def _tasks(self, split: str | None) -> list[Task]:
        if split is not None:
            raise UserError(f"MiniWoB++ has no splits, so none is called {split!r}.")
        kinds, seeds = kinds_of(self.kinds), [self.seed + n for n in range(self.seeds)]
        goals = self._listed(kinds, seeds)
        names = ((kind, f"{kind}/{seed}") for seed in seeds for kind in kinds)  # interleaved: the first of each kind
        return [Task(id=f"miniwob/{name}", query=goals[name], type=kind) for kind, name in names]

    def _reset(self, task: Task) -> str:
        self._view = None
        kind, _, seed = task.id.removeprefix("miniwob/").partition("/")
        if not seed.isdecimal() or kind not in kinds_of("all"):
            raise UserError(f"{task.id!r} is not a task of MiniWoB++: miniwob/KIND/SEED")
        self._playing = (kind, int(seed))
        self._view = self.call("open", visit(*self._playing))
        return f"Goal: {self._view.goal}\n\n{PAGE}\n{self._view.page}"

    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        self._view = view = self.call("act", sendable(action))
        raw = _raw(view)
        info = {
            "valid": not view.error,
            "won": raw >= 1,
            "raw_reward": raw,
            "won_by_browsergym": raw > 0,
        }
        error = f"Error: {view.error}\n\n" if view.error else ""
        return f"{error}{PAGE}\n{view.page}", float(raw >= 1), view.done, info

    def _listed(self, kinds: list[str], seeds: list[int]) -> dict[str, str]:
        """The goals of these tasks, and of others. Those that are not on disk yet are asked for, 0.1 s each."""
        wanted = {f"{kind}/{seed}" for kind in kinds for seed in seeds}
        if wanted <= self._goals.keys():
            return self._goals
        file = self._cache()
        known = self._goals | (json.loads(file.read_text(encoding="utf-8")) if file.exists() else {})
        for kind in kinds:
            if new := [seed for seed in seeds if f"{kind}/{seed}" not in known]:
                goals = self.call("goals", kind, new)
                known |= {f"{kind}/{seed}": goal for seed, goal in zip(new, goals, strict=True)}
        if known != self._goals:
            self._goals = known
            write_whole(file, json.dumps(known, indent=1, sort_keys=True))
        return self._goals

    def _cache(self) -> Path:
        """The file of goals, which depend on the pages, the packages and the browser."""
        user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "reasoningbank", "miniwob")
        made_by = (version("miniwob"), version("browsergym-core"), version_of(find_browser(self.browser)), str(pages()))
        return Path(self.cache_dir or user).expanduser() / f"goals-{content_id(made_by)}.json"


def _raw(view: View) -> float:
    """The reward of the page itself, from -1 to 1. 0 where the agent left the page."""
    return float(view.info.get("RAW_REWARD_GLOBAL", 0))
