"""litellm, an optional library: loaded on first use, its price table read without it."""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import nullcontext
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.terminal import loading

_PRICES = "model_prices_and_context_window_backup.json"  # of its package; 3 MB, read in 30 ms


def load_litellm() -> Any:
    """Import litellm without its network access and terminal output. Takes seconds the first time.

    Raises UserError, which says how to install it, where it is missing.
    """
    if find_spec("litellm") is None:
        raise UserError(without_litellm("This model"))
    first = "litellm" not in sys.modules
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LOGGING_EXECUTOR_MAX_THREADS", "1")  # litellm's threads for callbacks, which we do not use
    with loading("litellm") if first else nullcontext():
        import litellm

    litellm.suppress_debug_info = True
    setattr(litellm, "DEFAULT_MAX_RETRIES", 0)  # noqa: B010 - or litellm replaces the max_retries=0 of embedding calls by 2
    if first:
        gc.freeze()  # keep its classes out of garbage collection, which would stop all calls for a sixth of a second
    return litellm


def without_litellm(needed_by: str) -> str:
    """The sentence that says what needs litellm, and how to install it."""
    extra = "`pip install 'reasoningbank-harness[providers]'`, or make setup in a checkout"
    return f"{needed_by} needs the package litellm: {extra}."


@cache
def price_table() -> dict[str, dict[str, Any]]:
    """{model: its row} of litellm's table of prices; {} where litellm is not installed."""
    spec = find_spec("litellm")
    if spec is None:
        return {}
    file = Path(next(iter(spec.submodule_search_locations or [""]))) / _PRICES
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else load_litellm().model_cost
