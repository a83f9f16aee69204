"""The rows of the specification of the reproduction, tried in a run of it (benchmarks.mcp_parity)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.mcp_parity_kit import ParityTable
from core.types import Lesson, MemoryRecord
from envs.base import BaseEnv
from prompts import registry
from scripts.command_line import REPO

WORDS = "env=toy llm=scripted embedder=hashing limit=6 setting=train prompts.memory_block=plain_zh".split()
INTENTS = (
    "SYSTEM_INSTRUCTION_WITH_MEMORY JUDGE_PROMPT EXTRACT_SUCCESS_PROMPT EXTRACT_FAILURE_PROMPT "
    "MATTS_PARALLEL_CONTRAST_PROMPT MATTS_SEQUENTIAL_CHECK_PROMPT"
).split()


async def specification(table: ParityTable, folder: Path) -> None:
    """The specification, in Chinese."""
    for number, intent in enumerate(INTENTS, 1):
        table.row(f"prompt intent {number}: {intent}", hasattr(registry, intent))
    for method in "reset step get_ground_truth evaluate".split():
        table.row(f"BaseEnv.{method}", callable(getattr(BaseEnv, method, None)))
    for arm in ("no_memory", "reasoningbank", "matts_parallel_k5", "matts_sequential"):
        run_dir = folder / arm
        line = [sys.executable, "main.py", f"arm={arm}", *WORDS, f"run_dir={run_dir}"]
        done = subprocess.run(line, cwd=REPO, capture_output=True, text=True, timeout=170)
        table.row(f"the loop runs: {arm}", done.returncode == 0, done.stderr)
        if arm in ("reasoningbank", "matts_parallel_k5") and done.returncode == 0:
            _read(table, run_dir, arm)
    lesson = Lesson.__dataclass_fields__.keys()
    table.row("items: title, description, content", lesson == {"title", "description", "content"}, lesson)
    fields = {"id", "original_query", "query_embedding", "items", "source_trajectory_id", "score"}
    table.row("a memory's fields", fields <= MemoryRecord.__dataclass_fields__.keys())
    page = (REPO / "docs/coming_from.md").read_text()
    table.row(
        "a page maps it, in Chinese and English",
        all(word in page for word in (*INTENTS, "K=5", "相关过往经验", "setting=train")),
    )
    table.differs("id = uuid", "a hash of the content, so that a run repeats to the byte")
    table.differs("oracle judge first", "with setting=train, as here; by default a model judges, as in the paper")
    table.differs(
        "【相关过往经验】", "with prompts.memory_block=plain_zh, as here; by default the paper's English block"
    )
    table.differs("K=5", "with arm=matts_parallel_k5, as here; 3 by default")
    table.differs("data sets lie in single_turn_bench", "their licences: fetch_data brings them; env=warmup is there")
    table.differs("alfworld, scienceworld installed beforehand", "extras; make setup installs them")


def _read(table: ParityTable, run_dir: Path, arm: str) -> None:
    text = (run_dir / "episodes.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    if arm == "matts_parallel_k5":
        counts = {len(row["trajectories"]) for row in rows}
        table.row("parallel, K=5, one best answer", counts == {5}, counts)
        return
    table.row("oracle judge in training", {row["verdict"]["source"] for row in rows} == {"oracle"})
    steps = rows[0]["trajectories"][0]["steps"][0].keys()
    table.row(
        "steps: step_num, observation, thought, action, status", {"step_num", "thought", "status"} <= steps, steps
    )
    table.row("【相关过往经验】 in the system prompt", "【相关过往经验】" in text)
    table.row(
        "lessons from successes and failures",
        {record["outcome"] for row in rows for record in row["records"]} == {"success", "failure"},
    )
