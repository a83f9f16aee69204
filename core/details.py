"""`details=`: points in which the paper, its authors' released code and this project differ, each a key of its own."""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import check_numbers


@dataclass(frozen=True, kw_only=True)
class Details:
    """The defaults are this project's; `details=authors_release` has the authors' (docs/workflows.md).

    A part gets each detail for which it has a field of the same name, unless its own configuration sets that field.

    rule_exception         lessons may keep a rule that the environment itself stated; False: nothing literal
    observations           extraction reads and stores what the environment answered; False: thoughts and actions only
    judge_thoughts         extraction from one attempt is told why the model judge called it a success or a failure
    raw_replies            the extraction's whole reply is stored as it is, as one item; False: its items are read, and
                           unreadable ones are dropped
    whole_attempts         attempts are not cut where they are learned from, stored or shown: overrides
                           distiller.max_chars, contrast.max_tokens and agent.max_memory_chars
    strip_lessons          the default of the key strip_lessons
    query_instruction      what stands before a task's query when it is embedded for a search; None: nothing. Stored
                           queries are embedded without it
    workflows_temperature  temperature of the extraction with memory=awm; None: that of roles.extractor
    workflows_example      its prompt has a worked example
    contrast_temperature   temperature of the extraction from several attempts; None: that of roles.extractor
    judge_all              all k parallel attempts are judged; False: only the answer, where extraction needs no labels
    """

    rule_exception: bool = True
    observations: bool = True
    judge_thoughts: bool = False
    raw_replies: bool = False
    whole_attempts: bool = False
    strip_lessons: bool = True
    query_instruction: str | None = None
    workflows_temperature: float | None = None
    workflows_example: bool = False
    contrast_temperature: float | None = None
    judge_all: bool = True

    def __post_init__(self) -> None:
        check_numbers(self, "details", "workflows_temperature", "contrast_temperature", least=0)
