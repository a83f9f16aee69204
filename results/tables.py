"""The tables: what stands in each, which cells it wants, and the command that fills a cell that is missing."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.cells import short

if TYPE_CHECKING:
    import pandas as pd

EXPERIMENTS = Path(__file__).resolve().parent.parent / "config" / "experiment"
COLUMN = {"retrieval.top_k": "top_k"}  # a swept key that the episodes' table has under another name
# A workflow chosen without its arm is that arm.
ARMS = {
    "vanilla": "no_memory",
    "reasoningbank_success_only": "success_only",
    "reasoningbank_failure_only": "failure_only",
}
PLAYERS = ("gold", "random")  # agents without a model: the ceiling and the floor, arms of their own
Format = Callable[[dict[str, Any]], str]


@dataclass(frozen=True, kw_only=True)
class Table:
    """experiment names the file whose cells it wants; "" takes every cell there is. baseline: a label or an arm."""

    title: str
    experiment: str = ""
    baseline: str = "no_memory"
    columns: tuple[str, ...]


def number(column: str, digits: int = 1, scale: float = 1.0, sign: str = "") -> Format:
    return lambda row: "-" if missing(row.get(column)) else f"{row[column] * scale:{sign},.{digits}f}"


def interval(column: str, low: str, high: str, sign: str = "") -> Format:
    """In points of 100, with the interval beside it."""

    def points(value: float) -> str:
        return f"{round(100 * value, 1) + 0.0:{sign}.1f}"  # a difference of nothing is +0.0, not -0.0

    def show(row: dict[str, Any]) -> str:
        if missing(row.get(column)):
            return "-"
        ends = "" if missing(row.get(low)) else f" [{points(row[low])}, {points(row[high])}]"
        return f"{points(row[column])}{ends}"

    return show


def success(row: dict[str, Any]) -> str:
    if not row["n"]:
        return "partial" if row["n_partial"] else "-"
    return interval("success", "low", "high")(row) + (" *" if row["partial"] else "")


def p_value(column: str) -> Format:
    def show(row: dict[str, Any]) -> str:
        p = row.get(column)
        return "-" if missing(p) else "<0.001" if p < 0.001 else f"{p:.3f}"

    return show


def seeds(row: dict[str, Any]) -> str:
    return f"{row['n_seeds']}" + (f" (+{row['n_partial']} partial)" if row["n_partial"] and not row["partial"] else "")


def pass_at(row: dict[str, Any]) -> str:
    return "-" if missing(row.get("pass_at")) else " / ".join(f"{100 * p:.1f}" for p in row["pass_at"])


def confusion(row: dict[str, Any]) -> str:
    return " ".join(str(row[f"judge_{count}"]) for count in ("tp", "fp", "fn", "tn"))


def missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


HEADINGS: dict[str, tuple[str, Format]] = {
    "method": ("method", lambda row: row["label"]),
    "seeds": ("seeds", seeds),
    "n": ("n", lambda row: str(row["n"])),
    "infra_errors": ("infra errors", lambda row: str(row["n_infra_error"])),
    "labels": ("labels", lambda row: row["label_source"]),
    "success": ("success % [95 %]", success),
    "sd": ("sd over seeds", number("sd", 1, 100)),
    "difference": ("difference [95 %]", interval("difference", "difference_low", "difference_high", "+")),
    "flips": ("won / lost", lambda row: "-" if missing(row.get("won")) else f"{row['won']:.0f} / {row['lost']:.0f}"),
    "p": ("p", p_value("p")),
    "p_seeds": ("p by seeds", p_value("p_seeds")),
    "p_holm": ("p (Holm)", p_value("p_holm")),
    "reward": ("mean reward", number("reward", 3)),
    "steps": ("steps", number("steps", 1)),
    "steps_won": ("steps, won", number("steps_won", 1)),
    "steps_lost": ("steps, lost", number("steps_lost", 1)),
    "tokens": ("tokens / task", number("tokens", 0)),
    "tokens_per_success": ("tokens / success", number("tokens_per_success", 0)),
    "cost": ("USD / task", number("cost", 5)),
    "cost_per_success": ("USD / success", number("cost_per_success", 5)),
    "lessons": ("lessons / 100 tasks", number("lessons_per_100", 1)),
    "hit_rate": ("retrieval hit %", number("hit_rate", 1, 100)),
    "late_early": ("late - early [95 %]", interval("late_early", "late_early_low", "late_early_high", "+")),
    "gain": ("difference, late - early", interval("gain", "gain_low", "gain_high", "+")),
    "judge_n": ("judged", lambda row: str(row["judge_n"])),
    "agreement": ("agreement %", number("judge_agreement", 1, 100)),
    "kappa": ("kappa", number("judge_kappa", 2)),
    "confusion": (
        "true+ false+ false- true-",
        lambda row: " ".join(str(row[f"judge_{c}"]) for c in ("tp", "fp", "fn", "tn")),
    ),
    "avg_at_k": ("avg@k %", number("avg_at_k", 1, 100)),
    "best_of_n": ("best of n %", number("best_of_n", 1, 100)),
    "pass_at": ("pass@1 / 2 / ... %", pass_at),
    "n_attempts": ("attempts", lambda row: str(row["n_attempts"])),
}
ALWAYS = ("method", "seeds", "n", "infra_errors", "labels", "success")
EFFECT = ("difference", "flips", "p", "p_holm", "p_seeds")
TABLES = {
    "main": Table(
        title="Main table", experiment="main_table", columns=(*ALWAYS, *EFFECT, "steps", "tokens", "published")
    ),
    "learning": Table(
        title="Does it learn?",
        experiment="main_table",
        columns=(*ALWAYS, "late_early", "gain", "lessons", "hit_rate", "steps_won", "steps_lost", "agreement", "kappa"),
    ),
    "cost": Table(
        title="What it costs",
        experiment="main_table",
        columns=(*ALWAYS, "steps", "tokens", "tokens_per_success", "cost", "cost_per_success"),
    ),
    "types": Table(title="Success by task type, %", experiment="main_table", columns=(*ALWAYS, "types")),
    "matts_scaling": Table(
        title="MaTTS, parallel",
        experiment="matts_scaling",
        baseline="matts_parallel k=1",
        columns=(*ALWAYS, "avg_at_k", "pass_at", *EFFECT, "tokens"),
    ),
    "matts_scaling_sequential": Table(
        title="MaTTS, sequential",
        experiment="matts_scaling_sequential",
        baseline="matts_sequential r=0",
        columns=(*ALWAYS, *EFFECT, "tokens"),
    ),
    "pass_at_k": Table(
        title="Pass@k",
        experiment="pass_at_k",
        baseline="matts_parallel_no_memory",
        columns=(*ALWAYS, "n_attempts", "avg_at_k", "best_of_n", "pass_at"),
    ),
    "top_k": Table(
        title="Experiences retrieved", experiment="top_k", baseline="top_k=1", columns=(*ALWAYS, *EFFECT, "tokens")
    ),
    "learn_from": Table(
        title="Lessons from successes, or from failures too",
        experiment="learn_from",
        columns=(*ALWAYS, *EFFECT, "lessons", "published"),
    ),
    "judge": Table(
        title="Labels of the judge, or of the environment",
        experiment="judge",
        baseline="judge=llm",
        columns=(*ALWAYS, *EFFECT, "judge_n", "agreement", "kappa", "confusion"),
    ),
    "retrieval": Table(
        title="Retrieval policies",
        experiment="retrieval",
        baseline="retrieval=cosine",
        columns=(*ALWAYS, *EFFECT, "hit_rate"),
    ),
    "all": Table(title="Every run", columns=(*ALWAYS, *EFFECT, "steps", "tokens")),
}


def wanted(experiment: str, command: str) -> Iterator[dict[str, str]]:
    """The cells that an experiment makes, by swept key. What a run's command narrowed is narrowed."""
    import yaml

    text = (EXPERIMENTS / f"{experiment}.yaml").read_text(encoding="utf-8")
    params = yaml.safe_load(text)["hydra"]["sweeper"]["params"]
    typed = dict(word.split("=", 1) for word in shlex.split(command) if "=" in word)
    choices = [swept(key, str(typed.get(key, values))) for key, values in params.items()]
    for combination in itertools.product(*choices):
        yield dict(zip(params, combination, strict=True))


def swept(key: str, values: str) -> list[str]:
    """The values of a sweep in Hydra's grammar: "1,2", "range(0,3)", or the only one."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    override = OverridesParser.create().parse_override(f"{key}={values}")
    if override.is_sweep_override():
        return [text.replace("'", "") for text in override.sweep_string_iterator()]
    return [override.get_value_element_as_str()]


def is_cell(row: dict[str, Any], cell: dict[str, str]) -> bool:
    """Whether a row (of cells or of runs) is a wanted cell, as far as it has its columns."""
    columns = {COLUMN.get(key, key): value for key, value in cell.items()}
    return all(short(row[column]) == value for column, value in columns.items() if column in row)


def fill(experiment: str, command: str, cell: dict[str, str]) -> str:
    """The command for one cell, with all else as the given run had it."""
    words = [
        word for word in shlex.split(command) if word.split("=")[0] not in (*cell, "experiment", "-m", "--multirun")
    ]
    return shlex.join(["python", "main.py", f"experiment={experiment}", *words, *(f"{k}={v}" for k, v in cell.items())])


def experiment_of(command: str) -> str:
    """The experiment that a command names, or ""."""
    return dict(word.split("=", 1) for word in shlex.split(command) if "=" in word).get("experiment", "")


def gaps(experiment: str, runs: pd.DataFrame) -> list[str]:
    """The commands for the cells of an experiment that have no finished run. runs: one row a run of one block."""
    commands: list[str] = []
    for command in dict.fromkeys(runs["command"]):
        for cell in wanted(experiment, command) if experiment and experiment_of(command) == experiment else ():
            done = [row for row in runs.to_dict("records") if row["complete"] and is_cell(row, cell)]
            if not done and (text := fill(experiment, command, cell)) not in commands:
                commands.append(text)
    return commands
