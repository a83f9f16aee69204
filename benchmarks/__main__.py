"""Run the benchmarks, and say which figures got worse by more than 15 %.

    python -m benchmarks [--store]               the quick ones, each with --quick
    python -m benchmarks NAME... [--store]       these
    python -m benchmarks NAME... -- WORDS        with these options instead of --quick

A figure is compared with the one in benchmarks/results/NAME.json that was measured with the same options; --store puts
the new ones there. On another machine only ratios are compared: to a reference in the same run, in per cent, counts.
On a busy machine times are not to be trusted. Exit status 1: a figure got worse, or a program failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import UserError, meant
from scripts.command_line import REPO, command_of, parser, plain_errors

RESULTS = Path(__file__).parent / "results"
QUICK = "bench_start bench_tables bench_llm bench_memory bench_mcp recall grading_pairs null_simulation kill_drill"
WORSE = 1.15
TIMES = ("s", "ms", "s a task", "ms a task", "rec/s", "calls/s", "MB", "GB", "ms, least")  # units that a machine sets


def worse(was: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """A sentence for each figure that got worse. was, now: what `Lines.end` saves."""
    before = {row["line"]: row for row in was["lines"]}
    for row in now["lines"]:
        old = before.get(row["line"])
        if old is None or (row["unit"] in TIMES and was["machine"] != now["machine"]):
            continue
        less, more = (old, row) if row["least"] else (row, old)  # for a lower bound, less is worse
        if less["value"] > WORSE * more["value"]:
            yield f"{row['line']}: {row['value']:.3f} {row['unit']}, was {old['value']:.3f} ({was['commit']})"


def measure(name: str, words: list[str], *, store: bool) -> list[str]:
    """Run a program, and compare it with what is stored of it: a sentence for each figure that got worse."""
    file, key = RESULTS / f"{name}.json", " ".join(words)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.json"
        done = subprocess.run([*command_of(f"benchmarks.{name}", *words), "--json", made], cwd=REPO, check=False)
        if not made.is_file():
            return [f"it failed with exit status {done.returncode}"]
        now = json.loads(made.read_text(encoding="utf-8"))
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    said = list(worse(kept[key], now)) if key in kept else []
    if key not in kept:
        print(f"No figures with the options {key or '(none)'} are stored of {name}: --store keeps these.")
    if store:
        RESULTS.mkdir(exist_ok=True)
        file.write_text(json.dumps(kept | {key: now}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return said


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="NAME")
    options.add_argument("--store", action="store_true", help="keep the new figures in benchmarks/results")
    at = given.index("--") if "--" in given else len(given)
    asked, words = options.parse_args(given[:at]), given[at + 1 :] if at < len(given) else ["--quick"]
    known = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    if unknown := next((name for name in asked.names if name not in known), None):
        raise UserError(f"{unknown} is no benchmark{meant(unknown, known)}")
    found: dict[str, list[str]] = {}
    for name in asked.names or QUICK.split():
        print(f"\n{name} {' '.join(words)}", flush=True)
        found[name] = measure(name, words, store=asked.store)
    print(f"\nworse by more than {round(100 * WORSE - 100)} %:" if any(found.values()) else "\nNothing got worse.")
    for name, said in found.items():
        print("\n".join(f"  {name}: {each}" for each in said), end="\n" * bool(said))
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
