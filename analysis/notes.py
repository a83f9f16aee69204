"""The notes below a table, which its reader must know beside the numbers. Each function returns lines, mostly none.

On cells: infra errors, duplicate seeds, seeds and tasks without a partner in the baseline. On runs: those that did not
finish, different code or data, and settings that let a task see other lessons than those of its own run.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from analysis.verdict import ALIKE, OUTCOME_WORDS, VERDICTS, comparison_outcome, over_types, reason, unended
from core.run.keys import NOTED
from core.setting import SOURCES

if TYPE_CHECKING:
    import pandas as pd

Rows = list[dict[str, Any]]
NOT_GRADED = "its success is not known: the environment did not evaluate; evaluate what its runs left."
TAMPERED = "{n_tampered} attempts were tampered: they forged their result, and count as failures."
REPEATED = (
    "its {n_seeds} seeds hold only {n_distinct_seeds} different sets of attempts; seeds that repeat another attempt "
    "for attempt count once in interval and p."
)
NO_VOTE = "no two attempts gave the same answer in {n_no_vote} of {n} episodes: there the first one counts, by no vote."
LIMITS = {"length": "replies cut off"}  # words for a limit (core.run.metrics.limit_of) where its name is none
MOST_UNREAD = 0.05  # share of unreadable verdicts, which count as failure, up to which a cell does not tell
MOST_BASELINES = 6  # possible baselines that a note proposes
MOST_SEEDS = 10  # seeds that a note lists
MOST_VALUES = 3  # values that a note lists for one arm and key: memory.path may have one for each seed
MOST_KEYS = 6  # differing configuration keys that a note names


def qualified(text: str, rows: Rows, *, counts: bool = True) -> str:
    """A sentence or a title on some cells, followed by all that it rests on. Every claim is written by this function.

    That is whose labels the cells learn from, which models judge, select and distil where they are not the agent's, and
    settings that let a task see other lessons. What holds for all cells that learn is said without their names.

    counts   also how often the labels are right, and what limits the numbers of each cell
    """
    held: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for fact in _made_with(row, counts):
            held[fact].append(row["label"])
    learners = {row["label"] for row in rows if row["label_source"] != "none"} or {row["label"] for row in rows}
    facts = [fact for fact, names in held.items() if learners <= {*names}]
    facts += [f"{', '.join(dict.fromkeys(names))}: {fact}" for fact, names in held.items() if not learners <= {*names}]
    facts += [fact for row in rows if counts for fact in _compared(row)]
    facts += [f"{row['label']}: {', and '.join(said)}" for row in rows if counts and (said := [*_counted(row)])]
    told = [f"with {'; '.join(facts)}"] if facts else []
    return "; ".join(filter(None, (text.removesuffix("."), *told))) + ("." if text.endswith(".") else "")


def _made_with(row: dict[str, Any], counts: bool) -> Iterator[str]:
    """Whose labels, which models and which settings are behind a cell."""
    if row["label_source"] != "none":
        yield f"labels {labels(row) if counts else row['label_source']}"
    roles: dict[str, list[str]] = defaultdict(list)
    for role, models in row["helpers"].items():
        roles[", ".join(models)].append(role)
    yield from (f"{' and '.join(mine)} {model}" for model, mine in roles.items())
    for key, values in row["noted"].items():
        if key == "memory.path":
            yield "a given bank"  # a note names it
        elif key != "memory.namespace":
            yield f"{key}={', '.join(values)}"


def _compared(row: dict[str, Any]) -> Iterator[str]:
    """What stands beside the difference of a cell to its baseline."""
    if row.get("times_tokens") is not None:
        yield f"{row['times_tokens']:.1f} x the baseline's tokens"
    if row.get("answered_difference") is not None:
        pairs = f"the {row['answered_pairs']:.0f} pairs that both answered"
        yield f"{100 * row['answered_difference']:+.1f} points over {pairs}"


def _counted(row: dict[str, Any]) -> Iterator[str]:
    """What limits the numbers of a cell."""
    if row.get("seeds_missing"):
        yield f"{row['n_seeds']} of {row['n_asked']} seeds"
    if said := _broke(row):
        yield said
    if row["n_unstated"]:
        yield f"no answer stated in {share(row['n_unstated'], row['n'])}"
    if row["limits"]:
        yield f"ended by limit {limits(row)}"
    yield from learned(row)
    yield from (f"{n} calls answered by the fallback {name}" for name, n in row["fallbacks"].items())
    if row["n_tampered"]:
        yield f"{row['n_tampered']} attempts tampered with their result"


def labels(row: dict[str, Any]) -> str:
    """The source of the learner's labels and, where the judge is wrong, how often it is right."""
    wrong = row["judge_n"] and row["judge_agreement"] < 1
    return row["label_source"] + (f", {100 * row['judge_agreement']:.1f} % right" if wrong else "")


def learned(row: dict[str, Any]) -> Iterator[str]:
    """That a cell learned nothing although it labels its attempts, and what of judge and distiller was lost."""
    if row["label_source"] != "none" and not row["n_lessons"]:
        yield "no lesson learned" + (f": {row['n_dropped']} dropped" if row["n_dropped"] else "")
    if row["n_unread"] > row["n"] * MOST_UNREAD:
        yield f"verdicts not readable in {share(row['n_unread'], row['n'])}"
    if row["n_distillations_cut"]:
        yield f"distillations cut off {row['n_distillations_cut']}"


def share(count: int, n: int) -> str:
    """A count of episodes, and which share of n it is."""
    return f"{count} ({100 * count / n:.1f} %)" if count else "0"


def limits(row: dict[str, Any]) -> str:
    """How many episodes of a cell ended at a limit, and at which."""
    which = kinds_of_limits(row["limits"])
    return share(sum(row["limits"].values()), row["n"]) + (f": {which}" if which else "")


def kinds_of_limits(counts: dict[str, int]) -> str:
    """How many attempts ended at each limit."""
    return ", ".join(f"{n} {LIMITS.get(limit, limit).replace('_', ' ')}" for limit, n in sorted(counts.items()))


def not_answered(rows: Rows) -> list[str]:
    """For each compared cell that left another share without an answer than its baseline: what that does to the
    difference."""
    by_cell, lines = {row["cell"]: row for row in rows}, []
    for row in rows:
        base = by_cell.get(row.get("base"), row)
        if row.get("answered_pairs") is None or row["n_unanswered"] * base["n"] == base["n_unanswered"] * row["n"]:
            continue
        ours, theirs = (share(each["n_unanswered"], each["n"]) for each in (row, base))
        both, least, most, lenient = (
            "-" if (value := row[f"answered_{name}"]) is None else f"{100 * value:+.1f}"
            for name in ("difference", "least", "most", "lenient")
        )
        lines.append(
            f"{row['label']}: {ours} of its episodes state no answer or ended at a limit, {theirs} of the baseline's: "
            "format and limits are a part of its difference. "
            f"Over the {row['answered_pairs']:.0f} pairs that both answered it is {both} points; had the others been "
            f"solved it would lie between {least} and {most}; read leniently it is {lenient}."
        )
    return lines


def missing_seeds(rows: Rows) -> list[str]:
    """For each cell of which the table lacks seeds that its sweep has."""
    return [
        f"{row['label']}: {row['n_asked'] - len(lacking)} of the {row['n_asked']} seeds of its sweep are here, without "
        f"{', '.join(map(str, lacking[:MOST_SEEDS]))}{', ...' if len(lacking) > MOST_SEEDS else ''}: who chooses among "
        "seeds chooses the result."
        for row in rows
        if (lacking := row.get("seeds_missing"))
    ]


def twins(used: pd.DataFrame, block: Iterable[str]) -> list[str]:
    """For each set of tasks that something is learned from: how many are nearly the same as another one."""
    lines = [
        f"{env}: {said}, so that a lesson may hold another task's answer."
        for (env, *_), group in used.groupby([*block], sort=False)
        if (group["label_source"] != "none").any()
        for said in group["twins"].unique()
        if said
    ]
    return list(dict.fromkeys(lines))


def broken(rows: Sequence[dict[str, Any]]) -> list[str]:
    """For each cell in which something broke: what, and the bounds of its rates had all of it failed, or succeeded."""
    lines = []
    for row in rows:
        if said := _broke(row):
            failed, solved = (points(row[name]) for name in ("if_errors_failed", "if_errors_solved"))
            lines.append(
                f"{row['label']}: {said}; the 95 % interval would be {failed} had all of them failed, {solved} had all "
                f"of them succeeded{_attempts_between(row)}."
                + " Its command tries them again; nothing was learned there."
                * bool(row["n_infra_error"])
            )
    if len({row["n_unsure"] for row in rows}) > 1:
        counts = ", ".join(f"{row['label']} {row['n_unsure']}" for row in rows)
        lines.append(f"broken tasks differ between the arms, which can make one look better: {counts}.")
    return lines


def _broke(row: dict[str, Any]) -> str:
    """What broke in a cell: episodes, attempts of episodes that count, first tries; "" for nothing."""
    episodes, attempts, again = (row[name] for name in ("n_infra_error", "n_broken_attempts", "n_retried"))
    within = row["n_with_broken_attempts"]
    return ", ".join(
        [f"{episodes} of {row['n'] + episodes} episodes broke"] * bool(episodes)
        + [f"{attempts} attempts broke in {within} episodes that count"] * bool(attempts)
        + [f"{again} tasks broke and were tried again at the stream's end, with the whole bank"] * bool(again)
    )


def _attempts_between(row: dict[str, Any]) -> str:
    """The bounds of avg@k, pass@k and best of n, as words that follow those of the rate."""
    low, high = row["attempts_if_failed"], row["attempts_if_solved"]
    if low is None or high is None:
        return ""
    curve = {f"pass@{k}": ends for k, ends in enumerate(zip(low["pass_at"], high["pass_at"], strict=True), 1)}
    rates = (
        {"avg@k": (low["avg_at_k"], high["avg_at_k"])} | curve | {"best of n": (low["best_of_n"], high["best_of_n"])}
    )
    return "; " + ", ".join(f"{name} {100 * ends[0]:.1f} to {100 * ends[1]:.1f} %" for name, ends in rates.items())


def verdicts(rows: Rows) -> list[str]:
    """For each compared cell: why a difference that looks like one has no verdict; whether one holds over types."""
    base_partial = {row["cell"]: unended(row) for row in rows}
    lines = []
    for row in rows:
        if row["difference"] is None:
            continue
        row |= {"base_partial": base_partial[row["base"]]}
        outcome = comparison_outcome(row)
        if row["alike"] > ALIKE:
            lines.append(
                f"{row['label']}: no verdict: {100 * row['alike']:.0f} % of its or the baseline's episodes are word "
                "for word those of another seed, so the seeds are largely one and share the luck of its bank."
            )
        if why := reason(row):
            lines.append(f"{row['label']}: {OUTCOME_WORDS[outcome]}: {why}.")
        if outcome in VERDICTS and over_types(row) and not _holds_over_types(row):
            lines.append(
                f"{row['label']}: {outcome} {row['scope']}; not shown for other types of task: {over_types(row)}."
            )
    return lines


def _holds_over_types(row: dict[str, Any]) -> bool:
    """Whether the interval of the difference over types is wholly on the side of the difference itself."""
    ends = (row["over_types_low"], row["over_types_high"])
    return min(ends) > 0 if row["difference"] > 0 else max(ends) < 0


def points(ends: tuple[float, float]) -> str:
    """An interval of rates as text, in percentage points."""
    return f"[{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]"


def of_cells(rows: Rows) -> list[str]:
    """For each cell: graded elsewhere, forged results, majorities that were none, seeds that repeat each other."""
    lines = []
    for row in rows:
        said = [NOT_GRADED] * (not row["evaluated"]) + [TAMPERED] * bool(row["n_tampered"])
        said += [NO_VOTE] * bool(row["n_no_vote"])
        said += [REPEATED] * (row["n_distinct_seeds"] < row["n_seeds"])
        lines += [f"{row['label']}: {text.format(**row)}" for text in said]
    return lines


def fallbacks(rows: Rows) -> list[str]:
    """For each cell in which a fallback model answered calls."""
    return [
        f"{row['label']}: {count} of {row['n_calls']} calls were answered by a fallback: {name}."
        for row in rows
        for name, count in row["fallbacks"].items()
    ]


def one_bank(rows: Rows) -> list[str]:
    """For each cell of which some seeds began from the same given bank."""
    lines = []
    for row in rows:
        if n := row["n_shared_banks"]:
            banks = "one given bank" if n == 1 else f"{n} given banks"
            banks = f"copies of {n} bank{'s' * (n > 1)}" if row["n_bank_names"] > n else banks
            lines.append(f"{row['label']}: all seeds began from {banks}: p and intervals say nothing of other banks.")
    return lines


def no_baseline(block: tuple[str, ...], baseline: str, candidates: Rows, group: Rows, command: str) -> list[str]:
    """Why a block is not compared, and for each possible baseline the whole command that would compare with it.

    candidates   the cells of the block that match the baseline asked for: none, several or an unfinished one
    group        all cells of the block
    command      the command that made the table; the proposals add `--baseline LABEL` to it
    """
    several = len(candidates) > 1
    why = f"{len(candidates)} cells are the baseline" if several else "no finished run of the baseline"
    finished = [row["label"] for row in (candidates if several else group) if row["n"]]
    choices = [f"{command} --baseline {shlex.quote(label)}".strip() for label in finished[:MOST_BASELINES]]
    line = f"{block[0]}, {block[1]}: {why} {baseline}, so nothing is compared." + " Choose one:" * bool(choices)
    return [line, *(f"compare with it: {choice}" for choice in choices)]


def without_partner(label: str, mine: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """Lists seeds that only one of a cell and its baseline has, and counts pairs with an infra error on either side."""
    lines = []
    seeds = [set(cell["seed"]) for cell in (mine, other)]
    shared = seeds[0] & seeds[1]
    if seeds[0] != seeds[1]:
        has, base, both = (", ".join(map(str, sorted(each))) or "none" for each in (*seeds, shared))
        lines.append(
            f"{label} has seeds {has}, its baseline {base}: the difference is over the shared ones ({both}), "
            "the rates are not."
        )
    keys = ["task_id", "visit", "seed"]
    pairs = mine[[*keys, "success"]].merge(other[[*keys, "success"]], on=keys, how="outer", suffixes=("", "_base"))
    pairs = pairs[pairs["seed"].isin(shared)]
    if lost := len(pairs) - len(pairs.dropna()):
        why = "because an episode of the two broke or is missing: the difference is without them, the rates are not"
        lines.append(f"{label}: {lost} of {len(pairs)} pairs with its baseline are lost, {why}.")
    return lines


def other_settings(label: str, mine: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """Lists the settings beside the arm's own keys (core.run.keys.ARM_KEYS) in which a cell and its baseline differ."""
    ours, theirs = (json.loads(cell["settings"].iloc[0]) for cell in (mine, other))
    keys = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    differing = [f"{key} {ours.get(key, '–')}, baseline {theirs.get(key, '–')}" for key in keys[:MOST_KEYS]]
    more = f"; and {len(keys) - MOST_KEYS} more" if len(keys) > MOST_KEYS else ""
    return [f"{label} differs from its baseline beside the arm: {'; '.join(differing)}{more}."] if keys else []


def unfinished(used: pd.DataFrame, partial: bool) -> list[str]:
    """For each unfinished run of a cell: whether it is left out, or with `partial` counted as far as it goes."""
    fate, lines = "counted as far as it goes" if partial else "left out", []
    for run in used[~used["complete"]].drop_duplicates("run_dir").itertuples():
        done = int((used[used["run_dir"] == run.run_dir]["index"] >= 0).sum())
        lines.append(f"{run.run_dir} stopped after {done} of {run.n_tasks * run.passes} tasks: {fate}.")
    return lines


def left_out(runs: pd.DataFrame) -> list[str]:
    """For each of these runs (one row each): left out, because another run of the same cell and seed counts."""
    return [f"{run.run_dir} is left out: another run of {run.arm}, seed {run.seed}." for run in runs.itertuples()]


def different_data(used: pd.DataFrame, block: Iterable[str]) -> list[str]:
    """Warns if runs of one block and seed have different task data."""
    runs, lines = used.drop_duplicates("run_dir"), []
    for (env, *_), group in runs.groupby([*block, "seed"], sort=False):
        if group["data"].nunique() > 1:
            lines.append(f"{env}: the data of these tasks is not the same in {', '.join(sorted(set(group['arm'])))}.")
    return list(dict.fromkeys(lines))


def non_default_memory_settings(config: dict[str, Any]) -> dict[str, str]:
    """{key: value} of the NOTED that a run's configuration sets otherwise than by default.

    With a given bank (memory.path) its namespace is there even if it is the default.
    """
    values = {
        key: (config.get(key.split(".")[0]) or {}).get(key.split(".")[1], default) for key, default in NOTED.items()
    }
    given = values["memory.path"] is not None
    return {
        key: str(value)
        for key, value in values.items()
        if value != NOTED[key] or (given and key == "memory.namespace" and value is not None)
    }


FROM_OUTSIDE = (
    " The label {} is of no judge here: whoever sent those lessons said how the attempts ended, and may have known it."
)


def memory_settings_notes(used: pd.DataFrame) -> list[str]:
    """A line for each arm and each of its non-default NOTED, with the values over the arm's runs."""
    runs, lines = used.drop_duplicates("run_dir"), []
    for arm, group in runs.groupby("arm", sort=False):
        for key in NOTED:
            settings = zip(map(json.loads, group["knobs"]), group["label_source"])
            rows = [(each, labels) for each, labels in settings if key in each]
            values = list(dict.fromkeys(each[key] for each, _ in rows))
            if not values:
                continue
            some = "" if len(rows) == len(group) else f" in {len(rows)} of its {len(group)} runs"
            more = f" and {len(values) - MOST_VALUES} more" if len(values) > MOST_VALUES else ""
            labels = ""
            if key in ("memory.path", "setting.allow_oracle_bank"):
                labels = f" (labels: {', '.join(dict.fromkeys(labels for _, labels in rows))})"
            given = {each for _, text in rows for each in text.split("+")} - SOURCES if key == "memory.path" else ()
            meaning = "".join(map(FROM_OUTSIDE.format, sorted(given)))
            lines.append(f"{arm}: {key}={', '.join(values[:MOST_VALUES])}{more}{some}{labels}.{meaning}")
    return lines
