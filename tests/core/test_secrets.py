"""No key in anything a run leaves or prints."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from base64 import b64encode
from types import SimpleNamespace
from urllib.parse import quote

import pytest
import yaml
from conftest import REPO
from provider import Provider, completion

from core.jsonl import JsonLines
from core.memory.hygiene.scrub import _merged as merged_spans
from core.memory.hygiene.scrub import scrub
from core.models.retry import error_within, explain
from core.redact import HIDDEN, SECRETS, RedactingFilter, Redactor, secret_spans, secrets_of_settings

KEY = "sk-Very5ecret-0123456789abcdef"
ODD = 'p"ss/word+1'


@pytest.mark.parametrize("status", [401, 503])
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


ENVIRONMENT = {  # {variable: (its value, what of it is secret)}
    "GH_PAT": ("zq81-Kk0pwe77TTx", "zq81-Kk0pwe77TTx"),
    "MYSQL_PWD": ("correct horse 9 battery", "correct horse 9 battery"),
    "SESSION_COOKIE": ("s%3Aabc9812kfjwe.QQ11zz", "s%3Aabc9812kfjwe.QQ11zz"),
    "smtpPass": ("smtp-pass-4411", "smtp-pass-4411"),
    "x-app-key": ("base64:Zm9vYmFyYmF6", "base64:Zm9vYmFyYmF6"),
    "DATABASE_URL": ("postgresql://app:hunter-77-zebra@db:5432/prod", "hunter-77-zebra"),
    "REDIS": ("redis://:p%40ss-0099@h:6379/0", "p@ss-0099"),
    "AT_HOME": ("https://bob:proxy-55@proxy:3128", "Ym9iOnByb3h5LTU1"),  # in the header that a client sends
    "SENTRY": ("https://0f1e2d3c4b5a69788796a5b4c3d2e1f0@sentry.io/1", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
    "STORE": ("Server=tcp:x;User=u;Password=zebra!!99aa;Encrypt=yes", "zebra!!99aa"),
    "LIBPQ": ("host=h user=u password=pq-word-11 sslmode=prefer", "pq-word-11"),
    "SERVICE": ('{"user": "a", "client_secret": "q9q9w8w8-jj-1"}', "q9q9w8w8-jj-1"),
    "OPTIONS": ("-Dtoken=q9q9w8w8-jj-2 -Xmx1g", "q9q9w8w8-jj-2"),
    "HOOK": ("https://h/x?a=1&sig=ab12cd34ef56", "ab12cd34ef56"),
    "AWS_SECRET_ACCESS_KEY": ("/JalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEX", "/JalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEX"),
    "CLIENT_SECRET": ("~q8Q_Zt41xLm09Kd72PwErTy", "~q8Q_Zt41xLm09Kd72PwErTy"),
    "API_KEYS": ("k1-first-7786,k2-second-7787", "k2-second-7787"),
    "DB_PW": ("zebra-7789", "zebra-7789"),
    "MAPS_KEY": ("0123-4567-89ab-cdef", "0123-4567-89ab-cdef"),
}


def test_a_variable_is_secret_by_its_name_or_by_a_place_within_it(subtests):
    for name, (value, secret) in ENVIRONMENT.items():
        with subtests.test(name):
            redact = Redactor({name: value})
            assert redact.values(f"it echoes <{secret}>") == f"it echoes <{HIDDEN}>"
            assert secret not in redact.values(json.dumps({"env": {name: value}}))


HARMLESS = {
    "PWD": "/root/x1",
    "SSH_AUTH_SOCK": "/tmp/ssh-1/agent.22",
    "DESKTOP_SESSION": "ubuntu-wayland22",
    "SESSION_MANAGER": "local/host1:@/tmp/.ICE-unix/2323,unix/host1:/tmp/.ICE-unix/2323",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus",
    "LS_COLORS": "rs=0:di=01;34:ln=01;36:mh=00:pi=40;33",
    "GITHUB_SHA": "9cc731f0" * 5,
    "INVOCATION_ID": "9cc731f0" * 4,
    "CUDA_VISIBLE_DEVICES": "GPU-2f1c9a7e-0b3d-4c5e-8f60-718293a4b5c6",
    "PLATFORM": "Linux-5.10.0-x86_64-with-Glibc2.31",
    "MODEL": "meta-llama/Llama-3.1-8B-Instruct-Q4_K_M-GGUF",
    "AUTH_TYPE": "oauth2-password",
    "API_KEY_FILE": "/run/secrets/k1",
    "IMAGE": f"repo/name:tag-1.2.3-x@sha256:{'ab' * 32}",
    "PACKAGE": "npm:foo-bar-22@1.2.3",
    "OPENAI_API_KEY": "not-needed",
    "X_API_KEY": "lm-studio",
    "TOKENIZER": "Qwen/Qwen2.5-7B-Instruct",
    "ANSWER_KEY": "column_1",
    "PACKAGE_URL": "npm:left-pad@1.2.3",
    "IMAGE_URL": f"python:3.11-slim@sha256:{'ab' * 32}",
    "SLOT_URL": "10:30-11:45@roomA",
    "GOOGLE_TOKEN": "/home/me/.config/Keys2/googleAccountKey1.json",
    "KUBERNETES_PORT": "tcp://10.0.0.1:443",
    "INDEX": "https://pypi.org/simple/",
    "REASONINGBANK_TASK": "log in with password=hunter22x",
}


def test_other_variables_are_no_secrets(subtests):
    for name, value in HARMLESS.items():
        with subtests.test(name):
            assert Redactor({name: value}).values(f"a {value} b") == f"a {value} b"


def test_no_setting_that_the_project_has_is_a_secret():
    for path in (REPO / "config").rglob("*.yaml"):
        assert secrets_of_settings(yaml.safe_load(path.read_text("utf-8"))) == set(), path


TEXTS = [
    "task gsm8k-000123 of run 9cc731f0aa, 2f1c9a7e-0b3d-4c5e-8f60-718293a4b5c6",
    f"sha256:{'0f1e2d3c' * 8}",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    f"{2**200} and 3.14159265358979323846264338327950288",
    "for key, token in zip(keys, tokens): assert token != key  # token=None, password: str",
    "https://shop.test/cart?item=17&page=2&q=blue+shoes and http://localhost:8000/v1",
    "upgrade npm:left-pad@1.2.3, pull python:3.11-slim@sha256:0f1e, meet 10:30-11:45@roomA",
    "http://[::1]:8080/a@b, https://cdn.example:8443/npm/react@18.2.0/x.js and jina_embeddings_v2_base_en_small_2024",
    "up_to_20_percent_of_the_lessons; https://example.com/login?password=<yours> and ?password={password}",
    "click [token] then [auth_key_row_12] at //div[@id='session']; ratio 3:2@home",
]


def test_ordinary_texts_are_left_alone(subtests, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["main.py", "llm.api_key_env=GH_PAT", "roles.agent.max_tokens=4096", "seed=0,1"])
    redact = Redactor({name: value for name, (value, _) in ENVIRONMENT.items()} | HARMLESS, settings=sys.argv[1:])
    for text in TEXTS:
        with subtests.test(text=text):
            assert redact(text) == text


ECHOED = {name: value for name, (value, _) in ENVIRONMENT.items() if name.isupper()}
URL_PASSWORD, URL_TOKEN, TYPED_KEY = "url-pw-7788-xx", "url-tok-99887766", "typed-1234-abcd"


@pytest.mark.parametrize("status", [200, 400])
def test_no_run_or_sweep_keeps_or_prints_what_a_provider_repeats_of_the_environment_and_the_command(
    cli, tmp_path, status
):
    secrets = [secret for name, (_, secret) in ENVIRONMENT.items() if name.isupper()]
    secrets += [URL_PASSWORD, URL_TOKEN, TYPED_KEY]
    said = (
        f"I saw {' ; '.join([*ECHOED.values(), *secrets])}\n# Memory Item 1\n## Title Use {secrets[0]}\n## Content it"
    )

    def answer(request, n):
        return status, completion(said) if status == 200 else {"error": {"message": said}}

    server = Provider(answer)
    url = server.url.replace("://", f"://u:{URL_PASSWORD}@")
    done = cli(
        *("-m", "env=toy", "llm=openai", "embedder=hashing", "limit=1", "seed=0,1", "llm.attempts=1", "run_dir=run"),
        *(f"llm.api_base='{url}?token={URL_TOKEN}'", f"roles.agent.extra_body={{api_key: {TYPED_KEY}}}"),
        *("llm.api_key_env=GH_PAT", "llm.cache=read_write", "llm.cache_path=cache.sqlite", "max_steps=1"),
        env=ECHOED,
    )
    server.close()
    kept = everything(tmp_path)
    assert done.returncode == (status != 200) and HIDDEN in (tmp_path / "run" / "multirun.yaml").read_text()
    assert f"I saw {HIDDEN} ; {HIDDEN}" in kept
    for secret in secrets:
        assert [where for where in (done.stdout, done.stderr, kept) if secret in where] == []


def test_a_command_that_is_refused_repeats_no_secret(cli):
    done = cli("env=toy", f"llm.api_bse='http://u:{URL_PASSWORD}@h/v1?token={URL_TOKEN}'")
    assert done.returncode and "api_bse" in done.stderr
    assert URL_PASSWORD not in done.stderr and URL_TOKEN not in done.stderr


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
    "any key": "pk-or-" + MIXED[:13],
    "azure_storage": "AccountKey=" + MIXED[:80],
    "jwt": "eyJ" + MIXED[:8] + ".eyJ" + MIXED[:8] + "." + MIXED[:9],
    "basic_auth": "https://user:" + "pa'ss@host/x",
    "bearer": "Authorization: Basic " + MIXED[:16],
    "xai": "xai-" + MIXED[:80],
    "nvidia": "nvapi-" + MIXED[:30] + "_-" + MIXED[:30],
    "perplexity": "pplx-" + MIXED[:48],
    "bedrock": "ABSK" + MIXED[:80] + "+/==",
    "voyage": "pa-" + MIXED[:43],
    "modelscope": "ms-" + "01234567-89ab-cdef-0123-456789abcdef",
    "langsmith": "lsv2_pt_" + HEX[:32] + "_" + HEX[:10],
    "alibaba": "LTAI" + MIXED[:20],
    "vault": "hvs." + MIXED[:24],
    "a slash in it": "redis://:" + "p4ss/w0rd@cache:6379/0",
    "an at in it": "postgresql+psycopg://app:" + "s3cr@etPass@db.example.com/x",
    "as a parameter": "jdbc:postgresql://db/x?user=u&password=" + "topsecretword",
    "of ODBC": "mssql+pyodbc:///?odbc_connect=UID%3Dsa%3BPWD%3D" + "Secret99",
    "of Oracle": "jdbc:oracle:thin:scott/" + "tiger9999@//db:1521/x",
    "of Go": "app:" + "s3cretpw@tcp(db:3306)/x",
    "of Go's socket": "app:" + "s3cretpw@unix(/run/db.sock)/x",
}
PASSWORDS = ("w0rd", "s3cr", "etPass", "topsecretword", "Secret99", "tiger9999", "s3cretpw")
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


ASSIGNED = ("http://h/v1?token=aB3dE6", "WANDB_API_KEY=" + HEX[:40], "the password is hunter2hunter2")


def test_every_form_has_a_sample():
    bodies = (MIXED, HEX[:32], HEX, "IOSFODNN7EXAMPLE")
    for literal, form in SECRETS:
        samples = [*SAMPLES.values(), *(literal + body for body in bodies)]
        assert any(literal in sample and re.search(form, sample) for sample in samples), form


def test_a_credential_is_known_by_its_form_in_files_logs_and_lessons(subtests):
    redact = Redactor({})
    for kind, sample in [*SAMPLES.items(), *LONGER.items()]:
        with subtests.test(kind, sample=sample):
            said = f"At first {sample}, and then."
            [begin, end] = max(secret_spans(said), key=lambda span: span[1] - span[0])
            cleaned, kinds = scrub(said)
            assert kinds == ("secret",)
            for text in (redact(said), redact.certain(said), cleaned):
                assert said[begin:end] not in text
                assert not any(password in text for password in PASSWORDS)
                assert text.startswith("At first ") and text.endswith(", and then.")


@pytest.mark.parametrize("said", ASSIGNED)
def test_what_a_name_says_is_taken_out_of_logs_and_lessons_and_not_of_episodes(said):
    redact = Redactor({})
    assert HIDDEN in redact(said) and "[removed secret]" in scrub(said)[0] and redact.certain(said) == said


def test_what_may_be_a_word_is_no_secret():
    for text in ("The sk-estimator-doc-link of scikit-learn", "A Bearer instrument is paid to whoever holds it"):
        assert scrub(text) == (text, ()) and Redactor({})(text) == text


def test_innocent_text_is_left_alone():
    redact = Redactor({"HOME": "/root", "MY_TOKEN": "true", "PATH_SECRET": "/some/where/long"})
    for text in ("task-1 is true", "10,080", "\\frac{1}{2} of sk-1", "/some/where/long", "http://host:80/v1"):
        assert redact(text) == text


PLACEHOLDERS = ("none", "test", "ollama", "EMPTY", "1234", "null", "agent", "dummy", "12345678", "placeholder", "true")


def test_what_stands_where_a_key_is_wanted_is_no_secret(subtests):
    for value in PLACEHOLDERS:
        with subtests.test(value=value):
            redact = Redactor({"OPENAI_API_KEY": value, "MY_OWN_NAME": value}, {"MY_OWN_NAME"})
            assert redact(f"the {value} of 10{value}") == f"the {value} of 10{value}"


def test_a_secret_is_known_as_it_is_in_a_url_in_json_and_in_base64(subtests):
    secret = "wJ+l/XU n<F\"E'M&I\u00e97\\MD"
    redact = Redactor({"MY_SECRET": secret})
    in_base64 = b64encode(secret.encode()).decode()
    for spelled in (
        secret,
        quote(secret, safe=""),
        json.dumps(secret),
        json.dumps(secret, ensure_ascii=False),
        in_base64,
    ):
        with subtests.test(spelled):
            assert HIDDEN in redact.values(f"it said: {spelled}.")


def test_the_value_behind_an_option_is_secret():
    assert (
        Redactor({}, settings=["tool", "--api-key", "zebra-7790", "--top-k", "column-7791"]).values(
            "zebra-7790 column-7791"
        )
        == f"{HIDDEN} column-7791"
    )


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


def test_a_secret_that_begins_another_leaves_nothing_of_it():
    redact = Redactor({"ONE_TOKEN": "zq81kfmw", "OTHER_TOKEN": "zq81kfmw-and-then-more", "A_TOKEN": "mw-and-then"})
    assert redact("it is zq81kfmw-and-then-more, he said") == f"it is {HIDDEN}, he said"


def test_what_is_found_within_a_longer_secret_leaves_nothing_of_it():
    text = "postgresql://ann:pa55word-of.ann@example.org:5432/db and password=hunter2-bob@example.org-0123"
    clean, _ = scrub(text)
    assert not {"pa55word", "hunter2", "0123"} & set(clean.replace("-", " ").replace(":", " ").split()), clean
    for begin in range(3):  # a span within another, whichever begins first
        found = [(0, 20, "email"), (begin, begin + 5, "secret")]
        assert merged_spans(found)[0][:2] == (0, 20)
