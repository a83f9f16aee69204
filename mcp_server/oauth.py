"""Access tokens of an identity provider: JWTs, checked by the provider's published keys (`server.oauth`).

The server is an OAuth 2.0 resource server: its metadata (RFC 9728) names the provider, where clients log in. It checks
signature, issuer, audience and expiry (RFC 9068), and maps a claim to the agent_id and scopes to reading and writing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from starlette.applications import Starlette

from core.errors import InfraError, UserError
from mcp_server import checks
from mcp_server.connections import Seldom
from mcp_server.tokens import READ, WRITE, is_loopback

ALGORITHMS = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split()  # none by a shared secret
KEPT_S = 300.0  # seconds that the provider's keys are kept
AGAIN_S = 10.0  # seconds before they are fetched again, for a key that is not among them or after an error
LEEWAY_S = 10.0  # seconds that the two clocks may differ
LONGEST = 16_000  # characters of a token
# What a provider's answers can raise: no answer, another status, no JSON, JSON of another shape, unusable keys.
FAULTS = (httpx.HTTPError, httpx.InvalidURL, jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError)

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class IdentityProvider:
    """The SDK's TokenVerifier for a provider's JWTs. The fields are those of `server.oauth` in config/mcp.yaml.

    verify_token raises InfraError while the provider's keys cannot be fetched.
    """

    issuer: str
    resource: str
    audience: str | None
    jwks: str | None
    agent_claim: str
    read_scope: str | None
    write_scope: str | None
    _keys: dict[str | None, Any] = field(default_factory=dict, init=False, repr=False)  # by key id
    _fetched: float = field(default=-KEPT_S, init=False, repr=False)  # when the keys came
    _asked: float = field(default=-AGAIN_S, init=False, repr=False)  # when they were last asked for
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)
    _seldom: Seldom = field(default_factory=Seldom, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("issuer", "resource", *(["jwks"] if self.jwks else [])):
            _check_address(f"server.oauth.{name}", getattr(self, name))
        if not self.agent_claim:
            raise UserError("server.oauth.agent_claim is empty: name the claim that holds the agent_id, e.g. sub.")

    @property
    def metadata_url(self) -> str:
        return str(build_resource_metadata_url(self.resource))

    def metadata_app(self) -> Starlette:
        """The application that answers at the path of `metadata_url`."""
        scopes = [scope for scope in (self.read_scope, self.write_scope) if scope]
        how = {"scopes_supported": scopes or None, "resource_name": "ReasoningBank"}
        return Starlette(routes=create_protected_resource_routes(self.resource, [self.issuer], **how))

    async def verify_token(self, token: str) -> AccessToken | None:
        """Who the token is of and what it allows; None for one that is not valid here."""
        try:
            head = jwt.get_unverified_header(token) if len(token) <= LONGEST else {}
            if head.get("alg") not in ALGORITHMS or (key := await self._key(head.get("kid"))) is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self.audience or self.resource,
                issuer=self.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", self.agent_claim]},
            )
        except (jwt.PyJWTError, ValueError, TypeError):  # its text may quote the token
            return None
        try:
            agent = checks.namespace(str(claims[self.agent_claim]))
        except UserError:
            self._seldom.warn(f"a valid token's claim {self.agent_claim!r} is no agent_id: it is refused")
            return None
        return AccessToken(token="", client_id=agent, scopes=self._allowed(claims), expires_at=int(claims["exp"]))

    def _allowed(self, claims: dict[str, Any]) -> list[str]:
        """READ and WRITE, as far as the token's scopes allow them. Who may write may read."""
        given = claims.get("scope", claims.get("scp", ""))
        given = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
        if self.write_scope is None or self.write_scope in given:
            return [READ, WRITE]
        return [READ] if self.read_scope is None or self.read_scope in given else []

    async def _key(self, id: str | None) -> Any:
        """The provider's key of this id, fetched again if need be; None if it has none."""
        async with self._lock:
            now = time.monotonic()
            old = now - self._fetched >= KEPT_S
            if (old or id not in self._keys) and now - self._asked >= AGAIN_S:
                self._asked = now
                try:
                    self._keys = await asyncio.to_thread(self._fetch)
                    self._fetched = now
                except FAULTS as error:
                    why = f"{type(error).__name__}: {str(error)[:200]}"
                    log.error(f"the keys of {self.issuer} cannot be fetched: {why}")
                    self._keys = {} if old else self._keys
            if not self._keys:
                raise InfraError(f"the keys of {self.issuer} cannot be fetched", "connection")
            return self._keys.get(id)

    def _fetch(self) -> dict[str | None, Any]:
        with httpx.Client(timeout=5, follow_redirects=False) as client:
            found = client.get(self.jwks or self._discovered(client)).raise_for_status().json()
        keys = jwt.PyJWKSet(found["keys"]).keys  # without those that PyJWT cannot use
        return {key.key_id: key for key in keys if key.public_key_use in (None, "sig") and key.key_type != "oct"}

    def _discovered(self, client: httpx.Client) -> str:
        """The address of the keys, by the provider's own document (OpenID Connect discovery, else RFC 8414)."""
        parts, base = urlsplit(self.issuer), self.issuer.rstrip("/")
        ours = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path.rstrip('/')}"
        answer = client.get(f"{base}/.well-known/openid-configuration")
        answer = client.get(ours) if answer.status_code == 404 else answer
        document = answer.raise_for_status().json()
        if document.get("issuer") != self.issuer:
            raise ValueError(f"its document is of the issuer {document.get('issuer')!r}")
        _check_address("jwks_uri", document["jwks_uri"])
        return document["jwks_uri"]


def identity_provider(settings: dict[str, Any]) -> IdentityProvider:
    """The provider of `server.oauth`. Raises UserError for settings that cannot be."""
    if settings["resource"] is None:
        raise UserError("server.oauth.resource is missing: give the address at which clients reach this server.")
    return IdentityProvider(**settings)


def _check_address(name: str, address: Any) -> None:
    """Raise UserError unless it is an https address, or an http one of this machine, without query and fragment."""
    parts = urlsplit(str(address))
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not safe or not parts.hostname or parts.query or parts.fragment:
        raise UserError(f"{name}={str(address)[:200]}: give an https address (http only on this machine).")
