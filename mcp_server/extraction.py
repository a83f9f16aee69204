"""From an attempt that a client sends to a record in the bank: judge it, distil lessons, store them.

`learn_attempt` does so for one attempt, or for several at one task. `QueueWorker` is the thread that does so for the
attempts in the bank's queue; one process at a time works on it. checks.py defines the form of a queued attempt.
"""

from __future__ import annotations

import logging
import re
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

from core.build import build_learner
from core.errors import InfraError, OverBudget, StopRun, TransientError, UserError
from core.learning.attempts import Attempts
from core.memory.bank import MemoryBank
from core.memory.by_hand import lookup
from core.memory.citations import cited
from core.memory.protocol import Did
from core.memory.records import short_id
from core.memory.store.contract import Busy
from core.memory.store.jobs import TRIES, Job
from core.types import Extraction, Scored, Step, Task, Trajectory, Verdict, content_id
from mcp_server import audit
from mcp_server.service import Service, clients_verdict, new_record

POLL_S = 2.0  # between polls of the queue: other processes put attempts there too
RETRY_S = 30.0  # before another try if the provider could not be reached
_ID = re.compile(r"\bid=([\w.:-]{1,64})")  # as retrieved lessons show their ids (mcp_server/texts.py)
_SHORT = re.compile(r"[0-9a-f]{8}(-\d+)?")  # what `short_id` makes of one; less of it may be another's by chance

log = logging.getLogger(__name__)


def learn_attempt(service: Service, bank: MemoryBank, job_id: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Judge an attempt unless the client did, distil lessons and store the record: the tool's result.

    Several attempts at a task are compared, and give one record. The same job again adds nothing.
    """
    id = content_id("extracted", job_id)
    if bank.get(id) is None:
        _store_lessons(service, bank, id, job_id, payload)
    else:
        service.consolidate(bank)  # a crash may have cut off the consolidation that was due then
    record = bank.get(id)
    extracted = [{"title": lesson.title, "description": lesson.description} for lesson in record.items]
    compared = {name: record.provenance[name] for name in ("best", "outcomes") if name in record.provenance}
    return {
        "success": record.outcome == "success",
        "extracted_count": len(extracted),
        "memories": extracted,
        **compared,
        **service.describe_stored(bank, id),
    }


def _store_lessons(service: Service, bank: MemoryBank, id: str, job_id: str, payload: dict[str, Any]) -> None:
    judge, extractor = service.roles()["judge"], service.roles()["extractor"]
    task, several = Task(id=content_id("task", payload["query"]), query=payload["query"]), "attempts" in payload
    judge.meter.begin(task.id)
    sent = _attempts_of(payload)
    shown = shown_records(bank, payload)
    judges = build_learner(service.cfg.judge, judge, service.cfg)

    def evaluate(attempts: Attempts) -> list[Verdict]:
        return [
            judges.judge(task, read) if each.get("success") is None else clients_verdict(each["success"])
            for read, each in zip(attempts.read(), sent, strict=True)
        ]

    trajectories = [as_trajectory(each, number) for number, each in enumerate(sent)]
    attempts = Attempts(task=task, trajectories=trajectories, evaluate=evaluate, memories=shown)
    verdicts, chosen, about = attempts.verdicts(), 0, {"model": extractor.llm.name}
    if several:
        chosen = _best(service, attempts, payload["pattern"])
        about |= {
            "best": chosen + 1,
            "outcomes": [verdict.label for verdict in verdicts],
            "pattern": payload["pattern"],
        }
    service.end_task(bank, payload, verdicts[chosen])
    if several:
        extraction = _contrast(service, attempts, payload["pattern"])
    else:
        distiller = build_learner(service.cfg.distiller, extractor, service.cfg)
        extraction = distiller.distil(task, attempts.read()[0], verdicts[0], shown, None)
    lessons = extraction.lessons
    about |= {"evidence": list(extraction.evidence)} if extraction.evidence is not None and not several else {}
    about |= {"notes": extraction.notes} if extraction.notes else {}
    if not lessons:
        raise UserError("the model's reply held no lesson that could be read.")
    made = trajectories[chosen].id
    record = new_record(bank, id, task.query, lessons, verdicts[chosen], trajectory_id=made, about=about)
    steps = [Did(step.action, step.observation) for trajectory in trajectories for step in trajectory.steps]
    service.add(bank, record, used_in(bank, payload, shown), steps, verdicts[chosen].confidence)
    if audit.is_sampled(job_id, service.settings.audit_share):
        audit.keep(bank.path, job_id, attempts.read()[chosen], verdicts[chosen], record)


def _best(service: Service, attempts: Attempts, pattern: str) -> int:
    """The number of the attempt that counts: the last of a sequence of revisions, else the one that is selected."""
    if pattern == "sequential":
        return len(attempts) - 1
    return build_learner(service.cfg.select, service.roles()["judge"], service.cfg).pick(attempts).index


def _contrast(service: Service, attempts: Attempts, pattern: str) -> Extraction:
    """The lessons from all attempts together. As in the paper without labels, unless contrast.labels=judge."""
    if service.cfg.contrast is None:
        raise UserError("contrast=null: this server compares no attempts; send each to extract_memory.")
    contrast = build_learner(service.cfg.contrast, service.roles()["extractor"], service.cfg)
    return (contrast.sequential if pattern == "sequential" else contrast.parallel)(attempts)


def _attempts_of(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """The attempts in a job's payload, which is one attempt {trajectory, success} or holds several."""
    return payload.get("attempts", [payload])


def as_trajectory(attempt: dict[str, Any], number: int = 0) -> Trajectory:
    """Convert a client's conversation to a Trajectory. number: the number of the attempt at its task.

    Each turn of the assistant is a step, the turns after it its observation. Turns before the assistant's first one are
    the observation of a step without an action. The metadata of a turn, also of the assistant's, is appended to the
    observation, where judge and distiller read it.
    """
    steps: list[Step] = []
    for turn in attempt["trajectory"]:
        content, seen = turn["content"], f"({turn['role']}) {turn['content']}"
        about = f"(metadata) {turn['metadata']}" if turn.get("metadata") else ""
        if turn["role"] == "assistant":
            steps.append(Step(text=content, thought="", action=content, observation=about))
            continue
        seen = f"{seen}\n{about}".strip()
        if not steps:
            steps.append(Step(text="", thought="", action="", observation=seen))
        else:
            steps[-1] = replace(steps[-1], observation=f"{steps[-1].observation}\n{seen}".strip())
    replies = [step.text for step in steps if step.text]
    return Trajectory(
        id=content_id("trajectory", attempt["trajectory"]),
        sample=number,
        opening=(),
        steps=tuple(steps),
        answer=replies[-1] if replies else None,
        ended_by="end",
        reward=0.0,
        success=False,
        gold="",
    )


def shown_records(bank: MemoryBank, payload: dict[str, Any]) -> list[Scored]:
    """Records of the bank's namespace whose ids occur in the conversation: their lessons must not be learned again."""
    text = "\n".join(turn["content"] for attempt in _attempts_of(payload) for turn in attempt["trajectory"])
    records = {}
    for id in list(dict.fromkeys(_ID.findall(text)))[:100]:
        with suppress(UserError):  # the beginning of several ids
            if record := bank.get(id) or bank.get(id.rpartition("-")[0]) or (_SHORT.fullmatch(id) and lookup(bank, id)):
                records[record.id] = record
    return [Scored(record=record, score=0.0) for record in records.values()]


def used_in(bank: MemoryBank, payload: dict[str, Any], shown: list[Scored]) -> tuple[str, ...]:
    """The ids of the shown records; with `memory.uses=cited` of those that the assistant cites by an id or a title."""
    if bank.uses != "cited":
        return tuple(hit.record.id for hit in shown)
    turns = [turn for attempt in _attempts_of(payload) for turn in attempt["trajectory"]]
    said = "\n".join(turn["content"] for turn in turns if turn["role"] == "assistant")
    names = [
        (place, id, item.title)
        for place, hit in enumerate(shown)
        for whole in (hit.record.id, short_id(hit.record.id))
        for number, item in enumerate(hit.record.items)
        for id in (whole, f"{whole}-{number}")
    ]
    matches = cited(said, [name[1:] for name in names], numbered=False)  # each retrieval numbers from 1
    return tuple(shown[place].record.id for place in sorted({names[number][0] for number in matches}))


class QueueWorker:
    """A thread that works on the queue while the server runs. The next server on the bank continues where it stops."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="extraction", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Poll the queue now, as something was added to it."""
        self._wake.set()

    def close(self) -> bool:
        """Stop after the current attempt; False if that takes more than a second."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = POLL_S
            try:
                pause = self._work()
            except UserError as error:  # the bank itself: a full disk, a damaged file
                log.error(f"the queue cannot be worked on: {error}")
            except Exception:
                log.exception("the queue cannot be worked on")
            # If the provider could not be reached, wait the whole pause, even if something is queued meanwhile.
            (self._wake if pause == POLL_S else self._stop).wait(pause)
            self._wake.clear()

    def _work(self) -> float:
        """Learn from the queued attempts, oldest first; returns the seconds to pause."""
        jobs = self.service.jobs
        if not (jobs.waiting() or jobs.retry_died()) or not jobs.lead():
            return POLL_S
        try:
            while not self._stop.is_set():
                if not jobs.leads():
                    log.warning("the queue's lock was lost, and another server may have it: it is asked for again")
                    break
                if (job := jobs.next()) is None:
                    break
                if not self._finish(job):
                    return RETRY_S
        finally:
            jobs.leave()
        return POLL_S

    def _finish(self, job: Job) -> bool:
        """Learn from one attempt; False if it stays in the queue for a later try."""
        try:
            bank = self.service.bank_of(job.namespace)
            result = learn_attempt(self.service, bank, job.id, job.payload)
            self.service.jobs.end(job.id, "completed", result, namespace=job.namespace)
        except (UserError, InfraError) as error:
            why = self.service.said(error)
            # A key, the provider, a bank that others write to or the budget of all: no attempt could succeed now.
            if isinstance(error, StopRun | Busy) or (isinstance(error, OverBudget) and error.whole_run):
                log.warning(f"extraction {job.id} and those after it wait: {why}")
                self.service.jobs.requeue(job.id, why, namespace=job.namespace)
                return False
            if isinstance(error, TransientError) and job.tries + 1 < TRIES:
                log.warning(f"extraction {job.id} is tried again: {why}")
                return False
        except Exception as error:
            log.exception(f"extraction {job.id} failed")
            why = f"{type(error).__name__} in the server, see its log"
        else:
            return True
        self.service.jobs.end(job.id, "failed", {"error": why[:2000]}, namespace=job.namespace)
        return True
