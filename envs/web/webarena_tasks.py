"""WebArena's 812 tasks (Zhou et al. 2023), as they were published and as webarena-verified corrected them.

Both stand in the wheel webarena-verified (Apache-2.0), which is read without importing it. The ReasoningBank paper has
the 684 tasks without the map, in five groups: shopping 187, admin 182, gitlab 180, reddit 106, and 29 of several sites.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.errors import UserError

MISSING = "WebArena's tasks are in the package webarena-verified: pip install --no-deps webarena-verified==1.2.3"
FILES = {"original": "test.raw.json", "verified": "webarena-verified.json", "hard": "webarena-verified.json"}
HARD = "subsets/webarena-verified-hard.json"
COUNTS = {"shopping": 187, "admin": 182, "gitlab": 180, "reddit": 106, "multi": 29, "map": 128}
PAPER = tuple(group for group in COUNTS if group != "map")
OF_SITE = {"shopping_admin": "admin"}  # the paper's name of a group; else that of its site


@dataclass(frozen=True, kw_only=True)
class WebTask:
    """A task. URLs begin with __SHOPPING__ and the like, in the place of which a site's own is put (`at`).

    group     shopping | admin | gitlab | reddit | multi | map, the last also those of several sites one of which it is
    logins    the sites on which the agent is logged in: those whose stored state the published task names
    checks    how it is evaluated: `eval` of the file
    """

    id: int
    sites: tuple[str, ...]
    group: str
    intent: str
    start_urls: tuple[str, ...]
    template: int
    logins: tuple[str, ...]
    checks: Any

    @property
    def needs_trace(self) -> bool:
        """Of a verified task: whether its evaluation looks at what the browser asked of the sites."""
        return any(each["evaluator"] == "NetworkEventEvaluator" for each in self.checks)


@dataclass(frozen=True, kw_only=True)
class WebVerdict:
    """The result of the evaluation. score: 0 to 1, solved at 1; failed: the failed checks, or the evaluators' error."""

    score: float
    failed: tuple[str, ...] = ()

    @property
    def solved(self) -> bool:
        return self.score == 1.0


def web_tasks(tasks: str = "original", site: str | None = None) -> list[WebTask]:
    """The tasks of a version, by ascending id. Raises UserError where the package is missing or is another one.

    tasks   original | verified | hard: the 258 of the verified ones that are called hard
    site    a group; None: the paper's five; all: the map too
    """
    if tasks not in FILES:
        raise UserError(f"env.version={tasks}: choose {', '.join(FILES)}")
    if site not in (None, "all", *COUNTS):
        raise UserError(f"env.site={site}: choose {', '.join(COUNTS)}, all, or null for the first five")
    folder = dataset_folder()
    original, rows = (json.loads((folder / FILES[name]).read_text(encoding="utf-8")) for name in ("original", tasks))
    states = {raw["task_id"]: raw["storage_state"] for raw in original}
    every = [_task(raw, states.get(raw["task_id"])) for raw in rows]
    every.sort(key=lambda task: task.id)
    found = {group: sum(task.group == group for task in every) for group in COUNTS}
    if found != COUNTS or len({task.id for task in every}) != sum(COUNTS.values()):
        raise UserError(f"{folder / FILES[tasks]} has other tasks than WebArena: {found}. {MISSING}")
    hard = set(json.loads((folder / HARD).read_text(encoding="utf-8"))["task_ids"]) if tasks == "hard" else None
    groups = {None: PAPER, "all": tuple(COUNTS)}.get(site, (site,))
    return [task for task in every if task.group in groups and (hard is None or task.id in hard)]


def dataset_folder() -> Path:
    """Where the package keeps the tasks. Raises UserError where it is not installed."""
    spec = find_spec("webarena_verified")  # of a package by itself, so nothing of it is imported
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"{MISSING}.")
    return Path(spec.submodule_search_locations[0]) / "assets" / "dataset"


def at(urls: dict[str, str], text: str) -> str:
    """A URL of a task, or a text with some, at the sites' own addresses. urls: {site: address}."""
    for site, address in urls.items():
        text = text.replace(f"__{site.upper()}__", address.rstrip("/"))
    return text


def group_of(sites: Sequence[str]) -> str:
    """The paper's group of a task on these sites."""
    if "map" in sites:
        return "map"
    return "multi" if len(sites) > 1 else OF_SITE.get(sites[0], sites[0])


def _task(raw: dict[str, Any], state: str | None) -> WebTask:
    """state: the file of cookies that the task begins with, named after its sites: .auth/gitlab.reddit_state.json"""
    starts = raw["start_urls"] if "start_urls" in raw else raw["start_url"].split(" |AND| ")
    return WebTask(
        id=raw["task_id"],
        sites=tuple(raw["sites"]),
        group=group_of(raw["sites"]),
        intent=raw["intent"],
        start_urls=tuple(starts),
        template=raw["intent_template_id"],
        logins=tuple(Path(state).name.removesuffix("_state.json").split(".")) if state else (),
        checks=raw["eval"],
    )
