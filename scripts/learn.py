"""Learn again from the attempts of finished runs, with another judge, distiller or memory. No attempt is made again.

    reasoningbank learn RUNS... bank=PATH [KEY=VALUE...]
    reasoningbank learn outputs/main/arm=no_memory* bank=banks/strong arm=true_labels llm@extractor_llm=openai
    reasoningbank learn RUNS... --judges judge=A judge=B [--judge "judge=C KEY=VALUE"] [KEY=VALUE...]
    reasoningbank learn --from PATH    from old sessions of Claude Code, Codex, ...: `learn --from . --help`

RUNS are finished runs, or folders of them. KEY=VALUE are options of main.py, which override those of the run's own
command: judge, distiller, contrast, memory, setting, arm, llm@judge_llm, llm@extractor_llm, budget and others.
dry_run=true only estimates the cost. Agent and environment are those of the run, and cost nothing here.

bank=FILE.sqlite is the bank for one run. Several runs get a bank each: bank=FOLDER (FOLDER/seed0.sqlite, ...), or a
name with {seed}, {arm}, {env} or {run} in it. To test them, each with its seed:

    python main.py -m setting=frozen 'memory.path="banks/strong/seed${seed}.sqlite"' seed=0,1,2 env=...

Beside each bank is a run directory, FILE.run, with the verdicts, the lessons and their cost. The bank appears when it
is complete. After an interruption the same command continues, and pays for nothing twice. If the attempts had been
shown lessons, the labels of those lessons count too: setting=test_time refuses attempts that were shown lessons with
labels of the environment. To join the banks of several runs, use reasoningbank bank export and import.

--judges compares judges with the truth instead, and learns nothing. Each judge=NAME is a judge to compare, and so is
each --judge "WORDS"; the other KEY=VALUE hold for all of them. The first row has the verdicts that the runs recorded.
Verdicts are kept in --into, in a run directory for each run and judge, so that the same command pays for nothing twice.
No judge but judge=oracle sees the answer. Precision and recall are those of the label success; "broke" counts attempts
without a verdict. Intervals are 95 %, and treat all attempts at one task, over all seeds, as one group: Wilson's with
the effective number of attempts for agreement, precision and recall, a bootstrap over tasks for kappa, Brier and ECE.
"""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import sys
from argparse import Namespace
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from analysis.runs import Run, find_runs, read_run
from core.errors import UserError
from core.run.arms import key_of
from core.run.launch import override
from core.run.manifest import recorded_config
from core.textfile import into_place
from scripts.command_line import parser, plain_errors, start_module

# Keys that say how a run acts, which is over; those of the stream, because episodes are learned from in their order.
ACTING = (
    "env agent seed limit stream retrieval max_steps max_repeats episode_timeout_s experiment run_dir attempts_from "
    "refine hydra roles.agent memory.path"
).split()
NOT_KEPT = ("run_dir", "attempts_from", "dry_run", "tracker", "budget.run", "memory.path")  # of the run's own words
OF_METHOD = ("workflow", "contrast", "select", "k", "r", "refine")  # which another arm sets itself
FIELDS = ("seed", "arm", "env", "run")


def words_of(run: Run, words: Iterable[str], run_dir: Path, without: Iterable[str] = ()) -> list[str]:
    """The words with which main.py learns from a run's attempts once more.

    words     of the user: they take the place of the run's own words of the same key
    run_dir   of the new run
    without   keys of further words of the run that are left out
    """
    words = list(words)
    given = {key_of(word) for word in words}
    dropped = {*NOT_KEPT, *without, *(OF_METHOD if given & {"arm", "workflow"} else ())}
    groups = {key.rpartition("@")[2] for key in given if "." not in key}
    own = [word for word in run.hydra.get("overrides", {}).get("task", ()) if not _within(key_of(word), dropped)]
    own = [word for word in own if key_of(word) not in given and not _within(key_of(word).rpartition("@")[2], groups)]
    in_batches = (run.config.get("stream") or {}).get("batch", 1) != 1
    forced = ["stream.batch=1"] if in_batches else []
    own = [word for word in own if key_of(word) != "stream.batch"]
    if any(key_of(word) == "experiment" for word in own):  # its k and r do not hold for an arm that has none
        forced += [f"{key}={_text(_size(run, key, given))}" for key in ("k", "r") if key not in given]
        own = [word for word in own if key_of(word) not in ("k", "r")]
    places = [override("attempts_from", run.path.resolve()), override("run_dir", run_dir.resolve())]
    return [*own, *forced, *words, *places, "hydra.mode=RUN", *_folders(run)]


def check_words(words: Iterable[str]) -> None:
    """Raise UserError for a word of the user that would say how to act."""
    if wrong := sorted(key for key in map(key_of, words) if _within(key, ACTING)):
        raise UserError(f"{wrong[0]}: the attempts and their order are given: leave it out.")


def learn(run: Run, words: Iterable[str], run_dir: Path, without: Iterable[str] = ()) -> int:
    """Learn from a run's attempts, in this process; arguments as in `words_of`. Returns main.py's exit status."""
    return start_module("main", "main.py", words_of(run, words, run_dir, without))


def read_runs(paths: Iterable[str], *, episodes: bool = False) -> list[Run]:
    """The runs at or below the paths. Raises UserError for runs of several environments. episodes: as in `read_run`."""
    runs = [read_run(path, episodes=episodes) for path in find_runs(paths)]
    envs = {(run.choices.get("env"), run.manifest["fingerprint"]["dataset"].get("dataset")): run for run in runs}
    if len(envs) > 1:
        one, other = sorted(run.path for run in envs.values())[:2]
        raise UserError(f"{one} and {other} are runs of different environments: give those of one.")
    if old := next((run for run in runs if not run.hydra), None):
        raise UserError(f"{old.path} has no .hydra, which holds the words of its command.")
    return runs


def banks_of(runs: list[Run], pattern: str) -> list[Path]:
    """The bank of each run. Raises UserError if two runs would share one, or for a file that is not that run's bank."""
    where = pattern if pattern.endswith(".sqlite") else f"{pattern}/seed{{seed}}.sqlite"
    if unknown := [name for name in re.findall(r"\{(.*?)\}", where) if name not in FIELDS]:
        raise UserError(f"bank={pattern}: {{{unknown[0]}}} is none of {', '.join(f'{{{name}}}' for name in FIELDS)}.")
    found: dict[Path, Run] = {}
    for run in runs:
        values = {"seed": run.config["seed"], "arm": run.arm, "env": run.choices.get("env"), "run": run.path.name}
        bank = Path(re.sub(r"\{(\w+)\}", lambda name, of=values: str(of[name[1]]), where))
        if bank in found:
            raise UserError(
                f"{bank} would be the bank of two runs, {found[bank].path} and {run.path}: give a folder, or a name "
                "with {seed}, {arm} or {run} in it."
            )
        source = recorded_config(folder_of(bank)).get("attempts_from")
        if bank.exists() and source != str(run.path.resolve()):
            raise UserError(f"bank={bank} is there already, and was not learned from {run.path}: give another name.")
        found[bank] = run
    return list(found)


def folder_of(bank: Path) -> Path:
    """The run directory beside a bank."""
    return bank.with_suffix(".run")


def publish(run_dir: Path, bank: Path) -> None:
    """Copy the bank of a finished run to its place, whole or not at all. One that is there already stays as it is."""
    if bank.exists():
        return
    source, temporary = run_dir / "bank.sqlite", bank.with_name(f".{bank.name}.tmp")
    if not source.is_file():
        raise UserError(f"{run_dir} has no bank.sqlite: bank=PATH is a file of SQLite, so give memory/store=sqlite.")
    temporary.unlink(missing_ok=True)
    read_only = sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)
    with closing(read_only) as db, closing(sqlite3.connect(temporary)) as copy:
        db.backup(copy)
    into_place(temporary, bank)


def _size(run: Run, key: str, given: set[str]) -> int | None:
    return None if given & {"arm", "workflow"} else run.config.get(key)


def _folders(run: Run) -> list[str]:
    """The word that gives main.py the folders of the run's --config-dir."""
    sources = run.hydra.get("runtime", {}).get("config_sources", ())
    folders = [each["path"] for each in sources if each.get("schema") == "file" and each["provider"] != "main"]
    found = [f"file://{folder}" for folder in folders]
    return [f"hydra.searchpath=[{','.join(found)}]"] if found else []


def _text(value: object) -> str:
    return "null" if value is None else str(value)


def _within(key: str, keys: Iterable[str]) -> bool:
    return any(key == each or key.startswith((f"{each}.", f"{each}/")) for each in keys)


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """(runs, overrides): what is no path that exists, and has a "=", is an override."""
    runs = [word for word in words if "=" not in word or Path(word).exists()]
    return runs, [word for word in words if word not in runs]


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("words", nargs="+", metavar="RUNS... bank=PATH KEY=VALUE")
    options.add_argument("--judges", action="store_true", help="compare judges with the truth; learn nothing")
    options.add_argument("--judge", action="append", default=[], metavar="WORDS", help="of --judges: one more")
    options.add_argument("--into", type=Path, default=Path("outputs/judges"), metavar="FOLDER", help="of --judges")
    shape = options.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="of --judges: everything, for machines")
    shape.add_argument("--md", action="store_true", help="of --judges: in Markdown, also in a terminal")
    given = options.parse_intermixed_args(arguments)
    paths, words = split_words(given.words)
    if given.judges:
        return compare_judges(given, paths, words)
    banks = [word.partition("=")[2] for word in words if key_of(word) == "bank"]
    words = [word for word in words if key_of(word) != "bank"]
    if len(banks) != 1 or not banks[0]:
        raise UserError("say once where the bank goes: bank=FILE.sqlite for one run, bank=FOLDER for several.")
    if not paths:
        raise UserError("say which runs to learn from.")
    check_words(words)
    runs, status = read_runs(paths), 0
    for run, bank in zip(runs, banks_of(runs, banks[0]), strict=True):
        if ended := learn(run, words, folder_of(bank)):
            if (folder_of(bank) / "manifest.json").is_file() and not bank.exists():
                print(f"{bank} is not complete yet: the same command continues.", file=sys.stderr)
            status = ended
        elif folder_of(bank).joinpath("summary.json").is_file():  # not after a dry run
            publish(folder_of(bank), bank)
            print(f"the bank: {bank}")
    return status


def compare_judges(given: Namespace, paths: list[str], words: list[str]) -> int:
    """--judges."""
    from analysis.text_table import print_table, to_markdown
    from scripts import judges

    if not paths:
        raise UserError("say which runs the attempts are of.")
    check_words([*words, *(word for more in given.judge for word in shlex.split(more))])
    runs = read_runs(paths, episodes=True)
    rows = judges.report(runs, words, given.judge, given.into, learn)
    if given.json:
        print(json.dumps({"runs": [str(run.path) for run in runs], "judges": rows}, ensure_ascii=False))
        return 0
    for table in judges.tables(rows, len(runs)):
        print(to_markdown(table)) if given.md else print_table(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
