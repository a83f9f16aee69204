"""What travels between the parts and to disk: frozen data, no behaviour."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

Message = dict[str, str]  # {"role": "system" | "user" | "assistant", "content": text}


def content_id(*parts: Any) -> str:
    """A 16-digit hex id that depends on the content alone, so that two identical runs agree on it."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True, default=asdict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One item of a benchmark, as the agent may see it: the env keeps the answer."""

    id: str  # stable and unique over all benchmarks, e.g. "math500/test/algebra/1.json"; never a position
    query: str  # what is asked; the key under which memory is stored and retrieved
    type: str = ""  # the benchmark's own category, for breakdowns


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens and money of some calls. cost_usd is None when any part of it is unknown."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # part of prompt_tokens that the provider had cached
    reasoning_tokens: int = 0  # part of completion_tokens that the model spent thinking aloud
    cost_usd: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=self.cost_usd + other.cost_usd if known else None,
        )


@dataclass(frozen=True, kw_only=True)
class Step:
    """One turn: what the model wrote, what was read out of it, what the env answered."""

    text: str
    thought: str
    action: str
    observation: str
    valid: bool = True  # False when no action could be read or the env did not know it
    finish_reason: str = "stop"  # "length": the reply was cut off
    aside: int = 0  # characters at the observation's end that tell nothing of what happened: a list of commands

    @property
    def happened(self) -> str:
        """The observation as the judge and the distiller are shown it."""
        return self.observation[: -self.aside].rstrip() if self.aside else self.observation


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One attempt at a task. `opening` + the steps give back the whole conversation."""

    id: str
    sample: int  # which of the k rollouts
    opening: tuple[Message, ...]
    steps: tuple[Step, ...]
    answer: str | None
    ended_by: str  # goal | end (over, not solved) | step_limit | stuck | budget | error
    reward: float  # sum over the steps
    success: bool  # the env's truth; in setting=test_time it reaches metrics only
    gold: str  # likewise
    info: dict[str, Any] = field(default_factory=dict)  # plain facts of the env's last step: score, parse rule, ...
    usage: Usage = Usage()
    error: str | None = None  # what broke, as "kind: message", when ended_by is error; which limit, when it is budget

    @property
    def said(self) -> bool:
        """Whether the model said anything at all."""
        return any(step.text.strip() for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the learner believes about an attempt."""

    label: str | None  # success | failure | None (nobody judged)
    source: str  # llm | oracle | none
    confidence: float | None = None  # in [0, 1]; None when the judge gives none
    reason: str = ""
    parsed: bool = True  # False: the judge's reply could not be read and counts as failure
    truncated: bool = False  # the reply was cut off by its token limit
    usage: Usage = Usage()


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A memory item: the paper's title, one-sentence description and content (section 3.2)."""

    title: str
    description: str
    content: str


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """What a distiller made of some attempts."""

    lessons: tuple[Lesson, ...] = ()
    n_dropped: int = 0  # items that did not parse, were over the limit or were cut off
    n_truncated: int = 0  # replies cut off by their token limit
    attempt: int | None = None  # which attempt it was made of; None: of several, and it goes by the answer's verdict
    usage: Usage = Usage()


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which of several attempts is the task's answer."""

    index: int
    by: str  # bon | first | judge | majority | only (no other was left) | last (of sequential rounds)
    reason: str = ""
    parsed: bool = True  # False: the selector's reply could not be read, or none came; the first whole attempt is taken
    truncated: bool = False  # the reply was cut off by its token limit
    usage: Usage = Usage()


@dataclass(frozen=True, kw_only=True)
class MemoryRecord:
    """One experience of the bank: the unit that is retrieved, keyed by its query's embedding."""

    id: str
    original_query: str
    query_embedding: tuple[float, ...] = field(repr=False, default=())  # unit length; filled in by the bank
    items: tuple[Lesson, ...]
    source_trajectory_id: str
    score: float  # the judge's, in [0, 1]: 1 a success, 0 a failure
    outcome: str  # success | failure, as judged
    label_source: str
    task_id: str
    namespace: str = "default"
    created_at: str = ""  # ISO time of the add; wall clock, so outside every comparison of runs
    tick: int = 0  # position in the stream that made it
    status: str = "active"  # active | quarantined | archived | superseded; only active ones are retrieved
    domain: str = ""  # a subject within the namespace, e.g. a task type
    tags: tuple[str, ...] = ()
    confidence: float | None = None  # in [0, 1]; None: never rated, policies take the prior of its outcome
    n_used: int = 0  # how often it was put before an agent
    n_used_success: int = 0  # and the attempt was then judged a success
    n_helpful: int = 0  # marked helpful by hand or by a policy
    n_harmful: int = 0
    last_used: int | None = None  # the clock's tick at the last use
    trust: float = 1.0  # in [0, 1]: the least of its own and its parents'
    parents: tuple[str, ...] = ()  # ids of the records it was merged from
    provenance: dict[str, Any] = field(default_factory=dict)  # run, task, trajectory hash, models, label source


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A retrieved record and the score that ranked it."""

    record: MemoryRecord
    score: float
    warning: str = ""  # shown with each of its lessons, where the policy gives one


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One finished task: a line of episodes.jsonl. Holds nothing that differs between two identical runs."""

    index: int
    task_id: str
    task_type: str
    query: str
    status: str  # success | failure | infra_error | stopped (by the run's budget; done again when the run goes on)
    reward: float
    verdict: Verdict
    retrieved: tuple[dict, ...]  # {id, score}
    trajectories: tuple[Trajectory, ...]
    chosen: int = 0  # which of them is the answer
    verdicts: tuple[Verdict, ...] = ()  # one an attempt, where there are several
    selection: Selection | None = None  # how the answer was chosen, where there are several attempts
    lessons: tuple[Lesson, ...]
    n_dropped: int
    n_truncated: int = 0
    usage: dict[str, Usage]  # per role
    errors: tuple[str, ...] = ()  # what broke beside the attempt itself (judge, extractor)
    record: MemoryRecord | None = None  # what this episode adds to the bank, without its embedding
    other_records: tuple[MemoryRecord, ...] = ()  # from attempts beside the answer, where each is distilled alone
    schema: int = 1
