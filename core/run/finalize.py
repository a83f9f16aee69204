"""Turn the composed Hydra config into this run's: drop keys for other benchmarks, expand short forms.

A sweep over several benchmarks may set keys for one of them: `-m env=warmup,alfworld +alfworld.split=generated`.
`+NAME.key=value` sets a key of `env` in the runs with env=NAME and has no effect in others. The run is recorded as if
`env.key=value` had been given. A sweep over arms may set k and r; arms that do not use them run without.
"""

from __future__ import annotations

from collections.abc import Iterable

from omegaconf import DictConfig, open_dict

from core.build import expand_fallbacks
from core.errors import UserError
from core.make import option, options, part, plain_data, takes
from core.run.keys import PER_ENV_KEYS, TOP_KEYS, check_config
from core.run.launch import choice, given_words, swept, values_of


def finalize(cfg: DictConfig) -> str:
    """Edit `cfg` in place and check it. The order of the steps matters.

    Returns a line that names the dropped k and r, "" if none was dropped. Raises UserError for an invalid setting.
    """
    with open_dict(cfg):
        cfg.pop("tables", None)  # which an experiment's file names for `reasoningbank tables`: no run depends on them
    take_env_keys(cfg)
    check_config(cfg)
    expand_fallbacks(cfg)
    take_bank(cfg)
    refuse_unused_retrieval(cfg)
    unused = unused_k_r(cfg)
    for key in unused:  # so the run equals one without them: in its cell, in tables and when it is resumed
        cfg[key] = None
    words = " ".join(f"{key}={value}" for key, value in unused.items())
    return words and f"{words} left out: {choice('arm') or choice('workflow')} has no such number of attempts."


def take_env_keys(cfg: DictConfig) -> None:
    """Apply the `+NAME.key=value` settings of this run's benchmark, and remove those of all benchmarks from `cfg`.

    Raises UserError for a key that the named benchmark does not have, and for a benchmark not in this sweep.
    """
    given = [key for key in cfg if key not in TOP_KEYS and key in options("env")]
    for name in given:
        known = {*option("env", name).env, "workers"}
        for key, value in cfg[name].items() if hasattr(cfg[name], "items") else ((None, cfg[name]),):
            if key is None or (key not in known and key not in PER_ENV_KEYS):
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


def take_bank(cfg: DictConfig) -> None:
    """Set memory.path to the bank that `bank` names; without effect, and `bank` dropped, for a workflow without memory.

    The path is copied as it is written: one with ${seed} in it names a bank for each seed.
    """
    if cfg.bank is None:
        return
    if not part(cfg.workflow).has_memory:
        cfg.bank = None
        return
    banks = plain_data(cfg.banks) if cfg.banks is not None else {}
    if cfg.bank not in banks:
        raise UserError(f"bank={cfg.bank}: banks has {', '.join(banks) or 'none'}; give banks='{{{cfg.bank}: PATH}}'.")
    with open_dict(cfg):
        cfg.memory.path = banks[cfg.bank]


def refuse_unused_retrieval(cfg: DictConfig) -> None:
    """Raise UserError for a retrieval policy that was typed and that the chosen memory, which ranks itself, ignores."""
    typed = [word.get_key_element().lstrip("+") for word in given_words()]
    given = [key for key in typed if key.partition(".")[0] == "retrieval"]
    if given and "memory" in typed and not takes(cfg.memory, "policy") and not swept() & {"arm", "memory", "retrieval"}:
        name = cfg.memory["_target_"].rpartition(".")[2]
        raise UserError(
            f"{given[0]} has no effect: memory={choice('memory')} ranks its records itself, as {name} has no field "
            f"`policy`. Leave out {', '.join(given)}, or give the class that field (core/build.py hands it the policy)."
        )


def keys_for_other_envs(keys: Iterable[str], env: str) -> set[str]:
    """The dotted keys, such as alfworld.split, that belong to a benchmark other than `env`."""
    return {key for key in keys if (name := key.partition(".")[0]) != env and name in options("env")}


def unused_k_r(cfg: DictConfig) -> dict[str, int]:
    """{k or r: its value} that a sweep over arms or workflows sets and this run's workflow does not use.

    Outside of such a sweep nothing is dropped, and the workflow refuses a k or r that it does not use.
    """
    given = {key: cfg[key] for key in ("k", "r") if cfg[key] is not None}
    if not given or not swept() & {"arm", "workflow"}:
        return {}
    has = part(cfg.workflow).scaled_by
    return {key: value for key, value in given.items() if key not in has}
