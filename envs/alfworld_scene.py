"""The rooms that ALFWorld ships: which furniture stands where, and the tables of what goes with what.

Read from the installed package's data files without importing it: its import makes folders and sets $ALFWORLD_DATA.
A thing's name is AI2-THOR's, `Cabinet|-00.48|+02.05|+00.39`: its kind and where it is, in metres.
"""

from __future__ import annotations

import importlib.util
import json
import runpy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from core.errors import UserError

MAX_ALIKE = 5  # pieces of furniture of one kind; some kitchens have 27 cabinets, and every one slows every step
STOVE_BURNERS = 4
STEP_M, TURN_DEG = 0.25, 90  # the grid of the places to stand, by which they are named
LAMP_STANDS = ("Desk", "SideTable", "Dresser", "CoffeeTable", "DiningTable", "Shelf")

Pose = tuple[float, float, float, float]  # where the agent stands: x, z, rotation, horizon


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What ALFWorld knows about kinds of things.

    holds       furniture -> the things it can hold        uses     "Heatable" and the like -> things
    openable    furniture that opens                       vessels  things that can hold things, such as a cup
    goals       task type -> its PDDL goal and sentences
    """

    holds: dict[str, list[str]]
    uses: dict[str, frozenset[str]]
    openable: frozenset[str]
    vessels: frozenset[str]
    goals: dict[str, dict[str, Any]]
    domain: str
    grammar: str
    layouts: Path


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A floor plan. furniture: name -> where one stands to use it; things: kinds of portable things found here."""

    number: int
    furniture: dict[str, Pose]
    things: tuple[str, ...]
    has_desk_lamp: bool
    start: Pose


def kind(name: str) -> str:
    """'Cabinet|-00.48|+02.05|+00.39' -> 'Cabinet'; 'Sink|-01.99|+01.14|-00.98|SinkBasin' -> 'SinkBasin'."""
    parts = name.split("|")
    return parts[-1] if parts[-1].endswith("Basin") else parts[0]


def load_tables() -> Tables:
    """Raises UserError where the package is missing."""
    spec = importlib.util.find_spec("alfworld")
    if spec is None:
        raise UserError("env=alfworld needs its extra: pip install -e '.[alfworld]'")
    package = Path(spec.submodule_search_locations[0])
    constants = runpy.run_path(str(package / "gen" / "constants.py"))
    vessels = frozenset(constants["MOVABLE_RECEPTACLES"])
    holds = {
        furniture: sorted(thing for thing in things if not thing.endswith("Sliced"))
        for furniture, things in constants["VAL_RECEPTACLE_OBJECTS"].items()
        if furniture not in vessels
    }
    return Tables(
        holds=holds,
        uses={use: frozenset(things) for use, things in constants["VAL_ACTION_OBJECTS"].items()},
        openable=frozenset(constants["OPENABLE_CLASS_LIST"]),
        vessels=vessels,
        goals=runpy.run_path(str(package / "gen" / "goal_library.py"))["gdict"],
        domain=(package / "data" / "alfred.pddl").read_text(encoding="utf-8"),
        grammar=(package / "data" / "alfred.twl2").read_text(encoding="utf-8"),
        layouts=package / "gen" / "layouts",
    )


def floor_plans(tables: Tables) -> list[int]:
    names = [path.name for path in tables.layouts.glob("FloorPlan*-layout.npy")]
    return sorted(int(name.removeprefix("FloorPlan").removesuffix("-layout.npy")) for name in names)


def load_scene(tables: Tables, number: int) -> Scene:
    """A floor plan with at most MAX_ALIKE pieces of each kind of furniture. The same number gives the same scene."""
    kinds = set(_read(tables, number, "objects"))
    ground = [tuple(point) for point in np.load(tables.layouts / f"FloorPlan{number}-layout.npy").tolist()]
    rng = Random(number)
    furniture: dict[str, Pose] = {}
    for name, pose in sorted(_read(tables, number, "openable").items()):
        if kind(name) in tables.holds and sum(kind(other) == kind(name) for other in furniture) < MAX_ALIKE:
            furniture[name] = tuple(pose)
    # the package records positions for what can be reached by opening it and for surfaces; the rest is known by kind
    for missing in sorted((kinds & tables.holds.keys()) - {kind(name) for name in furniture}):
        spot, stand = rng.choice(ground), rng.choice(ground)
        for n in range(STOVE_BURNERS if missing == "StoveBurner" else 1):
            furniture[_name(missing, spot, n)] = (*stand, 0.0, 15.0 * n)  # one looks a little lower at each burner
    holdable = {thing for name in furniture for thing in tables.holds[kind(name)]}
    return Scene(
        number=number,
        furniture=furniture,
        things=tuple(sorted(kinds & holdable)),
        has_desk_lamp="DeskLamp" in kinds and any(kind(name) in LAMP_STANDS for name in furniture),
        start=_start(ground, furniture, rng),
    )


def location(pose: Pose) -> str:
    """The name of a place to stand, ALFWorld's way: 'loc|-3|5|2|-30'."""
    x, z, rotation, horizon = pose
    return f"loc|{round(x / STEP_M)}|{round(z / STEP_M)}|{round(rotation / TURN_DEG)}|{round(horizon)}"


def _read(tables: Tables, number: int, part: str) -> Any:
    return json.loads((tables.layouts / f"FloorPlan{number}-{part}.json").read_text(encoding="utf-8"))


def _name(wanted: str, point: tuple[float, float], n: int) -> str:
    x, z = point
    place = f"{x:+06.2f}|{0.9 + n / 10:+06.2f}|{z:+06.2f}"
    whole = wanted.removesuffix("Basin")
    return f"{wanted}|{place}" if whole == wanted else f"{whole}|{place}|{wanted}"


def _start(ground: list[tuple[float, float]], furniture: dict[str, Pose], rng: Random) -> Pose:
    """Away from all furniture, so that a game begins in the middle of the room."""
    taken = {location(pose) for pose in furniture.values()}
    free = [(x, z, turn, 45.0) for x, z in ground for turn in (0.0, 90.0, 180.0, 270.0)]
    return rng.choice([pose for pose in free if location(pose) not in taken])
