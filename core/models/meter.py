"""The meter: every call is written to calls.jsonl, added up by role, and held to the budgets."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field, fields
from typing import Any

from core.errors import InfraError, OverBudget, StopRun, UserError
from core.jsonl import JsonLines
from core.types import Usage, content_id


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of a run or of an episode; None is no limit. A call that would begin beyond one is refused.

    calls    answers asked for (retries of one answer count once)
    tokens   prompt + completion
    usd      money; needs a known price
    wall_s   seconds
    """

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    wall_s: float | None = None

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None and value <= 0:
                raise UserError(f"budget: {limit.name}={value} allows nothing; give a positive number, or null.")

    def reached(self, spent: Usage, wall_s: float) -> str | None:
        """ "tokens=1000 (1034 used)" for the first limit that is used up, else None."""
        used = {
            "calls": spent.calls,
            "tokens": spent.prompt_tokens + spent.completion_tokens,
            "usd": spent.cost_usd,
            "wall_s": wall_s,
        }
        for name, value in used.items():
            limit = getattr(self, name)
            if limit is not None and value is not None and value >= limit:
                return f"{name}={limit} ({value:.6g} used)"
        return None


@dataclass(kw_only=True)
class _Account:
    """What was spent on an episode, by one role or (None) by all."""

    spent: Usage
    began: float
    role: str | None


@dataclass(kw_only=True)
class Meter:
    """Counts and logs the calls of one run. Thread-safe.

    The run's budget counts what was really spent, over all starts and roles. The episode's holds one role, or all. It
    also counts replies that came out of the response cache, so that a replayed run ends its episodes where the first
    one did.
    """

    run: Budget = field(default_factory=Budget)
    episode: Budget = field(default_factory=Budget)
    log: JsonLines | None = None
    wall_s: float = 0.0  # spent by earlier starts
    _totals: dict[str, dict] = field(default_factory=lambda: defaultdict(_nothing), init=False)
    _spent: Usage = field(default=Usage(), init=False)
    _episodes: dict[str, _Account] = field(default_factory=dict, init=False)
    _stopped: dict[str, str] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        for row in self.log.read() if self.log else ():
            self._count(row)

    def begin(self, task: str, spent: Usage | None = None, role: str | None = None) -> None:
        """An episode starts. spent: in an earlier start, that was killed. role: the only one its budget holds."""
        with self._lock:
            self._episodes[task] = _Account(spent=spent or Usage(), began=time.monotonic(), role=role)
            self._stopped.pop(task, None)

    def exhausted(self) -> str | None:
        """Which limit of the run's budget is used up, in words; None when calls may go on."""
        reached = self.run.reached(self._spent, self.wall_s + time.monotonic() - self._began)
        return reached and f"budget.run.{reached}"

    def stopped(self, task: str) -> str | None:
        """Why a call of this episode was refused on the run's account; None when none was."""
        return self._stopped.get(task)

    def check(self, task: str, role: str) -> None:
        """Raise OverBudget when this role may make no further call for this episode."""
        with self._lock:
            if reason := self.exhausted():
                self._stopped[task] = reason
                raise OverBudget(reason, whole_run=True)
            account = self._episodes.get(task)  # an embedding belongs to none
            if account is None or account.role not in (None, role):
                return
            if reached := self.episode.reached(account.spent, time.monotonic() - account.began):
                raise OverBudget(f"budget.episode.{reached}", whole_run=False)

    def add(self, facts: dict[str, Any], reply: Any, latency_s: float) -> None:
        """An answer: facts are {role, task, sample, requested, messages}."""
        self._write(
            facts,
            latency_s,
            {
                "model": reply.model,
                "text": reply.text,
                "reasoning": reply.reasoning,
                "finish_reason": reply.finish_reason,
                "usage": vars(reply.usage),
                "retries": reply.retries,
                "sent": reply.sent,
                "from_cache": reply.from_cache,
                "error": None,
            },
        )
        self._charge(facts, reply.usage, reply.from_cache)

    def failed(self, facts: dict[str, Any], error: InfraError, latency_s: float) -> None:
        """A call that brought no answer, after its retries."""
        row = {"retries": getattr(error, "retries", 0), "error": f"{error.kind}: {error}", "usage": None}
        self._write(facts, latency_s, row)

    def totals(self) -> dict[str, dict[str, Any]]:
        """By role and in total, over all starts: what the calls really used (replies out of the cache are apart)."""
        with self._lock:
            by_role = {role: dict(sums) for role, sums in sorted(self._totals.items())}
        whole = _nothing()
        for sums in by_role.values():
            _add_up(whole, sums)
        return {role: _rounded(sums) for role, sums in {**by_role, "total": whole}.items()}

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def _write(self, facts: dict[str, Any], latency_s: float, result: dict[str, Any]) -> None:
        messages = facts["messages"]
        row = {"schema": 1, **facts, "messages": content_id(messages), "n_messages": len(messages), **result}
        row["latency_s"] = round(latency_s, 4)
        row["ended"] = round(time.time(), 3)
        with self._lock:
            if self.log is not None:
                self.log.append(row)
            self._count(row)

    def _count(self, row: dict[str, Any]) -> None:
        sums = _nothing()
        sums["errors" if row["error"] else "from_cache" if row["from_cache"] else "calls"] += 1
        sums["retries"], sums["latency_s"] = row["retries"], row["latency_s"]
        if row["usage"] and not row["from_cache"]:
            for name in ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cost_usd"):
                sums[name] = row["usage"][name]
            self._spent += Usage(**row["usage"])
        _add_up(self._totals[row["role"]], sums)

    def _charge(self, facts: dict[str, Any], usage: Usage, from_cache: bool) -> None:
        with self._lock:
            account = self._episodes.get(facts["task"])
            if account is not None and account.role in (None, facts["role"]):
                account.spent += usage
        priced = self.episode.usd is not None or (self.run.usd is not None and not from_cache)
        if priced and usage.cost_usd is None:
            raise StopRun("budget: usd cannot be held, the model's price is unknown; give llm.price_per_mtok.")


def _nothing() -> dict[str, Any]:
    return {
        "calls": 0,
        "errors": 0,
        "from_cache": 0,
        "retries": 0,
        "prompt_tokens": 0,
        "cached_tokens": 0,
        "completion_tokens": 0,
        "reasoning_tokens": 0,
        "cost_usd": 0.0,
        "latency_s": 0.0,
    }


def _add_up(into: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        # An unknown price makes the sum unknown: it is never counted as nothing.
        into[name] = None if value is None or into[name] is None else into[name] + value


def _rounded(sums: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in sums.items()}
