"""The rows of the two servers that this one replaces, each tried against it: does it hold, and if not, why.

    python -m scripts.bench.mcp_rows [--only reasoningbank|insight] [--faults]

Starts real servers over stdio and SSE, makes the calls that the documents of the ReasoningBank MCP server (0.2.0) and
of the insight memory server (mcp-learning-memory 0.2.1) describe, and prints a table in Markdown: + where a row holds,
the reason where it does not. The model is a scripted one, the embedder MiniLM. Exit status 1 if a row fails that has
no reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.command_line import REPO, parser, plain_errors

MODEL = ("llm=scripted", "llm.script.path=scripts.bench.mcp_rows.answer")
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


def answer(messages: list[dict[str, str]], role: str, sample: int) -> str:
    """The scripted model: a judge that reads the last line, a distiller with one lesson, a merger with another."""
    text = messages[-1]["content"]
    if role == "judge":
        return 'Thoughts: the order was found.\nStatus: "success"'
    about = "the whole order history" if "order" in text else "the failing test alone"
    return (
        f"```\n# Memory Item 1\n## Title Complete historical query: {about}\n## Description Look at {about}.\n"
        f"## Content Do not stop at recent entries: open {about} and sort it by date.\n```"
    )


@dataclass
class Rows:
    """What was found about each row of a document."""

    document: str
    found: list[tuple[str, bool, str]] = field(default_factory=list)

    def row(self, text: str, holds: Any, why: str = "") -> None:
        """A row that must hold; why: what was seen, shown where it does not."""
        self.found.append((text, bool(holds), "" if holds else f"FAULT {why}".strip()))

    def differs(self, text: str, why: str) -> None:
        """A row that does not hold, and why that is meant so."""
        self.found.append((text, False, why))

    def table(self, faults: bool) -> str:
        """The rows in Markdown; faults: only those that fail without a reason."""
        shown = [each for each in self.found if not faults or each[2].startswith("FAULT")]
        held = sum(holds for _, holds, _ in self.found)
        lines = [f"| {text} | {'+' if holds else note} |" for text, holds, note in shown]
        return "\n".join(
            (f"**{self.document}**: {held} of {len(self.found)} rows hold", "", "| row | |", "|---|---|", *lines)
        )

    @property
    def faults(self) -> int:
        return sum(note.startswith("FAULT") for _, _, note in self.found)


@dataclass
class OpenClient:
    """An open client; `tools` are {name: input schema}."""

    client: Any
    tools: dict[str, dict[str, Any]]

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A tool's structured answer, its text under "text"; {"error": sentence} for an error."""
        result = await self.client.call_tool(tool, arguments)
        text = result.content[0].text if result.content else ""
        if result.is_error:
            return {"error": text}
        return {"text": text, **(result.structured_content or {})}

    def takes(self, tool: str, required: str, optional: str) -> bool:
        """Whether the tool has just these arguments required, and these optional among others."""
        schema = self.tools.get(tool) or {"properties": {}}
        return sorted(schema.get("required", ())) == sorted(required.split()) and not (
            {*required.split(), *optional.split()} - {*schema["properties"]}
        )


async def reasoningbank(rows: Rows, folder: Path) -> None:
    """The document of the ReasoningBank MCP server."""
    bank = folder / "rows.sqlite"
    async with serving("--bank", bank, "preset=reasoningbank_mcp", *MODEL) as server:
        await _their_tools(rows, server)
        await _their_memory(rows, server)
        await _their_agents(rows, server)
    async with serving("--bank", bank, "preset=reasoningbank_mcp", "server.anonymous=all", *MODEL) as server:
        found = await server.ask("retrieve_memory", query=HISTORY, top_k=3)
        owners = {memory["agent_id"] for memory in found.get("memories", [])}
        rows.row(
            "without agent_id all memories are retrieved (`server.anonymous=all`; off by default: isolation)",
            "claude-code" in owners,
            str(found)[:300],
        )
    async with serving("--bank", folder / "paper.sqlite", "preset=paper_faithful", *MODEL) as server:
        kept = await server.ask("extract_memory", trajectory=STEPS, query=HISTORY)
        rows.row("`paper_faithful`: extract_memory is synchronous", kept.get("async_mode") is False, str(kept)[:200])
        status = await server.ask("bank_status")
        rows.row("`paper_faithful`: cosine, no memory manager", status.get("retrieval") == "cosine", str(status)[:300])
    await _their_start(rows, folder)
    _their_settings(rows, folder)
    _their_papers(rows)


async def _their_tools(rows: Rows, server: OpenClient) -> None:
    rows.row(
        "`retrieve_memory`: query required; top_k, agent_id", server.takes("retrieve_memory", "query", "top_k agent_id")
    )
    rows.row(
        "`extract_memory`: trajectory, query required; success_signal, async_mode, agent_id",
        server.takes("extract_memory", "trajectory query", "success_signal async_mode agent_id"),
    )
    steps = json.dumps(server.tools["extract_memory"])
    rows.row(
        "a step has step, role, content and metadata",
        all(f'"{name}"' in steps for name in ("step", "role", "content", "metadata")),
    )
    kept = await server.ask("extract_memory", trajectory=STEPS, query=HISTORY, agent_id="claude-code", async_mode=True)
    rows.row(
        "async answer: status processing, message, task_id, async_mode true",
        kept.get("status") == "processing"
        and kept.get("message")
        and kept.get("task_id")
        and kept.get("async_mode") is True,
        str(kept)[:300],
    )
    done = await until_done(server, kept.get("task_id", ""), agent_id="claude-code")
    rows.row("the background task ends, and its lesson is there", done.get("status") == "completed", str(done)[:300])
    other = [*STEPS, {"step": 4, "role": "assistant", "content": "The failing test shows it."}]
    kept = await server.ask(
        "extract_memory",
        trajectory=other[3:],
        query="Mend the failing test of the parser",
        success_signal=False,
        async_mode=False,
        agent_id="claude-code",
    )
    rows.row(
        "sync answer: status success, message, memory_id, agent_id",
        kept.get("status") == "success"
        and kept.get("message")
        and kept.get("memory_id")
        and kept.get("agent_id") == "claude-code",
        str(kept)[:300],
    )
    detail = await server.ask("get_detail", memory_id=kept.get("memory_id", ""), agent_id="claude-code")
    rows.row(
        "success_signal=false stores a failure; null is judged", "failure" in detail.get("text", ""), str(detail)[:300]
    )


async def _their_memory(rows: Rows, server: OpenClient) -> None:
    found = await server.ask("retrieve_memory", query=HISTORY, top_k=1, agent_id="claude-code")
    memory = (found.get("memories") or [{}])[0]
    rows.row(
        "retrieve answer: status success, min_score_threshold 0.85, filtered_count, memories, formatted_prompt",
        found.get("status") == "success"
        and found.get("min_score_threshold") == 0.85
        and {"filtered_count", "memories", "formatted_prompt"} <= set(found),
        str(found)[:300],
    )
    rows.row(
        "a memory has memory_id, score, title, content, success, agent_id (and similarity)",
        {"memory_id", "score", "title", "content", "success", "agent_id", "similarity"} <= set(memory),
        str(memory)[:300],
    )
    rows.row("score is within 0 and 1", 0 <= memory.get("score", -1) <= 1, str(memory.get("score")))
    default = await server.ask("retrieve_memory", query=HISTORY, agent_id="claude-code")
    rows.row("top_k is 1 by default", len(default.get("memories", [])) == 1, str(default)[:300])
    prompt = found.get("formatted_prompt", "")
    rows.row(
        "`formatted_prompt` opens with the document's sentence",
        prompt.startswith("Here are some memory items I have accumulated from past interactions with the environment"),
        prompt[:120],
    )
    rows.row(
        "each memory is marked: Memory 1 [✓ Successful Experience] - TITLE",
        f"Memory 1 [✓ Successful Experience] - {memory.get('title')}" in prompt,
        prompt[:300],
    )
    found = await server.ask(
        "retrieve_memory", query="How long do I boil an egg for a picnic?", top_k=2, agent_id="claude-code"
    )
    rows.row(
        "below the threshold nothing is returned, and filtered_count says how many",
        not found.get("memories") and found.get("filtered_count", 0) >= 2,
        str(found)[:300],
    )


async def _their_agents(rows: Rows, server: OpenClient) -> None:
    found = await server.ask("retrieve_memory", query=HISTORY, agent_id="code-reviewer")
    rows.row("memories of another agent_id are not seen", found.get("memories") == [], str(found)[:200])
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
    rows.row(
        "duplicates are skipped or merged as soon as they arrive, in the background, within one agent_id",
        status.get("records", {}).get("active") == 1,
        str(status.get("records")),
    )
    rows.row(
        "originals are archived and traceable", sum(status.get("records", {}).values()) >= 3, str(status.get("records"))
    )
    status = await server.ask("bank_status", agent_id="claude-code")
    rows.row(
        "another agent's memories are untouched by it",
        status.get("records", {}).get("active") == 2,
        str(status.get("records")),
    )


async def _their_start(rows: Rows, folder: Path) -> None:
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    async with serving(env=home) as server:
        status = await server.ask("bank_status")
        rows.row(
            "a start without arguments serves a bank over stdio, in the platform's data folder",
            str(folder / "data") in str(status.get("bank")),
            str(status)[:300],
        )
    with over_sse(folder / "sse.sqlite") as (url, errors):
        async with connected(url) as server:
            rows.row("`--transport sse --host --port` serves /sse", "retrieve_memory" in server.tools, errors())
    usage = " ".join(said("--help").split())
    rows.row("port 8000 and host 127.0.0.1 by default", "(8000)" in usage and "(127.0.0.1)" in usage, usage[:600])
    rows.row("`reasoning-bank-mcp` is a command", "reasoning-bank-mcp" in (REPO / "pyproject.toml").read_text())
    open_to_all = said("--bank", folder / "o.sqlite", "--transport", "sse", "--host", "0.0.0.0", "--port", "8080")
    rows.differs("`--host 0.0.0.0` serves everybody", f"refused without a token: {open_to_all.strip()[-160:]}")


def _their_settings(rows: Rows, folder: Path) -> None:
    from mcp_server.foreign_config import read_foreign as overrides_of

    file = folder / "config.yaml"
    file.write_text(CONFIG)
    cfg = configured(*overrides_of(file))
    retrieval, life = cfg.retrieval, cfg.memory.consolidate
    rows.row("`--config`: provider dashscope, chat_model", "qwen-plus" in str(cfg.llm), str(cfg.llm))
    rows.row("`--config`: embedding text-embedding-v3", "text-embedding-v3" in str(cfg.embedder), str(cfg.embedder))
    weights = [retrieval.get(f"{name}_weight") for name in ("semantic", "confidence", "success", "recency")]
    rows.row("`--config`: hybrid with its weights", weights == [0.6, 0.2, 0.15, 0.05], str(retrieval))
    rows.row(
        "`--config`: threshold 0.85 on the score",
        (retrieval.min_score, retrieval.get("threshold_on")) == (0.85, "score"),
        str(retrieval),
    )
    deduplicate, merge = life.deduplicate, life.merge
    rows.row(
        "`--config`: semantic deduplication from 0.90, on extraction, 5 candidates",
        (deduplicate.min_score, deduplicate.on_add, life.candidates) == (0.9, True, 5),
        str(deduplicate),
    )
    rows.row(
        "`--config`: a merge of 3 from 0.85 by a model at temperature 0.7",
        (merge.least, merge.min_score, merge.author.get("temperature")) == (3, 0.85, 0.7),
        str(merge),
    )
    for threshold in (0.9, 0.85, 0.75):
        file.write_text(CONFIG.replace("min_score_threshold: 0.85", f"min_score_threshold: {threshold}"))
        found = configured(*overrides_of(file)).retrieval.min_score
        rows.row(f"`--config`: min_score_threshold {threshold}", found == threshold, str(found))
    for name in ("openai", "anthropic"):
        text = CONFIG.replace("dashscope, dashscope: {api_key", f"{name}, {name}: {{api_key", 1).replace(
            "DASHSCOPE", name.upper()
        )
        file.write_text(text.replace("qwen-plus", "a-model"))
        rows.row(f"`--config`: provider {name}", "a-model" in str(configured(*overrides_of(file)).llm))
    file.write_text("mode: {preset: paper_faithful}\n")
    cfg = configured(*overrides_of(file))
    rows.row(
        "`--config`: mode.preset paper_faithful",
        cfg.preset == "paper_faithful" and cfg.memory.consolidate is None,
        str(cfg.preset),
    )
    file.write_text(CONFIG.replace("strategy: llm", "strategy: voting"))
    rows.row("`--config`: merge by voting", "Voting" in str(configured(*overrides_of(file)).memory.consolidate.merge))
    file.write_text(CONFIG.replace("strategy: hybrid", "strategy: cosine"))
    rows.row("`--config`: retrieval cosine", "cosine" in str(configured(*overrides_of(file)).retrieval).lower())


def _their_papers(rows: Rows) -> None:
    for file, what in (
        ("docs/paper_faithful.md", "a page on evaluating faithfully"),
        ("docs/matts_playbook.md", "a MaTTS playbook, parallel and sequential"),
        ("LICENSE", "a free licence"),
    ):
        rows.row(f"{what} ({file})", (REPO / file).is_file())
    rows.differs(
        "saves 50 to 80 % of the space", "measured, not promised: `python -m scripts.bench.bank_space`, docs/memory.md"
    )
    rows.differs(
        "data lies in memories.json, archived_memories.json, embeddings.json",
        "one SQLite file; theirs are read and written by `python -m core.memory import|export --format mcp`",
    )
    rows.differs("`python3 -m src.server`", "`python -m mcp_server` or `reasoning-bank-mcp`, with the same options")
    rows.differs("`src/mind2web`, `scripts/eval_mind2web.py`", "not here: benchmarks are environments of `main.py`")
    rows.differs("`black src/`", "`make lint` (ruff)")


async def insight(rows: Rows, folder: Path) -> None:
    """The document of the insight memory server."""
    async with serving("--bank", folder / "insight.sqlite", "--tools", "ace") as server:
        await _insight_tools(rows, server)
        await _insight_life(rows, server)
        await _insight_search(rows, server)
        await _insight_export(rows, server, folder)
    async with serving("--bank", folder / "insight.sqlite", "--tools", "ace") as server:
        listed = await server.ask("list_index")
        rows.row("what is stored survives a restart", len(listed.get("insights", [])) >= 2, str(listed)[:200])
    rows.differs(
        "data lies in ~/.local/share/ace-flash-memory/memory.json",
        "one SQLite file; theirs is read and written by `python -m core.memory import|export --format insight_memory`",
    )
    bank = folder / "insight.sqlite"
    bank.write_bytes(b"nothing that SQLite could read " * 200)
    async with serving("--bank", bank, "--tools", "ace") as server:
        listed = await server.ask("list_index")
        rows.row(
            "a corrupted file is set aside with its time, and the system goes on (with what its journal holds)",
            len(listed.get("insights", [])) >= 2 and list(folder.glob("insight.sqlite.corrupt-*")),
            str(listed)[:300],
        )
    rows.differs("`node dist/index.js`", "`reasoning-bank-mcp --tools ace`")


async def _insight_tools(rows: Rows, server: OpenClient) -> None:
    for tool, required, optional in (
        ("add_insight", "title tags content", "overwrite sourceUrl"),
        ("list_index", "", "tags minHelpful sortBy limit"),
        ("get_detail", "id", ""),
        ("mark_helpful", "id", ""),
        ("mark_harmful", "id", ""),
        ("search_insights", "query", "limit"),
        ("delete_insight", "id", ""),
        ("export_memory", "", "format"),
    ):
        arguments = f"{required or 'nothing'} required" + (f"; {optional}" if optional else "")
        rows.row(f"`{tool}`: {arguments}", server.takes(tool, required, optional), str(server.tools.get(tool))[:300])
    rows.row("eight tools", len(server.tools) == 8, str(list(server.tools)))
    defaults = {name: server.tools["list_index"]["properties"][name].get("default") for name in ("sortBy", "limit")}
    rows.row("list_index: lastUsed and 50 by default", defaults == {"sortBy": "lastUsed", "limit": 50}, str(defaults))
    limit = server.tools["search_insights"]["properties"]["limit"].get("default")
    rows.row("search_insights: 5 by default", limit == 5, str(limit))


async def _insight_life(rows: Rows, server: OpenClient) -> None:
    add = {
        "title": "React Tips",
        "tags": ["React ", "react"],
        "content": "Use memo for expensive renders. " + "x" * 200,
    }
    made = await server.ask("add_insight", **add, sourceUrl="https://docs.example.com/react")
    id = made.get("id", "")
    rows.row("add_insight answers with the id", id, str(made)[:300])
    near = await server.ask("add_insight", **(add | {"title": "react tipz"}))
    rows.row(
        "a title fewer than 3 edits away is a duplicate, whatever its case; the existing id is told",
        id and id in str(near),
        str(near)[:300],
    )
    again = await server.ask("add_insight", **(add | {"content": "Updated content " + "y" * 200}), overwrite=True)
    rows.row("overwrite=true updates it and keeps its id", again.get("id") == id, str(again)[:300])
    listed = await server.ask("list_index", tags=["REACT"])
    entry = (listed.get("insights") or [{}])[0]
    rows.row("tags are normalised, in filters too", entry.get("tags") == ["react"], str(listed)[:300])
    rows.row(
        "list_index shows a preview of 100 characters",
        entry.get("preview") == ("Updated content " + "y" * 84)
        or str(entry.get("preview", "")).rstrip(".…") == "Updated content " + "y" * 84,
        str(entry)[:300],
    )
    rows.row("a fresh insight's trust is 0", entry.get("trustScore") == 0, str(entry)[:300])
    rows.row("the source URL is shown", entry.get("sourceUrl") == "https://docs.example.com/react", str(entry)[:300])
    marked = await server.ask("mark_helpful", id=id)
    rows.row(
        "mark_helpful: trust (1 - 0) / (1 + 0 + 1) = 0.5",
        abs(marked.get("trustScore", 9) - 0.5) < 1e-3,
        str(marked)[:300],
    )
    other = (
        await server.ask(
            "add_insight", title="JWT Auth Pattern", tags=["auth", "jwt"], content="Use refresh tokens for sessions."
        )
    ).get("id", "")
    marked = await server.ask("mark_harmful", id=other)
    rows.row(
        "mark_harmful: trust (0 - 2) / (0 + 1 + 1) = -1", abs(marked.get("trustScore", 9) + 1) < 1e-3, str(marked)[:300]
    )
    listed = await server.ask("list_index", sortBy="helpful", minHelpful=0)
    shown = {each["id"]: each for each in listed.get("insights", [])}
    rows.row(
        "a negative trust carries a warning, in text and data",
        shown.get(other, {}).get("warning") and "warning" in listed.get("text", "").lower(),
        str(listed)[:400],
    )
    rows.row("sortBy=helpful puts the helpful one first", list(shown)[:1] == [id], str(list(shown)))
    rows.row(
        "minHelpful leaves out the others",
        [each["id"] for each in (await server.ask("list_index", minHelpful=1)).get("insights", [])] == [id],
    )
    rows.row(
        "tags are joined by AND", not (await server.ask("list_index", tags=["auth", "react"])).get("insights", [1])
    )
    detail = await server.ask("get_detail", id=id)
    rows.row(
        "get_detail gives the full content and lastUsed",
        "y" * 200 in detail.get("text", "") + str(detail.get("content")) and ("lastUsed" in str(detail)),
        str(detail)[:300],
    )
    by_created = [each["id"] for each in (await server.ask("list_index", sortBy="created")).get("insights", [])]
    by_used = [each["id"] for each in (await server.ask("list_index")).get("insights", [])]
    rows.row(
        "sortBy=created: newest first; lastUsed: what was looked at last first",
        by_created[:1] == [other] and by_used[:1] == [id],
        f"{by_created} {by_used}",
    )
    for text, change in (
        ("title of 1 to 200 characters", {"title": "x" * 201}),
        ("1 to 10 tags", {"tags": []}),
        ("content up to 10 000 characters", {"content": "z" * 10_001}),
        ("sourceUrl up to 2 000", {"sourceUrl": "https://a.example/" + "u" * 2000}),
    ):
        wrong = await server.ask(
            "add_insight", **({"title": "Something quite else", "tags": ["a"], "content": "c"} | change)
        )
        rows.row(f"limit: {text}", "error" in wrong, str(wrong)[:200])


async def _insight_search(rows: Rows, server: OpenClient) -> None:
    await server.ask(
        "add_insight",
        title="Deploy on Friday",
        tags=["ops"],
        content="Never release before a weekend without a rollback.",
    )
    found = await server.ask("search_insights", query="JWT Auth Pattern")
    first = (found.get("insights") or [{}])[0]
    rows.row("an exact title is found first", first.get("title") == "JWT Auth Pattern", str(found)[:300])
    found = await server.ask("search_insights", query="rollback")
    rows.row(
        "content is searched",
        [each["title"] for each in found.get("insights", [])][:1] == ["Deploy on Friday"],
        str(found)[:300],
    )
    found = await server.ask("search_insights", query="ops")
    first = (found.get("insights") or [{}])[0]
    # fresh: trust 0, decay 1 less the seconds of its age
    rows.row(
        "tags are searched: +2 for the tag, +3 for use within 7 days",
        abs(first.get("score", 0) - 5) < 0.01,
        str(found)[:300],
    )
    found = await server.ask("search_insights", query="zebra crossing")
    rows.row("what matches nothing is not returned", not found.get("insights", [1]), str(found)[:200])


async def _insight_export(rows: Rows, server: OpenClient, folder: Path) -> None:
    exported = await server.ask("export_memory")
    try:
        data = json.loads(exported.get("text", ""))
    except ValueError:
        data = {}
    rows.row("export_memory: json by default", len(data.get("insights", [])) == 3, exported.get("text", "")[:200])
    exported = await server.ask("export_memory", format="markdown")
    text = exported.get("text", "")
    rows.row(
        "Markdown with trust, source URL and counts, without what was replaced",
        "https://docs.example.com/react" in text and "rust" in text and "elpful" in text and "Use memo" not in text,
        text[:400],
    )
    doomed = (await server.ask("add_insight", title="Outdated", tags=["old"], content="Use the old API.")).get("id", "")
    await server.ask("delete_insight", id=doomed)
    listed = await server.ask("list_index")
    rows.row(
        "delete_insight: it is gone from lists and searches", doomed and doomed not in str(listed), str(listed)[:200]
    )


def configured(*overrides: str) -> Any:
    """The server's configuration with these overrides."""
    from mcp_server.config import load_config

    return load_config(list(overrides))


def command(words: tuple[Any, ...]) -> list[str]:
    return [sys.executable, "-m", "mcp_server", *map(str, words)]


def said(*words: Any) -> str:
    """What the command prints, on both channels."""
    done = subprocess.run(command(words), cwd=REPO, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@asynccontextmanager
async def serving(*words: Any, env: dict[str, str] | None = None) -> AsyncIterator[OpenClient]:
    """A session with a server process of its own, over stdio."""
    from mcp.client.stdio import StdioServerParameters

    line = command(words)
    async with connected(
        StdioServerParameters(command=line[0], args=line[1:], cwd=REPO, env={**os.environ, **(env or {})})
    ) as session:
        yield session


@asynccontextmanager
async def connected(to: Any) -> AsyncIterator[OpenClient]:
    from mcp.client.client import Client

    async with Client(to) as client:
        listed = await client.list_tools()
        yield OpenClient(client=client, tools={tool.name: tool.input_schema for tool in listed.tools})


@contextmanager
def over_sse(bank: Path) -> Iterator[tuple[Any, Callable[[], str]]]:
    """A server over SSE on a free port: what a client connects to, and what the server said so far."""
    from mcp.client.sse import sse_client

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("--bank", bank, "--transport", "sse", "--host", "127.0.0.1", "--port", port)
    with (bank.parent / "sse.log").open("w+") as log:
        process = subprocess.Popen(command(words), cwd=REPO, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            for _ in range(300):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                time.sleep(0.1)
            yield sse_client(f"http://127.0.0.1:{port}/sse"), lambda: Path(log.name).read_text()
        finally:
            process.terminate()
            process.wait(timeout=20)


async def until_done(server: OpenClient, task_id: str, **who: str) -> dict[str, Any]:
    """What task_status says once an extraction is over."""
    status: dict[str, Any] = {}
    for _ in range(300):
        status = await server.ask("task_status", task_id=task_id, **who)
        if status.get("status") != "processing":
            break
        await asyncio.sleep(0.1)
    return status


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    top = parser(__doc__)
    top.add_argument("--only", choices=("reasoningbank", "insight"))
    top.add_argument("--faults", action="store_true", help="only the rows that fail without a reason")
    given = top.parse_args(arguments)
    tables = []
    for name, title, check in (
        ("reasoningbank", "ReasoningBank MCP server 0.2.0", reasoningbank),
        ("insight", "Insight memory server 0.2.1", insight),
    ):
        if given.only not in (None, name):
            continue
        rows = Rows(document=title)
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(check(rows, Path(folder)))
        print(rows.table(given.faults) + "\n")
        tables.append(rows)
    return int(any(rows.faults for rows in tables))


if __name__ == "__main__":
    sys.exit(main())
