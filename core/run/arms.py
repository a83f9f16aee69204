"""Name a run by its configuration: an arm, and those of the typed words that change what belongs to the arm.

The name of an arm promises everything that belongs to an arm (`arm` in core/run/keys.py) and everything that the arm's
file sets. A word that was typed for such a key is part of the name if the run's value is another than it would be
without: `name_of` composes the arm once more, with the run's benchmark, models and experiment but without these words.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.make import CONFIG, compose_words, part, plain_data, takes
from core.run.keys import ARM_KEYS, METHOD_KEYS, WRITTEN_INTO_OTHERS
from core.run.manifest import flat, identity
from prompts.registry import Prompts

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Where runs differ from an arm only in these numbers, the arm's name alone may stand for them.
NUMBERS = ("k", "r", "retrieval.top_k", "stream.batch", "stream.passes")
GIVEN_BANK = ("memory.path", "memory.namespace")  # may differ from seed to seed: a note names it, not the run's name
# Never part of a name: they vary between the cells of a sweep, which share what is composed.
NOT_SHARED = ("seed", "limit", "run_dir")
FIELDS = {"contrast": "contrast", "select": "selector"}  # {key: the field of the workflows in which it has an effect}
GENERATED = "generated"  # the split of tasks that were made here
MOST_VALUE = 40  # characters of a value in a name


@dataclass(frozen=True, kw_only=True)
class Name:
    """The name of a run.

    arm     the arm that was chosen, else the workflow
    words   how the run departs from it, as words of the command line, e.g. "retrieval.top_k=4"
    """

    arm: str
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return named(self.arm, self.words)


def named(arm: str, words: Iterable[str]) -> str:
    """An arm's name and the words by which a run departs from it, as one label."""
    return " ".join([arm, *words])


def name_of(hydra: dict[str, Any], composed: DictConfig) -> Name:
    """The name of a run.

    hydra      Hydra's own configuration of the run, as in .hydra/hydra.yaml
    composed   the run's configuration
    """
    config = plain_data(composed, resolve=True)
    chosen = hydra["runtime"]["choices"]
    name = chosen["arm"] or chosen["workflow"]
    return Name(arm=name, words=(*_departures(chosen, hydra, config), *_own_prompts(config)))


def _departures(chosen: dict[str, Any], hydra: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """The typed words by which a run departs from its arm, options of groups first, each with the run's value."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    arm, folders, typed = chosen["arm"], tuple(_folders(hydra["runtime"])), hydra["overrides"]["task"]
    kept = [*ARM_KEYS, *_set_by(arm, folders)]
    mine = [word for word in typed if _is_of(word, kept) and (arm or key_of(word) != "workflow")]
    if not mine:
        return []
    others = tuple(word for word in typed if word not in mine and key_of(word) not in NOT_SHARED)
    keys = sorted({*map(key_of, mine)}, key=lambda key: (key not in chosen, *_place(key, kept)))
    try:
        without, options = _composed(folders, others)
        groups = [key for key in keys if key in chosen and chosen[key] != options.get(key)]
        if groups:  # the other settings are compared with those of the chosen options
            without, _ = _composed(folders, (*others, *(word for word in mine if key_of(word) in groups)))
    except (HydraException, OmegaConfBaseException):  # without what was typed for it this is no valid configuration
        return [f"{key_of(word)}={_short(word.partition('=')[2])}" for word in mine]
    here, there = identity(config, *GIVEN_BANK), identity(without, *GIVEN_BANK)
    changed = {key: chosen[key] for key in groups}
    changed |= {key: _at(here, key) for key in keys if key not in chosen and _at(here, key) != _at(there, key)}
    return [f"{key}={_short(value)}" for key, value in changed.items() if _acts(key, config)]


def words_that_change(runtime: dict[str, Any], words: Iterable[str], arms: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(word, arm) for each word of a command that sets what an arm sets itself: with it, the arm would be another one.

    runtime   `runtime` of Hydra's own configuration
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    folders, words = tuple(_folders(runtime)), tuple(words)
    for arm in arms:
        mine = [word for word in words if _is_of(word, [*ARM_KEYS, *_set_by(arm, folders)])]
        if not mine:
            continue
        others = tuple(word for word in words if word not in mine)
        try:
            (usual, options), (own, chosen) = (_composed(folders, (*others, *it)) for it in ((), (f"arm={arm}",)))
        except (HydraException, OmegaConfBaseException):  # its run says what is wrong
            continue
        for word in mine:
            key = key_of(word)
            is_set = chosen[key] != options.get(key) if key in chosen else _at(own, key) not in (None, _at(usual, key))
            if is_set:
                yield word, arm


def _place(key: str, kept: list[str]) -> tuple[int, str]:
    """The order of the words in a name: that of `KEYS`, then by name."""
    return next((n for n, each in enumerate(kept) if _is_of(key, [each])), len(kept)), key


@cache
def _composed(folders: tuple[Path, ...], words: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the resolved configuration that words of the command line make, {config group: option})."""
    from omegaconf import open_dict

    cfg = compose_words("config", words, folders)
    options = plain_data(cfg.hydra.runtime.choices)
    with open_dict(cfg):
        del cfg["hydra"]
    return plain_data(cfg, resolve=True), options


def _acts(key: str, config: dict[str, Any]) -> bool:
    """Whether a key has an effect with the run's workflow and memory."""
    workflow, top = part(config["workflow"]), _top(key)
    if top in FIELDS:
        return takes(config["workflow"], FIELDS[top])
    if top in ("workflow", "stream", "env", *METHOD_KEYS):
        return True
    return workflow.has_memory and (top == "memory" or part(config["memory"]).learns)


def _own_prompts(config: dict[str, Any]) -> list[str]:
    """The words for prompts that are not the project's, by the name of their folder."""
    given = Prompts.of(config["prompts"])
    words = [f"prompts={_short(Path(given.own).name)}"] if given.own else []
    return words + (
        [f"prompts.memory_block={given.memory_block}"] if given.memory_block != Prompts.memory_block else []
    )


def _folders(runtime: dict[str, Any]) -> list[Path]:
    """The folders of --config-dir."""
    found = [Path(source["path"]) for source in runtime.get("config_sources", ()) if source.get("schema") == "file"]
    return [path for path in found if path.resolve() != CONFIG.resolve()]


def _set_by(arm: str | None, folders: Iterable[Path]) -> list[str]:
    """The dotted keys that an arm's file sets; [] if there is no such file."""
    import yaml

    file = next((path for folder in (*folders, CONFIG) if (path := folder / "arm" / f"{arm}.yaml").is_file()), None)
    body = (yaml.safe_load(file.read_text(encoding="utf-8")) if file else None) or {}
    return [*flat({key: value for key, value in body.items() if key != "defaults"})]


def _at(config: Any, key: str) -> Any:
    """The value of a typed key; of one that is only interpolated into the workflow's (k), that of the workflow."""
    for name in (f"workflow.{key}" if key in WRITTEN_INTO_OTHERS else key).split("."):
        config = config.get(name) if isinstance(config, dict) else None
    return config


def key_of(word: str) -> str:
    """The key that a word of the command line sets."""
    return word.partition("=")[0].lstrip("+~")


def _top(key: str) -> str:
    return re.split(r"[./@]", key)[0]


def _is_of(word: str, kept: Iterable[str]) -> bool:
    """Whether a word of the command line sets one of these keys, or one below them."""
    key = key_of(word)
    return any(key == each or key.startswith((f"{each}.", f"{each}/", f"{each}@")) for each in (*kept, *METHOD_KEYS))


def _short(value: Any) -> str:
    """A value as one word; a long one is cut and gets "~" and its hash."""
    plain = {"None": "null", "True": "true", "False": "false"}
    text = plain.get(str(value), "_".join(str(value).split()))
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def env_label(name: str, env: Mapping[str, Any] | None) -> str:
    """A benchmark's name for people; one whose tasks were generated says so: it is not the benchmark itself.

    A file of questions that is no known dataset is called by its own name.

    name   the option of `env`; env: its configuration
    """
    env = env or {}
    if env.get("path") and "dataset" in env and not env["dataset"]:
        return Path(str(env["path"])).name.partition(".")[0]
    return f"{name} ({GENERATED})" if env.get("split") == GENERATED else name
