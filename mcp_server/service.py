"""An open bank as the tools use it: whose records they see, which models they ask, how a record is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from core.build import build_bank, build_meter, build_models, build_redactor, build_roles, make, part, refuse_problems
from core.errors import InfraError, UserError, check_choice, check_numbers, is_url
from core.memory.bank import MemoryBank
from core.memory.none import NoMemory
from core.memory.open import embedder_of
from core.memory.records import EpisodeFeedback
from core.models.embedding import MINILM, NamedEmbedder
from core.types import Lesson, MemoryRecord, Task, Verdict, content_id
from mcp_server import checks
from mcp_server.retrievals import Made, Retrievals, SharedEmbedder
from mcp_server.texts import OPENINGS

if TYPE_CHECKING:
    from core.models.base import Role

log = logging.getLogger(__name__)


class Service:
    """A bank and its settings (config/mcp.yaml). Thread-safe, and safe beside other processes on the same file.

    queue_without_model   extractions may be queued although no model is configured: another server has one
    """

    def __init__(self, path: str | Path, cfg: Any, *, embedder: str | None = None, require_agent: bool = False) -> None:
        from omegaconf import OmegaConf

        # plain values: those of the configuration cost 20 microseconds each time that they are read
        self.limits = SimpleNamespace(**OmegaConf.to_container(cfg.server, resolve=True))
        self.cfg, self.require_agent = cfg, require_agent
        self.redact = build_redactor(cfg)  # for what providers say: it may quote a key
        check_choice(cfg.server, "server", "anonymous", ("own", "all"))
        check_choice(cfg.server, "server", "prompt_style", tuple(OPENINGS))
        check_numbers(cfg.server, "server", "audit_share", least=0, most=1)
        check_numbers(cfg.server, "server", "batch", least=1, whole=True)
        if cfg.server.audit_share and is_url(path):
            raise UserError(
                "server.audit_share: the extractions are kept beside a bank's file, and this is a database."
            )
        if require_agent and cfg.server.anonymous == "all":
            raise UserError("--require-agent-id and server.anonymous=all contradict each other: give one of them.")
        self.queue_without_model = False
        self.bound = False  # whether each caller's token says whose memory it may use
        self.caller: ContextVar[str | None] = ContextVar("caller", default=None)  # the tenant of the call at work
        self._stack = ExitStack()
        self._roles: dict[str, Role] | None = None
        self.bank = self._open(path, embedder)
        self.retrievals = Retrievals(self.limits.batch, self.count_shown)
        self._stack.callback(self.retrievals.close)
        self.jobs = self.bank.jobs()

    def _open(self, path: str | Path, embedder: str | None) -> MemoryBank:
        """The bank, with the embedder that it was made with unless the configuration names another."""
        if self.cfg.memory.path is not None:
            raise UserError("memory.path: the server's bank is named with --bank.")
        if part(self.cfg.memory) is NoMemory:
            raise UserError("memory=none: a server needs a bank, e.g. memory=reasoning_bank.")
        memory = self.cfg.memory
        asks = memory.get("consolidate") is not None or (memory.get("hygiene") or {}).get("opinion") is not None
        asks = asks and self.cfg.get("llm") is not None
        kind = NamedEmbedder if self.limits.batch == 1 else SharedEmbedder
        chosen = kind(name=embedder or embedder_of(path) or MINILM)
        if self.cfg.get("embedder") is not None:
            chosen = make({**self.cfg.embedder, "path": None})  # no cache in whatever folder a client starts this in
        bank = build_bank(self.cfg, chosen, self.roles() if asks else {}, str(path), consolidator_run="mcp")
        self._stack.callback(bank.close)
        return bank

    def roles(self) -> dict[str, Role]:
        """The judge and the extractor. UserError where no model is configured or it cannot be called."""
        if self.cfg.get("llm") is None:
            raise UserError(
                "no model is configured for extraction: start the server with one, e.g. llm=gemini, or write the "
                "lesson yourself with save_lesson."
            )
        if self._roles is None:
            models = build_models(self.cfg, self._stack)
            models = {role: models[role] for role in ("judge", "extractor")}
            refuse_problems(models, self.cfg.roles)
            self._roles = build_roles(self.cfg, models, build_meter(self.cfg))
        return self._roles

    def bind_agents(self) -> None:
        """From now on a caller has the memory that its token is bound to, and no other."""
        if self.limits.anonymous == "all":
            raise UserError("--tokens and server.anonymous=all contradict each other: give one of them.")
        self.bound = True

    def bank_for(self, agent_id: str) -> MemoryBank:
        """The bank in an agent's namespace; in the server's own for "", unless it requires an agent.

        Every tool comes to its records by this. With `bound`, it is the caller's whatever the agent_id.
        """
        if self.bound:
            if (caller := self.caller.get()) is None:
                raise UserError("this call carries no token that is bound to an agent_id.")
            if agent_id not in ("", caller):
                raise UserError(f"agent_id: your token is bound to {caller}: leave agent_id out.")
            return self.bank.of(caller)
        if agent_id:
            return self.bank.of(checks.namespace(agent_id))
        if self.require_agent:
            raise UserError("agent_id is required by this server: say whose memory is meant.")
        return self.bank

    async def retrieve(self, bank: MemoryBank, query: str, make: Callable[[], Made]) -> Any:
        """A tool's result of a retrieval, and what it shows counted; with those of other clients (`server.batch`)."""
        if self.limits.batch > 1:
            return await self.retrievals.retrieve(bank, query, make)

        def alone() -> Any:
            found, ids = make()
            self.count_shown(bank, ids)
            return found

        return await asyncio.to_thread(alone)

    def add(
        self,
        bank: MemoryBank,
        record: MemoryRecord,
        used: tuple[str, ...] = (),
        did: list[tuple[str, str]] | None = None,
        confidence: float | None = None,
    ) -> bool:
        """Store a record and let the bank learn from it; False when it was stored before.

        used         ids of the records that helped to make it
        did          (action, observation) of each step of the attempt that it was distilled from; None: there was none
        confidence   the judge's in its label, where it gives one
        """
        about = feedback_on(bank, record, used, confidence)
        added = bank.add_many([record], did=did, feedback=about) == 1
        # Stored before: what then fell due may have been cut off by a crash.
        self.consolidate(bank, about if added else None)
        return added

    def consolidate(self, bank: MemoryBank, about: EpisodeFeedback | None = None) -> None:
        """Run what is due after an addition, which was counted with it: an error is logged and reaches no caller.

        about   what a `consolidate` is told that could not count it within the addition
        """
        apart = bank.consolidate is not None and not bank.consolidate.counts_within
        try:
            bank.learn_from(about if apart else None)
        except Exception as error:  # the record is stored: its caller must not read that it is not
            log.warning(f"consolidation: {error}", exc_info=not isinstance(error, UserError | InfraError))

    def count_shown(self, bank: MemoryBank, ids: list[str] | dict[str, int]) -> bool:
        """Count the records that agents are shown (`MemoryBank.count_shown`): an error is logged, and is a False."""
        try:
            return bank.count_shown(ids)
        except UserError as error:
            log.warning(f"what was retrieved is not counted: {error}")
            return False

    def close(self) -> None:
        """Close the bank and the model."""
        self._stack.close()


def feedback_on(
    bank: MemoryBank, record: MemoryRecord, used: tuple[str, ...] = (), confidence: float | None = None
) -> EpisodeFeedback:
    """What consolidation is told of a new record; `used` and `confidence` as in `Service.add`."""
    counted = bank.uses != "cited"  # what is only shown, retrieve_memory counts
    return EpisodeFeedback(label=record.outcome, used=used, counted=counted, new=((record.id, confidence),))


def find_record(bank: MemoryBank, memory_id: str) -> MemoryRecord:
    """A record of the bank's namespace by its id, or by the id of one of its lessons (`<record>-<place>`)."""
    id = checks.text("id", memory_id, 200).strip()
    if record := recalled(bank, id):
        return record
    raise UserError(f"there is no memory {id[:60]}: retrieve_memory and list_index show ids.")


def recalled(bank: MemoryBank, id: str) -> MemoryRecord | None:
    """The record that a client knows by an id, or by that of one of its lessons; None when there is none."""
    return bank.get(id) or bank.get(id.rpartition("-")[0])


def new_record(
    bank: MemoryBank,
    id: str,
    query: str,
    lessons: tuple[Lesson, ...],
    verdict: Verdict,
    *,
    tags: tuple[str, ...] = (),
    domain: str = "",
    trajectory: str = "",
    about: dict[str, Any],
) -> MemoryRecord:
    """A record of lessons that came over MCP.

    domain       ""; memory.domain, where that is a name
    trajectory   the id of the attempt that they were distilled from
    about        for its provenance
    """
    task = Task(id=content_id("task", query), query=query)
    filed, words = bank.filing(task)
    return MemoryRecord(
        id=id,
        original_query=query,
        items=lessons,
        source_trajectory_id=trajectory,
        score=float(verdict.label == "success"),
        outcome=verdict.label,
        label_source=verdict.source,
        task_id=task.id,
        namespace=bank.namespace,
        tick=bank.tick(),
        domain=domain or filed or "",
        tags=tuple(dict.fromkeys((*tags, *words))),
        provenance={"source": "mcp", **about},
    )


def clients_verdict(success: bool) -> Verdict:
    """The outcome of an attempt as the client gives it."""
    return Verdict(label="success" if success else "failure", source="client")


def describe_stored(bank: MemoryBank, id: str) -> dict[str, Any]:
    """What the caller is told about a record that it stored: above all, whether it may be retrieved, and why not."""
    if (record := bank.get(id)) is None:  # another client was quicker
        return {"memory_id": id, "state": "deleted", "titles": []}
    told = {"memory_id": id, "state": record.status, "titles": [lesson.title for lesson in record.items]}
    for source, relation, target, _ in bank.links(id) if record.status != "active" else ():
        if (source, relation) == (id, "duplicate_of"):
            told["duplicate_of"] = target
        elif (relation, target) == ("supersedes", id):
            told["replaced_by"] = source
    why = record.provenance.get("quarantine") or record.provenance.get("hygiene")
    return told | ({"why": list(why)} if why else {})


def package_version() -> str:
    """This package's version."""
    try:
        return version("reasoningbank-harness")
    except PackageNotFoundError:
        return "unknown"
