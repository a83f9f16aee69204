"""Name the folder of one cell of a sweep, which here is one run with one seed: `arm=reasoningbank,env=toy,seed=1`.

(In analysis/cells.py a cell is a configuration over all its seeds.)

The name is made from the configuration, so a sweep can grow: with the same `run_dir` each run finds its folder and is
resumed, in any order. A folder of another name with the same configuration, from a sweep over other keys, is the
cell's folder too. The run itself refuses a folder that holds another configuration.
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

from core.errors import UserError
from core.make import part, plain_data
from core.run.finalize import finalize, keys_for_other_envs, unused_k_r
from core.run.keys import ARM_KEYS, differences
from core.run.launch import given_words, other_arm, swept
from core.run.manifest import identity, recorded_config
from core.run.settle import kept_from

MOST_VALUE, MOST_NAME = 60, 200  # characters; a file name may have 255 bytes


def cell_folder(*, _root_: DictConfig) -> str:
    """The name of a cell's folder: `cell_name`, or that of a folder which holds this very run. Resolves ${cell:}.

    A run of another arm is another run, though both have one configuration: it keeps the name that it was made under.
    """
    name, here = cell_name(_root_), Path(HydraConfig.get().sweep.dir)
    if (here / name / "manifest.json").is_file() or (config := _config(_root_)) is None:
        return name
    folders = (path.parent for path in sorted(here.glob("*/manifest.json")))
    fitting = (folder for folder in folders if _holds(folder, _root_, config) and not other_arm(folder))
    return next((folder.name for folder in fitting), name)


def _holds(folder: Path, root: DictConfig, config: dict[str, Any]) -> bool:
    """Whether a folder was made with this configuration, what its env leaves open being as the folder has it."""
    if not (recorded := recorded_config(folder)):
        return False
    env = config["env"] | kept_from(recorded, part(root.env).settled(config["env"]))
    mine = json.loads(json.dumps(identity(config | {"env": env}), default=str))
    return not differences(identity(recorded), mine)


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
    added = {*typed} & {*ARM_KEYS} - {word.get_key_element() for word in given_words()}  # by a sweeper of its own
    words |= {key: typed[key] for key in sorted({*swept(), "llm", *added}) if key in typed and key not in left_out}
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


def _config(root: DictConfig) -> dict[str, Any] | None:
    """The finalized configuration of a cell's run; None if the run will be refused."""
    cfg = OmegaConf.masked_copy(root, [str(key) for key in root if key != "hydra"])
    try:
        with open_dict(cfg):
            finalize(cfg)
        return plain_data(cfg, resolve=True)
    except (OmegaConfBaseException, UserError):
        return None
