"""Several servers of one model behind `llm.api_base`: who is asked, who is passed by, and what is recorded of it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from conftest import TOY, read_json, read_rows
from provider import Provider, completion

from core.errors import StopRun, TransientError, UserError
from core.models.base import Request
from core.models.cache import CachedModel
from core.models.remote import LiteLLMModel
from core.models.servers import REST_S, Replicas, addresses_of, name_models

HELLO = [{"role": "user", "content": "hello"}]
ASK = Request(messages=HELLO, role="agent")


def model(*servers, **changes):
    urls = [getattr(server, "url", server) for server in servers]
    return LiteLLMModel(**{"model": "hosted_vllm/m", "api_base": urls, "timeout_s": 20.0} | changes)


def ask(asked, n=1):
    return asked.chat(Request(messages=[{"role": "user", "content": f"question {n}"}], role="agent")).text


def gone():
    """The address of a server that was there."""
    server = Provider(lambda request, n: (200, completion("hi")))
    server.close()
    return server.url


def test_a_call_goes_to_the_server_with_the_fewest_in_flight_and_of_equals_to_the_first():
    now = [0.0]
    addresses = Replicas(urls=["a", "b", "c"], clock=lambda: now[0])
    with addresses.one() as first, addresses.one() as second, addresses.one() as third, addresses.one() as fourth:
        assert (first, second, third, fourth) == ("a", "b", "c", "a")
    with addresses.one() as again:
        assert again == "a"
    assert addresses.rest("a") and addresses.rest("c")
    with addresses.one() as one, addresses.one() as two:
        assert (one, two) == ("b", "b")
    assert not addresses.rest("b")  # all rest: the one that has rested longest is tried
    with addresses.one() as one:
        assert one == "a"
    now[0] = REST_S + 1
    with addresses.one() as one, addresses.one() as two:
        assert (one, two) == ("a", "b")


@pytest.mark.parametrize("wrong", [[], ["http://a/v1", "http://a/v1"], ["http://a/v1", 7], 7])
def test_what_is_no_list_of_addresses_is_refused(wrong):
    with pytest.raises(UserError, match="api_base"):
        addresses_of(wrong)


def test_128_calls_are_in_flight_at_once_and_spread_over_the_servers(serve):
    meeting = threading.Barrier(128, timeout=60)  # nobody is answered before all are there

    def answer(request, number):
        meeting.wait()
        return 200, completion(request["messages"][0]["content"])

    one, two = serve(answer), serve(answer)
    asked = model(one, two, timeout_s=60.0)
    with ThreadPoolExecutor(128) as pool:
        texts = list(pool.map(lambda n: ask(asked, n), range(128)))
    assert texts == [f"question {n}" for n in range(128)]
    assert (len(one.requests), len(two.requests)) == (64, 64)


def test_a_server_that_is_gone_costs_one_try_and_is_then_passed_by(serve):
    here = serve(lambda request, n: (200, completion("hi")))
    asked = model(gone(), here)
    reply = asked.chat(ASK)
    assert reply.text == "hi" and reply.retries == 1  # the first is listed first, and was tried
    assert [asked.chat(ASK).retries for _ in range(5)] == [0] * 5
    with pytest.raises(StopRun, match="Is the server running"):
        model(gone(), gone()).chat(ASK)


@pytest.mark.parametrize("sick", ["loading", "slow", "busy", "broken reply"])
def test_a_server_that_is_sick_is_passed_by_as_one_that_is_gone(serve, sick):
    def answer(request, number):
        if sick == "slow":
            time.sleep(3)
        if sick == "busy":
            return 429, {"error": {"message": "slow down", "code": 429}}, {"retry-after": "60"}
        return (503, {"error": {"message": "Loading model", "code": 503}}) if sick == "loading" else (200, "<html>")

    ill, well = serve(answer), serve(lambda request, n: (200, completion("hi")))
    asked, began = model(ill, well, timeout_s=1.0), time.monotonic()
    assert asked.chat(ASK).retries == 1
    assert [asked.chat(ASK).retries for _ in range(4)] == [0] * 4
    assert len(ill.requests) == 1 and time.monotonic() - began < 30


def test_as_many_servers_may_be_gone_as_there_are_but_one(serve):
    well = serve(lambda request, n: (200, completion("hi")))
    asked = model(*(gone() for _ in range(6)), well, attempts=1)
    assert [asked.chat(ASK).retries for _ in range(3)] == [6, 0, 0]


def test_servers_that_refuse_late_are_passed_by_no_more_often_than_there_are_servers(caplog):
    asked = model(gone(), gone(), gone(), attempts=1)
    late = count(step=REST_S + 1)  # whenever one has refused, the others have rested and could be asked again, for ever
    asked.addresses = Replicas(urls=asked.addresses.urls, clock=lambda: next(late))
    with pytest.raises((StopRun, TransientError)):
        ask(asked)
    assert caplog.text.count("another server is asked") == 3


def test_what_one_server_has_answered_is_not_asked_of_another(serve, tmp_path):
    one, two = (serve(lambda request, n, name=name: (200, completion(name))) for name in ("one", "two"))
    path = str(tmp_path / "replies.sqlite")

    def cached(*servers):
        return CachedModel(inner=model(*servers), path=path, mode="read_write")

    both = cached(one, two)
    with both.inner.addresses.one():  # so that the second server is asked
        assert ask(both) == "two"
    assert ask(both) == "two" and ask(cached(one, two, "http://127.0.0.1:9/v1")) == "two"
    assert ask(CachedModel(inner=model(one, api_base=one.url), path=path, mode="replay")) == "two"
    assert one.requests == []


def test_every_server_must_have_the_model_and_one_that_is_gone_is_no_reason_to_stop(serve):
    one, two, other = (serve(lambda request, n: (200, completion("hi")), models=[name]) for name in ("m", "m", "else"))

    def named(*urls, name=""):
        nodes = {"llm": {"model": f"hosted_vllm/{name}", "api_base": list(urls)}}
        name_models(nodes, {})
        return nodes["llm"]["model"]

    assert named(one.url, two.url) == named(gone(), two.url) == named(one.url, gone()) == "hosted_vllm/m"
    with pytest.raises(UserError, match="has else, and no m"):
        named(one.url, other.url)
    with pytest.raises(StopRun, match="nothing answers"):
        named(gone(), gone(), name="m")


def test_one_of_two_servers_dies_within_a_run_and_no_task_breaks(here, serve, tmp_path):
    """Each answer takes a moment, so that both are busy when one dies with calls in flight."""

    def answer(request, number):
        time.sleep(0.05)
        if number > 12:
            threading.Thread(target=dying.close).start()
            raise ConnectionError("killed")  # the connection ends without an answer
        return 200, completion("Action: open box 1\nStatus: success")

    def well(request, number):
        time.sleep(0.05)
        return 200, completion("Action: open box 1\nStatus: success")

    dying, other = serve(answer, models=["m"]), serve(well, models=["m"])
    words = [*TOY[:1], *TOY[2:], "llm=vllm", "max_concurrency=4", "stream.batch=4", "limit=12"]
    run, _ = here(*words, f"llm.api_base=[{dying.url},{other.url}]")
    summary = read_json(run / "summary.json")
    assert (summary["n"], summary["n_infra_error"]) == (12, 0) and len(dying.requests) > 12 < len(other.requests)
    # Who answered is in no record: they are those of a run with one server.
    alone, _ = here(*words, f"llm.api_base={other.url}", run_dir=tmp_path / "alone")
    assert read_rows(run) == read_rows(alone)
