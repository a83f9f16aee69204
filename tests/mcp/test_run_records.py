"""What reasoningbank run keeps of each run, how it is listed, and the words of an earlier system's command line."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import sqlite3
from contextlib import closing

import pytest
from mcp_kit import run_here  # noqa: F401 - a fixture

from core.errors import UserError
from core.memory.moment import since
from core.redact import HIDDEN
from mcp_server import run_records
from mcp_server.__main__ import main
from mcp_server.agent_commands import tokens_recorded
from mcp_server.best_effort import BestEffort
from mcp_server.run import options
from mcp_server.task_memory import TaskMemory

FAILS = ("sh", "-c", "exit 3")


@pytest.fixture
def run(tmp_path, run_here):  # noqa: F811
    """(result object, what stood on stderr) of one run around a command, in this process."""

    def run(*words, command=("echo", "cache first, ann@example.org"), status=0):
        words = ("--task", "Deploy the site", "--closing-words", *words)
        _, said, result = run_here(tmp_path / "bank.sqlite", *words, command=command, status=status)
        return result, said

    return run


def attempts(tmp_path):
    with closing(sqlite3.connect(run_records.file_of(tmp_path / "bank.sqlite"))) as db:
        return db.execute("SELECT task, output FROM attempts ORDER BY run").fetchall()


def test_the_result_says_what_was_learned_and_how_the_time_compares(run):
    first, said = run("--memory-domain", "web", "--enable-memory", "--memory-k", "1")
    (new,) = first["new_memories"]
    told = {"id": first["learned"][0], "verdict": "success", "confidence": first["confidence"]}
    assert new == told | {"title": "Deploy the site"}
    assert (first["memory_enabled"], first["mean_duration_s"], first["earlier_runs"]) == (True, None, 0)
    assert "memory: learned: Deploy the site (from a success, 0." in said and "mean of" not in said
    run("--memory-domain", "web")
    third, said = run("--memory-domain", "web", "--memory-k", "1")
    assert third["retrieved"] and len(third["retrieved"]) == 1 and third["earlier_runs"] == 2
    assert third["mean_duration_s"] > 0 and "the mean of 2 earlier runs" in said
    assert "memory: [1] Deploy the site (from a success, 0." in said
    other, said = run("--memory-domain", "api", command=FAILS, status=3)
    assert (other["earlier_runs"], other["retrieved"]) == (0, []) and "mean of" not in said


def test_memory_that_is_off_in_the_settings_is_on_with_the_option(run, tmp_path, monkeypatch):
    file = tmp_path / "settings.yaml"
    file.write_text("enabled: false\n")
    monkeypatch.setenv("REASONINGBANK_SETTINGS", str(file))
    off, said = run()
    assert not off["memory_enabled"] and off["verdict"] is None and not off["learned"] and not off["warnings"]
    assert "memory: off" in said and not (tmp_path / "bank.sqlite").exists()
    on, said = run("--enable-memory")
    assert on["memory_enabled"] and on["learned"] and "memory: off" not in said


def test_a_run_that_falls_back_to_no_memory_says_so_in_its_result(run, tmp_path):
    (tmp_path / "bank.sqlite").mkdir()
    result, _ = run()
    assert result["memory_enabled"] is False and result["warnings"] and result["exit_status"] == 0


def test_attempts_are_kept_only_when_asked_for_up_to_the_limit_and_without_personal_data(run, tmp_path):
    run()
    assert attempts(tmp_path) == []
    for number in range(3):
        run("run.attempts=2", command=("echo", f"try {number}, ann@kestrel.io"))
    kept = attempts(tmp_path)
    assert [text for _, text in kept] == ["try 1, [removed email]\n", "try 2, [removed email]\n"]
    run()  # without the key nothing is added, and nothing that was kept goes
    assert attempts(tmp_path) == kept
    _, said = run("run.attempts=-1")
    assert "run.attempts" in said


def test_what_a_command_prints_of_the_environments_secrets_is_in_no_result_lesson_or_record(run, tmp_path, monkeypatch):
    key, form = "zq81-Kk0pwe77TTx", "sk-ant-" + "aB3dE6gH9j" * 3
    monkeypatch.setenv("GH_PAT", key)
    monkeypatch.setenv("DATABASE_URL", "postgresql://app:hunter-77-zebra@db/x")
    result, _ = run("run.attempts=2", command=("echo", f"push with {key}, hunter-77-zebra and {form}"))
    assert result["output"] == f"push with {HIDDEN}, {HIDDEN} and {HIDDEN}\n" and result["learned"]
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert b"push with" in stored
    for secret in (key, "hunter-77-zebra", form):
        assert secret.encode() not in stored


def test_runs_are_listed_since_a_time_as_text_json_and_csv(run, tmp_path, capfd):
    run("run.attempts=1")
    run(command=FAILS, status=3)
    run("--judge", "none")
    bank = ["--bank", str(tmp_path / "bank.sqlite")]
    with closing(sqlite3.connect(run_records.file_of(tmp_path / "bank.sqlite"))) as db, db:
        db.execute("UPDATE runs SET at = '2020-01-01T00:00:00+00:00' WHERE id = 1")
    assert main(["runs", *bank]) == 0
    text = capfd.readouterr().out
    assert text.count("\n") == 4 and "runs 3, success_rate 0.5," in text and "new_per_100_runs 33.33" in text
    assert main(["runs", *bank, "--since", "7d", "--csv", str(tmp_path / "week.csv")]) == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "week.csv").read_text())))
    assert [(row["verdict"], row["exit_status"]) for row in rows] == [("failure", "3"), ("", "0")]
    assert list(rows[0]) == list(run_records.COLUMNS)
    assert main(["runs", *bank, "--json"]) == 0
    shown = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [row["attempt"] is None for row in shown] == [False, True, True]
    for words, said in ((["--since", "soon"], "--since soon"), (["--csv", str(tmp_path / "no" / "f.csv")], "--csv")):
        assert main(["runs", *bank, *words]) == 2 and said in capfd.readouterr().err
    assert main(["runs", "--bank", str(tmp_path / "other.sqlite")]) == 2


def test_a_time_may_be_a_length_or_a_date_and_another_is_one_sentence():
    for text in ("7d", "12h", "2w", "0.5d", "2026-01-31", "2026-01-31T10:00:00+02:00"):
        assert since(text).tzinfo is not None
    for text in ("", "d", "7 days", "7x", "31.1.2026", "1e99d"):
        with pytest.raises(UserError, match="--since"):
            since(text)


def test_an_empty_bank_loads_no_embedder(tmp_path, monkeypatch):
    monkeypatch.setenv("REASONINGBANK_SETTINGS", "none")
    given = options(["--bank", str(tmp_path / "bank.sqlite")])
    memory = TaskMemory(given=given, task="Deploy the site", best_effort=BestEffort(bank=given.bank))
    assert memory.retrieve() == [] and memory.service().embedder_class() is None
    memory.close()


def test_words_that_are_no_text_are_noted_all_the_same(run, tmp_path):
    odd = b"\xff\xfe".decode("utf-8", "surrogateescape")
    found, _ = run("run.attempts=1", command=("printf", "%s", odd))
    assert found["exit_status"] == 0 and not found["warnings"] and len(attempts(tmp_path)) == 1


def test_a_share_of_the_runs_is_made_without_memory_and_compared(run, tmp_path, capfd):
    """Of 40 runs half without memory; 16 of 20 solved with it, 4 of 20 without: +60 points."""
    run()
    told, said = run("--holdout", "0.000001")
    assert (told["shown"], told["lessons_in"] is not None) == (True, True) and "not shown" not in said
    told, said = run("--holdout", "0.999999")
    assert (told["shown"], told["retrieved"], told["lessons_in"]) == (False, [], None)
    assert "memory: not shown in this run, for comparison (--holdout 0.999999)" in said
    bank = tmp_path / "bank.sqlite"
    rows = [(n % 2, 0.5, ["success", "failure"][(n // 2 % 5 == 0) if n % 2 else (n // 2 % 5 != 0)]) for n in range(40)]
    with closing(sqlite3.connect(run_records.file_of(bank))) as db, db:
        db.execute("UPDATE runs SET shown = NULL")
        query = (
            "INSERT INTO runs (at, shown, holdout, verdict, label_source, duration_s, learned, retrieved, used, "
            "program, tokens) VALUES ('2026-01-01', ?, ?, ?, 'check', ?, 0, 0, 0, 'x', ?)"
        )
        db.executemany(query, [(*row, *((20.0, 300) if row[0] else (10.0, 900))) for row in rows])
        db.execute("UPDATE runs SET tokens = NULL, duration_s = 0 WHERE id = (SELECT max(id) FROM runs)")
    assert main(["runs", "--bank", str(bank)]) == 0
    said = capfd.readouterr().out
    assert "compared by holdout: 20 runs with memory, 20 without" in said
    assert "success (check): 80 % with memory, 20 % without: +6" in said
    assert "time: x 2.0" in said and "on average x 2.00" in said and "the runs without memory cost about 1" in said
    assert "tokens: x 0.3" in said
    assert "their time is not known, or 0 s: 1 of those with memory, 0 of those without" in said
    assert "their tokens are not known: 1 of those with memory, 0 of those without" in said


def test_a_person_says_how_a_run_ended(run, tmp_path, capfd):
    run("--judge", "none")
    run("--judge", "none")
    words = ["runs", "--bank", str(tmp_path / "bank.sqlite")]
    capfd.readouterr()
    assert main([*words, "--mark", "2", "failure"]) == 0
    said = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert [(line[0], line[2]) for line in said[:2]] == [("1", "not"), ("2", "failure")]
    assert [(row["verdict"], row["label_source"]) for row in run_records.read(tmp_path / "bank.sqlite")] == [
        (None, "none"),
        ("failure", "hand"),
    ]
    for wrong, why in ((["3", "success"], "no such run"), (["1", "fine"], "success or failure")):
        assert main([*words, "--mark", *wrong]) == 2 and why in capfd.readouterr().err


CLAUDE = {"input_tokens": 4, "cache_creation_input_tokens": 1000, "cache_read_input_tokens": 200, "output_tokens": 30}
TOLD = [  # (output, tokens)
    (json.dumps({"type": "result", "result": "done", "usage": CLAUDE}), 1234),
    (json.dumps({"type": "assistant", "message": {"usage": CLAUDE}}), None),  # of which the result is the sum
    *[
        ("\n".join(["{}", json.dumps({"type": "turn.completed", "usage": usage}), '{"usage": {"inp']), 130)
        for usage in ({"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 30},)
    ],
    ("the usage of tokens is 12", None),
    ('{"usage": "none"}', None),
]


@pytest.mark.parametrize(("output", "tokens"), TOLD)
def test_the_tokens_that_an_agent_reports_are_counted(run, output, tokens):
    assert run(command=("printf", "%s", output))[0]["tokens"] == tokens


def test_the_tokens_of_a_transcript_are_counted_once():
    """Claude Code: 1 234 of a message on two lines and 30 of another; Codex: the last running total; Gemini: 40 + 2."""

    def codex(total):
        info = total and {"total_token_usage": {"input_tokens": total, "output_tokens": 5, "total_tokens": total + 5}}
        return {"type": "event_msg", "payload": {"type": "token_count", "info": info}}

    message = {"id": "m1", "usage": CLAUDE}
    other = {"message": {"id": "m2", "usage": {"input_tokens": 10, "output_tokens": 20}}, "isSidechain": True}
    assert tokens_recorded([{"message": message}, {"type": "user"}, {"message": message}, other]) == 1264
    assert tokens_recorded([codex(None), codex(100), codex(100), codex(400)]) == 405
    assert tokens_recorded([{"id": n, "type": "gemini", "tokens": {"total": n}} for n in (40, 2)]) == 42
    assert tokens_recorded([{"message": "none"}, {"payload": 3, "type": "event_msg"}, {"tokens": 7}]) is None


def test_a_typical_run_and_the_bill_are_told_apart():
    """With memory 18 runs take 6 tokens and two 600, without it 20 take 10: 9.5 of 10 typically, 65.4 on average."""
    kinds = [(True, 6)] * 18 + [(True, 600)] * 2 + [(False, 10)] * 20
    runs = [
        {"shown": shown, "tokens": tokens, "duration_s": 1.0, "holdout": 0.5, "exit_status": 0, "verdict": None}
        for shown, tokens in random.Random(0).sample(kinds, 40)
    ]
    said = next(line for line in run_records.comparison(runs) if "tokens: " in line)
    assert float(re.search(r"x ([\d.]+) with memory in a typical run", said)[1]) < 2
    assert said.endswith("; on average x 6.54")


def test_a_check_decides_and_a_share_that_is_none_is_refused(run):
    told, _ = run("--check", "exit 3")
    assert (told["verdict"]["label"], told["verdict"]["source"]) == ("failure", "check")
    told, _ = run("--check", "true", command=("false",), status=1)
    assert told["verdict"]["label"] == "success"
    told, _ = run("--check", "sleep 1.5", "--learn-timeout", "0.1")  # the check's time is its own
    assert told["verdict"]["label"] == "success"
    told, said = run("--check", "sleep 20", "--check-timeout", "0.5")
    assert told["verdict"] is None and "--check took longer than 0.5 s (--check-timeout)" in said
    for words, why in ((["--holdout", "1"], "give a share between"), (["--check", "x", "--judge", "llm"], "leave out")):
        with pytest.raises(UserError, match=why):
            options(["--bank", "b.sqlite", *words])
