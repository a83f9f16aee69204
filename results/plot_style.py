"""How a figure looks, and the small steps that all figures share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from core.run.metrics import wilson
from results.stats import cumulative

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (6.0, 3.9)  # inches
LINE = 0.19  # inches, of the key
LINES = ("-", (0, (5, 1.6)), (0, (5, 1.6, 1, 1.6)))  # of the first five arms, the next five, the last five
HOURGLASS = ((-1, 1), (1, 1), (-1, -1), (1, -1), (-1, 1))
MARKERS = (*"osD^vPX*<>pdh", (4, 1, 0), HOURGLASS)  # (4, 1, 0): a star of four rays


@dataclass(frozen=True, kw_only=True)
class Palette:
    """Colours as matplotlib takes them; a cell's number picks its own.

    Fifteen that stay apart on a light page, also for the colour-blind; those of one style of line more so than others.
    """

    ink: str = "#1d1f22"
    soft: str = "#5c6168"
    line: str = "#d5d2ca"
    cells: tuple[str, ...] = (
        "#6b7078", "#477ccb", "#9c5e02", "#134924", "#5a018c",
        "#9b9267", "#159fb8", "#8e115a", "#4649c5", "#ef670a",
        "#1e5904", "#8b328b", "#8b81fc", "#897c53", "#a42e4f",
    )  # fmt: skip

    def of(self, cell: dict[str, Any]) -> str:
        """The colour of a cell."""
        return self.cells[cell["colour"] % len(self.cells)]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure with its file's name, its title and what a reader must know to read it."""

    name: str
    title: str
    caption: str
    figure: Figure


@contextmanager
def style(palette: Palette) -> Iterator[None]:
    """The look of every figure. Names from runs are never read as mathematical formulas."""
    import matplotlib as mpl

    look: dict[str, Any] = {
        "text.parse_math": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "figure",
        "pdf.fonttype": 42,
        "font.size": 9.5,
        "text.color": palette.ink,
        "axes.labelcolor": palette.soft,
        "axes.edgecolor": palette.line,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": palette.line,
        "grid.linewidth": 0.6,
        "xtick.color": palette.soft,
        "ytick.color": palette.soft,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "lines.linewidth": 1.8,
        "legend.frameon": False,
    }
    with mpl.rc_context(look):
        yield


def figure_of(x: str, y: str, size: tuple[float, float] = SIZE) -> tuple[Figure, Axes]:
    """An empty figure, outside pyplot: nothing global is touched."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def line_of(cell: dict[str, Any]) -> dict[str, Any]:
    """How a cell's line is drawn: the baseline wide, so that one that lies upon it leaves it to be seen.

    The marks of arms stand at places of their own, so that those of lines that lie upon each other are seen too.
    """
    number = cell["colour"]
    look = {"linewidth": 3.6 if cell["baseline"] else 1.8, "linestyle": LINES[number // 5 % len(LINES)]}
    return look | {"marker": marker_of(cell), "markersize": 5, "markevery": (0.03 + 0.017 * (number % 15), 0.28)}


def marker_of(cell: dict[str, Any]) -> Any:
    """The shape of a cell's marks."""
    return MARKERS[cell["colour"] % len(MARKERS)]


def rates(axes: Axes, which: str = "y") -> None:
    """An axis of rates, 0 to 100 %."""
    from matplotlib.ticker import PercentFormatter

    getattr(axes, f"set_{which}lim")(-0.02, 1.02)
    getattr(axes, f"{which}axis").set_major_formatter(PercentFormatter(1.0, decimals=0))


def log_axis(axes: Axes) -> None:
    """A logarithmic x axis with plain numbers on it."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:,g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def key(figure: Figure) -> None:
    """What each colour is, above the axes; a figure with much to name is taller."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    columns = 1 if longest > 34 else 2 if longest > 18 else 3
    figure.set_figheight(figure.get_figheight() + LINE * max(0, math.ceil(len(labels) / columns) - 3))
    figure.legend(handles, labels, loc="outside upper left", ncols=min(columns, len(labels)), fontsize=9)


def band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean, low, high) of the success rate so far, of outcomes (places of the stream, seeds), NaN where none counts.

    A 95 % t-interval over the seeds; for one seed Wilson's of what counts so far. NaN until something counts.
    """
    curves = cumulative(values)
    seeds = (~np.isnan(curves)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(curves, axis=1) / seeds
        if curves.shape[1] == 1:
            n = np.cumsum(~np.isnan(values[:, 0]))
            ends = [wilson(round(m * k), k) if k else (np.nan, np.nan) for m, k in zip(mean, n, strict=True)]
            low, high = np.array(ends).T
            return mean, low, high
        from scipy.stats import t

        deviation = np.sqrt(np.nansum((curves - mean[:, None]) ** 2, axis=1) / (seeds - 1))
        half = t.ppf(0.975, seeds - 1) * deviation / np.sqrt(seeds)
    return mean, np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1)


def plain(text: str, most: int = 44) -> str:
    """A text from a run as a label: no control characters, no halves of pairs, no leading "_", of bounded length."""
    text = re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text.encode("utf-8", "replace").decode()).lstrip("_")
    return (text if len(text) <= most else text[: most - 1] + "…") or "-"
