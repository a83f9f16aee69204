"""memory=memp: Memp, procedural memory (Fang et al. 2025, arXiv 2508.06433, sections 3.2 to 3.4).

Build: from a success the model writes a script, and the procedure is the script with the attempt it was made from
("proceduralization", the paper's best). Retrieve: by the embedding of the task's query. Update by adjustment: if an
attempt fails that was shown procedures, the first of them is revised in place, from what went wrong.

Deviations. A failure that was shown no procedure changes nothing. The released code also removes a procedure after
three uses of which fewer than half succeeded, which the paper does not have. Success is the judge's label.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from core.learning.learner import MAX_QUERY, Extractor
from core.learning.lessons import Distills
from core.learning.transcript import cut
from core.memory.rivals.notebook import ADD, EDIT, Curator, named
from core.types import Extraction, Lesson, Scored, Task, Trajectory, Verdict

SCRIPT_CHARS = 1500
_ATTEMPT = "\n\nThe attempt it was made from:\n"


@dataclass(kw_only=True)
class Memp(Curator, Extractor, Distills):
    """Builds a procedure from a success, and adjusts one on a failure.

    attempt_chars   maximum characters of the attempt that is kept with the script; 0: the script alone
    """

    max_items: int = 1
    attempt_chars: int = 3000

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """ADD after a success, EDIT after a failure. gold is not used. Raises InfraError."""
        values: dict[str, Any] = {"trajectory": self.text_of(trajectory, self.max_chars)}
        how = (task, 1, trajectory.sample, SCRIPT_CHARS)
        if verdict.label == "success":
            made = self.lessons("rivals/memp_build", "procedure", *how, **values)
            attempt = cut(self.text_of(trajectory), self.attempt_chars)
            return self._as_operations(made, ADD, f"{_ATTEMPT}{attempt}" if self.attempt_chars else "", task)
        notes = self.bank.ranked(task.query, self.bank.notes(task.id), task.id)
        if not notes:
            return Extraction()
        script, mark, attempt = notes[0].text.partition(_ATTEMPT)
        made = self.lessons("rivals/memp_adjust", "adjustment", *how, procedure=script, **values)
        return self._as_operations(made, f"{EDIT} {notes[0].id}", mark + attempt, task)

    def _as_operations(self, made: Extraction, title: str, attempt: str, task: Task) -> Extraction:
        """Scripts as operations of this title. attempt: what follows a script."""
        named(made, task, title)
        lessons = (
            Lesson(
                title=title,
                description=cut(f"{each.title}: {each.description}", MAX_QUERY),
                content=each.content + attempt,
            )
            for each in made.lessons
        )
        return replace(made, lessons=tuple(lessons))
