"""reasoningbank serve --bank PATH: serve a memory bank over MCP. With a tool's name first: call that tool once."""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError
from core.terminal import after_output_failed, open_standard_streams, refuse_little_memory
from core.version import VersionAction
from mcp_server.config import TOKEN_ENV, bank_options, bank_path

log = logging.getLogger(__name__)

COMMANDS = {  # the module and the function of each; any other word is a tool
    "run": ("run", "run_around"),
    "runs": ("run_records", "run_runs"),
    "client": ("client_settings", "run_client"),
    "hook": ("hooks", "run_hook"),
    "audit": ("audit", "run_audit"),
    "learn": ("sessions", "run_learn"),
    "token": ("tokens", "run_token"),
    "embed": ("embedded", "run_embedded"),  # what reasoningbank_harness.open_bank starts
}
EXAMPLES = """\
  reasoningbank serve                                                    over stdio, the bank of this repository
  reasoningbank serve --bank ~/lessons.sqlite                            over stdio, as clients start it
  reasoningbank serve --bank ~/lessons.sqlite llm=gemini                 extract_memory asks this model
  reasoningbank serve --bank ~/lessons.sqlite --transport http           for several clients on this machine
  reasoningbank serve audit --bank ~/lessons.sqlite                      the extractions kept for a person to check
  reasoningbank client cursor --bank ~/lessons.sqlite                    what to write into a client's settings
  reasoningbank retrieve_memory --bank ~/lessons.sqlite --query "..."    one tool, by hand (TOOL --help)
  reasoningbank token --tokens FILE --agent-id NAME                      a token of one tenant, see docs/mcp.md
  reasoningbank hook retrieve --bank ~/lessons.sqlite                    for the hooks of a client, see docs/mcp.md
  reasoningbank run --bank ~/lessons.sqlite -- claude -p "..."           around any command, see docs/run.md
  reasoningbank runs --bank ~/lessons.sqlite --since 7d                  what those runs came to
"""


def main(argv: list[str] | None = None) -> int:
    """The exit code: 0, or 2 with one sentence on stderr for bad input; of a hook 1, as 2 would stop its client."""
    refuse_little_memory()
    open_standard_streams()
    argv = sys.argv[1:] if argv is None else argv
    failed = 1 if argv[:1] == ["hook"] else 2
    try:
        if argv and not argv[0].startswith("-") and "=" not in argv[0]:
            status = dispatch(argv)
            sys.stdout.flush()
            return status
        return serve_bank(parser().parse_intermixed_args(argv))
    except (UserError, InfraError) as error:
        print(f"error: {error}", file=sys.stderr)
        return failed
    except OSError as error:
        return after_output_failed(error)
    except KeyboardInterrupt:
        return 130


def dispatch(argv: list[str]) -> int:
    """Run what the first word names: run, runs, client, hook, audit, token, or a tool; returns the exit code."""
    name, rest = argv[0], argv[1:]
    if name == "hook" or name not in COMMANDS:
        gc.disable()  # as in `serve_bank`; such a process does one thing and ends
    module, function = COMMANDS.get(name, ("cli", "run_tool"))
    command = getattr(importlib.import_module(f"mcp_server.{module}"), function)  # of the others none is loaded
    return command(rest if name in COMMANDS else argv)


def parser() -> argparse.ArgumentParser:
    """The server's command line; words like key=value override config/mcp.yaml."""
    top = argparse.ArgumentParser(
        prog="reasoningbank serve",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=VersionAction)
    bank_options(top)
    profiles = "core: 10 tools for agents (8 without llm=NAME); all: 15 (12 without); ace: the 8 of mcp-learning-memory"
    top.add_argument("--tools", choices=("core", "all", "ace"), default="core", help=profiles)
    top.add_argument("--transport", choices=("stdio", "http", "sse"), default="stdio")
    top.add_argument("--host", default="127.0.0.1", help="for http and sse (127.0.0.1)")
    top.add_argument("--port", type=int, default=8000, help="for http and sse (8000)")
    top.add_argument("--allowed-host", action="append", default=[], metavar="NAME", help="a Host header to answer to")
    top.add_argument("--token-env", default=TOKEN_ENV, metavar="NAME", help="holds the bearer token")
    top.add_argument("--token-file", type=Path, metavar="FILE", help="holds it instead")
    top.add_argument("--tokens", type=Path, metavar="FILE", help="hashed tokens, each bound to an agent_id, instead")
    return top


def serve_bank(given: argparse.Namespace) -> int:
    """Open the bank and serve it until the client goes."""
    gc.disable()  # collecting while the libraries make their classes is a tenth of the start
    from mcp_server import http, tokens
    from mcp_server.server import build_server, redact_logs
    from mcp_server.service import configuration, open_service

    cfg = configuration(given)
    over_http = given.transport != "stdio"
    if over_http:
        http.check_port(given.host, given.port)
    verifier, provider, reads = verifiers(given, cfg)
    tenants = verifier is not None
    if not tenants and over_http and (token := tokens.read_token(given.host, given.token_env, given.token_file)):
        verifier = tokens.OneToken(token)
    if verifier is not None:  # what needs a token over HTTP must not lie open on the disk
        os.umask(0o077)
        tokens.warn_of_readers(Path(bank_path(given)), "the bank")
    service = open_service(given, cfg)
    stopped = True
    try:
        if tenants:
            service.bind_agents(reads)
        if not sys.stderr.isatty():  # there the SDK's own handler would break each line at 80 columns
            logging.basicConfig(level=logging.WARNING, format=http.LOG_FORMAT)
        server, worker = build_server(service, given.tools)
        redact_logs(service.redact)
        gc.freeze()
        gc.enable()
        app = None
        if over_http:
            how = (given.transport, given.host, given.allowed_host, service.settings, verifier, provider)
            app = http.build_app(server, *how)
        if service.has_model:
            if why := service.model()[1]:
                log.warning(f"memories are retrieved and saved, but extractions wait in the queue for the model: {why}")
            if not service.bank.read_only:
                worker.start()
        path = {"stdio": "", "http": "/mcp", "sse": "/sse"}[given.transport]
        where = "stdio" if app is None else f"{given.transport}, http://{given.host}:{given.port}{path}"
        print(f"[INFO] server running over {where}, {len(service.bank)} memories", file=sys.stderr, flush=True)
        try:
            server.run("stdio") if app is None else http.serve_http(app, server, given.host, given.port)
        finally:
            stopped = worker.close()
    finally:
        if stopped:
            service.close()
    if not stopped:  # an extraction still waits for its model; it stays in the queue for the next server
        sys.stdout.flush()
        os._exit(0)
    return 0


def verifiers(given: argparse.Namespace, cfg: Any) -> tuple[Any, Any, Any]:
    """(the TokenVerifier of --tokens, of server.oauth or of both, the identity provider); None where there is none.

    The third is for `Service.bind_agents`: the groups that the file of --tokens names.
    """
    from mcp_server import tokens
    from mcp_server.config import ServerSettings

    known, provider, settings = [], None, ServerSettings.of(cfg).oauth
    reads = None
    options = {"--tokens": given.tokens, "server.oauth": settings["issuer"]}
    for name in (name for name, value in options.items() if value is not None):
        if given.transport == "stdio" or given.token_file is not None:
            raise UserError(f"{name} is for --transport http, and takes the place of --token-file.")
    if given.tokens is not None:
        known.append(file := tokens.Tenants(given.tokens))
        reads = file.reads
    if settings["issuer"] is not None:
        from mcp_server.oauth import identity_provider

        known.append(provider := identity_provider(settings))
    return (tokens.EitherVerifier(*known) if len(known) > 1 else known[0] if known else None), provider, reads


if __name__ == "__main__":
    sys.exit(main())
