"""Whether a lesson is found by what it says: 200 lessons, a user's question for each, 100 questions that none answers.

    python -m benchmarks.recall [--json FILE] [--as add_insight|save_lesson] [--min-score 0.3] [--long]

The lessons (data/lessons.jsonl) enter a bank through the tools of the MCP server, one after the other, with MiniLM and
without consolidation; then each question is asked. No question has a word of its lesson's title; in 164 of the 200
it has no content word of the lesson at all. A row is what the query holds that the lesson is stored under, and what is
searched; with --as save_lesson that query is the title alone, unless it is the whole.

recall@k   share of the questions whose lesson is among the first k        MRR   mean of 1 / rank, 0 beyond the tenth
passes     share of the questions whose own lesson reaches min_score       stranger   of the 100 with any hit that does
--long     each lesson stands behind 300 words about other things, beyond what MiniLM reads; no figure for strangers
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.lines import lines_parser
from mcp_server.config import load_config
from mcp_server.service import Service
from mcp_server.tools import MemoryTools
from scripts.command_line import plain_errors

DATA = Path(__file__).parent / "data"
TOP = 10
COSINE, RRF = ((f"retrieval={name}",) for name in ("cosine", "rrf"))
QUERY, ITEM, BOTH = (f"memory.key={name}" for name in ("query", "item", "both"))
WAYS = {  # name: (the query that a lesson is stored under, settings of the server)
    "before: title (tags), trust": ("title (tags)", (QUERY,)),
    "title (tags), cosine": ("title (tags)", (QUERY, *COSINE)),
    "title+tags+content, cosine": ("whole", (QUERY, *COSINE)),
    "key=item, cosine": ("title (tags)", (ITEM, *COSINE)),
    "key=both, cosine": ("title (tags)", (BOTH, *COSINE)),
    "lexical": ("title (tags)", (QUERY, "retrieval=lexical")),
    "title (tags), rrf": ("title (tags)", (QUERY, *RRF)),
    "key=both, rrf": ("title (tags)", (BOTH, *RRF)),
    "title+tags+content, trust": ("whole", (QUERY,)),
    "now: as the tool stores it": ("", ()),
}


def lessons() -> list[dict[str, Any]]:
    """[{domain, title, tags, content, question, hard}]; hard: question and content share no word of 4 letters."""
    return [json.loads(line) for line in (DATA / "lessons.jsonl").read_text(encoding="utf-8").splitlines()]


def strangers() -> list[str]:
    """Questions that no lesson answers, half of them about the lessons' own subjects."""
    return (DATA / "strangers.txt").read_text(encoding="utf-8").splitlines()


def store(tools: MemoryTools, tool: str, lesson: dict[str, Any], under: str) -> str:
    """Store a lesson with a tool, and return its id. under: as in WAYS; "" leaves the query to the tool."""
    title, tags, content = lesson["title"], lesson["tags"], lesson["content"]
    named = f"{title} ({', '.join(tags)})"
    if under == "" and tool == "add_insight":
        told = tools.add_insight(title=title, content=content, tags=tags)
    else:
        query = f"{named}\n{content}" if under == "whole" else title if tool == "save_lesson" else named
        told = tools.save_lesson(query, title, content, tags=tags)
    return told.structured_content.get("memory_id") or told.structured_content["id"]


def measure(words: tuple[str, ...], tool: str, rows: list[dict[str, Any]], under: str) -> dict[str, float]:
    """The figures of one way to search."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder) / "bank.sqlite", load_config(["memory.consolidate=null", *words]))
        try:
            tools = MemoryTools(service)
            ids = [store(tools, tool, row, under) for row in rows]
            policy = service.bank.policy
            least, policy.min_score = policy.min_score, None
            found = [search(service.bank, row["question"]) for row in rows]
            ranks = [list(hits).index(id) + 1 if id in hits else 0 for id, hits in zip(ids, found)]
            policy.min_score = least
            passed = [id in search(service.bank, row["question"]) for id, row in zip(ids, rows)]
            false = [bool(search(service.bank, question)) for question in strangers()]
            stored = service.bank.statuses().get("active", 0)
        finally:
            service.close()
    n = len(rows)
    easy = [rank for rank, row in zip(ranks, rows) if not row["hard"]]
    return {
        "stored": stored,
        "recall@1": sum(rank == 1 for rank in ranks) / n,
        "recall@5": sum(0 < rank <= 5 for rank in ranks) / n,
        "mrr": sum(1 / rank for rank in ranks if rank) / n,
        "recall@5 of those that share a word": sum(0 < rank <= 5 for rank in easy) / len(easy),
        "passes": sum(passed) / n,
        "stranger": sum(false) / len(false),
    }


def search(bank: Any, question: str) -> dict[str, float]:
    """{id: score} of the first TOP, best first."""
    return {hit.record.id: hit.score for hit in bank.retrieve(question, TOP)}


def buried(lesson: dict[str, Any], number: int) -> dict[str, Any]:
    """The lesson behind other sentences, more words than MiniLM reads; they are questions that nothing here answers."""
    others = strangers()
    others, kept = others[number % 100 :] + others[: number % 100], []
    while sum(len(text.split()) for text in kept) < 300:
        kept.append(others[len(kept)])
    return lesson | {"content": " ".join((*kept, lesson["content"]))}


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings about what the guard sets aside: the column `stored` has them."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@plain_errors()
def main(arguments: list[str] | None = None) -> None:
    made = lines_parser(__doc__)
    made.add_argument("--as", dest="tool", choices=("add_insight", "save_lesson"), default="add_insight")
    made.add_argument("--min-score", type=float, default=0.3, help="for `passes` and `stranger`; production has 0.3")
    made.add_argument("--long", action="store_true")
    made.add_argument("--only", metavar="WORD", default="", help="ways whose name holds this")
    given = made.parse_args(arguments)
    rows = lessons()
    if given.long:
        rows = [buried(row, number) for number, row in enumerate(rows)]
    figures = {}
    print(f"{given.tool:<34} recall@1 recall@5    MRR  @5 with a common word  passes  stranger  stored", flush=True)
    for name, (under, words) in WAYS.items():
        if given.only not in name:
            continue
        least = () if name == "lexical" else (f"retrieval.min_score={given.min_score}",)  # there it is another scale
        with quiet():
            got = figures[name] = measure((*words, *least), given.tool, rows, under)
        print(
            f"{name:<34} {got['recall@1']:>8.3f} {got['recall@5']:>8.3f} {got['mrr']:>6.3f} "
            f"{got['recall@5 of those that share a word']:>21.3f} {got['passes']:>7.3f} {got['stranger']:>9.2f} "
            f"{got['stored']:>7}",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps({given.tool: figures}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
