"""The frozen dataclasses that parts pass to each other and write to disk."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from core.errors import check_choice

Message = dict[str, str]  # {"role": "system" | "user" | "assistant", "content": text}
MEMORY = re.compile(r"<memory_items>.*?</memory_items>", re.DOTALL)  # the retrieved lessons in a message
CANDIDATE = "quarantined"  # status of a record that waits for its trial (memory.validate)
NOT_TAKEN = "(the episode is over: no action was taken)"  # the observation of a step that is only a note on an attempt


def digest(*parts: Any) -> str:
    """The sha256, in hex, of JSON data and dataclasses."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True, default=asdict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def content_id(*parts: Any) -> str:
    """A 16-digit hex id that depends only on the content, so that identical runs have the same ids."""
    return digest(*parts)[:16]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task of a benchmark, without its answer, which only the env knows."""

    id: str  # stable and unique over all benchmarks, e.g. "math500/test/algebra/1.json"; never a position
    query: str  # what is asked; lessons are stored and retrieved by it
    type: str = ""  # the benchmark's own category, for breakdowns
    visit: int = 0  # number of the stream's pass, from 0 (stream.passes)

    @property
    def seeded_by(self) -> tuple[str, ...]:
        """The names from which the seeds of its calls are derived; in later passes with the pass's number."""
        return (self.id, f"pass {self.visit + 1}") if self.visit else (self.id,)


def types_before(tasks: Sequence[tuple[str, str]], batch: int = 1) -> list[tuple[str, ...]]:
    """For each (id, type) in the order of a stream: the types of the other tasks in the batches before its own, sorted.

    A task of type "" has none.
    """
    found: list[tuple[str, ...]] = []
    seen: dict[str, set[str]] = {}
    for start in range(0, len(tasks), batch):
        together = tasks[start : start + batch]
        found += [tuple(sorted(kind for kind, ids in seen.items() if ids - {task})) for task, _ in together]
        for task, kind in together:
            if kind:
                seen.setdefault(kind, set()).add(task)
    return found


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens and cost of some calls. A number is None if any part of it is unknown; so is every sum with it."""

    calls: int = 0
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    cached_tokens: int | None = 0  # part of prompt_tokens that the provider had cached
    reasoning_tokens: int | None = 0  # part of completion_tokens that the model spent on reasoning
    cost_usd: float | None = 0.0

    @property
    def tokens(self) -> int | None:
        """Prompt and completion tokens."""
        return total((self.prompt_tokens, self.completion_tokens))

    def __add__(self, other: Usage) -> Usage:
        theirs = vars(other)
        sums: dict[str, Any] = {
            name: None if value is None or theirs[name] is None else value + theirs[name]
            for name, value in vars(self).items()
        }
        return Usage(**sums)


def total(numbers: Iterable[Any]) -> Any:
    """The sum of numbers; None, which is unknown, if one of them is."""
    found = tuple(numbers)
    return None if None in found else sum(found)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One turn: the model's text, the thought and action read from it, the env's observation."""

    text: str
    thought: str
    action: str
    observation: str
    valid: bool = True  # False if no action could be parsed or the env did not know it
    finish_reason: str = "stop"  # others: see REPLY_ENDS in core/learning/transcript.py
    hint_chars: int = 0  # length of a hint at the observation's end that only the agent sees, e.g. a list of commands

    @property
    def observation_without_hint(self) -> str:
        """The observation as the judge and the distiller see it."""
        return self.observation[: -self.hint_chars].rstrip() if self.hint_chars else self.observation


# Values of `ended_by` for an attempt that reached a limit by its own doing (core/errors.py, AttemptOver): it is judged,
# counted and learned from.
CUT_OFF = ("budget", "context", "content_filter", "time")


@dataclass(frozen=True, kw_only=True)
class Recalled:
    """A record that an attempt was shown at a step after its first one (`retrieval.when`), at its observation's end.

    step      number of the step whose observation it stands in, from 1
    n_items   lessons of the record; n_shown: how many of them fitted into the prompt
    items     the lessons that were shown
    changed   they are not those that the bank holds
    """

    step: int
    id: str
    score: float
    n_items: int
    n_shown: int
    items: tuple[Lesson, ...]
    changed: bool = False


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One attempt at a task. `opening` and the steps together are the whole conversation.

    Judges, selectors and distillers are handed copies in which what the setting does not tell them is None.
    """

    id: str
    sample: int  # which of the k rollouts
    opening: tuple[Message, ...]
    steps: tuple[Step, ...]
    answer: str | None
    ended_by: str  # goal | end (over, not solved) | step_limit | stuck | one of CUT_OFF | infra_error
    reward: float | None  # sum over the steps
    success: bool | None  # by the env's own evaluation; in setting=test_time only metrics use it
    gold: str | None  # the env's reference answer; in setting=test_time only metrics use it
    info: dict[str, Any] = field(default_factory=dict)  # plain facts of the env's last step: score, parse rule, ...
    usage: Usage = Usage()
    error: str | None = None  # the error, as "kind: message"; for an attempt in CUT_OFF the limit's message
    recalled: tuple[Recalled, ...] = ()  # what it was shown after its opening

    @property
    def unstated(self) -> bool:
        """Whether the env found that the attempt states no answer; `answer` may be what it found in the text."""
        return self.info.get("stated") is False

    @property
    def tampered(self) -> bool:
        """Whether the env found that the attempt forged its result: a failure, whatever the result said."""
        return bool(self.info.get("tampered"))

    @property
    def has_output(self) -> bool:
        """Whether the model said anything at all."""
        return any(step.text.strip() for step in self.steps)


def trajectory_id(task_id: str, made: Trajectory) -> str:
    """The id of an attempt, which depends only on the task and on what was said and done.

    Two names are hashed as schema 1 had them, so that runs made then and now have the same ids.
    """
    steps = [{"aside" if name == "hint_chars" else name: value for name, value in vars(s).items()} for s in made.steps]
    ended_by = "error" if made.ended_by == "infra_error" else made.ended_by
    return content_id(task_id, made.sample, made.opening, steps, ended_by)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A judge's label for an attempt, which may be wrong."""

    label: str | None  # success | failure | None (not judged)
    source: str  # llm | heuristic | oracle | consensus | self_consistency | none
    confidence: float | None = None  # in [0, 1]: the probability that the label is right; None: the judge gives none
    reason: str = ""
    parsed: bool = True  # False: the judge's reply could not be read and counts as failure
    confidence_parsed: bool = True  # False: the judge's confidence was requested and is unreadable
    truncated: bool = False  # the reply was cut off by its token limit
    error: str | None = None  # an error while judging, as "judge: kind: message"; then there is no label
    usage: Usage = Usage()

    def __post_init__(self) -> None:
        check_choice(self, "a judge's Verdict", "label", ("success", "failure", None))


UNJUDGED = Verdict(label=None, source="none")


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """The paper's memory item: a title, a one-sentence description and content (section 3.2)."""

    title: str
    description: str
    content: str

    @property
    def text(self) -> str:
        """Title, description and content as one text."""
        return f"{self.title}\n{self.description}\n{self.content}"


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """The lessons that a distiller made from some attempts."""

    lessons: tuple[Lesson, ...] = ()
    n_dropped: int = 0  # items that were unreadable, beyond the maximum or cut off
    n_truncated: int = 0  # replies cut off by their token limit
    attempts: tuple[int, ...] = ()  # the attempts they come from; (): all of them
    evidence: tuple[int, ...] | None = None  # the steps they rest on, from 1; None: the distiller does not say
    notes: str = ""  # what the model said of several attempts before the lessons; "": not kept
    error: str | None = None  # an error while distilling, as "extractor: kind: message"
    usage: Usage = Usage()


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which of several attempts is the task's answer."""

    index: int
    by: str  # bon | first | judge | majority | only (no other left) | last (round) | kept (last that stated an answer)
    reason: str = ""
    parsed: bool = True  # False: no readable reply, so the first unbroken attempt is taken
    truncated: bool = False  # the reply was cut off by its token limit
    error: str | None = None  # an error while selecting, as "selector: kind: message"
    usage: Usage = Usage()


@dataclass(frozen=True, kw_only=True)
class MemoryRecord:
    """One experience in the bank: stored and retrieved as a unit, keyed by the embedding of its query."""

    id: str
    original_query: str
    query_embedding: Sequence[float] = field(repr=False, default=())  # unit length, array("f"); filled in by the bank
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
    n_used: int = 0  # how often an agent was shown it
    n_used_success: int = 0  # how often the attempt was then judged a success
    n_helpful: int = 0  # how often it was marked helpful
    n_harmful: int = 0
    last_used: float | None = None  # by the bank's clock: tick, or seconds since 1970
    trust: float = 1.0  # in [0, 1]: the minimum of its own and its parents'
    parents: tuple[str, ...] = ()  # ids of the records it was merged from
    provenance: dict[str, Any] = field(default_factory=dict)  # run, models, workflow, its k or r; attempts, evidence

    @property
    def text(self) -> str:
        """All lessons as one text, for embedding, comparing and searching."""
        return "\n".join(item.text for item in self.items)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A retrieved record and the score that ranked it.

    similarity   cosine similarity of the query and the record's key; None if the record was found by words
    """

    record: MemoryRecord
    score: float
    similarity: float | None = None
    warning: str = ""  # shown with each of its lessons; "" for none
    rewritten: bool = False  # its lessons are not those of the bank, which holds them under the same id
    usage: Usage | None = None  # of the model that rewrote them; None: none did
    fell_back: bool = False  # that model's reply could not be used, and a rule rewrote them


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One finished task: a line of episodes.jsonl. Contains nothing that differs between identical runs."""

    index: int
    task_id: str
    task_type: str
    query: str
    status: str  # success | failure | infra_error | stopped (by the run's budget; runs again when the run is continued)
    reward: float
    verdict: Verdict
    # {id, score, n_items, n_shown: how many of its items the prompt had room for, n_cited: with memory.uses=cited,
    # items: its lessons, where they were rewritten; step, sample: where an attempt was shown it later, see Recalled}
    retrieved: tuple[dict, ...]
    trajectories: tuple[Trajectory, ...]
    chosen: int  # which of them is the answer
    verdicts: tuple[Verdict, ...]  # one for each attempt; `verdict` is the answer's
    selection: Selection | None  # how the answer was chosen; None where there is one attempt
    lessons: tuple[Lesson, ...]
    n_dropped: int
    n_truncated: int
    usage: dict[str, Usage]  # per role
    learning_errors: tuple[str, ...]  # errors of the judge, the selector and the extractor
    records: tuple[MemoryRecord, ...]  # what this episode adds to the bank, without embeddings; the answer's first
    # candidates that were tried on earlier tasks after this one (memory.validate, workflows/validate.py)
    validated: tuple[dict, ...] = ()
    schema: int = 2
    retries: int | None = None  # an index, not a count: this is a retry of the task of that first episode
