"""Whether the MCP server does what the two servers that it replaces did: every row of their documents, tried.

    python -m benchmarks.mcp_parity [--only reasoningbank|insight] [--faults]

Starts real servers over stdio and SSE, makes the calls that the documents of the ReasoningBank MCP server (0.2.0) and
of the insight memory server (mcp-learning-memory 0.2.1) describe, and prints a table in Markdown: + where a row holds,
the reason where it does not. The model is a scripted one, the embedder MiniLM. Exit status 1 if a row fails that has
no reason.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.mcp_parity_insight import insight
from benchmarks.mcp_parity_kit import ParityTable
from benchmarks.mcp_parity_reasoningbank import reasoningbank
from scripts.command_line import parser, plain_errors


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--only", choices=("reasoningbank", "insight"))
    options.add_argument("--faults", action="store_true", help="only the rows that fail without a reason")
    given = options.parse_args(arguments)
    tables = []
    for name, title, check in (
        ("reasoningbank", "ReasoningBank MCP server 0.2.0", reasoningbank),
        ("insight", "Insight memory server 0.2.1", insight),
    ):
        if given.only not in (None, name):
            continue
        table = ParityTable(document=title)
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(check(table, Path(folder)))
        print(table.markdown(given.faults) + "\n")
        tables.append(table)
    return int(any(table.faults for table in tables))


if __name__ == "__main__":
    sys.exit(main())
