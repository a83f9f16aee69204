"""Make one HTML page of runs: result, tables, plots, bank and every episode, in a file that any browser shows offline.

    reasoningbank report RUNS... -o FILE.html  [--baseline ARM] [--partial] [--table NAME]... [--title TEXT]
    reasoningbank report RUNS... --figures DIR [--format pdf]... [--baseline ARM] [--partial]

RUNS are run directories or folders of them. An unfinished run is shown, but counted only with --partial. --figures
draws the plots alone, as files for a paper: learning curve, success by task type, success against cost, memory growth
and test-time scaling, if the runs have the data for them; one set for each environment, model and set of tasks.
captions.txt has their captions.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from analysis.load import frame_of_columns
from analysis.plots import plots_of
from analysis.report.data import read_packed
from analysis.report.page import build
from analysis.runs import find_runs
from analysis.studies import compared, slug, studies
from analysis.tables import build_tables, load_episodes, tables, with_table_arms
from scripts.command_line import parser, plain_errors


@plain_errors(status=1)
def main(arguments: list[str] | None = None) -> None:
    """Write the page or the figures; 1 with a reason when there is nothing to write."""
    options = parser(__doc__, runs=True)
    to = options.add_mutually_exclusive_group(required=True)
    to.add_argument("-o", "--output", type=Path, metavar="FILE.html")
    to.add_argument("--figures", type=Path, metavar="DIR")
    options.add_argument("--format", action="append", choices=("pdf", "svg", "png"), help="of --figures: pdf and svg")
    options.add_argument("--baseline", help="the arm to compare with (default: no_memory, or its experiment's)")
    options.add_argument("--partial", action="store_true", help="count runs that have not finished, marked as partial")
    options.add_argument("--table", action="append", choices=tables(), help="of `reasoningbank tables` (default: all)")
    options.add_argument("--title", default="ReasoningBank report")
    given = options.parse_args(arguments)
    write_figures(given) if given.figures else write_page(given)


def write_page(given: Namespace) -> None:
    """The page as a file."""
    runs = [read_packed(path) for path in find_runs(given.runs)]
    frame = with_table_arms(frame_of_columns(run.columns for run in runs))
    how = {"baseline": given.baseline, "partial": given.partial}
    texts = [text for name in given.table or ["all"] for text in build_tables(frame, name, **how)[1]]
    page = build(runs, frame, texts, title=given.title, **how)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_bytes(page)
    n_episodes = sum(len(run.rows) for run in runs)
    print(f"{given.output}: {n_episodes:,} episodes of {len(runs)} runs, {len(page) / 1e6:.1f} MB")


def write_figures(given: Namespace) -> None:
    """Every figure as files, and their captions."""
    found = studies(compared(load_episodes(given.runs), given.baseline, given.partial))
    given.figures.mkdir(parents=True, exist_ok=True)
    captions = []
    for number, study in enumerate(found):
        where = f"{slug(study.env)}-{number}-" if len(found) > 1 else ""
        for plot in plots_of(study):
            for kind in given.format or ("pdf", "svg"):
                print(file := given.figures / f"{where}{plot.name}.{kind}")
                moment = {"svg": "Date", "pdf": "CreationDate"}.get(kind)  # two runs of this make the same file
                plot.figure.savefig(file, metadata={moment: None} if moment else None)
            captions.append(f"{where}{plot.name}: {plot.title}, {study.env}, {study.model}. {plot.caption}\n")
    print(file := given.figures / "captions.txt")
    file.write_text("".join(captions), encoding="utf-8", errors="replace", newline="\n")


if __name__ == "__main__":
    sys.exit(main())
