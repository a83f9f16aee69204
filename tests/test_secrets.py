"""No key in anything a run leaves or prints."""

from __future__ import annotations

import logging

import pytest
from provider import Provider

from core.redact import HIDDEN, RedactingFilter, Redactor

KEY = "sk-Very5ecret-0123456789abcdef"
ODD = 'p"ss/word+1'


@pytest.mark.parametrize("status", [400, 401, 503])
def test_a_run_directory_holds_no_key_whatever_the_provider_echoes(cli, tmp_path, status):
    def answer(request, n):
        return status, {"error": {"message": f"Incorrect API key provided: {KEY}; {ODD}"}}

    server = Provider(answer)
    done = cli(
        *("env=toy", "llm=openai", "embedder=hashing", "limit=2", "llm.attempts=1", "run_dir=run"),
        *(f"llm.api_base={server.url}", "llm.api_key_env=MY_OWN_NAME"),
        env={"MY_OWN_NAME": KEY, "OTHER_PASSWORD": ODD},
    )
    server.close()
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"  # it was really used
    assert "Incorrect API key provided" in done.stdout + done.stderr + everything(tmp_path / "run")
    for text in (done.stdout, done.stderr, everything(tmp_path / "run")):
        assert KEY not in text
        assert ODD not in text
        assert ODD.replace('"', '\\"') not in text


def test_a_key_typed_into_the_configuration_is_not_saved_and_the_run_resumes(cli, tmp_path):
    typed = ("env=toy", "llm=scripted", "embedder=hashing", "run_dir=run", f"llm.cache_path=https://user:{KEY}@host/x")
    assert cli(*typed, "budget.run.calls=9").returncode == 0
    assert cli(*typed).returncode == 0
    assert KEY not in everything(tmp_path / "run")
    assert HIDDEN in everything(tmp_path / "run")


def test_logs_and_their_tracebacks_are_redacted(caplog):
    log = logging.getLogger("secrets")
    caplog.handler.addFilter(RedactingFilter(Redactor({"A_TOKEN": "tok-12345678"})))
    try:
        raise ValueError("tok-12345678")
    except ValueError:
        log.exception("failed with %s", "tok-12345678")
    assert "tok-12345678" not in caplog.text
    assert HIDDEN in caplog.text


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghijklmnop1234",
        "AIzaSyA1234567890abcdefghijklmnopqrstu",
        "hf_abcdefghijklmnopqrstuvwx",
        "ghp_abcdefghijklmnopqrstuvwx1234",
        "AKIAABCDEFGHIJKLMNOP",
    ],
)
def test_the_forms_of_keys_are_known(secret):
    assert secret not in Redactor({})(f"value: {secret}.")


def test_innocent_text_is_left_alone():
    redact = Redactor({"HOME": "/root", "MY_TOKEN": "true", "PATH_SECRET": "/some/where/long"})
    for text in ("task-1 is true", "10,080", "\\frac{1}{2} of sk-1", "/some/where/long", "http://host:80/v1"):
        assert redact(text) == text


def everything(folder):
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file())
