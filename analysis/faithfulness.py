"""What an agent uses of its memory: the lessons' content, their length, the form of the block, or nothing of it.

Each question compares two arms of experiment=faithfulness that differ in one property of what is shown:

    no_memory -> empty_block (the frame) -> placebo (text of the lessons' length) -> corrupt (lessons made false)
              -> reasoningbank (what they say)

The interventions are those of "experience faithfulness" (arXiv 2601.22436), tested as every table here: paired on tasks
and seeds, Holm's p over the questions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.cells import BLOCK, Cells, rows_of
from analysis.columns import interval, p_value
from analysis.pairing import against
from analysis.tables import build_tables, print_tables, whole_name
from analysis.text_table import TextTable
from analysis.verdict import VERDICTS, comparison_outcome, correct, unended

if TYPE_CHECKING:
    import pandas as pd

    from core.console import Console

# (arm, than) -> the comparison of two arms, a row as `analysis.pairing.against` makes it, with `differs`, the share of
# pairs in which they were shown something else (left out: all); None: not run
Compare = Callable[[str, str], dict[str, Any] | None]
TABLE = "faithfulness"
EFFECT = 0.10  # a difference of this size counts: "not used" is said where the interval leaves it out
USED, NOT_USED, UNKNOWN = "used", "not used", "not known"
_EMPTY = {"p": None, "difference": None}  # a comparison that was not made
HEAD = ["does the agent use ...", "arms", "difference [95 %]", "p (Holm)", "answer"]


@dataclass(frozen=True, kw_only=True)
class Use:
    """A question: does the agent use this property of what it is shown?

    pairs   (arm with the property, arm without it); used if one of the pairs differs, in either direction
    causes  whether the answer names it as what the agent uses; the others say more about it
    """

    name: str
    pairs: tuple[tuple[str, str], ...]
    causes: bool = True


USES = (
    Use(name="form: a block before the task, nothing in it", pairs=(("empty_block", "no_memory"),)),
    Use(name="length: text in it that says nothing", pairs=(("placebo", "empty_block"),)),
    Use(name="content: what its lessons say", pairs=(("reasoningbank", "placebo"), ("reasoningbank", "corrupt"))),
    Use(name="which lesson it is", pairs=(("reasoningbank", "random_retrieval"),), causes=False),
    Use(name="the right lesson, where it is told", pairs=(("told_lesson", "placebo"),), causes=False),
    Use(name="its last attempts as they were", pairs=(("recent", "no_memory"),), causes=False),
    Use(name="all attempts as they were", pairs=(("history", "no_memory"),), causes=False),
    Use(name="the order of their steps", pairs=(("recent", "shuffle"),), causes=False),
)


def build_faithfulness(frame: pd.DataFrame, *, partial: bool = False, **more: Any) -> tuple[Cells, list[TextTable]]:
    """The table of the arms, with how much each was shown, and for each benchmark and model what the agent uses.

    The arguments are those of `analysis.tables.build_tables`.
    """
    cells, texts = build_tables(frame, TABLE, partial=partial, **more)
    made = []
    for block, rows in cells.table.groupby(list(BLOCK), sort=False):
        first, of_arms = rows_of(rows)[0], cells_of_arms(rows_of(rows))
        arms = {arm: cells.episodes(found[0]) for arm, found in of_arms.items() if len(found) == 1}
        left_out = [
            f"{arm}: left out, as it has {len(found)} cells." for arm, found in of_arms.items() if arm not in arms
        ]
        going_on = {row["arm"] for row in rows_of(rows) if unended(row)}
        found = uses_of(comparing(arms, going_on))
        title = f"What the agent uses: {whole_name(first)}, {block[1]}, {first['n_tasks']} tasks"
        made.append(
            TextTable(title=title, head=HEAD, rows=[*map(_line, found)], notes=[sentence(found), NOTE, *left_out])
        )
    return cells, [*made, *texts]


def cells_of_arms(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """{arm: its cells}: of several the plain one. Words typed for all arms (retrieval.top_k=2) are in no plain one."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["arm"], []).append(row)
    plain = {arm: [row for row in own if row["label"] == arm] for arm, own in found.items()}
    return {arm: [row["cell"] for row in plain[arm] or own] for arm, own in found.items()}


def print_faithfulness(folder: Path, console: Console) -> None:
    """Print the tables of a folder, as at the end of a sweep."""
    print_tables(build_faithfulness, folder, console)


def uses_of(compare: Compare) -> list[dict[str, Any]]:
    """For each question {use, rows: its comparisons, answer}. Compare: of two arms; None where one was not run."""
    asked = [
        (use, [_EMPTY | {"arm": arm, "than": than} | (compare(arm, than) or {}) for arm, than in use.pairs])
        for use in USES
    ]
    correct([row for _, rows in asked for row in rows])
    return [{"use": use, "rows": rows, "answer": _answer(rows)} for use, rows in asked]


def comparing(arms: dict[str, pd.DataFrame], going_on: Collection[str] = ()) -> Compare:
    """Compares two arms by their episodes. arms: {arm: episodes}; going_on: those with runs that did not finish."""

    def compare(arm: str, than: str) -> dict[str, Any] | None:
        if not all(name in arms and len(arms[name]) for name in (arm, than)):
            return None
        mine, other = arms[arm], arms[than]
        pairs = mine.merge(other, on=["task_id", "visit", "seed"], suffixes=("", "_than"))
        differs = float((pairs["blocks"] != pairs["blocks_than"]).mean()) if len(pairs) else 0.0
        return against(mine, other, mine) | {"partial": not {arm, than}.isdisjoint(going_on), "differs": differs}

    return compare


def _answer(rows: list[dict[str, Any]]) -> str:
    """Where the arms were shown the same, nobody knows what another text would do: EFFECT is of the others alone."""
    outcomes = [UNKNOWN if row["difference"] is None else comparison_outcome(row) for row in rows]
    if not {*VERDICTS}.isdisjoint(outcomes):
        return USED
    small = [
        out == "same" and max(-row["low"], row["high"]) < EFFECT * row.get("differs", 1.0)
        for out, row in zip(outcomes, rows, strict=True)
    ]
    return NOT_USED if all(small) else UNKNOWN


def causes_of(found: list[dict[str, Any]]) -> list[str]:
    """What the agent uses, by the name of each property; ["nothing"], or [] where that is not known."""
    asked = [each for each in found if each["use"].causes]
    used = [each["use"].name.partition(":")[0] for each in asked if each["answer"] == USED]
    return used or (["nothing"] if all(each["answer"] == NOT_USED for each in asked) else [])


def sentence(found: list[dict[str, Any]]) -> str:
    """The answer in one sentence."""
    causes = causes_of(found)
    if not causes:
        return "Not known what the agent uses: no use of form, length or content was shown, nor excluded for all three."
    told = next((each for each in found if each["use"].pairs == (("told_lesson", "placebo"),)), None)
    more = ""
    if "content" not in causes and told and told["answer"] == USED:
        more = ", though it would use the content of right lessons (told_lesson)"
    return f"The agent uses {' and '.join(causes)}{' of what it is shown' if causes == ['nothing'] else ''}{more}."


NOTE = (
    "Used: a comparison of the line differs, better or worse, with Holm's p under 0.05. Not used: the 95 % interval of "
    f"each leaves out {100 * EFFECT:g} points either way, of the tasks on which the two saw different texts. "
    "Not known: neither; more seeds may tell. The next table has "
    "what each arm was shown: a control should have the lessons, tokens and place of what it replaces."
)
_INTERVAL, _P = interval("difference", "low", "high", "+"), p_value("p_holm")


def _line(found: dict[str, Any]) -> list[str]:
    rows = found["rows"]
    arms = [f"{row['arm']} - {row['than']}" for row in rows]
    values = ("\n".join(map(write, rows)) for write in (_INTERVAL, _P))
    return [found["use"].name, "\n".join(arms), *values, found["answer"]]
