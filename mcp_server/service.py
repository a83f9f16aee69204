"""`Service`, the open bank behind the tools: it picks the namespace of a call, the models, and stores records.

`open_service` opens the bank that a command line names.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.build import build_bank, build_meter, build_models, build_redactor, build_roles, refuse_problems
from core.errors import InfraError, StopRun, UserError, check_choice, check_numbers
from core.make import make, part
from core.memory.bank import MemoryBank
from core.memory.by_hand import lesson_of, lookup
from core.memory.hygiene.notes import told
from core.memory.none import NoMemory
from core.memory.open import embedder_of, file_of
from core.memory.protocol import Steps
from core.memory.records import EpisodeFeedback
from core.memory.sqlite.repair import set_aside_unreadable
from core.models.embedding import MINILM, NamedEmbedder
from core.redact import use
from core.types import Lesson, MemoryRecord, Task, Verdict, content_id
from mcp_server import checks
from mcp_server.config import ServerSettings, bank_path, bank_said, has_bank, load_config, unless_typed
from mcp_server.foreign_config import read_foreign
from mcp_server.late_model import LateModel
from mcp_server.texts import OPENINGS

if TYPE_CHECKING:
    from core.models.base import Role

log = logging.getLogger(__name__)

ROLES = ("judge", "extractor")
_PATH = re.compile(r"(?<![\w/\\:.])(?:~|[A-Za-z]:)?[/\\][\w.@+-]+(?:[/\\][\w.@+-]+)+")  # absolute, not of a URL


class Service:
    """A bank and its settings (config/mcp.yaml). Thread-safe, and safe beside other processes on the same file.

    require_agent         refuse calls without an agent_id
    queue_without_model   accept extractions without a local model; another server's worker on this bank runs them
    bound                 each caller may use only the memory that its token is bound to (`bind_agents`)
    caller                the tenant of the current request, which `TokenBackend` (http.py) finds by its token and
                          `BankServer.call_tool` (server.py) sets; None without one
    """

    def __init__(self, path: str | Path, cfg: Any, *, embedder: str | None = None, require_agent: bool = False) -> None:
        self.settings = ServerSettings.of(cfg)
        self.cfg, self.require_agent = cfg, require_agent
        self.redact = build_redactor(cfg)  # for errors of providers, which may quote a key
        use(self.redact)
        check_choice(cfg.server, "server", "anonymous", ("own", "all"))
        check_choice(cfg.server, "server", "prompt_style", tuple(OPENINGS))
        check_numbers(cfg.server, "server", "audit_share", least=0, most=1)
        if self.settings.holdout is not None:
            from mcp_server.holdout import check_share

            check_share("server.holdout=", self.settings.holdout)
        for name in ("audit_share", "holdout"):
            if cfg.server[name] and file_of(path) is None:
                raise UserError(f"server.{name}: what it notes is kept beside a bank's file, and this is a database.")
        if require_agent and cfg.server.anonymous == "all":
            raise UserError("--require-agent-id and server.anonymous=all contradict each other: give one of them.")
        self.queue_without_model = False
        self.bound, self._reads = False, None
        self.caller: ContextVar[str | None] = ContextVar("caller", default=None)
        self._stack = ExitStack()
        self._roles: dict[str, Role] | None = None
        self._named: NamedEmbedder | None = None  # the embedder, where no `embedder=` is configured
        self.bank = self._open(path, embedder)
        self.jobs = self.bank.jobs()

    def _open(self, path: str | Path, embedder: str | None) -> MemoryBank:
        """Open the bank, with the embedder that it was made with unless the configuration names another."""
        if self.cfg.memory.path is not None:
            raise UserError("memory.path: the server's bank is named with --bank.")
        if part(self.cfg.memory) is NoMemory:
            raise UserError("memory=none: a server needs a bank, e.g. memory=reasoning_bank.")
        read_only = (file := file_of(path)) is not None and file.is_file() and not is_writable(file)
        if read_only:
            if self.settings.holdout is not None:
                raise UserError(f"server.holdout: what it notes is kept beside {path}, which cannot be written to.")
            log.warning(f"the bank {path} cannot be written to: it is only read.")
        if file is not None and not read_only:
            set_aside_unreadable(file)
        name = embedder or embedder_of(path, read_only=read_only) or MINILM
        if self.cfg.get("embedder") is not None:
            chosen = make({**self.cfg.embedder, "path": None})  # no cache in whatever folder a client starts this in
        else:
            chosen = self._named = NamedEmbedder(name=name)
        memory = self.cfg.memory
        asks_model = memory.get("consolidate") is not None or (memory.get("hygiene") or {}).get("opinion") is not None
        roles = self._late_roles() if asks_model and self.has_model else {}
        how = {"read_only": read_only, "consolidator_run": "mcp"}
        bank = build_bank(self.cfg, chosen, roles, str(path), **how)
        self._stack.callback(bank.close)
        return bank

    def embedder_class(self) -> str | None:
        """The class name of the embedder; None until first used, for one that was chosen by its name alone."""
        return type(self.bank.embedder).__name__ if self._named is None else self._named.loaded

    @property
    def has_model(self) -> bool:
        """Whether a model is configured, be it one that cannot be called now."""
        return self.cfg.get("llm") is not None

    def roles(self) -> dict[str, Role]:
        """The judge and the extractor. UserError where no model is configured; StopRun while it cannot be called."""
        if not self.has_model:
            raise UserError(
                "no model is configured for extraction: start the server with one, e.g. llm=gemini, or write the "
                "lesson yourself with save_lesson."
            )
        if self._roles is None:
            try:
                models = build_models(self.cfg, self._stack)
                models = {role: models[role] for role in ROLES}
                refuse_problems(models, self.cfg.roles)
                self._roles = build_roles(self.cfg, models, build_meter(self.cfg))
            except (UserError, InfraError) as error:
                raise StopRun(str(error)) from error
        return self._roles

    def _late_roles(self) -> dict[str, Role]:
        """The roles for consolidation and the guard: their model is made when one of them asks it."""
        models = {name: LateModel(lambda name=name: self.roles()[name].llm) for name in ROLES}
        return build_roles(self.cfg, models, build_meter(self.cfg))

    def model(self) -> tuple[str | None, str]:
        """(the extractor's model, ""); (None, why it cannot be called) or, where none is configured, (None, "")."""
        if not self.has_model:
            return None, ""
        try:
            return self.roles()["extractor"].llm.name, ""
        except StopRun as error:
            return None, self.said(error)

    def bind_agents(self, reads: Callable[[str], list[str]] | None = None) -> None:
        """Restrict each caller to the memory that its token is bound to, from now on, and to reading `reads` of it.

        reads   gives the namespaces that an agent's groups let it read beside its own
        """
        if self.settings.anonymous == "all":
            raise UserError("--tokens and server.anonymous=all contradict each other: give one of them.")
        self.bound, self._reads = True, reads

    def bank_for(self, agent_id: str) -> MemoryBank:
        """The bank in an agent's namespace. Every tool must use this.

        With `bound`, it always returns the caller's own bank, which reads those of its groups.

        agent_id   "": the server's own namespace

        Raises UserError if agent_id is malformed, is required and "", or is not the one that the token is bound to.
        """
        if self.bound:
            if (caller := self.caller.get()) is None:
                raise UserError("this call carries no token that is bound to an agent_id.")
            if agent_id not in ("", caller):
                raise UserError(f"agent_id: your token is bound to {caller}: leave agent_id out.")
            bank = self.bank_of(caller)
            bank.group = tuple(self._reads(caller)) if self._reads else ()
            return bank
        if agent_id:
            return self.bank.of(checks.namespace(agent_id))
        if self.require_agent:
            raise UserError("agent_id is required by this server: say whose memory is meant.")
        return self.bank

    def bank_of(self, namespace: str) -> MemoryBank:
        """The bank in a namespace; with `bound` it has an embedding cache of its own, too."""
        bank = self.bank.of(namespace)
        if self.bound:
            bank.embedder = self.bank.embedder.of(namespace)
        return bank

    def said(self, error: Exception) -> str:
        """What a client may read of an error: no secrets, and with `bound` no path of this machine."""
        text = self.redact(str(error))
        if self.bound:
            path = str(self.bank.path)
            places = {path, self.redact(path), str(Path(path).absolute()), str(Path(path).resolve())}
            for place in sorted(places, key=len, reverse=True):
                text = text.replace(f"the bank {place}", "the bank").replace(place, "BANK")
            text = _PATH.sub("PATH", text)
        return text

    def add(
        self,
        bank: MemoryBank,
        record: MemoryRecord,
        used: tuple[str, ...] = (),
        steps: Steps | None = None,
        confidence: float | None = None,
        shown: tuple[str, ...] | None = None,
    ) -> bool:
        """Store a record and let the bank learn from it; False if it was stored before.

        It takes the place of older ones with its task and titles.

        used         ids of the records that the attempt used
        shown        ids of those that its author had read; None: those that its task would retrieve
        steps        of the attempt that it was distilled from; None: no attempt
        confidence   the judge's confidence in its label, if any
        """
        about = feedback_on(bank, record, used, confidence)
        added = bank.add_many([record], did=steps, shown=shown, feedback=about, supersedes=()) == 1
        # Stored before: a crash may have cut off the consolidation that was due then.
        self.consolidate(bank, about if added else None)
        return added

    def consolidate(self, bank: MemoryBank, about: EpisodeFeedback | None = None) -> None:
        """Run the consolidation that is due after an addition. An error is logged and not raised.

        about   feedback on the addition, for rules with counts_within=False (the others counted it within the addition)
        """
        apart = bank.consolidate is not None and not bank.consolidate.counts_within
        try:
            bank.learn_from(about if apart else None)
        except Exception as error:  # the record is stored: its caller must not read that it is not
            log.warning(f"consolidation: {error}", exc_info=not isinstance(error, UserError | InfraError))

    def count_shown(self, bank: MemoryBank, ids: list[str]) -> None:
        """Count records as shown to an agent (`MemoryBank.count_shown`). An error is logged and not raised."""
        try:
            bank.count_shown(ids)
        except UserError as error:
            log.warning(f"what was retrieved is not counted: {error}")

    def end_task(self, bank: MemoryBank, payload: dict[str, Any], verdict: Verdict, tokens: int | None = None) -> None:
        """Note how a task of server.holdout ended (`run_records.end`). An error is logged and not raised.

        tokens   that it took so far; None: not known
        """
        if (file := file_of(self.bank.path)) is None:
            return
        from mcp_server import run_records

        try:
            run_records.end(file, payload["query"], bank.namespace, payload.get("session", ""), verdict, tokens)
        except UserError as error:
            log.warning(f"how a task ended is not noted: {error}")

    def describe_stored(self, bank: MemoryBank, id: str) -> dict[str, Any]:
        """{memory_id, state} of a stored record, whose place it took or what took its place, and a note (`told`)."""
        if (record := bank.get(id)) is None:  # another client has deleted it by now
            return {"memory_id": id, "state": "deleted"}
        about: dict[str, Any] = {"memory_id": id, "state": record.status}
        for source, relation, target, _ in bank.links(id):
            if record.status != "active" and (source, relation) == (id, "duplicate_of"):
                about["duplicate_of"] = target
            elif record.status != "active" and (relation, target) == ("supersedes", id):
                about["replaced_by"] = source
            elif (source, relation) == (id, "supersedes") and target not in record.parents:
                about.setdefault("replaces" if record.status == "active" else "will_replace", []).append(target)
        note = self.note_on(bank, record)
        return about | ({"note": note} if note else {})

    def note_on(self, bank: MemoryBank, record: MemoryRecord) -> str | None:
        """What was held back of a record or changed in it; None without."""
        return told(record, self.place or "BANK") or None

    @property
    def place(self) -> str | None:
        """Where the bank lies; None where a tenant may not know it."""
        if self.bound:
            return None
        return str(file.resolve()) if (file := file_of(self.bank.path)) else str(self.bank.path)

    def close(self) -> None:
        """Close the bank and the model."""
        self._stack.close()


def is_writable(file: Path) -> bool:
    """Whether a bank's file, and the files that SQLite makes beside it, can be written."""
    return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)


def feedback_on(
    bank: MemoryBank, record: MemoryRecord, used: tuple[str, ...] = (), confidence: float | None = None
) -> EpisodeFeedback:
    """The feedback on a new record, for consolidation; `used` and `confidence` as in `Service.add`."""
    counted = bank.uses != "cited"  # retrieve_memory already counts shown records
    return EpisodeFeedback(label=record.outcome, used=used, counted=counted, new=((record.id, confidence),))


def find_record(bank: MemoryBank, id: str, *, to_read: bool = False) -> MemoryRecord:
    """The record of the bank's namespace with an id that a client gave, or its beginning. UserError without one.

    to_read   it may be one of the bank's `group`; else UserError says that such a record is only read
    """
    return _found(bank, id, lookup, to_read=to_read)


def find_lesson(bank: MemoryBank, id: str) -> tuple[MemoryRecord, int]:
    """The lesson with such an id, as `lesson_of` has it. UserError without one."""
    return _found(bank, id, lesson_of, to_read=False)


def _found(bank: MemoryBank, id: str, look: Callable[[MemoryBank, str], Any], *, to_read: bool) -> Any:
    """What `look` finds in the bank, or with to_read in those of its group."""
    id = checks.text("id", id.strip(), 200)
    if found := look(bank, id):
        return found
    for mate in bank.mates():
        if found := look(mate, id):
            if to_read:
                return found
            raise UserError(f"the memory {id[:60]} is of {mate.namespace}: you may read it, and change only your own.")
    raise UserError(f"there is no memory {id[:60]}: give an id as it was shown.")


def new_record(
    bank: MemoryBank,
    id: str,
    query: str,
    lessons: tuple[Lesson, ...],
    verdict: Verdict,
    *,
    tags: tuple[str, ...] = (),
    trajectory_id: str = "",
    about: dict[str, Any],
) -> MemoryRecord:
    """Make a record of lessons that came over MCP.

    trajectory_id   id of the attempt that the lessons were distilled from; "": none
    about           added to the record's provenance
    """
    task = Task(id=content_id("task", query), query=query)
    filed, words = bank.filed_under(task)
    return MemoryRecord(
        id=id,
        original_query=query,
        items=lessons,
        source_trajectory_id=trajectory_id,
        score=float(verdict.label == "success"),
        outcome=verdict.label,
        label_source=verdict.source,
        task_id=task.id,
        namespace=bank.namespace,
        tick=bank.tick(),
        domain=filed or "",
        tags=tuple(dict.fromkeys((*tags, *words))),
        provenance={"source": "mcp", **about},
    )


def clients_verdict(success: bool) -> Verdict:
    """The verdict on an attempt whose outcome the client has given."""
    return Verdict(label="success" if success else "failure", source="client")


def configuration(given: argparse.Namespace, unless_set: Sequence[str] = ()) -> Any:
    """The configuration of the options of `config.bank_options`, with what is typed after them.

    unless_set   overrides that give way to the preset, the settings and what is typed

    preset=reasoningbank_mcp shows all memories to a call without agent_id, but not where tenants are kept apart.
    """
    words = unless_typed(read_foreign(given.config), given.overrides) if given.config else []
    words += given.overrides
    cfg = load_config(words, unless_set)
    tokens = getattr(given, "tokens", None) is not None or cfg.server.oauth.issuer is not None
    apart = given.require_agent_id or tokens
    if apart and cfg.preset == "reasoningbank_mcp" and not any(word.startswith("server.anonymous=") for word in words):
        cfg.server.anonymous = "own"
    return cfg


def open_service(given: argparse.Namespace, cfg: Any = None) -> Service:
    """Open the bank that the options of `config.bank_options` name. cfg: its configuration; None: `configuration`.

    Says on stderr which bank that is where none is named, and that it is new.
    """
    is_new = not has_bank(given)
    cfg = configuration(given) if cfg is None else cfg
    service = Service(bank_path(given), cfg, embedder=given.embedder, require_agent=given.require_agent_id)
    if is_new or given.bank is None:
        said = "new bank made at" if is_new else "the bank is"
        print(f"reasoningbank: {said} {bank_said(given)}.", file=sys.stderr, flush=True)
    return service
