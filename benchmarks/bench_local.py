"""Tokens a second of llm=local, asked by one thread and by several at once, beside llama.cpp's own batched benchmark.

    python -m benchmarks.bench_local [--model FILE.gguf] [--streams 1 4 8] [--batched-bench PROGRAM] [--json FILE]

Without --model it is the model that is installed with the project. Each stream asks for one reply of REPLY tokens after
a prompt of about PROMPT, no two of which begin alike. PROGRAM is llama.cpp's llama-batched-bench, with the same number
of sequences, tokens and threads; it must be compiled for the same processor features as the wheel (the first line
names them), else the ratio says nothing. Without it each rate is compared with that of one stream.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.lines import Lines, lines_parser
from core.models.base import Request
from core.models.local import LocalModel, spare_one

PROMPT, REPLY = 96, 96
WORDS = "the village on the hill has a well and its people carry water home each morning before the sun is high".split()


def rate(path: str | None, n: int) -> float:
    """Tokens of replies a second, prompts included in the time."""
    model = LocalModel(model_path=path, n_parallel=n, n_ctx=512)
    try:
        ask(model, 999)  # loads it
        began = time.perf_counter()
        with ThreadPoolExecutor(n) as pool:
            tokens = sum(pool.map(lambda number: ask(model, number), range(n)))
        return tokens / (time.perf_counter() - began)
    finally:
        model.close()


def ask(model: LocalModel, number: int) -> int:
    """The tokens of one reply."""
    story = " ".join([f"Story {number}:", *(WORDS[(number + place) % len(WORDS)] for place in range(PROMPT - 30))])
    more = {"ignore_eos": True}
    messages = [{"role": "user", "content": story}]
    request = Request(messages=messages, role="agent", seed=number, temperature=0.7, max_tokens=REPLY, more=more)
    return model.chat(request).usage.completion_tokens


def batched(program: str, path: str, n: int) -> float:
    """The same rate of llama-batched-bench."""
    words = f"-c {512 * n} -npp {PROMPT} -ntg {REPLY} -npl {n} --output-format jsonl".split()
    words += ["-t", str(spare_one()), "-tb", str(os.cpu_count())]  # as LocalModel has them
    done = subprocess.run([program, "-m", path, *words], capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not rows:
        sys.exit(f"{program} printed no result:\n{done.stderr[-2000:]}")
    return n * REPLY / (rows[-1]["t_pp"] + rows[-1]["t_tg"])


def features() -> str:
    """The processor features that the installed wheel uses."""
    import xllamacpp

    return xllamacpp.get_system_info()


def main() -> int:
    options = lines_parser(__doc__)
    options.add_argument("--model", metavar="FILE.gguf")
    options.add_argument("--streams", type=int, nargs="+", default=[1, 4, 8])
    options.add_argument("--batched-bench", metavar="PROGRAM")
    given = options.parse_args()
    lines, path = Lines(), given.model or str(LocalModel()._file)
    print(f"{path.rsplit('/', 1)[-1]}; {features()}")
    first = None
    for n in given.streams:
        ours = rate(given.model, n)
        first = first or ours
        if given.batched_bench:
            bare = batched(given.batched_bench, path, n)
            note = f"{ours:.1f} tokens/s; {bare:.1f} in the bare bench"
            lines.add(f"{n} streams, of llama-batched-bench", ours / bare, 0.8, "x", least=True, note=note)
        else:
            lines.add(f"{n} streams, of one", ours / first, 1.0, "x", least=True, note=f"{ours:.1f} tokens/s")
    lines.end(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
