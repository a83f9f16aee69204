"""Access tokens of an identity provider: JWTs, checked by the provider's published keys (`server.oauth`).

The server is an OAuth 2.0 resource server: its metadata (RFC 9728) names the provider, where clients log in. It checks
signature, issuer, audience and expiry (RFC 9068), and maps a claim to the agent_id and scopes to reading and writing.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from pydantic import AnyHttpUrl
from starlette.routing import Route

from core.errors import InfraError, UserError
from mcp_server import checks
from mcp_server.tokens import READ, WRITE, is_loopback

ALGORITHMS = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split()  # none by a shared secret
AGAIN_S = 10.0  # seconds before the keys are fetched again for a key that is not among them
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
    _keys: jwt.PyJWKClient | None = field(default=None, init=False, repr=False)  # which keeps them for five minutes

    def __post_init__(self) -> None:
        for name in ("issuer", "resource", *(["jwks"] if self.jwks else [])):
            _check_address(f"server.oauth.{name}", getattr(self, name))
        if not self.agent_claim:
            raise UserError("server.oauth.agent_claim is empty: name the claim that holds the agent_id, e.g. sub.")

    @property
    def metadata_url(self) -> AnyHttpUrl:
        return build_resource_metadata_url(AnyHttpUrl(self.resource))

    def metadata_routes(self) -> list[Route]:
        """The routes that answer at the path of `metadata_url`."""
        scopes = [scope for scope in (self.read_scope, self.write_scope) if scope]
        how = {"scopes_supported": scopes or None, "resource_name": "ReasoningBank"}
        return create_protected_resource_routes(self.resource, [self.issuer], **how)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Who the token is of and what it allows; None for one that is not valid here."""
        try:
            head = jwt.get_unverified_header(token) if len(token) <= LONGEST else {}
            if head.get("alg") not in ALGORITHMS:
                return None
            claims = jwt.decode(
                token,
                await asyncio.to_thread(self._key, head.get("kid")),
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
            log.warning(f"a valid token's claim {self.agent_claim!r} is no agent_id: it is refused")
            return None
        return AccessToken(token="", client_id=agent, scopes=self._allowed(claims), expires_at=int(claims["exp"]))

    def _allowed(self, claims: dict[str, Any]) -> list[str]:
        """READ and WRITE, as far as the token's scopes allow them. Who may write may read."""
        given = claims.get("scope", claims.get("scp", ""))
        given = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
        if self.write_scope is None or self.write_scope in given:
            return [READ, WRITE]
        return [READ] if self.read_scope is None or self.read_scope in given else []

    def _key(self, id: str) -> jwt.PyJWK:
        """The provider's key of this id. Raises PyJWKClientError if it has none."""
        try:
            if self._keys is None:
                address = self.jwks or self._discovered()
                self._keys = jwt.PyJWKClient(address, timeout=5, cooldown_duration=AGAIN_S)
            self._keys.get_signing_keys()
        except FAULTS as error:
            why = f"{type(error).__name__}: {str(error)[:200]}"
            raise InfraError(f"the keys of {self.issuer} cannot be fetched: {why}", "connection") from error
        return self._keys.get_signing_key(id)

    def _discovered(self) -> str:
        """The address of the keys, by the provider's own document (OpenID Connect discovery)."""
        answer = httpx.get(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration", timeout=5)
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
