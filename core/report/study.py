"""Runs put in order: those that may be compared form a study, and its arms are the cells with their seeds."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from core.runs import Run, run_columns

# What tells two arms of one workflow apart, in the order in which it is named.
TELLING = ("memory", "retrieval", "judge", "setting", "learn_from", "k", "r", "top_k", "order", "llm")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One cell of a table: the same configuration and tasks under one or more seeds."""

    label: str
    workflow: str
    facts: dict[str, Any]  # the run_columns of its first run
    runs: tuple[Run, ...]  # by seed

    @property
    def complete(self) -> bool:
        return all(run.complete for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Arms over the same tasks of one environment by one model; the first is the baseline."""

    env: str
    model: str
    n_tasks: int
    arms: tuple[Arm, ...]


def studies(runs: list[Run]) -> list[Study]:
    """The runs grouped for comparison. vanilla is the baseline where it is there, else the first arm named."""
    groups: dict[tuple, list[tuple[Run, dict]]] = defaultdict(list)
    for run in runs:
        facts = run_columns(run)
        groups[facts["env"], facts["model"], facts["task_set"]].append((run, facts))
    return [
        Study(env=env, model=str(model), n_tasks=members[0][1]["n_tasks"], arms=_arms(members))
        for (env, model, _), members in groups.items()
    ]


def run_labels(all_studies: list[Study]) -> list[tuple[Run, str]]:
    """Every run with a name that no other run of the report has."""
    envs = {study.env for study in all_studies}
    models = {study.model for study in all_studies}
    named = []
    for study in all_studies:
        where = [part for part, many in ((study.env, len(envs) > 1), (study.model, len(models) > 1)) if many]
        for arm in study.arms:
            named += [(run, " · ".join([*where, arm.label, f"seed {run.config['seed']}"])) for run in arm.runs]
    counts = Counter(label for _, label in named)
    named = [(run, f"{label} · {run.path.name}" if counts[label] > 1 else label) for run, label in named]
    seen: Counter[str] = Counter()
    unique = []
    for run, label in named:
        seen[label] += 1
        unique.append((run, label if seen[label] == 1 else f"{label} ({seen[label]})"))
    return unique


def slug(text: str) -> str:
    """A text as it stands in a link."""
    return re.sub(r"[^a-z0-9_.=]+", "-", text.lower()).strip("-") or "run"


def _arms(members: list[tuple[Run, dict]]) -> tuple[Arm, ...]:
    cells: dict[str, list[tuple[Run, dict]]] = defaultdict(list)
    for run, facts in members:
        cells[facts["cell"]].append((run, facts))
    firsts = [cell[0][1] for cell in cells.values()]
    arms = []
    for cell in cells.values():
        facts = cell[0][1]
        runs = tuple(run for run, _ in sorted(cell, key=lambda pair: pair[1]["seed"]))
        arms.append(Arm(label=_label(facts, firsts), workflow=facts["arm"], facts=facts, runs=runs))
    seen: Counter[str] = Counter(arm.label for arm in arms)
    if max(seen.values()) > 1:  # they differ in a key that has no name here
        arms = [
            Arm(label=f"{a.label} [{a.facts['cell'][:4]}]", workflow=a.workflow, facts=a.facts, runs=a.runs)
            if seen[a.label] > 1
            else a
            for a in arms
        ]
    return tuple(sorted(arms, key=lambda arm: arm.workflow != "vanilla"))


def _label(facts: dict, all_facts: list[dict]) -> str:
    """The workflow, and whatever tells it from the other arms of that workflow."""
    rivals = [other for other in all_facts if other["arm"] == facts["arm"]]
    telling = [name for name in TELLING if len({str(other[name]) for other in rivals}) > 1]
    return " ".join([facts["arm"], *(f"{name}={facts[name]}" for name in telling if facts[name] is not None)])
