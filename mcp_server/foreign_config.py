"""config.yaml of the server github.com/hanw39/ReasoningBank-MCP, read into overrides of this one (`--config FILE`).

The layout is that of its README and of its src/default_config.yaml; foreign_outline.py has two more. A key is mapped to
what it means here, or is known to change nothing here (NO_EFFECT), or the file is refused with one sentence that names
it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.textfile import read_text
from mcp_server.config import parse_yaml
from mcp_server.foreign_outline import outline_words
from mcp_server.override_words import quoted

PROVIDERS = {"llm": ("dashscope", "openai", "anthropic"), "embedding": ("dashscope", "openai")}
OWN_GROUP = {"llm": "llm", "embedding": "embedder"}
OF_PROVIDER = {  # {section: {key of a provider's block: our key}}
    "llm": {
        "api_key": "llm.api_key_env",
        "base_url": "llm.api_base",
        "chat_model": "llm.model",
        "max_tokens": "llm.max_tokens",
    },
    "embedding": {
        "api_key": "embedder.inner.api_key_env",
        "base_url": "embedder.inner.api_base",
        "model": "embedder.inner.model",
    },
}
SAME = {  # {their key: our key} with the same values
    "retrieval.default_top_k": "retrieval.top_k",
    "retrieval.max_top_k": "server.max_top_k",
    "extraction.max_memories_per_trajectory": "distiller.max_items",
    "extraction.judge_temperature": "roles.judge.temperature",
    "extraction.extract_temperature": "roles.extractor.temperature",
}
ASYNC, THRESHOLD = "extraction.async_by_default", "retrieval.min_score_threshold"
HYBRID = {f"retrieval.hybrid.weights.{name}": f"retrieval.{name}_weight" for name in
          ("semantic", "confidence", "success", "recency")} | {
    "retrieval.hybrid.time_decay_halflife": "retrieval.half_life_days"
}  # fmt: skip
MANAGER, DEDUPLICATION, MERGE = "memory_manager.", "memory_manager.deduplication.", "memory_manager.merge."
DEDUPLICATE = {
    f"{DEDUPLICATION}semantic.threshold": "memory.consolidate.deduplicate.min_score",
    f"{DEDUPLICATION}semantic.top_k_check": "memory.consolidate.candidates",
}
MERGING = {
    f"{MERGE}trigger.min_similar_count": "memory.consolidate.merge.least",
    f"{MERGE}trigger.similarity_threshold": "memory.consolidate.merge.min_score",
}
TEMPERATURE = f"{MERGE}llm.temperature"
CHOICES: dict[str, tuple] = {  # {key: the values that are supported here}
    "llm.provider": PROVIDERS["llm"],
    "embedding.provider": PROVIDERS["embedding"],
    "retrieval.strategy": ("hybrid", "cosine"),
    "mode.preset": ("paper_faithful", "default"),
    f"{MANAGER}enabled": (True, False),
    f"{DEDUPLICATION}strategy": ("semantic",),
    f"{DEDUPLICATION}on_extraction": (True, False),
    f"{MERGE}strategy": ("llm", "voting"),
    f"{MERGE}auto_execute": (True, False),
    f"{MERGE}original_handling": ("archive",),
    ASYNC: (True, False),
}
NO_EFFECT = (
    "server.name",
    "server.version",
    "server.log_level",
    f"{MERGE}archive.keep_embeddings",  # by them a task finds the lesson that replaced its own
    f"{MERGE}voting.min_group_size",  # there, too, groups begin at trigger.min_similar_count
    *(f"llm.{name}.temperature" for name in PROVIDERS["llm"]),  # there, too, judge and extractor have their own
)
WHY = {  # {prefix of a refused key: advice added to "no equivalent"}
    "storage.": "--bank names the bank's file, `python -m core.memory import BANK memories.json --format mcp` fills it",
}
_VARIABLE = re.compile(r"\$\{(\w+)(\?|:[^}]*)?\}")


def read_foreign(path: Path) -> list[str]:
    """The overrides (key=value) equivalent to a file, preset first. Raises UserError for keys without equivalent."""
    data = _load(path)
    try:
        if (words := outline_words(data)) is not None:
            return words
    except UserError as error:
        raise UserError(f"--config {path}: {error}") from None
    given = _checked(path, _leaves(path, data))
    if given.get("mode.preset") == "paper_faithful":  # there, too, it switches hybrid scores and the manager off
        return ["preset=paper_faithful", *_providers(given), *_mapped(given, SAME)]
    words = ["preset=reasoningbank_mcp", *_providers(given)]
    if given.get("retrieval.strategy") == "cosine":
        words += ["retrieval=cosine", f"retrieval.min_score={given.get(THRESHOLD, 0.85)}"]
    else:
        words += _mapped(given, HYBRID | {THRESHOLD: "retrieval.min_score"})
    return [*words, *_mapped(given, SAME | {ASYNC: "server.async_default"}), *_manager(given)]


def _load(path: Path) -> Any:
    return parse_yaml(read_text(path.expanduser(), f"--config {path}"), f"--config {path} is")


def _leaves(path: Path, node: Any, above: str = "") -> dict[str, Any]:
    """{dotted key: value} of nested mappings, without values that are None."""
    if not isinstance(node, dict):
        raise UserError(f"--config {path}: {above.rstrip('.') or 'the file'} holds no keys.")
    found: dict[str, Any] = {}
    for name, value in node.items():
        key = f"{above}{name}"
        block = f"{key}." in {known[: len(key) + 1] for known in _known()}
        if isinstance(value, dict) or (block and value is not None):
            found |= _leaves(path, value, f"{key}.")
        elif value is not None:
            found[key] = value
    return found


def _known() -> tuple[str, ...]:
    """Every key that is mapped or known to change nothing."""
    blocks = [f"{s}.{p}.{key}" for s, names in PROVIDERS.items() for p in names for key in OF_PROVIDER[s]]
    return (*blocks, *SAME, *HYBRID, *DEDUPLICATE, *MERGING, *CHOICES, THRESHOLD, TEMPERATURE, *NO_EFFECT)


def _checked(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The keys with variables of the environment in their values filled in; those of an api_key keep their name."""
    for key, value in given.items():
        if key.endswith("api_key"):
            value = _variable_of_key(path, key, value)
        if key not in _known():
            why = next((why for start, why in WHY.items() if key.startswith(start)), "remove it")
            raise UserError(f"--config {path}: {key} has no equivalent here: {why}.")
        given[key] = value = _filled(path, key, value)
        if key in CHOICES and value not in CHOICES[key]:
            ways = " or ".join(json.dumps(way) for way in CHOICES[key])
            raise UserError(f"--config {path}: {key}={value} has no equivalent here: give {ways}.")
    return given


def _variable_of_key(path: Path, key: str, value: Any) -> str:
    """The name of the variable that holds a provider's key; "" where the file leaves it empty."""
    match = _VARIABLE.fullmatch(str(value).strip())
    if value != "" and (match is None or (match[2] or "").startswith(":")):
        raise UserError(
            f"--config {path}: {key} holds a key itself: put it into an environment variable and write its name, "
            '"${NAME}", into the file.'
        )
    return match[1] if match else ""


def _filled(path: Path, key: str, value: Any) -> Any:
    """A value with ${NAME}, ${NAME?} and ${NAME:default} replaced from the environment."""

    def variable(match: re.Match[str]) -> str:
        name, rest = match[1], match[2]
        if (found := os.environ.get(name)) is not None:
            return found
        if rest is None:
            raise UserError(f"--config {path}: {key} names the environment variable {name}, which is not set.")
        return rest[1:]

    return _VARIABLE.sub(variable, value) if isinstance(value, str) else value


def _providers(given: dict[str, Any]) -> list[str]:
    """The model and the embedder, by the blocks of the providers that are chosen."""
    words = []
    for section, keys in OF_PROVIDER.items():
        if (provider := given.get(f"{section}.provider")) is None:
            continue
        words.append(f"{OWN_GROUP[section]}={provider}")
        block = {key: given.get(f"{section}.{provider}.{key}", "") for key in keys}
        if block.get("chat_model"):
            block["chat_model"] = f"{provider}/{block['chat_model']}"
        words += [_word(keys[key], value) for key, value in block.items() if value != ""]
    return words


def _manager(given: dict[str, Any]) -> list[str]:
    """The overrides for deduplication and merging, from the section memory_manager."""
    if given.get(f"{MANAGER}enabled") is False:
        return ["memory=reasoning_bank"]
    words = []
    if given.get(f"{DEDUPLICATION}on_extraction") is False:  # there it happens at no other time
        words.append("memory.consolidate.deduplicate=null")
    else:
        words += _mapped(given, DEDUPLICATE)
    if given.get(f"{MERGE}auto_execute") is False:
        return [*words, "memory.consolidate.merge=null"]
    if given.get(f"{MERGE}strategy") == "voting":
        words.append("memory/consolidate/merge=voting")
    elif "llm.provider" in given:
        words.append("memory/consolidate/merge=llm")
        words += _mapped(given, {TEMPERATURE: "memory.consolidate.merge.author.temperature"})
    return words + _mapped(given, MERGING)


def _mapped(given: dict[str, Any], keys: dict[str, str]) -> list[str]:
    return [_word(own, given[key]) for key, own in keys.items() if key in given]


def _word(key: str, value: Any) -> str:
    """An override of Hydra, a text always quoted."""
    if isinstance(value, str):
        return f"{key}={quoted(value)}"
    return f"{key}={str(value).lower() if isinstance(value, bool) else value}"
