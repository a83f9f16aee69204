"""What stands between a run and its server: proxies, certificates, redirects, and an address that is not quite right.

Each table is asked twice: of the list of models before a run (`start`), and of a call (`call`).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product

import httpx
import pytest
from net_kit import HTML, MODELS, Net, certificate, model_below
from provider import completion

from core.errors import InfraError, StopRun, UserError
from core.models import addresses, connections, network, retry
from core.models.base import Request
from core.models.embedding import OpenAIEmbedder
from core.models.remote import LiteLLMModel
from core.models.servers import name_models

ASK = Request(messages=[{"role": "user", "content": "hello"}], role="agent")
HI = (200, completion("hi"))
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir", "curl_ca_bundle")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in (*VARIABLES, "requests_ca_bundle", "node_extra_ca_certs"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def net():
    servers = []

    def start(*args, **more):
        servers.append(Net(*args, **more))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("certificates")
    return {
        "good": certificate(folder, "good"),
        "expired": certificate(folder, "expired", days=-1),
        "elsewhere": certificate(folder, "elsewhere", address="10.1.2.3"),
    }


def start(url, model="hosted_vllm/", **more):
    """What the start of a run says to an address; the model's name if nothing is wrong."""
    node = {"model": model, "api_base": url} | more
    try:
        name_models({"llm": node}, {})
    except (UserError, InfraError) as error:
        return str(error)
    return node["model"]


def call(url, **more):
    """What a call says; the reply if nothing is wrong."""
    given = {"model": "hosted_vllm/m", "client": "openai", "timeout_s": 3.0, "attempts": 1}
    asked = LiteLLMModel(api_base=url, **given | more)
    try:
        return asked.chat(ASK).text
    except (UserError, InfraError) as error:
        return str(error)
    finally:
        asked.close()


def closed_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


# Proxies. PROXY stands for the address of one that is there, DOWN for one that is not.


PROXIES = [
    ({"http_proxy": "DOWN"}, "http_proxy", "NO_PROXY"),
    ({"HTTP_PROXY": "DOWN"}, "HTTP_PROXY", "add 127.0.0.1 to NO_PROXY"),
    ({"all_proxy": "DOWN"}, "all_proxy", "NO_PROXY"),
    ({"ALL_PROXY": "DOWN", "NO_PROXY": "localhost,.corp"}, "ALL_PROXY", "NO_PROXY"),
    ({"http_proxy": "http://joe:very-secret@DOWN"}, "http_proxy", "Connection refused"),
    ({"ALL_PROXY": "socks5://DOWN"}, "ALL_PROXY", "SOCKS"),
    ({"all_proxy": "socks5h://joe:very-secret@DOWN"}, "all_proxy", "socksio"),
    ({"HTTP_PROXY": "http://joe:very-secret@proxy:port"}, "HTTP_PROXY", "no address of a proxy"),
    ({"http_proxy": "ftp://DOWN"}, "http_proxy", "no address of a proxy"),
    ({"http_proxy": "http://PROXY", "ANSWER": 407}, "http_proxy", "407"),
    ({"http_proxy": "PROXY", "ANSWER": 502}, "http_proxy", "502"),
    ({"HTTP_PROXY": "http://joe:very-secret@PROXY", "ANSWER": 403}, "HTTP_PROXY", "403"),
    ({"http_proxy": "http://PROXY", "ANSWER": 503}, "http_proxy", "503"),
    ({"http_proxy": "http://PROXY", "ANSWER": 200}, "http_proxy", "not in JSON"),
    ({"http_proxy": "https://PROXY", "ANSWER": 200}, "http_proxy", "TLS is not spoken"),
    ({"http_proxy": "http://PROXY", "HTTP_PROXY": "http://other", "ANSWER": 504}, "http_proxy", "504"),
]


@pytest.mark.parametrize("ask", [start, call])
def test_a_proxy_before_a_server_of_ones_own_is_named_by_its_variable(net, monkeypatch, ask, subtests):
    well, page = net(model_below()), [()]
    proxy = net({}, default=page)
    for variables, named, also in PROXIES:
        page[0] = (variables.get("ANSWER", 200), "<html>a proxy</html>", HTML)
        with subtests.test(str(variables)), monkeypatch.context() as patch:
            for name, value in variables.items():
                if name != "ANSWER":
                    value = value.replace("DOWN", f"127.0.0.1:{closed_port()}")
                    patch.setenv(name, value.replace("PROXY", f"127.0.0.1:{proxy.port}"))
            said = ask(f"{well.root}/v1")
            assert named in said and also in said and "NO_PROXY" in said, said
            assert "very-secret" not in said and "joe" not in said
            assert well.asked == []


@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_a_proxy_that_makes_no_tunnel_is_named(net, monkeypatch, variable, subtests):
    page = [()]
    proxy = net({}, default=page)
    monkeypatch.setenv(variable, f"http://joe:very-secret@127.0.0.1:{proxy.port}")
    for answer in (407, 502, 403, 404):
        page[0] = (answer, "<html>", HTML)
        proxy.asked.clear()
        with subtests.test(str(answer)):
            for ask in (start, call):
                said = ask("https://models.example/v1")
                assert f"127.0.0.1:{proxy.port} of {variable}" in said and str(answer) in said, said
                assert "secret" not in said
            assert {method for method, *_ in proxy.asked} == {"CONNECT"}


NO_PROXIES = [
    "127.0.0.1",
    "localhost,127.0.0.1,[::1]",
    "127.0.0.1,[::1]:8080",
    "127.0.0.1,[fe80::1]",
    "localhost 127.0.0.1",
    "*",
    "127.0.0.0/8",
    "http://127.0.0.1",
    "127.0.0.1:PORT",
    " 127.0.0.1 , ::1 ",
]


def test_an_entry_of_no_proxy_is_passed_by_however_it_is_written(net, monkeypatch, subtests):
    well = net(model_below())
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name, value in product(("NO_PROXY", "no_proxy"), NO_PROXIES):
        with subtests.test(f"{name}={value}"), monkeypatch.context() as patch:
            patch.setenv(name, value.replace("PORT", str(well.port)))
            assert (start(f"{well.root}/v1"), call(f"{well.root}/v1")) == ("hosted_vllm/m", "hi")


LIKE_CURL = [  # a URL, no_proxy, whether it is asked directly
    ("http://gpu.corp.example/v1", ".corp.example", True),
    ("http://gpu.corp.example/v1", "*.corp.example", True),
    ("http://gpu.corp.example/v1", "corp.example", True),
    ("http://corp.example/v1", ".corp.example", True),
    ("http://notcorp.example/v1", "corp.example", False),
    ("http://corp.example.evil/v1", "corp.example", False),
    ("http://GPU.corp.example/v1", "gpu.CORP.example", True),
    ("http://10.1.2.3:8000/v1", "10.0.0.0/8", True),
    ("http://10.1.2.3:8000/v1", "10.1.2.4", False),
    ("http://10.1.2.3:8000/v1", "10.1.2.3:9000", False),
    ("http://[::1]:8000/v1", "[::1]", True),
    ("http://[fd00::5]:8000/v1", "fd00::/8", True),
    ("http://gpu/v1", "", False),
    ("http://gpu/v1", ",", False),
]


def test_no_proxy_is_read_as_curl_reads_it(monkeypatch, subtests):
    monkeypatch.setenv("http_proxy", "proxy:3128")
    for url, no_proxy, asked_directly in LIKE_CURL:
        monkeypatch.setenv("no_proxy", no_proxy)
        with subtests.test(f"{url} {no_proxy}"):
            assert (network.proxy_of(url) is None) is asked_directly


def test_the_variable_that_is_used_is_the_one_that_is_named(monkeypatch):
    assert network.proxy_of("http://gpu/v1") is None
    monkeypatch.setenv("ALL_PROXY", "http://all:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://u:p@secure:2")
    found = [network.proxy_of(f"{scheme}://gpu/v1") for scheme in ("http", "https")]
    assert [(each.variable, each.shown) for each in found] == [
        ("ALL_PROXY", "http://all:1"),
        ("HTTPS_PROXY", "http://secure:2"),
    ]
    monkeypatch.setenv("https_proxy", "")  # as urllib and curl have it: switched off
    assert network.proxy_of("https://gpu/v1").variable == "ALL_PROXY"


def test_a_proxy_that_works_is_used(net, monkeypatch):
    proxy = net({}, default=(200, MODELS | completion("through the proxy")))
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
    assert (start("http://gpu.example:8000/v1"), call("http://gpu.example:8000/v1")) == (
        "hosted_vllm/m",
        "through the proxy",
    )
    assert proxy.asked[0][1] == "http://gpu.example:8000/v1/models"


def test_a_server_that_answers_through_a_proxy_is_blamed_itself(net, monkeypatch):
    proxy = net({}, default=(400, {"error": {"message": "no such thing", "code": 400}}))
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
    assert "no such thing" in (said := call("http://gpu.example:8000/v1")) and "proxy" not in said


@pytest.mark.parametrize("address", [None, "http://127.0.0.1:8000/v1"])
def test_other_clients_stumble_over_a_variable_that_is_named_as_well(monkeypatch, address):
    monkeypatch.setenv("no_proxy", "localhost,[::1]")
    said = network.fault(ValueError("Invalid port: ':1]'"), [], address)
    assert "no_proxy=localhost,[::1]" in said.text
    assert network.fault(ValueError("Invalid port: ':1]'"), [], address, reached=True) is None
    monkeypatch.delenv("no_proxy")
    assert network.fault(ValueError("else"), [], address) is None
    monkeypatch.setenv("SSL_CERT_FILE", "/gone/ca.pem")
    assert "SSL_CERT_FILE=/gone/ca.pem" in network.fault(OSError("else"), [], None).text
    assert network.fault(OSError("else"), [], "http://127.0.0.1:8000/v1") is None  # http needs no certificate


def test_a_server_behind_a_proxy_that_is_busy_or_slow_is_tried_again(net, monkeypatch):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.02)
    busy = [(503, "<html>loading</html>", HTML), (502, "<html>", HTML), (200, completion("at last"))]
    proxy = net({("GET", "http://gpu.example:8000/v1/models"): busy[0]}, default=busy)
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
    assert start("http://gpu.example:8000/v1") == "hosted_vllm/default"
    assert call("http://gpu.example:8000/v1", attempts=3) == "at last"
    proxy.pause = 1.0
    said = call("http://gpu.example:8000/v1", timeout_s=0.3)
    assert "proxy" not in said and "timed out" in said.lower()


# Certificates.


CERTIFICATES = [  # the server's certificate, the variables, what is said
    ("good", {}, ["self-signed", "set SSL_CERT_FILE="]),
    ("good", {"REQUESTS_CA_BUNDLE": "good"}, ["REQUESTS_CA_BUNDLE is not read", "SSL_CERT_FILE="]),
    ("good", {"CURL_CA_BUNDLE": "good"}, ["CURL_CA_BUNDLE is not read", "SSL_CERT_FILE="]),
    ("good", {"SSL_CERT_FILE": "elsewhere"}, ["self-signed", "SSL_CERT_FILE=", "must hold"]),
    ("good", {"SSL_CERT_FILE": "/etc/company/ca.pem"}, ["SSL_CERT_FILE=/etc/company/ca.pem", "No such file"]),
    ("good", {"SSL_CERT_FILE": "/"}, ["SSL_CERT_FILE=/ ", "cannot be read"]),
    ("good", {"SSL_CERT_FILE": __file__}, [f"SSL_CERT_FILE={__file__}", "no PEM certificate"]),
    ("good", {"SSL_CERT_DIR": "/etc/company/certs"}, ["SSL_CERT_DIR=/etc/company/certs", "No such file"]),
    ("good", {"SSL_CERT_DIR": "/tmp"}, ["SSL_CERT_DIR=/tmp", "must hold"]),
    ("expired", {"SSL_CERT_FILE": "expired"}, ["expired", "SSL_CERT_FILE="]),
    ("elsewhere", {"SSL_CERT_FILE": "elsewhere"}, ["IP address mismatch", "SSL_CERT_FILE="]),
]


@pytest.mark.parametrize(("whose", "variables", "words"), CERTIFICATES)
def test_a_certificate_is_named_with_the_variable_that_is_read(net, certificates, monkeypatch, whose, variables, words):
    server = net(model_below(), tls=certificates[whose])
    for name, value in variables.items():
        monkeypatch.setenv(name, certificates[value][0] if value in certificates else value)
    for ask in (start, call):
        said = ask(f"{server.root}/v1")
        assert all(word in said for word in words), said
        assert "Is the server running" not in said


def test_a_certificate_that_is_trusted_is_no_matter(net, certificates, monkeypatch):
    server = net(model_below(), tls=certificates["good"])
    monkeypatch.setenv("SSL_CERT_FILE", certificates["good"][0])
    assert (start(f"{server.root}/v1"), call(f"{server.root}/v1")) == ("hosted_vllm/m", "hi")
    monkeypatch.setenv("SSL_CERT_FILE", "/gone.pem")  # which http needs not
    plain = net(model_below())
    assert (start(f"{plain.root}/v1"), call(f"{plain.root}/v1")) == ("hosted_vllm/m", "hi")


# Addresses.


ADDRESSES = [  # where the API is, what was given
    ("/v1", ""),
    ("/v1", "/"),
    ("/v1", "/v1/v1"),
    ("/v1", "/v1/chat/completions"),
    ("/v1", "/chat/completions"),
    ("/v1", "/v1/models"),
    ("/v1", "/v1/completions/"),
    ("/v1", "/V1"),
    ("/v1", "/api"),
    ("/v1", "/docs"),
    ("/api/v1", ""),
    ("/api/v1", "/api"),
    ("/openai/v1", ""),
    ("/gpu/v1", "/gpu"),
    ("/gpu/v1", "/gpu/v1/v1"),
    ("/api", ""),
]


@pytest.mark.parametrize("ask", [start, call])
def test_an_address_beside_the_right_one_is_told_with_it(net, ask, subtests):
    servers = {right: net(model_below(right)) for right in {right for right, _ in ADDRESSES}}
    for right, given in ADDRESSES:
        server = servers[right]
        with subtests.test(f"{given}, not {right}"):
            said = ask(server.root + given)
            assert f"llm.api_base={server.root}{given} " in said, said
            assert f"use llm.api_base={server.root}{right}." in said


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("HOST/v1", "http://HOST/v1"),
        ("HOST", "http://HOST/v1"),
        ("http//HOST/v1", "http://HOST/v1"),
        ("http:/HOST/v1", "http://HOST/v1"),
        ("//HOST/v1", "http://HOST/v1"),
        ("htp://HOST", "http://HOST/v1"),
        ("htps://HOST/v1/v1", "http://HOST/v1"),
        ("HOST/v1/", "http://HOST/v1"),
        ("https://HOST/v1", "http://HOST/v1"),
        ("https://HOST", "http://HOST/v1"),
    ],
)
def test_an_address_with_another_scheme_or_none_is_told_with_the_right_one(net, given, meant):
    host = f"127.0.0.1:{net(model_below()).port}"
    for ask in (start, call):
        said = ask(given.replace("HOST", host))
        assert f"use llm.api_base={meant.replace('HOST', host)}." in said, said


def test_http_to_a_server_of_https_is_told(net, certificates, monkeypatch):
    server = net(model_below(), tls=certificates["good"])
    for trusted in ("", certificates["good"][0]):
        monkeypatch.setenv("SSL_CERT_FILE", trusted)
        for ask in (start, call):
            said = ask(f"http://127.0.0.1:{server.port}/v1")
            assert f"does not speak http; {server.root}/v1 answers: use llm.api_base={server.root}/v1." in said


@pytest.mark.parametrize("wrong", ["http://", "http://:8000", "http://h:port/v1", "http://[::1:8000/v1", "", "a b"])
def test_what_is_no_address_at_all_is_told_with_the_form_of_one(wrong):
    for ask in (start, call):
        if wrong:
            assert f"llm.api_base={wrong} is no address" in (said := ask(wrong)) and "http://HOST:PORT/v1" in said


def test_ollamas_own_api_is_below_its_root(net):
    server = net(model_below() | {"/api/tags": (200, {"models": [{"name": "m"}]})})
    for given in ("/v1", "/api", "/api/chat", "/v1/chat/completions"):
        said = start(server.root + given, "ollama_chat/m")
        assert f"use llm.api_base={server.root}." in said
    for given in ("", "/"):
        assert start(server.root + given, "ollama_chat/m") == "ollama_chat/m"


LEGITIMATE = {
    "llama-server, with both": model_below() | model_below(""),
    "an API without a version": model_below(""),
    "calls at the root, models below /v1": {
        ("GET", "/v1/models"): (200, MODELS),
        ("GET", "/chat/completions"): (405, ""),
        ("POST", "/chat/completions"): HI,
    },
    "no list of models": {("POST", "/chat/completions"): HI},
    "a list only for who has a key": {"/v1/models": (401, ""), ("POST", "/chat/completions"): HI},
}


@pytest.mark.parametrize("routes", LEGITIMATE.values(), ids=LEGITIMATE)
def test_an_address_without_v1_that_takes_calls_is_not_refused(net, routes):
    server = net(routes)
    assert start(server.root).startswith("hosted_vllm/")
    assert call(server.root) == "hi"


def test_a_model_that_is_missing_is_no_fault_of_the_address(net):
    missing = (404, {"error": {"message": "The model does not exist", "code": 404}})
    server = net(model_below() | {("POST", "/v1/chat/completions"): missing})
    assert "m is not known at" in (said := call(f"{server.root}/v1")) and "does not exist" in said


def test_no_key_goes_unencrypted_where_it_was_not_meant_to(monkeypatch):
    asked = []

    def get(url, key, timeout_s):
        asked.append((url, key))
        return (401, None) if url == "http://gpu.example/v1/models" else (None, None)

    monkeypatch.setattr(addresses, "_get", get)
    assert addresses.better_address("https://gpu.example/v1", "secret", other_scheme=True) == "http://gpu.example/v1"
    addresses.better_address("gpu.example/v1", "secret")
    assert {key for url, key in asked if url.startswith("http:")} == {None}
    assert {key for url, key in asked if url.startswith("https:")} == {"secret"}
    addresses.better_address("http://gpu.example", "secret")
    assert ("http://gpu.example/v1/models", "secret") in asked


def test_a_page_in_place_of_an_answer_is_told_with_the_right_address(net):
    page = (200, "<html>a chat</html>", HTML)
    server = net(model_below("/api"), default=page)
    for ask in (start, call):
        assert f"use llm.api_base={server.root}/api." in ask(server.root)
    odd = net(model_below(), default=(200, {"error": "Unexpected endpoint or method."}))  # LM Studio
    assert f"use llm.api_base={odd.root}/v1." in start(odd.root)


def test_an_embedder_names_its_own_key(net):
    server = net(model_below())
    embedder = OpenAIEmbedder(model="hosted_vllm/e", api_base=server.root, api_key_env=None, attempts=1)
    with pytest.raises(StopRun, match=f"embedder.inner.api_base={server.root} .*use embedder.inner.api_base="):
        embedder.measure(["text"])
    embedder.close()


# Redirects.


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_loses_the_call_is_told_with_its_target(net, status):
    target = net(model_below())
    moved = net({}, default=(status, ""))
    for path in ("/v1/models", "/v1/chat/completions"):
        where = (status, "", {"Location": f"{target.root}{path}"})
        moved = net({("GET", path): where, ("POST", path): where})
        said = (start if "models" in path else call)(f"{moved.root}/v1")
        assert f"redirects ({status})" in said and f"api_base={target.root}/v1" in said, said
    assert not any(method == "POST" or path.endswith("completions") for method, path, _ in target.asked)


def test_a_redirect_to_a_login_is_named(net):
    server = net({("POST", "/v1/chat/completions"): (302, "", {"Location": "/login?next=/v1"})})
    assert f"redirects (302) to {server.root}/login, " in call(f"{server.root}/v1")
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_that_keeps_the_call_is_followed_without_the_key(net, monkeypatch, status):
    monkeypatch.setenv("SOME_KEY", "sk-0123456789abcdef")
    target = net(model_below())
    moved = net({}, default=(status, ""))
    for path in ("/v1/models", "/v1/chat/completions"):
        moved = net({path: (status, "", {"Location": f"{target.root}{path}"})})
        said = (start if "models" in path else call)(f"{moved.root}/v1", api_key_env="SOME_KEY")
        assert said in ("hosted_vllm/m", "hi")
        assert moved.asked[0][2]["Authorization"] == "Bearer sk-0123456789abcdef"
    assert not any("sk-0123456789abcdef" in str(headers) for *_, headers in target.asked)
    same = net(model_below() | {"/old/chat/completions": (status, "", {"Location": "/v1/chat/completions"})})
    assert call(f"{same.root}/old", api_key_env="SOME_KEY") == "hi"
    assert same.asked[-1][2]["Authorization"] == "Bearer sk-0123456789abcdef"  # it is the same server


@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "api-key", "x-goog-api-key", "X-Auth-Token"])
def test_no_header_with_a_key_goes_to_another_host(net, header):
    target = net({"/b": HI})
    moved = net({"/a": (307, "", {"Location": f"{target.root}/b"})})
    with network.http_client() as client:
        assert client.post(f"{moved.root}/a", headers={header: "the-secret", "X-Other": "kept"}).status_code == 200
    assert "the-secret" in str(moved.asked[0][2]) and "the-secret" not in str(target.asked[0][2])
    assert "kept" in str(target.asked[0][2])


def test_a_server_that_wants_the_key_behind_a_redirect_is_named(net, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-0123456789abcdef")
    target = net({}, default=(401, {"error": {"message": "no key"}}))
    moved = net({"/v1/chat/completions": (307, "", {"Location": f"{target.root}/v1/chat/completions"})})
    said = call(f"{moved.root}/v1", api_key_env="SOME_KEY")
    assert f"redirects to {target.root}/v1/chat/completions, where no key is sent" in said


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("length", [1, 2, 3, 99])
def test_a_circle_of_redirects_is_cut_after_five_and_named(net, status, length):
    def routes(path):
        names = [path] + [f"/{n}{path}" for n in range(1, length)]
        return {a: (status, "", {"Location": b}) for a, b in zip(names, [*names[1:], names[0]], strict=True)}

    server = net(routes("/v1/models") | routes("/v1/chat/completions"))
    for ask in (start, call):
        server.asked.clear()
        said = ask(f"{server.root}/v1")
        assert "cut after 5 redirects" in said and f"{server.root}/v1/" in said and said.count(" -> ") >= 1
        assert len(server.asked) == 6


@pytest.mark.parametrize("words", [("llm.client=openai",), ()], ids=["openai", "litellm"])
def test_a_run_says_in_one_sentence_what_keeps_it_from_its_server(main_here, net, monkeypatch, words):
    run = ("env=toy", "llm=vllm", "embedder=hashing", "limit=2", "workflow=vanilla", *words)
    server = net(model_below())
    code, _, said = main_here(*run, f"llm.api_base={server.root}")
    assert (code, said.count(f"use llm.api_base={server.root}/v1.")) == (1, 1) and "Traceback" not in said
    monkeypatch.setenv("http_proxy", f"http://joe:very-secret@127.0.0.1:{closed_port()}")
    code, _, said = main_here(*run, f"llm.api_base={server.root}/v1")
    assert code == 1 and "of http_proxy: Connection refused: add 127.0.0.1 to NO_PROXY" in said
    assert "very-secret" not in said and server.asked[-1][0] == "GET"
    assert os.environ["http_proxy"]


class Connections:
    """A server that keeps connections open, answers after a moment, and knows how many were made and are open."""

    def __init__(self):
        self.made, self.open, self.pause = 0, 0, 0.0
        self._lock, outer = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                with outer._lock:
                    outer.made, outer.open = outer.made + 1, outer.open + 1

            def finish(self):
                super().finish()
                with outer._lock:
                    outer.open -= 1

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(outer.pause)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_args):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 256

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def test_connections_are_used_again_by_any_thread_and_closed_once_they_are_idle(monkeypatch):
    with closing(Connections()) as server, network.http_client(timeout_s=20) as client:

        def ask(_):
            return client.post(server.url, content=b"{}").status_code

        assert [ask(n) for n in range(5)] == [200] * 5 and server.made == 1
        server.pause = 0.5
        for _ in range(2):
            with ThreadPoolExecutor(64) as pool:  # new threads each time
                assert list(pool.map(ask, range(64))) == [200] * 64
        assert server.made <= 64 + 8 and server.open > 32  # some threads may begin late
        monkeypatch.setattr(connections, "IDLE_S", 0.0)
        server.pause = 0.0
        for _ in range(2):
            ask(0)
        until = time.monotonic() + 10
        while server.open > 1 and time.monotonic() < until:
            time.sleep(0.01)
        assert server.open <= 1
    until = time.monotonic() + 10
    while server.open and time.monotonic() < until:
        time.sleep(0.01)
    assert server.open == 0


def test_a_call_that_breaks_does_not_keep_its_connection(net):
    slow = net(model_below())
    slow.pause = 1.0
    with network.http_client(timeout_s=0.2) as client:
        for _ in range(3):
            with pytest.raises(httpx.ReadTimeout):
                client.post(f"{slow.root}/v1/chat/completions", json={})
        slow.pause = 0.0
        assert client.post(f"{slow.root}/v1/chat/completions", json={}, timeout=20).json() == completion("hi")
