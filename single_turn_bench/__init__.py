r"""Single-turn benchmarks: datasets and graders as pure functions, usable without the rest of the harness.

>>> grade_math(r"Therefore the area is $\boxed{2\sqrt3}$.", r"\sqrt{12}")
True
>>> extract_choice("(B) is tempting, but the answer is (C).", n_options=4)
'C'
"""

from single_turn_bench.choice import extract_choice
from single_turn_bench.equivalence import grade_math

__all__ = ["extract_choice", "grade_math"]
