"""Learner: base of the judges, distillers and selectors that call a model with a prompt from a template."""

from __future__ import annotations

from dataclasses import dataclass

from core.learning.structured import CONTENT_CHARS, lessons_schema, parse_lessons
from core.models.base import Reply, Role
from core.models.meter import account_of
from core.models.reply_text import storable
from core.seeding import derive_seed
from core.types import Extraction, Lesson, Task


@dataclass(kw_only=True)
class Learner:
    """Calls its role's model about a task.

    seed   the base of its calls' seeds
    """

    role: Role
    seed: int

    def ask(
        self, template: str, purpose: str, task: Task, schema: dict, sample: int | None = None, **values: object
    ) -> Reply:
        """One call with a prompt from this template, filled with `values`. Raises InfraError.

        purpose   a name for the call; the seed depends on it, and on `sample` unless that is None
        """
        structured = self.role.llm.supports_schema
        # A patch may hold bytes that are no text, which no provider takes.
        prompt = storable(self.role.prompts.render(template, query=task.query, structured=structured, **values))
        names = (purpose,) if sample is None else (sample, purpose)
        seed = derive_seed(self.seed, *task.seeded_by, *names)
        message = {"role": "user", "content": prompt}
        return self.role.chat([message], task=account_of(task), sample=sample or 0, seed=seed, schema=schema)

    @classmethod
    def lessons_in(cls, reply: str) -> list[Lesson] | None:
        """All lessons that a recorded reply to `lessons` holds."""
        return parse_lessons(reply, len(reply))[0]

    def lessons(
        self,
        template: str,
        purpose: str,
        task: Task,
        max_items: int,
        sample: int,
        max_content: int = CONTENT_CHARS,
        **values: object,
    ) -> Extraction:
        """As `ask`, with the reply parsed as lessons. max_content: maximum characters of a lesson's content."""
        schema = lessons_schema(max_items, max_content)
        reply = self.ask(template, purpose, task, schema, sample, max_items=max_items, **values)
        cut_off = reply.finish_reason == "length"
        lessons, dropped = parse_lessons(reply.text, max_items, truncated=cut_off)
        return Extraction(lessons=tuple(lessons), n_dropped=dropped, n_truncated=int(cut_off), usage=reply.usage)
