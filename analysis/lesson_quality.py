"""What a reader of a run's numbers should know, and how good its lessons are: no invariant, but worth a look."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from analysis import audit as invariants
from analysis import leaks
from analysis.audit import Check, NotChecked, answer_in, bank_owners, where
from analysis.load import VALID, Run, explaining
from core.models.reply_text import storable
from core.run.manifest import prompt_digests, shown_by
from core.run.records import changed_leaves
from core.types import Lesson

ALIKE = 95  # of 100, by rapidfuzz's ratio, from which two tasks' queries are near-duplicates
MOST_TASKS = 2000  # every pair is compared


def near_duplicate_tasks(run: Run) -> Iterator[str]:
    """Tasks whose queries are nearly the same: a lesson of the one may hold the answer of the other."""
    from rapidfuzz import fuzz, process

    queries = list({row["task_id"]: row["query"] for row in run.rows}.items())[:MOST_TASKS]
    scores = process.cdist([query for _, query in queries], [query for _, query in queries], scorer=fuzz.ratio)
    for one, (name, _) in enumerate(queries):
        like = [other for other in range(one) if scores[one][other] >= ALIKE]
        if like:
            yield f"{name} is like {queries[like[0]][0]}" + (f" and {len(like) - 1} others" if len(like) > 1 else "")


def lessons_with_answers(run: Run) -> Iterator[str]:
    """Lessons that hold their own task's answer: of use to a task with the same answer only."""
    for row in run.rows:
        gold = row["trajectories"][row["chosen"]]["gold"]
        for number, lesson in enumerate(row["lessons"]):
            if found := answer_in(Lesson(**lesson).text, gold, row["query"]):
                yield f"{where(row)}: lesson {number} holds {found!r}"


def duplicate_lessons(run: Run) -> Iterator[str]:
    """The same lesson under several records."""
    counts = Counter(_plain(Lesson(**lesson)) for row in run.rows for lesson in row["lessons"])
    for text, count in counts.most_common():
        if count > 1:
            yield f"{count} times: {text[:80]}"


def unknown_records(run: Run) -> Iterator[str]:
    """Records that were retrieved and are in neither the episodes nor a bank that is still there."""
    known = set(bank_owners(run)) | {record["id"] for row in run.rows for record in row["records"]}
    for row in run.rows:
        for hit in row["retrieved"]:
            if hit["id"] not in known:
                yield f"{where(row)}: {hit['id']}"


def other_code(run: Run) -> Iterator[str]:
    """Starts by other code or packages, files changed since the commit, prompts that have changed since."""
    starts = run.manifest.get("starts", [])
    for start in starts:
        if start["git"]["dirty"]:
            yield f"changed files at {str(start['git']['sha'])[:8]}: {', '.join(start['git']['dirty'][:5])}"
    for before, after in pairwise(starts):
        if before["git"]["sha"] != after["git"]["sha"]:
            yield f"went on at {str(after['git']['sha'])[:8]} after {str(before['git']['sha'])[:8]}"
        for name, old, new in sorted(changed_leaves(before["packages"], after["packages"])):
            yield f"went on with {name} {new} after {old}"
    form = shown_by(run.config.get("prompts")).memory_block
    now = prompt_digests({"folder": None, "memory_block": form}, (run.config.get("distiller") or {}).get("style", ""))
    for name, digest in run.manifest["fingerprint"]["prompts"].items():
        if now.get(name) != digest:
            yield f"prompt {name} is another one today"


def unread_replies(run: Run) -> Iterator[str]:
    """Verdicts that could not be read (they count as failure), and what broke beside an attempt."""
    for row in run.rows:
        unread = sum(not verdict["parsed"] for verdict in row["verdicts"])
        if unread:
            yield f"{where(row)}: {unread} verdicts not readable"
        yield from (f"{where(row)}: {error[:100]}" for error in row["learning_errors"])


BROKEN: tuple[Check, ...] = (*invariants.BROKEN, *leaks.BROKEN)
WORTH_A_LOOK: tuple[Check, ...] = (
    *leaks.LOOK,
    near_duplicate_tasks,
    lessons_with_answers,
    duplicate_lessons,
    unknown_records,
    other_code,
    unread_replies,
)


def grade(run: Run) -> dict[str, Any]:
    """Extraction in numbers; rates in [0, 1], None where there was nothing to grade.

    parse_rate      items that parsed and were within the limit, of all that were begun
    whole_fields    lessons whose title, description and content are all there
    finished        lessons whose content ends as a sentence does; the others were cut, or are no prose
    one_to_five     lessons whose content has 1 to 5 sentences (the paper asks for 1 to 3, in self-contrast to 5)
    literals        lessons with a number or a quotation of their own task's query, which the paper's prompts forbid
    """
    pairs = [(row["query"], Lesson(**lesson)) for row in run.rows for lesson in row["lessons"]]
    n, words = len(pairs), sorted(len(lesson.content.split()) for _, lesson in pairs)
    found = {
        "whole_fields": [all(map(str.strip, vars(lesson).values())) for _, lesson in pairs],
        "finished": [bool(re.search(r"[.!?][)\]\"'`*]*$", lesson.content.strip())) for _, lesson in pairs],
        "one_to_five": [len(re.findall(r"[.!?](?:\s|$)", lesson.content)) <= 5 for _, lesson in pairs],
        "literals": [any(_holds(lesson.text, each) for each in literals(query)) for query, lesson in pairs],
    }
    return {
        "lessons": n,
        "episodes_that_taught": sum(bool(row["lessons"] or row["n_dropped"]) for row in run.rows),
        "parse_rate": _share(n, n + sum(row["n_dropped"] for row in run.rows)),
        **{name: _share(sum(those), n) for name, those in found.items()},
        "distinct": _share(len({_plain(lesson) for _, lesson in pairs}), n),
        "words_median": words[n // 2] if n else None,
        "words_most": words[-1] if n else None,
        "cut_off": sum(row.get("n_truncated", 0) for row in run.rows),
    }


def literals(query: str) -> set[str]:
    """Numbers of two digits and more, and quoted strings."""
    return set(re.findall(r"\d+(?:\.\d+)?", query)) - set("0123456789") | set(re.findall(r'"([^"\n]{3,60})"', query))


def _holds(text: str, literal: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(literal)}(?![\w])", text) is not None


def _plain(lesson: Lesson) -> str:
    return " ".join(re.findall(r"\w+", lesson.text.lower()))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def audit(run: Run) -> dict[str, Any]:
    """{run, broken: {check: lines}, look: {check: lines}, ok: [check], unchecked: {check: why}, grade}.

    A check that could not look at everything is in `unchecked`, with why, and never in `ok`; what it found until then
    is in `broken` or `look`. Raises UserError where the records lack what a check looks at.
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


def outcome(lines: Iterator[str]) -> tuple[list[str], str | None]:
    """(what a check found, why it could not look at everything)."""
    found = []
    try:
        for line in lines:
            found.append(storable(line))
    except NotChecked as reason:
        return found, str(reason)
    return found, None


def together(runs: list[Run]) -> dict[str, list[str]]:
    """What several runs tell beside each other: {check: lines}, worth a look; a check without a line is left out."""
    checks = {"lost_pairs": lost_pairs(runs), "identical_replicates": identical_replicates(runs)}
    return {name: found for name, lines in checks.items() if (found := list(map(storable, lines)))}


def lost_pairs(runs: list[Run]) -> Iterator[str]:
    """Tasks that count in one run and broke in another of the same tasks and seed: no pair of a comparison."""
    groups = defaultdict(list)
    for run in runs:
        groups[run.task_set, run.config["seed"]].append(run)
    for group in groups.values():
        counted = [{row["task_id"] for row in run.rows if row["status"] in VALID} for run in group]
        everyone = set().union(*counted)
        for run, own in zip(group, counted, strict=True):
            if lost := sorted(everyone - own):
                yield f"{run.path}: {len(lost)} tasks count in another run of its seed, not here: {', '.join(lost[:5])}"


def identical_replicates(runs: list[Run]) -> Iterator[str]:
    """Runs of one cell with other seeds and the very same attempts: one run counted several times."""
    seen: dict[tuple, Run] = {}
    for run in runs:
        first = seen.setdefault((run.cell, run.trace), run)
        if run.rows and first.config["seed"] != run.config["seed"]:
            yield f"{run.path} (seed {run.config['seed']}) repeats {first.path} (seed {first.config['seed']})"
