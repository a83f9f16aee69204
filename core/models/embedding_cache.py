"""A cache in front of any embedder: a text is embedded once, in this run and, with a path, in all later ones."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from core.models.base import Reply
from core.models.embedding import MeasuredEmbedder
from core.models.key_value import KeyValueFile
from core.models.meter import Meter


@dataclass(kw_only=True)
class CachedEmbedder:
    """Another embedder behind a cache keyed by name and the text's sha256; path None keeps it in memory.

    meter: every text that is really embedded is logged and charged as a call of the role "embedder", several in one
    call where the embedder has a `batch` of more than 1.
    """

    inner: MeasuredEmbedder
    path: str | None = None
    meter: Meter = field(default_factory=Meter, repr=False)
    _memory: dict[str, bytes] = field(default_factory=dict, init=False, repr=False)
    _busy: dict[str, threading.Lock] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _ahead: ThreadPoolExecutor | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.name = self.inner.name
        self.former_name = getattr(self.inner, "former_name", None)
        columns = "key TEXT PRIMARY KEY, vector BLOB NOT NULL"
        self._file = self.path and KeyValueFile(
            path=self.path, what="the embedding cache", table="embeddings", columns=columns
        )

    def embed(self, texts: list[str]) -> Any:
        """As in Embedder; what it took is told to the meter."""
        import numpy as np

        if (size := getattr(self.inner, "batch", 1)) > 1:
            self._embed_missing(texts, size)
        return np.stack([np.frombuffer(self._vector(text), dtype=np.float32) for text in texts])

    def _embed_missing(self, texts: list[str], size: int) -> None:
        """Embed those of the texts that are not known yet, `size` of them in one call."""
        missing = {key: text for text in texts if self._known(key := self._key(text)) is None}
        for start in range(0, len(missing), size):
            part = dict(list(missing.items())[start : start + size])
            for key, vector in zip(part, self._embed(list(part.values()))):
                self._keep(key, vector)

    def prefetch(self, text: str) -> None:
        """Embed in the background what will soon be asked for. An error is raised by the `embed` that asks for it."""
        with self._lock:
            self._ahead = self._ahead or ThreadPoolExecutor(1, thread_name_prefix="embed")
        self._ahead.submit(self._vector, text)

    def _vector(self, text: str) -> bytes:
        """The text's vector as float32 bytes: out of memory, else out of the file, else embedded now."""
        key = self._key(text)
        with self._lock:
            busy = self._busy.setdefault(key, threading.Lock())
        with busy:  # threads that want the same text wait for the first; those that want others do not
            vector = self._known(key)
            if vector is None:
                [vector] = self._embed([text])
                self._keep(key, vector)
            self._memory[key] = vector
        with self._lock:
            self._busy.pop(key, None)
        return vector

    def _key(self, text: str) -> str:
        return hashlib.sha256(f"{self.name}\x1f{text}".encode("utf-8", "surrogatepass")).hexdigest()

    def _known(self, key: str) -> bytes | None:
        return self._memory.get(key) or (self._file.get(key) if self._file else None)

    def _keep(self, key: str, vector: bytes) -> None:
        if self._file:
            self._file.put(key, vector)
        self._memory[key] = vector

    def _embed(self, texts: list[str]) -> list[bytes]:
        """The texts' vectors, by one call of the embedder."""
        messages = [{"role": "user", "content": text} for text in texts]
        facts = {"role": "embedder", "task": "", "sample": 0, "requested": self.name, "messages": messages}
        with self.meter.call(facts) as answered:
            vectors, usage, retries = self.inner.measure(texts)
            answered(Reply(text="", usage=usage, finish_reason="stop", model=self.name, retries=retries))
        return [vector.tobytes() for vector in vectors]

    def close(self) -> None:
        """Close the cache's file, and what the embedder holds."""
        if hasattr(self.inner, "close"):
            self.inner.close()
        if self._ahead is not None:
            self._ahead.shutdown(cancel_futures=True)
        if self._file:
            self._file.close()
