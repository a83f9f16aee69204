"""memory=grpo: Training-Free GRPO (Cai et al. 2025, arXiv 2510.08191, section 2).

A group of attempts at one task. If their outcomes differ, each is summarised, the model says what the better ones did
that the worse ones did not (the semantic advantage, where GRPO has a number), and updates a library of experiences by
ADD, UPDATE and DELETE. The whole library is in the agent's prompt. A group with one outcome alone teaches nothing, as
its advantages are all 0.

Deviations. The paper learns from the reference answers of a few dozen training tasks in three epochs, and plays others;
here the judge labels the attempts of a stream (setting=true_labels: the environment), and the library is updated after
each task, not once a batch. The first attempt is the task's answer (select=first), so a gain is the library's and not
that of choosing among attempts; all attempts are paid.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.concurrency import ordered_map
from core.errors import UserError
from core.learning.attempts import Attempts
from core.learning.lessons import Contrast
from core.memory.rivals.notebook import ADD, DELETE, EDIT, Curator, joined, spent
from core.models.base import Reply
from core.reply_marks import plain_reply
from core.types import Extraction

OPERATIONS = {ADD: ADD, "UPDATE": EDIT, DELETE: DELETE}


@dataclass(kw_only=True)
class Grpo(Curator, Contrast):
    """Operations on the library from a group of attempts. labels: the judge's are always shown."""

    max_items: int = 3
    labels: str = "judge"

    def parallel(self, attempts: Attempts) -> Extraction:
        """Operations from parallel attempts; none if all have the same label. Raises InfraError."""
        labels = [verdict.label for verdict in attempts.verdicts()]
        if len(set(labels)) < 2:
            return Extraction()
        task, read = attempts.task, attempts.read()

        def summary(number: int) -> Reply:
            values = {"trajectory": self.text_of(read[number], self.max_chars), "label": labels[number]}
            return self.ask("rivals/grpo_summary", "summary", task, None, number, **values)

        replies = list(ordered_map(summary, range(len(read)), len(read)))
        notes, group = self.bank.notes(), {"summaries": list(map(_said, replies)), "labels": labels}
        advantage = self.ask("rivals/grpo_advantage", "advantage", task, None, notes=notes, **group)
        said = _said(advantage)
        _, made = self.operations("rivals/grpo_update", "update", task, OPERATIONS, notes, advantage=said)
        return joined(*map(spent, (*replies, advantage)), made)

    def sequential(self, rounds: Attempts) -> Extraction:
        raise UserError("memory=grpo contrasts a group of attempts: give workflow=matts_parallel and k=5.")


def _said(reply: Reply) -> str:
    return plain_reply(reply.text).strip()
