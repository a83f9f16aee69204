"""workflow=matts_parallel: k attempts at once, lessons from all of them together, one of them the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from core.errors import InfraError, UserError
from core.learning.contrast import Contrast
from core.types import Extraction, Scored, Selection, Task, Trajectory
from workflows.base import Verdicts, Workflow


@dataclass(kw_only=True)
class MattsParallel(Workflow):
    """Memory-aware test-time scaling, parallel (section 3.3). With k=1 it is the base loop, record for record.

    All attempts get the same memories, and each is judged. contrast None distils each of them alone.
    """

    selector: Any  # core.learning.selectors
    contrast: Contrast | None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.judges = self.learns or (self.selector.uses_judge and self.k > 1)

    def check_sizes(self) -> None:
        if self.r not in (None, 0):
            raise UserError(f"workflow=matts_parallel refines nothing: r={self.r} needs workflow=matts_sequential.")

    @classmethod
    def calls(cls, k: int | None, r: int | None) -> dict[str, int]:
        return super().calls(k, r) if k == 1 else {"agent": k, "judge": k, "extractor": 1, "selector": 1}

    def select(
        self, task: Task, trajectories: list[Trajectory], verdicts: Verdicts, errors: list[str]
    ) -> Selection | None:
        if len(trajectories) == 1:
            return None
        whole = [number for number, t in enumerate(trajectories) if t.ended_by != "error"]
        if len(whole) < 2:
            return Selection(index=whole[0] if whole else 0, by="only")
        labels = [verdicts()[n] for n in whole] if self.selector.uses_judge else []
        try:
            found = self.selector.pick(task, [trajectories[n] for n in whole], labels)
        except InfraError as error:
            errors.append(f"selector: {error.kind}: {error}")
            return Selection(index=whole[0], by="first", parsed=False)
        return replace(found, index=whole[found.index])

    def extract(
        self,
        task: Task,
        memories: list[Scored],
        trajectories: list[Trajectory],
        verdicts: Verdicts,
        errors: list[str],
    ) -> list[Extraction]:
        """One self-contrast; a single attempt has nothing to be contrasted with. The paper's waits for no verdict."""
        if self.contrast is None or len(trajectories) < 2:
            return super().extract(task, memories, trajectories, verdicts, errors)
        if blind := self.contrast.labels == "none" and self.learn_from == "both":
            worth = [n for n, t in enumerate(trajectories) if self.learns and t.ended_by != "error" and t.said]
        else:
            worth = self.teachers(trajectories, verdicts())
        if len(worth) < 2:
            return super().extract(task, memories, trajectories, verdicts, errors)
        attempts, labels = [trajectories[n] for n in worth], [] if blind else [verdicts()[n] for n in worth]
        try:
            return [self.contrast.parallel(task, attempts, labels, memories)]
        except InfraError as error:
            errors.append(f"extractor: {error.kind}: {error}")
            return []
