"""The columns of the tables: the heading of each, and a function that formats a row's value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from analysis.funnel_steps import STEPS
from analysis.notes import labels, limits, share
from analysis.published import comparable

Format = Callable[[dict[str, Any]], str]
Column = tuple[str, Format]  # its heading, and how a row's value in it is written


def plain(column: str, write: Callable[[Any], str] = str) -> Format:
    """Format a value with `write`; "-" if it is None."""
    return lambda row: "-" if row.get(column) is None else write(row[column])


def number(column: str, digits: int = 1, scale: float = 1.0, sign: str = "") -> Format:
    return plain(column, lambda value: f"{value * scale:{sign},.{digits}f}")


def interval(column: str, low: str, high: str, sign: str = "") -> Format:
    """Format a rate in percentage points, followed by its interval."""

    def points(value: float) -> str:
        return f"{round(100 * value, 1) + 0.0:{sign}.1f}"  # a difference of nothing is +0.0, not -0.0

    def show(row: dict[str, Any]) -> str:
        if row.get(column) is None:
            return "-"
        ends = "" if row.get(low) is None else f" [{points(row[low])}, {points(row[high])}]"
        return f"{points(row[column])}{ends}"

    return show


def success(row: dict[str, Any]) -> str:
    if not row["n"]:
        return "partial" if row["n_partial"] else "-"
    return interval("success", "low", "high")(row) + (" *" if row["partial"] else "")


def broken(row: dict[str, Any]) -> str:
    """What broke: episodes, and attempts of episodes that count."""
    n, attempts = row["n_infra_error"], row["n_broken_attempts"]
    return f"{n} + {attempts} attempt{'s' * (attempts != 1)}" if attempts else str(n or "none")


def p_value(column: str) -> Format:
    return plain(column, lambda p: "<0.001" if p < 0.001 else f"{p:.3f}")


def seeds(row: dict[str, Any]) -> str:
    """How many seeds are shown, and of how many where the sweep has others; those that did not finish."""
    asked = f" of {row['n_asked']}" if row.get("seeds_missing") else ""
    partial = f" (+{row['n_partial']} partial)" if row["n_partial"] and not row["partial"] else ""
    return f"{row['n_seeds']}{asked}{partial}"


def lessons_at(step: str) -> Format:
    """Format "N of M (K ?)": tasks at a step of the funnel, at the step before it, and K for which it is unknown."""
    before, unknown = STEPS[step][1], UNKNOWN.get(step)

    def show(row: dict[str, Any]) -> str:
        if not row["tasks_shown"]:
            return "-"
        not_known = row[f"tasks_{unknown}"] if unknown else 0
        return f"{row[f'tasks_{step}']} of {row[f'tasks_{before}']}" + (f" ({not_known} ?)" if not_known else "")

    return show


def of_type(kind: str) -> Column:
    """The success rate on the tasks of one type."""
    show = number("rate", 1, 100)
    return kind, lambda row: show({"rate": row["by_type"].get(kind)})


def of_measure(name: str, kind: str) -> Column:
    """What an env measured beside success. kind: macro, the mean over tasks of each one's mean | micro, over all."""
    show = number("value", 1, 100)
    return f"{name.replace('_', ' ')}, {kind} %", lambda row: show({"value": row["measures"].get(name, {}).get(kind)})


UNKNOWN = {"relevant": "kind_unknown", "followed": "followed_unknown"}
HEADINGS: dict[str, Column] = {
    "method": ("method", plain("label")),
    "seeds": ("seeds", seeds),
    "n": ("n", plain("n")),
    "infra_errors": ("broken", broken),
    "labels": ("labels", labels),
    "success": ("success % [95 %]", success),
    "unstated": ("no answer stated", lambda row: share(row["n_unstated"], row["n"])),
    "limits": ("ended by limit", limits),
    "lenient": ("success, read leniently %", number("lenient", 1, 100)),
    "sd": ("sd over seeds", number("sd", 1, 100)),
    "difference": ("difference [95 %]", interval("difference", "difference_low", "difference_high", "+")),
    "times_tokens": ("tokens x baseline", number("times_tokens", 1)),
    "answered": (
        "difference, both answered [95 %]",
        interval("answered_difference", "answered_low", "answered_high", "+"),
    ),
    "n_pairs": ("pairs", number("n_pairs", 0)),
    "flips": ("won / lost", lambda row: "-" if row.get("won") is None else f"{row['won']:.0f} / {row['lost']:.0f}"),
    "p": ("p", p_value("p")),
    "p_tasks": ("p by tasks", p_value("p_tasks")),
    "sd_seeds": ("sd by seeds", number("sd_seeds", 1, 100)),
    "p_holm": ("p (Holm)", p_value("p_holm")),
    "n_types": ("types", number("n_types", 0)),
    "over_types": (
        "difference, each type once [95 %]",
        interval("over_types", "over_types_low", "over_types_high", "+"),
    ),
    "reward": ("mean reward", number("reward", 3)),
    "steps": ("steps", number("steps", 1)),
    "steps_won": ("steps, won", number("steps_won", 1)),
    "steps_lost": ("steps, lost", number("steps_lost", 1)),
    "tokens": ("tokens / task", number("tokens", 0)),
    "tokens_memory": ("of these the memory's", number("tokens_memory", 0)),
    "tokens_per_success": ("tokens / success", number("tokens_per_success", 0)),
    "cost": ("USD / task", number("cost", 5)),
    "cost_per_success": ("USD / success", number("cost_per_success", 5)),
    "lessons": ("lessons / 100 tasks", number("lessons_per_100", 1)),
    "lessons_shown": ("lessons shown / task", number("lessons_shown", 2)),
    "lesson_tokens": ("their tokens / task", number("lesson_tokens", 0)),
    "lessons_at": ("tokens before them", number("lessons_at", 0)),
    "validation_tokens": ("tokens of validation / task", number("tokens_validation", 0)),
    "hit_rate": ("retrieval hit %", number("hit_rate", 1, 100)),
    "shown": ("retrieved", lessons_at("shown")),
    "relevant": ("relevant", lessons_at("relevant")),
    "followed": ("followed", lessons_at("followed")),
    "solved": (
        "solved",
        lambda row: "{followed_won} of {tasks_followed}".format(**row) if row["tasks_followed"] else "-",
    ),
    "late_early": ("late - early [95 %]", interval("late_early", "late_early_low", "late_early_high", "+")),
    "gain": ("difference, late - early", interval("gain", "gain_low", "gain_high", "+")),
    "judge_n": ("judged", plain("judge_n")),
    "agreement": ("agreement %", number("judge_agreement", 1, 100)),
    "kappa": ("kappa", number("judge_kappa", 2)),
    "n_rated": ("with confidence", plain("judge_n_rated")),
    "brier": ("Brier", number("judge_brier", 3)),
    "ece": ("ECE", number("judge_ece", 3)),
    "confusion": ("true+ false+ false- true-", lambda row: "{judge_tp} {judge_fp} {judge_fn} {judge_tn}".format(**row)),
    "avg_at_k": ("avg@k %", number("avg_at_k", 1, 100)),
    "best_of_n": ("best of n %", number("best_of_n", 1, 100)),
    "pass_at": ("pass@1 / 2 / ... %", plain("pass_at", lambda curve: " / ".join(f"{100 * p:.1f}" for p in curve))),
    "n_attempts": ("attempts", plain("n_attempts")),
    "published": ("published", comparable),
}
