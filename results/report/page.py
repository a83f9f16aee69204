"""Puts the page together: what is said, the table, the plots, the configuration and the packed episodes."""

from __future__ import annotations

import base64
import hashlib
import re
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.run.display import percent
from results.cells import Cells
from results.load import Run
from results.plot_style import Palette
from results.plots import Plot, plots_of
from results.report import words
from results.report.configuration import differing, facts_of, shared
from results.report.data import embedded, index_of
from results.studies import Study, compared, run_labels, studies

if TYPE_CHECKING:
    import pandas as pd

HERE = Path(__file__).parent
STYLES = ("style.css", "viewer.css")
SCRIPTS = ("base.js", "episode.js", "list.js", "app.js")
# Colours that stand for those of the page, which are light or dark as the reader's screen is.
PAGE = Palette(ink="#fe0101", soft="#fe0102", line="#fe0103", cells=tuple(f"#fe02{number:02d}" for number in range(8)))
VARIABLES = {PAGE.ink: "ink", PAGE.soft: "soft", PAGE.line: "line"} | {c: f"s{n}" for n, c in enumerate(PAGE.cells)}


def build(
    runs: list[Run],
    frame: pd.DataFrame,
    tables: list[Any],
    *,
    baseline: str | None = None,
    partial: bool = False,
    title: str,
) -> str:
    """The whole page of one or more runs.

    frame    their episodes, as results.load makes them
    tables   what stands in the page as tables: objects with title, head, rows and notes, all of them texts
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    cells = compared(frame, baseline, partial)
    found = studies(cells)
    named = run_labels(runs, cells)
    index, pieces = index_of(named)
    script = '(() => {\n"use strict";\n' + "\n".join(_read(name) for name in SCRIPTS) + "})();\n"
    page = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).get_template("page.html")
    text = page.render(
        title=title,
        n_episodes=f"{sum(len(run.rows) for run in runs):,}",
        style=Markup("\n".join(_read(name) for name in STYLES)),
        script=Markup(script),
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        studies=[_study(study) for study in found],
        tables=tables,
        plots=[_plot(plot, study, len(found) > 1) for study in found for plot in plots_of(study, PAGE)],
        differing=differing(_arms(named, cells)),
        shared=shared(runs),
        runs=[{"label": label, "facts": facts_of(run)} for run, label in named],
        index=Markup(embedded(index)),
        pieces=[(id_, Markup(packed)) for id_, packed in pieces],
    )
    return text.encode("utf-8", "replace").decode()


def _study(study: Study) -> dict[str, Any]:
    n_runs = study.frame["run_dir"].nunique()
    counted = "1 run" if n_runs == 1 else f"{n_runs} runs"
    return {
        "what": f"{study.env} · {study.model} · {study.n_tasks} tasks · {counted} counted",
        "headline": words.headline(study),
        "differences": words.differences(study),
        "warnings": words.warnings(study),
        "arms": [_arm(cell) for cell in study.cells],
        "legend": words.legend(study),
    }


def _arm(cell: dict[str, Any]) -> dict[str, Any]:
    """A row of the picture under the headline; places are in percent."""
    drawn = cell["success"] is not None
    places = {"p": cell["success"], "lo": cell["low"], "hi": cell["high"]}
    interval = f"{100 * cell['low']:.1f} to {100 * cell['high']:.1f}" if drawn else "no finished run"
    return {
        "label": cell["label"],
        "complete": cell["complete"],
        "drawn": drawn,
        "value": percent(cell["success"], "–"),
        "interval": interval,
        **{name: f"{100 * (value or 0):.2f}" for name, value in places.items()},
    }


def _arms(named: list[tuple[Run, str]], cells: Cells) -> list[tuple[str, list[Run]]]:
    """The runs by cell, under the cell's label."""
    labels = dict(zip(cells.table["cell"], cells.table["label"], strict=True))
    found: dict[str, list[Run]] = {}
    for run, _ in named:
        found.setdefault(run.cell, []).append(run)
    return [(labels[cell], runs) for cell, runs in found.items()]


def _plot(plot: Plot, study: Study, several: bool) -> dict[str, Any]:
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
    text = re.sub("|".join(VARIABLES), lambda found: f"var(--{VARIABLES[found[0]]})", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
