"""The order of arms in every table: the paper's, then what this project adds, then one's own by name."""

from __future__ import annotations

import re
from typing import Any

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
LABELS = tuple(f"labels_{name}" for name in ("llm", "heuristic", "consensus", "self_consistency", "truth"))
CONTROL = tuple("told_random told_lesson told_bank true_labels quote key_item top_3 lexical rrf quote_key_item".split())
REFERENCES = ("random", "gold")  # agents without a model: the floor and the ceiling
ORDER = (*PAPER, *(f"matts_{name}" for name in SCALED), *ABLATIONS, *LABELS, *CONTROL, *REFERENCES)


def place_of_arm(row: dict[str, Any]) -> tuple[Any, ...]:
    """A key to sort the rows of a table by: the arm's place, then its label, numbers in it by size (k=2, k=10)."""
    arm, label = row["arm"], row.get("label") or row["arm"]
    known = ORDER.index(arm) if arm in ORDER else len(ORDER)
    return known, _by_size(arm), _by_size(label)


def _by_size(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]
