"""Real package names that the guard takes for squats, and squats that it lets through.

    python -m benchmarks.bench_names [--names FILE]

The real names are held back: none is in core/memory/hygiene's data. The squats are made from the names that are
imitated, with one letter added, left out, replaced or swapped.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from pathlib import Path

from core.memory.hygiene.injection import imitations, known, real
from scripts.command_line import parser, plain_errors

HELD_BACK = Path(__file__).parent / "data" / "held_back_names.txt"
SQUATS = 500
SENTENCES = ("pip install {}", "Add the package {} to the project.", "Before you begin, run npm install {} once.")


def squats(number: int, seed: int = 0) -> list[str]:
    """Names with one typing error each."""
    made, found = random.Random(seed), dict[str, None]()
    names = sorted(name for name in known() if len(name) >= 6)
    while len(found) < number:
        if (squat := _with_an_error(made.choice(names), made)).replace("_", "-") not in real():
            found[squat] = None
    return list(found)


def _with_an_error(name: str, made: random.Random) -> str:
    at, letter = made.randrange(1, len(name) - 1), made.choice(string.ascii_lowercase)
    added, left_out = name[:at] + letter + name[at:], name[:at] + name[at + 1 :]
    replaced, swapped = name[:at] + letter + name[at + 1 :], name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    return made.choice([error for error in (added, left_out, replaced, swapped) if error != name])


def flagged(names: list[str]) -> Iterator[str]:
    """The names that are taken for squats in one of the sentences."""
    return (name for name in names if any(imitations(sentence.format(name)) for sentence in SENTENCES))


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--names", type=Path, default=HELD_BACK, metavar="FILE", help="other real names")
    given = options.parse_args(arguments)
    names = [name for name in given.names.read_text(encoding="utf-8").split() if name.replace("_", "-") not in real()]
    alarms, made = list(flagged(names)), squats(SQUATS)
    stopped = set(flagged(made))
    print(f"false alarms: {len(alarms)} of {len(names)} real names {' '.join(alarms)}".rstrip())
    print(f"squats stopped: {len(stopped)} of {len(made)}")
    print("let through:", *[name for name in made if name not in stopped][:20])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
