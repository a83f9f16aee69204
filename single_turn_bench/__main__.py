"""reasoningbank questions validate [NAME...] [--path DIR] [--columns COLUMNS] [env.columns.KEY=COLUMN...]
                                                   shows each first question as a model reads it; every gold answer
                                                   passes its own grader
reasoningbank questions grade FILE.jsonl[.gz]      agreement of the graders with labelled answers

Labelled are rows {gold, pred or response, expected} for mathematics, and with n_options for choices, where the label is
the letter `rule_pred` (rows without a letter do not count) or `expected`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from core.errors import UserError
from core.terminal import open_standard_streams
from core.version import VersionAction
from single_turn_bench.answers import extract_answer
from single_turn_bench.boxes import boxed_answer
from single_turn_bench.choice import LETTERS, extract_choice, find_choice, lettered, order_matters, shown_options
from single_turn_bench.columns import Columns
from single_turn_bench.datasets import load_rows, locate
from single_turn_bench.equivalence import MathGrader, grade_response
from single_turn_bench.files import read_objects
from single_turn_bench.rows import Row
from single_turn_bench.specs import SPECS

WIDTH = 80


def main(argv: list[str] | None = None) -> int:
    """The exit code: 0, 1 when a gold answer fails, 2 with one sentence for bad input."""
    open_standard_streams()
    top = argparse.ArgumentParser(prog="reasoningbank questions", description="Datasets and graders by themselves.")
    top.add_argument("--version", action=VersionAction)
    commands = top.add_subparsers(dest="command", required=True)
    check = commands.add_parser("validate", help="check that every gold answer passes its own grader")
    check.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(SPECS)}, or a file; all that are here when left out"
    )
    check.add_argument(
        "--columns",
        type=columns,
        default={},
        metavar="COLUMNS",
        help="as env.columns: '{question: q, options: [a, b]}'",
    )
    check.add_argument("--path", type=Path, help="a file of the one dataset named, or a folder that holds the files")
    grade = commands.add_parser("grade", help="grade labelled answers and list the disagreements")
    grade.add_argument("file", type=Path, help="rows of gold, pred or response, expected (or n_options and rule_pred)")
    arguments = top.parse_args(argv)
    try:
        with MathGrader() as grader:
            if arguments.command == "grade":
                return agreement(arguments.file, grader)
            said = [name for name in arguments.names if name.startswith("env.") and "=" in name]
            names = [name for name in arguments.names if name not in said]
            return validate(names, arguments.path, grader, with_columns(arguments.columns, said))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


def columns(text: str) -> dict[str, Any]:
    """`env.columns` of a command line."""
    try:
        return {**yaml.safe_load(text)}
    except (TypeError, yaml.YAMLError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not as '{{question: q, answer: gold}}'") from error


def with_columns(said: dict[str, Any], words: list[str]) -> Columns | None:
    """The columns, changed by words like env.columns.question=q or env.columns={question: q}, as a run takes them."""
    from omegaconf import OmegaConf

    given = OmegaConf.to_object(OmegaConf.from_dotlist(words)).get("env", {})
    if other := given.keys() - {"columns"}:
        raise UserError(f"env.{min(other)} is not taken here: of a run's keys only env.columns is.")
    return Columns.of({**said, **(given.get("columns") or {})})


def validate(names: list[str], path: Path | None, grader: MathGrader, said: Columns | None = None) -> int:
    """Prints the ids that fail and `NAME N/N` for each dataset; 1 when any failed. Without names: all that are here."""
    any_failed = False
    if not names and path is not None and path.is_file():
        names, path = [str(path)], None
    for name in names or SPECS:
        if not names and not locate(SPECS[name], path):
            print(f"{name} is not here")
            continue
        rows = load_rows(name, path, columns=said).rows
        shuffle = name in SPECS and SPECS[name].shuffled
        print(f"{name}: the first question as a model reads it, and its answer\n\n{preview(rows[0], shuffle)}\n")
        if fixed := sum(order_matters(row.options) for row in rows if row.options):
            print(f"{name}: rows that keep the order of their options, as one names others: {fixed} of {len(rows)}")
        failed = [row.id for row in rows if not passes(row, grader)]
        for task_id in failed:
            print(f"{task_id}: the gold answer fails its own grader")
        print(f"{name} {len(rows) - len(failed)}/{len(rows)}", flush=True)
        any_failed = any_failed or bool(failed)
    return int(any_failed)


def preview(row: Row, shuffle: bool) -> str:
    """A question with its options, as seed 0 shows them, and the gold answer, indented."""
    shown, letter = (), ""
    if row.options is not None:
        shown, letter, _ = shown_options(row.options, row.answer_index, 0, row.id, shuffle=shuffle)
    asked = f"{row.question}\n\n{lettered(shown)}" if shown else row.question
    gold = f"({letter}) {shown[LETTERS.index(letter)]}" if shown else " | ".join([row.answer, *row.accepted])
    return "\n".join(f"    {line}".rstrip() for line in [*asked.split("\n"), "", f"gold: {gold}"])


def passes(row: Row, grader: MathGrader) -> bool:
    """Choices: the letter under three option orders. Mathematics: each way in which the gold answer is written."""
    if row.options is None:
        others = all(grade_response(rf"\boxed{{{text}}}", text, grader) for text in row.accepted)
        return others and all(grade_response(text, row.answer, grader) for text in responses(row))
    for seed in range(3):
        shown, letter, _ = shown_options(row.options, row.answer_index, seed, row.id, shuffle=True)
        right = shown[LETTERS.index(letter)] == row.options[row.answer_index]
        if not right or extract_choice(f"The answer is ({letter}).", len(shown)) != letter:
            return False
    return True


def responses(row: Row) -> list[str]:
    """What a model that is right may write: the bare answer, one in a box or behind a mark, a whole solution."""
    texts = [row.answer, rf"Therefore the answer is $\boxed{{{row.answer}}}$.", f"So it is this.\n#### {row.answer}"]
    solution = row.solution or ""
    return [*texts, solution] if "####" in solution or boxed_answer(solution) else texts


def agreement(path: Path, grader: MathGrader) -> int:
    """Prints each disagreement with its line, and last `agree X/N`."""
    n = agreed = 0
    for where, raw in read_objects(path):
        wanted, got, read = grade_row(raw, where, grader)
        if wanted is None:
            continue
        n += 1
        agreed += got == wanted
        if got != wanted:
            print(f"{where}: expected {wanted}, got {got} | gold {short(raw['gold'])} | {read}")
    if n == 0:
        raise UserError(f"{path.name} holds no labelled row.")
    print(f"agree {agreed}/{n}")
    return 0


def grade_row(raw: dict, where: str, grader: MathGrader) -> tuple[Any, Any, str]:
    """The label, our grade, and what was read out of the response by which rule.

    The label is None for a choice row in whose response the reference rules found no letter.
    """
    response = raw.get("response", raw.get("pred"))
    for name, value in (("gold", raw.get("gold")), ("pred' or 'response", response)):
        if not isinstance(value, str):
            raise UserError(f"{where}: no text in a field '{name}'.")
    expected = raw.get("expected")
    if "n_options" not in raw:
        if not isinstance(expected, bool):
            raise UserError(f"{where}: no true or false in a field 'expected'.")
        found = extract_answer(response)
        return expected, grade_response(response, raw["gold"], grader), f"{found.rule} {short(found.answer)}"
    n_options = raw["n_options"]
    if not isinstance(n_options, int) or not 1 <= n_options <= len(LETTERS):
        raise UserError(f"{where}: 'n_options' is a number from 1 to {len(LETTERS)}.")
    found = find_choice(response, n_options)
    read = f"{found.rule} {found.answer} in ...{short(response[-WIDTH:])}"
    if "rule_pred" in raw:
        return raw["rule_pred"], found.answer, read
    if not isinstance(expected, bool):
        raise UserError(f"{where}: no field 'rule_pred' or 'expected'.")
    return expected, found.answer == raw["gold"].strip().upper(), read


def short(text: str | None) -> str:
    """On one line, without control characters, at most WIDTH characters."""
    shown = repr(text)
    return shown if len(shown) <= WIDTH else shown[: WIDTH - 4] + "...'"


if __name__ == "__main__":
    sys.exit(main())
