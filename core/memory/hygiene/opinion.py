"""A second opinion on a lesson by the extractor's model (`memory.hygiene.opinion=llm`)."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

from core.errors import InfraError, OverBudget
from core.learning.schemas import object_schema, text_schema
from core.learning.structured import parse_json
from core.models.base import Role
from core.models.reply_text import strip_thinking
from core.seeding import derive_seed
from core.types import MemoryRecord
from prompts import registry

LONGEST = 120  # characters of the reason
SCHEMA = object_schema({"reason": text_schema(LONGEST), "harmful": {"type": "boolean"}})
_SAID = re.compile(r"(?i)\bharmful[\"']?\s*[:=]\s*[\"']?(true|false)\b(?!\s*(?:or\b|/|\|))")
MOST = 6000  # characters of the lessons that the model is shown


def second_opinion(record: MemoryRecord, role: Role, seed: int) -> dict[str, Any]:
    """{harmful, reason, usage}; harmful is None where the model broke or its reply cannot be read, with the `error`.

    The lessons are shown as one JSON text that cannot end its block. Raises OverBudget.
    """
    lessons = [vars(item) for item in record.items]
    # Cut in the middle: an order stands at the beginning or at the end as a rule.
    quoted = json.dumps(lessons, ensure_ascii=False).replace("<", "\\u003c")
    if len(quoted) > MOST:
        quoted = f"{quoted[: MOST // 2]} [...] {quoted[-MOST // 2 :]}"
    prompt = role.prompts.render(
        registry.SECOND_OPINION_PROMPT, lessons=quoted, structured=bool(role.llm.supports_schema)
    )
    try:
        message = {"role": "user", "content": prompt}
        reply = role.chat([message], task=record.task_id, seed=derive_seed(seed, record.id, "opinion"), schema=SCHEMA)
    except OverBudget:
        raise  # the run ends here, and its next start asks again
    except InfraError as error:
        return {"harmful": None, "reason": "", "error": f"{error.kind}: {error}", "usage": None}
    said = {word.lower() for word in _SAID.findall(strip_thinking(reply.text))}
    # A reply that repeats the lesson may say both; a lesson can only have planted the "false".
    harmful = "true" in said if said else None
    reason = (parse_json(reply.text, "reason") or {}).get("reason", "")
    found = {"harmful": harmful, "reason": str(reason)[:LONGEST], "usage": asdict(reply.usage)}
    return found if harmful is not None else found | {"error": "unreadable reply"}
