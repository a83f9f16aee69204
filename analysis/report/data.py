"""What the page reads: a small index of every episode, and the whole episodes packed, opened only when looked at."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from analysis.cells import Cells
from analysis.columns import HEADINGS
from analysis.funnel_steps import STEPS, kinds_of, lesson_step, steps_within
from analysis.load import Run, explaining, read_banks
from analysis.studies import cell_names, slug
from core.memory.store.schema import to_dict
from core.run.metrics import VALID
from core.run.records import answer_of, status_of, usage_of
from core.types import MemoryRecord

# The lessons of a run's bank: what each says, where it comes from, who saw it, and how these tasks ended.

Hit = tuple[int, int, int]  # place of an episode that retrieved a record, how many of its lessons, how many it showed


def lessons_of(run: Run, banked: Iterable[MemoryRecord], numbers: dict[str, int]) -> list[dict[str, Any]]:
    """One entry a lesson, oldest first: those of the run's episodes, and those that only its banks hold.

    banked    the records of the run's banks, [] where these are gone
    numbers   {a manifest's "run": the number of that run in the report}

    An entry is {id, item, title, description, content, task, place, run, attempts, outcome, label, wrong, status,
    parents, retrieved: [place], shown: [place], with: [n, n_success], without: [n, n_success]}. A place is that of an
    episode in `run.rows`; `place` is None where no episode taught it: `run` is the number of the run that did, None for
    a lesson that was merged from `parents`. `without` counts the tasks that came after the lesson, for a merged one
    after the last of its parents, and were not shown it; a task that broke is in neither.
    """
    made = {record["id"]: (place, record) for place, row in enumerate(run.rows) for record in row["records"]}
    stored = {record.id: to_dict(record) for record in banked}
    hits, later, found = _hits(run), _later(run), []
    began = _began(made, stored)
    for id_ in sorted(began, key=began.__getitem__):
        place, record = made.get(id_, (None, stored.get(id_)))
        facts = {"id": id_, "task": record["task_id"], "place": place, "outcome": record["outcome"]}
        facts |= _source(run, record, place, numbers) | {"label": record["label_source"]}
        facts |= {"status": stored.get(id_, record).get("status", "active"), "parents": record.get("parents", [])}
        for item, lesson in enumerate(record["items"]):
            uses = _uses(run, hits.get(id_, []), item, len(record["items"]), began[id_])
            without = [n - used for n, used in zip(later[began[id_] + 1], uses["with"])]
            found.append(facts | {"item": item, **lesson, **uses, "without": without})
    return found


def _began(made: dict[str, tuple[int, Any]], stored: dict[str, dict[str, Any]]) -> dict[str, int]:
    """{record: the place of the episode after which it was there}, -1 for one that was there before the first."""
    began = {id_: place for id_, (place, _) in made.items()}
    for id_, record in stored.items():  # oldest first: parents before what was merged from them
        began.setdefault(id_, max((began.get(parent, -1) for parent in record["parents"]), default=-1))
    return began


def _source(run: Run, record: dict[str, Any], place: int | None, numbers: dict[str, int]) -> dict[str, Any]:
    """{run, attempts, wrong}: the attempts that it was made from, and whether its label is not the truth."""
    provenance = record.get("provenance") or {}
    if place is None:
        run_of = None if record["parents"] else numbers.get(provenance.get("run", ""))
        return {"run": run_of, "attempts": [], "wrong": None}
    attempts = run.rows[place]["trajectories"]
    own = next((attempt for attempt in attempts if attempt["id"] == record["source_trajectory_id"]), None)
    samples = provenance.get("attempts") or ([] if own is None else [own["sample"]])
    which = [number for number, attempt in enumerate(attempts) if attempt["sample"] in samples]
    truth = own and ("success" if own["success"] else "failure")
    return {"run": numbers[run.manifest["run"]], "attempts": which, "wrong": bool(own) and truth != record["outcome"]}


def _later(run: Run) -> list[list[int]]:
    """`_counted` of the episodes from each place on, and of none."""
    sums = [[0, 0]]
    for row in reversed(run.rows):
        sums.append([n + more for n, more in zip(sums[-1], _counted([row]))])
    return sums[::-1]


def _hits(run: Run) -> dict[str, list[Hit]]:
    """The episodes that retrieved each record."""
    found: dict[str, list[Hit]] = {}
    for place, row in enumerate(run.rows):
        for hit in row["retrieved"]:
            n_items = hit.get("n_items", 0)
            found.setdefault(hit["id"], []).append((place, n_items, hit.get("n_shown", max(1, n_items))))
    return found


def _uses(run: Run, hits: list[Hit], item: int, n_items: int, began: int) -> dict[str, Any]:
    """How often a lesson was retrieved and shown. Of a record found by one of its lessons, every one counts."""
    shown = {where for where, found, n_shown in hits if n_shown > (item if found == n_items else 0)}
    used = _counted(run.rows[where] for where in shown if where > began)
    return {"retrieved": sorted({where for where, *_ in hits}), "shown": sorted(shown), "with": used}


def _counted(rows: Iterable[dict[str, Any]]) -> list[int]:
    """[tasks that did not break, those of them that succeeded]."""
    statuses = [status for row in rows if (status := status_of(row)) in VALID]
    return [len(statuses), statuses.count("success")]


CHUNK_CHARS = 400_000  # of episodes in one packed piece: what opening one of them costs
QUERY_CHARS = 240  # of a task's query in the index


def keys_of(named: list[tuple[Run, str]]) -> list[str]:
    """How the addresses of the page name each run."""
    keys = [slug(label) for _, label in named]
    return [f"{key}-{number}" if keys.count(key) > 1 else key for number, key in enumerate(keys)]


def index_of(
    named: list[tuple[Run, str]], groups: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """(index, [(element id, packed episodes or lessons)]). A run's `starts` are the first positions of its pieces.

    A row of the index is [task, status, label, steps, tokens, retrieved, lessons, attempts, error, step of the funnel].
    A run's `lessons` is how many its bank has; they are packed in one piece (analysis/report/data.py).
    """
    tasks: dict[str, tuple[int, str, str]] = {}
    listed, pieces, numbers = [], [], {run.manifest.get("run"): number for number, (run, _) in enumerate(named)}
    for number, ((run, label), key) in enumerate(zip(named, keys_of(named), strict=True)):
        rows = []
        banked = read_banks(run, must=False)
        with explaining(run.path):
            kinds = kinds_of(run.rows, lambda banked=banked: banked)
            for row in run.rows:
                about = (len(tasks), row["task_type"], row["query"][:QUERY_CHARS])
                rows.append([tasks.setdefault(row["task_id"], about)[0], *_facts(row), lesson_step(row, kinds)])
            packed = list(_packed(run, banked))
            lessons = lessons_of(run, banked, numbers)
        pieces += [(f"r{number}c{place}", text) for place, (_, text) in enumerate(packed)]
        pieces += [(f"b{number}", _pack(map(_line, lessons)))] if lessons else []
        about = {"key": key, "label": label, "seed": run.config["seed"], "n_tasks": run.n_tasks}
        listed.append(about | {"starts": [start for start, _ in packed], "lessons": len(lessons), "rows": rows})
    index = {"runs": listed, "groups": groups, "tasks": [[id, *about] for id, (_, *about) in tasks.items()]}
    return index | {"steps": _steps({row[-1] for run in listed for row in run["rows"]})}, pieces


def _steps(there: set[str]) -> dict[str, dict[str, Any]]:
    """The steps of the funnel that have an episode: how the list of episodes names each, and the steps within it."""
    words = {step: text if "shown" in text else f"lesson {text}" for step, (text, before) in STEPS.items() if before}
    inside = {step: steps_within(step) for step in words}
    return {step: {"word": words[step], "within": lasts} for step, lasts in inside.items() if there & {*lasts}}


def embedded(value: Any) -> str:
    """JSON that may stand in a <script> element: ASCII, and nothing in it can end the element or open a comment."""
    signs = {ord(sign): f"\\u{ord(sign):04x}" for sign in "&<>"}
    return json.dumps(value, separators=(",", ":")).translate(signs)


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
        kept["retrieved"] = [found | known.get(found["id"], {}) for found in row["retrieved"]]
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
    return base64.b64encode(gzip.compress("\n".join(lines).encode("ascii"), 6, mtime=0)).decode("ascii")


def _known(run: Run, banked: list[MemoryRecord]) -> dict[str, dict]:
    """{record id: {items, task_id, outcome}} of all that the run could retrieve; what was made here wins.

    What cannot be read from its banks is missing: the report then shows ids alone.
    """
    records = [*map(to_dict, banked), *(record for row in run.rows for record in row["records"])]
    return {record["id"]: {name: record[name] for name in ("items", "task_id", "outcome")} for record in records}


# From a number to the episodes behind it: addresses of the page's list of episodes.

# Which of an arm's episodes stand behind a column, by the names of `SHOW` in list.js: those in the rate are "counted".
SHOWN = {
    **dict.fromkeys("n success sd reward steps tokens cost tokens_per_success cost_per_success".split(), "counted"),
    **dict.fromkeys("late_early avg_at_k best_of_n pass_at n_attempts".split(), "counted"),
    **dict.fromkeys("method seeds labels".split(), "all"),
    **dict.fromkeys("judge_n agreement kappa n_rated brier ece".split(), "judged"),
    "infra_errors": "infra_error",
    "steps_won": "success",
    "steps_lost": "failure",
    "lessons": "taught",
    "hit_rate": "retrieved",
    "confusion": "wrong",
}
# The same of two arms side by side: the tasks and seeds that both have, or those in which they differ.
PAIRED = dict.fromkeys("difference n_pairs p p_holm sd_seeds gain".split(), "pairs") | {
    "flips": "changed",
    "p_tasks": "changed",
}
SHOW = {HEADINGS[name][0]: kind for name, kind in SHOWN.items()}
SHOW_PAIRED = {HEADINGS[name][0]: kind for name, kind in PAIRED.items()}


class Addresses:
    """Where the list of episodes shows a cell: its only run, or a group of its runs, one of each seed.

    keys     the runs' own, in the order of `named`
    groups   [{key, label, runs: [number]}]: what the page is told; empty where no cell has more than one run
    """

    def __init__(self, named: list[tuple[Run, str]], keys: list[str], cells: Cells) -> None:
        numbers = {str(run.path): number for number, (run, _) in enumerate(named)}
        dirs = cells.frame[cells.frame["index"] >= 0].groupby("cell", sort=False)["run_dir"].unique().to_dict()
        runs = {cell: sorted(numbers[path] for path in dirs[cell]) for cell in cell_names(cells) if cell in dirs}
        several = any(len(found) > 1 for found in runs.values())
        self._of = {cell: keys[found[0]] for cell, found in runs.items()}
        self.groups: list[dict[str, Any]] = []
        for cell, name in cell_names(cells).items() if several else ():
            if cell in runs:
                key, n = f"{slug(name)}-all", len(runs[cell])
                self._of[cell] = f"{key}-{len(self.groups)}" if key in self._of.values() else key
                label = f"{name} · {n} seeds" if n > 1 else f"{name} · 1 seed"
                self.groups.append({"key": self._of[cell], "label": label, "runs": runs[cell]})

    def at_step(self, cell: str, step: str) -> str | None:
        """The address of a cell's episodes at a step of the funnel (analysis/funnel_steps.py)."""
        mine = self._of.get(cell)
        return mine and _address(mine, show="counted" if step == "all" else f"step_{step}")

    def of(self, cell: str, base: str | None, heading: str, types: Sequence[str] = ()) -> str | None:
        """The address of the episodes behind a cell's number under a heading; None where there is none."""
        mine, other = self._of.get(cell), self._of.get(base or "")
        if mine is None:
            return None
        if heading in SHOW:
            return _address(mine, show=SHOW[heading])
        if heading in SHOW_PAIRED and other and base != cell:
            return _address(f"{other}~{mine}", show=SHOW_PAIRED[heading])
        return _address(mine, show="counted", type=heading) if heading in types else None


def _address(where: str, **filters: str) -> str:
    """As `linkTo` in app.js writes it."""
    return f"#{where}/?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in filters.items())


def linked(table: Any, addresses: Addresses, types: Sequence[str]) -> list[list[tuple[str, str | None]]]:
    """The rows of a table with an address beside each text; see `analysis.text_table.TextTable`."""
    rows = []
    for place, row in enumerate(table.rows):
        owner = table.cells[place] if table.cells else None
        hrefs = [owner and text != "-" and addresses.of(*owner, head, types) for head, text in zip(table.head, row)]
        rows.append([(text, href or None) for text, href in zip(row, hrefs, strict=True)])
    return rows
