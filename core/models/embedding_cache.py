"""A cache in front of any embedder: a text is embedded once, in this run and, with a path, in all later ones."""

from __future__ import annotations

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError
from core.models.base import Reply
from core.models.embedding import Embedder
from core.models.meter import Meter
from core.types import Usage


@dataclass(kw_only=True)
class CachedEmbedder:
    """Another embedder behind a cache keyed by name and the text's sha256; path None keeps it in memory.

    meter: every text that is really embedded is logged and charged as a call of the role "embedder".
    """

    inner: Embedder
    path: str | None = None
    meter: Meter = field(default_factory=Meter, repr=False)
    _memory: dict[str, bytes] = field(default_factory=dict, init=False, repr=False)
    _busy: dict[str, threading.Lock] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _db: Any = field(default=None, init=False, repr=False)
    _ahead: ThreadPoolExecutor | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.name = self.inner.name

    def embed(self, texts: list[str]) -> Any:
        import numpy as np

        return np.stack([np.frombuffer(self._blob(text), dtype=np.float32) for text in texts])

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        """As `embed`: what it took goes to the meter."""
        return self.embed(texts), Usage(), 0

    def expect(self, text: str) -> None:
        """Begin to embed what will soon be asked for, while the caller waits for a model. `embed` raises its errors."""
        with self._lock:
            self._ahead = self._ahead or ThreadPoolExecutor(1, thread_name_prefix="embed")
        self._ahead.submit(self._blob, text)

    def _blob(self, text: str) -> bytes:
        key = hashlib.sha256(f"{self.name}\x1f{text}".encode("utf-8", "surrogatepass")).hexdigest()
        with self._lock:
            busy = self._busy.setdefault(key, threading.Lock())
        with busy:  # one thread embeds a text, others that want the same wait; different texts do not
            with self._lock:
                blob = self._get(key)
            if blob is None:
                blob = self._embed(text)
                with self._lock:
                    self._put(key, blob)
        with self._lock:
            self._busy.pop(key, None)
        return blob

    def _embed(self, text: str) -> bytes:
        self.meter.check("", "embedder")
        began = time.perf_counter()
        message = {"role": "user", "content": text}
        facts = {"role": "embedder", "task": "", "sample": 0, "requested": self.name, "messages": [message]}
        try:
            vectors, usage, retries = self.inner.measure([text])
        except InfraError as error:
            self.meter.failed(facts, error, time.perf_counter() - began)
            raise
        reply = Reply(text="", usage=usage, finish_reason="stop", model=self.name, retries=retries)
        self.meter.add(facts, reply, time.perf_counter() - began)
        return vectors[0].tobytes()

    def _get(self, key: str) -> bytes | None:
        if key not in self._memory and self.path is not None:
            row = self._open().execute("SELECT vector FROM embeddings WHERE key = ?", (key,)).fetchone()
            if row:
                self._memory[key] = row[0]
        return self._memory.get(key)

    def _put(self, key: str, blob: bytes) -> None:
        self._memory[key] = blob
        if self.path is not None:
            with self._open() as db:
                db.execute("INSERT OR IGNORE INTO embeddings VALUES (?, ?)", (key, blob))

    def _open(self) -> Any:
        import sqlite3

        if self._db is None:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=30, check_same_thread=False)
            try:
                db.execute("PRAGMA journal_mode=WAL")
                db.execute("CREATE TABLE IF NOT EXISTS embeddings (key TEXT PRIMARY KEY, vector BLOB NOT NULL)")
            except sqlite3.DatabaseError as error:
                db.close()
                raise UserError(f"the embedding cache {self.path} cannot be used: {error}; delete it.") from error
            self._db = db
        return self._db

    def close(self) -> None:
        """Close the cache's file, and what the embedder holds."""
        if hasattr(self.inner, "close"):
            self.inner.close()
        if self._ahead is not None:
            self._ahead.shutdown(cancel_futures=True)
        if self._db is not None:
            self._db.close()
            self._db = None
