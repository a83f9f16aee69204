"""The figures of the page: in its own colours, which are light or dark as the reader's screen is."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

from results.plot_style import MARKERS, Palette
from results.plots import Plot
from results.studies import Study

# Colours that stand for those of the page.
CELLS = len(Palette().cells)
PAGE = Palette(
    ink="#fe0101", soft="#fe0102", line="#fe0103", cells=tuple(f"#fe02{number:02d}" for number in range(CELLS))
)
VARIABLES = {PAGE.ink: "ink", PAGE.soft: "soft", PAGE.line: "line"} | {c: f"s{n}" for n, c in enumerate(PAGE.cells)}


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
    text = re.sub("|".join(VARIABLES), lambda found: f"var(--{VARIABLES[found[0]]})", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def marks() -> list[str]:
    """The shapes of the arms' marks, as in the plots: a path each, for a <path> in a box from -1 to 1."""
    from matplotlib.markers import MarkerStyle

    found = []
    for shape in map(MarkerStyle, MARKERS):
        path = shape.get_path().transformed(shape.get_transform())
        outline = path.interpolated(1).to_polygons(closed_only=False)[0]
        outline = outline / abs(outline).max()
        found.append("M" + "L".join(f"{x:.2f} {-y:.2f}" for x, y in outline) + "Z")
    return found
