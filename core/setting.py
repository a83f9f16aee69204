"""What a run may learn, and from which labels (`setting=`)."""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import UserError

MEANING = {  # name: (learn, use_gold, show_answer)
    "test_time": (True, False, False),
    "true_labels": (True, True, False),
    "train": (True, True, True),
    "frozen": (False, False, False),
}
TRUE_LABELS = tuple(name for name, (_, use_gold, _) in MEANING.items() if use_gold)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """test_time (the paper's stream), true_labels, train (a training loop) or frozen (a bank that is only read).

    learn         extract lessons and write them to the bank
    use_gold      the environment may label the attempts (judge=oracle); never in test_time
    show_answer   the failure prompt contains the reference answer; in train only
    """

    name: str
    learn: bool
    use_gold: bool
    show_answer: bool = False

    def __post_init__(self) -> None:
        # Tables name the setting: a run named test_time that used gold labels would mislead.
        if MEANING.get(self.name) != (self.learn, self.use_gold, self.show_answer):
            raise UserError(
                f"setting.name={self.name} cannot go with learn={self.learn} use_gold={self.use_gold} "
                f"show_answer={self.show_answer}: choose setting={', '.join(MEANING)} as a whole."
            )
