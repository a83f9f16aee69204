"""The audit of finished runs, from their records alone: the findings of every check, and a grade of the lessons.

A check yields one line for each place where it fails, and raises NotChecked at its end if it could not look at
everything. BROKEN checks test the design's invariants: any finding invalidates the run. (Elsewhere a broken episode is
one with an infra error.) WORTH_A_LOOK checks find facts that a reader of the numbers should know. Neither can prove
that a run is clean: no check finds a paraphrased answer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from analysis import answer_key, forgery, invariants, leaks, twins
from analysis.answer import edited
from analysis.evidence import Check, NotChecked, bank_owners, where
from analysis.lesson_quality import duplicate_lessons, grade, lessons_with_answers
from analysis.made_of import differ, made_of, other_parts
from analysis.notes import kinds_of_limits
from analysis.runs import Run, explaining, read_run
from core.models.reply_text import without_surrogates
from core.run.files import CALLS, changed_files, lines_of
from core.run.keys import changed_leaves
from core.run.manifest import code_of, prompt_digests, prompts_of
from core.run.metrics import VALID, limit_of
from core.run.records import answer_of, outcomes_of


def audit_folder(path: Path) -> tuple[Run, dict[str, Any]]:
    """A run and its audit, which goes on where a file is not as the run left it: all that was changed is told."""
    run = read_run(path, must_be_as_left=False)
    report = audit(run)
    if found := [str(error) for error in changed_files(path, run.summary)]:
        report["broken"] = {"checksums": found} | report["broken"]
    elif "files" not in run.summary:
        report["unchecked"]["checksums"] = "the summary notes no files: the run is going on, or is of version 0.1.0"
    else:
        report["ok"].append("checksums")
    return run, report


def audit(run: Run) -> dict[str, Any]:
    """{run, broken: {check: lines}, look: {check: lines}, ok: [check], unchecked: {check: why}, grade}.

    A check that could not look at everything is in `unchecked`, with the reason, and never in `ok`; its findings until
    then are in `broken` or `look`. Raises UserError if the records lack a field that a check needs.
    """
    report: dict[str, Any] = {"run": str(run.path), "broken": {}, "look": {}, "ok": [], "unchecked": {}}
    with explaining(run.path):
        for kind, checks in (("broken", BROKEN), ("look", WORTH_A_LOOK)):
            for check in checks:
                lines, why = outcome(check(run))
                if lines:
                    report[kind][check.__name__] = lines
                if why:
                    report["unchecked"][check.__name__] = why
                if not lines and not why:
                    report["ok"].append(check.__name__)
        return report | {"grade": grade(run)}


def findings(run: Run, checks: Iterable[Check]) -> dict[str, list[str]]:
    """{check: lines} of these checks alone, without those that find nothing."""
    with explaining(run.path):
        found = {check.__name__: outcome(check(run))[0] for check in checks}
    return {name: lines for name, lines in found.items() if lines}


def outcome(lines: Iterator[str]) -> tuple[list[str], str | None]:
    """(the findings of a check, the reason if it could not look at everything)."""
    found = []
    try:
        for line in lines:
            found.append(without_surrogates(line))
    except NotChecked as reason:
        return found, str(reason)
    return found, None


def together(runs: list[Run]) -> dict[str, list[str]]:
    """Checks across several runs, all of the kind WORTH_A_LOOK: {check: lines}, without checks that found nothing."""
    checks = {"lost_pairs": lost_pairs(runs), "identical_replicates": identical_replicates(runs)}
    checks["made_of_other_things"] = made_of_other_things(runs)
    checks["edited_verdicts"] = edited_verdicts(runs)
    return {name: found for name, lines in checks.items() if (found := list(map(without_surrogates, lines)))}


def unknown_records(run: Run) -> Iterator[str]:
    """Retrieved records that are neither in the episodes nor in a bank that still exists."""
    known = set(bank_owners(run)) | {record["id"] for row in run.rows for record in row["records"]}
    for row in run.rows:
        for hit in row["retrieved"]:
            if hit["id"] not in known:
                yield f"{where(row)}: {hit['id']}"


def other_code(run: Run) -> Iterator[str]:
    """Starts of the run with other code or packages, uncommitted changes, and prompts that have changed since."""
    starts = run.manifest["starts"]
    for start in starts:
        if start["git"]["dirty"]:
            yield f"changed files at {str(start['git']['sha'])[:8]}: {', '.join(start['git']['dirty'][:5])}"
    for before, after in pairwise(starts):
        if (now := code_of(after["git"])) != (then := code_of(before["git"])):
            yield f"went on at {now} after {then}"
        for name, old, new in sorted(changed_leaves(before["packages"], after["packages"])):
            yield f"went on with {name} {new} after {old}"
    yield from other_parts(starts)
    form = prompts_of(run.config).memory_block
    now = prompt_digests({"folder": None, "memory_block": form}, run.config)
    for name, digest in run.manifest["fingerprint"]["prompts"].items():
        if now.get(name) != digest:
            yield f"prompt {name} is another one today"


def unread_replies(run: Run) -> Iterator[str]:
    """Verdicts that could not be read (they count as failure), and errors of judge, selector or extractor."""
    for row in run.rows:
        unread = sum(not verdict["parsed"] for verdict in row["verdicts"])
        if unread:
            yield f"{where(row)}: {unread} verdicts not readable"
        yield from (f"{where(row)}: {error[:100]}" for error in row["learning_errors"])


def tampered(run: Run) -> Iterator[str]:
    """Attempts that forged their result (they count as failure), and lessons from them."""
    for row in run.rows:
        found = (made.get("info", {}).get("tampered") for made in row["trajectories"])
        forged = [why for why in found if why]
        if forged:
            yield f"{where(row)}: {len(forged)} tampered: {forged[0]}; {len(row['lessons'])} lessons were made here"


def cut_prompts(run: Run) -> Iterator[str]:
    """Prompts that a server cut to its context window, by its own count of their tokens: their front was lost."""
    rows = [row for row in lines_of(run.path, CALLS) if not row.get("error")]
    made = Counter((row["requested"], row["role"]) for row in rows)
    cut = defaultdict(list)
    for row in rows:
        if row.get("prompt_cut"):
            cut[row["requested"], row["role"]].append((row["prompt_cut"], row["usage"]["prompt_tokens"]))
    for (model, role), prompts in sorted(cut.items()):
        sent, read = max(prompts)
        yield (
            f"{model} cut {len(prompts)} of {made[model, role]} prompts of the {role}: it read {read:,} tokens of "
            f"{sent:,} or more, without the front, where lessons are; give it a larger context window (llm.num_ctx)"
        )


def unanswered(run: Run) -> Iterator[str]:
    """Episodes that count and whose reply states no answer, or that ended at a limit of length, time, context, ..."""
    valid = [answer_of(row) for row in run.rows if row["status"] in VALID]
    none = sum(not attempt.get("info", {}).get("stated", True) for attempt in valid)
    limits = Counter(limit.replace("_", " ") for attempt in valid if (limit := limit_of(attempt)))
    said = [f"{none} of {len(valid)} episodes state no answer"] * bool(none)
    said += ["ended by limit: " + kinds_of_limits(limits)] * bool(limits)
    if said:
        yield "; ".join(said)


def broken_attempts(run: Run) -> Iterator[str]:
    """Attempts that broke in episodes that count, and tasks that broke and were tried again with the whole bank."""
    valid = [row for row in run.rows if row["status"] in VALID]
    within = [n for row in valid if (n := outcomes_of(row).count("infra_error"))]
    if within:
        yield f"{sum(within)} attempts broke in {len(within)} of {len(valid)} episodes that count: no rate has them"
    if again := [where(row) for row in valid if "retries" in row]:
        named = ", ".join(again[:5])
        yield f"{len(again)} tasks broke and were tried again at the stream's end, with the whole bank: {named}"


def lost_pairs(runs: list[Run]) -> Iterator[str]:
    """Tasks that count in one run and not in another of the same task set and seed: a comparison drops such pairs."""
    groups = defaultdict(list)
    for run in runs:
        groups[run.task_set, run.config["seed"]].append(run)
    for group in groups.values():
        counted = [{row["task_id"] for row in run.rows if row["status"] in VALID} for run in group]
        everyone = set().union(*counted)
        for run, own in zip(group, counted, strict=True):
            if lost := sorted(everyone - own):
                yield f"{run.path}: {len(lost)} tasks count in another run of its seed, not here: {', '.join(lost[:5])}"


def made_of_other_things(runs: list[Run]) -> Iterator[str]:
    """Runs of the same tasks that were made with other prompts, other code or other parts from outside the project."""
    groups = defaultdict(list)
    for run in runs:
        groups[run.task_set].append((str(run.path), made_of(run.manifest)))
    for group in groups.values():
        yield from differ(group)


def identical_replicates(runs: list[Run]) -> Iterator[str]:
    """Runs of one cell with different seeds and identical attempts: in effect one run, counted several times."""
    seen: dict[tuple, Run] = {}
    for run in runs:
        first = seen.setdefault((run.cell, run.trace), run)
        if run.rows and first.config["seed"] != run.config["seed"]:
            yield f"{run.path} (seed {run.config['seed']}) repeats {first.path} (seed {first.config['seed']})"


def edited_verdicts(runs: list[Run]) -> Iterator[str]:
    """Studies whose stored answer is not the one that their runs give now: it was edited, or runs are gone."""
    for folder in dict.fromkeys(run.path.parent for run in runs):
        if wrong := edited(folder):
            yield f"{folder}: {wrong}"


BROKEN: tuple[Check, ...] = (leaks.gold_in_prompts, *invariants.CHECKS, *leaks.BROKEN, *forgery.BROKEN)
WORTH_A_LOOK: tuple[Check, ...] = (
    *leaks.LOOK,
    *answer_key.LOOK,
    *forgery.LOOK,
    *twins.LOOK,
    lessons_with_answers,
    duplicate_lessons,
    unknown_records,
    other_code,
    unread_replies,
    tampered,
    cut_prompts,
    unanswered,
    broken_attempts,
)
