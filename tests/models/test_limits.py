"""Retries and limits: what the server asks for is kept, and nobody asks more often than allowed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from provider import Provider, completion

from core.errors import InfraError, TransientError
from core.models.base import Request, share_limits
from core.models.limits import Limiter
from core.models.remote import LiteLLMModel
from core.models.retry import Retry, retry_after

HELLO = [{"role": "user", "content": "hello"}]
ASK = Request(messages=HELLO, role="agent")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_retry_after_is_a_number_or_a_date():
    assert retry_after({"retry-after": "2.5"}) == 2.5
    assert retry_after({"retry-after": format_datetime(datetime.now(UTC) + timedelta(seconds=30))}) == pytest.approx(
        30, abs=2
    )
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    for nothing in ({}, None, {"retry-after": "soon"}):
        assert retry_after(nothing) is None


def test_no_try_begins_after_the_total_time_and_the_servers_wait_counts():
    tries = []

    def busy():
        tries.append(time.monotonic())
        raise TransientError("busy", "rate_limit", retry_after=60)

    began = time.monotonic()
    with pytest.raises(TransientError):
        Retry(attempts=5, total_s=10)(busy, threading.Event())
    assert (len(tries), time.monotonic() - began < 9) == (1, True)


def test_closing_ends_a_wait_at_once():
    closing = threading.Event()

    def busy():
        raise TransientError("busy", "rate_limit", retry_after=30)

    threading.Timer(0.1, closing.set).start()
    began = time.monotonic()
    with pytest.raises(TransientError):
        Retry(attempts=5, total_s=100)(busy, closing)
    assert time.monotonic() - began < 25


def test_requests_and_tokens_of_a_minute_refill_evenly():
    clock = Clock()
    limiter = Limiter(requests_per_min=60, tokens_per_min=6000, clock=clock)
    for _ in range(60):
        with limiter.slot(10):
            pass
    assert limiter._wait(10)[0] == pytest.approx(1.0)  # one request a second from here on
    clock.now += 60
    with limiter.slot(1000) as slot:
        slot.used = 6000  # it took more than was thought
    assert limiter._wait(600)[0] == pytest.approx(6.0)  # 100 tokens a second


def test_a_call_larger_than_a_whole_minute_is_not_held_back_for_ever():
    limiter = Limiter(tokens_per_min=100, clock=Clock())
    assert limiter._wait(5000)[0] == 0.0


def test_a_pause_holds_everybody_and_closing_ends_it():
    clock = Clock()
    limiter = Limiter(clock=clock)
    limiter.pause(7)
    assert limiter._wait(1)[0] == 7
    clock.now += 7
    assert limiter._wait(1)[0] == 0
    limiter.closing.set()
    with pytest.raises(InfraError), limiter.slot(1):
        pass


def test_calls_in_flight_are_bounded_over_all_models_of_a_provider():
    lock, flying, most = threading.Lock(), [0], [0]

    def answer(request, n):
        with lock:
            flying[0] += 1
            most[0] = max(most[0], flying[0])
        time.sleep(0.05)
        with lock:
            flying[0] -= 1
        return 200, completion("hi")

    server = Provider(answer)
    models = [
        LiteLLMModel(model=f"hosted_vllm/{name}", api_base=server.url, max_in_flight=limit)
        for name, limit in (("a", 3), ("b", None))
    ]
    share_limits(models)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: models[n % 2].chat(ASK), range(24)))
    server.close()
    assert most[0] == 3
    assert models[0].limiter is models[1].limiter


def test_sixty_four_calls_in_flight_take_no_thread_beside_their_own():
    together = threading.Barrier(64, timeout=60)

    def answer(request, n):
        together.wait()  # passes only when all are in flight at once
        return 200, completion("hi")

    server = Provider(answer)
    model = LiteLLMModel(model="hosted_vllm/m", api_base=server.url, timeout_s=60)
    with ThreadPoolExecutor(64) as pool:
        replies = list(pool.map(lambda n: model.chat(replace(ASK, sample=n)).text, range(64)))
    model.close()
    server.close()
    assert replies == ["hi"] * 64
