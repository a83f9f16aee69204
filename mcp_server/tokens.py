"""Authentication: one bearer token for the server, or a file of hashed tokens, each bound to an agent_id.

oauth.py has the tokens of an identity provider.

A line of the file is `sha256:HEX AGENT_ID`, or `group NAME AGENT_ID` for a member of a group, whose members read each
other's lessons and those in the namespace NAME; a comment begins with `#`. The file holds no token itself; as the
tokens have 256 random bits, a plain hash cannot be inverted. A line that is removed holds no more from the next request
on.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import ipaddress
import logging
import os
import re
import secrets
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from core.errors import UserError
from core.textfile import read_text
from mcp_server import checks

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken

READ, WRITE = "read", "write"  # what a token allows
SHORTEST_TOKEN = 16
log = logging.getLogger(__name__)
_LINE = re.compile(r"sha256:([0-9a-f]{64})\s+(\S+)|group\s+(\S+)\s+(\S+)")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_token(host: str, env: str, file: Path | None) -> str | None:
    """The bearer token, from a file or an environment variable; None if none is set and only this machine can connect.

    Raises UserError for a token that is too short, and for a missing one unless `host` is a loopback address.
    """
    if file is not None:
        warn_of_readers(file, f"--token-file {file}")
    token = (read_text(file, f"--token-file {file}") if file is not None else os.environ.get(env, "")).strip()
    if not token and is_loopback(host) and file is None:
        return None
    if len(token) < SHORTEST_TOKEN or not token.isascii():
        where = f"--token-file {file}" if file is not None else f"the variable {env}"
        raise UserError(
            f"--host {host} is served with a bearer token of at least {SHORTEST_TOKEN} ASCII characters: put one into "
            f"{where} (python -c 'import secrets; print(secrets.token_urlsafe(32))')."
        )
    return token


def warn_of_readers(file: Path, given: str) -> None:
    """Log a warning where other users of this machine can read a file with a token."""
    if os.name == "posix" and file.is_file() and file.stat().st_mode & 0o077:
        log.warning(f"{given} can be read by other users of this machine: chmod 600 {file}.")


class TokenFile(NamedTuple):
    """What a file of tokens says. agents: {hash of a token: its agent_id}; members: (group, agent_id)."""

    agents: dict[bytes, str]
    members: set[tuple[str, str]]

    def reads(self, agent: str) -> list[str]:
        """The namespaces that an agent reads beside its own: its groups', and of their members."""
        groups = {group for group, member in self.members if member == agent}
        return sorted((groups | {member for group, member in self.members if group in groups}) - {agent})


class Tenants:
    """The tenants' tokens in a file, which is read again when it changes: a TokenVerifier of the SDK. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._known = TokenFile({}, set())
        self.read()

    def read(self) -> TokenFile:
        """What the file says now. Raises UserError if it cannot be read; then all calls are refused."""
        with self._lock:
            try:
                found = self._path.stat()
                stamp = found.st_mtime_ns, found.st_size, found.st_ino
                if stamp != self._stamp:
                    self._stamp, self._known = None, parsed(self._path)
                    self._stamp = stamp
            except OSError as error:
                self._stamp = None
                raise UserError(f"--tokens {self._path} cannot be read: {error}.") from error
            return self._known

    def reads(self, agent: str) -> list[str]:
        """As of the file now (`TokenFile.reads`)."""
        return self.read().reads(agent)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Whose token this is, by its client_id; None if it is unknown. Raises UserError as `read` does."""
        from mcp.server.auth.provider import AccessToken

        agent = self.agent(token.strip().encode("latin-1"))  # as it stood in the header
        return None if agent is None else AccessToken(token="", client_id=agent, scopes=[READ, WRITE])

    def agent(self, token: bytes) -> str | None:
        """The agent_id of a token; None if it is unknown. Takes constant time. Raises UserError as `read` does."""
        given, found = hashlib.sha256(token).digest(), None
        if not token:  # no token is never valid, even if the file holds the hash of an empty one
            return None
        for known, agent in self.read().agents.items():
            found = agent if hmac.compare_digest(given, known) else found
        return found


class OneToken(Tenants):
    """The one token of all clients, bound to no agent_id."""

    def __init__(self, token: str) -> None:
        self._known = TokenFile({hashlib.sha256(token.encode()).digest(): ""}, set())

    def read(self) -> TokenFile:
        return self._known


class EitherVerifier:
    """Accepts what one of several verifiers accepts; the first that does says whose token it is."""

    def __init__(self, *verifiers: Any) -> None:
        self._verifiers = verifiers

    async def verify_token(self, token: str) -> AccessToken | None:
        for verifier in self._verifiers:
            if (found := await verifier.verify_token(token)) is not None:
                return found
        return None


def parsed(path: Path, text: str | None = None) -> TokenFile:
    """Parse a file of tokens. Raises UserError, which names the line that is malformed. text: None: the file's."""
    known = TokenFile({}, set())
    text = read_text(path, f"--tokens {path}") if text is None else text
    for number, line in enumerate(text.splitlines(), 1):
        if not (text := line.partition("#")[0].strip()):
            continue
        if not (match := _LINE.fullmatch(text)):
            forms = "`sha256:HEX AGENT_ID`, which `token` makes, or `group NAME AGENT_ID`"
            raise UserError(f"--tokens {path}, line {number}: give {forms}.")
        if match[1]:
            known.agents[bytes.fromhex(match[1])] = checks.namespace(match[2])
        else:
            known.members.add((checks.namespace(match[3]), checks.namespace(match[4])))
    if both := {group for group, _ in known.members} & {*known.agents.values(), *(name for _, name in known.members)}:
        raise UserError(f"--tokens {path}: {both.pop()} is both a group and an agent_id: give the group another name.")
    return known


def run_token(argv: list[str]) -> int:
    """Make a token: its hash goes into the file, the token itself is printed, once. With --list say who sees what."""
    options = argparse.ArgumentParser(prog="reasoningbank token", description=run_token.__doc__)
    options.add_argument("--tokens", type=Path, required=True, metavar="FILE", help="the file of hashed tokens")
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument("--agent-id", metavar="NAME", help="whose memory the token opens")
    what.add_argument("--list", action="store_true", help="who has tokens, and reads and writes whose lessons")
    options.add_argument("--group", metavar="NAME", help="make the agent_id a member of it")
    given = options.parse_args(argv)
    if given.list:
        print(who_sees_what(parsed(given.tokens)))
        return 0
    agent, token = checks.namespace(given.agent_id), secrets.token_urlsafe(32)
    lines = f"sha256:{hashlib.sha256(token.encode()).hexdigest()} {agent}\n"
    lines += f"group {checks.namespace(given.group)} {agent}\n" if given.group else ""
    before = read_text(given.tokens, f"--tokens {given.tokens}") if given.tokens.exists() else ""
    parsed(given.tokens, f"{before}\n{lines}")  # a line behind a broken one would be of no use
    try:
        with os.fdopen(os.open(given.tokens, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b") as file:
            before = file.read()
            file.write((b"" if before[-1:] in (b"", b"\n") else b"\n") + lines.encode())
    except OSError as error:
        raise UserError(f"--tokens {given.tokens} cannot be written: {error}.") from error
    print(token)
    return 0


def who_sees_what(known: TokenFile) -> str:
    """A table for the server's admin: a line for each agent_id."""
    tokens = Counter(known.agents.values())
    agents = sorted({*tokens, *(member for _, member in known.members)})
    rows = [(agent, str(tokens[agent]), agent, ", ".join((agent, *known.reads(agent)))) for agent in agents]
    rows.insert(0, ("agent_id", "tokens", "writes", "reads"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
