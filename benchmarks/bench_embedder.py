"""MiniLM without torch beside sentence-transformers, which has the same weights: texts a second, start, memory.

    python -m benchmarks.bench_embedder [--json FILE] [--texts 400]

Needs the extra `huggingface`. Both embed the same texts in turns, one by one and all in one call; sentence-transformers
forms batches of 32 in a call, which is its default. Start and memory are those of a new process with its first vector.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.bench_languages import lessons
from benchmarks.lines import Lines, lines_parser, peak_mb, seconds
from core.models.embedding import MiniLMEmbedder, sentence_transformers
from scripts.command_line import REPO, command_of

TURNS, STARTS = 5, 3
NAMES = ("minilm", "sentence-transformers")


def texts_of(n: int) -> list[str]:
    """n different texts of English words, of 5 to 100 words."""
    words = [word for each in lessons()["English"] for word in each["content"].split()]
    drawn = random.Random(0)
    return [" ".join(drawn.choices(words, k=drawn.randint(5, 100))) for _ in range(n)]


def embedder(name: str) -> Callable[[list[str]], Any]:
    """A function that embeds texts."""
    if name == "minilm":
        return MiniLMEmbedder().embed
    model = sentence_transformers("bench_embedder").SentenceTransformer(str(MiniLMEmbedder.weights().parent))
    return partial(model.encode, show_progress_bar=False)


def rates(lines: Lines, n: int) -> None:
    """Texts a second of both, in turns."""
    texts, calls = texts_of(n), {name: embedder(name) for name in NAMES}
    ways = {"one by one": lambda embed: [embed([text]) for text in texts], "in one call": lambda embed: embed(texts)}
    for way, run in ways.items():
        taken: dict[str, list[float]] = {name: [] for name in NAMES}
        for turn in range(TURNS + 1):
            for name, embed in calls.items():
                took = seconds(run, embed)
                taken[name] += [took] if turn else []  # the first turn loads the models
        ours, theirs = (n / statistics.median(taken[name]) for name in NAMES)
        note = f"{ours:.0f} a second, sentence-transformers {theirs:.0f}"
        lines.add(f"texts a second, {way}", ours / theirs, 1, "x", least=True, note=note)


def starts(lines: Lines) -> None:
    """What a new process takes until it has its first vector."""
    found = {name: [first_vector(name) for _ in range(STARTS)] for name in NAMES}
    for place, (what, unit) in enumerate((("start to the first vector", "s"), ("memory with the first vector", "MB"))):
        ours, theirs = (statistics.median(each[place] for each in found[name]) for name in NAMES)
        lines.add(what, ours, theirs, unit, note=f"sentence-transformers {theirs:.4g} {unit}")


def first_vector(name: str) -> tuple[float, float]:
    """(seconds, megabytes) of a new process that makes one vector."""
    began = time.perf_counter()
    command = command_of("benchmarks.bench_embedder", "--start", name)
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True)
    return time.perf_counter() - began, float(done.stdout)


def main() -> None:
    options = lines_parser(__doc__)
    options.add_argument("--texts", type=int, default=400)
    options.add_argument("--start", choices=NAMES, help="make one vector and print the megabytes that it took")
    given = options.parse_args()
    if given.start:
        embedder(given.start)(["Read the error message first."])
        print(peak_mb())
        sys.exit()
    lines = Lines()
    rates(lines, given.texts)
    starts(lines)
    lines.end(given.json)


if __name__ == "__main__":
    main()
