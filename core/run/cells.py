"""The folder of a sweep's cell is its configuration: `arm=reasoningbank,env=toy,seed=1`.

So a sweep grows: with the same `run_dir` whatever it has already is found again and continued, in any order. A name
alone is not trusted: a folder of another name that holds the same configuration (of an older version, or of a sweep
over other keys) is the cell's, and one that holds another is refused by the run itself.
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
from core.run.finalize import elsewhere, finalize, unused_sizes
from core.run.launch import swept
from core.run.manifest import identity, without
from core.run.records import differences
from core.run.upgrade import by_class, completed

MOST_VALUE, MOST_NAME = 60, 200  # characters; a file system takes 255 bytes


def cell_folder(*, _root_: DictConfig) -> str:
    """The folder of a cell in its sweep's: the one that holds it already, else `cell_name`. Resolves ${cell:}."""
    name, here = cell_name(_root_), Path(HydraConfig.get().sweep.dir)
    others = sorted(path.parent.name for path in here.glob("*/manifest.json") if path.parent.name != name)
    found = {other: made for other in (name, *others) if (made := _made_with(here / other)) is not None}
    if not found or (config := _config(_root_)) is None:
        return name
    wanted = json.loads(json.dumps(identity(config), default=str))
    less = without(wanted, ["limit"])
    but_limit = [other for other, made in found.items() if not differences(without(made, ["limit"]), less)]
    if name in but_limit:
        return name
    same = [other for other in but_limit if not differences(found[other], wanted)]
    if not same and "limit" not in swept():  # a larger limit continues it
        same = [other for other in but_limit if "limit=" not in other]
    return same[0] if same else name


def cell_name(root: DictConfig) -> str:
    """What a cell is, by its arm or workflow, its benchmark, what its sweep goes over, and its seed.

    The model is named where the command does. A key that this cell does not have (k of an arm without attempts, a key
    of another benchmark) is not in its name.
    """
    hydra = HydraConfig.get()
    choices, typed = hydra.runtime.choices, {}
    for word in hydra.overrides.task:
        key, _, value = word.partition("=")
        typed[key.lstrip("+")] = value
    first = "arm" if choices.get("arm") else "workflow"
    words = {first: choices[first], "env": choices["env"]}
    left_out = {*elsewhere(typed, choices["env"]), *words, "seed"}
    with suppress(UserError):  # a workflow that cannot be imported: its run says so
        left_out |= {*unused_sizes(root)}
    words |= {key: typed[key] for key in sorted({*swept(), "llm"}) if key in typed and key not in left_out}
    words["seed"] = str(root.seed)
    name = ",".join(f"{safe(key, MOST_VALUE, '@')}={safe(str(value), MOST_VALUE)}" for key, value in words.items())
    return safe(name, MOST_NAME, "@,=~")


def safe(text: str, most: int, also: str = "") -> str:
    """The text as a part of a file name. What is changed or cut ends in "~" and a hash, so that no two become one."""
    plain = re.sub(rf"[^\w.+{also}-]", "-", text, flags=re.ASCII)[:most]
    return text if plain == text else f"{plain}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _config(root: DictConfig) -> dict[str, Any] | None:
    """The configuration that the run of a cell will have; None where it will be refused."""
    cfg = OmegaConf.masked_copy(root, [key for key in root if key != "hydra"])
    try:
        with open_dict(cfg):
            finalize(cfg)
        return OmegaConf.to_container(cfg, resolve=True)
    except (OmegaConfBaseException, UserError):
        return None


def _made_with(folder: Path) -> dict[str, Any] | None:
    """The identity of the configuration that a folder was made with; None where there is none to be read."""
    try:
        made = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        return completed(by_class(made["fingerprint"]["config"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
