"""Questions of one's own: a file of rows, whatever their answers are.

    {"question": "What is the capital of Peru?", "answer": "Lima"}
    {"question": "How many sides has a cube?", "answer": "6"}
    {"question": "Which is a fruit?", "options": ["stone", "apple", "car"], "answer": "B"}

Each row is read and graded by its own kind (single_turn_bench/kinds.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from core.errors import UserError, meant
from core.types import Task
from envs.single_turn import ChoiceEnv, MathEnv, SingleTurnEnv, kept_in_order
from single_turn_bench.answers import Extracted
from single_turn_bench.choice import LETTERS, n_lettered
from single_turn_bench.datasets import Dataset, Row
from single_turn_bench.kinds import KINDS, golds, kinds_of
from single_turn_bench.verbatim import same_text, tagged, verbatim_answer


@dataclass(kw_only=True)
class TextEnv(SingleTurnEnv):
    """Answers that are words. With grader=model an answer is right if it is the gold one or the model says so."""

    _verdicts: dict[str, bool] = field(default_factory=dict, init=False, repr=False)
    _asked: tuple[str, str] | None = field(default=None, init=False, repr=False)

    def start(self, row: Row) -> None:
        self._verdicts, self._asked = {}, None
        super().start(row)

    def find(self, response: str) -> Extracted:
        return verbatim_answer(response)

    def facts(self) -> dict[str, Any]:
        return {"accepted": json.dumps(self._row.accepted)}

    def get_ground_truth(self) -> str:
        return self._row.answer

    def walkthrough(self) -> list[str]:
        return [tagged(self._row.answer)]

    def evaluate(self, prediction: str | None) -> bool:
        read = verbatim_answer(prediction or "")
        answer = read.answer if read.rule == "tag" else prediction  # of a whole reply
        exact = any(same_text(answer, gold) for gold in golds(self._row))
        if self.open_answers is None or not answer:
            return exact
        # Asked twice for each episode, by the step and by the rollout; the second time costs nothing.
        if self._asked != (self._row.id, answer):
            said = self.open_answers(self._task, golds(self._row), answer)
            self._verdicts, self._asked = {"exact": exact, "by_model": said}, (self._row.id, answer)
        return any(self._verdicts.values())

    def verdicts(self) -> dict[str, bool]:
        return self._verdicts

    def measures(self) -> dict[str, tuple[float, int]]:
        """How many answers are right by exact match, and how often the model says the same of an answer."""
        if not self._verdicts:
            return {}
        exact, said = self._verdicts["exact"], self._verdicts["by_model"]
        return {"exact_match": (float(exact), 1), "grader_agrees": (float(exact is said), 1)}

    @classmethod
    @contextmanager
    def regrader(cls, config: Mapping[str, Any]) -> Iterator[Callable[[Mapping[str, Any]], bool | None]]:
        def grade(attempt: Mapping[str, Any]) -> bool:
            accepted = json.loads(attempt["info"].get("accepted", "[]"))
            exact = any(same_text(attempt["answer"], gold) for gold in (attempt["gold"], *accepted))
            return exact or bool(attempt["info"].get("by_model"))  # a model is not asked again

        yield grade


@dataclass(kw_only=True)
class ShownLetterEnv(ChoiceEnv):
    """The letter of an option that the question's own text shows: their order stays as it is."""

    def start(self, row: Row) -> None:
        letter = row.answer.strip().strip("()[].").upper()
        index = LETTERS.index(letter)
        super().start(replace(row, options=("",) * max(n_lettered(row.question), index + 1), answer_index=index))

    def _shown(self, row: Row) -> tuple[tuple[str, ...], str, tuple[int, ...]]:
        return row.options, row.answer_letter, tuple(range(len(row.options)))


@dataclass(kw_only=True)
class QuestionsEnv(SingleTurnEnv):
    """A file of questions of any kind: each is given to the env of its kind. Its keys: config/env/questions.yaml."""

    dataset: str | None = None
    kind: str | None = None
    shuffle_options: bool = False
    answer_form: Mapping[str, str] | None = None
    timeout_s: float = 5.0
    _playing: SingleTurnEnv | None = field(default=None, init=False, repr=False)
    _of_all: str = field(init=False, repr=False)  # the instructions, without those of a row's kind

    def __post_init__(self) -> None:
        if not self.path:
            raise UserError(
                "env=questions asks what a file of yours holds: add env.path=FILE.jsonl (or .csv, .parquet)."
            )
        if unknown := set(self.answer_form or ()) - {*KINDS}:
            name = min(unknown)
            raise UserError(f"env.answer_form.{name}: the kinds are {', '.join(KINDS)}{meant(name, KINDS)}")
        self.dataset = self.dataset or Path(self.path).name.partition(".")[0]
        self._of_all = self.instructions = self.instructions.strip()

    @cached_property
    def _data(self) -> Dataset:
        return self.load()

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return kinds_of(self._data.rows, self.kind)

    def share(self, other: QuestionsEnv) -> None:
        super().share(other)
        self._kinds = other._kinds

    @cached_property
    def _envs(self) -> dict[str, SingleTurnEnv]:
        own = {"instructions": self.instructions, "max_steps": 1, "seed": self.seed, "dataset": self.dataset}
        math = MathEnv(**own, timeout_s=self.timeout_s)
        letter = ChoiceEnv(**own, shuffle_options=self.shuffle_options)
        return {"number": math, "math": math, "letter": letter, "text": TextEnv(**own)} | {
            "shown letter": ShownLetterEnv(**own)
        }

    def _tasks(self, split: str | None) -> list[Task]:
        """Without subjects and levels, tasks of several kinds are broken down by these."""
        tasks, kinds = super()._tasks(split), self._kinds
        if any(task.type for task in tasks) or len(set(kinds.values())) == 1:
            return tasks
        return [replace(task, type=kinds[task.id]) for task in tasks]

    def start(self, row: Row) -> None:
        super().start(row)
        kind = self._kinds[row.id]
        self.instructions = f"{self._of_all} {(self.answer_form or {}).get(kind, '')}".strip()
        self._playing = self._envs["shown letter" if kind == "letter" and not row.options else kind]
        self._playing.open_answers, self._playing._task = self.open_answers, self._task
        self._playing.start(row)

    def answer_kind(self, task: Task) -> str:
        return self._kinds[task.id]

    def question(self, row: Row) -> str:
        return self._envs["letter"].question(row) if row.options else row.question

    def find(self, response: str) -> Extracted:
        return self._playing.find(response)

    def facts(self) -> dict[str, Any]:
        return {"kind": self._kinds[self._row.id], **self._playing.facts()}

    def get_ground_truth(self) -> str:
        return self._playing.get_ground_truth()

    def walkthrough(self) -> list[str]:
        return self._playing.walkthrough()

    def admissible(self) -> list[str]:
        return self._playing.admissible()

    def evaluate(self, prediction: str | None) -> bool:
        return self._playing.evaluate(prediction)

    def verdicts(self) -> dict[str, bool]:
        return self._playing.verdicts()

    def measures(self) -> dict[str, tuple[float, int]]:
        return self._playing.measures()

    def describe(self) -> dict[str, Any]:
        counts = Counter(self._kinds.values())
        kept = kept_in_order(self._data.rows) if self.shuffle_options else {}
        return super().describe() | {"kinds": {kind: counts[kind] for kind in KINDS if counts[kind]}, **kept}

    @classmethod
    @contextmanager
    def regrader(cls, config: Mapping[str, Any]) -> Iterator[Callable[[Mapping[str, Any]], bool | None]]:
        with ExitStack() as stack:
            math, letter, text = (stack.enter_context(env.regrader(config)) for env in (MathEnv, ChoiceEnv, TextEnv))
            of_kind = {"number": math, "math": math, "letter": letter, "text": text}
            yield lambda attempt: of_kind[attempt["info"]["kind"]](attempt)

    def close(self) -> None:
        for env in self.__dict__.get("_envs", {}).values():
            env.close()
        super().close()
