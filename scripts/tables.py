"""Finished runs as a table: arms in rows, benchmarks in columns; or as one of the paper's tables.

    python -m scripts.tables RUNS... [--table matrix]... [--format terminal] [--baseline no_memory] [--partial]
                                     [--published] [-o FILE]

RUNS are run directories or folders of them. Nothing is averaged or compared across environments, models or sets of
tasks: in the matrix each has a column, in the other tables (--table main, cost, learning, ...) a table of its own. With
every success rate stand its episodes, errors (in no denominator) and, where it is not the judging model, the source of
the labels. A run that did not finish is named and left out; --partial counts it and marks the cell with *.
Without --format a terminal gets aligned columns as wide as it is, and a file or a pipe Markdown; csv has the numbers
unrounded, one line a cell. Published numbers stand below where tasks and model are the same; --published shows the
others too, with why they are not comparable. Exit 1 when a cell of an experiment has no finished run.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from analysis.funnel import build_funnel
from analysis.looks import look
from analysis.matrix import build_matrix
from analysis.tables import TABLES, build_tables, load_episodes
from analysis.text_table import FORMATS, TextTable, show
from analysis.transfer import build_transfer
from core.console import Console
from core.errors import UserError
from core.escaping import spreadsheet
from scripts.command_line import parser, plain_errors

DEFAULT = "matrix"
OWN = {DEFAULT: build_matrix, "funnel": build_funnel, "transfer": build_transfer}  # tables that are no row a cell


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__, runs=True)
    tables = (*OWN, *TABLES)
    options.add_argument("--table", action="append", choices=tables, help="again for another one (default: matrix)")
    options.add_argument("--format", choices=("terminal", *FORMATS, "csv"), help="default: terminal, or md in a pipe")
    options.add_argument("--baseline", help="a label or an arm; the table's own where not given")
    options.add_argument("--partial", action="store_true", help="count runs that did not finish, marked with *")
    options.add_argument(
        "--published", action="store_true", help="also published rows that are not comparable, and why"
    )
    options.add_argument("-o", "--output", type=Path)
    given = options.parse_args(arguments)
    kind = given.format or ("terminal" if sys.stdout.isatty() and not given.output else "md")
    frame, names = load_episodes(given.runs), given.table or [DEFAULT]
    if kind == "csv" and len(names) > 1:
        raise UserError("--format csv writes one table: give one --table.")
    words = [word for name in given.table or () for word in ("--table", name)]
    more = {
        "baseline": given.baseline,
        "partial": given.partial,
        "every_published": given.published,
        "command": shlex.join(["python", "-m", "scripts.tables", *given.runs, *words]),
    }
    made = [OWN[name](frame, **more) if name in OWN else build_tables(frame, name, **more) for name in names]
    texts = [text for _, found in made for text in found]
    looks = look(given.runs, frame)
    made[-1][1][0].notes.extend(looks)
    if kind == "csv":
        for note in (*made[0][0].notes, *looks):
            print(note, file=sys.stderr)
        write(made[0][0].table.map(spreadsheet).rename(columns=spreadsheet).to_csv(index=False), given.output)
    elif kind == "terminal":
        print_tables(texts, given.output)
    else:
        write("\n".join(FORMATS[kind](each) for each in texts), given.output)
    return int(any(note.startswith("missing: ") for each in texts for note in each.notes))


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
