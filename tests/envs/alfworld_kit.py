"""What the ALFWorld tests share."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from envs.alfworld.env import AlfworldEnv
from envs.alfworld.generate import generate

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data" / "alfworld"


def make(folder: Path, **fields) -> AlfworldEnv:
    options = {"instructions": "", "max_steps": 50, "split": "generated", "generated_games": 6}
    return AlfworldEnv(**(options | {"cache_dir": str(folder)} | fields))


def official(name: str) -> str:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path.relative_to(ROOT.parent)} is not beside the repository")
    return str(path)


def write_archive(folder: Path) -> Path:
    """A tar archive of two generated games under the official layout, the second of them in the older wording."""
    new, old = generate(3, 2, folder)
    grammar = old.data["grammar"].replace('"move {o} to {r}"', '"put {o} in/on {r}"')
    old.data["grammar"] = grammar.replace("move the {o.name} to the {r.name}", "put the {o.name} in/on the {r.name}")
    path = folder / "games.tar.xz"
    with tarfile.open(path, "w:xz") as tar:
        for split, row in (("valid_seen", new), ("valid_unseen", old)):
            file = folder / "json_2.1.1" / split / row.folder / "game.tw-pddl"
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(row.data | {"solvable": True}))
            tar.add(file, file.relative_to(folder))
    return path
