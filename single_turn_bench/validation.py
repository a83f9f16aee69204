"""The gold answer of every problem must pass the problem's own grader: bare, in a box, and in its whole solution."""

from __future__ import annotations

from pathlib import Path

from core.errors import UserError
from single_turn_bench.boxes import boxed_answer
from single_turn_bench.choice import LETTERS, extract_choice, shuffle_options
from single_turn_bench.datasets import Dataset, absent, load_rows
from single_turn_bench.equivalence import MathGrader, grade_response
from single_turn_bench.rows import Row
from single_turn_bench.specs import SPECS


def validate(names: list[str], path: Path | None, grader: MathGrader) -> int:
    """Prints the ids that fail and `NAME N/N` for each dataset; 1 when any failed. Without names: all that are here."""
    any_failed = False
    for name in names or list(SPECS):
        dataset = load(name, path, must=bool(names))
        if dataset is None:
            continue
        failed = [row.id for row in dataset.rows if not passes(row, grader)]
        for task_id in failed:
            print(f"{task_id}: the gold answer fails its own grader")
        print(f"{name} {len(dataset.rows) - len(failed)}/{len(dataset.rows)}", flush=True)
        any_failed = any_failed or bool(failed)
    return int(any_failed)


def load(name: str, path: Path | None, must: bool) -> Dataset | None:
    """The dataset; when it need not be there and is not, a line that says so."""
    try:
        return load_rows(name, path)
    except UserError as error:
        missing = name in SPECS and ("holds no file" in str(error) or str(error) == absent(SPECS[name]))
        if must or not missing:
            raise
        print(f"{name} is not here")
        return None


def passes(row: Row, grader: MathGrader) -> bool:
    """Choices: the letter under three option orders. Mathematics: each way in which the gold answer is written."""
    if row.options is None:
        return all(grade_response(text, row.answer, grader) for text in responses(row))
    for seed in range(3):
        shown, letter, _ = shuffle_options(row.options, row.answer_index, seed, row.id)
        right = shown[LETTERS.index(letter)] == row.options[row.answer_index]
        if not right or extract_choice(f"The answer is ({letter}).", len(shown)) != letter:
            return False
    return True


def responses(row: Row) -> list[str]:
    """What a model that is right may write."""
    texts = [row.answer, rf"Therefore the answer is $\boxed{{{row.answer}}}$.", f"So it is this.\n#### {row.answer}"]
    solution = row.solution or ""
    if "####" in solution or boxed_answer(solution):
        texts.append(solution)
    return texts
