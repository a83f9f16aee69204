"""memory=expel: ExpeL, Experiential Learning (Zhao et al. 2024, arXiv 2308.10144, sections 4.1 to 4.3, appendix F).

Attempts are kept. Insights are drawn from pairs of a failed and a successful attempt, and from groups of successes, by
operations on a list: ADD, EDIT, UPVOTE, DOWNVOTE. An insight begins with an importance of 2; EDIT and UPVOTE add one,
DOWNVOTE takes one away, and at 0 it is removed. The agent is shown all insights, the most important first, and the
successful attempts at the tasks most like its own.

Deviations. The paper gathers all attempts first, by up to three tries with self-reflection at each training task, and
pairs attempts at one task; here tasks come in a stream, each tried once, so an attempt is paired with the nearest
earlier one of the other outcome. A group of successes is the last `group` ones, each time that so many are there.
While the list has `most` insights, the prompt says so and a DOWNVOTE counts three times, as in the released code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.learning.learner import MAX_QUERY
from core.learning.lessons import Distills
from core.learning.transcript import cut
from core.memory.rivals.notebook import ADD, DOWNVOTE, EDIT, KEEP, UPVOTE, Curator, Note, joined
from core.types import Extraction, Lesson, Scored, Task, Trajectory, Verdict

OPERATIONS = {ADD: ADD, EDIT: EDIT, UPVOTE: UPVOTE, DOWNVOTE: DOWNVOTE}


@dataclass(kw_only=True)
class Expel(Curator, Distills):
    """Keeps the attempt, and draws insights from it and earlier ones.

    attempt_chars   maximum characters of a kept attempt, cut in the middle
    group           successes that are compared with each other at a time
    most            insights with which the list is full
    """

    max_items: int = 4
    attempt_chars: int = 4500
    group: int = 8
    most: int = 20

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """The kept attempt and the operations on the list. gold is not used. Raises InfraError."""
        text, label = self.text_of(trajectory, self.attempt_chars), verdict.label
        kept = Lesson(title=f"{KEEP} {label}", description=cut(task.query, MAX_QUERY), content=text)
        notes, made = self.bank.notes(), [Extraction(lessons=(kept,))]
        insights, sample = [note for note in notes if not note.kept], trajectory.sample
        others = self.bank.ranked(task.query, [note for note in notes if note.kept not in ("", label)])
        if others:
            pair = (text, others[0].text) if label == "success" else (others[0].text, text)
            made.append(self._asked("rivals/expel_compare", "comparison", task, insights, sample, attempts=pair))
        if label == "success":
            won = [*(note.text for note in notes if note.kept == label), text]
            if len(won) % self.group == 0:
                last = tuple(won[-self.group :])
                made.append(self._asked("rivals/expel_successes", "successes", task, insights, sample, attempts=last))
        return joined(*made)

    def _asked(
        self, template: str, purpose: str, task: Task, insights: list[Note], sample: int, **values: tuple[str, ...]
    ) -> Extraction:
        full = len(insights) >= self.most
        how = {"full": full, "limit": self.most, **values}
        _, made = self.operations(template, purpose, task, OPERATIONS, insights, sample, **how)
        lessons: list[Lesson] = []
        for each in made.lessons:
            name, _, note = each.title.partition(" ")
            lessons += [each] * (3 if name == DOWNVOTE and full else 1)
            if name == EDIT:
                lessons.append(replace(each, title=f"{UPVOTE} {note}", content=""))
        return replace(made, lessons=tuple(lessons))
