"""From episodes to the cells of a table: one row for each configuration, averaged over its seeds.

A cell here is one configuration over all its seeds, on one set of tasks; it is never averaged over different task sets.
(core/run/cells.py names the folder of one run, which a sweep also calls a cell.) Cells of the same env, model and set
of tasks are a block: they may stand in one table and be compared.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analysis import notes
from analysis.made_of import cells_differ
from analysis.measure import measure
from analysis.pairing import ANSWERED, GAIN, OVER_TYPES, WORST, against, among_answers, gain, over_types
from analysis.verdict import correct, scope
from core.errors import UserError
from core.run.arms import named
from core.run.keys import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

BLOCK = ("env", "model", "task_set")
PAIRED = "n_pairs n_paired_seeds won lost difference sd_seeds low high p p_tasks".split()  # from analysis.stats.paired
CORRECTED = ("p_holm", "p_worst_holm", "n_compared")  # from analysis.verdict.correct
SCOPE = ("n_orders", "n_banks", "scope")  # from analysis.verdict.scope
SHARED = ["cell", "arm", "overridden", *BLOCK, "part", "version", "n_tasks", "evaluated", *COLUMNS]
COMPARED = (*PAIRED, *WORST, "alike", *CORRECTED, *GAIN, *OVER_TYPES, *SCOPE, *ANSWERED, "times_tokens")
MAX_LABEL_SETTINGS, MAX_LABEL_CHARS = 2, 60  # more settings than this, or longer ones, are not written into a label

# The order of arms in every table: the paper's, then those that this project adds, then the user's own by name.
PAPER = ("no_memory", "synapse", "awm", "reasoningbank", "matts_parallel", "matts_sequential")
SCALED = ("parallel_k5", "parallel_alone", "parallel_no_memory", "sequential_alone", "sequential_no_memory")
ABLATIONS = (
    "success_only",
    "failure_only",
    "synapse_both",
    "awm_both",
    "random_retrieval",
    "two_passes",
    "batch_of_40",
)
SHOWN = tuple("empty_block placebo corrupt other_task shuffle recent history validated".split())
LABELS = tuple(f"labels_{name}" for name in ("llm", "heuristic", "consensus", "self_consistency", "truth"))
CONTROL = tuple("told_random told_lesson told_bank true_labels quote key_item top_3 lexical rrf quote_key_item".split())
REFERENCES = ("random", "gold")  # agents without a model: the floor and the ceiling
ORDER = (*PAPER, *(f"matts_{name}" for name in SCALED), *ABLATIONS, *SHOWN, *LABELS, *CONTROL, *REFERENCES)


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The cells of a table, with the episodes that they were made from.

    table   one row per cell; in a row that was compared, `base` is its baseline's cell; p_holm is over all `p` here
    frame   the episodes behind the rows
    notes   the notes below the table: which runs were left out and why, and what its reader must know
    """

    table: pd.DataFrame
    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    def episodes(self, cell: str) -> pd.DataFrame:
        """The episodes from which a cell's numbers were made."""
        return self.frame[self.frame["cell"] == cell]


def make_cells(frame: pd.DataFrame, baseline: str | None = None, *, partial: bool = False, command: str = "") -> Cells:
    """Every cell of the episodes from `analysis.load.load_runs`, each compared with the baseline of its block.

    baseline   a label, an arm or a word of a label ("top_k=1"); a block is compared only if exactly one cell matches
    partial    average unfinished runs as well; their rows are True in the column `partial`
    command    the command that makes this table; the note on a block that is not compared shows it with each baseline
               that could be chosen
    Raises UserError if no run has an episode.
    """
    import pandas as pd

    if (frame["index"] < 0).all():
        raise UserError("none of the runs has finished an episode yet.")
    used, lines = _chosen(frame)
    lines += notes.different_data(used, BLOCK) + notes.memory_settings_notes(used)
    counted = used if partial else used[used["complete"]]
    rows = []
    for cell, runs in used.groupby("cell", sort=False):
        lines += notes.unfinished(runs, partial)
        n_partial = runs[~runs["complete"]]["run_dir"].nunique()
        facts = {"n_partial": n_partial, "partial": partial and n_partial > 0} | seeds_of(runs)
        as_named = runs.sort_values("overridden", kind="stable").iloc[0]  # one configuration may have had two names
        rows.append({**as_named[SHARED], **facts, **measure(counted[counted["cell"] == cell])})
    table = pd.DataFrame(rows)
    settings = used.drop_duplicates("cell").set_index("cell")["settings"].map(json.loads).to_dict()
    table.insert(0, "label", _labels(table, settings))
    table = _in_order(table)
    rows = _for_notes(table)
    for note in (notes.missing_seeds, notes.broken, notes.of_cells, notes.fallbacks):
        lines += note(rows)
    lines += notes.one_bank(rows)
    lines += notes.twins(used, BLOCK)
    lines += cells_differ(used, dict(zip(table["cell"], table["label"], strict=True)), BLOCK)
    cells = Cells(table=table, frame=counted, notes=lines)
    return cells if baseline is None else _compared(cells, baseline, command)


def seeds_of(runs: pd.DataFrame) -> dict[str, Any]:
    """{n_asked, seeds_missing}: how many seeds the sweeps of a cell's runs have, and those without a run."""
    asked = {seed for text in runs["seeds_asked"].unique() for seed in json.loads(text)}
    return {"n_asked": len(asked), "seeds_missing": tuple(sorted(asked - {*runs["seed"]}))}


def place_of_arm(row: dict[str, Any]) -> tuple[Any, ...]:
    """Sort key for the rows of a table: the arm's place in ORDER, then its label, numbers in it by size (k=2, k=10)."""
    arm, label = row["arm"], row.get("label") or row["arm"]
    known = ORDER.index(arm) if arm in ORDER else len(ORDER)
    return known, _by_size(arm), _by_size(label)


def _by_size(text: str) -> list[tuple[int, str]]:
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", text)]


def _chosen(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """(episodes of one run per cell and seed, notes on the other runs): the furthest run, on a tie the last by name."""
    runs = frame.sort_values("index").drop_duplicates("run_dir", keep="last").sort_values(["index", "run_dir"])
    left = runs[runs.duplicated(["cell", "seed"], keep="last")]
    return frame[~frame["run_dir"].isin(left["run_dir"])], notes.left_out(left)


def _labels(table: pd.DataFrame, settings: dict[str, dict[str, str]]) -> list[str]:
    """A label for each row: the arm, with the settings that distinguish cells of this arm in any block.

    They are taken over all blocks, so that a configuration has the same label in each. Cells that still share a label
    get a suffix: the other settings in which they differ, or the first characters of the cell's id.
    """
    label_of: dict[str, str] = {}  # by cell
    for _, arm in table.groupby(["arm", table["overridden"].map(_without_columns)], dropna=False):
        blocks = [block for _, block in arm.groupby(list(BLOCK), dropna=False)]
        differing = [key for key in COLUMNS if any(block[key].astype(str).nunique() > 1 for block in blocks)]
        label_of |= {row["cell"]: named(row["arm"], _label_words(row, differing)) for row in rows_of(arm)}
    alike = defaultdict(list)  # the name of one arm may be another's with its settings
    for cell, *block in table[["cell", *BLOCK]].itertuples(index=False):
        alike[label_of[cell], *block].append(cell)
    more = {cell: suffix for cells in alike.values() for cell, suffix in _suffixes(cells, settings).items()}
    return [label_of[cell] + more[cell] for cell in table["cell"]]


def _suffixes(cells: list[str], settings: dict[str, dict[str, str]]) -> dict[str, str]:
    """{cell: a suffix that distinguishes it from the others with the same label}; "" for a single cell."""
    if len(cells) == 1:
        return {cells[0]: ""}
    keys = {key for cell in cells for key in settings[cell]}
    values = {key: [str(settings[cell].get(key)) for cell in cells] for key in sorted(keys)}
    values = {key: each for key, each in values.items() if len(set(each)) > 1}
    words = ["".join(f" {key}={each[place]}" for key, each in values.items()) for place in range(len(cells))]
    if len(values) > MAX_LABEL_SETTINGS or len(set(words)) < len(cells) or max(map(len, words)) > MAX_LABEL_CHARS:
        words = [f" #{cell[:4]}" for cell in cells]
    return dict(zip(cells, words, strict=True))


def _without_columns(overridden: str) -> str:
    """The words by which a run departs from its arm, without those of a column; with what changes its workflow."""
    told = {key for key in COLUMNS.values() if not key.startswith("workflow")}
    return " ".join(word for word in overridden.split() if word.partition("=")[0] not in told)


def _label_words(row: dict[str, Any], differing: list[str]) -> list[str]:
    """How a cell departs from its arm, and the columns in which cells of the arm differ: words "key=value", sorted."""
    said = {word.partition("=")[0]: word for word in row["overridden"].split()}
    more = {key: f"{key}={short(row[key])}" for key in differing if not {key, f"workflow.{key}"} & {*said}}
    told = {COLUMNS[key] for key in more}
    return sorted([*(word for key, word in said.items() if key not in told), *more.values()])


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its blocks in the order in which they first occur, and the arms of each by `place_of_arm`."""
    blocks = table.groupby(list(BLOCK), sort=False).ngroup()
    keys = [(block, *place_of_arm(row)) for block, row in zip(blocks, rows_of(table), strict=True)]
    return table.iloc[sorted(range(len(keys)), key=keys.__getitem__)].reset_index(drop=True)


def _compared(cells: Cells, baseline: str, command: str) -> Cells:
    """The cells with the paired difference to their block's baseline, and Holm's p over the table."""
    import pandas as pd

    rows, lines = [], list(cells.notes)
    table = cells.table
    tokens = {row["cell"]: row["tokens"] for row in rows_of(table)}
    bases = {}
    for block, group in table.groupby(list(BLOCK), sort=False):
        words = [baseline in label.split()[1:] for label in group["label"]]
        shared = set.intersection(*({*words.split()} for words in group["overridden"]))  # tells no cell apart
        as_named = (group["arm"] == baseline) & group["overridden"].map(
            lambda words, shared=shared: {*words.split()} <= shared
        )
        alone = (group["workflow"] == "vanilla") & (baseline == "no_memory")  # in a block of two passes
        ways = (group["label"] == baseline, as_named, words, alone)
        candidates = next((fitting for way in ways if len(fitting := group[way])), group[:0])
        bases[block] = candidates.iloc[0]["cell"] if len(candidates) == 1 and candidates.iloc[0]["n"] else None
        if bases[block] is None and len(group) > 1:
            lines += notes.no_baseline(block, baseline, rows_of(candidates), rows_of(group), command)
    for row in _for_notes(table):
        base = bases[tuple(row[key] for key in BLOCK)]
        rows.append({"base": base})
        if base is None or base == row["cell"] or not row["n"]:
            continue
        mine, other = cells.episodes(row["cell"]), cells.episodes(base)
        rows[-1] |= against(mine, other, mine) | gain(mine, other) | over_types(mine, other) | scope(mine, other)
        rows[-1] |= among_answers(mine, other) | {"times_tokens": _times(tokens.get(row["cell"]), tokens.get(base))}
        lines += notes.without_partner(row["label"], mine, other) + notes.other_settings(row["label"], mine, other)
    correct(rows)
    effects = pd.DataFrame(rows, columns=["base", *COMPARED])
    effects = effects.astype(dict.fromkeys(("p", "p_worst", "p_holm", "p_worst_holm"), float))
    effects = effects.rename(columns={"low": "difference_low", "high": "difference_high"})
    table = pd.concat([table, effects], axis=1)
    rows = _for_notes(table)
    return Cells(table=table, frame=cells.frame, notes=[*lines, *notes.verdicts(rows), *notes.not_answered(rows)])


def _times(mine: float | None, base: float | None) -> float | None:
    return mine / base if mine is not None and base else None


def short(value: Any) -> str:
    """A value as written in a label or a command: 1.0 as "1", as pandas makes integers floats in a column with NaN."""
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries, with None (unknown) in place of pandas' NaN."""
    rows = table.to_dict("records")
    return [{k: None if isinstance(v, float) and v != v else v for k, v in row.items()} for row in rows]


def _for_notes(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows with labels for use in notes: "LABEL on ENV, MODEL", naming env and model only if there are several."""
    where = [key for key in ("env", "model") if table[key].nunique() > 1]
    return [
        row | {"label": " on ".join([row["label"], *([", ".join(str(row[key]) for key in where)] if where else [])])}
        for row in rows_of(table)
    ]
