"""What a study's numbers say, in sentences that claim no more than the numbers do."""

from __future__ import annotations

from typing import Any

from core.report.study import Study

LEVEL = 0.05  # of Holm's p over the table, under which a difference is called one


def headline(study: Study) -> str:
    """One sentence with the rates; no arm is picked out because it came out best."""
    known = [cell for cell in study.cells if cell["success"] is not None]
    if not known:
        return f"No run on {study.env} has finished"
    if len(known) == 1:
        return f"{known[0]['label']} solved {percent(known[0]['success'])} of the {study.env} tasks"
    if len(known) == 2 and known[0]["baseline"]:
        rates = f"{known[1]['label']} solved {percent(known[1]['success'])} of the {study.env} tasks"
        return f"{rates}, {known[0]['label']} {percent(known[0]['success'])}"
    low, high = (pick(known, key=lambda cell: cell["success"]) for pick in (min, max))
    rates = f"from {percent(low['success'])} ({low['label']}) to {percent(high['success'])} ({high['label']})"
    return f"{len(known)} arms on {study.env}: success {rates}"


def differences(study: Study) -> list[str]:
    """One line for each arm that was compared with the baseline."""
    base = next((cell for cell in study.cells if cell["baseline"]), None)
    compared = [cell for cell in study.cells if cell.get("difference") is not None]
    return [difference(cell, base["label"], len(compared)) for cell in compared if base]


def difference(cell: dict[str, Any], base: str, n_compared: int) -> str:
    """The paired difference with its interval, the flips behind it and its tests."""
    shown = cell["p_holm"] is not None and cell["p_holm"] < LEVEL
    word = ("better" if cell["difference"] > 0 else "worse") if shown else "no difference shown"
    interval = (
        "no interval, since every pair differs by the same"
        if cell["difference_low"] is None
        else f"95 % interval {points(cell['difference_low'])} to {points(cell['difference_high'])}"
    )
    tests = f"exact paired test over tasks {p_value(cell['p'])}"
    if n_compared > 1:
        tests += f", {p_value(cell['p_holm'])} after Holm's correction for {n_compared} comparisons"
    if cell["p_seeds"] is not None:
        tests += f"; over the {cell['n_seeds']} seeds alone {p_value(cell['p_seeds'])}"
    pairs = f"{cell['n_pairs']:.0f} pairs of the same task and seed, {cell['won']:.0f} gained and {cell['lost']:.0f} lost"
    return (
        f"{cell['label']} against {base}: {word}. {points(cell['difference'])} percentage points "
        f"({interval}) on {pairs}; {tests}."
    )


def warnings(study: Study, notes: list[str]) -> list[str]:
    """What a reader must know before believing the headline."""
    found = []
    counted = [cell for cell in study.cells if cell["n"]]
    if unfinished := [cell["label"] for cell in study.cells if not cell["complete"]]:
        some = any(cell["partial"] for cell in study.cells)
        fate = "counted as far as they go" if some else "not counted (--partial counts them)"
        found.append(f"Partial: runs of {', '.join(unfinished)} have not finished and are {fate}.")
    if errors := sum(cell["n_err"] for cell in counted):
        plural = "episode" if errors == 1 else "episodes"
        found.append(f"{errors} {plural} broke (infra error): in no rate and no comparison, and nothing was learned there.")
    if counted and max(cell["n_seeds"] for cell in counted) == 1:
        found.append("One seed: another order or another sample may come out otherwise, and no test here allows for that.")
    if any(cell["setting"] == "train" or "oracle" in str(cell["label_source"]) for cell in counted):
        found.append("The learner saw the environment's labels (oracle): these rates are not those of test time.")
    places = tuple(str(run) for run in study.frame["run_dir"].unique())
    return found + [note for note in notes if not places or any(place in note for place in places) or "baseline" in note]


def legend(study: Study) -> str:
    """How the intervals in the picture were made, and on what."""
    kinds = "Wilson's interval for one seed, a bootstrap over tasks for several"
    sources = sorted({str(cell["label_source"]) for cell in study.cells if cell["n"]} - {"none"})
    labels = f"; the learner's labels: {', '.join(sources)}" if sources else ""
    return f"Success rate and 95 % interval ({kinds}); infra errors are in no rate{labels}."


def percent(value: float | None) -> str:
    """A rate as it is printed."""
    return "–" if value is None else f"{100 * value:.1f} %"


def points(value: float) -> str:
    """A difference of rates in percentage points, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def p_value(value: float | None) -> str:
    """A p-value as it is printed."""
    if value is None:
        return "p –"
    return "p < 0.0001" if value < 0.0001 else f"p = {value:.4f}" if value < 0.1 else f"p = {value:.2f}"
