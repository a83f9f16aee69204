"""Finished runs as the paper's tables.

    python -m scripts.tables RUNS... [--table main]... [--format md] [--baseline no_memory] [--partial] [-o FILE]

RUNS are run directories or folders of them. Each env, model and set of tasks gets a table of its own: nothing is
averaged or compared across them. With every success rate stand its seeds, tasks, errors (in no denominator) and the
source of the labels. A run that did not finish is named and left out; --partial counts it and marks the cell with *.
--format csv gives the numbers unrounded, one line a cell. Exit 1 when a cell of the table has no finished run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from core.errors import UserError
from results.render import FORMATS
from results.tables import DEFAULT, TABLES, build_tables, load_episodes
from scripts.command_line import parser, plain_errors


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__, runs=True)
    options.add_argument("--table", action="append", choices=TABLES, help="again for another one (default: main)")
    options.add_argument("--format", choices=(*FORMATS, "csv"), default="md")
    options.add_argument("--baseline", help="a label or an arm; the table's own where not given")
    options.add_argument("--partial", action="store_true", help="count runs that did not finish, marked with *")
    options.add_argument("-o", "--output", type=Path)
    given = options.parse_args(arguments)
    frame, names = load_episodes(given.runs), given.table or [DEFAULT]
    if given.format == "csv" and len(names) > 1:
        raise UserError("--format csv writes one table: give one --table.")
    made = [build_tables(frame, name, baseline=given.baseline, partial=given.partial) for name in names]
    texts = [text for _, found in made for text in found]
    if given.format == "csv":
        text = made[0][0].table.to_csv(index=False)
        for note in made[0][0].notes:
            print(note, file=sys.stderr)
    else:
        text = "\n".join(FORMATS[given.format](each) for each in texts)
    if given.output:
        given.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return int(any(note.startswith("missing: ") for each in texts for note in each.notes))


if __name__ == "__main__":
    sys.exit(main())
