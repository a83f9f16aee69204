"""The rows of the ReasoningBank MCP server 0.2.0, tried against ours (benchmarks.mcp_parity)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from benchmarks.mcp_parity_kit import (
    MODEL,
    OpenClient,
    ParityTable,
    connected,
    output_of,
    over_sse,
    serving,
    until_done,
)
from envs.mind2web.shots import examples
from mcp_server.config import load_config
from mcp_server.foreign_config import read_foreign
from scripts.command_line import REPO

HISTORY = "Find the earliest order date of the user on the shopping website"
STEPS = [
    {"step": 1, "role": "user", "content": "Find the earliest order"},
    {"step": 2, "role": "assistant", "content": "Click on order history", "metadata": {"tool": "click"}},
    {"step": 3, "role": "tool", "content": "Successfully found the order from 2020-01-15"},
]
# The layout and the numbers of the document's example file.
CONFIG = """\
llm: {provider: dashscope, dashscope: {api_key: "${DASHSCOPE_API_KEY}", chat_model: qwen-plus}}
embedding: {provider: dashscope, dashscope: {model: text-embedding-v3}}
retrieval:
  strategy: hybrid
  min_score_threshold: 0.85
  hybrid: {weights: {semantic: 0.6, confidence: 0.2, success: 0.15, recency: 0.05}}
memory_manager:
  enabled: true
  deduplication: {strategy: semantic, on_extraction: true, semantic: {threshold: 0.90, top_k_check: 5}}
  merge:
    strategy: llm
    auto_execute: true
    trigger: {min_similar_count: 3, similarity_threshold: 0.85}
    llm: {temperature: 0.7}
    original_handling: archive
"""


async def reasoningbank(table: ParityTable, folder: Path) -> None:
    """The document of the ReasoningBank MCP server."""
    bank = folder / "rows.sqlite"
    async with serving("--bank", bank, "preset=reasoningbank_mcp", *MODEL) as server:
        await _their_tools(table, server)
        await _their_memory(table, server)
        await _their_agents(table, server)
    async with serving("--bank", bank, "preset=reasoningbank_mcp", *MODEL) as server:
        found = await server.ask("retrieve_memory", query=HISTORY, top_k=3)
        owners = {memory["agent_id"] for memory in found.get("memories", [])}
        table.row(
            "without agent_id all memories are retrieved (`server.anonymous=all`, which the preset sets)",
            "claude-code" in owners,
            str(found)[:300],
        )
    async with serving("--bank", folder / "paper.sqlite", "preset=paper_faithful", *MODEL) as server:
        kept = await server.ask("extract_memory", trajectory=STEPS, query=HISTORY)
        table.row("`paper_faithful`: extract_memory is synchronous", kept.get("async_mode") is False, str(kept)[:200])
        status = await server.ask("bank_status")
        table.row("`paper_faithful`: cosine, no memory manager", status.get("retrieval") == "cosine", str(status)[:300])
    await _their_start(table, folder)
    _their_settings(table, folder)
    _their_papers(table)


async def _their_tools(table: ParityTable, server: OpenClient) -> None:
    table.row(
        "`retrieve_memory`: query required; top_k, agent_id", server.takes("retrieve_memory", "query", "top_k agent_id")
    )
    table.row(
        "`extract_memory`: trajectory, query required; success_signal, async_mode, agent_id",
        server.takes("extract_memory", "trajectory query", "success_signal async_mode agent_id"),
    )
    steps = json.dumps(server.tools["extract_memory"])
    table.row(
        "a step has step, role, content and metadata",
        all(f'"{name}"' in steps for name in ("step", "role", "content", "metadata")),
    )
    kept = await server.ask("extract_memory", trajectory=STEPS, query=HISTORY, agent_id="claude-code", async_mode=True)
    table.row(
        "async answer: status processing, message, task_id, async_mode true",
        kept.get("status") == "processing"
        and kept.get("message")
        and kept.get("task_id")
        and kept.get("async_mode") is True,
        str(kept)[:300],
    )
    done = await until_done(server, kept.get("task_id", ""), agent_id="claude-code")
    table.row("the background task ends, and its lesson is there", done.get("status") == "completed", str(done)[:300])
    other = [*STEPS, {"step": 4, "role": "assistant", "content": "The failing test shows it."}]
    kept = await server.ask(
        "extract_memory",
        trajectory=other[3:],
        query="Mend the failing test of the parser",
        success_signal=False,
        async_mode=False,
        agent_id="claude-code",
    )
    table.row(
        "sync answer: status success, message, memory_id, agent_id",
        kept.get("status") == "success"
        and kept.get("message")
        and kept.get("memory_id")
        and kept.get("agent_id") == "claude-code",
        str(kept)[:300],
    )
    detail = await server.ask("get_detail", memory_id=kept.get("memory_id", ""), agent_id="claude-code")
    table.row(
        "success_signal=false stores a failure; null is judged", "failure" in detail.get("text", ""), str(detail)[:300]
    )


async def _their_memory(table: ParityTable, server: OpenClient) -> None:
    found = await server.ask("retrieve_memory", query=HISTORY, top_k=1, agent_id="claude-code")
    memory = (found.get("memories") or [{}])[0]
    table.row(
        "retrieve answer: status success, min_score_threshold 0.85, filtered_count, memories, formatted_prompt",
        found.get("status") == "success"
        and found.get("min_score_threshold") == 0.85
        and {"filtered_count", "memories", "formatted_prompt"} <= set(found),
        str(found)[:300],
    )
    table.row(
        "a memory has memory_id, score, title, content, success, agent_id (and similarity)",
        {"memory_id", "score", "title", "content", "success", "agent_id", "similarity"} <= set(memory),
        str(memory)[:300],
    )
    table.row("score is within 0 and 1", 0 <= memory.get("score", -1) <= 1, str(memory.get("score")))
    default = await server.ask("retrieve_memory", query=HISTORY, agent_id="claude-code")
    table.row("top_k is 1 by default", len(default.get("memories", [])) == 1, str(default)[:300])
    prompt = found.get("formatted_prompt", "")
    table.row(
        "`formatted_prompt` opens with the document's sentence",
        prompt.startswith("Here are some memory items I have accumulated from past interactions with the environment"),
        prompt[:120],
    )
    table.row(
        "each memory is marked: Memory 1 [✓ Successful Experience] - TITLE",
        f"Memory 1 [✓ Successful Experience] - {memory.get('title')}" in prompt,
        prompt[:300],
    )
    found = await server.ask(
        "retrieve_memory", query="How long do I boil an egg for a picnic?", top_k=2, agent_id="claude-code"
    )
    table.row(
        "below the threshold nothing is returned, and filtered_count says how many",
        not found.get("memories") and found.get("filtered_count", 0) >= 2,
        str(found)[:300],
    )


async def _their_agents(table: ParityTable, server: OpenClient) -> None:
    found = await server.ask("retrieve_memory", query=HISTORY, agent_id="code-reviewer")
    table.row("memories of another agent_id are not seen", found.get("memories") == [], str(found)[:200])
    for number in (1, 2, 3):
        await server.ask(
            "save_lesson",
            query=f"Sort the export by its date, file {'abc'[number - 1]}",
            agent_id="java-developer",
            title=["Sort before export", "Order rows first", "Sorting comes before export"][number - 1],
            content="Sort the rows by date before they are written, the reader expects that order.",
        )
    status: dict[str, Any] = {}
    for _ in range(100):
        status = await server.ask("bank_status", agent_id="java-developer")
        if status.get("records", {}).get("active", 9) <= 1:
            break
        await asyncio.sleep(0.2)
    table.row(
        "duplicates are skipped or merged as soon as they arrive, in the background, within one agent_id",
        status.get("records", {}).get("active") == 1,
        str(status.get("records")),
    )
    table.row(
        "originals are archived and traceable", sum(status.get("records", {}).values()) >= 3, str(status.get("records"))
    )
    status = await server.ask("bank_status", agent_id="claude-code")
    table.row(
        "another agent's memories are untouched by it",
        status.get("records", {}).get("active") == 2,
        str(status.get("records")),
    )


async def _their_start(table: ParityTable, folder: Path) -> None:
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    async with serving(env=home) as server:
        status = await server.ask("bank_status")
        table.row(
            "a start without arguments serves a bank over stdio, in the platform's data folder",
            str(folder / "data") in str(status.get("bank")),
            str(status)[:300],
        )
    with over_sse(folder / "sse.sqlite") as (url, errors):
        async with connected(url) as server:
            table.row("`--transport sse --host --port` serves /sse", "retrieve_memory" in server.tools, errors())
    usage = " ".join(output_of("--help").split())
    table.row("port 8000 and host 127.0.0.1 by default", "(8000)" in usage and "(127.0.0.1)" in usage, usage[:600])
    table.row("`reasoning-bank-mcp` is a command", "reasoning-bank-mcp" in (REPO / "pyproject.toml").read_text())
    open_to_all = output_of("--bank", folder / "o.sqlite", "--transport", "sse", "--host", "0.0.0.0", "--port", "8080")
    table.differs("`--host 0.0.0.0` serves everybody", f"refused without a token: {open_to_all.strip()[-160:]}")


def _their_settings(table: ParityTable, folder: Path) -> None:
    file = folder / "config.yaml"
    file.write_text(CONFIG)
    cfg = configured(file)
    retrieval, life = cfg.retrieval, cfg.memory.consolidate
    table.row("`--config`: provider dashscope, chat_model", "qwen-plus" in str(cfg.llm), str(cfg.llm))
    table.row("`--config`: embedding text-embedding-v3", "text-embedding-v3" in str(cfg.embedder), str(cfg.embedder))
    weights = [retrieval.get(f"{name}_weight") for name in ("semantic", "confidence", "success", "recency")]
    table.row("`--config`: hybrid with its weights", weights == [0.6, 0.2, 0.15, 0.05], str(retrieval))
    table.row(
        "`--config`: threshold 0.85 on the score",
        (retrieval.min_score, retrieval.get("threshold_on")) == (0.85, "score"),
        str(retrieval),
    )
    deduplicate, merge = life.deduplicate, life.merge
    table.row(
        "`--config`: semantic deduplication from 0.90, on extraction, 5 candidates",
        (deduplicate.min_score, deduplicate.on_add, life.candidates) == (0.9, True, 5),
        str(deduplicate),
    )
    table.row(
        "`--config`: a merge of 3 from 0.85 by a model at temperature 0.7",
        (merge.least, merge.min_score, merge.author.get("temperature")) == (3, 0.85, 0.7),
        str(merge),
    )
    for threshold in (0.9, 0.85, 0.75):
        file.write_text(CONFIG.replace("min_score_threshold: 0.85", f"min_score_threshold: {threshold}"))
        found = configured(file).retrieval.min_score
        table.row(f"`--config`: min_score_threshold {threshold}", found == threshold, str(found))
    for name in ("openai", "anthropic"):
        text = CONFIG.replace("dashscope, dashscope: {api_key", f"{name}, {name}: {{api_key", 1).replace(
            "DASHSCOPE", name.upper()
        )
        file.write_text(text.replace("qwen-plus", "a-model"))
        table.row(f"`--config`: provider {name}", "a-model" in str(configured(file).llm))
    file.write_text("mode: {preset: paper_faithful}\n")
    cfg = configured(file)
    table.row(
        "`--config`: mode.preset paper_faithful",
        cfg.preset == "paper_faithful" and cfg.memory.consolidate is None,
        str(cfg.preset),
    )
    file.write_text(CONFIG.replace("strategy: llm", "strategy: voting"))
    table.row("`--config`: merge by voting", "Voting" in str(configured(file).memory.consolidate.merge))
    file.write_text(CONFIG.replace("strategy: hybrid", "strategy: cosine"))
    table.row("`--config`: retrieval cosine", "cosine" in str(configured(file).retrieval).lower())


def _their_papers(table: ParityTable) -> None:
    for file, what in (
        ("docs/paper_faithful.md", "a page on evaluating faithfully"),
        ("docs/matts_playbook.md", "a MaTTS playbook, parallel and sequential"),
        ("LICENSE", "a free licence"),
    ):
        table.row(f"{what} ({file})", (REPO / file).is_file())
    table.differs(
        "saves 50 to 80 % of the space",
        "measured, not promised: `python -m benchmarks.bank_space`, docs/reference/consolidation.md",
    )
    table.differs(
        "data lies in memories.json, archived_memories.json, embeddings.json",
        "one SQLite file; theirs are read and written by `python -m core.memory import|export --format mcp`",
    )
    table.differs("`python3 -m src.server`", "`python -m mcp_server` or `reasoning-bank-mcp`, with the same options")
    options = output_of("--help", module="scripts.eval_mind2web")
    wanted = ("--config", "--data-root", "--split", "--scores-pickle", "--top-k", "--output-dir", "--prompt-template")
    table.row("`scripts/eval_mind2web.py` takes its seven options", all(word in options for word in wanted), options)
    table.differs("its `--config config.yaml`", "refused with a sentence: the model is said by words of main.py")
    table.row("Mind2Web: three examples in the prompt (`env.shots=3`)", examples(3, "choices").count("Reply: ") == 3)
    table.differs("`black src/`", "`make lint` (ruff)")


def configured(file: Path) -> Any:
    """The server's configuration with --config FILE."""
    return load_config(read_foreign(file))
