"""What stands between a run and its server: proxies, certificates, redirects, and an address that is not right.

Each is asked twice: for the list of models before a run (`start`), and for a reply (`call`).
"""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import httpx
import pytest
from net_kit import HTML, MODELS, Net, certificate, model_below
from provider import completion

from core.errors import InfraError, StopRun, UserError
from core.models import network, retry
from core.models.base import Request
from core.models.embedding import OpenAIEmbedder
from core.models.remote import LiteLLMModel
from core.models.servers import name_models

ASK = Request(messages=[{"role": "user", "content": "hello"}], role="agent")
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")
USUAL = "an OpenAI-compatible address usually ends in /v1"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in VARIABLES:
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
    try:
        asked = LiteLLMModel(api_base=url, **given | more)
    except UserError as error:
        return str(error)
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


PROXIES = [  # what is set, the variable that is named, what else is said
    ({"http_proxy": "http://DOWN"}, "http_proxy=http://127.0.0.1", "NO_PROXY lists"),
    ({"HTTP_PROXY": "http://joe:very-secret@DOWN"}, "HTTP_PROXY=http://127.0.0.1", "Connection refused"),
    ({"ALL_PROXY": "http://DOWN", "NO_PROXY": "localhost,.corp"}, "ALL_PROXY=", "NO_PROXY lists"),
    ({"ALL_PROXY": "socks5://joe:very-secret@DOWN"}, "ALL_PROXY=socks5://127.0.0.1", "socksio"),
    ({"HTTP_PROXY": "http://joe:very-secret@proxy:port"}, "HTTP_PROXY=http://proxy:port", "Invalid port"),
    ({"http_proxy": "ftp://DOWN"}, "http_proxy=ftp://", "Unknown scheme"),
    ({"NO_PROXY": "localhost,127.0.0.1,[::1]"}, "NO_PROXY=localhost,127.0.0.1,[::1]", "Invalid port"),
    ({"no_proxy": "127.0.0.1,[::1]:8080"}, "no_proxy=127.0.0.1,[::1]:8080", "Invalid port"),
]


@pytest.mark.parametrize("ask", [start, call])
def test_a_variable_that_keeps_a_call_from_its_server_is_named(net, monkeypatch, ask, subtests):
    well = net(model_below())
    for variables, named, also in PROXIES:
        with subtests.test(str(variables)), monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value.replace("DOWN", f"127.0.0.1:{closed_port()}"))
            said = ask(f"{well.root}/v1")
            assert named in said and also in said, said
            assert "very-secret" not in said and "joe" not in said
            assert well.asked == []


@pytest.mark.parametrize("status", [407, 502, 403, 503, 200])
def test_a_proxy_that_answers_in_the_servers_place_is_named(net, monkeypatch, status):
    well, proxy = net(model_below()), net({}, default=(status, "<html>a proxy</html>", HTML))
    monkeypatch.setenv("http_proxy", f"http://joe:very-secret@127.0.0.1:{proxy.port}")
    said = call(f"{well.root}/v1")
    assert f"http_proxy=http://127.0.0.1:{proxy.port}" in said and "very-secret" not in said and well.asked == []


def test_a_proxy_that_makes_no_tunnel_is_named(net, monkeypatch, subtests):
    for answer in (407, 502, 403):
        proxy = net({}, default=(answer, "<html>", HTML))
        monkeypatch.setenv("HTTPS_PROXY", f"http://joe:very-secret@127.0.0.1:{proxy.port}")
        with subtests.test(str(answer)):
            for ask in (start, call):
                said = ask("https://models.example/v1")
                assert f"HTTPS_PROXY=http://127.0.0.1:{proxy.port}" in said and str(answer) in said, said
                assert "secret" not in said
            assert {method for method, *_ in proxy.asked} == {"CONNECT"}


def test_a_proxy_that_works_is_used_and_no_proxy_passes_it_by(net, monkeypatch):
    proxy, well = net({}, default=(200, MODELS | completion("through the proxy"))), net(model_below())
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
    url = "http://gpu.example:8000/v1"
    assert (start(url), call(url)) == ("hosted_vllm/m", "through the proxy")
    assert proxy.asked[0][1] == f"{url}/models"
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    assert call(f"{well.root}/v1") == "hi"


def test_a_server_that_answers_through_a_proxy_is_blamed_itself(net, monkeypatch):
    proxy = net({}, default=(400, {"error": {"message": "no such thing", "code": 400}}))
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
    assert "no such thing" in (said := call("http://gpu.example:8000/v1")) and "proxy" not in said


def test_a_server_behind_a_proxy_that_is_busy_is_tried_again(net, monkeypatch):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.02)
    busy = [(503, "<html>loading</html>", HTML), (502, "<html>", HTML), (200, completion("at last"))]
    proxy = net({}, default=busy)
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
    assert call("http://gpu.example:8000/v1", attempts=3) == "at last"


# Certificates.


CERTIFICATES = [  # the server's certificate, what is trusted, what is said
    ("good", None, "self-signed"),
    ("good", "elsewhere", "self-signed"),
    ("expired", "expired", "expired"),
    ("elsewhere", "elsewhere", "IP address mismatch"),
]


@pytest.mark.parametrize(("whose", "trusted", "words"), CERTIFICATES)
def test_a_certificate_that_is_not_trusted_is_told_with_the_variable(
    net, certificates, monkeypatch, whose, trusted, words
):
    server = net(model_below(), tls=certificates[whose])
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", certificates[trusted][0])
    for ask in (start, call):
        said = ask(f"{server.root}/v1")
        assert words in said and "SSL_CERT_FILE=FILE names the certificates" in said, said
        assert trusted is None or certificates[trusted][0] in said


def test_a_certificate_that_is_trusted_is_no_matter(net, certificates, monkeypatch):
    server = net(model_below(), tls=certificates["good"])
    monkeypatch.setenv("SSL_CERT_FILE", certificates["good"][0])
    assert (start(f"{server.root}/v1"), call(f"{server.root}/v1")) == ("hosted_vllm/m", "hi")


def test_certificates_that_cannot_be_read_are_named_and_no_matter_without_tls(net, monkeypatch):
    for file, why in (("/etc/company/ca.pem", "No such file"), (__file__, "no certificate")):
        monkeypatch.setenv("SSL_CERT_FILE", file)
        for ask in (start, call):
            said = ask("https://127.0.0.1:9/v1")
            assert f"SSL_CERT_FILE={file}" in said and why in said, said
        assert call(f"{net(model_below()).root}/v1") == "hi"


# Addresses.


@pytest.mark.parametrize("given", ["", "/", "/v1/v1", "/v1/chat/completions", "/api"])
def test_a_wrong_address_is_told_with_the_status_and_the_usual_form(net, given):
    server = net(model_below())
    said = call(server.root + given)
    assert f"api_base={server.root}{given}, which answers 404: {USUAL}" in said, said
    assert len(server.asked) == 1  # nobody guesses the neighbours


def test_a_page_in_place_of_an_answer_is_a_wrong_address(net):
    server = net({}, default=(200, "<html>a chat</html>", HTML))
    assert f"api_base={server.root}, which answers 200: {USUAL}" in call(server.root)


def test_a_404_of_a_server_that_has_answered_is_about_its_model(net):
    gone = (404, {"error": {"message": "The model does not exist", "code": 404}})
    server = net({("POST", "/v1/chat/completions"): [(200, completion("hi")), gone]})
    asked = LiteLLMModel(model="hosted_vllm/m", client="openai", api_base=f"{server.root}/v1", attempts=1)
    assert asked.chat(ASK).text == "hi"
    with pytest.raises(StopRun, match="m is not known at .*does not exist") as caught:
        asked.chat(ASK)
    assert USUAL not in str(caught.value)
    asked.close()


@pytest.mark.parametrize("wrong", ["http://", "http://:8000", "http://h:port/v1", "a b", "HOST/v1", "htp://HOST", 7])
def test_what_is_no_address_at_all_is_told_with_the_form_of_one(wrong):
    for ask in (start, call):
        assert f"llm.api_base={wrong} is no address: give one like http://HOST:PORT/v1" in ask(wrong)


def test_an_address_is_one_and_no_list():
    for ask in (start, call):
        assert "is no address" in ask(["http://a/v1", "http://b/v1"])


LEGITIMATE = {
    "an API without a version": model_below(""),
    "no list of models": {("POST", "/chat/completions"): (200, completion("hi"))},
    "a list only for who has a key": {"/v1/models": (401, ""), ("POST", "/chat/completions"): (200, completion("hi"))},
}


@pytest.mark.parametrize("routes", LEGITIMATE.values(), ids=LEGITIMATE)
def test_an_address_without_v1_that_takes_calls_is_not_refused(net, routes):
    server = net(routes)
    assert start(server.root, "hosted_vllm/m") == "hosted_vllm/m"
    assert call(server.root) == "hi"


def test_an_embedder_names_its_own_address(net):
    server = net(model_below())
    embedder = OpenAIEmbedder(model="hosted_vllm/e", api_base=server.root, api_key_env=None, attempts=1)
    with pytest.raises(StopRun, match=f"api_base={server.root}, which answers 404: {USUAL}"):
        embedder.measure(["text"])
    embedder.close()


# Redirects.


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("client", ["openai", "litellm"])
def test_no_redirect_is_followed_and_its_target_is_named(net, monkeypatch, status, client):
    monkeypatch.setenv("SOME_KEY", "sk-0123456789abcdef")
    target = net(model_below())
    where = (status, "", {"Location": f"{target.root}/v1/chat/completions"})
    moved = net({("POST", "/v1/chat/completions"): where})
    said = call(f"{moved.root}/v1", api_key_env="SOME_KEY", client=client)
    assert f"redirects ({status}) to {target.root}/v1/chat/completions: give the address there as api_base" in said
    assert target.asked == [] and len(moved.asked) == 1  # so neither the key nor the prompt went there


# Whole runs.


@pytest.mark.parametrize("words", [("llm.client=openai",), ()], ids=["openai", "litellm"])
def test_a_run_says_in_one_sentence_what_keeps_it_from_its_server(main_here, net, monkeypatch, words):
    run = ("env=toy", "llm=vllm", "embedder=hashing", "limit=2", "workflow=vanilla", *words)
    server = net(model_below())
    code, _, said = main_here(*run, f"llm.api_base={server.root}")
    assert (code, said.count(USUAL)) == (1, 1) and "Traceback" not in said
    monkeypatch.setenv("http_proxy", f"http://joe:very-secret@127.0.0.1:{closed_port()}")
    code, _, said = main_here(*run, f"llm.api_base={server.root}/v1")
    assert code == 1 and "Connection refused (set in the environment: http_proxy=http://127.0.0.1:" in said
    assert "very-secret" not in said and server.asked[-1][0] == "POST"
    assert os.environ["http_proxy"]


def test_a_call_that_breaks_does_not_keep_its_connection(net):
    slow = net(model_below())
    slow.pause = 1.0
    with network.http_client(slow.root, timeout_s=0.2) as client:
        for _ in range(3):
            with pytest.raises(httpx.ReadTimeout):
                client.post(f"{slow.root}/v1/chat/completions", json={})
        slow.pause = 0.0
        assert client.post(f"{slow.root}/v1/chat/completions", json={}, timeout=20).json() == completion("hi")


def test_calls_at_once_have_a_connection_each_and_later_ones_take_the_same(net, monkeypatch):
    monkeypatch.setattr(BaseHTTPRequestHandler, "protocol_version", "HTTP/1.1")  # keeps connections
    server = net(model_below())
    opened, connect = [], socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda *to, **how: opened.append(to) or connect(*to, **how))
    asked = LiteLLMModel(model="hosted_vllm/m", client="openai", api_base=f"{server.root}/v1")
    server.pause = 0.5
    with ThreadPoolExecutor(4) as threads:
        assert [reply.text for reply in threads.map(asked.chat, [ASK] * 4)] == ["hi"] * 4
    server.pause = 0.0
    assert [asked.chat(ASK).text for _ in range(5)] == ["hi"] * 5
    asked.close()
    assert (len(opened), len(server.asked)) == (4, 9)
