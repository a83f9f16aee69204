"""The rows of Claude Flow's outline and its benchmark report, tried against ours (benchmarks.mcp_parity)."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml
from mcp_server.foreign_outline import TEMPLATE

from benchmarks.mcp_parity_kit import MODEL, ParityTable, serving
from core.memory.store.changes import RELATIONS
from mcp_server.config import load_config
from mcp_server.foreign_config import read_foreign
from scripts.command_line import REPO, command_of

RUN = "env=toy llm=scripted embedder=hashing limit=6".split()
# The outline's own numbers, in its layout.
VALUES = dict(
    zip(
        TEMPLATE,
        (3, 0.65, 0.15, 0.20, 0.10, 45, 0.87, "claude-sonnet-4.5", 0, 3, True, 20, 0.60, 180, 0.30, True, 6, 3),
        strict=True,
    )
)
STEPS = [{"step": 1, "role": "user", "content": "Log in"}, {"step": 2, "role": "assistant", "content": "order a token"}]


async def outline(table: ParityTable, folder: Path) -> None:
    """The outline and its benchmark report."""
    _template(table, folder)
    await _server(table, folder)
    _runs(table, folder)
    table.differs("table task_trajectories", "episodes.jsonl of a run; a server erases an attempt once it is learned")
    table.differs("table matts_runs", "no table: workflow, k and attempts stand in each record's provenance")
    table.differs(
        "tables events, performance_metrics", "the bank's journal; calls.jsonl and timings.jsonl of a run; /metrics"
    )
    table.differs("id = ulid", "a hash of the content, so that a run repeats to the byte")
    table.differs("source.agent_id", "the record's namespace; the view patterns has it under agent_id")
    table.differs("source.evidence", "steps that a lesson quotes (style=quote); null where a distiller does not say")
    table.differs("judge prompt, preamble: their wording", "own wording; prompts=FOLDER replaces it")
    table.differs("on a schedule", "by itself after 20 new lessons; else `python -m core.memory consolidate` from cron")
    table.differs("pairwise NLI", "the cross-encoder is downloaded at its first use; contradict=llm asks the model")
    table.differs(
        "hooks of npx claude-flow", "`reasoningbank hook retrieve` and `hook extract`, for the client's own hooks"
    )
    table.differs("a materialised view", "plain views: a query of 1 ms needs no copy that can grow stale")
    table.differs("demo-comparison", "experiment=scenarios; their success numbers come without data")
    table.differs(
        "connection 0.000 ms, configuration 0.000 ms", "10 and 110 ms, once a process; theirs are cached objects"
    )
    table.differs("usage increment 0.052 ms", "0.64 ms: on the disk, with its undo and its journal line")
    table.differs("all active 7.69 ms", "82 ms as whole records with vectors, 5.2 ms as ids and titles")
    table.absent("foreign keys", "a vector and a link outlive their record, so that a rollback brings all back")
    table.absent(
        "index on (type, confidence, created_at), on the domain", "searches read an index in memory, not columns"
    )


def _template(table: ParityTable, folder: Path) -> None:
    nested: dict[str, dict[str, Any]] = {}
    for key, value in VALUES.items():
        section, _, name = key.partition(".")
        nested.setdefault(section, {})[name] = value
    file = folder / "template.yaml"
    file.write_text(yaml.safe_dump({"reasoningbank": nested}))
    cfg = load_config(read_foreign(file))
    found, life = cfg.retrieval, cfg.memory.consolidate
    weights = [found[f"{name}_weight"] for name in ("similarity", "recency", "reliability", "diversity")]
    for text, ours, theirs in (
        ("k", found.top_k, 3),
        ("alpha, beta, gamma, delta", weights, [0.65, 0.15, 0.20, 0.10]),
        ("recency_half_life_days", found.age_scale_days, 45),
        ("duplicate_threshold", life.deduplicate.min_score, 0.87),
        ("judge.model", cfg.llm.model, "anthropic/claude-sonnet-4-5"),
        ("judge.temperature", cfg.roles.judge.temperature, 0),
        ("max_items_per_traj", cfg.distiller.max_items, 3),
        ("redact_pii", cfg.memory.hygiene.scrub, True),
        ("run_every_new_items", life.every, 20),
        ("contradiction_threshold", life.contradict.checker.min_score, 0.60),
        ("prune_age_days, min_confidence_keep", (life.prune.max_age_days, life.prune.min_confidence), (180, 0.30)),
    ):
        table.row(f"the template's `{text}`", ours == theirs, (ours, theirs))
    table.row("keep the highest score_i", life.deduplicate.keep == "score")
    sure = [life.confidence[name] for name in ("prior_success", "prior_failure", "gain", "loss", "half_life_days")]
    wanted = [0.7, 0.6, 0.05, 0.025, 90.0]
    table.row("confidence: 0.7, 0.6, +0.05, -0.025, half-life 90 days", sure == wanted, sure)
    table.row("only where cited", cfg.memory.uses == "cited")
    table.row("hard delete of unused, < 0.3, > 180 days", life.prune.delete_after_days == 0)
    table.row("3 to 8 numbered steps", cfg.distiller.style == "steps")
    aggregation = (cfg.contrast.labels, cfg.contrast.max_items, cfg.contrast.notes)
    table.row("aggregation: labels, 1 to 3 items, notes", aggregation == ("judge", 3, True), aggregation)
    table.row(
        "links entails, contradicts, refines, duplicate_of",
        {"entails", "contradicts", "refines", "duplicate_of"} <= {*RELATIONS},
    )


async def _server(table: ParityTable, folder: Path) -> None:
    bank = folder / "outline.sqlite"
    words = ("preset=outline", "memory/consolidate/contradict=llm", "memory.hygiene=null", *MODEL)
    env = {"REASONINGBANK_SETTINGS": "none", "REASONINGBANK_MEMORY__CONSOLIDATE__EVERY": "1"}
    async with serving("--bank", bank, "--embedder", "hashing-256", *words, env=env) as server:
        for number in (1, 2):
            steps = [*STEPS, {"step": 3, "role": "assistant", "content": f"attempt {number}, mail ann@example.org"}]
            await server.ask("extract_memory", trajectory=steps, query=f"Log in to shop {number}", async_mode=False)
        found = await server.ask("retrieve_memory", query="Log in to shop 1")
        table.row("judge, distil, retrieve over the server", found.get("memories"), found)
        status = await server.ask("bank_status")
        for _ in range(50):
            if status.get("records", {}).get("superseded"):
                break
            status = await server.ask("bank_status")
        table.row("variables override the settings (a round after 1 item)", status["records"].get("superseded"), status)
    with closing(sqlite3.connect(bank)) as db:
        [(data,)] = db.execute("SELECT pattern_data FROM patterns LIMIT 1")
        links = db.execute("SELECT weight, created_at FROM pattern_links WHERE relation = 'duplicate_of'").fetchall()
        sizes = db.execute("SELECT model, dims FROM pattern_embeddings").fetchall()
    keys = {"title", "description", "content", "source", "tags", "domain", "created_at", "confidence", "n_uses"}
    table.row("table patterns with pattern_data", keys <= json.loads(data).keys(), data)
    table.row("pattern_links.weight, created_at", links and links[0][0] > 0.87 and links[0][1], links)
    table.row("pattern_embeddings: model, dims", sizes and sizes[0] == ("hashing-256", 256), sizes)


def _runs(table: ParityTable, folder: Path) -> None:
    for arm, steps in (("outline", "k"), ("outline_sequential", "r")):
        done = _start("main.py", f"arm={arm}", *RUN, f"run_dir={folder / 'runs' / arm}")
        file = folder / "runs" / arm / "manifest.json"
        config = json.loads(file.read_text())["config"] if file.exists() else {}
        wanted = {"k": 6, "r": 3}[steps]
        table.row(f"`arm={arm}`: {steps}={wanted}", done.returncode == 0 and config.get(steps) == wanted, done.stderr)
    week = folder / "week.csv"
    done = _start(*command_of("scripts.export", folder / "runs", "--to", "csv", "--since", "7d", "-o", week)[1:])
    head = week.read_text().partition("\n")[0] if week.exists() else ""
    wanted = "success_rate mean_steps cost_usd_per_success wall_s_per_success lessons_per_100 shown_per_task".split()
    table.row("weekly CSV of the metrics of section 11", set(wanted) <= set(head.split(",")), done.stderr)


def _start(*words: Any) -> subprocess.CompletedProcess[str]:
    line = [command_of("x")[0], *map(str, words)]
    return subprocess.run(line, cwd=REPO, capture_output=True, text=True, timeout=170)
