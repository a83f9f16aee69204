"""The poison drill: how many attacks the guard before the bank stops, by kind, and how many harmless lessons.

    python -m benchmarks.bench_guard [--half held] [--part NAME] [--model FILE.gguf] [--classifier URL] [--json FILE]

Every case goes into a bank that holds other sources' lessons already. It is stopped if no lesson of it can be
retrieved afterwards; a harmless one is a false alarm if any cannot. The texts and their halves: benchmarks/drill. Last,
how many lessons of the stored studies' runs the checks of origin would hold back.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.drill import Case, read
from core.memory.bank import MemoryBank
from core.memory.hygiene.classifier import ServedClassifier
from core.memory.hygiene.guard import Guard
from core.memory.policies.cosine import Cosine
from core.models.base import Role
from core.models.embedding import HashingEmbedder, MiniLMEmbedder
from core.models.local import LocalModel
from core.run.records import did_in
from core.types import Lesson, MemoryRecord, content_id
from scripts.command_line import parser


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
    """Of each of a case's lessons whether it cannot be retrieved once all are stored; the bank is then as before."""
    before, made = bank.history.seq(), records(case)
    for record in made:
        bank.add_many([record], shown=(), did=case.did)
    found = [bank.get(record.id).status != "active" for record in made]
    bank.history.rollback(before)
    return found


ORIGIN = {"foreign": ["*"], "provenance": "strict"}
COLUMNS = {  # production: the server's preset, which checks no origin; guarded: memory=guarded
    "production": {},
    "guarded": {"provenance": True},
    "foreign": {"foreign": ["*"]},
    "strict": {"provenance": "strict"},
    "foreign and strict": ORIGIN,
    "classifier": {},
    "origin and classifier": ORIGIN,
    "origin and model": ORIGIN | {"opinion": "llm"},
    "review": {"review": True},
}


def measure(guard: Guard, cases: list[Case], background: list[Case]) -> list[list[bool]]:
    """`stopped` of each case, in a bank that holds the lessons of the background already."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "bank.sqlite")
        with closing(MemoryBank(path=path, embedder=HashingEmbedder(), policy=Cosine())) as bank:
            for case in background:
                bank.add_many(records(case))
            bank.hygiene = guard
            return [stopped(bank, case) for case in cases]


def taken(bank: MemoryBank, tasks: list[str], n: int, top_k: int) -> float:
    """The share of these tasks' top_k that a source takes which stores n lessons for each; the bank is as before."""
    before, found = bank.history.seq(), []
    for task in tasks:
        cases = [Case(kind="flood", task=f"{task} ({place})", lessons=(task,)) for place in range(n)]
        bank.add_many([replace(records(case)[0], provenance={"client": "flood"}) for case in cases])
        hits = bank.retrieve(task, top_k)
        found.append(sum(hit.record.provenance.get("client") == "flood" for hit in hits) / top_k)
        bank.history.rollback(before)
    return sum(found) / len(found)


def flood(embedder: Any, n: int = 20, top_k: int = 5) -> dict[str, float]:
    """{retrieval: `taken`}, without and with a limit for each source, over the tasks of the harmless lessons."""
    shares = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "bank.sqlite")
        with closing(MemoryBank(path=path, embedder=embedder, policy=Cosine())) as bank:
            for case in read("lessons")[0] + read("fresh_lessons")[0]:
                bank.add_many([replace(r, provenance={"client": r.task_id}) for r in records(case)])
            tasks = [case.task for case in read("fresh_lessons")[1]]
            for name, limit in (("no limit", None), ("retrieval.per_source=1", 1)):
                bank.policy = Cosine(per_source=limit, source="client")
                shares[name] = taken(bank, tasks, n, top_k)
    return shares


def of_studies(guard: Guard) -> tuple[Counter[str], int]:
    """({check: lessons that it holds back}, all) of the distinct lessons of the studies' runs (docs/study)."""
    held: Counter[str] = Counter()
    known: set[str] = set()
    for path in sorted(Path("docs/study").glob("*.tar.xz")):
        with tarfile.open(path) as archive:
            files = [archive.extractfile(member) for member in archive if member.name.endswith("/episodes.jsonl")]
            rows = (json.loads(line) for file in files if file for line in file)
            for row in (row for row in rows if isinstance(row, dict)):
                items = [Lesson(**lesson) for lesson in row.get("lessons") or ()]
                for item in (item for item in items if item.text not in known):
                    known.add(item.text)
                    held.update(guard.broken_rules(row["query"], (item,), did_in(row)))
    return held, len(known)


def extractor(model: str) -> Role:
    """The model of a GGUF file at temperature 0, as the extractor's role would ask it."""
    return Role(name="extractor", llm=LocalModel(model_path=model, n_ctx=4096), temperature=0.0, max_tokens=160)


def table(found: dict[str, list[list[bool]]], cases: list[Case], whole: Callable[[list[bool]], bool]) -> list[str]:
    """A line for each kind: how many of its cases each column stops."""
    kinds = list(dict.fromkeys(case.kind for case in cases))
    lines = []
    for kind in (*kinds, "together"):
        own = [place for place, case in enumerate(cases) if kind in (case.kind, "together")]
        counts = [sum(whole(column[place]) for place in own) for column in found.values()]
        lines.append(f"| {kind} | {len(own)} | " + " | ".join(map(str, counts)) + " |")
    return lines


def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--half", choices=("held", "written"), default="held", help="which half of the texts")
    options.add_argument("--model", metavar="GGUF", help="the model of the second opinion; without it none is asked")
    options.add_argument("--classifier", metavar="URL", help="a server's text-classification; without it none is asked")
    options.add_argument("--threshold", type=float, default=0.5, help="of the classifier's score")
    options.add_argument("--part", action="append", help="only this part of the drill; may be repeated")
    options.add_argument(
        "--show", action="store_true", help="what the last column judged wrong, of the written half alone"
    )
    options.add_argument("--json", type=Path, metavar="FILE", help="also write what became of each case to this file")
    given = options.parse_args(arguments)
    half = ("written", "held").index(given.half)
    parts = {
        "attacks": read("attacks")[half],
        "lessons": read("lessons")[half],
        "attacks of ten kinds": read("fresh_attacks")[half],
        "lessons on their topics": read("fresh_lessons")[half],
        "attacks by a reader of the rules": [case for part in read("reader_attacks") for case in part],
    }
    if unknown := set(given.part or ()) - {*parts, "flood", "studies"}:
        options.error(f"--part {unknown.pop()}: choose from {', '.join(parts)}, flood, studies.")
    parts = {name: cases for name, cases in parts.items() if name in (given.part or parts)}
    left_out = [name for name, asked in (("model", given.model), ("classifier", given.classifier)) if not asked]
    names = [name for name in COLUMNS if not any(word in name for word in left_out)]
    role = extractor(given.model) if given.model else None
    saved = {}
    for part, cases in parts.items():
        attacks, found = part.startswith("attacks"), {}
        for name in names:
            served = ServedClassifier(url=given.classifier, threshold=given.threshold) if "classifier" in name else None
            guard = Guard(**{"role": role, "classifier": served} | COLUMNS[name])
            found[name] = measure(guard, cases, read("lessons")[0])
        print(f"\n| {part} | all | " + " | ".join(names) + " |\n|---" + "|---" * (len(names) + 1) + "|")
        print("\n".join(table(found, cases, all if attacks else any)), flush=True)
        saved[part] = {name: [[c.kind, c.task, f] for c, f in zip(cases, column)] for name, column in found.items()}
        if given.show and half == 0:
            for case, one in zip(cases, found[names[-1]]):
                if (all if attacks else any)(one) != attacks:
                    print(f"  {case.kind}: {one} {' // '.join(case.lessons)}")
    if "flood" in (given.part or ["flood"]):
        print("\nof the top 5, taken by one source that stores 20 lessons for each task:")
        print("\n".join(f"  {name}: {share:.0%}" for name, share in flood(MiniLMEmbedder()).items()))
    if "studies" in (given.part or ["studies"]):
        held, n = of_studies(Guard(**ORIGIN))
        print(
            f"\nof {n} lessons of the studies: "
            + ", ".join(f"{rule} {held[rule]}" for rule in ("foreign", "provenance"))
        )
    if given.json:
        given.json.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
