"""The caches of replies and of embeddings. A repeated run reads its replies from the file; `replay` calls no model.

A stored study (config/experiment/recorded.yaml) is such a file: what a real model replied, and the texts' vectors.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.errors import AttemptOver, InfraError, StopRun, UserError, check_choice
from core.file_lock import check_locks, why
from core.jsonl import in_strings
from core.models.base import ChatModel, Reply, Request
from core.models.embedding import Embedder
from core.models.meter import Meter
from core.redact import redactor
from core.types import Usage, digest

MODES = ("off", "read_write", "replay")
# Fields of a Reply that describe the call, not the reply.
NOT_KEPT = ("from_cache", "retries", "fallback", "failed", "paid")
RECORDED = "recorded"  # beside a stored Reply's fields: the day of the call


def cached(model: ChatModel) -> ChatModel:
    """The model wrapped in the cache of its `cache` and `cache_path`; with `off`, the model itself."""
    if model.cache not in MODES:
        raise UserError(f"llm.cache={model.cache}: choose {', '.join(MODES)}.")
    return model if model.cache == "off" else CachedModel(inner=model, path=model.cache_path, mode=model.cache)


@dataclass(kw_only=True)
class CachedModel(ChatModel):
    """A model whose replies are stored in a SQLite file.

    The key is the whole request (model, its server or file, messages, sampling parameters, schema) with the role and
    the sample index, so that k samples of one prompt are k replies. An AttemptOver is stored as well: a replay raises
    it again, while read_write calls the model again. Of another InfraError only the usage is stored, so that a replayed
    reply of a fallback (core/models/fallback.py) is charged to its episode like the recorded one.
    """

    inner: ChatModel
    path: str
    mode: str
    name: str = field(init=False)
    supports_schema: bool = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.supports_schema = self.inner.name, self.inner.supports_schema
        self._file = replies_file(self.path, read_only=self.mode == "replay")
        if self.mode == "replay":
            _check_recorded(self.path)

    def chat(self, request: Request) -> Reply:
        """The stored reply, else (read_write) the model's. Raises the error of `_missing` on a miss in replay."""
        key = self._key(request)
        if (text := self._file.get(key)) is not None:
            kept = json.loads(text)
            kept.pop(RECORDED, None)
            return Reply(**kept | {"usage": Usage(**kept["usage"]), "from_cache": True})
        if self.mode == "replay":
            raise self._missing(key, request)
        try:
            reply = self.inner.chat(request)
        except AttemptOver as error:
            paid = [vars(error.usage)] if error.usage else []
            self._file.put(f"{key} refused", self.name, request.role, json.dumps([str(error), error.kind, *paid]))
            raise
        except InfraError as error:
            if error.usage:
                self._file.put(f"{key} paid", self.name, request.role, json.dumps(vars(error.usage)))
            raise
        kept = {name: value for name, value in vars(reply).items() if name not in NOT_KEPT}
        kept = in_strings(kept, redactor().values)
        kept |= {"usage": vars(reply.usage), RECORDED: datetime.now(UTC).date().isoformat()}
        text = json.dumps(kept, sort_keys=True)  # ASCII: can store any text
        self._file.put(key, self.name, request.role, text)
        return reply

    def _key(self, request: Request) -> str:
        decoding = {name: getattr(request, name) for name in ("seed", "temperature", "max_tokens", "schema")}
        decoding |= {"more": request.more} if request.more else {}  # left out if empty, as in older caches
        return digest(self.inner.identity(), request.messages, request.role, request.sample, decoding)

    def _missing(self, key: str, request: Request) -> AttemptOver | StopRun:
        """The error of a replay without a stored reply: the stored AttemptOver, else a StopRun."""
        if refusal := self._file.get(f"{key} refused"):
            return _refused(*json.loads(refusal))
        missing = StopRun(
            f"llm.cache=replay: {self.path} holds no answer to this request of role {request.role}, "
            f"sample {request.sample}: its prompt, model or decoding differs from the recorded ones. To call the model "
            "for what is missing, and record it: llm.cache=read_write."
        )
        paid = self._file.get(f"{key} paid")
        missing.usage, missing.kept = Usage(**json.loads(paid)) if paid else None, True
        return missing

    @property
    def tokens_per_s(self) -> float | None:
        return self.inner.tokens_per_s

    def identity(self) -> dict[str, Any]:
        return self.inner.identity()

    def unsupported(self, more: dict[str, Any]) -> str | None:
        return self.inner.unsupported(more)

    def problem(self) -> str | None:
        """Replay needs no key and no server."""
        return None if self.mode == "replay" else self.inner.problem()

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return self.inner.price(prompt_tokens, completion_tokens)

    def close(self) -> None:
        self._file.close()
        self.inner.close()


def replies_file(path: str, read_only: bool = False) -> KeyValueFile:
    """The file of a cache of replies."""
    columns = "key TEXT PRIMARY KEY, model TEXT NOT NULL, role TEXT NOT NULL, reply TEXT NOT NULL"
    return KeyValueFile(path=path, what="the response cache", table="replies", columns=columns, read_only=read_only)


def recorded_by(path: str) -> tuple[str, str]:
    """(models, days) of the replies in a cache's file, for a sentence that says where replayed replies come from."""
    replies = replies_file(path, read_only=True)
    day = f"json_extract(reply, '$.{RECORDED}')"
    _check_recorded(path)
    asked = f"SELECT group_concat(DISTINCT model), min({day}), max({day}) FROM replies WHERE key NOT LIKE '% %'"
    models, *days = replies.execute(asked)
    replies.close()
    return (models or "").replace(",", ", "), " to ".join(dict.fromkeys(filter(None, days))) or "a day not noted"


def _check_recorded(path: str) -> None:
    if not Path(path).is_file():
        raise UserError(f"llm.cache=replay: {path} does not exist; record it first with llm.cache=read_write.")


def _refused(message: str, kind: str, paid: dict[str, Any] | None = None) -> AttemptOver:
    error = AttemptOver(message, kind)
    error.usage, error.kept = Usage(**paid) if paid else None, True
    return error


@dataclass(kw_only=True)
class CachedEmbedder(Embedder):
    """An embedder behind a cache, whose key is the sha256 of the embedder's name and the text.

    path    the cache's file, shared with later runs; None: in memory only
    mode    off (in memory only) | read_write | replay: a text that is not in the file ends the run; no model is loaded
    meter   logs and charges each call of the inner embedder, with the role "embedder"
    """

    inner: Embedder
    path: str | None = None
    mode: str = "read_write"
    meter: Meter = field(default_factory=Meter, repr=False)
    _memory: dict[str, bytes] = field(default_factory=dict, init=False, repr=False)
    _busy: dict[str, threading.Lock] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _views: dict[str, CachedEmbedder] = field(default_factory=dict, init=False, repr=False)  # by tenant

    def __post_init__(self) -> None:
        check_choice(self, "embedder", "mode", MODES)
        self.name = self.inner.name
        columns = "key TEXT PRIMARY KEY, vector BLOB NOT NULL"
        how: dict[str, Any] = {"what": "the embedding cache", "table": "embeddings", "columns": columns}
        how["read_only"] = self.mode == "replay"
        self._file = KeyValueFile(path=self.path, **how) if self.path and self.mode != "off" else None

    def reads(self, text: str) -> bool:
        return self.inner.reads(text)

    @property
    def long_texts(self) -> int:
        return self.inner.long_texts

    def of(self, tenant: str) -> CachedEmbedder:
        """As in Embedder, where the cache is in memory; one in a file is shared."""
        with self._lock:
            if tenant not in self._views:
                self._views[tenant] = CachedEmbedder(inner=self.inner, path=self.path, mode=self.mode, meter=self.meter)
            return self._views[tenant]

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        return self.embed(texts), Usage(), 0  # the meter has what was paid

    def embed(self, texts: list[str]) -> Any:
        """As in Embedder; the meter gets the usage of texts that are not in the cache."""
        import numpy as np

        if self.inner.batch > 1:
            self._embed_missing(texts)
        return np.stack([np.frombuffer(self._vector(text), dtype=np.float32) for text in texts])

    def _embed_missing(self, texts: list[str]) -> None:
        """Embed the texts that are not in the cache, one call per batch."""
        missing = {key: text for text in texts if self._kept(key := self._key(text)) is None}
        for start in range(0, len(missing), self.inner.batch):
            batch = dict(list(missing.items())[start : start + self.inner.batch])
            for key, vector in zip(batch, self._embed(list(batch.values()))):
                self._keep(key, vector)

    def _vector(self, text: str) -> bytes:
        """The text's vector as float32 bytes: from memory, else from the file, else embedded now."""
        key = self._key(text)
        with self._lock:
            busy = self._busy.setdefault(key, threading.Lock())
        with busy:  # threads with the same text wait for the first one
            vector = self._kept(key)
            if vector is None:
                [vector] = self._embed([text])
                self._keep(key, vector)
            self._memory[key] = vector
        with self._lock:
            self._busy.pop(key, None)
        return vector

    def _key(self, text: str) -> str:
        return hashlib.sha256(f"{self.name}\x1f{text}".encode("utf-8", "surrogatepass")).hexdigest()

    def _kept(self, key: str) -> bytes | None:
        return self._memory.get(key) or (self._file.get(key) if self._file else None)

    def _keep(self, key: str, vector: bytes) -> None:
        if self._file:
            self._file.put(key, vector)
        self._memory[key] = vector

    def _embed(self, texts: list[str]) -> list[bytes]:
        """The texts' vectors, by one call of the embedder. Raises StopRun in replay."""
        if self.mode == "replay":
            raise StopRun(
                f"embedder.mode=replay: {self.path} holds no vector of this text: {texts[0][:200]!r}. To embed what is "
                "missing, and record it: embedder.mode=read_write (embedder.mode follows llm.cache where an experiment "
                "replays a study)."
            )
        messages = [{"role": "user", "content": text} for text in texts]
        facts = {"role": "embedder", "task": "", "sample": 0, "requested": self.name, "messages": messages}
        with self.meter.call(facts) as answered:
            vectors, usage, retries = self.inner.measure(texts)
            answered(Reply(text="", usage=usage, finish_reason="stop", model=self.name, retries=retries))
        return [vector.tobytes() for vector in vectors]

    def close(self) -> None:
        """Close the cache's file and the inner embedder."""
        self.inner.close()
        if self._file:
            self._file.close()


@dataclass(kw_only=True)
class KeyValueFile:
    """A cache's file: one key-value table in SQLite, safe for several threads and processes.

    Opened, or created, at first use.

    what      the cache's name in error messages, e.g. "the response cache"
    table     the table's name
    columns   the SQL definitions of its columns: the first is `key TEXT PRIMARY KEY`, the last holds the value
    read_only  the file is not changed, and may stand where nothing can be written

    Every method may raise UserError if the file is damaged or not such a cache, and StopRun if the disk refuses.
    """

    path: str
    what: str
    table: str
    columns: str
    read_only: bool = False
    _db: Any = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def get(self, key: str) -> Any:
        """The value of a key: bytes or text, as it was put; None if there is none."""
        row = self.execute(f"SELECT * FROM {self.table} WHERE key = ?", key)
        return row and row[-1]

    def put(self, key: str, *values: Any) -> None:
        """Insert a row: a value for each column after the key. An existing row is not changed."""
        marks = ", ?" * len(values)
        self.execute(f"INSERT OR IGNORE INTO {self.table} VALUES (?{marks})", key, *values)

    def close(self) -> None:
        """Close the file; a later use opens it again."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def execute(self, sql: str, *values: Any) -> Any:
        """Execute a statement, in its own transaction, and return the first row of its result; None without rows."""
        try:
            with self._lock:
                self._db = self._db or self._open()
                return self._db.execute(sql, values).fetchone()
        except (sqlite3.OperationalError, OSError) as error:  # disk full, file locked or without permission
            raise StopRun(f"{self.what} {self.path} cannot be read or written: {why(error)}.") from error
        except sqlite3.DatabaseError as error:
            raise UserError(f"{self.what} {self.path} cannot be used: {error}; delete it.") from error

    def _open(self) -> sqlite3.Connection:
        if self.read_only:  # a file that nobody writes may be read without a lock, which would make files beside it
            fixed = "" if Path(f"{self.path}-wal").exists() else "&immutable=1"
            where = f"{Path(self.path).absolute().as_uri()}?mode=ro{fixed}"
            return sqlite3.connect(where, uri=True, timeout=30, check_same_thread=False, isolation_level=None)
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        check_locks(Path(self.path).parent)
        db = sqlite3.connect(self.path, timeout=30, check_same_thread=False, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")  # losing the last rows to a power cut costs a cache nothing
            db.execute(f"CREATE TABLE IF NOT EXISTS {self.table} ({self.columns})")
        except sqlite3.Error:
            db.close()
            raise
        return db
