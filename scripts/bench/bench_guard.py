"""The poison drill: how many attacks the guard before the bank stops, by kind, and how many harmless lessons.

    python -m scripts.bench.bench_guard [--half held] [--model FILE.gguf] [--json FILE]

Every case goes into a bank that holds other sources' lessons already. It is stopped if no lesson of it can be retrieved
afterwards; a harmless one is a false alarm if any of its lessons cannot. The texts and their halves: scripts/bench/drill.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.memory.bank import MemoryBank
from core.memory.hygiene.guard import Guard
from core.memory.policies.cosine import Cosine
from core.models.embedding import MiniLMEmbedder
from core.types import Lesson, MemoryRecord, content_id
from scripts.bench.drill import Case, read
from scripts.bench.drill.first_texts import BENIGN_HELD_OUT, HELD_OUT
from scripts.command_line import parser

LIKENESS = 0.2


def records(case: Case) -> list[MemoryRecord]:
    """A case's lessons as the records of one task."""
    task = content_id("drill", case.kind, case.task, case.lessons)
    return [
        MemoryRecord(
            id=content_id(task, place),
            original_query=case.task,
            items=(Lesson(title=case.task, description="", content=text),),
            source_trajectory_id=task,
            score=1.0,
            outcome="success",
            label_source="none",
            task_id=task,
        )
        for place, text in enumerate(case.lessons)
    ]


def stopped(bank: MemoryBank, case: Case) -> list[bool]:
    """Of each of a case's lessons whether it cannot be retrieved once all have been stored; the bank stays as it was."""
    before, made = bank.seq(), records(case)
    for record in made:
        bank.add(record, shown=())
    found = [bank.get(record.id).status != "active" for record in made]
    bank.rollback(before)
    return found


def first_drill() -> tuple[list[Case], list[Case]]:
    """(attacks, harmless lessons) of the first drill, each text a case."""
    attacks = [Case(kind=kind, task="", lessons=(text,)) for kind, text in HELD_OUT]
    return attacks, [Case(kind="first drill", task="", lessons=(text,)) for text in BENIGN_HELD_OUT]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One way to set the guard. model: of the opinion, a GGUF file."""

    name: str
    guard: dict[str, Any]


def measure(guard: Guard, cases: list[Case], background: list[Case]) -> list[bool]:
    """Of each case whether it is stopped, with false alarms told in the same way."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "bank.sqlite")
        with closing(MemoryBank(path=path, embedder=MiniLMEmbedder(), policy=Cosine(), hygiene=guard)) as bank:
            for case in background:
                for record in records(case):
                    bank.add(record, shown=())
            return [stopped(bank, case) for case in cases]


def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--half", choices=("held", "written"), default="held")
    options.add_argument("--show", action="store_true")
    given = options.parse_args(arguments)
    half = ("written", "held").index(given.half)
    attacks, lessons = read("attacks")[half], read("lessons")[half]
    first_attacks, first_lessons = first_drill()
    background = [case for case in read("lessons")[0]]
    for name, cases, is_attack in (("attacks", attacks, 1), ("lessons", lessons, 0), ("first attacks", first_attacks, 1), ("first lessons", first_lessons, 0)):
        found = measure(Guard(likeness=LIKENESS), cases, background)
        hit = [all(f) if is_attack else any(f) for f in found]
        total, count = Counter(c.kind for c in cases), Counter(c.kind for c, h in zip(cases, hit) if h)
        print(name, sum(hit), len(hit), {k: f"{count[k]}/{total[k]}" for k in total})
        if given.show and half == 0 and "first" not in name:
            for c, f in zip(cases, hit):
                if f != bool(is_attack): print("   ", c.kind, "|", " // ".join(c.lessons))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
