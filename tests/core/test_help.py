"""docs/help.md quotes messages: each of them is one that the program has."""

from __future__ import annotations

import ast
import re

from conftest import REPO

PAGE = REPO / "docs" / "help.md"
QUOTED = re.findall(r"^\| `([^`]+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
ROOMS = "core envs analysis workflows scripts mcp_server single_turn_bench main.py".split()


def texts():
    """Every text in the program, with a mark for each value that is put into it."""
    files = [file for room in ROOMS for file in (sorted((REPO / room).rglob("*.py")) or [REPO / room])]
    found = []
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                found.append("".join(map(str, parts)))
    return "\n".join(found)


def test_the_page_has_the_errors_that_people_meet():
    assert len(QUOTED) >= 10


def test_each_message_is_one_that_the_program_prints():
    printed = texts()
    pieces = [piece.strip(" :;,") for said in QUOTED for piece in said.split("...")]
    assert [piece for piece in pieces if piece not in printed] == []
