"""Whether this project does what five documents describe (docs/coming_from.md): their rows, tried.

    python -m benchmarks.mcp_parity [--only reasoningbank|flow|insight|outline|specification] [--faults]

Starts real servers, commands and runs, does what the documents describe, and prints a table in Markdown for each: +
where a row holds, ~ where it holds otherwise and - where it does not, with the reason. The model is a scripted one.
Exit status 1 if a row fails that has no reason.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.mcp_parity_flow import flow
from benchmarks.mcp_parity_insight import insight
from benchmarks.mcp_parity_kit import ParityTable
from benchmarks.mcp_parity_outline import outline
from benchmarks.mcp_parity_reasoningbank import reasoningbank
from benchmarks.mcp_parity_specification import specification
from scripts.command_line import parser, plain_errors

DOCUMENTS = (
    ("reasoningbank", "000 ReasoningBank MCP server 0.2.0", reasoningbank),
    ("flow", "001 Claude Flow's memory around an agent", flow),
    ("insight", "002 insight memory server 0.2.1", insight),
    ("outline", "003 Claude Flow's outline and benchmarks", outline),
    ("specification", "004 specification of the reproduction", specification),
)


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--only", choices=[name for name, _, _ in DOCUMENTS])
    options.add_argument("--faults", action="store_true", help="only the rows that fail without a reason")
    given = options.parse_args(arguments)
    tables = []
    for name, title, check in DOCUMENTS:
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
