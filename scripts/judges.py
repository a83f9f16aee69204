"""Judges against the truth, on the attempts of finished runs (`reasoningbank learn --judges`)."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analysis.judges import JudgedAttempt, judged_in, rated
from analysis.runs import Run, read_run
from analysis.text_table import TextTable
from core.errors import UserError
from core.make import option, options, part
from core.run.arms import key_of
from core.run.cells import safe
from core.types import Usage, content_id, total

Learn = Callable[..., int]  # learns from a run once more: its exit status
RECORDED = "as recorded"
MOST_NAME = 80  # characters of a run's name
BATCH = 64  # attempts at this many tasks may be judged at once, up to max_concurrency
PERCENT, RATIO, SCORE = (100, 1), (1, 2), (1, 3)  # (factor, digits) of a figure
FIGURES = {"agreement": PERCENT, "kappa": RATIO, "precision": PERCENT, "recall": PERCENT, "brier": SCORE, "ece": SCORE}
HEAD = "judge|n|broke|agreement %|kappa|precision %|recall %|Brier|ECE|tokens / attempt|USD / attempt".split("|")


def configurations(words: list[str], more: list[str]) -> dict[str, list[str]]:
    """{name: words} of each judge. more: the values of --judge."""
    shared = [word for word in words if key_of(word) != "judge"]
    each = [[word] for word in words if key_of(word) == "judge"] + [shlex.split(given) for given in more]
    named = {" ".join(own): [*own, *shared] for own in each}
    if lacking := next((name for name, own in named.items() if not any(key_of(word) == "judge" for word in own)), None):
        raise UserError(f'--judge "{lacking}" names no judge: begin with judge=NAME.')
    return named


def judging(run: Run, words: list[str]) -> list[str]:
    """The words with which every stored attempt of the run is judged, and nothing else is done."""
    name = next(word.partition("=")[2] for word in words if key_of(word) == "judge")
    knows = name in options("judge") and part(option("judge", name)).uses_gold
    setting = ["setting=true_labels"] if knows else ["setting=test_time", "setting.allow_oracle_bank=true"]
    sizes = run.config.get("workflow") or {}
    shape = ["workflow=reasoningbank"]
    if (sizes.get("r") or 0) > 0:
        shape = ["workflow=matts_sequential", "contrast=null", f"r={sizes['r']}"]
        shape += [f"refine={sizes['refine']}"] if sizes.get("refine") else []
    elif (sizes.get("k") or 1) > 1:
        shape = ["workflow=matts_parallel", "contrast=null", "select=first", f"k={sizes['k']}"]
    nothing = ["distiller._target_=core.learning.lessons.NoLessons"]
    parts = [*setting, *shape, "memory=reasoning_bank", "embedder=hashing", *nothing]
    return [*parts, f"stream.batch={BATCH}", *words]


def verdicts(runs: Sequence[Run], words: list[str], into: Path, learn: Learn) -> list[Run]:
    """The runs' attempts as judged by one configuration. Judges those that are not judged yet."""
    found = []
    for run in runs:
        folder = into / f"{safe(run.path.name, MOST_NAME)}-{content_id(str(run.path.resolve()), words)[:8]}"
        with stdout_as_stderr():
            status = learn(run, judging(run, words), folder, without=("arm",))
        if status:
            raise UserError(f"judging {run.path} was interrupted: the same command continues.")
        if (folder / "manifest.json").is_file():  # not after a dry run
            found.append(read_run(folder))
    return found


@contextmanager
def stdout_as_stderr() -> Iterator[None]:
    """Send stdout to stderr by its descriptor: main.py opens its own streams, and the report alone goes to stdout."""
    stream = sys.stdout
    stream.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        sys.stdout = stream


def row_of(name: str, runs: Sequence[Run]) -> dict[str, Any]:
    """The figures of one judge, over all attempts and by type of task."""
    attempts = [each for run in runs for each in judged_in(run)]
    used = [row["usage"]["judge"] for run in runs for row in run.rows]
    costs = [each["cost_usd"] for each in used]
    found = {"judge": name, **rated(attempts), "types": {}}
    n = max(1, len(attempts))
    tokens = total(Usage(**each).tokens for each in used)
    found["tokens_per_attempt"] = None if tokens is None else tokens / n
    found["usd_per_attempt"] = None if None in costs else sum(costs) / n
    types = sorted({each.task_type for each in attempts})
    if len(types) > 1:
        found["types"] = {kind: rated(_of_type(attempts, kind)) for kind in types}
    return found


def _of_type(attempts: Sequence[JudgedAttempt], kind: str) -> list[JudgedAttempt]:
    return [each for each in attempts if each.task_type == kind]


def tables(rows: list[dict[str, Any]], n_runs: int) -> list[TextTable]:
    """The table of the judges, and that by type of task."""
    made = []
    for row in rows:
        usd = "?" if row["usd_per_attempt"] is None else f"{row['usd_per_attempt']:.5f}"
        tokens = "?" if row["tokens_per_attempt"] is None else f"{row['tokens_per_attempt']:.0f}"
        cells = [_shown(row, name) for name in FIGURES]
        counts = [str(row["n"]), str(row["n_none"])]
        made.append([row["judge"], *counts, *cells, tokens, usd])
    notes = [
        "95 % intervals; the attempts at a task, over all seeds, go together: Wilson's with the effective number of "
        "attempts for agreement, precision and recall, a bootstrap over tasks for kappa, Brier and ECE.",
        f"precision, recall: of the label success; broke: no verdict; {RECORDED}: the runs' own verdicts.",
    ]
    title = f"judges against the truth, attempts of {n_runs} runs"
    found = [TextTable(title=title, head=HEAD, rows=made, notes=notes)]
    kinds = list(dict.fromkeys(kind for row in rows for kind in row["types"]))
    if kinds:
        by_type = [
            [row["judge"], kind or "-", str(of["n"]), str(of["n_none"]), *(_shown(of, name) for name in FIGURES)]
            for row in rows
            for kind, of in row["types"].items()
        ]
        head = [HEAD[0], "type", *HEAD[1:-2]]
        found.append(TextTable(title="by type of task", head=head, rows=by_type))
    return found


def _shown(row: dict[str, Any], name: str) -> str:
    scale, digits = FIGURES[name]
    if row[name] is None:
        return "-"
    text = f"{scale * row[name] + 0.0:.{digits}f}"
    if row[f"{name}_low"] is None:
        return text
    low, high = (f"{scale * row[f'{name}_{end}'] + 0.0:.{digits}f}" for end in ("low", "high"))
    return f"{text} [{low}, {high}]"


def report(runs: Sequence[Run], words: list[str], more: list[str], into: Path, learn: Learn) -> list[dict[str, Any]]:
    """Judge the attempts of runs by several judges: a row of figures a judge, the recorded verdicts first.

    words   judge=NAME of each judge, and KEY=VALUE for all of them
    more    a judge each, with words of its own
    into    the folder of the verdicts
    learn   `scripts.learn.learn`
    """
    rows = [row_of(RECORDED, runs)]
    for name, own in configurations(words, more).items():
        if made := verdicts(runs, own, into, learn):
            rows.append(row_of(name, made))
    return rows
