"""Retrieval from an open bank, and the searches by which its policy ranks. A pure read."""

from __future__ import annotations

import logging
from collections import Counter
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

from core.errors import UserError
from core.memory.filter import Filter
from core.memory.keyed import Keyed
from core.memory.lexical import WordSearch
from core.memory.moment import Moment
from core.memory.ports import OTHER, SAME, SEEN
from core.memory.ranking import ranked
from core.memory.store.contract import Search
from core.memory.store.hits import best_of_each, each_item_once, in_order, scored
from core.memory.store.keys import JOINED, QUERY
from core.types import Scored

log = logging.getLogger(__name__)


class Retrieval(Keyed):
    """What MemoryBank finds for a query, in its namespace and those of its `group`."""

    group: tuple[str, ...]
    allow_self: bool
    unit: str
    query_instruction: str | None
    clock: str
    provenance: dict[str, Any]
    counts: Counter[str]
    _search: Search
    _words: WordSearch

    def of(self, namespace: str) -> Self:
        """A view of the same open bank for another namespace; only the original may be closed."""
        other = copy(self)
        other.namespace, other._store, other.group = namespace, self._store.of(namespace), ()
        return other

    def mates(self) -> list[Self]:
        """A view for each namespace of `group`."""
        return [self.of(name) for name in self.group]

    def moment(self) -> Moment:
        """The current time on the bank's clock."""
        return Moment(tick=self.tick() if self.clock == "stream" else None, at=datetime.now(UTC))

    def retrieve(
        self,
        query: str,
        top_k: int | None = None,
        exclude_task: str | None = None,
        where: Filter | None = None,
        domain: str | tuple[str, ...] | None = None,
    ) -> list[Scored]:
        """The records that the policy chooses for a query, best first, with those of `group`. Never writes.

        top_k    None: the policy's
        domain   domain of the task, for `retrieval.domain=same` and `other`, or those seen, for `seen`; None: not
                 known, records of all domains are searched
        """
        top_k = self.policy.top_k if top_k is None else top_k
        if top_k <= 0:
            return []
        if self.group:
            return self._together(
                [one.retrieve(query, top_k, exclude_task, where, domain) for one in self._with_mates()], top_k
            )
        return self._retrieved(query, top_k, exclude_task, where, domain)

    def _retrieved(
        self,
        query: str,
        top_k: int,
        exclude_task: str | None = None,
        where: Filter | None = None,
        domain: str | tuple[str, ...] | None = None,
    ) -> list[Scored]:
        """`retrieve` from the bank's own namespace."""
        if domain is not None and self.policy.domain == OTHER:
            domain = tuple(each for each in self.domains() if each != domain)
        if domain is not None and self.policy.domain in (SAME, SEEN, OTHER):
            where = where or Filter()
            where = replace(where, domain=domain) if where.domain is None else where
        return ranked(self, self.policy, query, top_k, exclude_task, where)

    def _asked(self, query: str) -> str:
        """What is embedded to search for a query."""
        return f"Instruct: {self.query_instruction}\nQuery: {query}" if self.query_instruction else query

    def _with_mates(self) -> list[Self]:
        return [self.of(self.namespace), *self.mates()]

    def _together(self, found: list[list[Scored]], top_k: int) -> list[Scored]:
        """Of what was found in each namespace the best, and of lessons that are the same the best one."""
        best: dict[Any, Scored] = {}
        for hit in sorted((hit for hits in found for hit in hits), key=lambda hit: -hit.score):
            best.setdefault(hit.record.items, hit)
        least = self.policy.of_best * next((hit.score for hit in best.values()), 0.0)
        return [hit for hit in best.values() if max(hit.score, 0.0) >= least][:top_k]

    def say_unread(self) -> None:
        """Warn once that the embedder does not read a language that it is used for."""
        self.counts["language_warnings"] += 1
        if self.counts["language_warnings"] == 1:
            option = "retrieval.other_languages_by_words"
            by_words = f"are retrieved by words ({option}), no threshold applies to them"
            by_cosine = f"have cosines that say little ({option}=true: they are retrieved by words)"
            log.warning(
                f"the embedder {self.embedder.name} understands only English: texts in other languages "
                f"{by_words if self.policy.other_languages_by_words else by_cosine}, and nothing is merged by meaning. "
                "One that reads them: embedder=openai, or embedder=huggingface with a multilingual "
                "embedder.inner.model, e.g. intfloat/multilingual-e5-small (docs/memory.md)."
            )

    def retrieve_and_count(self, query: str, top_k: int, where: Filter | None = None) -> tuple[list[Scored], int]:
        """(the records retrieved, how many of the top_k best ones were left out because of min_score)."""
        if self.group:
            found = [one.retrieve_and_count(query, top_k, where) for one in self._with_mates()]
            kept = self._together([hits for hits, _ in found], top_k)
            return kept, min(sum(n for _, n in found), top_k - len(kept))
        policy = self.policy
        by_words = policy.other_languages_by_words and policy.by_meaning and not self.embedder.reads(query)
        if policy.min_score is None or by_words:
            return self.retrieve(query, top_k, where=where), 0
        policy = copy(policy)
        policy.min_score = None
        without_threshold = ranked(self, policy, query, top_k, None, where)
        n_removed = len(without_threshold) - len(self.policy.good_enough(without_threshold))
        must_rerank = n_removed or self.policy.rank_based
        return (self.retrieve(query, top_k, where=where) if must_rerank else without_threshold), n_removed

    def nearest(
        self,
        query: Any,
        k: int,
        exclude_task: str | None = None,
        where: Filter | None = None,
        unit: str | None = None,
        key: str | None = None,
    ) -> list[Scored]:
        """The k records with the highest cosine to a query, of those that pass `where`, none from exclude_task.

        query       a text, or its unit vector, float32 (d,)
        where       None: all active records of the bank's namespace
        unit, key   instead of the bank's; None: the bank's
        """
        vector = query
        # The query is embedded even if the bank is empty, so that a broken embedder fails before the attempt. The form
        # of the instruction is the one that embedders of instructions are trained on.
        if isinstance(query, str):
            vector = self.embedder.embed([self._asked(query)])[0]
        where, unit, key = self._within(where), unit or self.unit, key or self.key
        exclude = None if self.allow_self else exclude_task or None
        if key not in self._kinds:
            raise UserError(f"the bank {self.path} has no keys of kind {key}: open it with memory.key={key}.")
        kinds = (QUERY, key) if key == JOINED and self._lacks_keys else (key,)
        wanted = k
        while True:
            hits = self._search.nearest(vector, wanted, where, exclude, kinds=kinds, distinct=unit == "record")
            if unit == "record":
                return scored(best_of_each(in_order(hits)), unit)[:k]
            found = each_item_once(scored(in_order(hits), unit))  # an item may be found by several keys
            if len(found) >= k or len(hits) < wanted:
                return found[:k]
            wanted *= 4

    def lexical(
        self, query: str, k: int, exclude_task: str | None = None, where: Filter | None = None, **how: bool
    ) -> list[Scored]:
        """The k records whose query and items best match any words of a text: BM25 (core/memory/lexical.py).

        how   parts: also compare parts of words, which inflected forms share
              share: BM25 as a share of the most that the query's words could give
        """
        if k <= 0:
            return []
        where, exclude = self._within(where), None if self.allow_self else exclude_task or None
        return scored(self._words.best(query, k, where, exclude, **how), "record", by_words=True)

    def _within(self, where: Filter | None) -> Filter:
        """The filter with the bank's namespace filled in, if it names none."""
        where = where or Filter()
        return where if where.namespace is not None else replace(where, namespace=self.namespace)
