"""ALFWorld games made here, for playing without a download: `env.split=generated`.

Each game is a floor plan of the package, furnished with a random choice of the things that belong there, and a goal of
one of the six task types that these things allow. The goal's things never start where they are to go. Game i depends
on the seed and on the games before it alone, so a longer list begins with the shorter one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from core.errors import UserError
from core.process import WorkerProcess
from core.types import content_id
from envs.alfworld_games import GAME_FILE, TASK_TYPES, Game
from envs.alfworld_problem import Goal, problem
from envs.alfworld_scene import LAMP_STANDS, Scene, Tables, floor_plans, kind, load_scene, load_tables
from single_turn_bench.files import write_whole

OTHER_THINGS = 14  # kinds of things beside the goal's, at most
TOOLS = {
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge"),
}


@dataclass(frozen=True, kw_only=True)
class GeneratedGame(Game):
    """data: the game file without its walkthrough, which the planner adds when the game is first played."""

    data: dict[str, Any]
    traj_data: dict[str, Any]

    def prepare(self, worker: WorkerProcess) -> None:
        """Have the files written, unless they are."""
        if not Path(self.path).exists():
            write_whole(Path(self.path).with_name("traj_data.json"), json.dumps(self.traj_data).encode())
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
