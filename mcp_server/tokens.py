"""Authentication: one bearer token for the server, or a file of hashed tokens, each bound to an agent_id.

oauth.py has the tokens of an identity provider.

A line of the file is `sha256:HEX AGENT_ID`; a comment begins with `#`. The file holds no token itself; as the tokens
have 256 random bits, a plain hash cannot be inverted. Once a line is removed, its token is refused from the next
request on.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.textfile import read_text
from mcp_server import checks

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken

READ, WRITE = "read", "write"  # what a token allows
SHORTEST_TOKEN = 16
log = logging.getLogger(__name__)
_LINE = re.compile(r"sha256:([0-9a-f]{64})\s+(\S+)")


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


class Tenants:
    """The tenants' tokens in a file, which is read again when it changes: a TokenVerifier of the SDK. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._agents: dict[bytes, str] = {}
        self.read()

    def read(self) -> dict[bytes, str]:
        """{hash of a token: its agent_id}. Raises UserError if the file cannot be read; then all calls are refused."""
        with self._lock:
            try:
                found = self._path.stat()
                stamp = found.st_mtime_ns, found.st_size, found.st_ino
                if stamp != self._stamp:
                    self._stamp, self._agents = None, parsed(self._path)
                    self._stamp = stamp
            except OSError as error:
                self._stamp = None
                raise UserError(f"--tokens {self._path} cannot be read: {error}.") from error
            return self._agents

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
        for known, agent in self.read().items():
            found = agent if hmac.compare_digest(given, known) else found
        return found


class OneToken:
    """The one token of all clients, bound to no agent_id, as a TokenVerifier of the SDK."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """All rights for the token itself, compared in constant time; None for any other."""
        from mcp.server.auth.provider import AccessToken

        known = hmac.compare_digest(token.strip().encode("latin-1"), self._token)
        return AccessToken(token="", client_id="", scopes=[READ, WRITE]) if known else None


class EitherVerifier:
    """Accepts what one of several verifiers accepts; the first that does says whose token it is."""

    def __init__(self, *verifiers: Any) -> None:
        self._verifiers = verifiers

    async def verify_token(self, token: str) -> AccessToken | None:
        for verifier in self._verifiers:
            if (found := await verifier.verify_token(token)) is not None:
                return found
        return None


def parsed(path: Path) -> dict[bytes, str]:
    """Parse a file of tokens: {hash: agent_id}. Raises UserError, which names the line that is malformed."""
    agents = {}
    for number, line in enumerate(read_text(path, f"--tokens {path}").splitlines(), 1):
        if not (text := line.partition("#")[0].strip()):
            continue
        if not (match := _LINE.fullmatch(text)):
            raise UserError(f"--tokens {path}, line {number}: give `sha256:HEX AGENT_ID`; `token` makes one.")
        agents[bytes.fromhex(match[1])] = checks.namespace(match[2])
    return agents


def run_token(argv: list[str]) -> int:
    """Make a token: its hash goes into the file, the token itself is printed, once."""
    options = argparse.ArgumentParser(prog="reasoningbank token", description=run_token.__doc__)
    options.add_argument("--tokens", type=Path, required=True, metavar="FILE", help="the file of hashed tokens")
    options.add_argument("--agent-id", required=True, metavar="NAME", help="whose memory the token opens")
    given = options.parse_args(argv)
    agent, token = checks.namespace(given.agent_id), secrets.token_urlsafe(32)
    line = f"sha256:{hashlib.sha256(token.encode()).hexdigest()} {agent}\n"
    try:
        if given.tokens.exists():
            parsed(given.tokens)  # a line behind a broken one would be of no use
        with os.fdopen(os.open(given.tokens, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b") as file:
            before = file.read()
            file.write((b"" if before[-1:] in (b"", b"\n") else b"\n") + line.encode())
    except OSError as error:
        raise UserError(f"--tokens {given.tokens} cannot be written: {error}.") from error
    print(token)
    return 0
