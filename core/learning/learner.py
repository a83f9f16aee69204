"""Learner: base of the judges, distillers and selectors that call a model with a prompt from a template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.learning.structured import CONTENT_CHARS, lessons_schema, parse_lessons, parse_thoughts
from core.learning.transcript import cut
from core.models.base import Reply, Role
from core.models.meter import account_of
from core.models.reply_text import without_surrogates
from core.reply_marks import plain_reply
from core.seeding import derive_seed
from core.types import Extraction, Lesson, Task

RAW_TITLE = "Memory items from an earlier task"
MAX_QUERY = 600  # maximum characters of a task's query in a lesson's description


@dataclass(kw_only=True)
class Learner:
    """Calls its role's model about a task.

    seed   the base of its calls' seeds
    """

    role: Role
    seed: int

    def ask(
        self,
        template: str,
        purpose: str,
        task: Task,
        schema: dict | None,
        sample: int | None = None,
        *,
        variant: str | None = None,
        temperature: float | None = None,
        **values: object,
    ) -> Reply:
        """One call with a prompt from this template, filled with `values`. Raises InfraError.

        purpose       a name for the call; the seed depends on it, and on `sample` unless that is None
        schema        of the reply; None: the reply is text
        variant       as in `Prompts.render`
        temperature   of this call; None: the role's
        """
        structured = self.role.llm.supports_schema and schema is not None
        values |= {"query": task.query, "structured": structured}
        # A patch may hold bytes that are no text, which no provider takes.
        prompt = without_surrogates(self.role.prompts.render(template, variant, **values))
        names = (purpose,) if sample is None else (sample, purpose)
        seed = derive_seed(self.seed, *task.seeded_by, *names)
        message = {"role": "user", "content": prompt}
        how = {"sample": sample or 0, "seed": seed, "schema": schema, "temperature": temperature}
        return self.role.chat([message], task=account_of(task), **how)


@dataclass(kw_only=True)
class Extractor(Learner):
    """A learner that makes lessons.

    raw_replies   store the whole reply, without the model's own thinking, as one lesson; False: parse it
    """

    raw_replies: bool = False

    def lessons(
        self,
        template: str,
        purpose: str,
        task: Task,
        max_items: int,
        sample: int,
        max_content: int = CONTENT_CHARS,
        *,
        keep_notes: bool = False,
        **values: Any,
    ) -> Extraction:
        """As `ask`, with the reply as lessons.

        max_content   maximum characters of a parsed lesson's content
        keep_notes    keep what the reply says before the lessons, too
        """
        schema = None if self.raw_replies else lessons_schema(max_items, max_content)
        reply = self.ask(template, purpose, task, schema, sample, max_items=max_items, **values)
        cut_off = reply.finish_reason == "length"
        if self.raw_replies:
            lessons, dropped = _raw(reply.text, task.query), 0
        else:
            lessons, dropped = parse_lessons(reply.text, max_items, truncated=cut_off)
        counts = {"n_dropped": dropped, "n_truncated": int(cut_off), "usage": reply.usage}
        return Extraction(lessons=tuple(lessons), notes=parse_thoughts(reply.text) if keep_notes else "", **counts)


def _raw(reply: str, query: str) -> list[Lesson]:
    """A reply as one lesson, without the model's own thinking; [] if nothing is left."""
    text = plain_reply(reply).strip()
    return [Lesson(title=RAW_TITLE, description=cut(query, MAX_QUERY), content=text)] if text else []
