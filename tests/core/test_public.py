"""What a public project shows: one version everywhere, a site whose links hold, a safe image and workflow."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser

import pytest
import yaml
from conftest import REPO, TOY

from core.errors import UserError
from core.models.local import LocalModel
from core.version import version_line
from scripts.reasoningbank import COMMANDS, OF_SERVER, start

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "CITATION.cff", "mkdocs.yml", "docs"]


def versions(value, key=""):
    """Every value under a key `version` (not of another package) in nested JSON."""
    if isinstance(value, dict):
        return [found for name, part in value.items() for found in versions(part, name)]
    if isinstance(value, list):
        return [found for part in value for found in versions(part)]
    return [value] if key == "version" else []


def test_one_version_everywhere():
    citation = yaml.safe_load((REPO / "CITATION.cff").read_text())
    released = re.findall(r"^## \[?(\d[\w.]*)\]? - (\d{4}-\d\d-\d\d)$", (REPO / "CHANGELOG.md").read_text(), re.M)
    assert (citation["version"], str(citation["date-released"])) == released[0]
    assert citation["version"] == VERSION
    assert version_line() == f"reasoningbank-harness {VERSION}", "reinstall: pip install -e ."
    for name in ("server.json", "manifest.json", "mcp_server/deploy/manifest.json"):
        if (REPO / name).is_file():
            assert set(versions(json.loads((REPO / name).read_text()))) == {VERSION}, name


def test_every_command_says_its_version(capsys):
    for words in (["--version"], *([word, "--version"] for word in (*COMMANDS, *OF_SERVER))):
        assert start(words) == 0, words
        assert capsys.readouterr().out == f"{version_line()}\n", words
    for module in ("main", "core.memory", "mcp_server", "single_turn_bench", "scripts.tables", "scripts.doctor"):
        said = subprocess.run(
            [sys.executable, "-m", module, "--version"], cwd=REPO, capture_output=True, text=True, timeout=60
        )
        assert (said.returncode, said.stdout) == (0, f"{version_line()}\n"), (module, said.stderr)


def test_an_error_of_an_evaluation_is_not_swallowed(tmp_path):
    words = ["eval", *TOY, "setting=frozen", f"memory.path={tmp_path / 'no.sqlite'}", f"run_dir={tmp_path / 'run'}"]
    start_it = [
        sys.executable,
        "-c",
        f"import sys; from scripts.reasoningbank import start; sys.exit(start({words!r}))",
    ]
    done = subprocess.run(start_it, cwd=REPO, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "no.sqlite" in done.stderr and "Traceback" not in done.stderr


def test_a_missing_system_library_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('libgomp.so.1: cannot open shared object file')")
    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (model := tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(UserError, match="apt-get install libgomp1"):
        LocalModel(model_path=str(model))._load()
    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)


def test_the_image_is_given_all_packages_and_no_data():
    lines = [line for line in (REPO / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line[0] == "!"}
    found = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
    read = {"hatch_build.py", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}  # by pip
    assert found | read | {"reasoningbank_harness"} <= let_in
    ours = {name for name in let_in if name.endswith(".jsonl")}
    assert "single_turn_bench/*.jsonl" in lines and ours == {"single_turn_bench/warmup.jsonl"}
    stages = (REPO / "Dockerfile").read_text().split("\nFROM ")
    assert {stage.partition("\n")[0].split()[-1] for stage in stages[1:]} >= {"server", "harness"}
    assert "\nUSER 10001\n" in next(stage for stage in stages if "AS user" in stage)
    assert all(" FROM user " in f" FROM {stage}" for stage in stages if re.match(r".* AS (server|harness)\n", stage))


def test_the_workflow_pins_its_actions_and_may_only_read():
    text = (REPO / ".github/workflows/ci.yml").read_text()
    flow = yaml.safe_load(text)
    assert flow["permissions"] == {"contents": "read"}
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", name) for name in re.findall(r"uses: (\S+)", text))
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["project"]["requires-python"]).groups()
    job = flow["jobs"]["all"]
    assert job["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in range(int(low), int(high))]
    assert job["steps"][-1] == {"run": ".ci/run"} and "continue-on-error" not in job


class Asked(HTMLParser):
    """The addresses that a browser asks for by itself, and those of a page's own links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded, self.mermaid = [], 'class="mermaid' in text
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        loads = tag == "link" and given.get("rel") not in ("canonical", "prev", "next")
        self.loaded += [given[key] for key in ("src", "srcset") if given.get(key)]
        self.loaded += [given["href"]] if loads else []


def build(source, target):
    words = [sys.executable, "-m", "mkdocs", "build", "-f", str(source / "mkdocs.yml"), "-d", str(target)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def test_the_site_is_built_and_asks_no_other_host(tmp_path):
    pytest.importorskip("material")
    done = build(REPO, tmp_path)
    assert done.returncode == 0, done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > len(list((REPO / "docs").rglob("*.md")))
    assert "Does reasoning memory make an LLM agent better" in (tmp_path / "index.html").read_text()
    for page in pages:
        asked = Asked(page.read_text())
        assert not asked.mermaid, f"{page}: Material would load Mermaid from another host"
        assert not [address for address in asked.loaded if "//" in address], page
    sheets = "".join(sheet.read_text() for sheet in tmp_path.rglob("*.css"))
    assert not re.search(r"url\(['\"]?(https?:)?//|@import", sheets)


def test_broken_links_and_a_page_in_no_menu_break_the_build(tmp_path):
    pytest.importorskip("material")
    for name in PAGES:
        copy = shutil.copytree if (REPO / name).is_dir() else shutil.copy
        copy(REPO / name, tmp_path / name)
    for page, text in {
        "README.md": "[a](docs/no_page.md) [b](docs/mcp.md#no-part)",
        "docs/mcp.md": "[c](../CONTRIBUTING.md#no-recipe)",
        "CONTRIBUTING.md": "[d](#no-heading) ![e](docs/no_image.png)",
        "docs/in_no_menu.md": "# A page",
    }.items():
        with (tmp_path / page).open("a") as file:
            file.write(f"\n{text}\n")
    done = build(tmp_path, tmp_path / "site")
    said = done.stdout + done.stderr
    assert done.returncode and "strict mode" in said
    for word in ("no_page.md", "#no-part", "#no-recipe", "#no-heading", "no_image.png", "in_no_menu.md"):
        assert word in said, word
