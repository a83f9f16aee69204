"""Settings (`setting=`): whether a run learns, and from which labels; names and order of label sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import UserError
from core.types import MemoryRecord

ORACLE, ANSWERS = "oracle", "answers"  # labels of the environment; lessons made by an extractor that saw the answers
GOLD = (ORACLE, ANSWERS)  # forbidden in a bank that test_time reads; the worse one last
# Label sources of this project's judges, and words for the lack of one; any other was given by who sent the lessons.
SOURCES = frozenset(("llm", "heuristic", "consensus", "self_consistency", "none", "unknown", "", *GOLD))
TOLD = "told"  # the setting in which the bank holds the environment's own lessons

MEANING = {  # name: (learn, use_gold, show_answer)
    "test_time": (True, False, False),
    "true_labels": (True, True, False),
    "train": (True, True, True),
    "frozen": (False, False, False),
    TOLD: (False, True, True),
}
# What an attempt holds of the truth, apart from what the agent saw: whether it solved its task, and the answer.
OUTCOME, ANSWER = "outcome", "answer"
TRUE_LABELS = tuple(name for name, (_, use_gold, _) in MEANING.items() if use_gold)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the run may learn from.

    name                test_time (the paper's stream) | true_labels | train (a training loop) | frozen (the bank is
                        only read) | told (the bank holds the environment's own lessons, and is only read)
    learn               extract lessons and write them to the bank
    use_gold            the environment may label the attempts (judge=oracle); never in test_time
    show_answer         the failure prompt contains the reference answer; in train only
    allow_oracle_bank   test_time and frozen may read a bank whose lessons were made with the environment's labels or
                        answers; every table then says so
    """

    name: str
    learn: bool
    use_gold: bool
    show_answer: bool = False
    allow_oracle_bank: bool = False

    def __post_init__(self) -> None:
        # Tables name the setting: a run named test_time that used gold labels would mislead.
        if MEANING.get(self.name) != (self.learn, self.use_gold, self.show_answer):
            raise UserError(
                f"setting.name={self.name} cannot go with learn={self.learn} use_gold={self.use_gold} "
                f"show_answer={self.show_answer}: choose setting={', '.join(MEANING)} as a whole."
            )

    @property
    def withheld(self) -> frozenset[str]:
        """OUTCOME and ANSWER, as far as no judge, distiller or memory is told them."""
        told = {OUTCOME: self.use_gold, ANSWER: self.show_answer}
        return frozenset(name for name, is_told in told.items() if not is_told)

    def check_bank(self, labels: Iterable[str], path: str) -> None:
        """Raise UserError for a bank made with gold labels or answers, unless the setting allows them.

        labels   label sources of the bank's lessons
        """
        if not self.use_gold and not self.allow_oracle_bank and set(labels) & set(GOLD):
            raise UserError(
                f"setting={self.name} must not read the bank {path}: its lessons were made with "
                f"{'the answers shown' if ANSWERS in labels else 'labels of the environment'} (labels: "
                f"{joined_labels(labels)}); give another bank, or setting.allow_oracle_bank=true, which every table "
                "will note."
            )


def blanks_for(attempt: Mapping[str, Any], withheld: frozenset[str]) -> dict[str, Any]:
    """{field: value} of an attempt's fields that are not told, as they stand in its place.

    attempt     the fields of a Trajectory, as an object has them or a row
    withheld   OUTCOME, ANSWER, both or neither
    """
    told: dict[str, Any] = {}
    if OUTCOME in withheld:
        stated = attempt.get("info", {}).get("stated")  # read from the reply alone
        told |= {"success": None, "reward": None, "info": {"stated": stated} if isinstance(stated, bool) else {}}
        told |= {"ended_by": "end"} if attempt["ended_by"] == "goal" else {}
    return told | ({"gold": None} if ANSWER in withheld else {})


def labels_of(record: MemoryRecord) -> set[str]:
    """The label sources of a record; includes `answers` if its extractor was shown answers."""
    return named_labels(record.label_source, record.provenance.get("use_gold"), record.provenance.get("show_answer"))


def named_labels(label_source: str, use_gold: object, show_answer: object) -> set[str]:
    """The label sources in a record's `label_source` and in the notes of its provenance, without "none"."""
    found = {*label_source.split("+")} | ({ORACLE} if use_gold else set()) | ({ANSWERS} if show_answer else set())
    return found - {"none", ""}


def joined_labels(sources: Iterable[str]) -> str:
    """Label sources as one text, the worst last, e.g. "llm+oracle+answers"; "none" if there are none.

    sources   names, or texts made by this function
    """
    names = {name for source in sources for name in source.split("+")} - {"none", ""}
    return "+".join(sorted(names, key=lambda name: (GOLD.index(name) + 1 if name in GOLD else 0, name))) or "none"
