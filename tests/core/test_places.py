"""Banks at odd places, and programs whose standard streams are closed, broken or not in UTF-8."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPO

from core.errors import UserError
from core.memory.__main__ import main
from core.memory.open import file_of
from mcp_server.__main__ import main as server

ENV = {**os.environ, "PYTHONPATH": str(REPO), "REASONINGBANK_SETTINGS": "none"}
READ = [  # PostgreSQL's, as SQLAlchemy, Heroku and people write them
    "postgresql://u:pw@db.example/x",
    "postgres://db.example/x",
    "postgresql+psycopg://u:pw@db.example/x",
    "postgresql+psycopg2://db.example/x",
    "postgresql+asyncpg://db.example/x",
    "PostgreSQL://db.example/x",
    " postgresql://db.example/x",
    "postgresql:/db.example/x",  # as Path collapses it
]
REFUSED = [
    "sqlite:///abs/x.sqlite",
    "sqlite+aiosqlite:///x.sqlite",
    "sqlite:x.sqlite",
    "mysql://u:s3cret@h/x",
    "mysql+pymysql://u:s3cret@h/x",
    "MariaDB://h/x",
    "jdbc:postgresql://h/x?password=s3cret",
    "mongodb+srv://u:s3cret@h/x",
    "redis://:s3cret@h:6379/0",
    "http://127.0.0.1:8000/mcp",
    "file:///srv/x.sqlite",
    "file:x.sqlite?mode=ro",
    "s3://bucket/x.sqlite",
    "host=h dbname=x password=s3cret",
    "dbname=x user=u",
    "u:s3cret@h/x",
    ":memory:",
    "",
    "  ",
    "a\x00b",
    "${HOME}/x.sqlite",
    "${workspaceFolder}/x.sqlite",
    "${env:HOME}/x.sqlite",
    "$HOME/x.sqlite",
    "/srv/$USER/x.sqlite",
    "$(pwd)/x.sqlite",
    "{{data}}/x.sqlite",
    "%APPDATA%\\x.sqlite",
    "C:\\%USERNAME%\\x.sqlite",
]
FILES = [
    "x.sqlite",
    "a b/größe 日本.sqlite",
    "C:/data/x.sqlite",
    "c:\\data\\x.sqlite",
    "a:b.sqlite",
    "50%.sqlite",
    "100%20b.sqlite",
    "price$.sqlite",
    "a$b/x.sqlite",
    "me@home/x.sqlite",
    "postgres",
    "sqlite",
    "k=v.sqlite",
    "{x}.sqlite",
    "~/x.sqlite",
    "-x",
]


def test_urls_of_postgresql_are_read(subtests):
    for path in READ:
        with subtests.test(path=path):
            assert file_of(path) is None and file_of(Path(path)) is None


LESSON = ("--query", "q", "--title", "t", "--content", "c")


def test_what_names_no_file_is_refused_and_no_password_is_repeated(subtests, tmp_path, monkeypatch, capsys):
    for n, path in enumerate(REFUSED):
        with subtests.test(path=path):
            (folder := tmp_path / str(n)).mkdir()
            with pytest.raises(UserError) as error:
                file_of(path)
            assert "s3cret" not in str(error.value) and "\n" not in str(error.value)
            monkeypatch.chdir(folder)
            assert main(["add", path, "--embedder", "hashing-256", *LESSON, "--description", "d"]) == 2
            assert list(folder.iterdir()) == [] and "s3cret" not in capsys.readouterr().err


def test_the_server_refuses_it_too(subtests, tmp_path, monkeypatch, capsys):
    for n, path in enumerate([*(path for path in REFUSED if "s3cret" in path), *REFUSED[::4]]):
        with subtests.test(path=path):
            (folder := tmp_path / str(n)).mkdir()
            monkeypatch.chdir(folder)
            assert server(["save_lesson", "--bank", path, "--embedder", "hashing-256", *LESSON]) == 2
            assert server(["run", "--bank", path, "--task", "t", "--", "true"]) == 2
            assert list(folder.iterdir()) == [] and "s3cret" not in capsys.readouterr().err


def test_paths_of_files_are_paths(subtests):
    for path in FILES:
        with subtests.test(path=path):
            assert file_of(path) == Path(path)


@pytest.fixture
def bank(tmp_path, monkeypatch):
    """A bank in a folder of its own with two lessons, in letters that an ASCII terminal lacks."""
    monkeypatch.setenv("REASONINGBANK_SETTINGS", "none")
    file = tmp_path / "volume" / "b.sqlite"
    file.parent.mkdir()
    for number in (1, 2):
        words = ["--query", f"größe 日本 {number}", "--title", f"Größe 🙂 {number}", "--content", f"ü {number}"]
        assert server(["save_lesson", "--bank", str(file), "--embedder", "hashing-256", *words]) == 0
    return file


def python(*words):
    return [sys.executable, *map(str, words)]


def reading(bank, id):
    """Commands on a bank that only read: a module and its words."""
    m = ("mcp_server",)
    memory = [("stats", bank), ("list", bank), ("show", bank, id), ("search", bank, "größe"), ("snapshot", bank)]
    memory += [("export", bank, bank.parents[1] / "e.jsonl"), ("search", bank, "größe", "--lexical")]
    where = ("--bank", bank)
    tools = [("retrieve_memory", *where, "--query", "größe"), ("search_insights", *where, "--query", "größe")]
    tools += [("bank_status", *where), ("list_index", *where), ("export_memory", *where)]
    tools += [("get_detail", *where, "--memory-id", id), ("hook", "retrieve", *where)]
    tools += [("run", *where, "--task", "größe", "--", "sh", "-c", 'echo "$REASONINGBANK_MEMORY"')]
    return [("core.memory", *words) for words in memory] + [(*m, *words) for words in tools]


# Each command is a process of its own, forked where the modules are imported, with its stdin, stdout and stderr in
# files. Prints their exit statuses.
IN_TURN = """
import json, os, runpy, sys
import core.memory.__main__, mcp_server.__main__, core.memory.bank, mcp_server.service
folder, statuses = sys.argv[1], []
for n, words in enumerate(json.loads(sys.argv[2])):
    if (child := os.fork()) == 0:
        os.dup2(os.open(f"{folder}/in", os.O_RDONLY), 0)
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{folder}/{n}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv = words
        runpy.run_path(sys.modules[f"{words[0]}.__main__"].__file__, run_name="__main__")
        sys.exit()
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(statuses))
"""


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap mounts the volume")
@pytest.mark.parametrize("left", ["closed", "with a write-ahead log", "one file alone"])
def test_a_bank_on_a_read_only_volume_is_read_by_all_that_only_reads(bank, tmp_path, capsys, left):
    assert main(["list", str(bank), "--json"]) == 0
    id = json.loads(capsys.readouterr().out.splitlines()[-1])["id"]
    if left == "with a write-ahead log":
        killed = "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA journal_mode=wal'); "
        killed += "c.execute('CREATE TABLE more (a)'); c.commit(); os._exit(9)"
        subprocess.run(python("-c", killed, bank), check=False)
        assert bank.with_name("b.sqlite-wal").exists()
    shown = bank if left == "one file alone" else bank.parent
    inside = ["bwrap", "--bind", "/", "/", "--ro-bind", shown, shown, "--dev", "/dev", "--proc", "/proc"]
    before = sorted(path.name for path in bank.parent.iterdir())
    share = {
        "with a write-ahead log": slice(0, None, 2),
        "closed": slice(1, None, 4),
        "one file alone": slice(3, None, 4),
    }
    reads = reading(bank, id)[share[left]]
    writes = [("mcp_server", "mark_helpful", "--bank", bank, "--memory-id", id)]
    writes += [("core.memory", "mark", bank, id, "helpful")]
    (tmp_path / "in").write_text(json.dumps({"prompt": "größe"}))
    words = json.dumps([[*map(str, words)] for words in (*reads, *writes)])
    done = subprocess.run(
        [*inside, *python("-c", IN_TURN, tmp_path, words)], cwd=tmp_path, env=ENV, capture_output=True, timeout=200
    )
    if b"bwrap: " in done.stderr and b"ermission" in done.stderr:
        pytest.skip("no mounts here")
    assert done.returncode == 0, done.stderr
    for n, (words, status) in enumerate(zip((*reads, *writes), json.loads(done.stdout), strict=True)):
        said, errors = ((tmp_path / f"{n}.{name}").read_bytes() for name in ("out", "err"))
        assert b"Traceback" not in errors, (words, errors)
        if words in writes:
            assert status == 2 and errors.splitlines()[-1].startswith(b"error: "), (words, errors)
            continue
        assert status == 0, (words, errors)
        if "retrieve" in str(words) or "run" in words or "show" in words:
            assert "Größe".encode() in said, words
    if left != "one file alone":
        assert sorted(path.name for path in bank.parent.iterdir()) == before


STREAMS = {  # how a shell starts a program: (redirections, further variables, its exit code, which programs)
    "stdout closed": (">&- 2>err", {}, 0, "eval"),
    "stderr closed": (">out 2>&-", {}, 0, "retrieve"),
    "stdin closed": ("<&- >out 2>err", {}, 0, "run"),
    "all closed": ("<&- >&- 2>&-", {}, 0, "serve"),
    "ascii": (">out 2>err", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, 0, "list"),
    "cp1252": (">out 2>err", {"PYTHONIOENCODING": "cp1252"}, 0, "eval"),
    "no reader": ("2>err | true", {}, 0, "list run help"),
    "full": (">/dev/full 2>err", {}, None, "doctor"),
}


@pytest.mark.parametrize("how", STREAMS)
def test_streams_as_services_and_pipes_leave_them(bank, tmp_path, how):
    redirected, variables, code, programs = STREAMS[how]
    end = "exit ${PIPESTATUS[0]}" if "|" in redirected else "exit $?"
    commands = {
        "list": ("-m", "core.memory", "list", bank),
        "retrieve": ("-m", "mcp_server", "retrieve_memory", "--bank", bank, "--query", "größe"),
        "run": ("-m", "mcp_server", "run", "--bank", bank, "--task", "größe", "--", "echo", "日本"),
        "serve": ("-m", "mcp_server", "--bank", bank),
        "help": (REPO / "main.py", "--help"),
        "eval": (REPO / "main.py", "env=toy", "llm=scripted", "embedder=hashing", "limit=2", f"run_dir={tmp_path}/run"),
        "doctor": ("-m", "scripts.doctor", "--help"),
    }
    for words in map(commands.get, programs.split()):
        (tmp_path / "err").write_bytes(b"")
        stdin = "" if "<" in redirected else "</dev/null"
        line = f'"$@" {stdin} {redirected}; {end}'
        shell = ["bash", "-c", line, "bash", *python(*words)]
        done = subprocess.run(shell, cwd=tmp_path, env={**ENV, **variables}, timeout=100, check=False)
        said = (tmp_path / "err").read_bytes()
        assert done.returncode == code or (code is None and done.returncode in (0, 2)), (words, said)
        assert b"Traceback" not in said and b"Exception ignored" not in said, (words, said)
    assert bank.read_bytes()[:15] == b"SQLite format 3"
    assert main(["doctor", str(bank)]) == 0 and main(["stats", str(bank)]) == 0


def test_a_server_with_closed_streams_writes_nothing_into_the_bank(bank):
    hello = b'{"jsonrpc":"2.0","id":1,"method":"nope"}\n'
    script = '"$@" 2>&- | cat; exit ${PIPESTATUS[0]}'
    line = ["bash", "-c", script, "bash", *python("-m", "mcp_server", "--bank", bank)]
    done = subprocess.run(line, env=ENV, input=hello, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and all(json.loads(each) for each in done.stdout.splitlines())
    assert all(json.loads(each) is not None for each in bank.with_name("b.sqlite.journal").read_bytes().splitlines())
