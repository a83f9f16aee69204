"""From a conversation that a client sends to a record in the bank: judge, distil, store."""

from __future__ import annotations

import re
from typing import Any

from core.errors import UserError
from core.memory.bank import MemoryBank
from core.models.reply_text import storable
from core.types import MemoryRecord, Scored, Step, Task, Trajectory, Verdict, content_id
from mcp_server import checks
from mcp_server.service import Service

_ID = re.compile(r"\bid=([\w.:-]{1,64})")  # as recalled lessons show it


class AttemptLearner:
    """Learns from attempts with the configured model; `service.roles` says so where there is none."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def check(self, trajectory: list[dict[str, Any]], query: str) -> dict[str, Any]:
        """The attempt as it waits in the queue. UserError where it is empty or too long."""
        limits = self.service.limits
        query = checks.text("query", query, limits.max_query_chars)
        if not trajectory:
            raise UserError("trajectory is empty: give the steps of the attempt.")
        size = sum(len(step["content"]) for step in trajectory)
        if size > limits.max_trajectory_chars or len(trajectory) > limits.max_trajectory_steps:
            raise UserError(
                f"the trajectory has {len(trajectory)} steps and {size} characters: give at most "
                f"{limits.max_trajectory_steps} steps and {limits.max_trajectory_chars} characters."
            )
        if not any(step["content"].strip() for step in trajectory):
            raise UserError("trajectory is blank: give the steps of the attempt with their content.")
        steps = [
            {"role": checks.text("role", step["role"], 50), "content": storable(step["content"])} for step in trajectory
        ]
        return {"query": query, "trajectory": steps}

    def name(self, bank: MemoryBank, payload: dict[str, Any]) -> str:
        """The task's id: the same attempt sent again is the same task."""
        return content_id("job", bank.namespace, payload)

    def learn(self, bank: MemoryBank, id: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Judge an attempt unless the client did, distil it and store the record. Doing it again adds nothing."""
        record_id = content_id("extracted", id)
        if bank.get(record_id) is None:
            task, attempt = Task(id=content_id("task", payload["query"]), query=payload["query"]), trajectory(payload)
            self.service.roles()["judge"].meter.begin(task.id)
            shown = recalled(bank, payload)
            verdict = self._verdict(task, attempt, payload.get("success"))
            found = self._distiller().distil(task, attempt, verdict, shown, None)
            if not found.lessons:
                raise UserError("the model's reply held no lesson that could be read.")
            record = MemoryRecord(
                id=record_id,
                original_query=task.query,
                items=found.lessons,
                source_trajectory_id=attempt.id,
                score=float(verdict.label == "success"),
                outcome=verdict.label,
                label_source=verdict.source,
                task_id=task.id,
                namespace=bank.namespace,
                tick=bank.tick(),
                provenance={"source": "mcp", "model": self.service.roles()["extractor"].llm.name},
            )
            self.service.add(bank, record, tuple(hit.record.id for hit in shown))
        record = bank.get(record_id)
        extracted = [{"title": item.title, "description": item.description} for item in record.items]
        return {
            "success": record.outcome == "success",
            "extracted_count": len(extracted),
            "memories": extracted,
            **self.service.stored(bank, record_id),
        }

    def _verdict(self, task: Task, attempt: Trajectory, success: bool | None) -> Verdict:
        if success is not None:
            return Verdict(label="success" if success else "failure", source="client")
        from core.build import build_learner

        role = self.service.roles()["judge"]
        return build_learner(self.service.cfg.judge, role).judge(task, attempt)

    def _distiller(self) -> Any:
        from core.build import build_learner

        role = self.service.roles()["extractor"]
        return build_learner(self.service.cfg.distiller, role)


def trajectory(payload: dict[str, Any]) -> Trajectory:
    """A conversation as the loop knows it: what the assistant says is a step, what others then say its observation."""
    steps: list[Step] = []
    for turn in payload["trajectory"]:
        content = turn["content"]
        if turn["role"] == "assistant" or not steps:
            acts = turn["role"] == "assistant"
            text, seen = (content, "") if acts else ("", f"({turn['role']}) {content}")
            steps.append(Step(text=text, thought="", action=text, observation=seen))
        else:
            last = steps.pop()
            seen = f"{last.observation}\n({turn['role']}) {content}".strip()
            steps.append(Step(text=last.text, thought="", action=last.action, observation=seen))
    said = [step.text for step in steps if step.text]
    return Trajectory(
        id=content_id("trajectory", payload["trajectory"]),
        sample=0,
        opening=(),
        steps=tuple(steps),
        answer=said[-1] if said else None,
        ended_by="end",
        reward=0.0,
        success=False,
        gold="",
    )


def recalled(bank: MemoryBank, payload: dict[str, Any]) -> list[Scored]:
    """The tenant's own records that the conversation shows by their ids: they must not be learned again."""
    text = "\n".join(turn["content"] for turn in payload["trajectory"])
    ids = dict.fromkeys(name for id in _ID.findall(text) for name in (id, id.rpartition("-")[0]) if name)
    records = [record for id in list(ids)[:100] if (record := bank.get(id)) is not None]
    return [Scored(record=record, score=0.0) for record in records if record.namespace == bank.namespace]
