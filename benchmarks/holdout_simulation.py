"""How often the interval of `run --holdout` errs, for users who look after each run, and what it finds.

    python -m benchmarks.holdout_simulation [--users 2000] [--runs 200] [--json FILE]

A user errs who ever sees an interval that leaves out the true difference. Success is a coin of a rate; seconds are
log-normal, of which a run takes half as long or twice as long by chance (sd .7 of the logarithm).
"""

from __future__ import annotations

import random
import sys

from benchmarks.lines import Lines, lines_parser
from mcp_server.holdout import FIRST, compare

RATES, HOLDOUTS, GAINS = (0.05, 0.3, 0.5, 0.8, 0.95), (0.1, 0.2, 0.5), (0.1, 0.2, 0.3)
LOOKS = (50, 100, 200)


def user(rng: random.Random, n: int, holdout: float, rate: float | None, gain: float) -> dict[str, object]:
    """A user who looks after each run: {errs: whether an interval left out the gain, found: the first run after which
    one left out 0, or None}. rate None: of seconds, where the gain is one of the logarithm."""
    shown = [rng.random() >= holdout for _ in range(n)]
    if rate is None:
        values = [rng.gauss(gain * each, 0.7) for each in shown]
    else:
        values = [float(rng.random() < rate + gain * each) for each in shown]
    errs, found = False, None
    for end in range(2 * FIRST, n + 1):
        seen = compare(shown[:end], values[:end], [holdout] * end, rates=rate is not None)
        if seen.low is None or seen.high is None:
            continue
        errs = errs or not seen.low <= gain <= seen.high
        if found is None and not seen.low <= 0 <= seen.high:
            found = end
    return {"errs": errs, "found": found}


def main() -> int:
    options = lines_parser(__doc__)
    options.add_argument("--users", type=int, default=2000)
    options.add_argument("--runs", type=int, default=200)
    given, lines, rng = options.parse_args(), Lines(), random.Random(68)
    worlds = [(holdout, rate, 0.0) for holdout in HOLDOUTS for rate in (*RATES, None)]
    worlds += [(holdout, 0.4, gain) for holdout in HOLDOUTS[1:] for gain in GAINS]
    for holdout, rate, gain in worlds:
        users = [user(rng, given.runs, holdout, rate, gain) for _ in range(given.users)]
        found = [sum(each["found"] is not None and each["found"] <= n for each in users) for n in LOOKS]
        note = ", ".join(f"{count} found by {n}" for count, n in zip(found, LOOKS, strict=True))
        errs = 100 * sum(bool(each["errs"]) for each in users) / given.users
        lines.add(f"holdout {holdout}, rate {rate}, gain {gain}: users who err", errs, 5, "%", note=note)
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
