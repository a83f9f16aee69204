"""Check whether everything that a run needs is installed. Prints a line for each part; if it is missing, what to do.

    python -m scripts.doctor            # also loads the local model and the embedder, once
    python -m scripts.doctor --quick    # loads no model
    python -m scripts.doctor --json     # for machines

If a part is missing that `python main.py` always needs, its line is red and the exit status is 1. If only some options
need it, its line is yellow and the exit status is 0. Also works in a bare checkout. Keys are looked for, never shown.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

from core.terminal import after_output_failed, open_standard_streams, unfiltered
from scripts import doctor_checks as checks
from scripts.command_line import REPO, command_of, parser
from scripts.doctor_checks import BROKEN, OK, OPTIONAL, SETUP, Check

PROBE_S = 300
MARKS = {OK: ("ok", 32), OPTIONAL: ("optional", 33), BROKEN: ("BROKEN", 31)}  # a word, and a terminal's colour


def check_model(quick: bool) -> Iterator[Check]:
    """llm=local: its file is there, it loads and it answers."""
    from core.errors import UserError
    from core.models.local import find_model

    try:
        name = find_model(None).name
    except UserError as error:
        yield Check("local model", BROKEN, "missing", str(error))
    else:
        yield try_out("local model", quick, name, "use another model, e.g. llm=openai or llm.model_path=FILE.gguf.")


def check_embedder(quick: bool) -> Iterator[Check]:
    """embedder=minilm: it loads and gives a vector of 384 numbers."""
    from core.errors import UserError
    from core.models import weights

    try:
        weights.find()
    except (UserError, ImportError) as error:
        yield Check("embedder minilm", BROKEN, "missing", f"{SETUP}: {str(error).rstrip('.')}.")
    else:
        yield try_out("embedder minilm", quick, "here", "use another, e.g. embedder=openai.")


def try_out(name: str, quick: bool, here: str, instead: str) -> Check:
    """One of PROBES, in a process of its own: a native library that crashes is a finding, not the end."""
    if quick:
        return Check(name, OK, f"{here} (not loaded: --quick)")
    broken = partial(Check, name, BROKEN, do=f"{SETUP} again, or {instead}")
    command = command_of("scripts.doctor", "--probe", name)
    try:
        done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except subprocess.TimeoutExpired:
        return broken(f"no answer in {PROBE_S} s")
    if done.returncode < 0:
        return broken(f"its library crashed (signal {-done.returncode})")
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines() or ["it said nothing"]
    return broken(re.sub(r"^[\w.]+: ", "", lines[-1])) if done.returncode else Check(name, OK, lines[-1])


def probe_model() -> str:
    from core.models.base import Request
    from core.models.local import LocalModel

    model, ask = LocalModel(), [{"role": "user", "content": "Count from one to fifty."}]
    began = time.perf_counter()
    model.chat(Request(messages=ask, role="agent", max_tokens=1))
    loaded = time.perf_counter()
    usage = model.chat(Request(messages=ask, role="agent", max_tokens=32)).usage
    tokens_s = usage.completion_tokens / (time.perf_counter() - loaded)
    name = model.name.removeprefix("local/")
    return f"{name}: first token after {loaded - began:.1f} s, then {tokens_s:.0f} tokens/s"


def probe_embedder() -> str:
    from core.models.embedding import MiniLMEmbedder

    embedder = MiniLMEmbedder()
    began = time.perf_counter()
    size = embedder.embed(["a first text"]).shape[1]
    loaded = time.perf_counter()
    if size != 384:
        raise ValueError(f"a vector of {size} numbers, not 384")
    embedder.embed([f"the text with the number {n}" for n in range(8)])
    ms = (time.perf_counter() - loaded) / 8 * 1e3
    return f"384 numbers: first vector after {loaded - began:.1f} s, then {ms:.0f} ms a text"


PROBES = {"local model": probe_model, "embedder minilm": probe_embedder}


def examine(quick: bool, live: bool) -> list[Check]:
    """Everything. With a Python that is too old or too new, only that. live: say on stderr what is being done."""
    found = list(checks.check_python())
    if found[0].state == BROKEN:
        return found
    loading = {"the local model": partial(check_model, quick), "the embedder": partial(check_embedder, quick)}
    for name, check in (checks.PARTS | loading).items():
        if live:
            print(f"{name} ...", end="", file=sys.stderr, flush=True)
        found += check()
        if live:
            print("\r\033[K", end="", file=unfiltered(sys.stderr), flush=True)
    return found


def show(found: list[Check]) -> None:
    """Lines in columns, on a terminal coloured and folded; at the end what to do first."""
    terminal = sys.stdout.isatty()
    width = max(40, shutil.get_terminal_size().columns - 31) if terminal else sys.maxsize
    for check in found:
        mark, colour = MARKS[check.state]
        print(f"\033[{colour}m{mark:9}\033[0m" if terminal else f"{mark:9}", end="", file=unfiltered(sys.stdout))
        start = f" {check.name:20}"
        for text in (check.found, f"-> {check.do}") if check.do else (check.found,):
            for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]:
                print(start, line)
                start = " " * 30
    broken = [check for check in found if check.state == BROKEN]
    if broken:
        print(f"`python main.py` cannot work yet: {len(broken)} of {len(found)} lines are broken.")
    else:
        print("`python main.py` can run. An optional part is needed only for what it names.")


def main() -> int:
    """0 if `python main.py` can run."""
    open_standard_streams()
    options = parser(__doc__)
    options.add_argument("--quick", action="store_true", help="load no model")
    options.add_argument("--json", action="store_true", help="print one JSON object: ok, checks")
    options.add_argument("--probe", choices=PROBES, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.probe:
        print(PROBES[given.probe]())
        return 0
    found = examine(given.quick, live=sys.stderr.isatty() and not given.json)
    ok = all(check.state != BROKEN for check in found)
    if given.json:
        print(json.dumps({"ok": ok, "checks": [asdict(check) for check in found]}, indent=1, ensure_ascii=False))
    else:
        show(found)
    return 0 if ok else 1


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError as error:
        status = after_output_failed(error)
    sys.exit(status)
