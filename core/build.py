"""Build what a run, or the server, is made of from its configuration: models, roles, memory, agent and learners."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.details import Details
from core.errors import UserError
from core.make import check_methods, is_list, make, make_with, option, part, plain_data, takes
from core.memory.protocol import Memory
from core.redact import Redactor
from prompts.registry import Prompts

if TYPE_CHECKING:
    from core.jsonl import JsonLines
    from core.models.base import ChatModel, Role
    from core.models.embedding import Embedder
    from core.models.meter import Meter

ROLES = ("agent", "judge", "extractor", "selector", "grader")
LLMS = ("llm", *(f"{role}_llm" for role in ROLES[1:]))  # the keys that hold a model
# Keys of `memory` that control how lessons are shown, not how they are stored: {key: the agent's field}.
SHOWN = {"inject": "inject", "max_tokens": "max_memory_tokens"}
OF_THE_LOOP = ("validate",)  # keys of `memory` that the loop reads: it plays tasks, which a memory cannot


def build_models(
    cfg: Any, stack: ExitStack, recorded: dict[str, Any] | None = None, *, ask: bool = True
) -> dict[str, ChatModel]:
    """{role: model}: that of `<role>_llm` if chosen, else that of `llm`, for the grader the judge's.

    Each has its cache and fallbacks.

    A model without a name gets its server's, also in `cfg` (core/models/servers.py), as does its `client`.

    recorded   the configuration of the run's earlier starts, if any
    ask        whether servers are asked for their models; not in a dry run, nor where no task is left to do
    """
    from core.models.base import share_limits
    from core.models.cache import cached
    from core.models.fallback import FallbackModel
    from core.models.servers import name_models

    expand_fallbacks(cfg)
    nodes = {key: node for key in LLMS if (node := cfg.get(key)) is not None}
    name_models(nodes, recorded or {}, ask=ask and not cfg.get("dry_run"))
    given = {key: make(cfg[key]) for key in LLMS if cfg.get(key) is not None}
    for key, model in given.items():
        if "client" in cfg[key]:
            cfg[key].client = model.client  # which of them was taken
    bare = {key: [model, *fallbacks_of(model)] for key, model in given.items()}
    share_limits(model for chain in bare.values() for model in chain)
    chains = {key: list(map(cached, chain)) for key, chain in bare.items()}
    made = {key: chain[0] if len(chain) == 1 else FallbackModel(models=chain) for key, chain in chains.items()}
    for model in made.values():
        stack.callback(model.close)
    roles = {role: made.get(f"{role}_llm", made["llm"]) for role in ROLES}
    return roles | {"grader": made.get("grader_llm", roles["judge"])}


def fallbacks_of(model: ChatModel) -> list[ChatModel]:
    """The models of its `fallbacks`. UserError for nested fallbacks, and for one that would be called in a replay."""
    found = list(model.fallbacks or ())
    if any(each.fallbacks for each in found):
        raise UserError(f"{model.name}: a fallback has fallbacks of its own; name all of them in one list, in order.")
    if model.cache == "replay" and any(each.cache != "replay" for each in found):
        raise UserError(
            f"{model.name}: llm.cache=replay calls no model; give each of its fallbacks cache: replay as well."
        )
    return found


def expand_fallbacks(cfg: Any) -> None:
    """Replace option names in each model's `fallbacks` by their configurations, so that these are recorded."""
    for key in LLMS:
        if (node := cfg.get(key)) is not None and (given := node.get("fallbacks")):
            if not is_list(given):
                raise UserError(f"{key}.fallbacks={given}: give a list, e.g. [vllm] or [{{option: vllm, model: ...}}].")
            node.fallbacks = [_fallback(each, node, f"{key}.fallbacks") for each in given]


def _fallback(given: Any, first: Any, where: str) -> dict[str, Any]:
    """One entry of `fallbacks` as a complete configuration, with the first model's cache unless it sets its own."""
    from omegaconf import OmegaConf

    if hasattr(given, "items") and "_target_" in given:
        return plain_data(given) if OmegaConf.is_config(given) else dict(given)
    changes = {**given} if hasattr(given, "items") else {"option": given}
    if not isinstance(name := changes.pop("option", None), str):
        raise UserError(
            f"{where}: {given} names no option of llm; give its name, {{option: NAME, ...}}, or a _target_."
        )
    kept = {key: first[key] for key in ("cache", "cache_path") if key in first}
    merged = plain_data(option("llm", name)) | kept | changes
    if missing := [key for key, value in merged.items() if value == "???"]:
        raise UserError(
            f"{where}: the option {name} needs {', '.join(missing)}: {{option: {name}, {missing[0]}: ...}}."
        )
    return merged


def refuse_problems(models: dict[str, ChatModel], roles: Any) -> None:
    """Raise UserError for a model that cannot be called, or does not take the parameters in its `cfg.roles` entry."""
    from core.models.base import extra_sampling_of

    for name, model in models.items():
        more = extra_sampling_of(roles.get(name, {}))
        if more and (problem := model.unsupported(more)):
            raise UserError(f"roles.{name}: {problem}")
        if problem := model.problem():
            raise UserError(problem)


def build_redactor(cfg: Any) -> Redactor:
    """A Redactor that knows what is secret in the environment, on the command line and in the configuration.

    With them the values of all variables that the configuration names in `api_key_env`.
    """
    nodes = [node for key in LLMS if (node := cfg.get(key))]
    nodes += [each for node in nodes for each in node.get("fallbacks") or () if hasattr(each, "get")]
    nodes.append((cfg.get("embedder") or {}).get("inner") or {})
    names = {name for node in nodes if (name := node.get("api_key_env"))}
    return Redactor(os.environ, names, [_resolved(cfg), sys.argv[1:]])


def _resolved(cfg: Any) -> dict[str, Any]:
    """The configuration as plain data; if an interpolation cannot be resolved, with all of them as written."""
    from omegaconf.errors import OmegaConfBaseException

    try:
        return plain_data(cfg, resolve=True)
    except OmegaConfBaseException:  # it is refused, and its error is told through this redactor
        return plain_data(cfg)


def build_meter(cfg: Any, log: JsonLines | None = None, wall_s: float = 0.0, prompts: JsonLines | None = None) -> Meter:
    """The meter with the budgets of `cfg.budget`; the other arguments as in Meter."""
    budget = {name: make({"_target_": "core.models.meter.Budget", **cfg.budget[name]}) for name in ("run", "episode")}
    return make({"_target_": "core.models.meter.Meter"}, **budget, log=log, prompts=prompts, wall_s=wall_s)


def build_roles(cfg: Any, models: dict[str, ChatModel], meter: Meter) -> dict[str, Role]:
    """{name: Role} for each of the models, with the sampling parameters of its entry in `cfg.roles`."""
    roles = {}
    for name, model in models.items():
        given = {**cfg.roles[name]}
        given["seed"] = cfg.seed if given.get("seed") is None else given["seed"]
        given = {"_target_": "core.models.base.Role", **given}
        deps = {"meter": meter, "prompts": Prompts.of(cfg.get("prompts"))}
        deps["inject"] = (cfg.get("agent") or {}).get("inject") or "system"
        roles[name] = make(given, name=name, llm=model, **deps)
    return roles


def build_bank(
    cfg: Any,
    embedder: Embedder,
    roles: dict[str, Role],
    path: str,
    *,
    read_only: bool = False,
    run: str = "",
    consolidator_run: str = "",
    provenance: dict[str, Any] | None = None,
) -> Memory:
    """The memory of `cfg.memory`, for a run or the server. Each argument is passed only if it has a field of that name.

    embedder           embeds its queries
    path               the path of its file
    read_only          open an existing bank and refuse changes (setting=frozen)
    run                id of this run in a bank that others have filled; "" if the bank is the run's own
    consolidator_run   the same, for the progress of `memory.consolidate`
    provenance         stored with each new record: {run, models, ...}
    role, seed         the extractor's model, for a memory or policy that asks one, and the run's seed

    Raises UserError if the file's folder cannot be created.
    """
    from core.memory.open import file_of

    if not read_only and (file := file_of(path)) is not None:
        _make_folder(file)
    left_out = {*SHOWN, *OF_THE_LOOP, "path", "consolidate", "hygiene"}
    if not takes(cfg.memory, "domain"):  # an env's config may set it, whatever the memory is
        left_out.add("domain")
    node = {key: value for key, value in cfg.memory.items() if key not in left_out}
    check_methods(part(node), Memory)
    asks = {"role": roles.get("extractor"), "seed": cfg.seed}
    policy = make_with(cfg.retrieval, {"role": asks["role"]})
    offered = {"embedder": embedder, "policy": policy, "path": path, "read_only": read_only, "run": run}
    offered |= details_for(node, cfg) | {"provenance": provenance or {}} | asks
    if (consolidate := cfg.memory.get("consolidate")) is not None:
        offered["consolidate"] = make(consolidate, **asks, run=consolidator_run)
    elif cfg.memory.get("uses") is not None:
        from core.memory.consolidation.consolidator import Consolidator

        offered["consolidate"] = Consolidator(run=run)  # without policies it only counts uses
    if (hygiene := cfg.memory.get("hygiene")) is not None:
        offered["hygiene"] = make_with(hygiene, asks)
    return make_with(node, offered)


def _make_folder(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the bank {file}: the folder {file.parent} cannot be made: {error.strerror}."
        raise UserError(message) from error


def build_agent(cfg: Any) -> Any:
    """The agent. `cfg.memory` sets the lessons' place in the prompt and their maximum length (`SHOWN`)."""
    shown = {SHOWN[key]: value for key, value in cfg.memory.items() if key in SHOWN and value is not None}
    if details_of(cfg).whole_attempts:
        shown["max_memory_chars"] = None
    return make_with(cfg.agent, shown | {"prompts": Prompts.of(cfg.prompts)})


def build_learner(node: Any, role: Any, cfg: Any, bank: Any = None) -> Any:
    """A judge, distiller, contrast, selector or grader; it gets `role`, `seed` and the details for which it has fields.

    node   its part of the configuration `cfg`
    bank   for a part that reads the notes that it keeps there; None: such a part is refused
    """
    if bank is None and takes(node, "bank"):
        raise UserError(
            f"{part(node).__name__} reads its own notes in a run's memory, and this is no run: give another memory, "
            "such as memory=reasoning_bank."
        )
    return make_with(node, details_for(node, cfg) | {"role": role, "seed": role.seed, "bank": bank})


def details_of(cfg: Any) -> Details:
    """The run's details. Raises UserError for an unknown key, or a value of the wrong type."""
    return make({"_target_": "core.details.Details", **cfg.get("details", {})})


def details_for(node: Any, cfg: Any) -> dict[str, Any]:
    """{name: value} of the details, without those that a part's own node sets."""
    return {name: value for name, value in asdict(details_of(cfg)).items() if name not in node}
