"""Name the folder of one cell of a sweep, which here is one run with one seed: `arm=reasoningbank,env=toy,seed=1`.

(In analysis/cells.py a cell is a configuration over all its seeds.)

The name is made from the configuration, so a sweep can grow: with the same `run_dir` each run finds its folder and is
resumed, in any order. The name alone does not decide: a folder of another name with the same configuration (from a
sweep over other keys) is the cell's folder too, and the run itself refuses a folder that holds
another configuration.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from core.build import part, plain_data
from core.errors import UserError
from core.run.finalize import finalize, keys_for_other_envs, unused_k_r
from core.run.keys import without
from core.run.launch import swept
from core.run.manifest import identity, recorded_config, recorded_manifest
from core.run.records import differences
from core.run.settle import kept_from

MOST_VALUE, MOST_NAME = 60, 200  # characters; a file name may have 255 bytes


def cell_folder(*, _root_: DictConfig) -> str:
    """The name of a cell's folder: an existing folder that holds its run, else `cell_name`. Resolves ${cell:}."""
    name = cell_name(_root_)
    return _existing_folder(_root_, name) or name


def _existing_folder(root: DictConfig, name: str) -> str | None:
    """The name of a folder of the sweep with this cell's configuration, `name` first; None if there is none.

    A folder whose configuration differs only in `limit` counts as well where its run would grow to this one.
    """
    here = Path(HydraConfig.get().sweep.dir)
    others = sorted(path.parent.name for path in here.glob("*/manifest.json") if path.parent.name != name)
    found = {other: made for other in (name, *others) if (made := _made_with(here / other, root.seed)) is not None}
    if not found or (config := _config(root)) is None:
        return None
    wanted = {other: _wanted(root, config, here / other) for other in found}
    less = {other: without(each, ["limit"]) for other, each in wanted.items()}
    but_limit = [other for other, made in found.items() if not differences(without(made, ["limit"]), less[other])]
    if name in but_limit:
        return name
    same = [other for other in but_limit if not differences(found[other], wanted[other])]
    if not same and "limit" not in swept():  # a run with a larger limit continues the smaller one
        same = [other for other in but_limit if "limit=" not in other]
    return same[0] if same else None


def cell_name(root: DictConfig) -> str:
    """A folder name from the cell's arm or workflow, its benchmark, the keys that the sweep varies, and its seed.

    The model is part of it if the command sets `llm`. Keys without effect in this cell (k for an arm that does not use
    it, a key of another benchmark) are left out.
    """
    hydra = HydraConfig.get()
    choices, typed = hydra.runtime.choices, {}
    for word in hydra.overrides.task:
        key, _, value = word.partition("=")
        typed[key.lstrip("+")] = value
    first = "arm" if choices.get("arm") else "workflow"
    words = {first: choices[first], "env": choices["env"]}
    left_out = {*keys_for_other_envs(typed, choices["env"]), *words, "seed"}
    with suppress(UserError):  # the workflow cannot be imported: its run reports that
        left_out |= {*unused_k_r(root), *(() if part(root.workflow).has_memory else ("bank",))}
    words |= {key: typed[key] for key in sorted({*swept(), "llm"}) if key in typed and key not in left_out}
    words["seed"] = str(root.seed)
    name = ",".join(f"{safe(key, MOST_VALUE, '@')}={safe(str(value), MOST_VALUE)}" for key, value in words.items())
    return safe(name, MOST_NAME, "@,=~")


# Names that Windows keeps for devices, whatever their ending, and those whose last full stop it drops.
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?|.*\.")


def safe(text: str, most: int, also: str = "") -> str:
    """The text as part of a file name. A text that is changed or cut gets "~" and its hash, so that names stay unique.

    most   maximum characters before the hash
    also   further characters that are allowed
    """
    plain = re.sub(rf"[^\w.+{also}-]", "-", text, flags=re.ASCII)[:most]
    if _RESERVED.fullmatch(plain):
        plain = f"_{plain.rstrip('.')}"
    return text if plain == text else f"{plain}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _wanted(root: DictConfig, config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The `identity` of a cell's configuration, with what its env leaves open as the folder was made with."""
    kept = kept_from(recorded_config(folder), part(root.env).settled(config["env"]))
    return json.loads(json.dumps(identity(config | {"env": config["env"] | kept}), default=str))


def _config(root: DictConfig) -> dict[str, Any] | None:
    """The finalized configuration of a cell's run; None if the run will be refused."""
    cfg = OmegaConf.masked_copy(root, [str(key) for key in root if key != "hydra"])
    try:
        with open_dict(cfg):
            finalize(cfg)
        return plain_data(cfg, resolve=True)
    except (OmegaConfBaseException, UserError):
        return None


def _made_with(folder: Path, seed: int) -> dict[str, Any] | None:
    """The `identity` that a folder was made with; None if it has another seed, or no readable manifest."""
    try:
        config = (recorded_manifest(folder) or {})["fingerprint"]["config"]
        return config if config.get("seed", seed) == seed else None
    except (KeyError, TypeError, AttributeError):
        return None
