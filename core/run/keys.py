"""The properties of each configuration key (`KEYS`), and the check of a composed configuration (`check_config`).

Every module that treats config keys specially reads this table: which keys must be equal when a run is resumed
(manifest.py), which keys belong to an arm (arms.py), which ones a sweep may set for one benchmark, which ones a report
shows, and which ones a table notes or has a column for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.build import LLMS, ROLES
from core.details import Details
from core.errors import UserError, meant
from prompts.registry import FORMS, OTHER_FORMS, PROJECT, QUOTE, Prompts


@dataclass(frozen=True, kw_only=True)
class Key:
    """The properties of a configuration key. Those of a group hold for all its keys without an entry of their own.

    outcome       the key can change an episode, so a run is resumed only with the same value
    arm           the key belongs to the arm: a run that has another value than its arm is named by it, and runs that
                  differ in it may stand in one table as different arms
    writes_into   only interpolated into other keys (`${seed}`); runs are compared by those instead
    least         minimum of a key that is a whole number; None: not a number
    nullable      the number may be null
    switch        the key is true or false
    per_env       a sweep over several benchmarks may set the key for one of them, as +ENV.KEY
    method        the key says how a task is attempted: dropped from the suggested command for the same run with or
                  without memory (session.py), because the other method chooses its own
    shown         a report lists the key among the settings of a run
    column        the table's column of the key, by which cells of one arm are told apart in their labels; "": none
    usual         the usual value; a note below a table names every other (`noted`)
    noted         the key changes which lessons a task may see, or which parts of them
    """

    outcome: bool = True
    arm: bool = False
    writes_into: bool = False
    least: int | None = None
    nullable: bool = False
    switch: bool = False
    per_env: bool = False
    method: bool = False
    shown: bool = True
    column: str = ""
    usual: Any = None
    noted: bool = False


# {key as typed on the command line: its properties}. `model:NAME` is the key NAME of every language model, and of the
# model of an embedder.
KEYS = {
    "seed": Key(least=0, writes_into=True),
    "limit": Key(least=1, nullable=True, per_env=True),
    "max_steps": Key(least=1, nullable=True, per_env=True),
    "max_repeats": Key(least=2, nullable=True, per_env=True),
    "max_concurrency": Key(least=1, nullable=True, outcome=False),
    "episode_timeout_s": Key(least=1, nullable=True, per_env=True),
    "retry_broken": Key(least=0, outcome=False),  # the episode records that its task was retried
    "allow_changed_parts": Key(switch=True, outcome=False),  # each start records its parts
    "stop_after_broken": Key(least=1, nullable=True, outcome=False),
    "k": Key(arm=True, least=1, nullable=True, writes_into=True, method=True, column="k"),
    "r": Key(arm=True, least=0, nullable=True, writes_into=True, method=True, column="r"),
    "retrieval.top_k": Key(arm=True, column="top_k"),
    "workflow.learn_from": Key(arm=True, column="learn_from"),
    "env": Key(),
    "env.shuffle_options": Key(arm=True),
    "env.workers": Key(outcome=False),
    **dict.fromkeys(("env.path", "env.data"), Key(outcome=False)),  # the fingerprint has the hash of what is there
    "env.urls": Key(outcome=False),  # addresses of the sites of env=webarena
    "env.controls": Key(outcome=False),
    "memory": Key(arm=True, column="memory"),
    "memory.path": Key(arm=True, noted=True),
    "memory.namespace": Key(arm=True, noted=True, usual="default"),
    "memory.allow_self": Key(arm=True, noted=True, usual=False),
    "memory.unit": Key(arm=True, noted=True, usual="record"),
    "memory.key": Key(arm=True, noted=True, usual="query"),
    "memory.domain": Key(arm=True, noted=True),
    "memory.tags": Key(arm=True, noted=True),
    "memory.uses": Key(arm=True, noted=True),
    "memory.redact": Key(arm=True, noted=True),
    "memory.inject": Key(arm=True, noted=True, usual="system"),
    "memory.max_tokens": Key(arm=True, noted=True),
    "retrieval": Key(arm=True, column="retrieval"),
    "judge": Key(arm=True, column="judge"),
    "setting": Key(arm=True, column="setting"),
    "setting.allow_oracle_bank": Key(outcome=False, noted=True, usual=False),  # decides only whether a bank is refused
    "stream": Key(),
    "stream.order": Key(column="order", usual="file"),
    "stream.first": Key(least=1, nullable=True),
    "stream.batch": Key(arm=True, column="batch", noted=True, usual=1),
    "stream.passes": Key(arm=True, column="passes", usual=1),
    "agent": Key(column="agent"),
    "agent.deliver": Key(arm=True),  # of agent=command
    "agent.own_file": Key(arm=True),
    "llm": Key(column="llm"),
    **{key: Key() for key in LLMS[1:]},
    "embedder": Key(),
    "workflow": Key(arm=True, method=True, column="workflow"),
    "select": Key(arm=True, method=True),
    "grader": Key(),
    "tracker": Key(outcome=False, shown=False),
    "dry_run": Key(switch=True, outcome=False, shown=False),
    "strip_lessons": Key(arm=True, switch=True),
    "scrub_episodes": Key(switch=True),
    "attempts_from": Key(arm=True),
    "bank": Key(arm=True, column="bank"),
    "banks": Key(outcome=False),  # memory.path is the one that `bank` names
    "run_dir": Key(outcome=False, shown=False),
    "budget": Key(),
    "budget.run": Key(outcome=False),
    "roles": Key(),
    "details": Key(arm=True),
    "distiller": Key(arm=True),
    "contrast": Key(arm=True, method=True),
    "refine": Key(arm=True, writes_into=True, method=True),
    "prompts": Key(outcome=False),  # the fingerprint has the templates' hashes instead
    "model:client": Key(outcome=False),  # both send the same and read it alike
    "model:api_base": Key(outcome=False),  # a server may have another one at the next start; its model has a name
    "model:timeout_s": Key(outcome=False),
    "model:attempts": Key(outcome=False),
    "model:retry_s": Key(outcome=False),
    "model:max_in_flight": Key(outcome=False),
    "model:requests_per_min": Key(outcome=False),
    "model:tokens_per_min": Key(outcome=False),
    "model:price_per_mtok": Key(outcome=False),
    "model:cache": Key(outcome=False),
    "model:cache_path": Key(outcome=False),
}
RUN_KEYS = {key: facts for key, facts in KEYS.items() if ":" not in key}  # without an owner, dotted
TOP_KEYS = {key: facts for key, facts in RUN_KEYS.items() if "." not in key}
MODEL_NODES = (*LLMS, "embedder.inner")  # the keys that hold a model
MODEL_KEYS_CHANGEABLE_ON_RESUME = tuple(
    key.removeprefix("model:") for key, facts in KEYS.items() if key.startswith("model:") and not facts.outcome
)
KEYS_CHANGEABLE_ON_RESUME = (
    *(key for key, facts in RUN_KEYS.items() if not facts.outcome),
    *(f"{node}.{key}" for node in MODEL_NODES for key in MODEL_KEYS_CHANGEABLE_ON_RESUME),
)
COLUMNS = {facts.column: key for key, facts in RUN_KEYS.items() if facts.column}
NOTED = {key: facts.usual for key, facts in RUN_KEYS.items() if facts.noted}
ARM_KEYS = tuple(key for key, facts in RUN_KEYS.items() if facts.arm)
WRITTEN_INTO_OTHERS = tuple(key for key, facts in TOP_KEYS.items() if facts.writes_into)
PER_ENV_KEYS = tuple(key for key, facts in TOP_KEYS.items() if facts.per_env)
METHOD_KEYS = tuple(key for key, facts in TOP_KEYS.items() if facts.method)
HIDDEN_KEYS = tuple(key for key, facts in TOP_KEYS.items() if not facts.shown)


def what_decides_outcomes(config: dict[str, Any], *more: str) -> dict[str, Any]:
    """A copy of a configuration without `KEYS_CHANGEABLE_ON_RESUME` and `more`."""
    kept = without(config, (*KEYS_CHANGEABLE_ON_RESUME, *more))
    for node in (kept[key] for key in LLMS if kept.get(key)):
        if node.get("fallbacks"):
            node["fallbacks"] = [without(each, MODEL_KEYS_CHANGEABLE_ON_RESUME) for each in node["fallbacks"]]
    return kept


def without(config: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """A copy of nested dictionaries without the given dotted keys."""
    copy = deepcopy(config)
    for key in keys:
        *path, last = key.split(".")
        node: Any = copy
        for name in path:
            node = node.get(name) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(last, None)
    return copy


def differences(before: Any, after: Any) -> list[str]:
    """The leaves in which two nested dictionaries differ, as "key: old -> new"."""
    return [f"{key}: {old!r} -> {new!r}" for key, old, new in changed_leaves(before, after)]


def changed_leaves(before: Any, after: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, old, new) of the leaves in which two nested dictionaries differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from changed_leaves(before.get(key), after.get(key), f"{where}.{key}" if where else str(key))
    elif before != after:
        yield where, before, after


def check_config(cfg: Any) -> None:
    """Raise UserError for an unknown key, and for a value that is invalid in every run."""
    for key in cfg:
        if key not in TOP_KEYS:
            raise UserError(f"unknown key {key}{meant(key, TOP_KEYS)} Known are {', '.join(TOP_KEYS)}.")
    if unknown := set(cfg.roles) - set(ROLES):
        raise UserError(f"unknown role {', '.join(unknown)}: known are {', '.join(ROLES)}.")
    if unknown := set(cfg.budget) - {"run", "episode"}:
        raise UserError(f"unknown budget {', '.join(unknown)}: known are run and episode.")
    known = asdict(Details())
    if unknown := [key for key in cfg.details if key not in known]:
        raise UserError(f"unknown detail {unknown[0]}{meant(unknown[0], known)} Known are {', '.join(known)}.")
    for key, facts in TOP_KEYS.items():
        if facts.switch and not isinstance(cfg[key], bool):
            raise UserError(f"{key}={cfg[key]}: give true or false.")
    check_prompts(cfg.prompts)
    grader = cfg.get("grader")
    if grader is not None and not grader.get("own_model", True) and cfg.get("grader_llm") in (None, cfg.llm):
        raise UserError(
            "grader=model: an agent's own model should not grade its answers: choose another one with "
            "llm@grader_llm=NAME, or say grader.own_model=true."
        )
    if cfg.refine is not None and "refine" not in cfg.workflow:
        raise UserError(f"refine={cfg.refine}: this workflow refines nothing; choose workflow=matts_sequential.")
    if cfg.distiller.get("style") == QUOTE and (cfg.max_steps or cfg.env.get("max_steps")) == 1:
        raise UserError("distiller.style=quote: here a reply is the whole attempt, and no answer to it can be quoted.")
    if (domain := cfg.retrieval.get("domain")) in ("same", "seen", "other") and cfg.memory.get("domain", "") is None:
        raise UserError(f"retrieval.domain={domain}: say what a task's domain is, e.g. memory.domain=type.")
    for key, facts in TOP_KEYS.items():
        if facts.least is not None:
            check_number(key, cfg[key], facts)


def check_number(key: str, value: Any, facts: Key) -> None:
    """Raise UserError for a value that is not a whole number, or below `facts.least`."""
    if value is None and facts.nullable:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < (facts.least or 0):
        raise UserError(f"{key}={value}: give a whole number of at least {facts.least}.")


def check_prompts(node: Any) -> None:
    """Raise UserError for a folder that lacks templates or has unknown ones, and for an unknown memory block form."""
    if hasattr(node, "keys") and set(node) != {"folder", "memory_block"}:
        raise UserError(f"prompts has the keys {', '.join(node)}: known are folder and memory_block.")
    given = Prompts.of(node)
    if given.memory_block not in FORMS:
        raise UserError(f"prompts.memory_block={given.memory_block}: choose {', '.join(FORMS)}.")
    if given.own is not None:
        own, known = {path.stem for path in Path(given.own).glob("*.jinja")}, (*PROJECT.hashes(), *OTHER_FORMS)
        if not own or not own <= set(known):
            raise UserError(f"prompts={given.own} must hold NAME.jinja, each NAME one of {', '.join(known)}.")
