"""From an attempt that a client sends to a record in the bank: judge it, distil it, store what it teaches."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from core.build import build_learner
from core.errors import UserError
from core.learning.attempts import Attempts
from core.learning.transcript import cut
from core.memory.bank import MemoryBank
from core.memory.citations import cited
from core.memory.hygiene.scrub import scrub
from core.models.reply_text import storable
from core.types import Lesson, Scored, Step, Task, Trajectory, Verdict, content_id
from mcp_server import audit, checks
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
    if audit.is_sampled(job_id, service.limits.audit_share):
        audit.keep(bank.path, job_id, attempts.read()[chosen], verdicts[chosen], record)


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
