"""Make one HTML page of runs: result, tables, plots, bank and every episode, in a file that any browser shows offline.

    reasoningbank report RUNS... -o FILE.html [--baseline ARM] [--partial] [--table NAME]... [--title TEXT]
    reasoningbank report --watch RUNS...      [--port N] and the same options
    reasoningbank report RUNS... --figures FOLDER [--format pdf]... [--baseline ARM] [--partial]

RUNS are run directories or folders of them. An unfinished run is shown, but counted only with --partial. With --watch
the page is served on this machine only, follows runs while they go on, and counts the episodes that exist. --figures
writes the figures alone, as files for a paper, and their captions.txt: one set for each environment, model and set of
tasks.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from analysis.load import for_each, frame_of_columns
from analysis.plots import plots_of
from analysis.report.data import PackedRun, read_packed
from analysis.report.live import Live, serve
from analysis.report.page import build, waiting
from analysis.runs import find_runs, read_run
from analysis.studies import compared, slug, studies
from analysis.tables import TABLES, build_tables, load_episodes, with_table_arms
from core.errors import UserError
from scripts.command_line import parser, plain_errors

PORT = 8400


@plain_errors(status=1)
def main(arguments: list[str] | None = None) -> None:
    """Write the file, or serve the page until Ctrl-C; 1 with a reason when there is nothing to write."""
    options = parser(__doc__, runs=True)
    to = options.add_mutually_exclusive_group(required=True)
    to.add_argument("-o", "--output", type=Path, metavar="FILE.html")
    to.add_argument("--watch", action="store_true", help="serve the page and follow the runs; the runs are only read")
    to.add_argument("--figures", type=Path, metavar="FOLDER", help="write the figures as files")
    options.add_argument(
        "--format", action="append", choices=("pdf", "svg", "png"), help="of --figures (default: pdf and svg)"
    )
    options.add_argument("--port", type=int, default=PORT, help=f"of --watch (default: {PORT}; 0: a free one)")
    options.add_argument("--baseline", help="the arm to compare with (default: no_memory, or vanilla, or the first)")
    options.add_argument("--partial", action="store_true", help="count runs that have not finished, marked as partial")
    options.add_argument("--table", action="append", choices=TABLES, help="a table of scripts.tables (default: all)")
    options.add_argument("--title", default="ReasoningBank report")
    given = options.parse_args(arguments)
    watch(given) if given.watch else figures(given) if given.figures else write(given)


def write(given: Namespace) -> None:
    """The page as a file."""
    runs = [*for_each(find_runs(given.runs), read_packed)]
    page = page_of(runs, given)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_bytes(page)
    n_episodes = sum(len(run.rows) for run in runs)
    print(f"{given.output}: {n_episodes:,} episodes of {len(runs)} runs, {len(page) / 1e6:.1f} MB")


def figures(given: Namespace) -> None:
    """The files of every figure, and their captions."""
    found = studies(compared(load_episodes(given.runs), given.baseline, given.partial))
    folder, files, captions = given.figures, [], []
    folder.mkdir(parents=True, exist_ok=True)
    for number, study in enumerate(found):
        where = f"{slug(study.env)}-{number}-" if len(found) > 1 else ""
        for plot in plots_of(study):
            for kind in given.format or ["pdf", "svg"]:
                files.append(folder / f"{where}{plot.name}.{kind}")
                moment = {"svg": "Date", "pdf": "CreationDate"}.get(kind)  # two runs of this make the same file
                plot.figure.savefig(files[-1], metadata={moment: None} if moment else None)
            captions.append(f"{where}{plot.name}: {plot.title}, {study.env}, {study.model}. {plot.caption}\n")
    files.append(folder / "captions.txt")
    files[-1].write_text("".join(captions), encoding="utf-8", errors="replace", newline="\n")
    print("\n".join(map(str, files)))


def watch(given: Namespace) -> None:
    """The page, served; its runs need not have begun, but their folder is there."""
    if lacking := [path for path in given.runs if not Path(path).exists()]:
        raise UserError(f"{lacking[0]} does not exist: give the folder that the runs are written to.")
    given.partial = True

    def make(version: str) -> bytes:
        return page_of([read_packed(path) for path in find_runs(given.runs)], given, version)

    def wait(why: str, version: str) -> bytes:
        try:
            runs = [read_run(path) for path in find_runs(given.runs)]
        except (UserError, OSError):
            runs = []
        return waiting(runs, why, title=given.title, version=version)

    paths = [path.parent if path.is_file() else path for path in map(Path, given.runs)]
    serve(Live(paths=paths, make=make, waiting=wait), given.port, lambda text: print(text, flush=True))


def page_of(runs: list[PackedRun], given: Namespace, version: str = "") -> bytes:
    """The page of some runs, with what the options ask for."""
    frame = with_table_arms(frame_of_columns(run.columns for run in runs))
    compared = {"baseline": given.baseline, "partial": given.partial}
    tables = [table for name in given.table or ["all"] for table in build_tables(frame, name, **compared)[1]]
    return build(runs, frame, tables, title=given.title, version=version, **compared)


if __name__ == "__main__":
    sys.exit(main())
