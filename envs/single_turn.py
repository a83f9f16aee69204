"""Single-turn benchmarks: a question and one reply, which is graded by equivalence or by its letter.

    env=warmup|math500|aime24|aime25|gsm8k   MathEnv: a free answer
    env=gpqa_diamond|mmlu_pro                ChoiceEnv: 3 to 10 options, answered by a letter

or a file of one's own; envs/questions.py plays one whose rows are of several kinds. One row of a dataset is one task;
the reply is the only action and ends the episode. Nothing about its correctness is said to the agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from core.errors import UserError
from core.types import Task
from envs.base import BaseEnv
from single_turn_bench.answers import Extracted, extract_answer, gold_answer, stated_in
from single_turn_bench.choice import LETTERS, find_choice, lettered, order_matters, shown_options
from single_turn_bench.columns import Columns
from single_turn_bench.datasets import Dataset, Row, load_rows, select
from single_turn_bench.equivalence import shared_grader

OpenAnswers = Callable[[Task, Sequence[str], str], bool]  # (task, gold answers, answer); raises InfraError


@dataclass(kw_only=True)
class SingleTurnEnv(BaseEnv):
    """Base class of the single-turn benchmarks: their rows, and an episode of one action.

    Its keys: config/env/math500.yaml and questions.yaml.

    open_answers   grader=model: whether an answer means the same as one of the gold ones; None: not asked for
    """

    dataset: str
    path: str | None = None
    count: int | None = None
    sha256: str | None = None
    columns: Mapping[str, Any] | None = None
    ids: list[str] | None = None
    subject: str | list[str] | None = None
    level: int | str | list | None = None
    shuffle: bool = False
    multiple_choice: ClassVar[bool] = False  # whether its rows have options
    open_answers: OpenAnswers | None = field(default=None, init=False, repr=False)
    _row: Row | None = field(default=None, init=False, repr=False)
    _task: Task | None = field(default=None, init=False, repr=False)

    @cached_property
    def _data(self) -> Dataset:
        data = self.load()
        other = next((row for row in data.rows if bool(row.options) != self.multiple_choice), None)
        if other:
            has = "options" if other.options else "no options"
            wants = "envs.single_turn.ChoiceEnv" if other.options else "envs.single_turn.MathEnv"
            raise UserError(f"{other.id} has {has}: give it env._target_={wants}.")
        return data

    def load(self) -> Dataset:
        columns = Columns.of(self.columns)
        return load_rows(self.dataset, self.path, count=self.count, sha256=self.sha256, columns=columns)

    @cached_property
    def _by_id(self) -> dict[str, Row]:
        return {row.id: row for row in self._data.rows}

    def share(self, other: SingleTurnEnv) -> None:
        self._data, self._by_id = other._data, other._by_id  # neither is ever changed

    def _tasks(self, split: str | None) -> list[Task]:
        rows = select(
            self._data.rows, ids=self.ids, subject=self.subject, level=self.level, shuffle=self.shuffle, seed=self.seed
        )
        return [Task(id=row.id, query=self.question(row), type=str(row.subject or row.level or "")) for row in rows]

    def _reset(self, task: Task) -> str:
        self._task = task
        self.start(self._by_id[task.id])
        return task.query

    def start(self, row: Row) -> None:
        """Make this the row that is read and graded."""
        self._row = row

    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        found = self.find(action)
        stated = stated_in(action, found, self.find, cut_off=self.cut_off)
        won = self.evaluate(found.answer)
        info = {"valid": True, "won": won, "answer": found.answer, "rule": found.rule, "stated": stated}
        return "", float(won), True, {**info, **self.facts(), **self.verdicts()}

    def describe(self) -> dict[str, Any]:
        return {"dataset": self._data.name, "sha256": self._data.sha256}

    def question(self, row: Row) -> str:
        """What the agent is asked."""
        return row.question

    def find(self, response: str) -> Extracted:
        """The answer in a reply."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Plain facts of the row that is played, for its record."""
        return {}

    def verdicts(self) -> dict[str, bool]:
        """What several graders said of the answer that was evaluated last; {} where there is but one."""
        return {}


@dataclass(kw_only=True)
class MathEnv(SingleTurnEnv):
    """Free answers. timeout_s limits the comparison of one answer, in seconds; over it the answer is wrong."""

    timeout_s: float = 5.0

    def find(self, response: str) -> Extracted:
        return extract_answer(response)

    def facts(self) -> dict[str, Any]:
        return {"accepted": json.dumps(self._row.accepted)} if self._row.accepted else {}

    def start(self, row: Row) -> None:
        shared_grader().prepare()  # a worker takes seconds to start: while the model is being asked, they cost nothing
        super().start(row)

    def get_ground_truth(self) -> str:
        return self._row.answer

    def walkthrough(self) -> list[str]:
        return [f"\\boxed{{{self._row.answer}}}"]

    def evaluate(self, prediction: str | None) -> bool:
        return equal_to_one(prediction, (self._row.answer, *self._row.accepted), self.timeout_s)

    @classmethod
    @contextmanager
    def regrader(cls, config: Mapping[str, Any]) -> Iterator[Callable[[Mapping[str, Any]], bool | None]]:
        def grade(attempt: Mapping[str, Any]) -> bool:
            golds = (attempt["gold"], *json.loads(attempt.get("info", {}).get("accepted", "[]")))
            return equal_to_one(attempt["answer"], golds, config.get("timeout_s", cls.timeout_s))

        yield grade


@lru_cache(maxsize=1024)  # asked twice for each episode, by the step and by the rollout
def equal_to_one(prediction: str | None, golds: tuple[str, ...], timeout_s: float) -> bool:
    return any(shared_grader().equal(prediction, gold_answer(gold), timeout_s) for gold in golds)


def kept_in_order(rows: Sequence[Row]) -> dict[str, int]:
    """For the manifest: how many rows' options are not shuffled, as one names others."""
    return {"kept_in_order": sum(order_matters(row.options) for row in rows if row.options)}


@dataclass(kw_only=True)
class ChoiceEnv(SingleTurnEnv):
    """Multiple choice, scored by the letter that the reply states last.

    shuffle_options   show the options in an order drawn by a hash of seed and id, as the benchmark's authors do or not;
                      those of which one names others ("all of the above", "both A and C") always keep their order

    The order shown is in the record. GPQA's authors ask to keep its questions out of plain text on the web: do not
    publish such run directories.
    """

    shuffle_options: bool = False
    multiple_choice: ClassVar[bool] = True

    def describe(self) -> dict[str, Any]:
        return super().describe() | (kept_in_order(self._data.rows) if self.shuffle_options else {})

    def question(self, row: Row) -> str:
        options, _, _ = self._shown(row)
        return f"{row.question}\n\n{lettered(options)}"

    def find(self, response: str) -> Extracted:
        options, _, _ = self._shown(self._row)
        return find_choice(response, len(options), options)

    def facts(self) -> dict[str, Any]:
        return {"order": ",".join(map(str, self._shown(self._row)[2]))}

    def get_ground_truth(self) -> str:
        return self._shown(self._row)[1]

    def walkthrough(self) -> list[str]:
        return [f"The answer is ({self.get_ground_truth()})."]

    def admissible(self) -> list[str]:
        return [f"The answer is ({letter})." for letter in LETTERS[: len(self._row.options)]]

    def evaluate(self, prediction: str | None) -> bool:
        return find_choice(prediction or "", len(self._row.options)).answer == self.get_ground_truth()

    @classmethod
    @contextmanager
    def regrader(cls, config: Mapping[str, Any]) -> Iterator[Callable[[Mapping[str, Any]], bool | None]]:
        def grade(attempt: Mapping[str, Any]) -> bool | None:
            options = len(str(attempt["info"].get("order", "")).split(","))  # 1: their order was not recorded
            return find_choice(attempt["answer"] or "", options).answer == attempt["gold"] if options > 1 else None

        yield grade

    def _shown(self, row: Row) -> tuple[tuple[str, ...], str, tuple[int, ...]]:
        """(options, letter of the right one, order) as this seed shows them."""
        return shown_options(row.options, row.answer_index, self.seed, row.id, shuffle=self.shuffle_options)
