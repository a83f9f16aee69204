"""From an attempt that a client sends to a record in the bank: judge it, distil it, store what it teaches."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from core.build import build_learner
from core.errors import UserError
from core.learning.transcript import without_lessons
from core.memory.bank import MemoryBank
from core.memory.citations import cited
from core.models.reply_text import storable
from core.types import Scored, Step, Task, Trajectory, content_id
from mcp_server import audit, checks
from mcp_server.service import Service, clients_verdict, describe_stored, new_record, recalled

_ID = re.compile(r"\bid=([\w.:-]{1,64})")  # as retrieved lessons show their ids (mcp_server/texts.py)


def check_attempt(trajectory: list[dict[str, Any]], query: str, limits: Any) -> dict[str, Any]:
    """The attempt as it waits in the queue: {query, trajectory}. UserError where it is empty or too long.

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
    turns = [
        {"role": checks.text("role", turn["role"], 50), "content": storable(turn["content"])} for turn in trajectory
    ]
    return {"query": query, "trajectory": turns}


def learn_attempt(service: Service, bank: MemoryBank, job_id: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Judge an attempt unless the client did, distil it and store the record. The same job again adds nothing."""
    id = content_id("extracted", job_id)
    if bank.get(id) is None:
        _store_lessons(service, bank, id, job_id, payload)
    record = bank.get(id)
    extracted = [{"title": lesson.title, "description": lesson.description} for lesson in record.items]
    return {
        "success": record.outcome == "success",
        "extracted_count": len(extracted),
        "memories": extracted,
        **describe_stored(bank, id),
    }


def _store_lessons(service: Service, bank: MemoryBank, id: str, job_id: str, payload: dict[str, Any]) -> None:
    judge, extractor = service.roles()["judge"], service.roles()["extractor"]
    task, attempt = Task(id=content_id("task", payload["query"]), query=payload["query"]), as_trajectory(payload)
    judge.meter.begin(task.id)
    shown = shown_records(bank, payload)
    attempt = without_lessons(attempt, shown)
    if (success := payload.get("success")) is None:
        verdict = build_learner(service.cfg.judge, judge).judge(task, attempt)
    else:
        verdict = clients_verdict(success)
    distiller = build_learner(service.cfg.distiller, extractor)
    lessons = distiller.distil(task, attempt, verdict, shown, None).lessons
    if not lessons:
        raise UserError("the model's reply held no lesson that could be read.")
    record = new_record(
        bank, id, task.query, lessons, verdict, trajectory=attempt.id, about={"model": extractor.llm.name}
    )
    service.add(bank, record, used_in(bank, payload, shown))
    if audit.is_sampled(job_id, service.limits.audit_share):
        audit.keep(bank.path, job_id, attempt, verdict, record)


def as_trajectory(payload: dict[str, Any]) -> Trajectory:
    """A conversation in the form of the loop: each turn of the assistant is a step, the turns after it its observation.

    What stands before the assistant's first turn is the observation of a step without an action.
    """
    steps: list[Step] = []
    for turn in payload["trajectory"]:
        content, seen = turn["content"], f"({turn['role']}) {turn['content']}"
        if turn["role"] == "assistant":
            steps.append(Step(text=content, thought="", action=content, observation=""))
        elif not steps:
            steps.append(Step(text="", thought="", action="", observation=seen))
        else:
            steps[-1] = replace(steps[-1], observation=f"{steps[-1].observation}\n{seen}".strip())
    replies = [step.text for step in steps if step.text]
    return Trajectory(
        id=content_id("trajectory", payload["trajectory"]),
        sample=0,
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
    said = "\n".join(turn["content"] for turn in payload["trajectory"] if turn["role"] == "assistant")
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
    text = "\n".join(turn["content"] for turn in payload["trajectory"])
    ids = list(dict.fromkeys(_ID.findall(text)))[:100]
    records = {record.id: record for id in ids if (record := recalled(bank, id))}
    return [Scored(record=record, score=0.0) for record in records.values()]
