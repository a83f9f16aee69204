"""Draw the figures of finished runs as files for a paper.

    python -m scripts.plots RUNS... -o DIR [--format pdf] [--format svg] [--baseline ARM] [--partial]

Learning curve, success by task type, success against cost, memory growth and test-time scaling, if the runs have the
data for them; one set of figures for each environment, model and set of tasks. captions.txt has their captions.
"""

from __future__ import annotations

import sys
from pathlib import Path

from analysis.plots import plots_of
from analysis.studies import compared, slug, studies
from analysis.tables import load_episodes
from scripts.command_line import parser, plain_errors


def write(runs: list[str], folder: Path, formats: list[str], baseline: str | None, partial: bool) -> list[Path]:
    """The files of every figure, and their captions."""
    found = studies(compared(load_episodes(runs), baseline, partial))
    folder.mkdir(parents=True, exist_ok=True)
    files, captions = [], []
    for number, study in enumerate(found):
        where = f"{slug(study.env)}-{number}-" if len(found) > 1 else ""
        for plot in plots_of(study):
            for kind in formats:
                files.append(folder / f"{where}{plot.name}.{kind}")
                moment = {"svg": "Date", "pdf": "CreationDate"}.get(kind)  # two runs of this make the same file
                plot.figure.savefig(files[-1], metadata={moment: None} if moment else None)
            captions.append(f"{where}{plot.name}: {plot.title}, {study.env}, {study.model}. {plot.caption}\n")
    files.append(folder / "captions.txt")
    files[-1].write_text("".join(captions), encoding="utf-8", errors="replace", newline="\n")
    return files


@plain_errors(status=1)
def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__, runs=True)
    options.add_argument("-o", "--output", required=True, type=Path, metavar="DIR")
    options.add_argument("--format", action="append", choices=("pdf", "svg", "png"), help="default: pdf and svg")
    options.add_argument("--baseline", help="the arm that is drawn first (default: no_memory, or the first)")
    options.add_argument("--partial", action="store_true", help="count runs that did not finish")
    given = options.parse_args(arguments)
    files = write(given.runs, given.output, given.format or ["pdf", "svg"], given.baseline, given.partial)
    print("\n".join(map(str, files)))


if __name__ == "__main__":
    sys.exit(main())
