"""Print finished runs as a table: arms in rows, benchmarks in columns; or as one of the paper's tables.

    reasoningbank tables RUNS... [--table matrix]... [--columns NAME,...] [--format terminal] [--baseline no_memory]
                                     [--partial] [--published] [-o FILE]

RUNS are run directories or folders of them. Nothing is averaged or compared across environments, models or sets of
tasks: in the matrix each has its own column, and in the other tables (--table main, cost, learning, ...) its own table.
An experiment's file (config/experiment) names its tables and their columns; --columns makes one of all runs.
Beside each success rate are the numbers of its episodes and of errors (which are in no rate), and the source of the
labels if it is not the judging model. An unfinished run is named and left out; --partial counts it and marks its cell
with *. Without --format, a terminal gets aligned columns that fit its width, and a file or pipe gets Markdown; csv has
unrounded numbers, one line per cell. Published numbers for the same tasks and model are printed below; --published
also prints others, with the reason why they are not comparable. Exit status 1: a cell of an experiment has no finished
run.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from analysis.cells import Cells
from analysis.faithfulness import build_faithfulness
from analysis.funnel import build_funnel
from analysis.matrix import build_matrix
from analysis.tables import build_tables, columns_named, every_run, load_episodes, tables
from analysis.text_table import FORMATS, TextTable, show
from analysis.verdict import ONE_TABLE
from core.console import Console
from core.errors import UserError, check_returned, meant
from core.escaping import spreadsheet
from core.make import imported
from scripts.command_line import parser, plain_errors

DEFAULT = "matrix"
# {table: what builds it}
BUILDERS = {DEFAULT: build_matrix, "funnel": build_funnel, "faithfulness": build_faithfulness}


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__, runs=True)
    what = "matrix, funnel, all, one of an experiment (main, cost, ...), or PACKAGE.MODULE.FUNCTION of your own"
    options.add_argument(
        "--table", action="append", metavar="NAME", help=f"{what}; again for another one (default: matrix)"
    )
    options.add_argument("--columns", metavar="NAME,...", help="a table of every run with these columns")
    options.add_argument("--format", choices=("terminal", *FORMATS, "csv"), help="default: terminal, or md in a pipe")
    options.add_argument("--baseline", help="a label or an arm; the table's own where not given")
    options.add_argument("--partial", action="store_true", help="count runs that did not finish, marked with *")
    options.add_argument(
        "--published", action="store_true", help="also published rows that are not comparable, and why"
    )
    options.add_argument("-o", "--output", type=Path)
    given = options.parse_args(arguments)
    kind = given.format or ("terminal" if sys.stdout.isatty() and not given.output else "md")
    names = [*(given.table or ()), *(["--columns"] if given.columns else ())] or [DEFAULT]
    own = every_run(columns_named(given.columns)) if given.columns else None
    builders = [partial(build_tables, name=own) if name == "--columns" else builder(name) for name in names]
    frame = load_episodes(given.runs)
    if kind == "csv" and len(names) > 1:
        raise UserError("--format csv writes one table: give one --table.")
    words = [word for name in given.table or () for word in ("--table", name)]
    words += ["--columns", given.columns] if given.columns else []
    more = {
        "baseline": given.baseline,
        "partial": given.partial,
        "every_published": given.published,
        "command": shlex.join(["reasoningbank", "tables", *given.runs, *words]),
    }
    made = [build(frame, **more) for build in builders]
    for name, found in zip(names, made, strict=True):
        check_returned(is_table(found), name, "(Cells, a list of at least one TextTable)", found)
    if given.baseline is not None:
        refuse_unknown(given.baseline, frame, made[0][0].table)
    texts = [text for _, found in made for text in found]
    if kind == "csv":
        cells = made[0][0]
        compared = "p_holm" in cells.table and cells.table["p_holm"].notna().any()
        for note in (*cells.notes, *([ONE_TABLE] if compared else [])):
            print(note, file=sys.stderr)
        write(cells.table.map(spreadsheet).rename(columns=spreadsheet).to_csv(index=False), given.output)
    elif kind == "terminal":
        print_tables(texts, given.output)
    else:
        write("\n".join(FORMATS[kind](each) for each in texts), given.output)
    return int(any(note.startswith("missing: ") for each in texts for note in each.notes))


def builder(name: str) -> Callable[..., Any]:
    """What builds a table: one of BUILDERS, or the user's own function of this dotted name (CONTRIBUTING.md)."""
    if name in BUILDERS:
        return BUILDERS[name]
    if name in tables():
        return partial(build_tables, name=name)
    if "." not in name:
        raise UserError(
            f"--table {name}: give {', '.join((*BUILDERS, *tables()))}, or PACKAGE.MODULE.FUNCTION of your own."
        )
    build = imported(name, f"--table {name}")
    if not callable(build):
        raise UserError(f"--table {name} is no function: give PACKAGE.MODULE.FUNCTION.")
    return build


def refuse_unknown(baseline: str, frame: Any, cells: Any) -> None:
    """Raise UserError for a --baseline that no run has as its arm, and no row as its label or a word of its label."""
    labels = cells.get("label", ())
    known = {*frame["arm"], *labels, *(word for label in labels for word in label.split())}
    if baseline not in known:
        raise UserError(f"--baseline {baseline}: no arm of these runs is called so{meant(baseline, sorted(known))}")


def is_table(found: Any) -> bool:
    """Whether a function of the user's has returned what a table is."""
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Cells)):
        return False
    return isinstance(found[1], list) and found[1] and all(isinstance(text, TextTable) for text in found[1])


def print_tables(texts: list[TextTable], output: Path | None) -> None:
    """As in a terminal; in a file without its colours."""
    if output is None:
        console = Console()
        for text in texts:
            show(console, text)
        return
    with output.open("w", encoding="utf-8", newline="\n") as file:
        print_to = Console(file=file)
        for text in texts:
            show(print_to, text)


def write(text: str, output: Path | None) -> None:
    """To the file, or where there is none to stdout."""
    if output:
        output.write_text(text, encoding="utf-8", newline="\n")
    else:
        print(text, end="")


if __name__ == "__main__":
    sys.exit(main())
