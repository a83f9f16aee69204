"""memory=ace: Agentic Context Engineering (Zhang et al. 2025, arXiv 2510.04618, section 3 and figure 4).

A playbook of bullets grows by deltas. The generator, which is the agent, plays with the whole playbook in its prompt.
The reflector reads the attempt and says what it teaches, and which bullets helped or did harm: their counters go up,
and are shown. The curator turns the reflection into bullets to add; nothing rewrites the playbook as a whole. A new
bullet that says what one says already (by embedding) is not added: the paper's deduplication, done at each delta.

Deviations. The generator does not name the bullets that it used, so the reflector sees the playbook and judges from the
attempt. The reflector is asked once (the paper allows up to five rounds). Sections of the playbook are a bullet's
heading. Bullets are not pruned: one that was only harmful stays, with its counter. The label is the run's judge's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.errors import check_numbers
from core.learning.lessons import Distills
from core.memory.rivals.notebook import ADD, DOWNVOTE, UPVOTE, Curator, Note, joined, thoughts_of
from core.types import Extraction, Lesson, Scored, Task, Trajectory, Verdict

TAGS = {"HELPFUL": UPVOTE, "HARMFUL": DOWNVOTE}


@dataclass(kw_only=True)
class Ace(Curator, Distills):
    """The reflector and the curator.

    alike   a bullet whose cosine with one of the playbook is at least this is not added
    """

    alike: float = 0.9

    def __post_init__(self) -> None:
        check_numbers(self, "distiller", "alike", least=0)

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """The counters and the bullets of one attempt. gold is shown to the reflector. Raises InfraError."""
        notes = self.bank.notes()
        read = {"trajectory": self.text_of(trajectory, self.max_chars), "label": verdict.label, "gold": gold}
        how = (task, TAGS, notes, trajectory.sample, len(notes))
        reply, tags = self.operations("rivals/ace_reflect", "reflection", *how, **read)
        said, how = thoughts_of(reply), (task, {ADD: ADD}, notes, trajectory.sample)
        _, added = self.operations("rivals/ace_curate", "curation", *how, reflection=said)
        return joined(tags, self.new(added, notes))

    def new(self, added: Extraction, notes: list[Note]) -> Extraction:
        """Without the bullets that say what the playbook says; they count as dropped."""
        kept: list[Lesson] = []
        for bullet in added.lessons:
            if self.bank.likeness(bullet.content, notes) < self.alike:
                kept.append(bullet)
        return replace(added, lessons=tuple(kept), n_dropped=added.n_dropped + len(added.lessons) - len(kept))
