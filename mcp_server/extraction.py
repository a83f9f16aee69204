"""From an attempt that a client sends to a record in the bank: judge it, distil it, store what it teaches."""

from __future__ import annotations

import argparse
import json
import logging
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.build import build_learner
from core.errors import InfraError, OverBudget, StopRun, TransientError, UserError
from core.jsonl import JsonLines, read_lines
from core.learning.attempts import Attempts
from core.learning.transcript import cut, transcript
from core.memory.bank import MemoryBank
from core.memory.citations import cited
from core.memory.hygiene.scrub import scrub
from core.memory.moment import now
from core.memory.store.contract import Busy
from core.memory.store.jobs import TRIES, Job
from core.models.reply_text import storable
from core.types import Lesson, MemoryRecord, Scored, Step, Task, Trajectory, Verdict, content_id, digest
from mcp_server import checks
from mcp_server.config import bank_file
from mcp_server.service import Service, clients_verdict, describe_stored, new_record, recalled

_ID = re.compile(r"\bid=([\w.:-]{1,64})")  # as retrieved lessons show their ids (mcp_server/texts.py)
_LONGEST = 9_000  # characters of a credential: a private key has the most


def check_attempt(trajectory: list[dict[str, Any]], query: str, limits: Any) -> dict[str, Any]:
    """The attempt as it waits in the queue: {query, trajectory}. UserError where it is empty or too long.

    A step is {role, content}, with `metadata` as JSON text where it has any: scrubbed, and cut at a limit of its own.

    limits   the section `server` of config/mcp.yaml
    """
    query = checks.text("query", query, limits.max_query_chars)
    if not trajectory:
        raise UserError("trajectory is empty: give the steps of the attempt.")
    size = sum(len(turn["content"]) for turn in trajectory)
    if size > limits.max_trajectory_chars or len(trajectory) > limits.max_trajectory_steps:
        raise UserError(
            f"the trajectory has {len(trajectory)} steps and {size} characters: give at most "
            f"{limits.max_trajectory_steps} steps and {limits.max_trajectory_chars} characters."
        )
    if not any(turn["content"].strip() for turn in trajectory):
        raise UserError("trajectory is blank: give the steps of the attempt with their content.")
    return {"query": query, "trajectory": [_turn(turn, limits.max_metadata_chars) for turn in trajectory]}


def _turn(turn: dict[str, Any], most: int) -> dict[str, str]:
    kept = {"role": checks.text("role", turn["role"], 50), "content": storable(turn["content"])}
    if most and (given := turn.get("metadata")):
        kept["metadata"] = _scrubbed(storable(json.dumps(given, ensure_ascii=False)), most)
    return kept


def _scrubbed(text: str, most: int) -> str:
    """A text scrubbed and cut in the middle. Of a long one only the ends are scrubbed: megabytes would take seconds.

    What is scrubbed reaches further than what is kept, so that no part of a credential is left where it ends.
    """
    half = most // 2
    seen = half + _LONGEST
    if len(text) <= 2 * seen:
        return cut(scrub(text)[0], most)
    head, tail = scrub(text[:seen])[0][:-_LONGEST], scrub(text[-seen:])[0][_LONGEST:]
    note = f"[... {len(text) - 2 * half} characters left out ...]"
    return f"{head[:half]}\n{note}\n{tail[max(len(tail) - half, 0) :]}"


def check_attempts(attempts: list[dict[str, Any]], query: str, pattern: str, limits: Any) -> dict[str, Any]:
    """Several attempts at one task as they wait in the queue: {query, pattern, attempts}.

    attempts   [{trajectory, success_signal}], in the order in which they were made
    pattern    parallel | sequential
    """
    if pattern not in ("parallel", "sequential"):
        raise UserError(f"pattern={pattern[:40]}: give parallel or sequential.")
    if not 2 <= len(attempts) <= limits.max_attempts:
        raise UserError(f"attempts has {len(attempts)} entries: give 2 to {limits.max_attempts}.")
    found = []
    for given in attempts:
        made = {"trajectory": check_attempt(given["trajectory"], query, limits)["trajectory"]}
        success = given.get("success_signal")
        found.append(made if success is None else made | {"success": success})
    size = sum(len(turn["content"]) for made in found for turn in made["trajectory"])
    if size > limits.max_trajectory_chars:
        raise UserError(f"the attempts have {size} characters: give at most {limits.max_trajectory_chars} together.")
    return {"query": checks.text("query", query, limits.max_query_chars), "pattern": pattern, "attempts": found}


def learn_attempt(service: Service, bank: MemoryBank, job_id: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Judge an attempt unless the client did, distil it and store the record. The same job again adds nothing.

    Several attempts at a task are compared: one record holds what all of them teach.
    """
    id = content_id("extracted", job_id)
    if bank.get(id) is None:
        _store_lessons(service, bank, id, job_id, payload)
    else:
        service.consolidate(bank)  # a crash may have cut off what was due when it was stored
    record = bank.get(id)
    extracted = [{"title": lesson.title, "description": lesson.description} for lesson in record.items]
    compared = {name: record.provenance[name] for name in ("best", "outcomes") if name in record.provenance}
    return {
        "success": record.outcome == "success",
        "extracted_count": len(extracted),
        "memories": extracted,
        **compared,
        **describe_stored(bank, id),
    }


def _store_lessons(service: Service, bank: MemoryBank, id: str, job_id: str, payload: dict[str, Any]) -> None:
    judge, extractor = service.roles()["judge"], service.roles()["extractor"]
    task, several = Task(id=content_id("task", payload["query"]), query=payload["query"]), "attempts" in payload
    judge.meter.begin(task.id)
    parts = payload["attempts"] if several else [payload]
    shown = shown_records(bank, payload)
    judges = build_learner(service.cfg.judge, judge)

    def evaluate(attempts: Attempts) -> list[Verdict]:
        return [
            judges.judge(task, read) if part.get("success") is None else clients_verdict(part["success"])
            for read, part in zip(attempts.read(), parts, strict=True)
        ]

    made = [as_trajectory(part, number) for number, part in enumerate(parts)]
    attempts = Attempts(task=task, trajectories=made, evaluate=evaluate, memories=shown)
    verdicts, chosen, about = attempts.verdicts(), 0, {"model": extractor.llm.name}
    if several:
        chosen = _best(service, attempts, payload["pattern"])
        about |= {
            "best": chosen + 1,
            "outcomes": [verdict.label for verdict in verdicts],
            "pattern": payload["pattern"],
        }
        lessons = _contrast(service, attempts, payload["pattern"])
    else:
        distiller = build_learner(service.cfg.distiller, extractor)
        lessons = distiller.distil(task, attempts.read()[0], verdicts[0], shown, None).lessons
    if not lessons:
        raise UserError("the model's reply held no lesson that could be read.")
    record = new_record(bank, id, task.query, lessons, verdicts[chosen], trajectory=made[chosen].id, about=about)
    did = [(step.action, step.observation) for attempt in made for step in attempt.steps]
    service.add(bank, record, used_in(bank, payload, shown), did, verdicts[chosen].confidence)
    if is_sampled(job_id, service.limits.audit_share):
        keep(bank.path, job_id, attempts.read()[chosen], verdicts[chosen], record)


def _best(service: Service, attempts: Attempts, pattern: str) -> int:
    """The number of the attempt that counts: of revisions the last."""
    if pattern == "sequential":
        return len(attempts) - 1
    return build_learner(service.cfg.select, service.roles()["judge"]).pick(attempts).index


def _contrast(service: Service, attempts: Attempts, pattern: str) -> tuple[Lesson, ...]:
    """What all attempts together teach. As in the paper the model gets no labels, unless contrast.labels=judge."""
    if service.cfg.contrast is None:
        raise UserError("contrast=null: this server compares no attempts; send each to extract_memory.")
    contrast = build_learner(service.cfg.contrast, service.roles()["extractor"])
    return (contrast.sequential if pattern == "sequential" else contrast.parallel)(attempts).lessons


def as_trajectory(payload: dict[str, Any], number: int = 0) -> Trajectory:
    """A conversation, the attempt of this number at its task, in the form of the loop.

    Each turn of the assistant is a step, the turns after it its observation. What stands before the assistant's first
    turn is the observation of a step without an action. A turn's metadata stands behind it, of the assistant's too:
    judge and distiller read it as an observation.
    """
    steps: list[Step] = []
    for turn in payload["trajectory"]:
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
        id=content_id("trajectory", payload["trajectory"]),
        sample=number,
        opening=(),
        steps=tuple(steps),
        answer=replies[-1] if replies else None,
        ended_by="end",
        reward=0.0,
        success=False,
        gold="",
    )


def used_in(bank: MemoryBank, payload: dict[str, Any], shown: list[Scored]) -> tuple[str, ...]:
    """The ids of the shown records; with `memory.uses=cited` of those that the assistant cites by an id or a title."""
    if bank.uses != "cited":
        return tuple(hit.record.id for hit in shown)
    parts = payload.get("attempts", [payload])
    said = "\n".join(turn["content"] for part in parts for turn in part["trajectory"] if turn["role"] == "assistant")
    names = [
        (place, id, item.title)
        for place, hit in enumerate(shown)
        for number, item in enumerate(hit.record.items)
        for id in (hit.record.id, f"{hit.record.id}-{number}")
    ]
    found = cited(said, [name[1:] for name in names], numbered=False)  # each retrieval numbers from 1
    return tuple(shown[place].record.id for place in sorted({names[number][0] for number in found}))


def shown_records(bank: MemoryBank, payload: dict[str, Any]) -> list[Scored]:
    """Records of the bank's namespace whose ids stand in the conversation: their lessons must not be learned again."""
    parts = payload.get("attempts", [payload])
    text = "\n".join(turn["content"] for part in parts for turn in part["trajectory"])
    ids = list(dict.fromkeys(_ID.findall(text)))[:100]
    records = {record.id: record for id in ids if (record := recalled(bank, id))}
    return [Scored(record=record, score=0.0) for record in records.values()]


# A sample of the extractions, kept beside the bank for a person to check (`server.audit_share`).

log = logging.getLogger(__name__)


def is_sampled(job_id: str, share: float) -> bool:
    """Whether a job is in a sample of this share: by a hash of its id, so that every server draws alike."""
    return int(digest("audit", job_id)[:8], 16) / 16**8 < share


def path_of(bank: str | Path) -> Path:
    """Where the sample of a bank lies."""
    return Path(f"{bank}.audit.jsonl")


def keep(bank: str | Path, job_id: str, attempt: Trajectory, verdict: Verdict, record: MemoryRecord) -> None:
    """Append an extraction to the sample, credentials and personal data taken out as from a lesson.

    Where it cannot be written a warning says so, and the extraction goes on.
    """
    row = {
        "at": now(),
        "job": job_id,
        "memory_id": record.id,
        "agent_id": record.namespace,
        "query": record.original_query,
        "attempt": transcript(attempt),
        "verdict": {"label": verdict.label, "by": verdict.source, "reason": verdict.reason},
        "confidence": verdict.confidence,
        "lessons": [dict(vars(lesson)) for lesson in record.items],
    }
    try:
        file = JsonLines(path_of(bank), redact=lambda text: scrub(text)[0])
        try:
            file.append(row)
        finally:
            file.close()
    except (UserError, InfraError) as error:
        log.warning(f"an extraction is not in the audit's sample: {error}")


def run_audit(argv: list[str]) -> int:
    """The command `audit`: print the sample, oldest first; returns the exit code."""
    top = argparse.ArgumentParser(prog="reasoningbank-mcp audit", description=__doc__.partition("\n")[0])
    top.add_argument("--bank", type=Path, metavar="PATH", help="the bank's file; left out: the one in your data folder")
    top.add_argument("--last", type=int, metavar="N", help="only the last N")
    top.add_argument("--json", action="store_true", help="one JSON object a line")
    given = top.parse_args(argv)
    if given.last is not None and given.last < 1:
        raise UserError(f"--last {given.last}: give a whole number of at least 1.")
    path = path_of(bank_file(given))
    if not path.exists():
        raise UserError(f"there is no {path}: a server keeps a sample with server.audit_share=0.05.")
    rows = list(read_lines(path))
    first = 0 if given.last is None else max(0, len(rows) - given.last)
    for number, row in enumerate(rows[first:], first + 1):
        print(json.dumps(row, ensure_ascii=False) if given.json else shown(row, f"{number} of {len(rows)}"))
    return 0


def shown(row: dict[str, Any], place: str) -> str:
    """An extraction as a person reads it."""
    verdict = row["verdict"]
    sure = "" if row["confidence"] is None else f", confidence {row['confidence']:.2f}"
    lines = [
        f"# {place}: memory {row['memory_id']} of {row['agent_id']}, {row['at']}",
        f"\n## Task\n{row['query']}\n\n## What the agent did\n{row['attempt']}",
        f"\n## Verdict: {verdict['label']} (by {verdict['by']}{sure})\n{verdict['reason']}".rstrip(),
        "\n## Lessons",
        *(f"- {item['title']}: {item['description']}\n  {item['content']}" for item in row["lessons"]),
    ]
    return "\n".join(lines) + "\n"


# The thread that learns from the attempts in the bank's queue; one process at a time does so.

POLL_S = 2.0  # between looks at the queue: other processes put attempts there too
RETRY_S = 30.0  # before another try where the provider could not be reached


class QueueWorker:
    """Runs while the server does. Attempts that it leaves in the queue are for the next server on the bank."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="extraction", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look at the queue now: something was added to it."""
        self._wake.set()

    def close(self) -> bool:
        """Stop after the attempt at hand; False when that takes longer than a client waits."""
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
            # A provider that could not be reached is given its time, even when something new is queued meanwhile.
            (self._wake if pause == POLL_S else self._stop).wait(pause)
            self._wake.clear()

    def _work(self) -> float:
        """Learn from the attempts that wait, oldest first; returns how many seconds to pause."""
        jobs = self.service.jobs
        if not jobs.waiting() or not jobs.lead():
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
        """Learn from one attempt; False when it stays in the queue for a later try."""
        try:
            bank = self.service.bank.of(job.namespace)
            result = learn_attempt(self.service, bank, job.id, job.payload)
            self.service.jobs.end(job.id, "completed", result)
        except (UserError, InfraError) as error:
            why = self.service.redact(str(error))
            # A key, the provider, a bank that others write to or the budget of all: no attempt could succeed now.
            if isinstance(error, StopRun | Busy) or (isinstance(error, OverBudget) and error.whole_run):
                log.warning(f"extraction {job.id} and those after it wait: {why}")
                self.service.jobs.back(job.id, why)
                return False
            if isinstance(error, TransientError) and job.tries + 1 < TRIES:
                log.warning(f"extraction {job.id} is tried again: {why}")
                return False
        except Exception as error:
            log.exception(f"extraction {job.id} failed")
            why = f"{type(error).__name__} in the server, see its log"
        else:
            return True
        self.service.jobs.end(job.id, "failed", {"error": why[:2000]})
        return True
