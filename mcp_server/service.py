"""What the tools do, apart from the protocol: an open bank, its tenants, lessons in and out. Raises UserError."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from core.build import build_bank, build_meter, build_roles, make
from core.errors import InfraError, UserError
from core.memory.bank import MemoryBank
from core.memory.consolidation.episode_feedback import EpisodeFeedback
from core.models.embedding import MINILM, NamedEmbedder
from core.types import Lesson, MemoryRecord, Scored, content_id
from mcp_server import checks

log = logging.getLogger(__name__)

NO_MODEL = (
    "no model is configured for extraction: start the server with one, e.g. llm=gemini, or write the lesson "
    "yourself with save_lesson."
)


class Service:
    """A bank and its settings (config/mcp.yaml). Thread-safe, and safe beside other processes on the same file."""

    def __init__(self, path: Path, cfg: Any, *, embedder: str | None = None, require_agent: bool = False) -> None:
        self.cfg, self.limits, self.require_agent = cfg, cfg.server, require_agent
        self._stack = ExitStack()
        self._roles: dict[str, Any] | None = None
        self.bank = self._open(path, embedder)
        self.jobs = self.bank.jobs()
        self.hands_over = False  # another process on this bank has the model: attempts are queued without one here

    def _open(self, path: Path, embedder: str | None) -> MemoryBank:
        """The bank, with the embedder that it was made with unless the configuration names another."""
        if self.cfg.memory.path is not None:
            raise UserError("memory.path: the server's bank is named with --bank.")
        asks = self.cfg.memory.get("consolidate") is not None and self.cfg.get("llm") is not None
        chosen = NamedEmbedder(name=embedder or _made_by(path) or MINILM)
        if self.cfg.get("embedder") is not None:
            chosen = make({**self.cfg.embedder, "path": None})  # no cache in whatever folder a client starts this in
        bank = build_bank(self.cfg, chosen, self.roles() if asks else {}, str(path), consolidator_run="mcp")
        self._stack.callback(bank.close)
        return bank

    def roles(self) -> dict[str, Any]:
        """The judge and the extractor. UserError where no model is configured or it cannot be called."""
        if self.cfg.get("llm") is None:
            raise UserError(NO_MODEL)
        if self._roles is None:
            from core.models.reply_cache import cached

            model = cached(make(self.cfg.llm))
            self._stack.callback(model.close)
            if problem := model.problem():
                raise UserError(problem)
            names = ("judge", "extractor")
            self._roles = build_roles(self.cfg, dict.fromkeys(names, model), build_meter(self.cfg))
        return self._roles

    def tenant(self, agent_id: str) -> MemoryBank:
        """The bank as an agent has it; without an agent the server's own namespace, or a refusal."""
        if agent_id:
            return self.bank.of(checks.namespace(agent_id))
        if self.require_agent:
            raise UserError("agent_id is required by this server: say whose memory is meant.")
        return self.bank

    def known(self, bank: MemoryBank, id: str) -> MemoryRecord:
        """A tenant's record by its id, or by that of one of its memories (`<record>-<place>`)."""
        id = checks.text("id", id, 200).strip()
        for name in (id, id.rpartition("-")[0]):
            record = bank.get(name) if name else None
            if record is not None and record.namespace == bank.namespace:
                return record
        raise UserError(f"there is no memory {id[:60]}: retrieve_memory and list_index show ids.")

    def retrieve(self, query: str, top_k: int, agent_id: str) -> tuple[list[Scored], dict[str, Any]]:
        """(the records found, the result in the form of the ReasoningBank MCP server less its prompt)."""
        query = checks.text("query", query, self.limits.max_query_chars)
        top_k = checks.whole("top_k", top_k, 1, self.limits.max_top_k)
        bank = self.tenant(agent_id)
        hits = bank.retrieve(query, top_k)
        missed = 0 if len(hits) == top_k else min(top_k, bank.statuses().get("active", 0)) - len(hits)
        return hits, {
            "status": "success" if hits else "no_memories",
            "min_score_threshold": getattr(bank.policy, "min_score", None),
            "filtered_count": max(0, missed),
            "memories": [memory for hit in hits for memory in memories(hit)],
        }

    def save(
        self, query: str, item: Lesson, *, success: bool, tags: list[str], agent_id: str, context: str = ""
    ) -> dict[str, Any]:
        """Store a lesson that the caller wrote."""
        query = checks.text("query", query, self.limits.max_query_chars)
        item, bank = lesson(item), self.tenant(agent_id)
        outcome = "success" if success else "failure"
        record = MemoryRecord(
            id=content_id("mcp", bank.namespace, query, item, outcome),
            original_query=query,
            items=(item,),
            source_trajectory_id="",
            score=float(success),
            outcome=outcome,
            label_source="client",
            task_id=content_id("task", query),
            namespace=bank.namespace,
            tick=bank.tick(),
            tags=checks.tags(tags),
            provenance={"source": "mcp"} | ({"context": context} if context else {}),
        )
        added = self.add(bank, record)
        told = self.stored(bank, record.id)
        status = told["state"] if told["state"] == "quarantined" else "saved" if added else "already_known"
        return {"status": status, **told}

    def add(self, bank: MemoryBank, record: MemoryRecord, used: tuple[str, ...] = ()) -> bool:
        """Store a record and let the bank learn from it; False when it was there."""
        if not bank.add(record):
            return False
        self.learn(bank, EpisodeFeedback(label=record.outcome, used=used, new=((record.id, None),)))
        return True

    def learn(self, bank: MemoryBank, seen: EpisodeFeedback) -> None:
        """Let the bank consolidate. The record is in already: what goes wrong here is for the log."""
        try:
            bank.learn(seen)
        except (UserError, InfraError) as error:
            log.warning(f"consolidation: {error}")

    def stored(self, bank: MemoryBank, id: str) -> dict[str, Any]:
        """What the caller is told about a record that it stored: quarantine, above all."""
        record = bank.get(id)
        told = {"memory_id": id, "state": record.status, "titles": [item.title for item in record.items]}
        why = record.provenance.get("quarantine") or record.provenance.get("hygiene")
        return told | ({"why": list(why)} if why else {})

    def status(self, agent_id: str) -> dict[str, Any]:
        """What this server is and what an agent has in it."""
        bank, embedder = self.tenant(agent_id), self.bank.embedder
        jobs = self.jobs.counts(bank.namespace)
        return {
            "version": own_version(),
            "bank": str(Path(bank.path).resolve()),
            "agent_id": bank.namespace,
            "records": bank.statuses(),
            "embedder": {"name": embedder.name, "loaded": getattr(embedder, "loaded", type(embedder).__name__)},
            "model": self.roles()["extractor"].llm.name if self.cfg.get("llm") is not None else None,
            "pending_jobs": jobs.get("pending", 0) + jobs.get("running", 0),
            "failed_jobs": jobs.get("failed", 0),
            "preset": self.cfg.preset,
            "retrieval": type(bank.policy).__name__.lower(),
            "clock": bank.clock,
            "changes": bank.seq(),
        }

    def close(self) -> None:
        """Close the bank and the model."""
        self._stack.close()


def lesson(item: Lesson) -> Lesson:
    """A lesson within the limits: title 1 to 200, content 1 to 10 000, description at most 1000 characters."""
    return replace(
        item,
        title=checks.text("title", item.title, 200).strip(),
        description=checks.text("description", item.description, 1000, empty=True).strip(),
        content=checks.text("content", item.content, 10_000).strip(),
    )


def memories(hit: Scored) -> list[dict[str, Any]]:
    """One entry for each item of a retrieved record."""
    record, many = hit.record, len(hit.record.items) > 1
    return [
        {
            "memory_id": f"{record.id}-{place}" if many else record.id,
            "score": hit.score,
            "title": item.title,
            "description": item.description,
            "content": item.content,
            "success": record.outcome == "success",
            "agent_id": record.namespace,
        }
        for place, item in enumerate(record.items)
    ]


def _made_by(path: Path) -> str | None:
    """The embedder that an existing bank names."""
    from core.memory.store.database import Store

    if not path.exists():
        return None
    store = Store(path)
    try:
        return store.meta("embedder")
    finally:
        store.close()


def own_version() -> str:
    """This package's version."""
    try:
        return version("reasoningbank-harness")
    except PackageNotFoundError:
        return "unknown"
