"""A key as people put it into a variable: with a line end, a mark or quotes around it, or with something within."""

from __future__ import annotations

import pytest
from provider import completion

from core.build import refuse_problems
from core.errors import UserError
from core.models.base import Request
from core.models.remote import LiteLLMModel
from core.redact import Redactor

KEY = "sk-test-0123456789abcdef"
ASK = Request(messages=[{"role": "user", "content": "hello"}], role="agent")


@pytest.fixture
def model(serve):
    server = serve(lambda request, n: (200, completion("hi")))
    made = LiteLLMModel(model="hosted_vllm/m", api_base=server.url, attempts=1, api_key_env="MY_KEY")
    yield made, server
    made.close()


@pytest.mark.parametrize("given", ["{}\n", "{}\r\n", "\ufeff{}", " {} ", '"{}"', "\u201c{}\u201d", "\u2018{}\u2019\n"])
def test_what_stands_around_it_is_left_out_and_hidden(model, monkeypatch, given):
    monkeypatch.setenv("MY_KEY", given.format(KEY))
    made, server = model
    assert made.problem() is None
    made.chat(ASK)
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in Redactor({"MY_KEY": given.format(KEY)}, {"MY_KEY"})(f"it is {KEY}.")


@pytest.mark.parametrize("within", ["\u2019", "\u2011", "\u200b", "\n", " ", "\u00e9"])
def test_what_stands_within_it_is_refused_before_the_first_call(model, monkeypatch, within):
    monkeypatch.setenv("MY_KEY", KEY[:9] + within + KEY[9:])
    with pytest.raises(UserError, match="environment variable MY_KEY has .* in it") as error:
        refuse_problems({"agent": model[0]}, {})
    assert KEY[:9] not in str(error.value) and not model[1].requests


def test_nothing_but_quotes_is_no_key(model, monkeypatch):
    monkeypatch.setenv("MY_KEY", '""\n')
    assert "needs a key in the environment variable MY_KEY" in model[0].problem()
