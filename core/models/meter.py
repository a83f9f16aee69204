"""The meter: logs every call to calls.jsonl, sums usage by role, and enforces the budgets."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from core.errors import InfraError, OverBudget, StopRun, UserError
from core.jsonl import JsonLines
from core.types import Task, Usage, content_id

# Columns of calls.jsonl that come from the Reply, in the file's order. (`_TOKENS`: columns of the totals.)
_REPLY = "model text reasoning finish_reason usage retries sent from_cache".split()
_WHERE_GIVEN = ("provider", "system_fingerprint")  # further columns, if the provider reports them
_WHERE_FAILED = ("fallback", "failed")  # further columns, if a fallback answered
# Further columns, if a reply's token counts tell of a fault of its server, and how their number is called.
_WHERE_ODD = {"prompt_cut": "n_prompts_cut", "usage_corrected": "n_usage_corrected"}
_AGENT = ("agent", "embedder")  # roles whose prompts are in episodes.jsonl already
_PASS = "\x1f"  # separator in an account's name between task id and pass
_TOKENS = "prompt_tokens cached_tokens completion_tokens reasoning_tokens".split()


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of a run or of an episode; None: no limit. Once a limit is reached, every further call is refused.

    calls    number of calls (retries do not count)
    tokens   prompt + completion tokens
    usd      cost in USD; needs a known price
    wall_s   wall-clock seconds
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
        """The first limit that is reached, as text like "tokens=1000 (1034 used)"; None if none is."""
        used = {"calls": spent.calls, "tokens": spent.tokens, "usd": spent.cost_usd, "wall_s": wall_s}
        for name, value in used.items():
            limit = getattr(self, name)
            if limit is not None and value is not None and value >= limit:
                return f"{name}={limit} ({value:.6g} used)"
        return None


def account_of(task: Task) -> str:
    """The account that a task's calls are charged to: its id, in a later pass (stream.passes) followed by the pass."""
    return _PASS.join(task.seeded_by)


@dataclass(kw_only=True)
class _Account:
    """Usage and start time of a running episode."""

    spent: Usage
    began: float
    role: str | None  # the only role whose calls count; None: all roles


@dataclass(kw_only=True)
class Meter:
    """Counts and logs the calls of one run, and enforces its budgets. Thread-safe.

    The run's budget counts the real usage of all roles since the first start of the run. The episode's budget applies
    to one role or to all, and also counts replies from the response cache, so that a replayed run ends its episodes
    where the recorded one did.

    log       calls.jsonl; its existing lines are counted. None: no log
    prompts   prompts.jsonl: {id, messages} of each prompt except the agent's, once each; a line of the log refers to
              `id` as `messages`. None: no such file
    wall_s    wall-clock seconds of earlier starts of the run
    """

    run: Budget = field(default_factory=Budget)
    episode: Budget = field(default_factory=Budget)
    log: JsonLines | None = None
    prompts: JsonLines | None = None
    wall_s: float = 0.0
    _used: dict[str, Usage] = field(default_factory=lambda: defaultdict(Usage, total=Usage()), init=False)  # by role
    _counts: dict[str, Counter] = field(default_factory=lambda: defaultdict(Counter), init=False)  # likewise
    _fallbacks: Counter = field(default_factory=Counter, init=False)  # calls answered by each model of llm.fallbacks
    _odd: Counter = field(default_factory=Counter, init=False)  # replies with each of `_WHERE_ODD`
    _served: dict[str, Counter] = field(default_factory=lambda: defaultdict(Counter), init=False)  # by requested model
    _episodes: dict[str, _Account] = field(default_factory=dict, init=False)
    _stopped: dict[str, str] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _prompting: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)  # of `prompts`

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        for row in self.log.read() if self.log else ():
            self._count(row)
        self._kept = {row["id"] for row in self.prompts.read()} if self.prompts else set()

    @classmethod
    def over(cls, rows: Iterable[dict[str, Any]]) -> Meter:
        """A meter that has counted the rows of a calls.jsonl."""
        meter = cls()
        for row in rows:
            meter._count(row)
        return meter

    def begin(self, task: str, spent: Usage | None = None, role: str | None = None) -> None:
        """Start counting an episode.

        task    its account (`account_of`), which its calls pass as `task`
        spent   its usage in an earlier start that was killed
        role    the only role that its budget applies to; None: all roles
        """
        with self._lock:
            self._episodes[task] = _Account(spent=spent or Usage(), began=time.monotonic(), role=role)
            self._stopped.pop(task, None)

    def release(self, task: str) -> None:
        """Stop applying the episode's budget to this account; the run's budget still applies."""
        with self._lock:
            self._episodes.pop(task, None)

    def exhausted(self) -> str | None:
        """The limit of the run's budget that is reached, as text; None if none is."""
        reached = self.run.reached(self._used["total"], self.wall_s + time.monotonic() - self._began)
        return reached and f"budget.run.{reached}"

    def stopped(self, task: str) -> str | None:
        """The limit of the run's budget that refused a call of this account; None if no call was refused."""
        return self._stopped.get(task)

    @contextmanager
    def call(self, facts: dict[str, Any]) -> Iterator[Callable[[Any], None]]:
        """A context for one call, which is timed and logged. Pass the Reply to the function that the context yields.

        facts   {role, task, sample, requested, messages}; task "" belongs to no episode

        Raises OverBudget before the call. An InfraError within is logged as a failed call with its usage, and raised.
        """
        self.check(facts["task"], facts["role"])
        began = time.perf_counter()
        try:
            yield lambda reply: self.add(facts, reply, time.perf_counter() - began)
        except InfraError as error:
            paid = vars(error.usage) if error.usage and not error.kept else None
            row = {"retries": error.retries, "error": f"{error.kind}: {error}", "usage": paid}
            self._write(facts, time.perf_counter() - began, row)
            if error.usage:
                self._charge(facts, error.usage, error.kept)
            raise

    def check(self, task: str, role: str) -> None:
        """Raise OverBudget if this role may make no further call for this account."""
        with self._lock:
            if reason := self.exhausted():
                self._stopped[task] = reason
                raise OverBudget(reason, whole_run=True)
            account = self._episodes.get(task)  # None for an embedding, which belongs to no episode
            if account is None or account.role not in (None, role):
                return
            if reached := self.episode.reached(account.spent, time.monotonic() - account.began):
                raise OverBudget(f"budget.episode.{reached}", whole_run=False)

    def add(self, facts: dict[str, Any], reply: Any, latency_s: float) -> None:
        """Log and charge a reply; `facts` as in `call`. Raises StopRun if a budget in USD or tokens cannot be held."""
        row = {name: getattr(reply, name) for name in _REPLY} | {"usage": vars(reply.usage), "error": None}
        row |= {name: value for name in (*_WHERE_GIVEN, *_WHERE_FAILED, *_WHERE_ODD) if (value := getattr(reply, name))}
        row |= {"paid": vars(reply.paid)} if reply.paid else {}
        self._write(facts, latency_s, row)
        self._charge(facts, reply.usage, reply.from_cache and reply.paid is None)

    def totals(self) -> dict[str, dict[str, Any]]:
        """{role or "total": counts, tokens and cost} over all starts. Replies from the cache are counted separately."""
        with self._lock:
            roles = (*sorted(self._used.keys() - {"total"}), "total")
            return {role: _sums(self._counts[role], self._used[role]) for role in roles}

    def drift(self) -> dict[str, dict[str, int]]:
        """{requested model: {served model: calls}} over all starts, for models not served the same in all calls.

        The served model is its name, with the provider behind a router and the system's fingerprint if reported.
        """
        with self._lock:
            return {asked: dict(served) for asked, served in sorted(self._served.items()) if len(served) > 1}

    def has_answered(self, requested: str) -> bool:
        """Whether a requested model has answered a call, over all starts."""
        return requested in self._served

    def fallbacks(self) -> dict[str, int]:
        """{model of llm.fallbacks: calls that it answered}, over all starts."""
        with self._lock:
            return dict(sorted(self._fallbacks.items()))

    def odd(self) -> dict[str, int]:
        """{n_prompts_cut, n_usage_corrected}: replies with odd token counts, over all starts."""
        with self._lock:
            return {count: self._odd[name] for name, count in _WHERE_ODD.items()}

    def close(self) -> None:
        for file in (self.log, self.prompts):
            if file is not None:
                file.close()

    def _write(self, facts: dict[str, Any], latency_s: float, result: dict[str, Any]) -> None:
        messages = facts["messages"]
        row = {"schema": 1, **facts, "messages": content_id(messages), "n_messages": len(messages), **result}
        row["task"] = row["task"].partition(_PASS)[0]
        row["latency_s"] = round(latency_s, 4)
        row["ended"] = round(time.time(), 3)
        if self.prompts is not None and row["role"] not in _AGENT:
            with self._prompting:
                if row["messages"] not in self._kept:
                    self.prompts.append({"id": row["messages"], "messages": messages})  # before the line that names it
                    self._kept.add(row["messages"])
        if self.log is not None:
            self.log.append(row)
        with self._lock:
            self._count(row)

    def _count(self, row: dict[str, Any]) -> None:
        kind = "errors" if row["error"] else "from_cache" if row["from_cache"] else "calls"
        paid = row.get("paid") if row.get("from_cache") else row["usage"]
        used = Usage(**paid) if paid else Usage()
        if not row["error"]:
            who = (row["model"], *(row[name] for name in _WHERE_GIVEN if row.get(name)))
            fallback = row.get("fallback")
            self._served[fallback or row["requested"]][" ".join(who)] += 1
            self._fallbacks.update([fallback] if fallback else [])
        self._odd.update(name for name in _WHERE_ODD if row.get(name))
        for name in (row["role"], "total"):
            self._used[name] += used
            self._counts[name].update({kind: 1, "retries": row["retries"], "latency_s": row["latency_s"]})

    def _charge(self, facts: dict[str, Any], usage: Usage, from_cache: bool) -> None:
        with self._lock:
            account = self._episodes.get(facts["task"])
            if account is not None and account.role in (None, facts["role"]):
                account.spent += usage
        priced = self.episode.usd is not None or (self.run.usd is not None and not from_cache)
        if priced and usage.cost_usd is None:
            raise StopRun("budget: usd cannot be held, the model's price is unknown; give llm.price_per_mtok.")
        counted = self.episode.tokens is not None or (self.run.tokens is not None and not from_cache)
        if counted and usage.calls and not usage.tokens and facts["role"] != "embedder":
            who = facts["requested"]
            raise StopRun(f"budget: tokens cannot be held, {who} reports no numbers of tokens; give a budget of calls.")


def _sums(counts: Counter, used: Usage) -> dict[str, Any]:
    sums = {name: counts[name] for name in ("calls", "errors", "from_cache", "retries")}
    sums |= {name: getattr(used, name) for name in _TOKENS}
    cost = None if used.cost_usd is None else round(used.cost_usd, 6)
    return sums | {"cost_usd": cost, "latency_s": round(float(counts["latency_s"]), 6)}
