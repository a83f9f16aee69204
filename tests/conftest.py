"""What the tests share: running main.py as a user does, and in this process where that is enough."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from copy import deepcopy
from functools import cache, partial
from pathlib import Path

import forkserver
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

pytest_plugins = ["tiers"]
REPO = Path(__file__).parent.parent
KITS = os.pathsep.join(forkserver.KITS)
os.environ["REASONINGBANK_SETTINGS"] = "none"  # no test reads the settings of whoever runs it
# The environment of a subprocess that imports the tests' own modules.
WITH_KITS = os.environ | {"PYTHONPATH": f"{REPO}{os.pathsep}{KITS}"}
TOY = ("env=toy", "llm=scripted", "embedder=hashing")
# A busy machine draws examples slowly, which is no fault of what is tested.
hypothesis_settings.register_profile("busy", suppress_health_check=[HealthCheck.too_slow], deadline=None)
hypothesis_settings.load_profile("busy")


def pytest_configure():
    # A shell's background job ignores Ctrl-C, and so would the programs that it starts, which tests stop by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def read_rows(run_dir: Path, name: str = "episodes.jsonl") -> list[dict]:
    """The lines of a run's file."""
    return [json.loads(line) for line in (run_dir / name).read_text().splitlines()]


def read_json(path: Path) -> dict:
    """A file of JSON, without the checksums that it notes."""
    return {key: value for key, value in json.loads(path.read_text()).items() if key not in ("crc32", "files")}


def write_rows(run_dir: Path, rows: list[dict], name: str = "episodes.jsonl") -> None:
    """Change the lines of a run's file on purpose: its summary no longer notes its files."""
    (run_dir / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    if (file := run_dir / "summary.json").is_file():
        file.write_text(json.dumps(read_json(file)))


def wait_for(holds, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def command(*overrides: str) -> list[str]:
    return [sys.executable, str(REPO / "main.py"), *overrides]


# Tests of what a bank asks of its store run on both; what is about SQLite's file alone is marked `sqlite_file`.
# In other files the few tests that do so are marked `on_both_stores` (memory_kit).
ON_BOTH_STORES = "test_memory test_memory_history test_memory_namespaces test_tenants_apart".split()


def pytest_generate_tests(metafunc):
    both = metafunc.module.__name__ in ON_BOTH_STORES
    if both and not any(metafunc.definition.iter_markers("sqlite_file")):
        metafunc.parametrize("bank_store", ["sqlite", "postgres"], indirect=True)


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server with pgvector of the tests' own."""
    from embedded_postgres import Server, missing

    if reason := missing():
        pytest.skip(reason)
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def bank_store(request, monkeypatch):
    """With "postgres" each file that a test names as a bank's is a database of its own in PostgreSQL instead."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield
        return
    server = request.getfixturevalue("postgres")
    from core.memory import bank, open

    urls = {}

    def opened(path, *, read_only=False, how=None):
        path = Path(path)
        if path not in urls:
            if read_only:
                return database_open(path, read_only=True)
            urls[path] = server.new()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return database_open(urls[path], read_only=read_only, how=how)

    database_open = open.open_store
    monkeypatch.setattr(open, "open_store", opened)
    monkeypatch.setattr(bank, "open_store", opened)
    yield
    for url in urls.values():
        server.drop(url)


@pytest.fixture(autouse=True)
def umask():
    """As it was, whatever a server that a test starts in this process makes of it."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def program(tmp_path):
    """Run a program as a user does, in tmp_path: program("main.py", "env=toy"), program("-m", "scripts.tables").

    fresh     its interpreter is started by exec and not forked: for tests of starting itself
    env       beside this process's variables
    options   those of subprocess.run
    """

    def run(*argv, env: dict | None = None, timeout: float = 240, **options) -> subprocess.CompletedProcess:
        words = [sys.executable, *map(str, argv)]
        if words[1].endswith(".py"):
            words[1] = str(REPO / words[1])
        settled = {"cwd": tmp_path, "capture_output": True, "text": True, **options}
        return forkserver.run(words, env={**os.environ, **(env or {})}, timeout=timeout, **settled)

    return run


@pytest.fixture
def cli(program):
    """`program` for main.py: cli("env=toy")."""
    return partial(program, "main.py")


@cache  # a third of a second each time, and many tests start the same run again and again
def composed(overrides: tuple[str, ...]):
    from hydra import compose, initialize_config_dir

    import main  # noqa: F401 - registers the resolver

    with initialize_config_dir(str(REPO / "config"), version_base="1.3", job_name="main"):
        return compose("config", overrides=list(overrides), return_hydra_config=True)


def configured(*overrides: str):
    """The composed configuration for some overrides, with Hydra's own part set up as in a run.

    Numbers by which nothing is chosen are set afterwards: composing takes half of the time of a small run.
    """
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import open_dict, read_write

    late = [word for word in overrides if re.fullmatch(r"(seed|limit)=\d+", word)]
    cfg = deepcopy(composed(tuple(word for word in overrides if word not in late)))
    with read_write(cfg.hydra):
        for key, value in (word.split("=") for word in late):
            cfg[key] = int(value)
            cfg.hydra.overrides.task.append(f"{key}={value}")
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg


@pytest.fixture
def compose():
    """`configured`, until the test ends."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    yield configured
    GlobalHydra.instance().clear()
    HydraConfig.instance().cfg = None


@pytest.fixture
def serve():
    """Start servers that stand where a provider would be: serve(answer) as in provider.py."""
    from provider import Provider

    servers = []

    def start(answer, models=404):
        servers.append(Provider(answer, models))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def toy_runs(tmp_path_factory) -> Path:
    """A folder with the finished runs of report_kit, which no test may change."""
    from report_kit import make_runs

    return make_runs(tmp_path_factory.mktemp("toy_runs"))


@pytest.fixture(scope="module")  # playwright's event loop runs as long as it, and other files have loops of their own
def browser():
    """A headless Chromium, for the tests of the report."""
    pytest.importorskip("playwright")
    from browser import Browser

    from envs.web.browser import installed

    if installed() is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with Browser(installed()) as started:
        yield started


@pytest.fixture
def tab(browser):
    """The browser on an empty page; whatever its console says by the end of the test is a failure."""
    browser.open("about:blank")
    browser.errors.clear()
    yield browser
    assert browser.errors == []
    browser.screen()


@pytest.fixture
def main_here(monkeypatch, tmp_path, capsys):
    """main.py as a user starts it, but in this process: (exit status, what it printed, what it complained of)."""
    import logging
    import signal

    import main
    from core.mistakes import run_with_plain_hydra_errors
    from core.run.launch import quoted

    before, known = signal.getsignal(signal.SIGTERM), {}

    def loggers():
        made = logging.root.manager.loggerDict.values()
        return [logging.root, *(each for each in made if isinstance(each, logging.Logger))]

    for each in loggers():
        known[each] = (each.handlers[:], each.level, each.propagate)

    def run(*words):
        config = f"--config-path={REPO / 'config'}"
        monkeypatch.setattr("sys.argv", [str(REPO / "main.py"), config, *quoted(list(words))])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # main sets it; the test leaves the environment as it was
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        try:
            run_with_plain_hydra_errors(main.main, main.help_text.config_dirs(list(words)))
            code = 0
        except SystemExit as end:
            code, message = (1, f"{end.code}\n") if isinstance(end.code, str) else (end.code, "")
            print(message, end="", file=sys.stderr)
        return code, *capsys.readouterr()

    yield run
    signal.signal(signal.SIGTERM, before)
    for each in loggers():  # Hydra's handlers write into the folder of the run
        handlers, level, propagate = known.get(each, ([], logging.NOTSET, True))
        for handler in {*each.handlers} - {*handlers}:
            handler.close()
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)


@pytest.fixture
def here(compose, tmp_path):
    """Run main's `run` in this process: returns (run directory, headline)."""
    from core.interrupt import Interrupts

    def run(*overrides: str, run_dir: Path | None = None):
        import main

        run_dir = run_dir or tmp_path / "run"
        cfg = compose(*overrides)
        with Interrupts() as interrupts, ExitStack() as stack:
            headline = main.run(cfg, run_dir, interrupts, stack)
        return run_dir, headline

    return run


@pytest.fixture(autouse=True)
def angles_are_no_facts(monkeypatch):
    """Lessons of the embedder Compass (memory_kit) name the angle that they point to, which is no number of theirs.

    Their tests are of thresholds on the cosine; what corrects what: test_memory_corrections.py.
    """
    if "memory_kit" not in sys.modules:
        return
    from memory_kit import different, may_correct

    from core.memory.consolidation import deduplicate, merge

    monkeypatch.setattr(deduplicate, "difference", different)
    monkeypatch.setattr(merge, "may_correct", may_correct)
