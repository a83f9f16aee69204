"""Finished runs as the paper's tables.

    python -m scripts.tables RUNS... [--table main]... [--format md] [--baseline no_memory] [--partial] [-o FILE]

RUNS are run directories or folders of them. Each env, model and set of tasks gets a table of its own: nothing is
averaged or compared across them. With every success rate stand its seeds, tasks, errors (in no denominator) and the
source of the labels. A run that did not finish is named and left out; --partial counts it and marks the cell with *.
--format csv gives the numbers unrounded, one line a cell. Exit 1 when a cell of the table has no finished run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from core.errors import UserError
from results.render import FORMATS
from results.tables import TABLES, build_tables, load_episodes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUNS")
    parser.add_argument("--table", action="append", choices=TABLES, help="again for another one (default: main)")
    parser.add_argument("--format", choices=(*FORMATS, "csv"), default="md")
    parser.add_argument("--baseline", help="a label or an arm; the table's own where not given")
    parser.add_argument("--partial", action="store_true", help="count runs that did not finish, marked with *")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(arguments)
    try:
        frame, names = load_episodes(given.runs), given.table or ["main"]
        if given.format == "csv" and len(names) > 1:
            raise UserError("--format csv writes one table: give one --table.")
        made = [build_tables(frame, name, baseline=given.baseline, partial=given.partial) for name in names]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.format == "csv":
        text = made[0][0].table.to_csv(index=False)
    else:
        texts = [text for _, found in made for text in found]
        text = "\n".join(FORMATS[given.format](each) for each in texts)
    if given.output:
        given.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return int(any(note.startswith("missing: ") for _, texts in made for each in texts for note in each.notes))


if __name__ == "__main__":
    sys.exit(main())
