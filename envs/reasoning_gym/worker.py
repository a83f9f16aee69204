"""What env=reasoning_gym hosts in a process of its own: the package, which makes the tasks and scores the answers."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from core.errors import InfraError, UserError
from core.types import digest
from single_turn_bench.verbatim import tagged, verbatim_answer
from single_turn_bench.worker import alarm, limit_memory, shut_off

# Which families and tasks of reasoning-gym 0.1.25 are not played; tests/envs/test_reasoning_gym.py shows each reason.

EXECUTES = "its scorer executes the answer as a program: a model's text such as 9**9**9**9 would run"
NO_GOLD = "it has no gold answer"
HASH_SEED = "its tasks differ from process to process (with Python's hash seed), so no task could be named again"
NONSENSE = "its scorer accepts wrong answers: "
REFUSED = {
    **dict.fromkeys(
        "binary_matrix countdown intermediate_integration n_queens polynomial_multiplication puzzle24 "
        "simple_integration spiral_matrix string_insertion".split(),
        EXECUTES,
    ),
    **dict.fromkeys("boxnet graph_color propositional_logic rubiks_cube rush_hour".split(), NO_GOLD),
    **dict.fromkeys("codeio isomorphic_strings knight_swap ransom_note word_ladder".split(), HASH_SEED),
    "coin_flip": NONSENSE + "any first characters of the number, 0 for every probability",
    "complex_arithmetic": NONSENSE + "nan for every number",
    "decimal_arithmetic": NONSENSE + "0.016 for 0.0167921309687",
    "game_of_life_halting": NONSENSE + "any text where the answer is True",
    "gsm_symbolic": NONSENSE + "-85 for 85",
    "number_sorting": NONSENSE + "every number 1 off",
    "pool_matrix": NONSENSE + "every number 1 % off",
    "composite": "it is a mixture of other families: name those",
}

# Their scorers give 1.0 for the gold answer with more behind it, for "5 hours" where "5 days" is right.
ONLY_GOLD = ("game_of_life", "letter_jumble", "time_intervals", "word_sorting")
IN_LAW = re.compile(r".*-in-law|niece|nephew")  # "What is Ann to Bob?" has what Bob is to Ann as its gold answer
DAY = re.compile(r"(\w+day), (\w+ \d+, \d+)")
CUT = re.compile(r"\(\w+day\) \d")  # of such a moment the gold answer knows the date alone


def is_gold(answer: str, gold: str) -> bool:
    """Whether an answer is the gold answer but for blanks, commas and capitals."""
    plain, wanted = (re.sub(r"[\s,]+", "", text).lower() for text in (answer, gold))
    return plain == wanted


def wrong_gold(family: str, question: str, gold: str) -> bool:
    """Whether a task's gold answer is known to be wrong, or its question to say something else than was meant."""
    if family == "family_relationships":
        return bool(IN_LAW.fullmatch(gold))
    if family == "calendar_arithmetic":  # days of the next year are printed with this one's number
        return any(_weekday(day) != name for name, day in DAY.findall(question))
    if family == "time_intervals":  # thousandths of a second are cut off, not rounded: 1.001 s becomes 1.000
        return bool(CUT.search(question) or "." in gold)
    return False


def _weekday(day: str) -> str | None:
    """Of a day such as "March 1, 2022"; None where the calendar has no such day."""
    try:
        return f"{datetime.strptime(day, '%B %d, %Y'):%A}"
    except ValueError:  # February 29 of another year
        return None


def check(families: Iterable[str], options: Mapping[str, Mapping]) -> None:
    """Raises UserError for families and options that cannot be played, with the reason."""
    names = list(families)
    if not names or len(set(names)) < len(names):
        raise UserError("env.families: name at least one family, and each only once")
    if refused := [f"{name} is not played: {REFUSED[name]}" for name in names if name in REFUSED]:
        raise UserError(f"env.families: {'; '.join(refused)}.")
    if idle := sorted(set(options) - set(names)):
        raise UserError(f"env.options: {', '.join(idle)} is not among env.families")
    if own := [f"{name}.{key}" for name in options for key in ("seed", "size") if key in options[name]]:
        raise UserError(f"env.options: {', '.join(own)} is decided by env.seed and env.per_family")


NEARLY = 0.99  # of an answer that the scorer took and that is none: no success
BATCH = 20  # tasks of one seed of the package
MISSING = 'env=reasoning_gym needs the package reasoning-gym: pip install "reasoning-gym==0.1.25"'


class Gym:
    """Made in the child process alone: it changes the process that it is made in. It keeps no episode.

    alarm_s   seconds that one score may take
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
        """Make the tasks of a seed, unless they are there: a new process has none."""
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
