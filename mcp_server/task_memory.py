"""The memory of one task of `reasoningbank run`: what is recalled before its command, and learned from it after."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from core.build import build_learner
from core.errors import UserError, check_numbers
from core.learning.judges import heuristic_verdict
from core.learning.transcript import without_lessons
from core.memory.citations import cited
from core.memory.filter import Filter
from core.memory.long_texts import both_ends
from core.memory.protocol import Did
from core.memory.records import short_id
from core.models.reply_text import without_surrogates
from core.types import UNJUDGED, Lesson, Scored, Task, Trajectory, Verdict, content_id
from mcp_server.best_effort import BestEffort
from mcp_server.extraction import as_trajectory
from mcp_server.run_command import CommandResult, passes
from mcp_server.service import Service, configuration, new_record, open_service
from mcp_server.texts import memory_prompt

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

K = 3  # lessons to retrieve, unless settings, preset or options say otherwise
UNLESS_SET = [f"retrieval.top_k={K}"]
MODEL_KEY = re.compile(r"\+*(?:\w+_)?llm[=.]")  # overrides that choose a model or say something about it
SENTENCE = re.compile(r"[.!?]\s+|[\n。！？]\s*")  # the end of one
CLOSING = 2_000  # characters kept of the command's last paragraph


@dataclass(kw_only=True)
class TaskMemory:
    """The bank for one task: retrieves lessons before the command, and learns from its result."""

    given: argparse.Namespace
    task: str
    best_effort: BestEffort
    known: dict[str, Any] = field(default_factory=dict)  # the verdict, as soon as there is one
    _service: Service | None = None
    _cfg: Any = None
    _model_until: float = 0.0  # time.monotonic() until when a model may be asked; then the attempt is learned without

    def retrieve(self) -> list[Scored]:
        """Retrieve the records for the task, and count them as shown."""
        bank = self.bank()
        if not len(bank):  # nor is the embedder loaded then, which takes seconds
            return []
        where = Filter(domain=self.given.domain) if self.given.domain else None  # `same` and the like are names, too
        hits = bank.retrieve(self.query, bank.policy.top_k if self.given.k is None else self.given.k, where=where)
        self.service().count_shown(bank, [hit.record.id for hit in hits])
        return hits

    def text(self, hits: list[Scored]) -> str:
        """The lessons as text for a prompt; "" without any."""
        if not hits:
            return ""
        settings = self.service().settings
        return memory_prompt(hits, settings.max_memory_chars, settings.prompt_style)

    @property
    def query(self) -> str:
        """The task's text, its two ends if it is longer than server.max_query_chars."""
        return both_ends(without_surrogates(self.task), self.service().settings.max_query_chars)

    def cfg(self) -> Any:
        """The configuration; raises the errors of `configuration`."""
        if self._cfg is None:
            self._cfg = configuration(self.given, UNLESS_SET)
        return self._cfg

    def is_off(self) -> bool:
        """Whether the settings switch memory off, and the command line does not switch it on."""
        try:
            return not (self.cfg().enabled or self.given.enable_memory)
        except UserError:  # said when the bank is opened
            return False

    def kept_attempts(self) -> int:
        """How many attempts are kept (`run.attempts`); none if the configuration is wrong."""
        if self._cfg is None:
            return 0
        check_numbers(self._cfg.run, "run", "attempts", least=0, whole=True)
        return self._cfg.run.attempts

    def service(self) -> Service:
        """The service of the bank, opened at the first call; raises the errors of `open_service`."""
        if self._service is None:
            try:
                self._service = open_service(self.given, cfg=self.cfg())
            except UserError as error:
                others = [word for word in self.given.overrides if not MODEL_KEY.match(word)]
                if others == self.given.overrides:
                    raise
                self.given.overrides, self._cfg = others, None
                self._service = open_service(self.given, cfg=self.cfg())  # raises what is wrong besides
                self.best_effort.warn("model", f"{str(error)[:400]} What is said about a model is left out.")
        return self._service

    def bank(self) -> MemoryBank:
        return self.service().bank_for(self.given.agent_id)

    def learn(self, hits: list[Scored], done: CommandResult) -> dict[str, Any]:
        """Judge the attempt, distil lessons and store them: {success, verdict, confidence, learned}.

        If the bank sets the record aside at once, as a copy of a shown one or as suspect, it is under `set_aside`.
        Where nothing was learned, `why_not` says why.
        """
        service, bank = self.service(), self.bank()
        self._model_until = time.monotonic() + self.given.learn_timeout
        if service.has_model:
            print(f"memory: the model judges and distils, in at most {self.given.learn_timeout:g} s", file=sys.stderr)
        task = Task(id=content_id("task", self.query), query=self.query)
        payload = {"query": self.query, "trajectory": turns(self.task, done)}
        attempt = without_lessons(as_trajectory(payload), hits)
        verdict = self._verdict(task, attempt, done)
        outcome = {"confidence": verdict.confidence, "learned": []}
        outcome["verdict"] = {
            "label": verdict.label,
            "confidence": verdict.confidence,
            "reason": verdict.reason,
            "source": verdict.source,
        }
        if verdict.label is None:
            return outcome | {"why_not": "the attempt was not judged"}
        outcome["success"] = verdict.label == "success"
        self.known = dict(outcome)  # should nothing be learned
        lessons, source = self._lessons(task, attempt, verdict, hits, done)
        if lessons:
            id = content_id("run", bank.namespace, payload, bank.history.seq())
            about = {"source": "reasoningbank run", "by": source}
            record = new_record(bank, id, self.query, lessons, verdict, trajectory_id=attempt.id, about=about)
            used = tuple(hit.record.id for hit in hits)
            steps = [Did(step.action, step.observation) for step in attempt.steps]
            service.add(bank, replace(record, domain=self.given.domain), used, steps, verdict.confidence)
            stored = service.describe_stored(bank, id)
            outcome["note"] = stored.get("note")
            if stored["state"] == "active":
                outcome["learned"] = [id]
                title = " / ".join(item.title for item in bank.existing(id).items)
                about = {"verdict": verdict.label, "confidence": verdict.confidence}
                outcome["new_memories"] = [{"id": id, "title": title, **about}]
            else:
                outcome |= {"set_aside": stored, "why_not": f"the lesson is {stored['state']}"}
        else:
            outcome["why_not"] = source
        return outcome

    def _verdict(self, task: Task, attempt: Trajectory, done: CommandResult) -> Verdict:
        """The verdict; by the heuristic judge where the model that should judge fails."""
        service, judge = self.service(), self.given.judge
        judge = judge or ("llm" if service.has_model else "heuristic")
        if self.given.check:
            passed = passes(self.given.check, ".", self.given.check_timeout)
            self._model_until = time.monotonic() + self.given.learn_timeout  # which the check took nothing of
            return Verdict(label="success" if passed else "failure", source="check", reason=f"by {self.given.check}")
        if judge == "exit-code":
            label = "success" if done.status == 0 else "failure"
            return Verdict(label=label, source="exit_code", reason=f"exit status {done.status}")
        if judge == "none":
            return UNJUDGED
        if judge == "llm":

            def ask() -> Verdict:
                return build_learner(service.cfg.judge, service.roles()["judge"], service.cfg).judge(task, attempt)

            if verdict := self._by_model("judge", ask, "The heuristic judges instead."):
                return verdict
            self._model_until = 0.0  # it would not distil either
        said = {"role": "assistant", "content": f"{done.output}\n{done.errors}"}  # all of it is what it printed
        return heuristic_verdict(as_trajectory({"trajectory": [said]}), exit_status=done.status)

    def _lessons(
        self, task: Task, attempt: Trajectory, verdict: Verdict, hits: list[Scored], done: CommandResult
    ) -> tuple[tuple[Lesson, ...], str]:
        """(lessons, their author), or ((), why there are none).

        By the model; where there is none, with --closing-words the closing words, but of a success only if the bank has
        no lesson of its task.
        """
        service = self.service()
        if service.has_model and self._model_until:

            def ask() -> tuple[tuple[Lesson, ...], str]:
                role = service.roles()["extractor"]
                distiller = build_learner(service.cfg.distiller, role, service.cfg)
                return distiller.distil(task, attempt, verdict, hits, None).lessons, role.llm.name

            kept = (
                "The closing words are kept." if self.given.closing_words else "--closing-words keeps the last words."
            )
            found = self._by_model("distil", ask, kept)
            if found and not found[0]:
                raise UserError("the model's reply held no lesson that could be read")
            if found:
                return found
        if not self.given.closing_words:
            return (), "no model distils it: give llm=NAME, or --closing-words to store its last paragraph"
        if verdict.label == "success" and self.bank().of_query(task.query):
            return (), "a success, and the bank has a lesson of this task"
        lesson = closing_words(self.task, done)
        return ((lesson,), "closing words") if lesson else ((), "the command printed nothing")

    def _by_model(self, step: str, ask: Callable[[], Any], otherwise: str) -> Any:
        """What a model says; None, with a warning, if it cannot be called, fails or takes too long."""
        found = self.best_effort.do(step, max(self._model_until - time.monotonic(), 0.0), ask, otherwise)
        self.best_effort.step = "learn"
        return found

    def close(self) -> None:
        """Wait for background work, and close the bank."""
        if self._service is not None:
            self._service.close()


def turns(task: str, done: CommandResult) -> list[dict[str, Any]]:
    """The run as a conversation: the task, the command's output, and its errors with the exit status."""
    ended = f"exit status {done.status}"
    return [
        {"role": "user", "content": task},
        {"role": "assistant", "content": done.output.strip() or "(nothing was printed)"},
        {"role": "tool", "content": f"{done.errors[-CLOSING:].strip()}\n{ended}".strip()},
    ]


def closing_words(task: str, done: CommandResult) -> Lesson | None:
    """The last paragraph of the command's output as a lesson; None if it printed nothing."""
    paragraphs = [text.strip() for text in re.split(r"\n\s*\n", done.output) if text.strip()]
    if not paragraphs:
        return None
    title = " ".join(task.split())[:80]
    return Lesson(title=title, description=f"The last words after: {title}", content=last_words(paragraphs[-1]))


def last_words(text: str) -> str:
    """The end of a text, at most CLOSING characters, from the beginning of a sentence, or at least of a word, on."""
    if len(text) <= CLOSING:
        return text
    end = text[-CLOSING:]
    begin = SENTENCE.search(end) or re.search(r"\s", end)
    return end[begin.end() :] if begin else end


def used_of(hits: list[Scored], done: CommandResult) -> list[str]:
    """Ids of the records whose lessons the command's output cites, by number, id or title."""
    lessons = [(hit.record.id, lesson.title) for hit in hits for lesson in hit.record.items]
    shown = [(short_id(id), title) for id, title in lessons]
    return list(dict.fromkeys(lessons[place][0] for place in sorted(cited(done.output, shown))))
