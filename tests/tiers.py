"""Which tests `make test` runs, chosen by measured time, and which share a worker.

durations.json has what each test takes on an idle machine, with its share of the fixtures that it shares with others,
in seconds of a fast machine (REFERENCE_S); `make durations` runs all tests and writes it anew. A test that takes more
than SLOW_S is marked slow and left to `make test-all`, except those of promises.txt: one test for each promise of the
README. A test that is not yet in the file counts as quick.
"""

from __future__ import annotations

import json
import time
import timeit
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DURATIONS = HERE / "durations.json"
SLOW_S = 0.3  # of two workers side by side: so `make test` takes five minutes on most machines with two cores
REFERENCE_S = 0.23  # what `additions` takes on the machine whose seconds these are
KEPT_S = 0.2  # what takes less is not in the file
QUICK_ON_POSTGRES = "test_memory_history"  # of the files of tests that run on PostgreSQL too, what `make test` runs
# Files that start the same engine share a worker, so that it is started once; any other file has a worker for itself.
# Two hosts make network interfaces, at which Chromium breaks off what it loads: they are never beside a browser.
ENGINES = {
    "browser": "miniwob miniwob_known_answer report_tabs two_hosts web_agent web_engine webarena webarena_run",
    "cluster": "ray slurm",
    "java": "scienceworld scienceworld_jvm",
    "postgres": "postgres postgres_backup postgres_crash postgres_pool",
}
ENGINE_OF = {f"test_{name}": engine for engine, names in ENGINES.items() for name in names.split()}


def pytest_addoption(parser):
    parser.addoption("--store-durations", action="store_true", help=f"write {DURATIONS.name} anew")


def pytest_configure(config):
    if config.getoption("store_durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stopwatch())


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(items):
    known = durations()
    promises = {line.split()[0] for line in (HERE / "promises.txt").read_text().splitlines() if line[:1] not in "# "}
    takes = defaultdict(float)
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        again = getattr(item, "callspec", None) and item.callspec.params.get("bank_store") == "postgres"
        left = known.get(name, 0) > SLOW_S or (again and item.path.stem != QUICK_ON_POSTGRES)
        if left and not promises & {name, name.partition("[")[0]}:
            item.add_marker("slow")
        takes[group_of(item.nodeid)] += known.get(name, 0)
    items.sort(key=lambda item: -takes[group_of(item.nodeid)])  # what lasts longest begins first


@pytest.hookimpl(optionalhook=True)  # without xdist there is none
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # --dist loadgroup does nothing with pytest 9.2 (xdist 3.8)
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    config.option.loadscopereorder = False  # they are in order
    return ByGroup(config, log)


def group_of(nodeid: str) -> str:
    """Tests of a group run in one worker, one after another."""
    module = nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py")
    return "postgres" if "[postgres" in nodeid or "-postgres]" in nodeid else ENGINE_OF.get(module, module)


def durations() -> dict[str, float]:
    """{test: seconds} of the file."""
    return json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Time the fixtures that tests share, for the test during which they are set up."""
    began = time.perf_counter()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            shared = request.session.stash.setdefault(SHARED, {})
            shared[_name(fixturedef)] = round(time.perf_counter() - began, 3)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.when == "teardown":
        report.set_up_here = item.session.stash.setdefault(SHARED, {})
        item.session.stash[SHARED] = {}
        used = (definitions[-1] for definitions in item._fixtureinfo.name2fixturedefs.values())
        report.shares = [_name(fixture) for fixture in used if fixture.scope != "function"]
    return report


def additions() -> float:
    """Seconds that ten million additions take on this machine, the best of three."""
    return min(timeit.repeat("for i in range(10**7): x += i", "x = 0", number=1, repeat=3))


SHARED = pytest.StashKey[dict]()


def _name(fixturedef) -> str:
    return f"{fixturedef.baseid}::{fixturedef.argname}"


class Stopwatch:
    """In the process that hears of all tests: adds up and writes durations.json."""

    def __init__(self):
        self.slowness = additions() / REFERENCE_S
        self.took = defaultdict(float)
        self.set_up = defaultdict(list)
        self.users = defaultdict(set)

    def pytest_runtest_logreport(self, report):
        if hasattr(report, "context"):  # of a subtest: its time is in the test's
            return
        name = report.nodeid.removeprefix("tests/")
        self.took[name] += report.duration / self.slowness
        for fixture, seconds in getattr(report, "set_up_here", {}).items():
            self.took[name] -= seconds / self.slowness
            self.set_up[fixture].append(seconds / self.slowness)
        for fixture in getattr(report, "shares", ()):
            self.users[fixture].add(name)

    def pytest_sessionfinish(self):
        """A fixture is shared by the quick tests alone: a slow one that also uses it makes it no cheaper for them."""
        shared = dict.fromkeys(self.took, 0.0)
        while True:
            for fixture, users in self.users.items():
                quick = {name for name in users if self.took[name] + shared[name] <= SLOW_S}
                self.users[fixture] = quick
            was, shared = shared, dict.fromkeys(shared, 0.0)
            for fixture, users in self.users.items():
                for name in users:
                    shared[name] += max(self.set_up[fixture], default=0) / len(users)
            shared = {name: max(seconds, was[name]) for name, seconds in shared.items()}
            if shared == was:
                break
        took = {name: round(self.took[name] + shared[name], 1) for name in sorted(self.took)}
        lasting = {name: seconds for name, seconds in took.items() if seconds >= KEPT_S}
        DURATIONS.write_text(json.dumps(lasting, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
