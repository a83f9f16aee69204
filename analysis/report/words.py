"""What a study's numbers say, in sentences that claim no more than the numbers do."""

from __future__ import annotations

from collections import Counter
from typing import Any

from analysis.cells import BLOCK
from analysis.made_of import cells_differ
from analysis.notes import broken, labels, missing_seeds, not_answered, one_bank, qualified, without_partner
from analysis.reach import findable
from analysis.studies import Study
from analysis.verdict import OUTCOME_WORDS, UNTESTED, VERDICTS, comparison_outcome, over_types, reason, unended
from core.run.display import percent
from core.setting import TRUE_LABELS


def headline(study: Study) -> str:
    """One sentence with the rates, and how many tasks are in none; no arm is picked out because it came out best."""
    broken = sum(cell["n_infra_error"] for cell in study.cells)
    missing = "1 task is" if broken == 1 else f"{broken} tasks are"
    said = _rates(study) + (f" ({missing} broken and in no rate)" if broken else "")
    return qualified(said, study.counted, counts=False)


def _rates(study: Study) -> str:
    known = study.counted
    if not known:
        whys = dict.fromkeys(f"{cell['label']}: {no_rate(cell)}" for cell in study.cells)
        return f"No success rate on {study.env} ({'; '.join(whys)})"
    if len(known) == 1:
        return f"{known[0]['label']} solved {percent(known[0]['success'])} of the {study.env} tasks"
    if len(known) == 2 and known[0]["baseline"]:
        rates = f"{known[1]['label']} solved {percent(known[1]['success'])} of the {study.env} tasks"
        return f"{rates}, {known[0]['label']} {percent(known[0]['success'])}"
    at: dict[float, list[str]] = {}
    for cell in known:
        at.setdefault(cell["success"], []).append(cell["label"])
    if len(at) == 1:
        return f"{len(known)} arms on {study.env}: each solved {percent(known[0]['success'])} of the tasks"
    low, high = (f"{percent(rate)} ({', '.join(at[rate])})" for rate in (min(at), max(at)))
    return f"{len(known)} arms on {study.env}: success from {low} to {high}"


def no_rate(cell: dict[str, Any]) -> str:
    """Why a cell has no success rate."""
    if not cell["evaluated"]:
        return "the environment did not evaluate"
    return "every task broke" if cell["n_infra_error"] else "no finished run"


def differences(study: Study) -> list[dict[str, str]]:
    """For each arm that was compared with the baseline: what to say of it, as texts; see `difference`."""
    base = next((cell for cell in study.cells if cell["baseline"]), None)
    compared = [cell for cell in study.cells if cell.get("difference") is not None]
    compared = [cell | {"base_partial": base is not None and unended(base)} for cell in compared]
    made = [(cell, difference(cell, base["label"])) for cell in compared if base]
    return [said | {"scope": qualified(said["scope"], [row for row in (base, cell) if row])} for cell, said in made]


def difference(cell: dict[str, Any], base: str) -> dict[str, str]:
    """{label, base, points, interval, verdict, scope, flips, tests}: the paired difference and what is behind it.

    scope   what a verdict speaks of, or why a difference that looks like one has none; "" where neither is to be said
    """
    seeds = int(cell["n_paired_seeds"])
    by_chance = "that often chance alone would show so large a difference"
    if cell["p"] is None:
        tests = "no test allows for how another bank would do" + (": one seed" if seeds == 1 else "")
        tests += f"; {p_value(cell['p_tasks'])}: {by_chance} on these tasks, with these banks"
    else:
        tests = f"{p_value(cell['p'])}: {by_chance} over {seeds} seeds"
    if cell["p"] is not None and cell["n_compared"] > 1:
        tests += f"; {p_value(cell['p_holm'])}: the same for the {cell['n_compared']:.0f} comparisons here (Holm)"
    outcome, scope = _verdict(cell)
    if said := over_types(cell):
        tests += f"; {said}"
    return {
        "label": cell["label"],
        "base": base,
        "points": f"{points(cell['difference'])} points",
        "interval": f"95 % interval {points(cell['difference_low'])} to {points(cell['difference_high'])}",
        "verdict": OUTCOME_WORDS[outcome],
        "scope": scope,
        "flips": f"{cell['won']:.0f} gained, {cell['lost']:.0f} lost in {cell['n_pairs']:.0f} pairs of task and seed",
        "tests": tests,
    }


def lessons(found: list[dict[str, Any]], base: str) -> list[str]:
    """What became of the tasks that were shown lessons of the right kind, and of another: rows of analysis.funnel."""
    named = {"relevant": "Lessons of the right kind", "irrelevant": "Lessons of another kind"}
    return [
        f"{named[row['step']]}: {points(row['difference'])} points to {base} on the same tasks (95 % interval "
        f"{points(row['difference_low'])} to {points(row['difference_high'])}): "
        f"{' '.join(filter(None, (OUTCOME_WORDS[outcome], said)))}."
        for row in found
        if row["step"] in named and row.get("difference") is not None
        for outcome, said in [_verdict(row)]
    ]


def _verdict(row: dict[str, Any]) -> tuple[str, str]:
    """(outcome, what it speaks of or, where a difference looks like one and has no verdict, why)."""
    outcome = comparison_outcome(row)
    why = reason(row)
    return outcome, row.get("scope", "") if outcome in VERDICTS else why and f"({why})"


def tally(found: list[dict[str, str]]) -> str:
    """How many arms came out how, of `differences`, where these are too many to be read one by one."""
    counts = Counter(each["verdict"] for each in found)
    return f"Against {found[0]['base']}: " + ", ".join(f"{counts[v]} {v}" for v in OUTCOME_WORDS.values() if counts[v])


def warnings(study: Study) -> list[str]:
    """What a reader must know before believing the headline."""
    found, counted = [], study.counted
    if unfinished := [cell["label"] for cell in study.cells if not cell["complete"]]:
        some = any(cell["partial"] for cell in study.cells)
        fate = "counted as far as they go" if some else "not counted (--partial counts them)"
        found.append(f"Partial: runs of {', '.join(unfinished)} have not finished and are {fate}.")
    found += broken(study.cells) + missing_seeds(counted) + not_answered(counted) + one_bank(counted)
    base = next((study.episodes(cell) for cell in counted if cell["baseline"]), None)
    for cell in counted:
        if base is not None and not cell["baseline"]:
            found += without_partner(cell["label"], study.episodes(cell), base)
    if wrong := [f"{cell['label']} {labels(cell)}" for cell in counted if "%" in labels(cell)]:
        found.append(f"The judge is wrong at times, by the environment's own evaluation: {'; '.join(wrong)}.")
    if counted and max(cell["n_seeds"] for cell in counted) == 1:
        found.append(UNTESTED[:1].upper() + UNTESTED[1:])
    if told := [c["label"] for c in counted if c["setting"] in TRUE_LABELS or "oracle" in str(c["label_source"])]:
        who = "" if len(told) == len(counted) else f" of {', '.join(told)}"
        are = "these rates" if len(told) == len(counted) else "its rates" if len(told) == 1 else "their rates"
        found.append(f"The learner{who} saw the environment's labels (oracle): {are} are not those of test time.")
    if any("answers" in str(cell["label_source"]) for cell in counted):
        found.append("Lessons were made with the reference answers shown: a task may have met its own, reworded.")
    if any("unknown" in str(cell["label_source"]) for cell in counted):
        found.append("A bank was given whose labels are not known (unknown): they may be the environment's.")
    if len(counted) > 1 and not any(cell.get("difference") is not None for cell in counted):
        found.append("Nothing is compared: no finished arm here, or more than one, is the baseline (--baseline ARM).")
    names = {cell["cell"]: cell["label"] for cell in study.cells}
    return found + [line[:1].upper() + line[1:] for line in cells_differ(study.frame, names, BLOCK)]


def legend(study: Study) -> str:
    """How the intervals in the picture were made, and on what."""
    kinds = "Wilson's; with several seeds, the wider the more these differ"
    sources = sorted({str(cell["label_source"]) for cell in study.counted} - {"none"})
    source = f"; the learner's labels: {', '.join(sources)}" if sources else ""
    said = f"Success rate and 95 % interval ({kinds}); broken tasks are in no rate{source}."
    if any(cell.get("difference") is not None for cell in study.cells):
        allowed = "Better and worse hold in the worst case of what broke, too; the test allows for each seed's bank."
        said = " ".join((said, allowed, *findable(list(study.cells))))
    return said


def points(value: float) -> str:
    """A difference of rates in percentage points, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def p_value(value: float | None) -> str:
    """A p-value as it is printed."""
    if value is None:
        return "p –"
    return "p < 0.0001" if value < 0.0001 else f"p = {value:.4f}" if value < 0.1 else f"p = {value:.2f}"
