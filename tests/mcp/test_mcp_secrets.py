"""What a provider says may quote the key: it reaches no client, no file and no log of the server."""

from __future__ import annotations

import io
import logging
import os

import pytest
from conftest import wait_for
from mcp.client.client import Client
from mcp_kit import MODEL, TRAJECTORY, calling, here, http_server
from provider import Provider

from core.errors import StopRun
from core.redact import HIDDEN, RedactingFilter, Redactor
from mcp_server import checks
from mcp_server.extraction import QueueWorker
from mcp_server.server import redact_logs

KEY = "operators-own-key-7Q2x"  # of no provider's form: known by the variable that holds it
ATTEMPT = {"trajectory": TRAJECTORY, "query": "Accept empty files"}


@pytest.fixture
def provider():
    opened = Provider(lambda request, number: (401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}))
    yield opened
    opened.close()


def test_no_key_reaches_a_tenant_the_database_or_the_servers_log(tmp_path, provider, monkeypatch):
    monkeypatch.setenv("MY_OWN_NAME", KEY)
    words = ("llm=openai", f"llm.api_base={provider.url}", "llm.api_key_env=MY_OWN_NAME", "llm.attempts=1")

    errors = []
    with http_server(tmp_path / "b.sqlite", *words, errors=errors) as url, calling(Client(f"{url}/mcp")) as client:
        id = client.ask("extract_memory", **ATTEMPT, async_mode=True)["task_id"]
        wait_for(lambda: "waits_for" in client.ask("task_status", task_id=id))
        waits_for = client.ask("task_status", task_id=id)["waits_for"]
        said = waits_for, client.refused("extract_memory", **ATTEMPT, async_mode=False)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file()).decode("utf-8", "replace")
    log = "".join("".join(errors).split())  # wrapped by whoever prints it
    assert provider.headers[0]["Authorization"] == f"Bearer {KEY}"  # it was really used
    for text in (*said, stored, log):
        assert "refused the key" in text or "refusedthekey" in text
        assert KEY not in text


def breaks(messages, role, sample):
    raise RuntimeError(f"it broke over {os.environ['MY_PASSWORD']}")


def test_the_log_of_a_served_bank_holds_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", KEY)

    errors = []
    script = ("llm=scripted", "llm.script.path=test_mcp_secrets.breaks")
    with http_server(tmp_path / "b.sqlite", *script, errors=errors) as url, calling(Client(f"{url}/mcp")) as client:
        assert KEY not in client.refused("extract_memory", **ATTEMPT, async_mode=False)
    log = "".join("".join(errors).split())  # wrapped by whoever prints it
    assert "itbrokeover" + HIDDEN in log and KEY not in log


def test_a_failed_extraction_is_kept_without_the_key_and_what_breaks_is_logged_without_it(tmp_path, monkeypatch):
    from rich.console import Console
    from rich.logging import RichHandler

    monkeypatch.setenv("MY_PASSWORD", KEY)
    printed = io.StringIO()
    handler = RichHandler(console=Console(file=printed, width=400), rich_tracebacks=True)  # as the SDK sets it
    logger = logging.getLogger("mcp_server")
    monkeypatch.setattr(logger, "handlers", [handler])

    def worked(error):
        def broken(service, bank, id, payload):
            raise error

        monkeypatch.setattr("mcp_server.extraction.learn_attempt", broken)
        id = f"job {type(error).__name__}"
        service.jobs.put(id, "default", checks.attempt(TRAJECTORY, "a task", service.settings))
        QueueWorker(service)._work()
        return service.jobs.get(id).result

    with here(tmp_path / "b.sqlite", *MODEL) as (_, service):
        redact_logs(service.redact, "mcp_server")
        assert "ZeroDivisionError" in worked(ZeroDivisionError(f"divided {KEY}"))["error"]
        assert worked(StopRun(f"refused the key {KEY}")) == {"waits_for": f"refused the key {HIDDEN}"}
    assert f"divided {HIDDEN}" in printed.getvalue() and f"refused the key {HIDDEN}" in printed.getvalue()
    assert KEY not in printed.getvalue()


def test_a_handler_that_words_tracebacks_itself_is_given_none():
    try:
        raise ValueError(KEY)
    except ValueError as error:
        record = logging.LogRecord("a", logging.ERROR, "a.py", 1, "it broke", None, (type(error), error, None))
    assert RedactingFilter(Redactor({"MY_TOKEN": KEY})).filter(record)
    assert record.exc_info is None and HIDDEN in record.exc_text and KEY not in logging.Formatter().format(record)
