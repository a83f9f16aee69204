"""Token counts as servers report them: contradictory, under other names, of other types; and prompts cut in silence."""

from __future__ import annotations

import json
import logging
import re
from contextlib import closing

import pytest
from conftest import read_json, read_rows
from provider import completion

from analysis.audit import audit
from analysis.cells import make_cells, rows_of
from analysis.load import load_runs
from analysis.runs import read_run
from core.errors import StopRun, UserError
from core.models.base import Request
from core.models.cut_prompts import PromptWatch, least_tokens
from core.models.remote import LiteLLMModel
from core.models.token_counts import counts_of

PRICE = {"prompt": 1.0, "cached": 0.25, "completion": 10.0}
ASK = Request(messages=[{"role": "user", "content": "hello"}], role="agent")


def usage(prompt=100, completion=20, total=None, reasoning=None, cached=None, **more):
    found = {"prompt_tokens": prompt, "completion_tokens": completion} | more
    found |= {} if total is None else {"total_tokens": total}
    found |= {} if reasoning is None else {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    return found | ({} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}})


# {name: (what is reported, (prompt, completion, cached, reasoning), whether that is a correction)}
REPORTED = {
    "OpenAI": (usage(total=1020, completion=920, reasoning=900), (100, 920, 0, 900), False),
    "OpenAI, cached": (usage(total=120, cached=60), (100, 20, 60, 0), False),
    "xAI: thinking beside the completion": (usage(total=1020, reasoning=900), (100, 920, 0, 900), True),
    "little thinking beside much text": (usage(completion=500, total=900, reasoning=300), (100, 800, 0, 300), True),
    "5 and 40": (usage(prompt=11, completion=5, total=56, reasoning=40), (11, 45, 0, 40), True),
    "thinking beside it, no total": (usage(reasoning=900), (100, 920, 0, 900), True),
    "Gemini: only the total knows": (usage(total=1020), (100, 920, 0, 0), True),
    "completion null": (usage(completion=None, total=1020), (100, 920, 0, 0), True),
    "prompt null": (usage(prompt=None, total=1020), (1000, 20, 0, 0), True),
    "the total alone": ({"total_tokens": 120}, (0, 120, 0, 0), True),
    "negative prompt": (usage(prompt=-5, total=120), (100, 20, 0, 0), True),
    "negative completion": (usage(completion=-1, total=120), (100, 20, 0, 0), True),
    "negative everything": (usage(-1, -1, -1, -1, -1), (0, 0, 0, 0), True),
    "an overflow": (usage(completion=2**32 - 1, total=120), (100, 20, 0, 0), True),
    "negative cached": (usage(total=120, cached=-60), (100, 20, 0, 0), True),
    "negative thinking": (usage(total=120, reasoning=-60), (100, 20, 0, 0), True),
    "more cached than prompted": (usage(total=120, cached=5000), (100, 20, 100, 0), True),
    "the same without a total": (usage(cached=5000), (100, 20, 100, 0), True),
    "cached beside the prompt": (usage(total=5120, cached=5000), (5100, 20, 5000, 0), True),
    "cached and thinking beside": (usage(total=6020, cached=5000, reasoning=900), (5100, 920, 5000, 900), True),
    "more thought than completed": (usage(total=120, reasoning=40), (100, 20, 0, 20), True),
    "a total below its parts": (usage(total=20), (100, 20, 0, 0), False),
    "a total of 0": (usage(total=0), (100, 20, 0, 0), False),
    "a total of null": (usage() | {"total_tokens": None}, (100, 20, 0, 0), False),
    "texts": (usage("100", "20", "120"), (100, 20, 0, 0), False),
    "floats": (usage(100.0, 20.0, 120.0), (100, 20, 0, 0), False),
    "a word": (usage(prompt="n/a", total=120), (100, 20, 0, 0), True),
    "true": (usage(prompt=True, total=120), (100, 20, 0, 0), True),
    "NaN": (usage(prompt=float("nan"), total=120), (100, 20, 0, 0), True),
    "infinite": (usage(completion=float("inf"), total=120), (100, 20, 0, 0), True),
    "details as a list": (usage(total=120) | {"prompt_tokens_details": [1]}, (100, 20, 0, 0), False),
    "a word in the details": (usage(total=120, cached="many", reasoning=9), (100, 20, 0, 9), True),
    "details null": (usage(total=120) | {"completion_tokens_details": None}, (100, 20, 0, 0), False),
    "Anthropic": ({"input_tokens": 100, "output_tokens": 920}, (100, 920, 0, 0), False),
    "Responses": (
        {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120, "input_tokens_details": {"cached_tokens": 60}},
        (100, 20, 60, 0),
        False,
    ),
    "DeepSeek": (usage(total=120, prompt_cache_hit_tokens=64, prompt_cache_miss_tokens=36), (100, 20, 64, 0), False),
    "further counts": (
        usage(total=120, tokens={"input": 1}, cost=0.1, tier="low", seconds=[1]),
        (100, 20, 0, 0),
        False,
    ),
    "both names": (usage(total=120, input_tokens=100, output_tokens=20), (100, 20, 0, 0), False),
    "empty": ({}, (0, 0, 0, 0), False),
    "null": (None, (0, 0, 0, 0), False),
    "a list": ([1, 2], (0, 0, 0, 0), False),
    "a word for all": ("none", (0, 0, 0, 0), False),
}


# Those that litellm is asked for as well: one of each kind.
BY_LITELLM = (
    "OpenAI; OpenAI, cached; xAI: thinking beside the completion; completion null; prompt null; negative everything; "
    "an overflow; more cached than prompted; floats; DeepSeek; null"
).split("; ")


@pytest.mark.parametrize("client", ["litellm", "openai"])
def test_counts_agree_with_the_total_and_are_never_below_0(serve, client, caplog, subtests):
    server = serve(lambda request, n: (200, completion("hi", usage=reported)))
    for name in REPORTED if client == "openai" else BY_LITELLM:
        reported, wanted, corrected = REPORTED[name]
        caplog.clear()
        model = LiteLLMModel(
            model="hosted_vllm/m", api_base=server.url, client=client, attempts=1, price_per_mtok=PRICE
        )
        with subtests.test(name), closing(model):
            for reply in (model.chat(ASK), model.chat(ASK)):
                used = reply.usage
                counts = used.prompt_tokens, used.completion_tokens, used.cached_tokens, used.reasoning_tokens
                prompt, written, cached, _ = wanted
                assert counts == (wanted if prompt or written else (None,) * 4)
                cost = ((prompt - cached) * 1.0 + cached * 0.25 + written * 10.0) / 1e6
                assert used.cost_usd == (pytest.approx(cost) if prompt or written else None)
                assert reply.usage_corrected == corrected
            said = [record for record in caplog.records if record.name == "run.notices"]
            assert len(said) == corrected  # once, although there are two calls


def test_an_embeddings_total_is_its_prompt():
    assert counts_of({"prompt_tokens": 0, "total_tokens": 9}, of_text=False).prompt == 9
    assert counts_of({"prompt_tokens": 4, "total_tokens": 9}, of_text=False).completion == 0


def test_a_price_of_litellms_table_is_for_the_corrected_counts(serve, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    server = serve(lambda request, n: (200, completion("hi", usage=usage(total=1020, cached=5000))))
    made = LiteLLMModel(model="openai/gpt-4o-mini", api_base=server.url, attempts=1, api_key_env="OPENAI_API_KEY")
    assert made.chat(ASK).usage.cost_usd == pytest.approx(100 * 0.075e-6 + 920 * 0.6e-6)
    made.close()


@pytest.fixture
def sums(tmp_path):
    """The words of a run over six small sums."""
    rows = [{"id": f"q{n}", "question": f"What is {n}+{n}?", "answer": str(2 * n)} for n in range(1, 7)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ("env=gsm8k", f"env.path={tmp_path / 'sums.jsonl'}", "embedder=hashing")


LESSON = '{"items": [{"title": "Add the two", "description": "sums", "content": "Write the sum."}]}'


def said_to(request):
    """A reply to any role, by the schema that is asked for."""
    schema = json.dumps(request.get("response_format") or request.get("format") or "")
    return (
        '{"thoughts": "x", "status": "success"}'
        if "status" in schema
        else LESSON
        if "items" in schema
        else "\\boxed{4}"
    )


@pytest.mark.parametrize("name", ["xAI: thinking beside the completion", "completion null", "negative prompt"])
def test_a_budget_in_tokens_holds(serve, here, sums, name):
    reported, (prompt, written, *_), _ = REPORTED[name]
    server = serve(lambda request, n: (200, completion("\\boxed{4}", usage=reported)))
    most = 2 * (prompt + written) + 1
    words = (*sums, "workflow=vanilla", "llm=vllm", f"llm.api_base={server.url}", f"budget.run.tokens={most}")
    run_dir, _ = here(*words)
    summary = read_json(run_dir / "summary.json")
    assert len(server.requests) == 3
    assert (summary["tokens"]["total"], summary["n_usage_corrected"]) == (3 * (prompt + written), 3)
    assert not summary["complete"]


def test_a_budget_in_usd_holds_where_more_is_cached_than_prompted(serve, here, sums):
    server = serve(lambda request, n: (200, completion("\\boxed{4}", usage=usage(total=120, cached=9000))))
    price = "llm.price_per_mtok={prompt: 1000.0, cached: 100.0, completion: 1000.0}"  # 0.03 USD a call
    words = (*sums, "workflow=vanilla", "llm=vllm", f"llm.api_base={server.url}", price, "budget.run.usd=0.05")
    run_dir, _ = here(*words)
    assert len(server.requests) == 2
    assert read_json(run_dir / "summary.json")["cost_usd"] == pytest.approx(0.06)


@pytest.mark.parametrize("reported", [None, {}, usage(None, None), usage(0, 0, 0)])
def test_what_is_not_reported_is_unknown_in_every_sum(serve, here, sums, capsys, reported):
    """Of six calls one reports its tokens: what the others took, and all of them together, is not known."""
    given = [completion("\\boxed{4}", usage=reported)] * 5 + [completion("\\boxed{4}", usage=usage())]
    server = serve(lambda request, n: (200, given[n - 1]))
    run_dir, _ = here(*sums, "workflow=vanilla", "llm=vllm", f"llm.api_base={server.url}")
    assert re.search(r"spent.* unknown tokens, cost unknown", capsys.readouterr().out)
    summary = read_json(run_dir / "summary.json")
    assert summary["tokens"] == {"agent": None, "judge": 0, "extractor": 0, "total": None}
    assert summary["calls"]["total"]["prompt_tokens"] is None and summary["calls"]["total"]["calls"] == 6
    counts = [row["usage"]["agent"]["prompt_tokens"] for row in read_rows(run_dir)]
    assert (counts.count(None), counts.count(100)) == (5, 1)
    (row,) = rows_of(make_cells(load_runs([run_dir])).table)
    assert (row["tokens"], row["tokens_per_success"], row["cost"]) == (None, None, None)
    assert audit(read_run(run_dir))["broken"] == {}


@pytest.mark.parametrize("reported", [None, {}, usage(None, None), usage(-1, -1, -1)])
def test_a_budget_in_tokens_needs_counts(serve, here, sums, reported):
    server = serve(lambda request, n: (200, completion("\\boxed{4}", usage=reported)))
    words = (*sums, "workflow=vanilla", "llm=vllm", f"llm.api_base={server.url}")
    with pytest.raises(StopRun, match="budget: tokens cannot be held, hosted_vllm/default reports no numbers"):
        here(*words, "budget.run.tokens=3000")
    assert len(server.requests) == 1


# Prompts that are cut.

PROSE = "The answer of the second task was found by adding both numbers and checking the sum twice. "
CODE = 'def total(values: list[int]) -> int:\n    return sum(value for value in values if value > 0)  # {"a": 1}\n'
PAGE = "[12] link 'Home'\n\t[13] button 'Add to cart' focused: True\n[14] StaticText '$ 12.50'\n"
CHINESE = "第二个任务的答案是把两个数相加并检查两次得到的。"
HINDI = "दूसरे कार्य का उत्तर दोनों संख्याओं को जोड़कर मिला। "
GERMAN = "Geschwindigkeitsbegrenzungen und Straßenverkehrsordnungen werden überprüft. "
RULED = "-" * 80 + "\n" + " " * 60 + "\n"


def prompts(text, *times):
    return [[{"role": "user", "content": f"{n}: {text * n}"}] for n in times]


# {name: ([(messages, tokens that the server reports)], how many are found to be cut)}
CUT = {
    "Ollama, from the first prompt on": ([(each, 2048) for each in prompts(PROSE, 300, 400, 500)], 3),
    "a window between": ([(each, min(18 * n, 2050)) for n in (9, 50, 300, 90) for each in prompts(PROSE, n)], 1),
    "half the window beyond it": ([(each, t) for n, t in ((200, 3974), (300, 2051)) for each in prompts(PROSE, n)], 1),
    "code": ([(each, 512) for each in prompts(CODE, 40, 80)], 2),
    "a page": ([(each, 512) for each in prompts(PAGE, 60, 80)], 2),
    "German": ([(each, 256) for each in prompts(GERMAN, 100)], 1),
    "a small window": ([(each, 64) for each in prompts(PROSE, 9)], 1),
    "system and user": ([([{"role": "system", "content": PROSE * 200}, {"role": "user", "content": "Go."}], 1024)], 1),
    # What is not cut:
    "prose": ([(each, 18 * n) for n in (1, 5, 100) for each in prompts(PROSE, n)], 0),
    "prose to a tokenizer of long tokens": ([(each, 14 * n) for n in (5, 100) for each in prompts(PROSE, n)], 0),
    "dense code": ([(each, 30 * n) for n in (5, 100) for each in prompts(CODE, n)], 0),
    "Chinese to a good tokenizer": ([(each, 12 * n) for n in (5, 100) for each in prompts(CHINESE, n)], 0),
    "Hindi": ([(each, 12 * n) for n in (5, 100) for each in prompts(HINDI, n)], 0),
    "rules and blanks": ([(each, 50 + n) for n in (5, 100) for each in prompts(RULED, n)], 0),
    "no count": ([(each, 0) for each in prompts(PROSE, 100, 200)], 0),
    "always the same small count": ([(each, 11) for each in prompts(PROSE, 5, 100, 200, 300)], 0),
    "only what was not cached": (
        [
            ([{"role": "user", "content": PROSE * 90 + each}], t)
            for each, t in (("", 1620), (CODE * 3, 120), (PAGE, 40))
        ],
        0,
    ),
    "thoughts of earlier turns left out": (
        [([{"role": "user", "content": PROSE}, {"role": "assistant", "content": PROSE * 90}], 40)],
        0,
    ),
    "two prompts of one count by chance": ([(each, 90) for each in prompts(PROSE, 4, 6)], 0),
    "the same prompt again and again": ([(each, 90) for each in prompts(PROSE, 5, 5, 5, 5, 5)], 0),
}


def test_a_prompt_that_was_cut_is_found_and_no_other(subtests):
    for name, (calls, wanted) in CUT.items():
        watch = PromptWatch()
        found = [watch.cut(messages, read) for messages, read in calls]
        with subtests.test(name):
            assert sum(map(bool, found)) == wanted, found


def test_cached_tokens_that_are_counted_apart_are_no_cut(serve):
    server = serve(lambda request, n: (200, completion("hi", usage=usage(prompt=40, cached=9000))))
    model = LiteLLMModel(model="hosted_vllm/m", api_base=server.url, attempts=1)
    assert model.chat(Request(messages=prompts(PROSE, 300)[0], role="agent")).prompt_cut == 0
    model.close()


def test_the_lower_bound_counts_words_numbers_and_signs():
    assert least_tokens('It isn\'t 12.50: foo.bar(x) == "y"') == 13
    assert least_tokens("") == least_tokens(" \n\t ") == 0


def ollama(window):
    def answer(request, n):
        if "messages" not in request:  # /api/show
            return 200, {"model_info": {}, "template": "", "parameters": "", "capabilities": ["completion"]}
        tokens = sum(len(each["content"]) for each in request["messages"]) // 4
        read = min(tokens, (request.get("options") or {}).get("num_ctx", window))
        message = {"role": "assistant", "content": said_to(request)}
        body = {"model": "m", "created_at": "2024-01-01T00:00:00Z", "message": message, "done": True}
        return 200, body | {"done_reason": "stop", "prompt_eval_count": read, "eval_count": 9}

    return answer


def v1(window):
    def answer(request, n):
        read = min(window, sum(len(each["content"]) for each in request["messages"]) // 4)
        return 200, completion(said_to(request), usage=usage(read, 9, read + 9))

    return answer


def served(server, option):
    if option == "ollama":
        return ("llm=ollama", "llm.model=ollama_chat/m", f"llm.api_base={server.url.removesuffix('/v1')}")
    return ("llm=vllm", f"llm.api_base={server.url}")


@pytest.mark.parametrize("option", ["ollama", "vllm"])
def test_a_run_counts_and_names_the_prompts_that_its_server_cut(serve, here, sums, option, caplog):
    caplog.set_level(logging.INFO)
    server = serve((ollama if option == "ollama" else v1)(64))
    run_dir, _ = here(*sums, *served(server, option))
    summary = read_json(run_dir / "summary.json")
    calls = [json.loads(line) for line in (run_dir / "calls.jsonl").read_text().splitlines()]
    cut = [call for call in calls if call.get("prompt_cut")]
    assert summary["n_prompts_cut"] == len(cut) >= 12  # of judge and distiller: those of the agent are short
    assert {call["role"] for call in cut} >= {"judge", "extractor"}
    assert all(call["usage"]["prompt_tokens"] == 64 < call["prompt_cut"] for call in cut)
    found = audit(read_run(run_dir))
    assert found["broken"] == {}
    assert any("llm.num_ctx" in line and "of the extractor" in line for line in found["look"]["cut_prompts"])
    said = [record.getMessage() for record in caplog.records if "num_ctx" in record.getMessage()]
    assert len(said) == 1 and "n_prompts_cut" in said[0]  # once, though every call was cut


def test_num_ctx_is_sent_to_ollama_and_mends_it(serve, here, sums):
    server = serve(ollama(64))
    run_dir, _ = here(*sums, *served(server, "ollama"), "llm.num_ctx=8192")
    chats = [request for request in server.requests if "messages" in request]
    assert {request["options"]["num_ctx"] for request in chats} == {8192}
    assert read_json(run_dir / "summary.json")["n_prompts_cut"] == 0
    assert read_json(run_dir / "manifest.json")["models"]["judge"]["sent"]["num_ctx"] == 8192
    assert audit(read_run(run_dir))["look"].get("cut_prompts") is None
    assert len(read_rows(run_dir)) == 6


def test_num_ctx_elsewhere_is_refused_with_what_helps():
    with pytest.raises(UserError, match="llm.num_ctx=8192: hosted_vllm/m .*OLLAMA_CONTEXT_LENGTH"):
        LiteLLMModel(model="hosted_vllm/m", api_base="http://127.0.0.1:9/v1", num_ctx=8192)
    with pytest.raises(UserError, match="num_ctx=0"):
        LiteLLMModel(model="ollama_chat/m", api_base="http://127.0.0.1:9", num_ctx=0)
