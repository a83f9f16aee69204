"""Batches of retrievals from several clients: one pass of the embedder, and for each namespace one transaction that
counts the shown records.

Requests that arrive while a batch is made form the next one: no request waits for a batch to fill. The result does not
depend on the other requests in the batch, see core/models/minilm.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from core.memory.bank import MemoryBank
from core.models.embedding import MINILM, NamedEmbedder
from core.types import Usage

RECENT = 256  # cached vectors: a query is embedded with its batch, then needed again in one or two searches

Retrieved = tuple[Any, list[str]]  # a tool's result, and the ids of the records that it shows and that count as used


@dataclass(kw_only=True)
class SharedEmbedder(NamedEmbedder):
    """A NamedEmbedder for many clients: MiniLM embeds texts on all cores, and the last vectors are cached.

    model   the embedder that this one is a tenant's view of (`of`); None: it is none
    """

    model: SharedEmbedder | None = field(default=None, repr=False)
    _recent: OrderedDict[str, Any] = field(default_factory=OrderedDict, init=False, repr=False)
    _views: dict[str, SharedEmbedder] = field(default_factory=dict, init=False, repr=False)  # by tenant

    def of(self, tenant: str) -> SharedEmbedder:
        with self._lock:
            if tenant not in self._views:
                self._views[tenant] = SharedEmbedder(name=self.name, model=self)
            return self._views[tenant]

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        return super().measure(texts) if self.model is None else self.model.measure(texts)

    def embed(self, texts: list[str]) -> Any:
        import numpy as np

        found = {text: row for text in texts if (row := self._recent.get(text)) is not None}
        if missing := [text for text in dict.fromkeys(texts) if text not in found]:
            new = dict(zip(missing, self.measure(missing)[0], strict=True))
            found |= new
            self._keep(new)
        return np.stack([found[text] for text in texts])

    def _keep(self, new: dict[str, Any]) -> None:
        with self._lock:
            self._recent.update(new)
            while len(self._recent) > RECENT:
                self._recent.popitem(last=False)

    def embed_ahead(self, asked: list[tuple[SharedEmbedder, str]]) -> None:
        """Embed texts for these views in one pass if that is cheaper. Errors are ignored: `embed` will raise them."""
        if self.name == MINILM:
            with suppress(Exception):
                each_once = {(id(view), text): (view, text) for view, text in asked}.values()
                missing = [(view, text) for view, text in each_once if text not in view._recent]
                rows = self.measure([text for _, text in missing])[0] if missing else ()
                for (view, text), row in zip(missing, rows, strict=True):
                    view._keep({text: row})


@dataclass(kw_only=True)
class _Pending:
    """A retrieval that a client waits for.

    make     searches and formats: (result, ids of the shown records)
    answer   the future that the client awaits
    """

    bank: MemoryBank
    query: str
    make: Callable[[], Retrieved]
    answer: asyncio.Future = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    result: Any = None
    shown: list[str] = field(default_factory=list)
    error: Exception | None = None

    def deliver(self) -> None:
        """Set the answer; must run in the thread of its event loop."""
        if self.answer.done():  # its client has gone
            return
        if self.error is None:
            self.answer.set_result(self.result)
        else:
            self.answer.set_exception(self.error)


class Retrievals:
    """Makes retrievals in batches, in one thread: they would wait for each other in the bank anyway.

    Another thread counts the shown records while the next batch is made. An answer is sent after it was counted.

    most          max. retrievals in a batch
    count         counts records of a bank as shown, {id: number of times}; returns False if that failed
    embed_ahead   embeds the queries of a batch together; the searches then find the vectors cached. None: each search
                  embeds its own query
    """

    def __init__(
        self,
        most: int,
        count: Callable[[MemoryBank, dict[str, int]], bool],
        embed_ahead: Callable[[list[tuple[Any, str]]], None] | None,
    ) -> None:
        self._most, self._count, self._embed_ahead = most, count, embed_ahead
        self._waiting: deque[_Pending] = deque()
        self._made: deque[_Pending] = deque()
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="retrieval")
        self._counter = ThreadPoolExecutor(1, thread_name_prefix="retrieval-count")
        self.made = self.batches = 0

    async def retrieve(self, bank: MemoryBank, query: str, make: Callable[[], Retrieved]) -> Any:
        """The result of `make`, called as part of a batch after the batch's queries were embedded together."""
        pending = _Pending(bank=bank, query=query, make=make)
        self._waiting.append(pending)
        self._maker.submit(self._make_next)
        return await pending.answer

    def _make_next(self) -> None:
        """Make the waiting retrievals, if any are left: an earlier call may have made them already."""
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
        if batch := [pending for pending in batch if not pending.answer.cancelled()]:  # whose client still waits
            self._make(batch)
            self._made.extend(batch)
            self._counter.submit(self._finish)

    def _make(self, batch: list[_Pending]) -> None:
        if self._embed_ahead is not None and len(batch) > 1:
            self._embed_ahead([(pending.bank.embedder, pending.query) for pending in batch])
        for pending in batch:
            try:
                pending.result, pending.shown = pending.make()
            except Exception as error:  # noqa: BLE001 - is raised where the client awaits it
                pending.error = error
        self.made, self.batches = self.made + len(batch), self.batches + 1

    def _finish(self) -> None:
        """Count and send the answers that are made by now, if any: an earlier call may have done so already."""
        if not (done := [self._made.popleft() for _ in range(len(self._made))]):
            return
        shown: dict[str, tuple[MemoryBank, Counter[str]]] = {}  # by namespace
        for pending in done:
            _, times = shown.setdefault(pending.bank.namespace, (pending.bank, Counter()))
            times.update(dict.fromkeys(pending.shown, 1))
        try:
            self._count_each(list(shown.values()))
        except Exception as error:  # noqa: BLE001 - else the clients would wait for ever
            for pending in done:
                pending.error = pending.error or error
        _deliver(done)

    def _count_each(self, shown: list[tuple[MemoryBank, Counter[str]]]) -> None:
        """Count the shown records of each bank. Stop at the first failure, or each further bank would cause a wait."""
        for bank, times in shown:
            if not self._count(bank, times):
                return

    def close(self) -> None:
        self._maker.shutdown()
        self._counter.shutdown()


def _deliver(done: list[_Pending]) -> None:
    """Send answers, waking each event loop only once: waking it takes longer than to set an answer."""
    loops = defaultdict(list)
    for pending in done:
        loops[pending.answer.get_loop()].append(pending)
    for loop, theirs in loops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits in it
            loop.call_soon_threadsafe(lambda theirs=theirs: [pending.deliver() for pending in theirs])
