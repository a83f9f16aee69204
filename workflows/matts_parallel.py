"""workflow=matts_parallel: k concurrent attempts, one of which is the answer; lessons from all of them together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from core.errors import UserError
from core.learning.attempts import Attempts
from core.learning.lessons import Contrast, Distills
from core.learning.selectors import Selector
from core.setting import ANSWER, OUTCOME
from core.types import UNJUDGED, Extraction, Scored, Selection, Verdict
from workflows.reasoningbank import ReasoningBank, guarded


@dataclass(kw_only=True)
class MattsParallel(ReasoningBank):
    """Memory-aware test-time scaling, parallel (section 3.3). With k=1 its records equal those of the base loop.

    All attempts get the same memories, and each is judged.

    selector   picks the attempt that is the answer
    contrast   distils all attempts together; None: each attempt is distilled by itself
    judge_all  False: only the answer is judged, for its record's label, where contrast needs no labels
    """

    selector: Selector
    contrast: Contrast | None
    judge_all: bool = True
    scaled_by: ClassVar[tuple[str, ...]] = ("k",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.judges = self.learns or (self.selector.uses_judge and self.k > 1)
        if self.selector.uses_judge and self.judge.uses_gold and self.k > 1:
            raise UserError("select=judge with judge=oracle lets the truth choose the answer: choose another select.")

    def check_sizes(self) -> None:
        if self.r not in (None, 0):
            raise UserError(f"workflow=matts_parallel refines nothing: r={self.r} needs workflow=matts_sequential.")

    def select(self, attempts: Attempts) -> Selection | None:
        """One of the attempts that did not break; the first of them if the selector raises an InfraError."""
        if len(attempts) == 1:
            return None
        whole = attempts.whole()
        if len(whole) < 2:
            return Selection(index=whole[0] if whole else 0, by="only")
        picked = guarded(
            "selector",
            Selection,
            partial(self.selector.pick, self.to_select(attempts, whole)),
            lambda error: Selection(index=0, by="first", parsed=False, error=error),
        )
        return replace(picked, index=whole[picked.index])

    def to_select(self, attempts: Attempts, numbers: list[int]) -> Attempts:
        """The attempts with these numbers for the selector: in no setting does the truth choose the answer.

        If only the answer is judged, its verdict waits for the selector, which then has none to read.
        """
        has_verdicts = not self.judge.uses_gold and (self.judge_all or self.selector.uses_judge)
        handed = replace(attempts, withheld=frozenset((OUTCOME, ANSWER)), evaluate=lambda _: attempts.verdicts())
        return handed.only(numbers, verdicts=has_verdicts)

    def extract(self, attempts: Attempts, memories: list[Scored]) -> list[Extraction]:
        """One self-contrast over all attempts; with fewer than two to contrast, each is distilled by itself."""
        contrasted = self._contrasted(attempts)
        if not contrasted:
            return super().extract(attempts, memories)
        contrast = partial(self.contrast.parallel, attempts.only(contrasted))
        made = guarded("extractor", Extraction, contrast, lambda error: Extraction(error=error))
        return [replace(made, attempts=tuple(contrasted))]

    def evaluate(self, attempts: Attempts) -> list[Verdict]:
        needs_all = self.judge_all or self._needs_labels or self.selector.uses_judge or self.judge.compares
        if needs_all or not self._contrasted(attempts):
            return super().evaluate(attempts)
        answer = attempts.selection().index
        [verdict] = super().evaluate(attempts.only([answer]))
        return [verdict if number == answer else UNJUDGED for number in range(len(attempts))]

    @property
    def _needs_labels(self) -> bool:
        """Whether verdicts decide what self-contrast reads; not in the paper."""
        return self.contrast is None or self.contrast.labels != "none" or self.learn_from != "both"

    def _contrasted(self, attempts: Attempts) -> list[int]:
        """The numbers of the attempts that self-contrast reads; [] if there are fewer than two."""
        if self.contrast is None or len(attempts) < 2:
            return []
        with_output = [number for number in attempts.whole() if attempts.trajectories[number].has_output]
        found = self.learnable(attempts) if self._needs_labels else with_output * self.learns
        return found if len(found) > 1 else []

    def lesson_maker(self, n_attempts: int) -> Distills | Contrast:
        return self.contrast if self.contrast and n_attempts > 1 else super().lesson_maker(n_attempts)
