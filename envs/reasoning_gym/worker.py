"""The worker processes of env=reasoning_gym: they run the package, which makes the tasks and scores the answers."""

from __future__ import annotations

import atexit
import json
import random
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from typing import Any

from core.errors import InfraError, UserError
from core.process import BARE, OURS, WorkerPool, WorkerProcess, WorkerTimeout
from core.types import digest
from envs.reasoning_gym.families import ONLY_GOLD, is_gold
from single_turn_bench.verbatim import tagged, verbatim_answer
from single_turn_bench.worker import alarm, limit_memory, shut_off

MAKE_S = 120.0  # for the imports, and for one batch of tasks
NEARLY = 0.99  # of an answer that the scorer took and that is none: no success
BATCH = 20  # tasks of one seed of the package
MISSING = 'env=reasoning_gym needs the package reasoning-gym: pip install "reasoning-gym==0.1.25"'


class Gyms:
    """The workers that all envs of one timeout_s and options share, and what they drew. Usable from many threads."""

    def __init__(self, workers: WorkerPool) -> None:
        self.workers = workers
        self.draw = cache(self._draw)

    def score(self, family: str, seed: int, index: int, known: str, answer: str, timeout_s: float) -> tuple[float, str]:
        """As `Gym.score`; WorkerTimeout after timeout_s, the making of tasks not counted."""
        with self.workers.lease() as worker:
            worker.call("prepare", family, seed)
            return worker.call("score", family, seed, index, known, answer, timeout_s=timeout_s)

    def _draw(self, family: str, seed: int) -> list[tuple[str, str, float]]:
        """As `Gym.draw`, once for each family and seed."""
        if find_spec("reasoning_gym") is None:
            raise UserError(MISSING)
        try:
            with self.workers.lease() as worker:
                return worker.call("draw", family, seed)
        except WorkerTimeout as error:
            raise UserError(
                f"{family}: reasoning-gym did not load and make a batch of tasks within {MAKE_S:g} s: make them "
                "easier, or let less run beside it."
            ) from error


@cache
def shared_gyms(timeout_s: float, options: str) -> Gyms:
    """The program's one `Gyms` of such a time limit and options (as JSON); it is closed when the program ends."""
    factory = partial(Gym, timeout_s + 1, json.loads(options))
    make = partial(WorkerProcess, factory=factory, timeout_s=MAKE_S, path=OURS, environment=BARE)
    workers = WorkerPool(make)
    atexit.register(workers.close)
    return Gyms(workers)


class Gym:
    """Made in the child process alone: it changes the process that it is made in. It keeps no episode.

    alarm_s   time limit of scoring one answer, in seconds
    options   by family: the keys of its configuration in the package
    """

    def __init__(self, alarm_s: float, options: dict[str, dict[str, Any]]) -> None:
        shut_off()
        try:
            import reasoning_gym  # seconds of imports
        except ImportError as error:
            raise UserError(f"{MISSING}. ({error})") from error
        self._package, self._alarm_s, self._options = reasoning_gym, alarm_s, options
        self._batch = lru_cache(maxsize=256)(self._made)
        limit_memory()

    def draw(self, family: str, seed: int) -> list[tuple[str, str, float]]:
        """BATCH tasks as (question, gold answer or "", what the gold answer scores)."""
        dataset, entries = self._batch(family, seed)
        return [(entry["question"], *_gold(dataset, entry)) for entry in entries]

    def prepare(self, family: str, seed: int) -> None:
        """Make the tasks of a seed unless this process has made them already."""
        self._batch(family, seed)

    def score(self, family: str, seed: int, index: int, known: str, answer: str) -> tuple[float, str]:
        """(score from 0 to 1, "ok" or what the scorer raised at the answer). known: the digest of the question."""
        dataset, entries = self._batch(family, seed)
        entry = entries[index]
        if digest(entry["question"]) != known:
            raise InfraError(f"reasoning-gym made another task of {family} than before from the same seed")
        with alarm(self._alarm_s):
            try:
                score = _fraction(dataset.score_answer(answer, entry))
                more = score == 1.0 and family in ONLY_GOLD and not is_gold(answer, entry["answer"])
                return NEARLY if more else score, "ok"
            except Exception as error:  # noqa: BLE001 - the scorer could not read the answer
                return 0.0, f"raised {type(error).__name__}"

    def _made(self, family: str, seed: int) -> tuple[Any, list[dict[str, Any]]]:
        """(dataset, its tasks). Always all, in order: list_functions draws from the process's random numbers."""
        known = self._package.factory.DATASETS
        if family not in known:
            raise UserError(f"env.families: reasoning-gym has no {family}; it has {', '.join(sorted(known))}.")
        random.seed(seed)
        try:
            dataset = self._package.create_dataset(family, seed=seed, size=BATCH, **self._options.get(family, {}))
            return dataset, [dataset[index] for index in range(BATCH)]
        except Exception as error:
            cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise UserError(f"reasoning-gym cannot make {family} with env.options.{family}: {cause}") from error


def _gold(dataset: Any, entry: dict[str, Any]) -> tuple[str, float]:
    """(gold answer or "", its score when it is read as a reply's answer is)."""
    gold = entry["answer"]
    if not isinstance(gold, str) or not gold.strip():
        return "", 0.0
    return gold, _fraction(dataset.score_answer(verbatim_answer(tagged(gold)).answer, entry))


def _fraction(score: float) -> float:
    """A score as a reward from 0 to 1; 0 for what is none (NaN, below 0). Above 1 is no exact 1.0, and no success."""
    score = float(score)
    if score > 1.0:
        return NEARLY
    return score if score > 0.0 else 0.0
