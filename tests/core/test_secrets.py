"""No key in anything a run leaves or prints."""

from __future__ import annotations

import json
import logging
import time
from types import SimpleNamespace

import pytest
import yaml
from provider import Provider, completion

from core.jsonl import JsonLines
from core.memory.hygiene.scrub import scrub
from core.models.retry import error_within, explain
from core.redact import FORMS, HIDDEN, LOOSER, RedactingFilter, Redactor, forms_in

KEY = "sk-Very5ecret-0123456789abcdef"
ODD = 'p"ss/word+1'


@pytest.mark.slow
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


@pytest.mark.parametrize("before", [{}, {"B_TOKEN": "tok-87654321"}])
def test_logs_and_their_tracebacks_are_redacted_also_behind_another_filter(caplog, before):
    log = logging.getLogger("secrets")
    for secrets in (before, {"A_TOKEN": "tok-12345678"}):
        caplog.handler.addFilter(RedactingFilter(Redactor(secrets)))
    try:
        raise ValueError("tok-12345678")
    except ValueError:
        log.exception("failed with %s", "tok-12345678")
    assert "tok-12345678" not in caplog.text
    assert HIDDEN in caplog.text


HEX, MIXED = "0123456789abcdef" * 4, "aB3dE6gH9j" * 9
SAMPLES = {  # one of each form, in two parts so that no scanner takes this file for a leak
    "private_key": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "anthropic": "sk-ant-" + MIXED[:24],
    "openai": "sk-" + MIXED[:20],
    "stripe": "rk_live_" + MIXED[:16],
    "aws_id": "ASIA" + "IOSFODNN7EXAMPLE",
    "google": "AIza" + MIXED[:30],
    "google_oauth": "ya29." + MIXED[:20],
    "github": "ghp_" + MIXED[:20],
    "github_fine": "github_pat_" + MIXED[:22],
    "gitlab": "glpat-" + MIXED[:20],
    "huggingface": "hf_" + MIXED[:20],
    "slack": "xoxb-" + MIXED[:10],
    "slack_hook": "https://hooks.slack.com/" + "services/" + MIXED[:20],
    "discord": "M" + MIXED[:23] + "." + MIXED[:6] + "." + MIXED[:27],
    "telegram": "12345678:" + MIXED[:35],
    "twilio": "AC" + HEX[:32],
    "sendgrid": "SG." + MIXED[:22] + "." + MIXED[:43],
    "mailchimp": HEX[:32] + "-us12",
    "square": "sq0atp-" + MIXED[:22],
    "npm": "npm_" + MIXED[:36],
    "pypi": "pypi-" + "AgE" + MIXED[:50],
    "digitalocean": "dop_v1_" + HEX,
    "databricks": "dapi" + HEX[:32],
    "replicate": "r8_" + MIXED[:37],
    "groq": "gsk_" + MIXED[:20],
    "wandb": "WANDB_API_KEY=" + HEX[:40],
    "azure_storage": "AccountKey=" + MIXED[:80],
    "jwt": "eyJ" + MIXED[:8] + ".eyJ" + MIXED[:8] + "." + MIXED[:9],
    "basic_auth": "https://user:" + "pa'ss@host/x",
    "bearer": "Authorization: Basic " + MIXED[:16],
}
LOOSE_SAMPLES = {"key": "pk-or-" + MIXED[:13], "header": "Bearer " + MIXED[:8]}
LONGER = {  # as the keys that a provider may give out one day
    **{kind: SAMPLES[kind] + MIXED * 4 for kind in ("anthropic", "openai", "google", "github", "huggingface", "groq")},
    "basic_auth": f"https://{MIXED * 2}:{MIXED * 2}@host",
}


@pytest.mark.parametrize("place", range(240, 300, 10))
def test_what_is_told_of_a_providers_error_ends_in_no_half_of_a_secret(place, monkeypatch):
    monkeypatch.setenv("MY_OWN_NAME", ODD)
    for secret in (KEY, ODD, SAMPLES["basic_auth"]):
        said = ("word " * 100)[:place] + secret + " and more words" * 40
        error = type("AuthenticationError", (Exception,), {"status_code": 401})(said)
        choice = SimpleNamespace(finish_reason="error", provider_specific_fields={"error": {"message": said}})
        for told in (explain(error, "openai/m", None, "MY_OWN_NAME"), error_within(choice, "openai/m", "MY_OWN_NAME")):
            assert "word word" in str(told) and secret[8:14] not in str(told) and len(str(told)) < 400


def test_private_keys_without_an_end_are_removed_and_a_text_of_many_takes_no_time():
    begin, body = "-----BEGIN " + "PRIVATE KEY-----", "MIIEow" * 1000
    for redact in (Redactor({}), lambda text: scrub(text)[0]):
        assert "MIIEow" not in redact(f"{begin}\n{body}. Then other words.")
        assert "MIIEow" not in redact(f"{begin}\n{body}! {'Then other words. ' * 600}")
        twice = redact(f"a {begin}\nMIIEow {begin}\nMIIEow\n-----END PRIVATE KEY----- b")
        assert "MIIEow" not in twice and (twice[0], twice[-1]) == ("a", "b")
        began = time.process_time()
        redact(begin * 20_000)
        assert time.process_time() - began < 3


def test_every_form_has_a_sample_that_is_found_by_its_hint():
    assert (set(SAMPLES), set(LOOSE_SAMPLES)) == (set(FORMS), set(LOOSER))
    for kind, sample in SAMPLES.items():
        assert kind in dict(forms_in(f"At first {sample}, and then."))
    assert len(dict(forms_in("a text of harmless words"))) < 6


@pytest.mark.parametrize(("kind", "sample"), [*SAMPLES.items(), *LONGER.items()])
def test_a_credential_is_known_by_its_form_in_logs_and_in_lessons(kind, sample):
    said = f"At first {sample}, and then."
    found = FORMS[kind].search(said).group()
    cleaned, kinds = scrub(said)
    assert kind in kinds
    for text in (Redactor({})(said), cleaned):
        assert found not in text
        assert text.startswith("At first ") and text.endswith(", and then.")


@pytest.mark.parametrize(("kind", "sample"), LOOSE_SAMPLES.items())
def test_what_may_be_a_word_is_taken_for_a_key_in_logs_alone(kind, sample):
    found = LOOSER[kind].search(sample).group()
    assert found not in Redactor({})(f"At first {sample}, and then.")
    for text in ("The sk-estimator-doc-link of scikit-learn", "A Bearer instrument is paid to whoever holds it"):
        assert scrub(text) == (text, ())


def test_innocent_text_is_left_alone():
    redact = Redactor({"HOME": "/root", "MY_TOKEN": "true", "PATH_SECRET": "/some/where/long"})
    for text in ("task-1 is true", "10,080", "\\frac{1}{2} of sk-1", "/some/where/long", "http://host:80/v1"):
        assert redact(text) == text


PLACEHOLDERS = ("none", "test", "ollama", "EMPTY", "1234", "null", "agent", "dummy", "12345678", "placeholder", "true")


@pytest.mark.parametrize("value", PLACEHOLDERS)
def test_what_stands_where_a_key_is_wanted_is_no_secret(value):
    redact = Redactor({"OPENAI_API_KEY": value, "MY_OWN_NAME": value}, {"MY_OWN_NAME"})
    assert redact(f"the {value} of 10{value}") == f"the {value} of 10{value}"


def test_a_key_is_known_by_whatever_name_the_configuration_has_for_it_and_without_its_newline():
    redact = Redactor({"ODDLY_NAMED": "abc12345\n"}, {"ODDLY_NAMED"})
    assert redact("it is abc12345.") == f"it is {HIDDEN}."
    assert HIDDEN in Redactor({"MY_PASSWORD": "correcthorsebatterystaple"})("correcthorsebatterystaple")


@pytest.mark.parametrize(
    "secret",
    [
        ODD,
        "back\\slash\\1",
        'l\u00e4\u00df"t-1-\u4e2d',
        "two\nlines 1",
        "tab\t1234567",
        "\U0001f600 123456",
        "\udcff-1234567",
    ],
)
def test_lines_hold_no_secret_however_it_is_escaped_and_stay_lines(tmp_path, secret):
    lines = JsonLines(tmp_path / "x.jsonl", redact=Redactor({"MY_KEY": secret}, {"MY_KEY"}).values)
    lines.append({"text": f"a {secret} b", "steps": [{"call": json.dumps({"key": secret})}, ("x", secret)]})
    lines.append({"broken": f"\ud800 {secret}"})
    data = (tmp_path / "x.jsonl").read_text("utf-8")
    for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        assert form not in data
    first, second = lines.read()
    assert first["text"] == f"a {HIDDEN} b"
    assert first["steps"] == [{"call": json.dumps({"key": HIDDEN})}, ["x", HIDDEN]]
    assert second["broken"] == f"\ud800 {HIDDEN}"


def test_only_texts_are_redacted_never_keys_numbers_or_what_holds_the_line_together(tmp_path):
    row = {"task_id": 1234567.25, "a": None, "b": [True, 0.1234567], "1234567.25": {"c-1": "", "n": 2}}
    for secret in ("1234567.25", "0.1234567", '": null, "b', "task_id1", '"c-1": ""', "true, 0."):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        lines = JsonLines(path, redact=Redactor({"MY_API_KEY": secret}).values)
        lines.append(row)
        assert list(lines.read()) == [row]


@pytest.mark.slow
def test_a_run_is_the_same_whatever_stands_where_a_key_is_wanted(serve, here, tmp_path, monkeypatch):
    server = serve(lambda request, n: (200, completion("1234: none of the agent's null tests")))
    words = ("env=toy", "llm=vllm", "embedder=hashing", f"llm.api_base={server.url}", "limit=2", "max_steps=2")
    kept = set()
    for value in ("sk-1", "none", "agent", "1234", "null", "test"):
        monkeypatch.setenv("MY_OWN_NAME", value)
        run_dir, _ = here(*words, "llm.api_key_env=MY_OWN_NAME", run_dir=tmp_path / value)
        kept.add((run_dir / "episodes.jsonl").read_bytes())
        assert HIDDEN not in everything(run_dir)
    assert len(kept) == 1


def test_a_secret_that_yaml_would_quote_is_not_in_the_saved_configuration(cli, tmp_path):
    secret = "it's: 12 #3"
    done = cli(
        *("env=toy", "llm=scripted", "embedder=hashing", "limit=1", "run_dir=run"),
        f'llm.cache_path="{secret}"',
        env={"MY_PASSWORD": secret},
    )
    assert done.returncode == 0, done.stderr
    saved = (tmp_path / "run" / ".hydra" / "config.yaml").read_text()
    assert yaml.safe_load(saved)["llm"]["cache_path"] == HIDDEN
    assert "12 #3" not in everything(tmp_path / "run")


def everything(folder):
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file())
