"""What the page reads: a small index of every episode; whole episodes and the bank's lessons, packed until looked at.

A run's episodes are packed in pieces, its lessons in one: what each says, where it comes from, which tasks saw it, and
how these ended.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from analysis.cells import Cells
from analysis.funnel_steps import STEPS, steps_within
from analysis.load import columns_of
from analysis.runs import Run, explaining, read_banks, read_run
from analysis.studies import cell_names, slug
from core.memory.records import tried
from core.memory.store.schema import to_dict
from core.proportions import difference
from core.run.columns import kinds_of, lesson_step
from core.run.metrics import VALID
from core.run.records import answer_of, status_of, usage_of, was_graded
from core.types import MemoryRecord

CHUNK_CHARS = 400_000  # of episodes in one packed piece: what opening one of them costs
QUERY_CHARS = 240  # of a task's query in the index
Hit = tuple[int, int, int]  # place of an episode that retrieved a record, how many of its lessons, how many it showed


def keys_of(labelled: Sequence[tuple[Run, str]]) -> list[str]:
    """How the addresses of the page name each run."""
    keys = [slug(label) for _, label in labelled]
    return [f"{key}-{number}" if keys.count(key) > 1 else key for number, key in enumerate(keys)]


@dataclass(frozen=True, kw_only=True)
class PackedRun(Run):
    """A run as the page needs it. Its `rows` hold statuses alone: the episodes themselves are packed.

    entries   of each episode: [(task id, its type, its query), status, label, steps, ...]; see `index_of`
    pieces    [(position of its first episode, base64 of gzip of JSON lines)]
    lessons   see `lessons_of`
    columns   see `analysis.load.columns_of`
    """

    entries: list[list[Any]]
    pieces: list[tuple[int, str]]
    lessons: list[dict[str, Any]]
    columns: dict[str, Any]


def read_packed(path: Path) -> PackedRun:
    """A run directory, read and packed, so that no more than one run's episodes are in memory at a time."""
    run = read_run(path)
    banked = read_banks(run, must=False)
    with explaining(path):
        kinds = kinds_of(run.rows, lambda: banked)
        entries = [[_task(row), *_facts(row), lesson_step(row, kinds)] for row in run.rows]
        made = {"entries": entries, "pieces": [*_packed(run, banked)], "lessons": lessons_of(run, banked)}
    kept = {each.name: getattr(run, each.name) for each in fields(Run)}
    kept["rows"] = [{"status": status_of(row)} for row in run.rows]
    return PackedRun(**kept, **made, columns=columns_of(run))


def groups_of(labelled: Sequence[tuple[Run, str]], cells: Cells) -> list[dict[str, Any]]:
    """[{key, label, runs: [number]}]: the counted runs of each cell as one list, if any cell has several.

    A number is a place in `labelled`.
    """
    numbers, keys = {str(run.path): number for number, (run, _) in enumerate(labelled)}, set(keys_of(labelled))
    counted = cells.frame[cells.frame["index"] >= 0].groupby("cell", sort=False)["run_dir"].unique().to_dict()
    groups: list[dict[str, Any]] = []
    for cell, name in cell_names(cells).items():
        if cell in counted:
            key, n = f"{slug(name)}-all", len(counted[cell])
            key = f"{key}-{len(groups)}" if key in keys else key
            keys.add(key)
            runs = sorted(numbers[path] for path in counted[cell])
            groups.append({"key": key, "label": f"{name} · {n} seed{'s' * (n > 1)}", "runs": runs})
    return groups if any(len(group["runs"]) > 1 for group in groups) else []


def index_of(
    labelled: list[tuple[PackedRun, str]], groups: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """(index, [(element id, packed episodes or lessons)]). A run's `starts` are the first positions of its pieces.

    A row of the index is [task, status, label, steps, tokens, retrieved, lessons, attempts, error, step of the funnel].
    A run's `lessons` is how many its bank has; they are packed in one piece, and their `run` is a number there.
    """
    tasks: dict[str, tuple[int, str, str]] = {}
    listed, pieces, numbers = [], [], {run.manifest.get("run"): number for number, (run, _) in enumerate(labelled)}
    for number, ((run, label), key) in enumerate(zip(labelled, keys_of(labelled), strict=True)):
        rows = []
        for (task, *about), *facts in run.entries:
            rows.append([tasks.setdefault(task, (len(tasks), *about))[0], *facts])
        lessons = [lesson | {"run": numbers.get(lesson["run"])} for lesson in run.lessons]
        pieces += [(f"r{number}c{place}", text) for place, (_, text) in enumerate(run.pieces)]
        pieces += [(f"b{number}", _pack(map(_line, lessons)))] if lessons else []
        about = {"key": key, "label": label, "seed": run.config["seed"], "n_tasks": run.n_tasks}
        listed.append(about | {"starts": [start for start, _ in run.pieces], "lessons": len(lessons), "rows": rows})
    index = {"runs": listed, "groups": groups, "tasks": [[id, *about] for id, (_, *about) in tasks.items()]}
    return index | {"steps": _steps({row[-1] for run in listed for row in run["rows"]})}, pieces


def _steps(there: set[str]) -> dict[str, dict[str, Any]]:
    """The steps of the funnel that have an episode: how the list of episodes names each, and the steps within it."""
    words = {step: text if "shown" in text else f"lesson {text}" for step, (text, before) in STEPS.items() if before}
    inside = {step: steps_within(step) for step in words}
    return {step: {"word": words[step], "within": steps} for step, steps in inside.items() if there & {*steps}}


def embedded(value: Any) -> str:
    """JSON that may stand in a <script> element: ASCII, and nothing in it can end the element or open a comment."""
    signs = {ord(sign): f"\\u{ord(sign):04x}" for sign in "&<>"}
    return json.dumps(value, separators=(",", ":")).translate(signs)


def _task(row: dict) -> tuple[str, str, str]:
    return row["task_id"], row["task_type"], row["query"][:QUERY_CHARS]


def _facts(row: dict) -> list[Any]:
    chosen = answer_of(row)
    return [
        status_of(row),
        row["verdict"]["label"],
        len(chosen["steps"]),
        usage_of(row).tokens,
        len(row["retrieved"]),
        len(row["lessons"]),
        len(row["trajectories"]),
        (chosen["error"] or "")[:120],
    ]


def _packed(run: Run, banked: list[MemoryRecord]) -> Iterator[tuple[int, str]]:
    """(position of its first episode, base64 of gzip of JSON lines) for each piece of the run."""
    known = _known(run, banked)
    lines: list[str] = []
    size = start = 0
    for place, row in enumerate(run.rows):
        kept = {key: value for key, value in row.items() if key not in ("records", "index", "schema")}  # said elsewhere
        kept["retrieved"] = [known.get(hit["id"], {}) | hit | {"rewritten": "items" in hit} for hit in row["retrieved"]]
        line = _line(kept)
        if lines and size + len(line) > CHUNK_CHARS:
            yield start, _pack(lines)
            lines, size, start = [], 0, place
        lines.append(line)
        size += len(line)
    if lines:
        yield start, _pack(lines)


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _pack(lines: Iterable[str]) -> str:
    data = gzip.compress("\n".join(lines).encode("ascii"), 2, mtime=0)  # 6 takes three times as long, for 9 % less
    return base64.b64encode(data).decode("ascii")


def _known(run: Run, banked: list[MemoryRecord]) -> dict[str, dict]:
    """{record id: {items, task_id, outcome}} of all that the run could retrieve; what was made here wins.

    What cannot be read from its banks is missing: the report then shows ids alone.
    """
    records = [*map(to_dict, banked), *(record for row in run.rows for record in row["records"])]
    return {record["id"]: {name: record[name] for name in ("items", "task_id", "outcome")} for record in records}


def lessons_of(run: Run, banked: Sequence[MemoryRecord]) -> list[dict[str, Any]]:
    """One entry a lesson, oldest first: those of the run's episodes, and those that only its banks hold.

    banked   the records of the run's banks, [] where these are gone

    An entry is {id, item, title, description, content, task, place, run, attempts, outcome, label, wrong, status,
    parents, tried, retrieved: [place], shown: [place], with: [n, n_success], without: [n, n_success], effect}. A place
    is that of an episode in `run.rows`; `place` is None where no episode taught it: `run` is the id of the run that
    did, None for a lesson that was merged from `parents`. `tried` says what memory.validate found. `without` counts the
    tasks that came after the lesson, for a merged one after the last of its parents, and were not shown it; a task that
    broke is in neither. `effect` is with minus without, [difference, low, high], None where there was no such task.
    """
    made = {record["id"]: (place, record) for place, row in enumerate(run.rows) for record in row["records"]}
    stored = {record.id: to_dict(record) for record in banked}
    trials = {record.id: record.provenance.get("validated") for record in banked}
    trials |= {found["id"]: found for row in run.rows for found in row.get("validated", ())}
    hits, later, lessons = _hits(run), _later(run), []
    began = _began(made, stored)
    for id_ in sorted(began, key=began.__getitem__):
        place, record = made.get(id_, (None, stored.get(id_)))
        facts = {"id": id_, "task": record["task_id"], "place": place, "outcome": record["outcome"]}
        facts |= _source(run, record, place) | {"label": record["label_source"]}
        facts |= {"status": stored.get(id_, record).get("status", "active"), "parents": record.get("parents", [])}
        facts |= {"tried": tried(trials.get(id_))}
        for item, lesson in enumerate(record["items"]):
            uses = _uses(run, hits.get(id_, []), item, len(record["items"]), began[id_])
            without = [n - used for n, used in zip(later[began[id_] + 1], uses["with"])]
            effect = difference(*uses["with"], *without)
            lessons.append(facts | {"item": item, **lesson, **uses, "without": without, "effect": effect})
    return lessons


def _began(made: dict[str, tuple[int, Any]], stored: dict[str, dict[str, Any]]) -> dict[str, int]:
    """{record: the place of the episode after which it was there}, -1 for one that was there before the first."""
    began = {id_: place for id_, (place, _) in made.items()}
    for id_, record in stored.items():  # oldest first: parents before what was merged from them
        began.setdefault(id_, max((began.get(parent, -1) for parent in record["parents"]), default=-1))
    return began


def _source(run: Run, record: dict[str, Any], place: int | None) -> dict[str, Any]:
    """{run, attempts, wrong}: the attempts that it was made from, and whether its label is not the truth."""
    provenance = record.get("provenance") or {}
    if place is None:
        run_of = None if record["parents"] else provenance.get("run")
        return {"run": run_of, "attempts": [], "wrong": None}
    attempts = run.rows[place]["trajectories"]
    own = next((attempt for attempt in attempts if attempt["id"] == record["source_trajectory_id"]), None)
    samples = provenance.get("attempts") or ([] if own is None else [own["sample"]])
    which = [number for number, attempt in enumerate(attempts) if attempt["sample"] in samples]
    wrong = bool(own) and was_graded(own) and own["success"] != (record["outcome"] == "success")
    return {"run": run.manifest["run"], "attempts": which, "wrong": wrong}


def _later(run: Run) -> list[list[int]]:
    """`_counted` of the episodes from each place on, and of none."""
    sums = [[0, 0]]
    for row in reversed(run.rows):
        sums.append([n + more for n, more in zip(sums[-1], _counted([row]))])
    return sums[::-1]


def _hits(run: Run) -> dict[str, list[Hit]]:
    """The episodes that retrieved each record."""
    hits: dict[str, list[Hit]] = {}
    for place, row in enumerate(run.rows):
        for hit in row["retrieved"]:
            hits.setdefault(hit["id"], []).append((place, hit["n_items"], hit["n_shown"]))
    return hits


def _uses(run: Run, hits: list[Hit], item: int, n_items: int, began: int) -> dict[str, Any]:
    """How often a lesson was retrieved and shown. Of a record found by one of its lessons, every one counts."""
    shown = {where for where, n_hit, n_shown in hits if n_shown > (item if n_hit == n_items else 0)}
    used = _counted(run.rows[where] for where in shown if where > began)
    return {"retrieved": sorted({where for where, *_ in hits}), "shown": sorted(shown), "with": used}


def _counted(rows: Iterable[dict[str, Any]]) -> list[int]:
    """[tasks that did not break, those of them that succeeded]."""
    statuses = [status for row in rows if (status := status_of(row)) in VALID]
    return [len(statuses), statuses.count("success")]
