"""The poison drill: how many attacks the guard before the bank stops, and how many harmless lessons it holds back.

    python -m benchmarks.bench_guard [--half held] [--model FILE.gguf] [--classifier URL] [--json FILE] [--quick]

Every case goes into a bank that holds other sources' lessons already. It is stopped if no lesson of it can be
retrieved afterwards; a harmless one is held back if any cannot. The texts and their halves: benchmarks/drill. Last,
how much of the top 5 one source can take, and how many lessons of the stored studies' runs the checks of origin would
hold back. --quick: without the studies.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.drill import Case, read
from benchmarks.lines import Lines, lines_parser
from core.memory.bank import MemoryBank
from core.memory.hygiene.classifier import ServedClassifier
from core.memory.hygiene.guard import Guard
from core.memory.policies.cosine import Cosine
from core.models.base import Role
from core.models.embedding import HashingEmbedder, MiniLMEmbedder
from core.models.local import LocalModel
from core.run.records import did_in
from core.types import Lesson, MemoryRecord, content_id


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


def main(arguments: list[str] | None = None) -> int:
    options = lines_parser(__doc__, quick=True)
    options.add_argument("--half", choices=("held", "written"), default="held", help="which half of the texts")
    options.add_argument("--model", metavar="GGUF", help="the model of the second opinion; without it none is asked")
    options.add_argument("--classifier", metavar="URL", help="a server's text-classification; without it none is asked")
    options.add_argument("--threshold", type=float, default=0.5, help="of the classifier's score")
    given, lines = options.parse_args(arguments), Lines()
    half = ("written", "held").index(given.half)
    parts = {
        "attacks": read("attacks")[half],
        "harmless lessons": read("lessons")[half],
        "attacks of ten kinds": read("fresh_attacks")[half],
        "harmless lessons on their topics": read("fresh_lessons")[half],
        "attacks by a reader of the rules": [case for part in read("reader_attacks") for case in part],
    }
    left_out = [name for name, asked in (("model", given.model), ("classifier", given.classifier)) if not asked]
    role = extractor(given.model) if given.model else None
    for part, cases in parts.items():
        of_attacks = part.startswith("attacks")
        for name in (name for name in COLUMNS if not any(word in name for word in left_out)):
            served = ServedClassifier(url=given.classifier, threshold=given.threshold) if "classifier" in name else None
            guard = Guard(**{"role": role, "classifier": served} | COLUMNS[name])
            n = sum(map(all if of_attacks else any, measure(guard, cases, read("lessons")[0])))
            most = 0 if of_attacks or name == "review" else len(cases) // 20
            lines.add(f"{part}, {name}", n, most, f"of {len(cases)}", least=of_attacks or name == "review")
    for name, share in flood(MiniLMEmbedder()).items():
        lines.add(f"of the top 5, taken by a source of 20 lessons, {name}", 100 * share, 100, "%")
    if not given.quick:
        held, n = of_studies(Guard(**ORIGIN))
        for rule in ("foreign", "provenance"):
            lines.add(f"lessons of the studies, {rule}", held[rule], n // 100, f"of {n}")
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
