"""Tokens a second of one model server, asked by one stream and by several at once.

    python -m benchmarks.bench_streams URL [--streams 1 4 16] [--model NAME]

URL is that of an OpenAI-compatible server, e.g. http://127.0.0.1:8090/v1. Every stream asks short questions of school
arithmetic, one after another, each for at most 96 tokens. All figures are taken in this one run.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

from core.errors import UserError
from core.models.base import Request
from core.models.remote import LiteLLMModel
from core.models.servers import models_at
from scripts.command_line import plain_errors

EACH = 3  # questions a stream
SYSTEM = "You solve short tasks. Think step by step, then give the answer as ANSWER: x."


def ask(model: LiteLLMModel, number: int) -> int:
    """The tokens of one reply."""
    asked = (
        f"A farmer has {number + 3} cows and buys {2 * number + 5}. Each gives {number % 7 + 2} liters a day. How many?"
    )
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]
    request = Request(messages=messages, role="agent", seed=number, temperature=0.7, max_tokens=96)
    return model.chat(request).usage.completion_tokens


@plain_errors()
def main(argv: list[str] | None = None) -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("url", metavar="URL")
    words.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16])
    words.add_argument("--model", help="where the server has several")
    given = words.parse_args(argv)
    listing = None if given.model else models_at(given.url)
    if not given.model and listing is None:
        raise UserError(f"{given.url} does not list its models: give --model NAME.")
    name = given.model or listing.names[0]
    model = LiteLLMModel(model=f"hosted_vllm/{name}", api_base=given.url, timeout_s=600)
    ask(model, 0)
    first = None
    for n_streams in given.streams:
        began = time.monotonic()
        with ThreadPoolExecutor(n_streams) as pool:
            tokens = sum(pool.map(lambda number: ask(model, number), range(1, 1 + EACH * n_streams)))
        rate = tokens / (time.monotonic() - began)
        first = first or rate
        print(f"{n_streams:3} streams  {rate:6.1f} tokens/s  {rate / first:4.1f} x", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
