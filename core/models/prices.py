"""What a response cost: by the price in the configuration, else as its provider reports it, else by litellm's table.

Where none of these knows it, the cost is None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from core.errors import UserError
from core.models.direct import OWN_SERVER
from core.models.litellm_library import price_table
from core.models.token_counts import Counts, counts_of_response
from core.types import Usage

_ABOVE = re.compile(r"input_cost_per_token_above_(\d+)(k?)_tokens")


def check_price(price: dict[str, float] | None) -> None:
    """Raise UserError unless price is None or {prompt, completion[, cached]} in USD per million tokens."""
    if price is None:
        return
    known = isinstance(price, dict) and {"prompt", "completion"} <= set(price) <= {"prompt", "cached", "completion"}
    if not known or not all(isinstance(value, (int, float)) and value >= 0 for value in price.values()):
        raise UserError(
            f"price_per_mtok={price}: give {{prompt: USD, completion: USD}}, with cached: USD if it differs."
        )


def expected_cost(model: str, price: dict[str, float] | None, counts: Counts) -> float | None:
    """USD for these tokens of a model, by litellm's name; None if the price is unknown.

    Where a provider has cheaper hours, the table's full price is taken.
    """
    rates = _configured(price) if price is not None else _rates(_row(model), counts.prompt)
    if rates is None:
        return None
    of_prompt, of_cached, of_completion, of_reasoning = rates
    return (
        (counts.prompt - counts.cached) * of_prompt
        + counts.cached * of_cached
        + (counts.completion - counts.reasoning) * of_completion
        + counts.reasoning * of_reasoning
    )


def _configured(price: dict[str, float]) -> tuple[float, float, float, float]:
    of_prompt, of_completion = price["prompt"] / 1e6, price["completion"] / 1e6
    return of_prompt, price.get("cached", price["prompt"]) / 1e6, of_completion, of_completion


@cache
def _row(model: str) -> Mapping[str, Any]:
    """A model's row of litellm's table; empty if there is none, as for the user's own server."""
    provider, _, name = model.partition("/")
    if provider == OWN_SERVER:
        return {}
    table = price_table()
    row = table.get(model) or table.get(name) or {}
    return row if str(row.get("litellm_provider", "")).startswith(provider) else {}


def _rates(row: Mapping[str, Any], prompt: int) -> tuple[float, float, float, float] | None:
    """USD of a token (of the prompt, of it cached, of the reply, of it thought) for a prompt of so many tokens."""
    at: dict[str, Any] = dict(row)
    if tiers := row.get("tiered_pricing"):
        at |= next((tier for tier in tiers if prompt <= tier["range"][1]), tiers[-1])
    for key in sorted(filter(_ABOVE.fullmatch, row), key=_threshold):
        if prompt > _threshold(key):
            above = key.removeprefix("input_cost_per_token")
            at |= {name.removesuffix(above): value for name, value in row.items() if name.endswith(above)}
    of_prompt, of_completion = at.get("input_cost_per_token"), at.get("output_cost_per_token")
    if of_prompt is None or of_completion is None:
        return None
    of_cached, of_reasoning = at.get("cache_read_input_token_cost"), at.get("output_cost_per_reasoning_token")
    return (
        of_prompt,
        of_prompt if of_cached is None else of_cached,
        of_completion,
        of_completion if of_reasoning is None else of_reasoning,
    )


def _threshold(key: str) -> int:
    """The tokens of a prompt above which a key of the table holds."""
    found = _ABOVE.fullmatch(key)
    return int(found[1]) * (1000 if found[2] else 1) if found else 0


def usage_of_response(
    response: Any, price: dict[str, float] | None, model: str = "", counts: Counts | None = None
) -> Usage:
    """Usage of a response in litellm's form, as one call.

    model    litellm's name, for its price
    counts   the response's, if known
    """
    counts = counts or counts_of_response(response)
    known = bool(counts.prompt or counts.completion)  # a call without any token is none
    return Usage(
        calls=1,
        prompt_tokens=counts.prompt if known else None,
        completion_tokens=counts.completion if known else None,
        cached_tokens=counts.cached if known else None,
        reasoning_tokens=counts.reasoning if known else None,
        cost_usd=_cost(response, price, model, counts),
    )


def _cost(response: Any, price: dict[str, float] | None, model: str, counts: Counts) -> float | None:
    reported = bool(counts.prompt or counts.completion)
    if price is not None:  # without counts the cost is unknown, unless all prices are 0
        return expected_cost(model, price, counts) if reported or not any(price.values()) else None
    hidden = getattr(response, "_hidden_params", None)
    if hidden is None:  # of the direct client
        return _told(response) or (expected_cost(model, None, counts) if reported else None)
    by_litellm = hidden.get("response_cost")
    if by_litellm is not None and reported and _priced_otherwise(response, counts):
        return expected_cost(model, None, counts)
    return by_litellm or None  # litellm reports 0 for a model that is not in its table


def _told(response: Any) -> float | None:
    """USD as the response itself tells them (OpenRouter's `usage.cost`); None if it does not."""
    usage = getattr(response, "usage", None)
    cost = usage.get("cost") if isinstance(usage, Mapping) else None
    return float(cost) if isinstance(cost, (int, float)) and not isinstance(cost, bool) and cost > 0 else None


def _priced_otherwise(response: Any, counts: Counts) -> bool:
    """Whether litellm's cost rests on other counts than ours."""
    usage = getattr(response, "usage", None)
    read = tuple(getattr(usage, name, None) or 0 for name in ("prompt_tokens", "completion_tokens"))
    return bool(counts.corrected) or read != (counts.prompt, counts.completion)
