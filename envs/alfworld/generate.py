"""ALFWorld games made here, for playing without a download: `env.split=generated`.

Each game is a floor plan of the package, furnished with a random choice of the things that belong there, and a goal of
one of the six task types that these things allow. The goal's things never start where they are to go. Game i depends
on the seed and on the games before it alone, so a longer list begins with the shorter one.

In this file: the games; a game as a PDDL problem, in the words of the package's own domain; the package's floor plans
and its tables of what goes with what. These are read from its data files without importing it, as the import makes
folders and sets $ALFWORLD_DATA. A thing's name is AI2-THOR's, `Cabinet|-00.48|+02.05|+00.39`: its kind and where it is,
in metres.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from core.errors import UserError
from core.process import WorkerProcess
from core.textfile import write_whole
from core.types import content_id
from envs.alfworld.games import GAME_FILE, TASK_TYPES, Game

OTHER_THINGS = 14  # kinds of things beside the goal's, at most
TOOLS = {
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge"),
}
NAMED_IN_DOMAIN = {"rtype": {"SinkBasin", "Microwave", "Fridge"}, "otype": {"Knife", "ButterKnife"}}
MANGLE = str.maketrans({"-": "_minus_", "|": "_bar_", "+": "_plus_", ".": "_dot_"})
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


@dataclass(frozen=True, kw_only=True)
class Goal:
    """`thing` is to end in or on furniture of kind `target`; no target: it is to be looked at under the desk lamp."""

    type: str
    thing: str
    target: str
    scene: Scene

    @property
    def words(self) -> dict[str, str]:
        """What fills the package's templates of goals and sentences."""
        return {"obj": self.thing, "recep": self.target, "toggle": "DeskLamp"}


@dataclass(frozen=True, kw_only=True)
class GeneratedGame(Game):
    """data: the game file without its walkthrough, which the planner adds when the game is first played."""

    data: dict[str, Any]
    traj_data: dict[str, Any]

    def prepare(self, worker: WorkerProcess) -> None:
        """Have the files written, unless they are."""
        if not Path(self.path).exists():
            write_whole(Path(self.path).with_name("traj_data.json"), json.dumps(self.traj_data))
            worker.call("make", self.path, self.data)


def generate(seed: int, count: int, cache: Path) -> list[GeneratedGame]:
    """`count` games, no two with the same goal in the same floor plan; the six task types take turns.

    Raises UserError when the floor plans do not allow as many.
    """
    tables = load_tables()
    scenes = [load_scene(tables, number) for number in floor_plans(tables)]
    left = {
        type_: {scene.number: goals for scene in scenes if (goals := list(_goals(tables, scene, type_)))}
        for type_ in TASK_TYPES
    }
    made = []
    for i in range(count):
        rng = Random(content_id("alfworld-generated", seed, i))
        open_scenes = left[TASK_TYPES[i % len(TASK_TYPES)]]
        if not open_scenes:
            raise UserError(f"only {i} different games can be generated: lower env.generated_games")
        number = rng.choice(sorted(open_scenes))  # the scene first: kitchens allow many more goals than bathrooms
        goals = open_scenes[number]
        made.append(_game(tables, goals.pop(rng.randrange(len(goals))), rng, cache))
        if not goals:
            del open_scenes[number]
    return made


def _goals(tables: Tables, scene: Scene, type_: str) -> Iterator[Goal]:
    """Every goal of a type that a scene allows."""
    kinds = sorted({kind(name) for name in scene.furniture})
    use, tool = TOOLS.get(type_, (None, None))
    if type_ == "look_at_obj_in_light":
        for thing in scene.things if scene.has_desk_lamp else ():
            yield Goal(type=type_, thing=thing, target="", scene=scene)
        return
    for thing in scene.things if tool is None or tool in kinds else ():
        holders = [furniture for furniture in kinds if thing in tables.holds[furniture]]
        if len(holders) > 1 and (use is None or thing in tables.uses[use]):  # it needs a place to start from, too
            for target in holders:
                if target != tool:
                    yield Goal(type=type_, thing=thing, target=target, scene=scene)


def _game(tables: Tables, goal: Goal, rng: Random, cache: Path) -> GeneratedGame:
    template = rng.choice(tables.goals[goal.type]["templates"])
    query = template.format(**{key: word.lower() for key, word in goal.words.items()}) + "."
    data = {
        "pddl_domain": tables.domain,
        "grammar": tables.grammar.replace("UNKNOWN GOAL.", query),
        "pddl_problem": problem(tables, goal, _place(tables, goal, rng)),
    }
    lamp = "" if goal.target else "DeskLamp"
    title = f"{goal.type}-{goal.thing}-None-{goal.target or lamp}-{goal.scene.number}"  # ALFWorld's name for the task
    folder = f"{title}/game_{content_id(data)}"
    params = {"object_target": goal.thing, "parent_target": goal.target, "toggle_target": lamp}
    return GeneratedGame(
        folder=folder,
        path=str(cache / "generated" / folder / GAME_FILE),
        query=query,
        type=goal.type,
        sha256=hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest(),
        data=data,
        traj_data={
            "task_id": folder.split("/")[1],
            "task_type": goal.type,
            "pddl_params": params | {"mrecep_target": "", "object_sliced": False},
            "scene": {"floor_plan": f"FloorPlan{goal.scene.number}", "scene_num": goal.scene.number},
        },
    )


def _place(tables: Tables, goal: Goal, rng: Random) -> dict[str, str]:
    """thing's name -> furniture's name. Nothing of the goal's kind starts in or on the goal's target."""
    others = [thing for thing in goal.scene.things if thing != goal.thing]
    others = rng.sample(others, min(OTHER_THINGS, len(others)))
    copies = {thing: rng.choice((1, 1, 2)) for thing in sorted(others)}
    copies[goal.thing] = rng.choice((2, 3)) if goal.type == "pick_two_obj_and_place" else rng.choice((1, 1, 2))
    places: dict[str, str] = {}
    for thing, n in copies.items():
        holders = [name for name in goal.scene.furniture if thing in tables.holds[kind(name)]]
        if thing == goal.thing:
            holders = [name for name in holders if kind(name) != goal.target]
        for _ in range(n):
            _put(places, thing, rng.choice(holders), rng)
    if goal.scene.has_desk_lamp:
        stands = [name for name in goal.scene.furniture if kind(name) in LAMP_STANDS]
        _put(places, "DeskLamp", rng.choice(stands), rng)
    return places


def _put(places: dict[str, str], thing: str, furniture: str, rng: Random) -> None:
    """Give a thing a name of its own, made of its kind and a spot near the furniture's centre."""
    x, y, z = (float(part) for part in furniture.split("|")[1:4])
    name = ""
    while not name or name in places:
        spot = (x + rng.uniform(-0.4, 0.4), y + 0.1, z + rng.uniform(-0.4, 0.4))
        name = "|".join([thing, *(f"{metres:+06.2f}" for metres in spot)])
    places[name] = furniture


def problem(tables: Tables, goal: Goal, places: dict[str, str]) -> str:
    """What there is, how things are at the start, and the goal. places: a thing's name -> its furniture's name."""
    furniture = {name: location(pose) for name, pose in goal.scene.furniture.items()}
    start = location(goal.scene.start)
    kinds = {
        "rtype": {kind(name) for name in furniture} | NAMED_IN_DOMAIN["rtype"],
        "otype": {kind(name) for name in places} | {goal.thing} | NAMED_IN_DOMAIN["otype"],
    }
    objects = [("agent1", "agent")]
    objects += [(place, "location") for place in sorted({*furniture.values(), start})]
    objects += [(name, "receptacle") for name in sorted(furniture)]
    objects += [(name, "object") for name in sorted(places)]
    objects += [(f"{name}Type", sort) for sort, names in kinds.items() for name in sorted(names)]
    facts = [("atLocation", "agent1", start), *_furniture_facts(tables, furniture, kinds["otype"])]
    facts += [fact for name, where in sorted(places.items()) for fact in _thing_facts(tables, name, where, furniture)]
    lines = ["(define (problem generated)", "(:domain alfred)", "(:objects"]
    lines += [f"    {name.translate(MANGLE)} - {sort}" for name, sort in objects]
    lines += [")", "(:init"]
    lines += [f"    ({' '.join(word.translate(MANGLE) for word in fact)})" for fact in facts]
    # the package's text of the goal also ends the problem, and has # where the planner wants -
    return "\n".join([*lines, ")", tables.goals[goal.type]["pddl"].replace("#", "-").format(**goal.words)])


def _furniture_facts(tables: Tables, furniture: dict[str, str], things: set[str]) -> Iterator[tuple[str, ...]]:
    for name, place in sorted(furniture.items()):
        yield ("receptacleType", name, f"{kind(name)}Type")
        yield ("receptacleAtLocation", name, place)
        if kind(name) in tables.openable:
            yield ("openable", name)
    for holder in sorted({kind(name) for name in furniture}):
        for thing in tables.holds[holder]:
            if thing in things:
                yield ("canContain", f"{holder}Type", f"{thing}Type")


def _thing_facts(tables: Tables, name: str, where: str, furniture: dict[str, str]) -> Iterator[tuple[str, ...]]:
    uses = sorted(use for use, things in tables.uses.items() if kind(name) in things)
    yield ("objectType", name, f"{kind(name)}Type")
    yield ("inReceptacle", name, where)
    yield ("objectAtLocation", name, furniture[where])
    if "Toggleable" not in uses:  # a lamp stays where it is
        yield ("pickupable", name)
    if kind(name) in tables.vessels:
        yield ("isReceptacleObject", name)
    for use in uses:
        yield (use.lower(), name)


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


def _read(tables: Tables, number: int, table: str) -> Any:
    return json.loads((tables.layouts / f"FloorPlan{number}-{table}.json").read_text(encoding="utf-8"))


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
