"""Which families and tasks of reasoning-gym 0.1.25 are not played, and why.

tests/envs/test_reasoning_gym.py shows each reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from core.errors import UserError

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
    """Whether an answer equals the gold answer, ignoring blanks, commas and case."""
    plain, wanted = (re.sub(r"[\s,]+", "", text).lower() for text in (answer, gold))
    return plain == wanted


def wrong_gold(family: str, question: str, gold: str) -> bool:
    """Whether a task's gold answer is known to be wrong, or its question to be worded wrongly."""
    if family == "family_relationships":
        return bool(IN_LAW.fullmatch(gold))
    if family == "calendar_arithmetic":  # days of the next year are printed with this one's number
        return any(_weekday(day) != name for name, day in DAY.findall(question))
    if family == "time_intervals":  # thousandths of a second are cut off, not rounded: 1.001 s becomes 1.000
        return bool(CUT.search(question) or "." in gold)
    return False


def _weekday(day: str) -> str | None:
    """The weekday of a day such as "March 1, 2022"; None if the calendar has no such day."""
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
