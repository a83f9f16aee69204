"""What an answer costs: by the price in the configuration, else by litellm's table, else unknown (None, never 0)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core.errors import UserError
from core.models.connections import load_litellm
from core.types import Usage


def check_price(price: dict[str, float] | None) -> None:
    """Raises UserError unless it is None or {prompt, completion[, cached]} in USD for a million tokens."""
    if price is None:
        return
    known = isinstance(price, dict) and {"prompt", "completion"} <= set(price) <= {"prompt", "cached", "completion"}
    if not known or not all(isinstance(value, (int, float)) and value >= 0 for value in price.values()):
        raise UserError(
            f"price_per_mtok={price}: give {{prompt: USD, completion: USD}}, with cached: USD if it differs."
        )


def expected(model: str, price: dict[str, float] | None, prompt: int, completion: int) -> float | None:
    """USD for so many tokens, none of them cached."""
    if price is not None:
        return (prompt * price["prompt"] + completion * price["completion"]) / 1e6
    known = load_litellm().model_cost
    row = known.get(model) or known.get(model.split("/", 1)[-1]) or {}
    parts = row.get("input_cost_per_token"), row.get("output_cost_per_token")
    return None if None in parts else prompt * parts[0] + completion * parts[1]


def usage_of_response(response: Any, price: dict[str, float] | None) -> Usage:
    """Tokens and USD of a litellm response, for one call."""
    usage = getattr(response, "usage", None)
    prompt = getattr(usage, "prompt_tokens", 0) or 0
    completion = getattr(usage, "completion_tokens", 0) or 0
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", 0) or 0
    reasoning = getattr(getattr(usage, "completion_tokens_details", None), "reasoning_tokens", 0) or 0
    if price is not None:
        parts = (prompt - cached) * price["prompt"] + cached * price.get("cached", price["prompt"])
        reported = prompt or completion  # no call is without tokens: then the server did not say, unless all is free
        cost = (parts + completion * price["completion"]) / 1e6 if reported or not any(price.values()) else None
    else:
        # litellm leaves 0 for a model that its table does not hold
        cost = (getattr(response, "_hidden_params", None) or {}).get("response_cost") or None
    return Usage(
        calls=1,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=cached,
        reasoning_tokens=reasoning,
        cost_usd=cost,
    )


def usage_of_refused(response: Any, price: dict[str, float] | None) -> Usage:
    """What a litellm response took that is no answer: no call, and nothing where the server tells of no tokens."""
    used = usage_of_response(response, price)
    return replace(used, calls=0) if used.tokens else Usage()
