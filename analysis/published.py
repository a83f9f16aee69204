"""Published numbers (published.json, each with its source) beside ours; where they are not comparable, why."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from analysis.cells import short
from core.setting import GOLD

NAMES = ("model", "arm", "job")  # who and what was measured; job: the type of tasks, where it is of one alone
KNOBS = ("k", "r", "top_k")  # what tells the points of one figure apart
MEASURES = ("element_accuracy", "action_f1", "step_success")  # that some benchmarks have beside success


@dataclass(frozen=True, kw_only=True)
class Published:
    """One published row: `values` holds model, arm and what was measured.

    part   of the benchmark, as `analysis.load.part_of`; None: the whole
    version  of the benchmark, where there are several
    independent  measured by others than the method's authors
    note   its protocol, as far as it was published
    """

    source: str
    where: str
    env: str
    part: str | None
    version: str | None
    n_tasks: int | None
    note: str
    tables: tuple[str, ...]
    values: dict[str, Any]
    independent: bool = False

    def against(self, row: dict[str, Any]) -> list[str]:
        """Why a cell of ours is not comparable; [] when it is."""
        if self.env != row["env"]:
            return ["another benchmark"]
        reasons = []
        if _plain(self.values["model"]) != _plain(row["model"]):
            reasons.append(f"its model is {self.values['model']}")
        if self.part != row.get("part") and self.part is not None:
            reasons.append(f"it is of {self.part}")
        if self.version != (ours := row.get("version") or self.version):
            reasons.append(f"its tasks and their evaluation are the {self.version} ones, ours the {ours} ones")
        if self.n_tasks is None:
            reasons.append("its number of tasks is unknown")
        elif self.n_tasks != row["n_tasks"]:
            reasons.append(f"it has {self.n_tasks} tasks, ours {row['n_tasks']}")
        if row["setting"] != "test_time":
            reasons.append(f"ours is setting={row['setting']}")
        if set(row["label_source"].split("+")) & {*GOLD, "unknown"}:
            reasons.append(f"ours has labels {row['label_source']}")
        for key in KNOBS:
            if key in self.values and short(row[key]) != str(self.values[key]):
                reasons.append(f"its {key} is {self.values[key]}")
        changed = [word.partition("=")[0].lstrip("+~") for word in (row.get("overridden") or "").split()]
        if more := [key for key in changed if key.rpartition(".")[2] not in self.values]:
            reasons.append(f"ours overrides {', '.join(more)}")
        return reasons

    def text(self) -> str:
        """The value as it was published, and the further measures."""
        metric = next(name for name in self.values if name not in (*NAMES, *KNOBS))
        sd = f" ± {self.values['sd']}" if "sd" in self.values else ""
        more = [f"{name.replace('_', ' ')} {self.values[name]}" for name in MEASURES if name in self.values]
        return f"{self.values[metric]}{sd}" + ("" if metric == "success" else f" {metric}") + _in_brackets(more)


@cache
def load() -> tuple[Published, ...]:
    """Every published row, in the order of the file."""
    groups = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
    shared = ("source", "where", "env", "n_tasks", "note")
    return tuple(
        Published(
            **{key: group[key] for key in shared},
            part=group.get("part"),
            version=group.get("version"),
            independent=group.get("independent", False),
            tables=tuple(group["tables"]),
            values=dict(zip(group["columns"], row, strict=True)),
        )
        for group in groups
        for row in group["rows"]
    )


def comparable(row: dict[str, Any]) -> str:
    """The success of the same cell that its authors published, each once, or "-"."""
    own = [p for p in load() if p.values["arm"] == row["arm"] and "success" in p.values and not p.independent]
    found = [p for p in own if not p.against(row)]
    return ", ".join(dict.fromkeys(f"{p.text()} ({p.source.split(',')[0]})" for p in found)) or "-"


def reference(table: str, rows: list[dict[str, Any]]) -> list[list[str]]:
    """Lines for below a table: source, benchmark, model, method, value, ours, and what keeps them apart.

    The rows published for our benchmarks; where there is none, the paper's own for this table, of whole benchmarks if
    there are such. What others measured than a method's authors follows, and its source says so.
    """
    envs, arms = {row["env"] for row in rows}, {row["arm"] for row in rows}
    mine = [p for p in load() if table in p.tables and p.values["arm"] in arms]
    near = sorted((p for p in mine if p.env in envs), key=lambda p: p.independent)
    mine = [p for p in mine if p.source.startswith("ReasoningBank")]
    whole = [p for p in mine if p.part is None]
    return [_line(p, rows) for p in near or whole or mine]


def _line(p: Published, rows: list[dict[str, Any]]) -> list[str]:
    ours = [row for row in rows if row["arm"] == p.values["arm"]]
    reasons = [p.against(row) for row in ours]
    fit = next((row for row, why in zip(ours, reasons, strict=True) if not why), None)
    value = "-" if fit is None or fit["success"] is None else f"{100 * fit['success']:.1f}"
    why = "yes: number of tasks and model" if fit else "no: " + "; ".join(min(reasons, key=len))
    method = " ".join([p.values["arm"], *(f"{key}={p.values[key]}" for key in KNOBS if key in p.values)])
    where = f"{'independent: ' * p.independent}{p.source}, {p.where}" + (f" ({p.note})" if p.note else "")
    return [" ".join(filter(None, (p.env, p.part))), p.values["model"], method, p.text(), value, why, where]


def _in_brackets(words: list[str]) -> str:
    return f" ({', '.join(words)})" if words else ""


def _plain(model: str) -> str:
    """A model's name without its provider and its punctuation."""
    return re.sub(r"[^a-z0-9]", "", model.lower().rpartition("/")[2])
