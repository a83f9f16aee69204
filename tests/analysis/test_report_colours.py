"""The colours of arms: fifteen that stay apart on light and dark pages, also for the colour-blind."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from conftest import REPO

from analysis.plots import LINES, MARKERS, Palette

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
}
# Ottosson 2020, OKLab: a distance of about 2 in 100 is the least that is noticed.
TO_CONES = [
    [0.41222147, 0.53633254, 0.05144599],
    [0.2119035, 0.68069955, 0.10739696],
    [0.08830246, 0.28171884, 0.6299787],
]
TO_LAB = [
    [0.21045426, 0.7936178, -0.00407205],
    [1.9779985, -2.4285922, 0.45059371],
    [0.02590404, 0.78277177, -0.80867577],
]


def of_page(dark: bool) -> tuple[list[str], str]:
    """The page's colours of arms, and what they stand on."""
    text = (REPO / "analysis" / "report" / "style.css").read_text(encoding="utf-8")
    light_part, dark_part = text.split("@media (prefers-color-scheme: dark)")
    part = dark_part.split("\n}\n")[0] if dark else light_part
    found = dict(re.findall(r"--(s\d+|paper): (#[0-9a-f]{6})", part))
    return [found[f"s{number}"] for number in range(len(MARKERS))], found["paper"]


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def seen(colour: str, sight: str) -> np.ndarray:
    """A colour as an eye has it, in OKLab times 100."""
    rgb = np.clip(np.array(SIGHT[sight]) @ linear(colour), 0, 1)
    return 100 * np.array(TO_LAB) @ np.cbrt(np.array(TO_CONES) @ rgb)


def contrast(colour: str, ground: str) -> float:
    """WCAG 2.2."""
    light, dark = sorted((float(linear(each) @ [0.2126, 0.7152, 0.0722]) for each in (colour, ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("dark", [False, True])
def test_fifteen_arms_stay_apart(dark, sight):
    colours, _ = of_page(dark)
    apart = {
        (a, b): float(np.linalg.norm(seen(colours[a], sight) - seen(colours[b], sight)))
        for a, b in combinations(range(len(colours)), 2)
    }
    assert len(apart) == 105
    assert min(apart.values()) > 5
    assert min(away for (a, b), away in apart.items() if a // 5 == b // 5) > 8  # of one style of line
    assert min(away for (_, b), away in apart.items() if b < 5) > 12  # the first five arms


@pytest.mark.parametrize("dark", [False, True])
def test_every_colour_can_be_seen_on_its_page(dark):
    colours, paper = of_page(dark)
    assert min(contrast(colour, paper) for colour in colours) >= 3


def test_plots_have_the_colours_of_the_light_page_and_shapes_and_lines_of_their_own():
    assert list(Palette().cells) == of_page(dark=False)[0]
    looks = {(number // 5 % len(LINES), MARKERS[number]) for number in range(15)}
    assert len(looks) == len(set(MARKERS)) == 15
    assert {number // 5 % len(LINES) for number in range(15)} == {0, 1, 2}
