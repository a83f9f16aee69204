"""The commands of the project, from its one package: `python -m reasoningbank_harness NAME`, or `reasoningbank NAME`.

The application's folders (core, config, workflows, ...) have names that other packages may have too. So they lie
inside this package, and their folder is on the path of the processes of these commands alone. In a checkout they lie
beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
APPLICATION = HERE if (HERE / "core").is_dir() else HERE.parent


def run() -> None:
    """The console script `reasoningbank`."""
    sys.path.insert(0, str(APPLICATION))
    from scripts.reasoningbank import start

    sys.exit(start(sys.argv[1:]))


def serve() -> None:
    """The console script `reasoningbank-mcp`, for registries of MCP servers: what `reasoningbank serve` is."""
    sys.path.insert(0, str(APPLICATION))
    from mcp_server.__main__ import main

    sys.exit(main())


if __name__ == "__main__":
    run()
