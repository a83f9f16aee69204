"""Keys for one benchmark of a sweep over several: `-m env=warmup,alfworld +alfworld.split=generated`.

`+NAME.key=value` sets a key of `env` where env=NAME, and nothing elsewhere. The cell is the one that `env.key=value`
alone would make, and is recorded as that.
"""

from __future__ import annotations

from collections.abc import Iterable

from omegaconf import DictConfig, open_dict

from core.build import KNOWN, option, options
from core.errors import UserError
from core.run.launch import choice, values_of

OF_THE_RUN = ("limit", "max_steps", "max_repeats", "episode_timeout_s")  # where the benchmark has no key of this name


def take_env_keys(cfg: DictConfig) -> None:
    """Set what is meant for the benchmark of this run, and take all of it out of the configuration.

    Raises UserError for a key that the named benchmark does not have, and for a benchmark that is not run.
    """
    given = [key for key in cfg if key not in KNOWN and key in options("env")]
    for name in given:
        known = {*option("env", name).env, "workers"}
        for key, value in cfg[name].items() if hasattr(cfg[name], "items") else ((None, cfg[name]),):
            if key not in known and key not in OF_THE_RUN:
                word = name if key is None else f"{name}.{key}"
                raise UserError(f"+{word}={value}: env={name} has the keys {', '.join(sorted(known | {*OF_THE_RUN}))}.")
            if name == choice("env"):
                (cfg.env if key in known else cfg)[key] = value
        if name not in (envs := values_of("env") or [choice("env")]):
            raise UserError(f"+{name}.{next(iter(cfg[name]))}: nothing here runs env={name}, but {', '.join(envs)}.")
        with open_dict(cfg):
            del cfg[name]


def elsewhere(keys: Iterable[str], env: str) -> set[str]:
    """Of dotted keys those that are for another benchmark."""
    return {key for key in keys if (name := key.partition(".")[0]) != env and name in options("env")}
