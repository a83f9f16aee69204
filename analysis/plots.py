"""The figures of a study (matplotlib, extra `report`), each where the study has data for it.

Below the figures stand the steps that they share: how a figure looks, its axes, its key, the band around a curve.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.measure import grid
from analysis.notes import qualified
from analysis.stats import cumulative, rate_interval
from analysis.studies import Study
from core.proportions import wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (6.0, 3.9)  # inches
LINE = 0.19  # inches, of the key
LINES = ("-", (0, (5, 1.6)), (0, (5, 1.6, 1, 1.6)))  # of the first five arms, the next five, the last five
HOURGLASS = ((-1, 1), (1, 1), (-1, -1), (1, -1), (-1, 1))
MARKERS = (*"osD^vPX*<>pdh", (4, 1, 0), HOURGLASS)  # (4, 1, 0): a star of four rays
MOST_TYPES = 12  # of tasks, in one figure
BANDS = 5  # arms whose bands can still be told apart
Drawn = tuple[Any, str]  # a figure, and what a reader must know to read it


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


def plots_of(study: Study, palette: Palette | None = None) -> Iterator[Plot]:
    """Every figure for which the study has data."""
    palette = palette or Palette()
    for name, title, draw in (
        ("learning_curve", "Learning curve", learning_curve),
        ("by_type", "Success by task type", type_bars),
        ("cost_success", "Success against cost", cost_success),
        ("memory_growth", "Memory growth", memory_growth),
        ("scaling", "Test-time scaling", scaling),
        ("reliability", "The judge's confidence", reliability),
    ):
        with style(palette):
            if drawn := draw(study, palette):
                key(drawn[0])
                caption = qualified(drawn[1], study.counted, counts=False)
                yield Plot(name=name, title=title, figure=drawn[0], caption=caption)


def learning_curve(study: Study, palette: Palette) -> Drawn | None:
    """The success rate up to each task of the stream, by arm."""
    cells = study.counted
    if not cells or study.n_tasks < 2:
        return None
    figure, axes = figure_of("tasks seen", "success rate so far")
    seeds = set()
    for cell in cells:
        places = grid(study.episodes(cell), "index").sort_index()
        seeds.add(places.shape[1])
        x = places.index.to_numpy() + 1
        mean, low, high = band(places.to_numpy())
        if len(cells) <= BANDS:
            axes.fill_between(x, low, high, color=palette.of(cell), alpha=0.16 if len(cells) < 4 else 0.1, linewidth=0)
        axes.plot(x, mean, color=palette.of(cell), label=plain(cell["label"]), **line_of(cell))
    rates(axes)
    one = "Wilson's 95 % interval for an arm of one seed"
    many = "a 95 % t-interval over the seeds of an arm of several (none is seen where they agree)"
    bands = one if seeds == {1} else many if 1 not in seeds else f"{many}, {one}"
    drawn = f"the band is {bands}" if len(cells) <= BANDS else f"above {BANDS} arms no bands are drawn"
    return figure, f"Success rate over the tasks seen so far, mean over seeds; {drawn}."


def type_bars(study: Study, palette: Palette) -> Drawn | None:
    """The success rate by task type and arm, with intervals."""
    cells = study.counted
    counts = study.frame["task_type"].value_counts()
    types = sorted(counts.index[:MOST_TYPES])[::-1]
    if not cells or len(types) < 2:
        return None
    height, tall = 0.8 / len(cells), max(SIZE[1], 0.35 + 0.16 * len(types) * (len(cells) + 1))
    figure, axes = figure_of("success rate", "", size=(SIZE[0], tall))
    for number, cell in enumerate(cells):
        for place, kind in enumerate(types):
            episodes = study.episodes(cell)
            values = grid(episodes[episodes["task_type"] == kind]).to_numpy()
            if not values.size or np.isnan(values).all():
                continue
            rate = rate_interval(values)
            y = place + 0.4 - height * (number + 0.5)
            axes.barh(y, rate["mean"], height * 0.86, color=palette.of(cell), alpha=0.6, linewidth=0)
            axes.hlines(y, rate["low"], rate["high"], color=palette.ink, linewidth=1)
            axes.plot(rate["mean"], y, marker=marker_of(cell), color=palette.of(cell), markersize=5)
        look = {"linestyle": "", "marker": marker_of(cell), "color": palette.of(cell)}
        axes.plot(np.nan, np.nan, label=plain(cell["label"]), **look)
    axes.set_yticks(range(len(types)), [plain(kind, 32) for kind in types])
    rates(axes, "x")
    axes.grid(axis="y", visible=False)
    left = f" The {MOST_TYPES} most frequent of {len(counts)} types." if len(counts) > MOST_TYPES else ""
    return figure, f"Bars are success rates, lines 95 % intervals: wide where a type has few tasks.{left}"


def cost_success(study: Study, palette: Palette) -> Drawn | None:
    """Success against what a task costs: in US dollars where every price is known, else in tokens."""
    cells = study.counted
    priced = all(cell["cost"] for cell in cells)
    unit = "cost" if priced else "tokens"
    if not cells or not all(cell[unit] for cell in cells):
        return None
    figure, axes = figure_of("US dollars per task" if priced else "tokens per task, all roles", "success rate")
    for cell in cells:
        axes.vlines(cell[unit], cell["low"], cell["high"], color=palette.of(cell), alpha=0.5, linewidth=2)
        look = {"linestyle": "", "marker": marker_of(cell), "color": palette.of(cell)}
        axes.plot(cell[unit], cell["success"], label=plain(cell["label"]), **look)
    values = [cell[unit] for cell in cells]
    if max(values) > 10 * min(values):
        log_axis(axes)
    else:
        axes.set_xlim(0, 1.12 * max(values))
    rates(axes)
    why = "" if priced else " In tokens, since not every arm has a cost that is known and above zero."
    return figure, f"One point an arm: its mean spending on a task, all roles together, and its success.{why}"


def memory_growth(study: Study, palette: Palette) -> Drawn | None:
    """Lessons distilled up to each task of the stream."""
    cells = [cell for cell in study.counted if cell["lessons_per_100"]]
    if not cells:
        return None
    figure, axes = figure_of("tasks seen", "lessons learned so far")
    for cell in cells:
        lessons = grid(study.episodes(cell), "index", "n_lessons").sort_index().fillna(0).cumsum()
        x, values, colour = lessons.index.to_numpy() + 1, lessons.to_numpy(), palette.of(cell)
        if len(cells) <= BANDS:
            axes.fill_between(x, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.16, linewidth=0)
        axes.plot(x, values.mean(axis=1), color=colour, label=plain(cell["label"]), **line_of(cell))
    axes.set_ylim(bottom=0)
    drawn = "the band reaches from the least to the most of them"
    drawn = drawn if len(cells) <= BANDS else f"above {BANDS} arms no bands are drawn"
    return figure, f"Lessons distilled so far, mean over seeds; {drawn}."


def scaling(study: Study, palette: Palette) -> Drawn | None:
    """Success against the number of attempts at a task (MaTTS)."""
    cells = study.counted
    scaled = [cell for cell in cells if (cell["n_attempts"] or 0) > 1]
    if not scaled:
        return None
    figure, axes = figure_of("attempts at a task", "success rate")
    names = list(dict.fromkeys(cell["arm"] for cell in scaled))
    for name in names:
        line = sorted((cell for cell in cells if cell["arm"] == name), key=lambda cell: cell["n_attempts"])
        colour, x = palette.of(line[0]), [cell["n_attempts"] for cell in line]
        low, high = ([cell[end] for cell in line] for end in ("low", "high"))
        axes.vlines(x, low, high, color=colour, alpha=0.5, linewidth=2)
        look = {"marker": marker_of(line[0]), "color": colour}
        axes.plot(x, [cell["success"] for cell in line], label=plain(f"{name}: the chosen answer"), **look)
        most, curve = line[-1], line[-1]["pass_at"]
        if most["k"] and curve:  # side by side: attempts may be drawn in any order, so pass@k means something
            axes.plot(range(1, len(curve) + 1), curve, ":", color=colour, label=plain(f"{name}: pass@k"))
    axes.set_xticks(range(1, max(cell["n_attempts"] for cell in scaled) + 1))
    rates(axes)
    caption = (
        "Success of the answer that was chosen, with its 95 % interval. Dotted: pass@k, which a selector that "
        "knew the truth would reach; it is no result of the run."
    )
    return figure, caption


def reliability(study: Study, palette: Palette) -> Drawn | None:
    """How often the judge's labels are right, against the confidence that it gave them."""
    cells = [cell for cell in study.counted if cell["judge_n_rated"]]
    if not cells:
        return None
    figure, axes = figure_of("the judge's confidence in its label", "labels that are right")
    axes.plot((0, 1), (0, 1), color=palette.soft, linewidth=1, linestyle=":")
    said = []
    for cell in cells:
        bins = cell["judge_bins"]
        x, y = ([each[name] for each in bins] for name in ("confidence", "correct"))
        low, high = np.transpose([wilson(each["correct"] * each["n"], each["n"]) for each in bins])
        axes.vlines(x, low, high, color=palette.of(cell), alpha=0.5, linewidth=2)
        axes.plot(x, y, "-", marker=marker_of(cell), color=palette.of(cell), label=plain(cell["label"]))
        n, brier, ece = (cell[f"judge_{name}"] for name in ("n_rated", "brier", "ece"))
        said.append(f"{plain(cell['label'])}: {n} labels, Brier {brier:.3f}, ECE {ece:.3f}")
    rates(axes)
    rates(axes, "x")
    caption = (
        "Share of right labels among those of about one confidence, in bins of a tenth, with Wilson's 95 % interval as"
        f" if all were independent; on the dotted line a confidence is a probability. {'; '.join(said)}."
    )
    return figure, caption


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

    axes.set(**{f"{which}lim": (-0.02, 1.02)})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(PercentFormatter(1.0, decimals=0))


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
