"""Which families of reasoning-gym 0.1.25 are not played, and why; tests/test_reasoning_gym.py shows each reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
    "composite": "it is a mixture of other families: name those",
}


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
