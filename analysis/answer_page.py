"""The answer of a study as a screen for a terminal, with the commands to try next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.checksum import read_whole
from core.errors import UserError
from core.run.arms import key_of


def page(folder: Path, found: dict[str, Any]) -> list[str]:
    """The answer of a folder as lines for a terminal: one screen."""
    lines = [found["sentence"], ""]
    effect = found["question"]["design"]["effect"]
    lines += _look_lines(found["looks"], effect)
    if found.get("content"):
        lines += ["", f"  against {found['question']['control']}:", *_look_lines(found["content"], effect)]
    if equal := found.get("same_cost"):
        lines += [
            "",
            f"  against {equal['k']} attempts without memory and the answer that most of them gave (two or more in "
            f"{100 * equal['agreed']:.0f} % of the tasks, else the first){_at_tokens(equal['tokens'])}: "
            f"{100 * equal['difference']:+.1f} points "
            f"({100 * equal['low']:+.1f} to {100 * equal['high']:+.1f}, p = {equal['p']:.3g})",
        ]
    lines += _cost_line(found["costs"])
    if any(each["why"] != "not run" for each in found["ladder"]):
        lines += ["", "which link breaks: " + (found["breaks"] or "none was shown to")]
        lines += [_rung(each) for each in found["ladder"] if each["why"] != "not run"]
    for head, words in (
        ("to try next:", commands(folder, found)),
        ("not tested:", found["not_tested"]),
    ):
        lines += ["", head, *(f"  {word}" for word in words)] if words else []
    return lines


def _at_tokens(times: dict[str, float] | None) -> str:
    if times is None:
        return ""
    return f", at {times['same_cost']:.1f} times the baseline's tokens (the arm: {times['arm']:.1f})"


def _look_lines(looks: list[dict[str, Any]], effect: float) -> list[str]:
    """A line for each look with a test. effect: the planned one, on which the chance of a later answer depends."""
    lines = []
    for look in (look for look in looks if look["p"] is not None):
        power = look["conditional_power"] if look["outcome"] in ("go on", "futile") else None
        least = max(effect, abs(look["difference"]))
        rest = "" if power is None else f"   more seeds would show {100 * least:.1f} points in {100 * power:.0f} %"
        lines.append(
            f"  {look['n_seeds']:>2} seeds   {100 * look['difference']:+5.1f} points   "
            f"{100 * look['low']:+6.1f} to {100 * look['high']:+6.1f}   worst seed {100 * look['worst_seed']:+6.1f}   "
            f"p {look['p']:.3g}   {look['outcome']}{rest}"
        )
    return lines


def _cost_line(costs: dict[str, Any]) -> list[str]:
    said = []
    for name, words in (("usd", "{:.4g} USD"), ("tokens", "{:,.0f} tokens")):
        if (per := costs.get(name, {}).get("per_extra_success")) and per > 0:
            said.append(words.format(per))
    return ["", f"a further solved task costs {' or '.join(said)}"] if said else []


def _rung(each: dict[str, Any]) -> str:
    why = f": {each['why']}" if each["why"] else ""
    if each["difference"] is None:
        return f"  {each['link']:<14} {each['answer']:<10}{why.removeprefix(':')}"
    numbers = f"{100 * each['difference']:+.1f} ({100 * each['low']:+.1f} to {100 * each['high']:+.1f})"
    return f"  {each['link']:<14} {each['answer']:<10} {each['arm']} - {each['than']} {numbers}{why}"


def commands(folder: Path, found: dict[str, Any]) -> list[str]:
    """The things to try as commands to paste: this study's own, with one override more and another run_dir.

    A study that its budget ended goes on first, with twice the budget.
    """
    from core.run.launch import again

    try:
        config = read_whole(folder / "multirun.yaml") or {}
        given, limits = config["hydra"]["overrides"], config["budget"]["run"].items()
        words = [word for word in (*given["hydra"], *given["task"]) if key_of(word) not in ("hydra.mode", "run_dir")]
        doubled = [f"budget.run.{key}={2 * limit:g}" for key, limit in limits if limit is not None]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, UserError):
        return found["try"]  # its command is not known
    looks = [*found["looks"], *found.get("content", ())]  # of the last comparison that was begun
    goes_on = looks and looks[-1]["outcome"] == "go on"
    more = [again(folder, _with(words, doubled))] if goes_on and doubled else []
    return more + [
        again(folder.with_name(f"{folder.name}-{n}"), _with(words, [word])) for n, word in enumerate(found["try"], 2)
    ]


def _with(words: list[str], more: list[str]) -> list[str]:
    """The words of a command with some more, which take the place of those of the same key."""
    keys = {key_of(word) for word in more}
    return [*(word for word in words if key_of(word) not in keys), *more]
