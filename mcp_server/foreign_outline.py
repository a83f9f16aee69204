"""Settings in the two layouts of Claude Flow's documents, read into overrides of this server.

    reasoningbank: {retrieve: ..., judge: ..., distill: ..., consolidate: ..., matts: ...}    its outline's template
    claude-flow: {execution: {reasoningbank: {enabled: ..., retrievalK: ...}}}                ~/.claude/settings.json

Each key is mapped to what it means here, or is known to change nothing here, or the file is refused by one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.errors import UserError
from mcp_server.override_words import override

LIFE = "memory.consolidate"
Mapping = dict[str, str | Callable[[Any], list[str]]]  # {their key: our key, or a function from its value to overrides}


def _model(name: str) -> list[str]:
    """The option of `llm` by a model's name, as judge.model gives it, e.g. claude-sonnet-4.5."""
    provider, _, rest = str(name).partition("/")
    if rest:
        return ["llm=remote", override("llm.model", name)]
    makers = {"claude": "anthropic", "gpt": "openai", "gemini": "gemini", "qwen": "dashscope"}
    option = next((option for start, option in makers.items() if provider.startswith(start)), None)
    if option is None:
        raise UserError(f"judge.model={name}: give it as PROVIDER/MODEL, so that it is known whose it is")
    name = name.replace(".", "-") if option == "anthropic" else name  # their API's spelling
    return [f"llm={option}", override("llm.model", f"{option}/{name}")]


def _false_as(word: str) -> Callable[[Any], list[str]]:
    """Of a switch that is on here: an override where it is off."""

    def words(value: Any) -> list[str]:
        if not isinstance(value, bool):
            raise UserError(f"{value!r} is not true or false")
        return [] if value else [word]

    return words


def _nothing(value: Any) -> list[str]:
    """Of a key that changes nothing here: how many attempts there are is up to the agent (docs/matts_playbook.md)."""
    return []


TEMPLATE: Mapping = {
    "retrieve.k": "retrieval.top_k",
    "retrieve.alpha": "retrieval.similarity_weight",
    "retrieve.beta": "retrieval.recency_weight",
    "retrieve.gamma": "retrieval.reliability_weight",
    "retrieve.delta": "retrieval.diversity_weight",
    "retrieve.recency_half_life_days": "retrieval.age_scale_days",
    "retrieve.duplicate_threshold": f"{LIFE}.deduplicate.min_score",
    "judge.model": _model,
    "judge.temperature": "roles.judge.temperature",
    "distill.max_items_per_traj": "distiller.max_items",
    "distill.redact_pii": _false_as("memory.hygiene.scrub=false"),
    "consolidate.run_every_new_items": f"{LIFE}.every",
    "consolidate.contradiction_threshold": f"{LIFE}.contradict.checker.min_score",
    "consolidate.prune_age_days": f"{LIFE}.prune.max_age_days",
    "consolidate.min_confidence_keep": f"{LIFE}.prune.min_confidence",
    "matts.enabled": _nothing,
    "matts.parallel_k": _nothing,
    "matts.sequential_r": _nothing,
}
USER: Mapping = {
    "enabled": "enabled",
    "retrievalK": "retrieval.top_k",
    "domains": "retrieval.domain",
    "minConfidence": "retrieval.min_confidence",
    "consolidateEvery": f"{LIFE}.every",
    "autoConsolidate": _false_as(f"{LIFE}.every=1000000000"),
}
WHY = {"database": "--bank names the bank's file"}


def outline_words(data: Any) -> list[str] | None:
    """The overrides for settings in one of the two layouts, a preset first; None for any other layout.

    Raises UserError for a key without an equivalent.
    """
    if not isinstance(data, dict):
        return None
    if isinstance(section := data.get("reasoningbank"), dict):
        nested = {f"{above}.{name}": value for above, inner in section.items() for name, value in _pairs(above, inner)}
        return ["preset=outline", *_mapped("reasoningbank.", nested, TEMPLATE)]
    above, node = "", data
    for name in ("claude-flow", "execution", "reasoningbank"):  # the file has other programs' sections, too
        if not isinstance(node := node.get(name) if isinstance(node, dict) else None, dict):
            return None
        above += f"{name}."
    return _mapped(above, node, USER)


def _pairs(above: str, inner: Any) -> list[tuple[str, Any]]:
    if not isinstance(inner, dict):
        raise UserError(f"reasoningbank.{above} holds no keys.")
    return list(inner.items())


def _mapped(above: str, given: dict[str, Any], known: Mapping) -> list[str]:
    words: list[str] = []
    if unknown := next((key for key in given if key not in known), None):
        why = WHY.get(unknown, f"known are {', '.join(known)}")
        raise UserError(f"{above}{unknown} has no equivalent here: {why}.")
    for key, own in known.items():  # in this order, as a switch comes after the number that it overrides
        if (value := given.get(key)) is None:
            continue
        try:
            words += [override(own, value)] if isinstance(own, str) else own(value)
        except UserError as error:
            raise UserError(f"{above}{key}: {error}.") from None
    return words
