"""What the machine decides where an env's configuration leaves it open: once, for a run or a whole sweep."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from core.build import part
from core.run.launch import choice, in_sweep
from core.run.manifest import recorded_config
from core.types import content_id

FOLDER = ".settled"  # of a sweep: what its first cell found


def settle(cfg: DictConfig, run_dir: Path) -> str:
    """Fill in what `cfg.env` leaves open (`BaseEnv.settled`), and return the env's line about it, or "".

    The values are those of the run's earlier starts; else those that a cell of its sweep found first; else new ones.
    """
    env = part(cfg.env)
    if not (found := env.settled(cfg.env)):
        return ""
    if kept := kept_from(recorded_config(run_dir), found):
        found |= kept
    elif in_sweep() and not cfg.dry_run:
        found |= _first_in_sweep(choice("env"), cfg.env.get("data"), found)
    cfg.env.update(found)
    return env.notice(cfg.env)


def kept_from(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a recorded configuration has for the keys that were left open."""
    before = recorded.get("env") or {}
    return {key: before[key] for key in found if before.get(key) is not None}


def _first_in_sweep(name: str, data: str | None, found: dict[str, Any]) -> dict[str, Any]:
    """What the sweep's first cell with this benchmark has found, on whichever machine."""
    folder = Path(HydraConfig.get().sweep.dir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path, mine = folder / f"{name}-{content_id(data)}.json", folder / f"{os.getpid()}-{content_id(str(os.urandom(8)))}"
    if not path.exists():
        mine.write_text(json.dumps(found), encoding="utf-8")
        try:
            os.link(mine, path)  # whole or not at all, and only by the first
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    return json.loads(path.read_text(encoding="utf-8"))
