"""What the machine decides where an env's configuration leaves it open: once, for a run or a whole sweep."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from core.checksum import loaded
from core.make import part
from core.run.launch import choice, in_sweep
from core.run.manifest import recorded_config
from core.types import content_id

FOLDER = ".settled"  # of a sweep: what its first cell found


def settle(cfg: DictConfig, run_dir: Path | None = None) -> str:
    """Fill in what `cfg.env` leaves open (`BaseEnv.settled`), and return the env's line about it, or "".

    The values are those of the run's earlier starts, or of the run whose attempts are learned from; else those that a
    cell of its sweep found first; else new ones. In a sweep the line is that cell's alone.

    run_dir   None: of no run that begins now, as for an estimate
    """
    env = part(cfg.env)
    if not (found := env.settled(cfg.env)):
        return ""
    first = not in_sweep()
    if run_dir is not None and (kept := kept_from(recorded_config(Path(cfg.attempts_from or run_dir)), found)):
        found |= kept
    elif in_sweep():
        path = Path(HydraConfig.get().sweep.dir) / FOLDER / f"{choice('env')}-{content_id(cfg.env.get('data'))}.json"
        first = run_dir is not None and not cfg.dry_run and _is_first(path, found)
        found = loaded(path, path.read_bytes()) if path.exists() else found
    cfg.env.update(found)
    return env.notice(cfg.env) if first else ""


def kept_from(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a recorded configuration has for the keys that were left open."""
    before = recorded.get("env") or {}
    return {key: before[key] for key in found if before.get(key) is not None}


def _is_first(path: Path, found: dict[str, Any]) -> bool:
    """Whether no cell of the sweep, on whichever machine, has noted anything yet: then `found` is noted."""
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = path.with_name(f"{content_id(str(os.urandom(8)))}.tmp")
    mine.write_text(json.dumps(found), encoding="utf-8", newline="\n")
    try:
        os.link(mine, path)  # whole or not at all, and only by the first
    except FileExistsError:
        return False
    finally:
        mine.unlink()
    return True
