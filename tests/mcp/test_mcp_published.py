"""What others publish of the server: server.json for MCP's registry."""

from __future__ import annotations

import json
import tomllib

import jsonschema
import pytest
from conftest import REPO

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


def test_the_registry_takes_server_json():
    entry = json.loads((REPO / "server.json").read_text())
    jsonschema.validate(entry, SERVER_JSON)
    [package] = entry["packages"]
    assert entry["version"] == package["version"] == PROJECT["version"]
    assert package["identifier"] == PROJECT["name"]
    # The registry looks for this line in the description of the package, to see whose it is.
    assert f"<!-- mcp-name: {entry['name']} -->" in (REPO / PROJECT["readme"]).read_text()
    # uvx runs the command that is called as the package, which serves over stdio.
    assert PROJECT["scripts"][package["identifier"]] == "reasoningbank_harness.__main__:serve"
    for wrong in (
        {"name": "noslash"},
        {"version": ">=0.1"},
        {"description": "x" * 101},
        {"other": 1},
        {"packages": []},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(entry | wrong, SERVER_JSON)
