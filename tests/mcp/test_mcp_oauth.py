"""Access tokens of an identity provider: a local one, whose discovery document and keys the server reads over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from mcp_kit import HELLO, calling, http_server, lessons_in

from core.errors import InfraError, UserError
from mcp_server.__main__ import main
from mcp_server.cli import running_server
from mcp_server.oauth import IdentityProvider
from mcp_server.tokens import run_token

JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
RESOURCE = "https://memory.example.org/mcp"


class Provider:
    """An identity provider: publishes its keys and signs tokens."""

    def __init__(self):
        self.keys = {"one": rsa.generate_private_key(65537, 2048), "two": ec.generate_private_key(ec.SECP256R1())}
        self.published, self.asked, self.issuer = ["one"], 0, ""

    def token(self, key="one", algorithm=None, secret=None, **claims):
        about = {"iss": self.issuer, "aud": RESOURCE, "sub": "ann", "exp": time.time() + 600, "scope": "memory:write"}
        about = {name: value for name, value in (about | claims).items() if value is not None}
        algorithm = algorithm or ("RS256" if key == "one" else "ES256")
        return jwt.encode(about, self.keys[key] if secret is None else secret, algorithm, {"kid": key})

    def jwks(self):
        made = []
        for name in self.published:
            kind = jwt.algorithms.RSAAlgorithm if name == "one" else jwt.algorithms.ECAlgorithm
            made.append(json.loads(kind.to_jwk(self.keys[name].public_key())) | {"kid": name, "use": "sig"})
        return {"keys": made}


@contextmanager
def provided():
    provider = Provider()

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self):
            pages = {
                "/.well-known/openid-configuration": {"issuer": provider.issuer, "jwks_uri": f"{provider.issuer}/keys"},
                "/keys": provider.jwks(),
            }
            provider.asked += self.path == "/keys"
            self.send_response(200 if self.path in pages else 404)
            self.end_headers()
            self.wfile.write(json.dumps(pages.get(self.path)).encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()


def verifier(provider, **more):
    settings = {
        "issuer": provider.issuer,
        "resource": RESOURCE,
        "audience": None,
        "jwks": None,
        "agent_claim": "sub",
        "read_scope": "memory:read",
        "write_scope": "memory:write",
    }
    return IdentityProvider(**settings | more)


def verified(known, token):
    return asyncio.run(known.verify_token(token))


def test_a_token_is_taken_if_all_of_it_is_right():
    with provided() as idp:
        known, ours = verifier(idp), Provider()

        def found(**about):
            accepted = verified(known, idp.token(**about))
            return accepted and (accepted.client_id, accepted.scopes)

        assert found() == ("ann", ["read", "write"])
        assert found(scope="openid memory:read") == ("ann", ["read"])
        assert found(scope=None, scp=["memory:write"]) == ("ann", ["read", "write"])
        assert found(scope="openid") == found(scope=None) == found(scope=7) == ("ann", [])
        assert found(aud=["account", RESOURCE]) == ("ann", ["read", "write"])
        wrong = [
            {"iss": "https://other.example"},
            {"iss": None},
            {"aud": "account"},
            {"aud": f"{RESOURCE}/"},
            {"aud": None},
            {"exp": time.time() - 60},
            {"exp": None},
            {"nbf": time.time() + 600},
            {"sub": None},
            {"sub": "auth0|7"},
            {"sub": "a b"},
            {"algorithm": "none", "secret": ""},
            {"algorithm": "HS256", "secret": "the public key as a secret".ljust(32)},
            {"secret": ours.keys["one"]},
        ]
        for about in wrong:
            assert found(**about) is None, about
        for text in ("", "a.b.c", "x" * 20_000, idp.token()[:-3], idp.token() + "A", "ä.ö.ü"):
            assert verified(known, text) is None, text[:50]
        assert idp.asked == 1


def test_new_keys_are_fetched_and_old_ones_forgotten(monkeypatch):
    moment = [time.monotonic()]
    monkeypatch.setattr("jwt.jwks_client.time.monotonic", lambda: moment[0])
    monkeypatch.setattr("jwt.jwk_set_cache.time.monotonic", lambda: moment[0])
    with provided() as idp:
        known = verifier(idp)
        assert verified(known, idp.token()) and verified(known, idp.token("two")) is None
        idp.published = ["two"]
        for _ in range(5):  # strange keys do not make it ask again and again
            assert verified(known, idp.token("two")) is None
        assert idp.asked == 1
        moment[0] += 11
        assert verified(known, idp.token("two")) and verified(known, idp.token()) is None
        assert idp.asked == 2
    moment[0] += 100
    assert verified(known, idp.token("two"))  # the provider is down, its keys are not old
    moment[0] += 300
    with pytest.raises(InfraError):
        verified(known, idp.token("two"))


def test_keys_that_are_of_no_use_do_not_spoil_those_that_are():
    odd = [{"kty": "OKP", "crv": "X25519", "x": "AA", "kid": "x"}, {"kty": "new", "kid": "y"}, {"kid": "z"}, "no key"]
    with provided() as idp:
        whole = idp.jwks
        idp.jwks = lambda: {"keys": [*odd, *whole()["keys"]]}
        assert verified(verifier(idp), idp.token()).client_id == "ann"


@pytest.mark.parametrize("answer", [[], "text", None, {}, {"keys": None}, {"keys": []}, {"keys": {"a": 1}}])
def test_a_provider_that_answers_nonsense_lets_nobody_in(answer):
    with provided() as idp:
        idp.jwks = lambda: answer
        with pytest.raises(InfraError, match="cannot be fetched"):
            verified(verifier(idp), idp.token())


def test_settings_that_cannot_be_are_refused(tmp_path, capsys):
    for wrong in ("http://idp.example.org", "idp.example.org", "https://idp.example.org/?a=1", "ftp://127.0.0.1"):
        with pytest.raises(UserError, match="give an https address"):
            verifier(Provider(), issuer=wrong)
    bank = ["--bank", str(tmp_path / "b.sqlite")]
    assert main([*bank, "--transport", "http", "server.oauth.issuer=https://idp.example.org"]) == 2
    assert "server.oauth.resource is missing" in capsys.readouterr().err
    how = ["server.oauth.issuer=https://idp.example.org", f"server.oauth.resource={RESOURCE}"]
    assert main([*bank, *how]) == 2
    assert "server.oauth is for --transport http" in capsys.readouterr().err


def test_a_server_with_an_identity_provider(tmp_path, capsys):
    file, errors = tmp_path / "tokens", []
    run_token(["--tokens", str(file), "--agent-id", "bob"])
    with file.open("a") as lines:  # a group of two who sign in by the provider alone
        lines.write("group web ann\ngroup web cat\n")
    bobs = capsys.readouterr().out.strip()

    def use(url):
        lesson = {"query": "sort a list", "title": "Use sorted", "content": "It is stable."}

        def known(token):
            return calling(running_server(f"{url}/mcp", token))

        with known(idp.token()) as ann, known(bobs) as bob:
            saved = ann.ask("save_lesson", **lesson)
            assert bob.ask("retrieve_memory", query="sort a list")["formatted_prompt"] == ""
            assert bob.ask("save_lesson", **lesson)["status"] == "saved"
            assert "your token is bound to ann" in ann.refused("bank_status", agent_id="bob")
        with known(idp.token(sub="cat", scope="memory:read")) as cat:
            assert "agent_id=ann" in cat.ask("retrieve_memory", query="sort a list")["formatted_prompt"]
        with known(idp.token(scope="memory:read")) as reader:
            [found] = lessons_in(reader.ask("retrieve_memory", query="sort a list"))
            assert found["id"] == saved["memory_id"][:8]
            for tool, given in (("save_lesson", lesson), ("mark_helpful", {"memory_id": saved["memory_id"]})):
                assert "your token may only read" in reader.refused(tool, **given)

    with provided() as idp:
        settings = (f"server.oauth.issuer={idp.issuer}", f"server.oauth.resource={RESOURCE}")
        with http_server(tmp_path / "b.sqlite", "--tokens", str(file), *settings, errors=errors) as url:
            use(url)
            metadata = httpx2.get(f"{url}/.well-known/oauth-protected-resource/mcp")
            assert metadata.status_code == 200 and metadata.json() == {
                "resource": RESOURCE,
                "authorization_servers": [idp.issuer],
                "scopes_supported": ["memory:read", "memory:write"],
                "bearer_methods_supported": ["header"],
                "resource_name": "ReasoningBank",
            }
            where = 'resource_metadata="https://memory.example.org/.well-known/oauth-protected-resource/mcp"'
            late = idp.token(exp=time.time() - 60)
            for token, status, error in (
                ("", 401, "invalid_token"),
                ("wrong", 401, "invalid_token"),
                (late, 401, "invalid_token"),
                (idp.token(scope="openid"), 403, "insufficient_scope"),
            ):
                headers = JSON | ({"authorization": f"Bearer {token}"} if token else {})
                answer = httpx2.post(f"{url}/mcp", json=HELLO, headers=headers)
                challenge = answer.headers["www-authenticate"]
                assert answer.status_code == status and f'error="{error}"' in challenge and where in challenge
            assert httpx2.get(f"{url}/.well-known/oauth-authorization-server").status_code == 404
            file.write_text("")  # a token of the file is refused from the next request on
            headers = JSON | {"authorization": f"Bearer {bobs}"}
            assert httpx2.post(f"{url}/mcp", json=HELLO, headers=headers).status_code == 401
    assert not any(part in errors[0] for part in (bobs[:20], late[:20]))


def test_a_provider_that_cannot_be_reached_lets_nobody_in(tmp_path):
    idp = Provider()
    idp.issuer = "http://127.0.0.1:9"
    errors = []
    settings = (f"server.oauth.issuer={idp.issuer}", f"server.oauth.resource={RESOURCE}")
    with http_server(tmp_path / "b.sqlite", *settings, errors=errors) as url:
        answer = httpx2.post(f"{url}/mcp", json=HELLO, headers=JSON | {"authorization": f"Bearer {idp.token()}"})
        assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
        assert httpx2.post(f"{url}/mcp", json=HELLO, headers=JSON).status_code == 401
    assert "the keys of http://" in errors[0]
