"""The rows of Claude Flow's memory around an agent, tried against `reasoningbank run` (benchmarks.mcp_parity)."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.mcp_parity_kit import MODEL, ParityTable
from core.memory.policies.four_factor import FourFactor
from core.types import Lesson, MemoryRecord
from mcp_server.config import load_config
from scripts.command_line import REPO, command_of

TASK = "Build REST API"
SAYS = "print('The API is up.'); print(); print('Use express.Router() for modularity.')"
Run = Callable[..., tuple[dict[str, Any], str, str]]  # (result object, stdout, stderr) of a run


async def flow(table: ParityTable, folder: Path) -> None:
    """The document of Claude Flow's architecture."""
    bank = folder / "bank.sqlite"

    def run(*words: str, code: str = SAYS, env: dict[str, str] | None = None, at: Path = bank) -> Any:
        result = folder / "result.json"
        given = ("--bank", at, "--embedder", "hashing-256", "--result", result, "--task", TASK, *words)
        line = command_of("mcp_server", "run", *given, "--", sys.executable, "-c", code)
        env = os.environ | {"REASONINGBANK_SETTINGS": "none"} | (env or {})
        done = subprocess.run(line, cwd=REPO, env=env, capture_output=True, text=True, timeout=120)
        found = json.loads(result.read_text()) if result.exists() else {}
        return {**found, "status": done.returncode}, done.stdout, done.stderr

    _flags_and_result(table, run)
    _settings(table, run, folder)
    _what_is_kept(table, run, bank)
    _scores(table)
    _failures(table, run, folder)
    table.differs("`agent run CODER`", "`reasoningbank run -- COMMAND`: any command, no agents of its own")
    table.differs("`reasoningbank init`", "no command: the bank is made at its first use")
    table.differs(
        "the prompt's wording", "numbered lessons as a marked block of data before `Task:`, so that they give no orders"
    )
    table.differs("verdict confidence 0.7", "the heuristic states its own probability")
    table.differs(
        "a counter of tasks starts consolidation", "it counts new lessons: a task that taught nothing adds no work"
    )
    table.differs(
        "detects contradictions",
        "asks a model or a cross-encoder: memory=contradict_llm, contradict_nli, preset=outline",
    )
    table.differs(
        "default minConfidence 0.5", "none: a lesson from a failure begins at 0.6 times the judge's confidence"
    )
    table.differs(
        "connection 1 ms, consolidation 5-10 ms", "10 and 287 ms (benchmarks.bench_memory): durable, with undo"
    )
    table.differs("overhead < 5 ms a task", "a process is started: 0.65 s, with MiniLM 2.1 s; a server takes 3 ms")
    table.differs("1, 10, 100 MB", "5.5, 54, 539 MB with the journal, a second copy")


def _flags_and_result(table: ParityTable, run: Run) -> None:
    first, out, err = run("--enable-memory", "--memory-domain", "api", "--closing-words", "--memory-k", "5")
    table.row("`--enable-memory`, `--memory-k`, `--memory-domain`", first["status"] == 0, err)
    table.row("the command's output passes through", "express.Router()" in out, out)
    table.row("a new memory is stored and named", "memory: learned:" in err and len(first["learned"]) == 1, err)
    run("--memory-domain", "api", "--closing-words")
    other, _, _ = run("--memory-domain", "web")
    table.row("domain filtering", not other["retrieved"], other)
    echo = "import os; print(os.environ['REASONINGBANK_MEMORY'])"
    third, out, err = run("--memory-domain", "api", "--memory-k", "1", code=echo)
    table.row("`--memory-k 1` retrieves one", len(third["retrieved"]) == 1, third)
    table.row("memories are in the command's reach", "express.Router()" in out, out)
    table.row("each with title and confidence on the terminal", "memory: [1]" in err and "confidence 0." in err, err)
    again, _, err = run("--memory-domain", "api")
    table.row("'46% faster than average'", "the mean of 3 earlier runs" in err and again["mean_duration_s"] > 0, err)
    for theirs, ours in (
        ("success", again["success"] is True),
        ("output", "express" in again["output"]),
        ("duration", again["duration_s"] >= 0),
        ("memoryEnabled", again["memory_enabled"] is True),
        ("memoriesRetrieved", again["memories_retrieved"] == len(again["retrieved"]) > 0),
        ("memoriesUsed: ids of all retrieved", all(isinstance(id, str) for id in again["retrieved"])),
        ("memoryLearned", first["memories_learned"] == 1),
        ("newMemoryIds", first["new_memories"][0]["id"] == first["learned"][0]),
        ("memoryVerdict", again["verdict"]["label"] == "success"),
        ("memoryConfidence", 0.5 <= again["confidence"] <= 1),
    ):
        table.row(f"result.{theirs}", ours, again)
    judged, _, _ = run("--judge", "exit-code", code="raise SystemExit(1)")
    table.row("the command's success is the verdict (`--judge exit-code`)", judged["success"] is False, judged)
    learned, _, err = run(*MODEL, "--judge", "llm")
    table.row("an LLM judges and extracts", learned["learned"] and learned["verdict"]["source"] == "llm", err)


def _settings(table: ParityTable, run: Run, folder: Path) -> None:
    file = folder / "settings.json"
    section = {"enabled": False, "retrievalK": 2, "domains": ["api"]}
    file.write_text(json.dumps({"claude-flow": {"execution": {"reasoningbank": section}}}))
    env = {"REASONINGBANK_SETTINGS": str(file)}
    off, _, _ = run(env=env)
    table.row("`~/.claude/settings.json` is read; enabled: false", off["memory_enabled"] is False, off)
    on, _, err = run("--enable-memory", env=env)
    table.row("flags win over settings", on["memory_enabled"] is True, err)
    cfg = load_config([])
    life = cfg.memory.consolidate
    table.row(
        "consolidation every 20: deduplicates, prunes", life.every == 20 and life.deduplicate and life.prune, life
    )
    table.row("PII scrubbing before it is stored", cfg.memory.hygiene.scrub is True)


def _what_is_kept(table: ParityTable, run: Run, bank: Path) -> None:
    run("run.attempts=5", code="print('mail ann@example.org')")
    with closing(sqlite3.connect(f"{bank}.runs.sqlite")) as db:
        [(attempts,)] = db.execute("SELECT count(*) FROM attempts")
        [(runs,)] = db.execute("SELECT count(*) FROM runs")
    table.row("a table of trajectories (`run.attempts`)", attempts == 1, attempts)
    table.row("a table of metrics (`reasoningbank runs`)", runs >= 6, runs)
    with closing(sqlite3.connect(bank)) as db:
        rows = db.execute("SELECT usage_count FROM patterns JOIN pattern_embeddings USING (namespace, id)").fetchall()
    table.row("tables patterns, embeddings; usage is counted", max(rows, default=(0,))[0] > 0, rows)


def _scores(table: ParityTable) -> None:
    """The document's worked example: similarity 0.87, 10 days, confidence 0.8, 25 uses."""
    policy = FourFactor(age_scale_days=30, reliability="confidence_usage")
    made = datetime.now(UTC) - timedelta(days=10)
    record = MemoryRecord(
        id="m1",
        original_query="q",
        items=(Lesson(title="t", description="d", content="c"),),
        source_trajectory_id="",
        score=1.0,
        outcome="success",
        label_source="llm",
        task_id="t",
        confidence=0.8,
        n_used=25,
        created_at=made.isoformat(),
    )
    score = policy.score(record, 0.87, 10) - policy.diversity_weight * 0.10
    table.row("4-factor score of the example: 0.864", abs(score - 0.864) < 0.005, score)


def _failures(table: ParityTable, run: Run, folder: Path) -> None:
    lost = folder / "none" / "bank.sqlite"
    lost.parent.write_text("a file where a folder should be")
    found, out, err = run(at=lost)
    table.row("no database can be made: the task runs", found["status"] == 0 and "The API is up." in out, err)
    torn = folder / "torn.sqlite"
    torn.write_bytes(os.urandom(5000))
    found, _, err = run("--closing-words", at=torn)
    table.row("corrupt: backed up and recreated", found["learned"] and list(folder.glob("torn.sqlite.corrupt-*")), err)
    env = {"GEMINI_API_KEY": ""}
    found, out, err = run("llm=gemini", "--judge", "heuristic", "--closing-words", env=env)
    table.row("no API key: judged by the heuristic, learning works", found["learned"] and "API" in out, err)
