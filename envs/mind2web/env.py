"""Mind2Web (arXiv 2306.06070): recorded tasks on real websites, one prediction for each recorded step.

    <html> <input id=12 text title /> <button id=21> Search </button> </html>      TYPE [12] [Dune]

An episode is a task. Whatever the agent predicts, the next observation is the next recorded page (teacher forcing), so
the actions of an attempt do not act. The reward is the step success rate, success is every step right, and `measures`
has element accuracy, action F1 and step success. Where published protocols differ there is a key; docs/environments.md
says who used which.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from core.errors import UserError, check_choice, check_numbers
from core.page import HTML
from core.seeding import derive_seed
from core.types import Task, digest
from envs.base import BaseEnv
from envs.mind2web.data import Record, RecordedStep, Split, load_split
from envs.mind2web.page import Page
from envs.mind2web.score import WRONG, Action, Mark, marked, read_action, read_choice, written
from envs.mind2web.shots import examples

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # the first is none of the above
ACTIONS = {
    "ids": """
The actions, ID being the number after id= of an element:
- CLICK [ID]
- TYPE [ID] [text to type]
- SELECT [ID] [option to select]
""",
    "choices": """
You are asked which element to act on, a few of them at a time, until one is left. Write its letter and what to do with
it, or the letter A alone if the element is not among the choices:
- B. CLICK
- B. TYPE [text to type]
- B. SELECT [option to select]
- A
""",
}
UNREAD = "(no action could be read)"
NOT_ASKED = "(a step that was not asked)"
OVER = "The recording ends here."


@dataclass
class Choices:
    """MindAct's questions about one step: a few candidates at a time, what is chosen comes back, until one is left.

    waiting   candidates that were not asked about yet, then those that were chosen
    """

    waiting: list[str]
    size: int
    shown: list[str] = field(default_factory=list, init=False)
    chosen: tuple[str, str, str] | None = field(default=None, init=False)  # (element, operation, value), the last one

    def __post_init__(self) -> None:
        self._next()

    def answer(self, reply: str) -> bool:
        """Take a reply; returns whether another question follows. An unreadable reply means "none of the above"."""
        letter, op, value = read_choice(reply) or ("A", "", "")
        place = LETTERS.index(letter) - 1
        if 0 <= place < len(self.shown):
            self.chosen = (self.shown[place], op, value)
            self.waiting.append(self.shown[place])
        if len(self.waiting) > 1:
            self._next()
            return True
        return False

    def action(self) -> Action | None:
        """The last choice, if it was not voted out."""
        if self.chosen is None or not self.waiting:
            return None
        element, op, value = self.chosen
        return Action(op=op, element=element, value=value, said=written(op, element, value))

    def _next(self) -> None:
        self.shown, self.waiting = self.waiting[: self.size], self.waiting[self.size :]


@dataclass(kw_only=True)
class Mind2WebEnv(BaseEnv):
    """No process of its own; a task's record is read when it is played. Its keys: config/env/mind2web.yaml."""

    pages: ClassVar[bool] = True
    split: str = "test_task"
    data: str | None = None
    top_k: int = 50
    form: str = "ids"
    choices_per_question: int = 5
    gold_outside: str = "wrong"
    history: str = "gold"
    history_length: int | None = 5
    step_success: str = "parts"
    shots: int = 0
    shots_file: str | None = None
    _most_steps: int = field(default=0, init=False, repr=False)  # as configured
    _splits: dict[str, Split] = field(default_factory=dict, init=False, repr=False)
    _record: Record | None = field(default=None, init=False, repr=False)
    _place: int = field(default=0, init=False, repr=False)  # of the step that is asked now
    _marks: list[Mark] = field(default_factory=list, init=False, repr=False)
    _own: list[str] = field(default_factory=list, init=False, repr=False)  # the earlier actions as predicted
    _page: Page | None = field(default=None, init=False, repr=False)
    _choices: Choices | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_choice(self, "env", "form", tuple(ACTIONS))
        check_choice(self, "env", "gold_outside", ("wrong", "first"))
        check_choice(self, "env", "history", ("gold", "own"))
        check_choice(self, "env", "step_success", ("parts", "whole"))
        check_numbers(self, "env", "top_k", "history_length", least=1, whole=True)
        check_numbers(self, "env", "choices_per_question", least=2, most=len(LETTERS) - 1, whole=True)
        self._most_steps = self.max_steps
        check_numbers(self, "env", "shots", least=0, whole=True)
        shown = examples(self.shots, self.form, self.shots_file)
        self.instructions = self.instructions.rstrip() + "\n" + ACTIONS[self.form].strip() + (shown and f"\n\n{shown}")

    def walkthrough(self) -> list[str]:
        """In form=choices the letter of the element where it is shown. Steps that are not asked stay wrong."""
        return [said for place in self._asked() for said in self._solved(place)]

    def admissible(self) -> list[str]:
        """A click on each candidate, or in form=choices each choice."""
        if self._choices is None:
            return [f"CLICK [{element}]" for element in self._candidates(self._place)]
        return ["A", *(f"{letter}. CLICK" for letter, _ in zip(LETTERS[1:], self._choices.shown, strict=False))]

    def get_ground_truth(self) -> str:
        return "; ".join(self._gold(step).said for step in self._record.steps)

    def evaluate(self, prediction: str | None) -> bool:
        return all(mark.step == 1.0 for mark in self._marks)

    def measures(self) -> dict[str, tuple[float, int]]:
        names = {"element_accuracy": "element", "action_f1": "f1", "step_success": "step"}
        return {name: (sum(getattr(m, key) for m in self._marks), len(self._marks)) for name, key in names.items()}

    def describe(self) -> dict[str, Any]:
        entries = self._of(self.split).entries
        shown = {"shots": digest(examples(self.shots, self.form, self.shots_file))} if self.shots else {}
        sha256 = digest([each.sha256 for each in entries])
        return {"dataset": "mind2web", "split": self.split, "sha256": sha256} | shown

    def _tasks(self, split: str | None) -> list[Task]:
        split = split or self.split
        entries = self._of(split).entries
        longest = max(each.n_steps for each in entries) * self._questions()
        if self._most_steps < longest:
            raise UserError(f"env.max_steps={self._most_steps}: the longest task of {split} may take {longest}")
        self.max_steps = longest  # no task takes more; dry_run prices as many
        return [Task(id=f"mind2web/{split}/{each.id}", query=each.query, type=each.domain) for each in entries]

    def _questions(self) -> int:
        """About one step, at most."""
        return 1 if self.form == "ids" else max(1, -(-(self.top_k - 1) // (self.choices_per_question - 1)))

    def _of(self, split: str) -> Split:
        if split not in self._splits:
            self._splits[split] = load_split(split, Path(self.data) if self.data else None)
        return self._splits[split]

    def _reset(self, task: Task) -> str:
        _, split, name = (*task.id.split("/", 2), "", "")[:3]
        if not task.id.startswith("mind2web/") or name not in {each.id for each in self._of(split).entries}:
            raise UserError(f"{task.id!r} is not a task of Mind2Web: mind2web/SPLIT/ANNOTATION_ID")
        self._record = self._of(split).read(name)
        self._marks = [WRONG] * len(self._record.steps)
        self._own = []
        self._turn_to(self._asked()[0])
        return self._observation()[0]

    def _asked(self) -> list[int]:
        """The steps that are asked. If none can be answered, the last one is asked anyway, and counts as wrong."""
        places = [place for place in range(len(self._record.steps)) if self._right(place)]
        return places or [len(self._record.steps) - 1]

    def _turn_to(self, place: int) -> None:
        self._own += [NOT_ASKED] * (place - len(self._own))
        self._place, self._page = place, Page(self._record.steps[place].html)
        self._choices = None
        if self.form == "choices":
            self._choices = Choices(self._shuffled(place), self.choices_per_question)

    def _shuffled(self, place: int) -> list[str]:
        """The candidates in random order: if they were ranked, the first would mostly be the right one."""
        names = (self._record.id, str(place), "mind2web")
        return sorted(self._candidates(place), key=lambda element: derive_seed(self.seed, *names, element))

    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        valid = (read_choice(action) if self._choices else read_action(action)) is not None
        reward, later = 0.0, [self._place]
        if not (self._choices and self._choices.answer(action)):
            self._mark(self._choices.action() if self._choices else read_action(action))
            reward = self._marks[self._place].step / len(self._marks)
            if later := [place for place in self._asked() if place > self._place]:
                self._turn_to(later[0])
        right = int(sum(mark.step for mark in self._marks))
        info = {"valid": valid, "won": self.evaluate(None), "n_right": right, "n_steps": len(self._marks)}
        if not later:
            return OVER, reward, True, info
        observation, hint_chars = self._observation()
        return observation, reward, False, info | {"hint_chars": hint_chars}

    def _mark(self, action: Action | None) -> None:
        self._own.append(self._in_words(action))
        if right := self._right(self._place):  # else nothing is right, whatever was said
            gold = self._gold(self._record.steps[self._place])
            self._marks[self._place] = marked(action, gold, right, whole=self.step_success == "whole")

    def _observation(self) -> tuple[str, int]:
        """(page, task and earlier actions; length of the recorded actions at its end, info["hint_chars"])."""
        recorded = [step.shown for step in self._record.steps[: self._place]]
        earlier = recorded if self.history == "gold" else self._own
        earlier = earlier[-self.history_length :] if self.history_length else earlier
        tail = "\n".join(["", "", "Previous actions:", *(earlier or ["None"])])
        text = f"Step {self._place + 1}\n\n{HTML}\n{self._shown()}\n\nTask: {self._record.query}"
        return text + tail, len(tail) if self.history == "gold" else 0

    def _shown(self) -> str:
        if self._choices is None:
            return self._page.text(self._candidates(self._place))
        listed = ["None of the above", *(self._page.element(element) for element in self._choices.shown)]
        lines = [f"{letter}. {text}" for letter, text in zip(LETTERS, listed, strict=False)]
        return "\n".join([self._page.text(self._choices.shown), "", "Which element is to be acted on next?", *lines])

    def _in_words(self, action: Action | None) -> str:
        """An action written like the recorded ones: the element, then the operation."""
        if action is None:
            return UNREAD
        element = self._page.element(action.element) or f"[{action.element}]"
        return f"{element} -> {action.op}" + (f": {action.value}" if action.value else "")

    def _candidates(self, place: int) -> list[str]:
        """The ids of a step's candidates, the best first."""
        step, first = self._record.steps[place], self.gold_outside == "first"
        gold = [(0 if first else rank, element) for element, rank in step.gold]
        ranked = [*gold, *((rank, element) for element, rank in step.others)]
        ranked.sort(key=lambda each: each[0])
        return [element for rank, element in ranked if rank < self.top_k][: self.top_k]

    def _right(self, place: int) -> list[str]:
        """The candidates that count as the step's right element, in the record's order."""
        shown = set(self._candidates(place))
        return [element for element, _ in self._record.steps[place].gold if element in shown]

    def _gold(self, step: RecordedStep) -> Action:
        """The recorded action; of several right elements the first, as in Synapse and AWM."""
        element = step.gold[0][0] if step.gold else "not on the page"
        return Action(op=step.op, element=element, value=step.value, said=written(step.op, element, step.value))

    def _solved(self, place: int) -> list[str]:
        """Replies that reproduce a recorded step, as far as the form allows."""
        step = self._record.steps[place]
        right = self._right(place)
        if self.step_success == "whole" or not right:
            right = [self._gold(step).element]
        if self.form == "ids":
            return [written(step.op, right[0], step.value)]
        replies, choices, more = [], Choices(self._shuffled(place), self.choices_per_question), True
        while more:
            found = next((n for n, element in enumerate(choices.shown, 1) if element in right), 0)
            value = "" if step.op == "CLICK" else f" [{step.value}]"
            replies.append(f"{LETTERS[found]}. {step.op}{value}" if found else "A")
            more = choices.answer(replies[-1])
        return replies
