"""Grading of open answers by a model (`grader=model`). It knows the reference answer; what it says is the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.control_tokens import escape
from core.errors import AttemptOver, InfraError
from core.learning.learner import Learner
from core.learning.structured import object_schema, parse_json, text_schema
from core.learning.transcript import cut
from core.types import Task
from prompts import registry

BLOCK = "graded_answer"  # the tag of the template, which an answer cannot leave
VERDICTS = {"correct": True, "incorrect": False}
SCHEMA = object_schema({"thoughts": text_schema(400), "verdict": {"type": "string", "enum": [*VERDICTS]}})


@dataclass(kw_only=True)
class ModelGrader(Learner):
    """grader=model: a model at temperature 0 reads the question, the reference answer and the answer.

    own_model   the agent's model may grade its own answers; else `grader_llm` has to be another one
    max_chars   maximum characters of the answer in the prompt; longer ones are cut in the middle
    """

    own_model: bool = False
    max_chars: int = 2000

    def same(self, task: Task, golds: Sequence[str], answer: str) -> bool:
        """Whether the answer means the same as one of the gold answers. Raises InfraError for an unreadable verdict."""
        try:
            shown = escape(cut(answer, self.max_chars), BLOCK)
            reply = self.ask(registry.GRADE_ANSWER_PROMPT, "grader", task, SCHEMA, golds=list(golds), answer=shown)
        except AttemptOver as error:  # or it would be counted as the agent exceeding its limits
            raise InfraError(str(error), error.kind) from error
        said = (parse_json(reply.text, "verdict") or {}).get("verdict")
        if not isinstance(said, str) or said.strip().lower() not in VERDICTS:
            raise InfraError(f"the grader's verdict cannot be read: {cut(reply.text, 200)!r}", "grader")
        return VERDICTS[said.strip().lower()]
