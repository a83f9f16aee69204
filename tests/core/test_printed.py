"""What is not ours reaches the terminal written out, from every command that prints it."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import sys
from contextlib import suppress

import forkserver
import pytest
from conftest import REPO
from report_kit import named, rewritten

from core.console import Console
from core.memory.__main__ import COMMANDS
from core.memory.__main__ import main as memory
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from core.redact import RedactingFilter, Redactor
from core.terminal import Printable, unfiltered
from core.types import Lesson, MemoryRecord

EVIL = "a\x1b]52;c;aGk=\x07b\x1b]8;;http://evil\x1b\\c\x1b[2J\x9b1m\rd\b\u202ee\x7f\u2028f"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069]")
PROGRAMS = "core scripts analysis mcp_server workflows single_turn_bench".split()


@pytest.fixture
def bank(tmp_path):
    """The file of a bank in which every text is hostile; its record's id is EVIL, another waits for review."""
    path = tmp_path / f"bank{EVIL.replace('/', '')}.sqlite"
    found = MemoryBank(path=str(path), embedder=HashingEmbedder(), policy=Cosine())
    for id_, status in ((EVIL, "active"), (f"{EVIL}2", "quarantined")):
        found.add(
            MemoryRecord(
                id=id_,
                original_query=f"sort the rows {EVIL}",
                items=(Lesson(title=EVIL, description=EVIL, content=EVIL),),
                source_trajectory_id=EVIL,
                score=1.0,
                outcome="success",
                label_source=EVIL,
                task_id=f"{EVIL}{status}",
                tick=0,
                domain=EVIL,
                tags=(EVIL,),
                status=status,
                provenance={"url": EVIL, "quarantine": [EVIL], "hygiene": [EVIL]},
            )
        )
    found.history.snapshot(EVIL)
    found.close()
    return path


def shown(capsys) -> str:
    """What was printed: nothing in it is obeyed."""
    text = "".join(capsys.readouterr())
    assert not OBEYED.search(text), OBEYED.search(text)
    return text


ARGUMENTS = {
    "stats": [],
    "list": [],
    "show": [EVIL],
    "search": ["sort the rows"],
    "edit": [],
    "add": ["--query", EVIL, "--title", EVIL, "--description", EVIL, "--content", EVIL],
    "mark": [EVIL, "helpful"],
    "status": [EVIL, "archived"],
    "review": [],
    "export": ["LESSONS.md", "--format", "markdown"],
    "import": [f"none{EVIL.replace('/', '')}"],
    "consolidate": [],
    "reembed": [],
    "snapshot": [],
    "rollback": ["--to", EVIL],
    "forget": ["--id", EVIL],
    "compact": [],
    "doctor": [],
    "retry": [],
}
TELL = "stats list show search mark status review import snapshot forget".split()


def test_every_command_of_the_bank(bank, capsys, tmp_path, monkeypatch):
    assert ARGUMENTS.keys() == COMMANDS.keys()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISUAL", "true")
    for name in sorted(COMMANDS, key=lambda name: (name in ("status", "rollback", "forget"), name == "forget")):
        memory([name, str(bank), *ARGUMENTS[name]])
        assert r"\u001b]52;" in shown(capsys) or name not in TELL, name
    assert not OBEYED.search((tmp_path / "LESSONS.md").read_text(encoding="utf-8"))


def test_json_and_files_of_data_hold_what_was_stored(bank, capsys, tmp_path):
    memory(["show", str(bank), EVIL, "--json"])
    assert json.loads(shown(capsys))["items"][0]["title"] == EVIL
    memory(["export", str(bank), str(tmp_path / "all.jsonl")])
    text = (tmp_path / "all.jsonl").read_text(encoding="utf-8")
    assert json.dumps(EVIL, ensure_ascii=False) in text or json.dumps(EVIL) in text


SERVER = {
    "retrieve_memory": ["--query", "sort the rows"],
    "search_memories": ["--query", "sort the rows"],
    "get_detail": ["--memory-id", EVIL],
    "mark_helpful": ["--memory-id", EVIL],
    "archive_memory": ["--memory-id", f"none{EVIL}"],
    "bank_status": [],
    EVIL: [],
    "audit": [],
    "runs": [],
}


def test_every_command_of_the_server(bank, capsys, monkeypatch, tmp_path):
    pytest.importorskip("mcp")
    from mcp_server.__main__ import main as server

    monkeypatch.chdir(tmp_path)
    where = ["--bank", str(bank)]
    for name, more in SERVER.items():
        server([name, *where, *more])
        assert shown(capsys), name
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"prompt": f"sort the rows {EVIL}", "cwd": str(tmp_path)})))
    server(["hook", "retrieve", *where])
    assert r"\u001b]52;" in shown(capsys)
    words = ["run", *where, "--embedder", "hashing-256", "--task", f"sort the rows {EVIL}", "--json"]
    server([*words, "--", sys.executable, "-c", "pass"])
    assert r"\u001b]52;" in shown(capsys)
    server([*words, "--", f"no{EVIL}"])
    assert shown(capsys)


@pytest.fixture(scope="module")
def hostile_runs(tmp_path_factory, toy_runs):
    """A run's folder, and that of another, in which ids, errors, names and the folder's name are hostile."""

    def poison(row):
        row["task_id"] += EVIL
        row["query"], row["task_type"] = EVIL, EVIL
        row["verdict"]["reason"] = EVIL
        row["learning_errors"] = [EVIL]
        for attempt in row["trajectories"]:
            attempt |= {"gold": EVIL, "answer": EVIL}
            for step in attempt["steps"]:
                step |= {"text": EVIL, "observation": EVIL}
        for lesson in (*row["lessons"], *(item for record in row["records"] for item in record["items"])):
            lesson |= {"title": EVIL, "description": EVIL, "content": EVIL}

    folder = tmp_path_factory.mktemp("hostile")
    return [
        str(named(rewritten(toy_runs / name, folder / f"{name}{EVIL.replace('/', '')}[link=x]", poison), EVIL + name))
        for name in ("none-0", "bank-0")
    ]


@pytest.mark.parametrize(
    "name, words",
    [
        ("show", ["{1}"]),
        ("show", ["{1}", "0", "--prompts"]),
        ("show", ["{1}", f"none{EVIL}"]),
        ("tables", ["{0}", "{1}"]),
        ("tables", ["{0}", "{1}", "--format", "terminal", "--table", "main"]),
        ("tables", ["{0}", "{1}", "--format", "latex"]),
        ("tables", ["{0}", "{1}", "--format", "csv"]),
        ("audit", ["{1}"]),
        ("audit", ["{0}", "{1}", "--json"]),
        ("compare", ["{0}", "{1}", "--all"]),
        ("report", ["{0}", "{1}", "-o", "{out}"]),
        ("export", ["{1}", "--to", "csv", "-o", "{out}"]),
        ("export", ["{1}", "--to", f"no{EVIL}"]),
        ("power", [f"none{EVIL}"]),
        ("report", [f"none{EVIL}", "--figures", "{out}"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_script(name, words, hostile_runs, capsys, tmp_path):
    from importlib import import_module

    words = [word.format(*hostile_runs, out=tmp_path / f"x{EVIL.replace('/', '')}") for word in words]
    with suppress(SystemExit):  # argparse's
        import_module(f"scripts.{name}").main(words)
    assert shown(capsys)


def test_every_program_opens_its_streams():
    """The programs of the project: each lets its streams be printable, itself or by what it starts."""
    files = [REPO / "main.py", *(file for room in PROGRAMS for file in sorted((REPO / room).rglob("*.py")))]
    programs = [file for file in files if '__name__ == "__main__"' in file.read_text(encoding="utf-8")]
    opened = re.compile(r"open_standard_streams\(\)|@plain_errors|scripts\.reasoningbank|def start\(argv")
    assert len(programs) > 12
    assert not [file for file in programs if not opened.search(file.read_text(encoding="utf-8"))]
    consoles = [file for file in files if re.search(r"rich\.console\b", file.read_text(encoding="utf-8"))]
    assert consoles == [REPO / "core/console.py"]


def test_a_providers_error_in_a_run(cli, serve, tmp_path):
    provider = serve(lambda request, number: (400, {"error": {"message": EVIL, "type": EVIL}}))
    words = ("env=toy", "llm=vllm", "embedder=hashing", "limit=2", "llm.model=hosted_vllm/m")
    done = cli(*words, f"llm.api_base={provider.url}", f"run_dir={tmp_path / 'run'}")
    log = (tmp_path / "run" / "main.log").read_text(encoding="utf-8")
    assert r"\u001b]52;" in done.stdout + done.stderr, done.stderr
    assert not OBEYED.search(done.stdout + done.stderr + log)


def test_a_log_record_and_its_traceback():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(RedactingFilter(Redactor({})))
    logger = logging.Logger("one")
    logger.addHandler(handler)
    try:
        raise ValueError(EVIL)
    except ValueError:
        logger.exception("broke: %s", EVIL)
    assert out.getvalue().count(r"\u001b]52;") == 2 and not OBEYED.search(out.getvalue())


def test_rich_keeps_its_own_sequences_and_no_one_elses():
    out = io.StringIO()
    console = Console(file=Printable(out), force_terminal=True, color_system="standard", width=300)
    console.print(f"[red]x[/red] [link=http://evil]y[/link] :boom: {EVIL}", style="red")
    text = out.getvalue()
    assert text.startswith("\x1b[31m[red]x[/red] [link=http://evil]y[/link] :boom: a\\u001b]52;")
    assert not OBEYED.search(text.replace("\x1b[31m", "").replace("\x1b[0m", ""))


def test_a_stream_before_another():
    out = io.StringIO()
    stream = Printable(out)
    stream.writelines(["\r 50 %", f"x{EVIL}\n"])
    assert out.getvalue().startswith("\r 50 %xa\\u001b") and not OBEYED.search(out.getvalue()[1:])
    assert unfiltered(Printable(stream)) is out and stream.getvalue() == out.getvalue()


LIVE = f"""
import sys
from core.terminal import open_standard_streams
open_standard_streams()
from core.run.display import RunProgress
with RunProgress(2, [], "label" + {EVIL!r}) as progress:
    progress.warn("warned " + {EVIL!r})
    print("printed " + {EVIL!r})
    print("complained " + {EVIL!r}, file=sys.stderr)
raise ValueError("raised " + {EVIL!r})
"""


def test_a_live_line_in_a_real_terminal():
    """Under a pseudo-terminal rich moves the cursor; what is not ours does not, not even in a traceback."""
    ours, theirs = pty.openpty()
    done = forkserver.Popen(
        [sys.executable, "-c", LIVE],
        cwd=REPO,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "400"},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    done.wait()
    text = seen.decode()
    for word in ("label", "warned", "printed", "complained", "raised"):
        assert re.search(rf"{word} ?a\\u001b\]52;", text), text
    assert not re.search("\x1b\\]|\x1b\\[2J\x9b|\x07|\b|\x9b|\u202e", text)
