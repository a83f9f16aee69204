"""How much room a bank's lessons take before and after deduplication and merging, beside what is claimed elsewhere.

    python -m benchmarks.bank_space                                                  space
    python -m benchmarks.bank_space --learn 100,1000,10000 --embedder hashing-256    time of a learn() with every=1

Lessons of our own, embedded by all-MiniLM-L6-v2: 48 rules in two wordings each (data/space_lessons.txt). A rule is
learned once or more often, each time from another task. Of the repetitions a half say it in the words it was said in,
with a remark before them, a quarter begin with these words and end with the second wording, a quarter are the second
wording; the last two have titles of their own. So the share of repetitions is known: it decides what can be saved.

rows are the bytes of the records' texts and numbers, vectors those of their embeddings, live: both of the active
records, what a search works on; file: the SQLite file after VACUUM, with the index of the words and all that undoes
the changes.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.lines import seconds
from core.memory.bank import MemoryBank
from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.consolidator import Consolidator
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.merge import Merge, Voting
from core.memory.policies.cosine import Cosine
from core.memory.records import EpisodeFeedback
from core.models.cache import CachedEmbedder
from core.models.embedding import MINILM, NamedEmbedder
from core.types import Lesson, MemoryRecord
from scripts.command_line import parser

RULES = Path(__file__).parent / "data" / "space_lessons.txt"
REMARKS = ("Remember: ", "In short: ", "As seen again: ", "Once more: ", "Learned from this task: ")
PLACES = "the shop|the billing service|a small team|the old server|the second exercise|a customer|the test rig".split(
    "|"
)
SHARES = (0.2, 0.4, 0.6, 0.8)  # of the lessons, those that repeat a rule which was learned before
CLAIMS = {  # of the ReasoningBank MCP server, whose documents name no bank that they were measured on
    "deduplicated": "20-30 %",
    "and merged": "50-80 % (merging alone 40-60 %)",
}


def records(n_rules: int, share: float, seed: int = 0) -> Iterator[MemoryRecord]:
    """Records of one lesson each, in random order; `share` of them repeat a rule. Each rule beyond 48 gets a number."""
    rng, rules = random.Random(seed), RULES.read_text(encoding="utf-8").splitlines()
    times = [1] * n_rules
    for _ in range(round(n_rules * share / (1 - share))):
        times[min(int(rng.expovariate(6 / n_rules)), n_rules - 1)] += 1  # a few rules come often, most never again
    order = [(rule, time) for rule, count in enumerate(times) for time in range(count)]
    rng.shuffle(order)
    for tick, (rule, time) in enumerate(order):
        title, task, first, second = rules[rule % len(rules)].split(" | ")
        text = first
        if time > 0:
            again, half = rng.choice(REMARKS) + first, f"{first.split('. ')[0]}. {second}"
            title, text = rng.choice(((title, again), (title, again), (opening(half), half), (opening(second), second)))
        which = f" ({rule // len(rules)})" if rule >= len(rules) else ""
        yield MemoryRecord(
            id=f"{rule}-{time}",
            original_query=f"{task} for {rng.choice(PLACES)}, case {tick}{which}",
            items=(Lesson(title=title + which, description=text.split(". ")[0], content=text + which),),
            source_trajectory_id=f"{tick:016x}",
            score=1.0,
            outcome="success",
            label_source="llm",
            task_id=f"task {tick}",
            tick=tick,
        )


def opening(text: str) -> str:
    """The first words of a text, as a title."""
    return " ".join(text.split()[:6]).rstrip(".,:;")


def open_bank(path: Path, embedder: Any, **life: Any) -> MemoryBank:
    consolidator = Consolidator(confidence=Confidence(), **life)
    return MemoryBank(path=str(path), embedder=embedder, policy=Cosine(), consolidate=consolidator)


def sizes(bank: MemoryBank) -> dict[str, int]:
    """Records and bytes, see the top of the file."""
    names = [field.name for field in fields(MemoryRecord) if field.name != "query_embedding"]
    row = " + ".join(f"coalesce(length(CAST(r.{name} AS BLOB)), 0)" for name in names)
    query = f"SELECT r.status = 'active', count(*), sum({row}), sum(coalesce(length(v.vector), 0)) FROM records r"
    found = {
        line[0]: line[1:] for line in bank._store.rows(f"{query} LEFT JOIN keys v ON v.origin = r.rowid GROUP BY 1")
    }
    n, rows, vectors = found.get(0, (0, 0, 0))
    live = found[1]
    return {"active": live[0], "live": live[1] + live[2], "aside": n, "aside_rows": rows, "aside_vectors": vectors} | {
        "file": bank.compact()[1]
    }


def stages(folder: Path, embedder: Any, share: float) -> dict[str, dict[str, int]]:
    """The sizes of a bank as it was filled, deduplicated, merged after that, and of another that was only merged."""
    found = {}
    for name, policies in STAGES.items():
        path = folder / f"{'merged alone' if name == 'merged alone' else 'bank'}-{share}.sqlite"
        life = {"every": 10**9, "candidates": 50}
        with closing(open_bank(path, embedder, **life, **policies())) as bank:
            bank.add_many(list(records(48, share)))  # those that are there already stay as they are
            bank.consolidate.consolidate(bank)
            found[name] = sizes(bank)
    return found


STAGES = {
    "filled": dict,
    "deduplicated": lambda: {"deduplicate": Deduplicate()},
    "and merged": lambda: {"merge": Merge(author=Voting())},
    "merged alone": lambda: {"merge": Merge(author=Voting())},
}


def space(folder: Path, embedder: Any) -> Iterator[dict[str, Any]]:
    """For each share of repetitions, how many per cent each stage saves of what the filled bank took."""
    for share in SHARES:
        kept = stages(folder, embedder, share)
        row = {"repeated": round(100 * share), "records": kept["filled"]["active"]}
        for stage in list(STAGES)[1:]:
            end = kept[stage]
            row[stage] = {
                "active": end["active"],
                "live": saved(kept["filled"]["live"], end["live"]),
                "file": saved(kept["filled"]["file"], end["file"]),
            }
        yield row


def saved(before: int, after: int) -> float:
    """Per cent; below 0 where more is taken than before."""
    return round(100 * (1 - after / before), 1)


def showings(folder: Path, embedder: Any, n: int = 500) -> dict[str, float]:
    """What it costs to count that a record was shown (count_shown): milliseconds, bytes of the file and the journal."""
    path = folder / "shown.sqlite"
    with closing(open_bank(path, embedder)) as bank:
        made = list(records(48, 0.4))
        bank.add_many(made)
        journal = path.with_name(path.name + ".journal")
        before = bank.compact()[1], journal.stat().st_size
        took = [1000 * seconds(bank.count_shown, [made[k % len(made)].id]) for k in range(n)]
        after = bank.compact()[1], journal.stat().st_size
    grown = [round((end - start) / n) for start, end in zip(before, after)]
    return {
        "ms": round(statistics.median(took), 2),
        "most_ms": round(max(took), 1),
        "file": grown[0],
        "journal": grown[1],
    }


def learning(sizes: list[int], embedder: Any) -> Iterator[dict[str, Any]]:
    """Milliseconds of an add and of the learn() behind it, every=1, voting and on_add, in banks of these sizes."""
    for n in sizes:
        for candidates in (5, 50):
            life = {"every": 1, "candidates": candidates, "deduplicate": Deduplicate(on_add=True)}
            made, took = list(records(round(0.6 * (n + 50)), 0.4))[: n + 50], []
            with (
                tempfile.TemporaryDirectory() as folder,
                closing(open_bank(Path(folder) / "b", embedder, **life, merge=Merge(author=Voting()))) as bank,
            ):
                bank.add_many(made[:n])
                for record in made[n:]:
                    bank.add(record)
                    seen = EpisodeFeedback(label="success", new=((record.id, None),))
                    took.append(round(1000 * seconds(bank.learn_from, seen), 1))
            yield {"records": n, "candidates": candidates, "median_ms": statistics.median(took), "most_ms": max(took)}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--learn", metavar="SIZES", help="measure learn() instead")
    options.add_argument("--embedder", default=MINILM, help="default: %(default)s")
    given = options.parse_args()
    embedder = NamedEmbedder(name=given.embedder)
    if given.learn:
        for row in learning([int(n) for n in given.learn.split(",")], embedder):
            print(row, flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        embedder = CachedEmbedder(inner=embedder)
        for row in space(Path(folder), embedder):
            print(f"{row.pop('repeated')} % of {row.pop('records')} lessons repeat an earlier one; saved, in per cent:")
            for stage, found in row.items():
                print(f"  {stage:<13}", "  ".join(f"{name} {value}" for name, value in found.items()), flush=True)
        print("claimed:", "; ".join(f"{name} {claim}" for name, claim in CLAIMS.items()))
        print("a showing that is counted:", showings(Path(folder), embedder))


if __name__ == "__main__":
    main()
