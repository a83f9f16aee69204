"""What only Linux has is not needed by the bank and the MCP server: the nearest thing to Windows that runs here."""

from __future__ import annotations

import ast
import json
import pkgutil
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest
from conftest import REPO
from mcp_kit import HELLO, MODEL, READY, TRAJECTORY, call, talk
from without_posix import ABSENT

from core.run.cells import safe

ROOMS = "core mcp_server analysis prompts workflows scripts single_turn_bench hydra_plugins envs".split()
BUNDLED = REPO / "envs/swe/bundled"  # other people's programs
FILES = [REPO / "main.py", *(path for room in ROOMS for path in sorted((REPO / room).rglob("*.py")))]
TREES = {path: ast.parse(path.read_text("utf-8")) for path in FILES if not path.is_relative_to(BUNDLED)}
WITHOUT = [sys.executable, str(REPO / "tests/core/without_posix.py")]
USE = """
import importlib, json, sys
from core.memory.bank import MemoryBank
from core.memory.consolidation.consolidator import Consolidator
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from core.types import Lesson, MemoryRecord

def record(id, query):
    lesson = Lesson(title=query, description="", content=f"{query}.")
    return MemoryRecord(
        id=id, original_query=query, items=(lesson,), task_id=id, outcome="success", label_source="human",
        namespace="default", created_at="2024-01-01T00:00:00Z", source_trajectory_id=id, score=1.0,
    )

def opened(path):
    return MemoryBank(
        path=path, embedder=HashingEmbedder(), policy=Cosine(), consolidate=Consolidator(deduplicate=Deduplicate()),
    )
"""


def imports_at_module_level(tree):
    """The names of modules that are imported when a file is, outside every function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from imports_at_module_level(node)


def test_no_module_needs_what_windows_lacks_when_it_is_imported():
    wanted = {*ABSENT, "_posixsubprocess", "posix", "syslog", "crypt", "readline", "curses"}
    found = {path: wanted & {*imports_at_module_level(tree)} for path, tree in TREES.items()}
    assert {path: names for path, names in found.items() if names} == {}
    assert wanted & {*imports_at_module_level(ast.parse("if True:\n  try:\n    from pty import spawn\n  finally: 0"))}


def unsaid(tree):
    """Where a text file is read or written without its encoding, or written without its newline."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        words = {word.arg for word in node.keywords}
        encoded = "encoding" in words or None in words  # None: of **words
        if (name == "read_text" and not node.args and not encoded) or (
            name == "write_text" and len(node.args) == 1 and not (encoded and "newline" in words)
        ):
            yield node.lineno, ast.unparse(node)
        modes = [
            arg.value for arg in node.args if isinstance(arg, ast.Constant) and str(arg.value).strip("rwaxbt+") == ""
        ]
        modes += [word.value.value for word in node.keywords if word.arg == "mode"]
        if name in ("open", "fdopen") and modes and "b" not in modes[0]:
            writes = {*modes[0]} & {*"wax+"}
            if not encoded or (writes and not {"newline", None} & words):
                yield node.lineno, ast.unparse(node)


def test_every_text_file_has_its_encoding_and_line_ending_said():
    in_an_archive = ("archive.open(",)  # bytes, whatever the mode
    descriptor = ("os.fdopen(number, ",)  # core/terminal.py: standard streams, whose line endings are the system's
    found = {
        path: [each for each in unsaid(tree) if not each[1].startswith(in_an_archive + descriptor)]
        for path, tree in TREES.items()
    }
    assert {path: calls for path, calls in found.items() if calls} == {}
    for code in ('p.write_text(t, encoding="utf-8")', "p.read_text()", 'open(p, "w")', 'p.open("a", encoding="utf-8")'):
        assert [*unsaid(ast.parse(code))], code


def test_a_name_of_a_file_is_one_on_windows_too(subtests):
    devices = ("CON", "nul", "Aux.txt", "com1", "LPT9.a.b")
    for text in (*devices, "a.", "...", "what: now?", "a\\b/c", 'x"<>|*', "tab\t", "a " * 90):
        with subtests.test(text=text):
            name = safe(text, 60)
            assert not PureWindowsPath(name).is_reserved() and not PureWindowsPath(f"{name}.sqlite").is_reserved()
            assert len(name) < 80 and not name.endswith((".", " ")) and not {*name} & {*'<>:"/\\|?*\t'}
            assert safe(text, 60) != safe(text + "!", 60)


def names_of(room):
    return [
        found.name for found in pkgutil.walk_packages([str(REPO / room)], f"{room}.") if "__main__" not in found.name
    ]


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """Runs a program in a process that lacks what Windows lacks; returns its stdout."""
    place = tmp_path_factory.mktemp("without")

    def run(text, *words):
        (place / "program.py").write_text(text, encoding="utf-8")
        path = {"PYTHONPATH": f"{REPO}:{place}"}
        done = subprocess.run(
            [*WITHOUT, "program", *map(str, words)], cwd=place, env=path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_what_is_taken_away_is_missed(without):
    lines = "import os, signal\nfound = [hasattr(os, 'fork'), hasattr(signal, 'SIGKILL')]\n"
    lines += "try:\n    import fcntl\nexcept ImportError:\n    found.append('no fcntl')\nprint(found)"
    assert without(lines) == "[False, False, 'no fcntl']\n"


def test_every_module_of_the_bank_and_the_server_is_imported(without):
    names = [*names_of("core"), *names_of("mcp_server"), *names_of("prompts"), *names_of("analysis")]
    assert "core.memory.sqlite.journal_file" in names and "mcp_server.service" in names
    without(
        "import importlib, json, sys\nfor name in json.loads(sys.argv[1]):\n    importlib.import_module(name)",
        json.dumps(names),
    )


def test_a_bank_is_written_searched_consolidated_and_rebuilt(without, tmp_path):
    bank = tmp_path / "bank.sqlite"
    said = without(
        USE
        + """
path = sys.argv[1]
bank = opened(path)
for n in range(4):
    bank.add(record(f"r{n}", f"Sort the list number {n}"))
bank.add(record("twin", "Sort the list number 3"))
bank.learn(None)
bank.consolidate.close()
print(bank.retrieve("Sort the list number 2", top_k=1)[0].record.id)
lead = bank._store.lead()
print(lead is not None, bank._store.lead())
lead.close()
bank.compact()
bank.close()
open(path, "r+b").write(b"\\0" * 8192)  # the database is spoilt, its journal is not
print(len(opened(path).records()))
""",
        bank,
    )
    assert said.splitlines() == ["r2", "True None", "5"]
    lines = (tmp_path / "bank.sqlite.journal").read_bytes()
    assert lines and b"\r" not in lines


def test_the_server_saves_searches_and_learns(tmp_path):
    line = [
        *WITHOUT,
        "mcp_server",
        "--bank",
        str(tmp_path / "b.sqlite"),
        "--embedder",
        "hashing-256",
        "--tools",
        "all",
        *MODEL,
    ]
    lesson = call(
        1, "save_lesson", query="Sort names", title="Use sorted", content="sorted() keeps equal names in order."
    )
    learn = call(2, "extract_memory", query="Accept empty files", trajectory=TRAJECTORY)
    lines, errors = talk(
        line, HELLO, READY, lesson, learn, call(3, "retrieve_memory", query="Sort names"), call(4, "bank_status")
    )
    answers = {(row := json.loads(each)).get("id"): row for each in lines}
    assert not any(answers[number]["result"].get("isError") for number in (1, 2, 3, 4)), errors
    assert "Use sorted" in json.dumps(answers[3]) and (Path(tmp_path) / "b.sqlite").stat().st_size > 0
