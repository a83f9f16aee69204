"""A server that asks for time: what is waited for is shown, and what is too long ends the run, which goes on later."""

from __future__ import annotations

import io
import logging
import math
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import httpx
import pytest
from conftest import read_json, read_rows, wait_for
from provider import completion
from rich.console import Console

from core.errors import InfraError, StopRun, TransientError
from core.models import retry, waits
from core.models.base import Request
from core.models.fallback import FallbackModel
from core.models.limits import Limiter
from core.models.remote import LiteLLMModel
from core.models.retry import Retry, retry_after, why_tried_again
from core.models.waits import duration, waiting
from core.run.display import RunProgress
from envs.toy_script import play

ASK = Request(messages=[{"role": "user", "content": "hello"}], role="agent")
BUSY = {"error": {"message": "Rate limit exceeded: free-models-per-day", "code": 429}}


def later(headers):
    """Headers with a point in time: DATE, so many seconds from now."""

    def written(match):
        return format_datetime(datetime.now(UTC) + timedelta(seconds=float(match[1])), usegmt=True)

    return {name: re.sub(r"DATE\+(-?\d+)", written, value) for name, value in headers.items()}


HEADERS = [  # (headers, seconds)
    ({"Retry-After": "86400"}, 86400),
    ({"retry-after": "2.5"}, 2.5),
    ({"Retry-After": "inf"}, math.inf),
    ({"Retry-After": "Infinity"}, math.inf),
    ({"Retry-After": "1e400"}, math.inf),
    ({"Retry-After": "nan"}, None),
    ({"Retry-After": "-3"}, None),
    ({"Retry-After": "soon"}, None),
    ({"Retry-After": ""}, None),
    ({"Retry-After": "DATE+31536000"}, 365 * 86400),
    ({"Retry-After": "DATE+-60"}, 0),
    ({"retry-after-ms": "1500", "Retry-After": "2"}, 1.5),
    ({"Retry-After-Ms": "90000000"}, 90000),
    ({"x-ms-retry-after-ms": "250"}, 0.25),
    ({"retry-after-ms": "nan", "Retry-After": "7"}, 7),
    ({}, None),
]


def test_the_time_that_a_server_asks_for_is_read_in_every_form(subtests):
    for headers, seconds in HEADERS:
        of_a_point = "+" in str(headers) and seconds  # the seconds until then may pass on a busy machine
        with subtests.test(str(headers)):
            found = retry_after(httpx.Headers(later(headers)))
            assert found == (pytest.approx(seconds, abs=300) if of_a_point else seconds)


def model(server, **more):
    given = {"model": "hosted_vllm/m", "client": "openai", "timeout_s": 5.0}
    return LiteLLMModel(api_base=server.url, **given | more)


TOO_LONG = [
    ({"Retry-After": "86400"}, 429, "24 h"),
    ({"Retry-After": "3600"}, 429, "1 h"),
    ({"Retry-After": "inf"}, 429, "for ever"),
    ({"Retry-After": "1e400"}, 429, "for ever"),
    ({"Retry-After": "DATE+31536000"}, 429, "365 days"),
    ({"Retry-After": "7200"}, 503, "2 h"),
    ({"Retry-After": "180"}, 429, "3 min"),
    ({"retry-after-ms": "600000"}, 429, "10 min"),
    ({"Retry-After": "30000"}, 500, "8.3 h"),
]


@pytest.mark.parametrize(("headers", "status", "words"), TOO_LONG, ids=str)
def test_a_wait_beyond_retry_s_ends_the_run_in_one_sentence(serve, headers, status, words):
    server = serve(lambda request, n: (status, BUSY, later(headers)))
    asked = model(server)
    said = f"asks to wait {words}, longer than llm.retry_s=180 s; the same command resumes .*{status} "
    with pytest.raises(StopRun, match=said):
        asked.chat(ASK)
    assert len(server.requests) == 1 and asked.limiter._wait(1)[0] == 0  # nobody waits for it


@pytest.mark.parametrize("after", ["0.05", "nan", "soon", "0"])
def test_a_wait_within_retry_s_is_waited_for(serve, monkeypatch, after):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.02)
    server = serve(lambda request, n: (429, BUSY, {"Retry-After": after}) if n == 1 else (200, completion("hi")))
    assert model(server, retry_s=2.0).chat(ASK).retries == 1


def test_a_fallback_answers_meanwhile(serve):
    away = serve(lambda request, n: (429, BUSY, {"Retry-After": "inf"}))
    well = serve(lambda request, n: (200, completion("hi")))
    assert FallbackModel(models=[model(away), model(well)]).chat(ASK).text == "hi"
    with pytest.raises(StopRun, match="asks to wait for ever.*Then its fallback.*asks to wait for ever"):
        FallbackModel(models=[model(away), model(away)]).chat(ASK)


LOADING = [
    {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}},  # llama.cpp
    {"error": "Model org/name is currently loading", "estimated_time": 20.0},  # Hugging Face
    {"error": {"message": "Model `m` is not ready to serve requests yet.", "type": "service_unavailable"}},  # Dynamo
    {"error": "The model is still being loaded, try again soon"},
    {"detail": "Server is starting up: engine core is initializing"},
]
GONE = [
    {"error": {"message": "The model is overloaded. Please try again later.", "status": "UNAVAILABLE"}},
    {"error": {"message": "no healthy upstream"}},
    {"error": {"message": "The service is temporarily unavailable: failed to load balance."}},
]


@pytest.mark.parametrize("client", ["openai", "litellm"])
def test_a_server_that_loads_its_model_is_waited_for(serve, monkeypatch, caplog, client, subtests):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(retry, "LONGEST_WAIT_S", 0.01)
    caplog.set_level(logging.WARNING, "run.retries")
    server = serve(lambda request, n: (503, body) if n < 9 else (200, completion("hi")))
    for body in LOADING:
        server.requests.clear()
        caplog.clear()
        with subtests.test(str(body)):
            assert model(server, client=client, attempts=2).chat(ASK).retries == 8
            assert all("the server is loading its model" in line for line in caplog.messages)


@pytest.mark.parametrize("client", ["openai", "litellm"])
def test_a_server_that_loads_its_model_for_ever_is_given_up_after_retry_s(serve, monkeypatch, client):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(retry, "LONGEST_WAIT_S", 0.05)
    for_ever = serve(lambda request, n: (503, LOADING[0]))
    with pytest.raises(TransientError, match="(?i)load"):
        model(for_ever, client=client, attempts=2, retry_s=0.5).chat(ASK)
    assert len(for_ever.requests) > 2


@pytest.mark.parametrize("body", GONE)
def test_a_try_counts_whose_server_is_overloaded_or_down(serve, monkeypatch, body):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.001)
    server = serve(lambda request, n: (503, body))
    with pytest.raises(TransientError):
        model(server, attempts=3).chat(ASK)
    assert len(server.requests) == 3


def test_no_pause_is_without_end():
    for forever in (math.inf, math.nan):
        with pytest.raises(ValueError, match="never end"):
            Limiter().pause(forever)


# What is shown.


@pytest.fixture
def shown(caplog, capsys):
    """The progress display of a run; call it for what it printed."""
    caplog.set_level("INFO", "run")
    with RunProgress(4, [], "a on b") as progress:
        capsys.readouterr()
        yield progress, lambda: capsys.readouterr().out


@pytest.fixture
def clock(monkeypatch):
    """The clock by which waits tell the time left: [its seconds], which a test moves on."""
    now = [0.0]
    monkeypatch.setattr(waits, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_long_wait_stands_on_the_screen_with_the_time_left_and_is_gone_afterwards(shown, clock):
    progress, printed = shown
    with waiting(42, "429 rate_limit: slow\ndown"):
        assert printed() == "a on b  waiting 42 s: 429 rate_limit: slow down\n"
        progress._live = True
        assert progress._facts().startswith("waiting 42 s: 429 rate_limit")
        with waiting(170, "requests_per_min=1"):
            assert progress._facts() == "waiting 2 min 50 s: requests_per_min=1"  # the longest
        assert progress._facts().startswith("waiting 42 s")
        clock[0] = 1.1
        assert progress._facts().startswith("waiting 41 s")
    assert progress._facts().startswith("success")
    progress._live = False
    with waiting(9, "too short to tell"):
        assert printed() == ""


def test_in_a_terminal_the_progress_line_counts_down(monkeypatch, caplog, clock):
    caplog.set_level("INFO", "run")
    screen = Console(force_terminal=True, file=io.StringIO(), width=110)
    monkeypatch.setattr("core.run.display.Console", lambda: screen)
    with RunProgress(4, [], "a on b"):
        with waiting(42, "429 rate_limit: slow down"):
            wait_for(lambda: "waiting 42 s: 429 rate_limit: slow down" in screen.file.getvalue())
            clock[0] = 1.0
            wait_for(lambda: "waiting 41 s: 429 rate_limit: slow down" in screen.file.getvalue())
        seen = len(screen.file.getvalue())
        wait_for(lambda: "success" in screen.file.getvalue()[seen:])
        assert "waiting" not in screen.file.getvalue()[seen:]


def test_many_calls_that_wait_for_the_same_are_one_line(shown):
    progress, printed = shown
    with ThreadPoolExecutor(16) as pool:
        together = threading.Barrier(16, timeout=30)

        def wait(n):
            with waiting(42 + n / 16, "429 rate_limit"):
                together.wait()

        list(pool.map(wait, range(16)))
    assert printed().count("waiting") == 1
    assert progress._facts().startswith("success")


def test_an_error_counts_the_tries_before_it_and_closing_ends_a_wait():
    errors = [TransientError("slow down", "rate_limit", retry_after=0.01), InfraError("no such key", "bad_request")]

    def fails():
        raise errors[n_tries.pop(0)]

    n_tries = [0, 1]
    with pytest.raises(InfraError, match="no such key") as found:
        Retry(attempts=4, total_s=10)(fails, threading.Event())
    assert found.value.retries == 1
    errors[0], n_tries, closing = TransientError("slow down", "rate_limit", retry_after=60), [0, 0], threading.Event()
    threading.Timer(0.1, closing.set).start()
    with pytest.raises(TransientError):
        Retry(attempts=4, total_s=100)(fails, closing)
    assert n_tries == [0]
    errors[0].status = 0  # nothing was answered
    assert why_tried_again(errors[0]) == "rate_limit: slow down"


def test_a_retry_a_pause_and_a_limit_per_minute_are_shown(shown, clock):
    _, printed = shown
    closing = threading.Event()

    def busy():
        raise TransientError("slow down", "rate_limit", retry_after=60)

    threading.Timer(0.2, closing.set).start()
    with pytest.raises(TransientError):
        Retry(attempts=2, total_s=100)(busy, closing)
    assert "waiting 1 min: rate_limit: slow down" in printed().replace(" 1 s:", ":")

    paused = Limiter(max_in_flight=9)
    paused.pause(30, "429 rate_limit: slow down")
    slow, many = Limiter(requests_per_min=2), Limiter(tokens_per_min=120)
    for _ in range(2):
        _take(slow)
        _take(many)
    for limiter, line in (
        (paused, r"waiting (30|2\d) s: 429 rate_limit: slow down"),  # a busy machine takes some of the 30
        (slow, "s: requests_per_min=2"),
        (many, "s: tokens_per_min=120"),
    ):
        threading.Timer(0.1, limiter.closing.set).start()
        with ThreadPoolExecutor(4) as pool:
            for ended in [pool.submit(_take, limiter) for _ in range(4)]:
                with pytest.raises(InfraError, match="ending"):
                    ended.result()
        said = printed()
        assert said.count("waiting") == 1 and re.search(line, said), said


def _take(limiter):
    with limiter.slot(60):
        pass


def test_waiting_for_other_calls_to_end_is_no_news(shown):
    _, printed = shown
    limiter = Limiter(max_in_flight=1)
    with limiter.slot(1):
        threading.Timer(0.1, limiter.closing.set).start()
        with ThreadPoolExecutor(1) as pool, pytest.raises(InfraError):
            pool.submit(_take, limiter).result()
    assert printed() == ""


def test_main_log_has_when_a_wait_began_and_ended(caplog):
    caplog.set_level(logging.INFO, "run")
    with waiting(42, "429 rate_limit"):
        pass
    assert [record.getMessage() for record in caplog.records] == [
        "waiting 42 s: 429 rate_limit",
        "the wait is over: 429 rate_limit",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (42, "42 s"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (3600, "1 h"),
        (30000, "8.3 h"),
        (86400, "24 h"),
        (31536000, "365 days"),
        (math.inf, "for ever"),
    ],
)
def test_times_are_told_in_words(seconds, words):
    assert duration(seconds) == words


# A whole run.


@pytest.mark.parametrize(
    ("left", "setting"),
    [(7, ()), (4, ("max_concurrency=3", "workflow=vanilla"))],
    ids=["in turn", "side by side"],
)
def test_a_run_whose_quota_is_used_up_ends_and_the_same_command_resumes_it(main_here, serve, tmp_path, left, setting):
    quota, answered = [left], []  # calls that are left today

    def answer(request, number):
        if quota[0] <= 0:
            return 429, BUSY, later({"Retry-After": "DATE+32400"})
        quota[0] -= 1
        answered.append(request["messages"])
        messages = request["messages"]
        role = "agent" if len(messages) > 1 else "judge" if "Status:" in messages[0]["content"] else "extractor"
        return 200, completion(play(messages, role, 0))

    server = serve(answer, models=["m"])
    words = ("env=toy", "llm=vllm", "llm.client=openai", "llm.json_schema=false", "embedder=hashing", "limit=6")
    words = (*words, *setting, f"llm.api_base={server.url}", f"run_dir={tmp_path / 'run'}")
    began = time.monotonic()
    code, _, said = main_here(*words)
    assert code == 1 and time.monotonic() - began < 170  # it waits for none of the 180 s
    assert said.count("asks to wait 9 h, longer than llm.retry_s=180 s; the same command resumes") == 1, said
    before = read_rows(tmp_path / "run")
    assert all(row["status"] in ("success", "failure") for row in before) and len(before) < 6
    quota[0] = 1000
    code, *_ = main_here(*words)
    rows, summary = read_rows(tmp_path / "run"), read_json(tmp_path / "run/summary.json")
    assert code == 0 and rows[: len(before)] == before
    assert [row["index"] for row in rows] == list(range(6)) and summary["complete"] and summary["n"] == 6
    paid = [call for role, call in summary["calls"].items() if role not in ("total", "embedder")]
    assert sum(call["calls"] for call in paid) == len(answered)
    assert len(answered) == len({str(each) for each in answered})  # none is paid twice
