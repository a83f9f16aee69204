"""The page put together: what is said, tables, funnels, figures, the configuration and the packed episodes."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.answer import stored
from analysis.answer_page import page as answer_page
from analysis.cells import Cells
from analysis.columns import HEADINGS
from analysis.funnel import NO_EFFECT, STEPS_MEAN, funnel_of, texts_of
from analysis.funnel_steps import STEPS, steps_above
from analysis.plots import MARKERS, Palette, Plot, plots_of
from analysis.report import words
from analysis.report.data import PackedRun, embedded, groups_of, index_of
from analysis.runs import Run
from analysis.studies import Study, compared, run_labels, studies
from analysis.tables import ALWAYS, ANSWERS
from analysis.text_table import TextTable
from core.run.display import percent
from core.run.keys import HIDDEN_KEYS, without
from core.run.manifest import flat

if TYPE_CHECKING:
    import pandas as pd

HERE = Path(__file__).parent
STYLES = ("style.css", "viewer.css")
SCRIPTS = ("base.js", "tables.js", "episode.js", "list.js", "bank.js", "app.js")
LISTED = 5  # arms whose differences are told one by one under the headline; of more they are counted
CELL_CHARS = 300  # of a value
# Headings of a table: the columns that are shown at first, with its own where it lacks some, and those that stand in
# every table and can wait: titles and notes say what is odd in them.
FIRST = [HEADINGS[name][0] for name in ("method", "seeds", "success", "difference", "p_holm", "tokens")]
LATER = [HEADINGS[name][0] for name in (*ALWAYS, *ANSWERS)]
# Colours that stand in a figure for those of the page, which are light or dark as the reader's screen is.
N_COLOURS = len(Palette().cells)
PAGE = Palette(
    ink="#fe0101", soft="#fe0102", line="#fe0103", cells=tuple(f"#fe02{number:02d}" for number in range(N_COLOURS))
)
VARIABLES = {PAGE.ink: "ink", PAGE.soft: "soft", PAGE.line: "line"} | {c: f"s{n}" for n, c in enumerate(PAGE.cells)}


def build(
    runs: list[PackedRun],
    frame: pd.DataFrame,
    tables: list[Any],
    *,
    baseline: str | None = None,
    partial: bool = False,
    title: str,
) -> bytes:
    """The whole page of one or more runs.

    frame     their episodes, as analysis.load makes them
    tables    what stands in the page as tables; see `analysis.text_table.TextTable`
    """
    from markupsafe import Markup

    cells = compared(frame, baseline, partial)
    each = studies(cells)
    labelled = run_labels(runs, cells)
    index, pieces = index_of(labelled, groups_of(labelled, cells))
    return _render(
        title=title,
        n_episodes=f"{sum(len(run.rows) for run in runs):,}",
        n_lessons=f"{sum(run['lessons'] for run in index['runs']):,}",
        verdicts=verdicts(runs),
        studies=[_study(study) for study in each],
        marks=marks(),
        tables=tables,
        funnels=[funnel for study in each if (funnel := funnel_section(cells, study, len(each) > 1))],
        plots=[plot_of(plot, study, len(each) > 1) for study in each for plot in plots_of(study, PAGE)],
        going=[_progress(run, label) for run, label in labelled if not run.complete],
        differing=differing(_arms(labelled, cells)),
        shared=shared(runs),
        runs=[{"label": label, "facts": facts_of(run)} for run, label in labelled],
        index=Markup(embedded(index)),
        pieces=pieces,
    )


def verdicts(runs: Sequence[Run]) -> list[dict[str, str]]:
    """What experiment=verdict has found in the folders of these runs."""
    found = {folder: stored(folder) for folder in dict.fromkeys(run.path.parent for run in runs)}
    return [
        {"sentence": each["sentence"], "rest": "\n".join(answer_page(folder, each)[1:]).strip("\n")}
        for folder, each in found.items()
        if each
    ]


def _render(**values: Any) -> bytes:
    """The template with its styles and scripts; the policy lets these through and no others."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    script = '(() => {\n"use strict";\n' + "\n".join(_read(name) for name in SCRIPTS) + "})();\n"
    templates = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters |= {"sha256": _hash, "rest": rest}
    parts = templates.get_template("page.html").generate(
        style=Markup("\n".join(_read(name) for name in STYLES)),
        script=Markup(script),
        **values,
    )
    made = BytesIO()
    for part in parts:  # as one text it would take four bytes a character, several times
        made.write(part.encode("utf-8", "replace"))
    return made.getvalue()


def _hash(text: str) -> str:
    """An inline element's text as the policy names it."""
    from markupsafe import Markup

    return Markup("sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())


def rest(table: TextTable) -> list[int]:
    """The places of the columns of a table of cells that are shown only when all are asked for."""
    first = [place for place, head in enumerate(table.head) if head in FIRST]
    own = [place for place, head in enumerate(table.head) if head not in {*FIRST, *LATER}]
    return sorted({*range(len(table.head))} - {*(first + own)[: len(FIRST)]}) if table.cells else []


def _study(study: Study) -> dict[str, Any]:
    differences = words.differences(study)
    n_runs = study.frame["run_dir"].nunique()
    counted = "1 run" if n_runs == 1 else f"{n_runs} runs"
    return {
        "what": f"{study.env} · {study.model} · {study.n_tasks} tasks · {counted} counted",
        "headline": words.headline(study).replace(" %", "\u00a0%"),  # no line begins with it
        "differences": differences,
        "tally": words.tally(differences) if len(differences) >= LISTED else "",
        "warnings": words.warnings(study),
        "arms": [_arm(cell, differences) for cell in study.cells],
        "legend": words.legend(study),
    }


def _arm(cell: dict[str, Any], differences: list[dict[str, str]]) -> dict[str, Any]:
    """A row of the picture under the headline; places are in percent."""
    drawn = cell["success"] is not None
    places = {"p": cell["success"], "lo": cell["low"], "hi": cell["high"]}
    interval = f"{100 * cell['low']:.1f} to {100 * cell['high']:.1f}" if drawn else words.no_rate(cell)
    return {
        "label": cell["label"],
        "number": cell["colour"] % N_COLOURS,
        "difference": next((each for each in differences if each["label"] == cell["label"]), None),
        "complete": cell["complete"],
        "drawn": drawn,
        "value": percent(cell["success"], "–"),
        "interval": interval,
        **{name: f"{100 * (value or 0):.2f}" for name, value in places.items()},
    }


def _progress(run: Run, label: str) -> dict[str, Any]:
    """How far a run has got that did not finish."""
    counts = Counter(row["status"] for row in run.rows)
    solved = "not evaluated" if counts["unknown"] else f"{counts['success']} solved"
    broken = [f"{counts['infra_error']} broken"] * bool(counts["infra_error"])
    said = ", ".join([f"{len(run.rows)} of {run.n_tasks} tasks", solved, *broken])
    return {"label": label, "said": said, "done": len(run.rows), "n_tasks": max(1, run.n_tasks)}


def _arms(labelled: Sequence[tuple[Run, str]], cells: Cells) -> list[tuple[str, list[Run]]]:
    """The runs by cell, under the cell's label."""
    labels = dict(zip(cells.table["cell"], cells.table["label"], strict=True))
    by_cell: dict[str, list[Run]] = {}
    for run, _ in labelled:  # in the paper's order of arms
        by_cell.setdefault(run.cell, []).append(run)
    return [(labels[cell], runs) for cell, runs in by_cell.items()]


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def funnel_section(cells: Cells, study: Study, several: bool) -> dict[str, Any] | None:
    """What the page shows of a study's funnels; None where no task was shown a lesson.

    several   the report has more studies than this one
    """
    mine = {cell["cell"]: cell for cell in study.cells}
    rows = [row for row in funnel_of(cells) if row["cell"] in mine]
    if not rows:
        return None
    base = next((cell["label"] for cell in study.cells if cell["baseline"]), "")
    return {
        "title": f"{study.env}, {study.model}" if several else "",
        "arms": [
            _funnel_of_arm(cell, [row for row in rows if row["cell"] == cell["cell"]], base)
            for cell in study.cells
            if any(row["cell"] == cell["cell"] for row in rows)
        ],
        "base": base,
        "notes": [STEPS_MEAN, NO_EFFECT] if any(row["step"] == "followed" for row in rows) else [STEPS_MEAN],
        "table": texts_of(rows, base)[0],
    }


def _funnel_of_arm(cell: dict[str, Any], rows: list[dict[str, Any]], base: str) -> dict[str, Any]:
    """A funnel: each step's tasks as a share of all, and of these the solved ones; lengths are in percent."""
    total = rows[0]["n"]
    return {
        "label": cell["label"],
        "number": cell["colour"] % N_COLOURS,
        "steps": [
            {
                "name": STEPS[row["step"]][0],
                "depth": len(steps_above(row["step"])),
                "n": row["n"],
                "rate": _percent(row["success"]),
                "without": _percent(row.get("without")),
                "share": f"{100 * row['n'] / total:.2f}",
                "solved": f"{100 * row['n_success'] / total:.2f}",
            }
            for row in rows
        ],
        "said": words.lessons(rows, base),
    }


def _percent(value: float | None) -> str:
    return percent(value, "").replace(" %", "\u00a0%")  # no line begins with it


def plot_of(plot: Plot, study: Study, several: bool) -> dict[str, Any]:
    """What the page shows of a plot. several: the report has more studies than this one."""
    from markupsafe import Markup

    title = f"{plot.title}, {study.env}" if several else plot.title
    return {"title": title, "caption": plot.caption, "svg": Markup(svg_of(plot, title))}


def svg_of(plot: Plot, title: str) -> str:
    """The figure as an <svg> element in the page's own colours and letters. matplotlib escapes the texts in it."""
    from markupsafe import escape

    file = StringIO()
    plot.figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<g) id="[^"]*"', r"\1", text)
    text = re.sub(r"font(-family)?: ([^;\"]*?)'DejaVu Sans'[^;\"]*", r"font\1: \2var(--sans)", text)
    text = re.sub("|".join(VARIABLES), lambda colour: f"var(--{VARIABLES[colour[0]]})", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def marks() -> list[str]:
    """The shapes of the arms' marks, as in the plots: a path each, for a <path> in a box from -1 to 1."""
    from matplotlib.markers import MarkerStyle

    paths = []
    for shape in map(MarkerStyle, MARKERS):
        path = shape.get_path().transformed(shape.get_transform())
        outline = path.interpolated(1).to_polygons(closed_only=False)[0]
        outline = outline / abs(outline).max()
        paths.append("M" + "L".join(f"{x:.2f} {-y:.2f}" for x, y in outline) + "Z")
    return paths


def differing(arms: list[tuple[str, list[Run]]]) -> dict[str, list]:
    """{columns, rows}: where the arms, (label, runs), differ; what the seed alone changes is left out."""
    seeds = [[_compared_keys(run) for run in runs] for _, runs in arms]
    keys = list(dict.fromkeys(key for configs in seeds for config in configs for key in config))
    steady = [key for key in keys if all(len({config.get(key) for config in configs}) == 1 for configs in seeds)]
    firsts = [configs[0] for configs in seeds]
    unlike = [key for key in steady if len({config.get(key, "–") for config in firsts}) > 1]
    rows = [[key, *(config.get(key, "–")[:CELL_CHARS] for config in firsts)] for key in unlike]
    return {"columns": ["", *(label for label, _ in arms)], "rows": rows}


def shared(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """The keys in which all runs agree."""
    configs = [_compared_keys(run) for run in runs]
    return [(key, value) for key, value in configs[0].items() if all(other.get(key) == value for other in configs[1:])]


def facts_of(run: Run) -> list[tuple[str, str]]:
    """Where a run comes from and what it ran on."""
    manifest = run.manifest
    git, dataset = manifest.get("git", {}), manifest.get("fingerprint", {}).get("dataset", {})
    dirty = f", with changes in {', '.join(git['dirty'])}" if git.get("dirty") else ""
    models = {role: model.get("model") for role, model in manifest.get("models", {}).items()}
    return [
        ("directory", str(run.path)),
        ("command", shlex.join(["python", "main.py", *manifest.get("command", [])[1:]])),
        ("progress", f"{len(run.rows)} of {run.n_tasks} tasks" + ("" if run.complete else " (partial)")),
        ("seed", str(run.config.get("seed"))),
        ("models", ", ".join(f"{role} {model}" for role, model in models.items())),
        ("dataset", ", ".join(f"{key} {value}" for key, value in dataset.items())),
        ("commit", f"{git.get('sha') or 'unknown'}{dirty}"),
        ("starts", str(len(manifest["starts"]))),
        ("python", f"{manifest.get('python')} on {manifest.get('platform')}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in manifest.get("packages", {}).items())),
    ]


def _compared_keys(run: Run) -> dict[str, str]:
    """{key: value} of what is compared."""
    return flat(without(run.config, HIDDEN_KEYS))
