"""Make a composed configuration that of its run: what is meant for other runs goes, short forms are written out.

A sweep over several benchmarks may hold keys for one of them: `-m env=warmup,alfworld +alfworld.split=generated`.
`+NAME.key=value` sets a key of `env` where env=NAME, and nothing elsewhere. The cell is the one that `env.key=value`
alone would make, and is recorded as that. A sweep over arms may hold k and r, for those arms that have such a number.
"""

from __future__ import annotations

from collections.abc import Iterable

from omegaconf import DictConfig, open_dict

from core.build import expand_fallbacks, option, options, part
from core.errors import UserError
from core.run.keys import PER_ENV_KEYS, TOP_KEYS, check_config
from core.run.launch import choice, given_words, in_sweep, values_of


def finalize(cfg: DictConfig) -> str:
    """Make a composed configuration that of its run: what is for others goes, what has a short form is written out.

    Returns a line on what was left out, "" where nothing was. Raises UserError for what no run may have.
    """
    take_env_keys(cfg)
    check_config(cfg)
    expand_fallbacks(cfg)
    return drop_sizes(cfg)


def take_env_keys(cfg: DictConfig) -> None:
    """Set what is meant for the benchmark of this run, and take all of it out of the configuration.

    Raises UserError for a key that the named benchmark does not have, and for a benchmark that is not run.
    """
    given = [key for key in cfg if key not in TOP_KEYS and key in options("env")]
    for name in given:
        known = {*option("env", name).env, "workers"}
        for key, value in cfg[name].items() if hasattr(cfg[name], "items") else ((None, cfg[name]),):
            if key not in known and key not in PER_ENV_KEYS:
                word = name if key is None else f"{name}.{key}"
                raise UserError(
                    f"+{word}={value}: env={name} has the keys {', '.join(sorted(known | {*PER_ENV_KEYS}))}."
                )
            if name == choice("env"):
                (cfg.env if key in known else cfg)[key] = value
        if name not in (envs := values_of("env") or [choice("env")]):
            raise UserError(f"+{name}.{next(iter(cfg[name]))}: nothing here runs env={name}, but {', '.join(envs)}.")
        with open_dict(cfg):
            del cfg[name]


def elsewhere(keys: Iterable[str], env: str) -> set[str]:
    """Of dotted keys those that are for another benchmark."""
    return {key for key in keys if (name := key.partition(".")[0]) != env and name in options("env")}


def unused_sizes(cfg: DictConfig) -> dict[str, int]:
    """k and r, where a sweep over arms or workflows gives them to one that has no such number of attempts."""
    given = {key: cfg[key] for key in ("k", "r") if cfg[key] is not None}
    if not given or not _over_arms():
        return {}
    has = part(cfg.workflow).scaled_by
    return {key: value for key, value in given.items() if key not in has}


def _over_arms() -> bool:
    """Whether this run is one of a sweep over arms or workflows: as it was typed, or by its experiment."""
    over = {override.get_key_element().lstrip("+") for override in given_words() if override.is_sweep_override()}
    return in_sweep() and bool(over & {"arm", "workflow"})


def drop_sizes(cfg: DictConfig) -> str:
    """In a sweep over arms, k and r are for those that have them: take them from a workflow that has none.

    Its run is then the same as without them, in cells, in tables and when it is resumed. Returns a line that says so,
    "" where nothing was left out. Elsewhere nothing is changed, and a workflow refuses what it would ignore.
    """
    unused = unused_sizes(cfg)
    for key in unused:
        cfg[key] = None
    words = " ".join(f"{key}={value}" for key, value in unused.items())
    return words and f"{words} left out: {choice('arm') or choice('workflow')} has no such number of attempts."
