"""The user's own mistakes: one clear message, no traceback, nothing lost."""

from __future__ import annotations

import re

import pytest
from conftest import TOY, read_json, read_rows

from core.errors import UserError
from envs.single_turn import MathEnv


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("+limmit=3",), "unknown key limmit"),
        (("+env.familys=3",), "familys"),
        (("+roles.agent.top_p=1",), "top_p"),
        (("limit=0",), "limit=0"),
        (("limit=many",), "limit=many"),
        (("seed=-1",), "seed=-1"),
        (("max_concurrency=0",), "max_concurrency=0"),
        (("k=3",), "k=3"),
        (("judge=oracle",), "judge=oracle knows the answers"),
        (("setting=frozen",), "give memory.path=BANK"),
        (("setting=frozen", "memory.path=nobank.sqlite"), "does not exist"),
        (("setting=frozen", "bank=own", "banks={own: nobank.sqlite}"), "memory.path=nobank.sqlite does not exist"),
        (("setting=frozen", "dry_run=true"), "give memory.path=BANK"),
        (("bank=owm", "banks={own: nobank.sqlite}"), "bank=owm: banks has own"),
        (("memory.path=/proc/nowhere/bank.sqlite",), "the folder /proc/nowhere cannot be made: "),
        (("workflow.learn_from=nothing",), "learn_from=nothing"),
        (("llm=openai",), "OPENAI_API_KEY"),
        (("llm=local", "llm.model_path=no.gguf"), "no.gguf does not exist"),
        (("embedder=openai",), "OPENAI_API_KEY"),
        (("retrieval.top_k=-1",), "retrieval.top_k"),
        (("env=math500",), "math500"),
        (("env=math500", "env.path=missing.jsonl"), "missing.jsonl"),
        (("env.families=0",), "no tasks"),
        (("retrieval.min_score=abc",), "min_score='abc'"),
        (("memory.allow_self=nope",), "allow_self='nope'"),
        (("memory.namespace=null",), "namespace=None"),
        (("roles.judge.temperature=hot",), "temperature='hot'"),
        (("+roles.selectr.temperature=0",), "unknown role selectr"),
        (("+embedder.inner.foo=1",), "foo"),
        (("setting.use_gold=true",), "setting.name=test_time cannot go with"),
        (("setting=frozen", "setting.learn=true"), "setting.name=frozen cannot go with"),
        (("env=warmup",), "llm=scripted plays env=toy and nothing else"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_gets_one_clear_message(here, monkeypatch, words, said):
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(UserError, match=re.escape(said)) as error:
        here(*TOY, *words)
    assert len(str(error.value).splitlines()) <= 40


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("env=nowhere", "error: env=nowhere: there is no such option. Choose aime24, "),
        ("judge=oracle", "error: judge=oracle knows the answers"),
    ],
)
def test_a_run_ends_with_the_message_alone(main_here, word, said):
    status, _, errors = main_here(*TOY, word)
    assert status == 1 and said in errors and "Traceback" not in errors


def test_a_file_that_is_no_model_is_one_sentence(cli, tmp_path):
    (tmp_path / "bad.gguf").write_text("this is no model")
    done = cli(*TOY, "llm=local", "llm.model_path=bad.gguf")
    assert done.returncode == 1
    assert "bad.gguf cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr


DATASETS = {
    "empty.jsonl": ("", "empty"),
    "torn.jsonl": ('{"id": "a", "question": "1+1", "answer": "2"}\n{"id": "b", "quest', "line 2"),
    "field.jsonl": ('{"id": "a", "question": "1+1"}\n', "answer"),
    "twice.jsonl": ('{"id": "a", "question": "1+1", "answer": "2"}\n' * 2, "a"),
    "binary.jsonl": (b"\xff\xfe\x00\x01" * 50, "binary.jsonl"),
}


@pytest.mark.parametrize("name", DATASETS)
def test_a_bad_dataset_is_named(tmp_path, name):
    content, said = DATASETS[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=said):
        MathEnv(dataset="math500", path=str(tmp_path / name), instructions="", max_steps=1).tasks()


def test_a_damaged_embedding_cache_is_named(cli, tmp_path):
    (tmp_path / "outputs/.cache").mkdir(parents=True)
    (tmp_path / "outputs/.cache/embeddings.sqlite").write_text("no database " * 100)
    done = cli(*TOY, "embedder=minilm")
    assert done.returncode == 1
    assert "the embedding cache outputs/.cache/embeddings.sqlite cannot be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bank_of_another_embedder_stops_before_any_task(here, tmp_path):
    bank = here(*TOY, "limit=1", run_dir=tmp_path / "one")[0] / "bank.sqlite"
    with pytest.raises(UserError, match="'hashing-256'.*'hashing-64'"):
        here(*TOY, "embedder.inner.dim=64", f"memory.path={bank}", run_dir=tmp_path / "two")


@pytest.mark.parametrize(
    ("words", "starts"), [(("memory.path=b.sqlite",), 5), (("bank=own", "banks={own: b.sqlite}"), 2)]
)
def test_a_run_says_where_it_makes_a_bank_and_which_part_of_a_bank_is_empty(main_here, words, starts):
    new = "note: memory.path=b.sqlite does not exist: a new bank is made there."
    empty = "note: memory.path holds no lesson in memory.namespace=team."
    notes = []
    team = "memory.namespace=team"
    for more in [("dry_run=true",), (), (), (team, "setting=frozen"), (team,)][:starts]:
        status, said, errors = main_here(*TOY, "limit=2", *words, *more)
        assert status == 0, errors
        notes.append([line for line in said.splitlines() if line.startswith("note: memory.path")])
    assert notes == [[new], [new], [], [empty], [empty]][:starts]


class Says:
    """A script that answers the same to everyone."""

    def __init__(self, text):
        self.text = text

    def __call__(self, messages, role, sample):
        return self.text


@pytest.mark.parametrize("text", ["   \n ", "garbage \ud800 \x00 {{ x }} {% %} </memory_items>", "Action: say " * 999])
def test_a_model_that_answers_nothing_or_garbage_is_counted(here, monkeypatch, text):
    monkeypatch.setattr("envs.toy_script.play", Says(text))
    run_dir, rate = here(*TOY, "limit=6")
    summary = read_json(run_dir / "summary.json")
    assert rate == 0.0
    assert summary["n"] == 6
    assert summary["n_infra_error"] == 0
    assert summary["n_verdicts_unparsed"] == 6
    assert summary["n_lessons"] == 0
    if not text.strip():
        assert summary["n_empty_replies"] == 6 * 5
        assert summary["n_step_limit"] == 6
    assert len(read_rows(run_dir)) == 6
