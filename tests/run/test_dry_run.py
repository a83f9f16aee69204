"""dry_run=true says what a run would do; Ctrl-C ends one whatever hangs."""

from __future__ import annotations

import json
import signal
import subprocess
import threading

import forkserver
import pytest
from conftest import TOY, command
from provider import Provider

from core.build import ROLES
from core.models.base import Role
from workflows.plan import Listener, Plan


def test_it_shows_roles_prompts_calls_and_cost_and_calls_nobody(cli, tmp_path):
    server = Provider(lambda request, n: (500, {}))
    price = "llm.price_per_mtok={prompt: 1.0, completion: 2.0}"
    more = ("env=toy", "llm=vllm", f"llm.api_base={server.url}", "limit=10", "max_steps=1", price, "run_dir=run")
    done = cli(*more, "dry_run=true")
    server.close()
    assert done.returncode == 0, done.stderr
    assert server.requests == []
    assert not (tmp_path / "run" / "manifest.json").exists()
    for words in ("agent: first prompt, system", "judge: first prompt", "extractor: first prompt", "temperature=0.7"):
        assert words in done.stdout
    assert "You open locked boxes" in done.stdout  # the env's own instructions
    [agent] = [line for line in done.stdout.splitlines() if line.startswith("│ agent")]
    cells = [cell.strip().replace(",", "") for cell in agent.strip("│").split("│")]
    calls, prompt, reply, usd = int(cells[2]), int(cells[3]), int(cells[4]), float(cells[5])
    assert (calls, reply) == (10, 4000)
    assert usd == round((prompt * 1.0 + reply * 2.0) / 1e6, 4) > 0


def test_it_needs_no_key_and_says_which_one_is_missing(cli):
    done = cli("env=toy", "llm=openai", "dry_run=true", env={"OPENAI_API_KEY": ""})
    assert done.returncode == 0
    assert "to run it: openai/gpt-4o-mini needs a key in the environment variable OPENAI_API_KEY" in " ".join(
        done.stdout.split()
    )


def test_it_begins_with_what_matters_and_shows_each_kind_of_answer(here, tmp_path, capsys):
    rows = [
        {"question": "How many sides has a cube?", "answer": "6"},
        {"question": "How many legs has an ant?", "answer": "6"},
        {"question": "Which is a fruit?", "options": ["stone", "apple"], "answer": "B"},
    ]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("env=questions", f"env.path={tmp_path / 'mine.jsonl'}", "llm=free", "embedder=hashing")
    here(*words, "dry_run=true")
    said = capsys.readouterr().out
    first = said.splitlines()
    assert first[0] == "3 tasks, their answers taken for: 2 number (6), 1 letter (B)"
    assert first[1].startswith("9 to 9 calls, ") and first[2].startswith("ready to run, with free")
    assert "How many sides" in said and "Which is a fruit" in said and "How many legs" not in said
    assert "an answer taken for letter" in said


def test_without_memory_only_the_agent_is_asked(cli):
    done = cli(*TOY, "workflow=vanilla", "dry_run=true")
    assert "agent: first prompt" in done.stdout
    assert "judge" not in done.stdout


def test_the_prompts_are_those_of_the_runs_own_parts(here, capsys):
    shown = {}
    for words in ("workflow=reasoningbank", "workflow=matts_sequential", "memory=awm"):
        here(*TOY, words, "limit=1", "dry_run=true")
        shown[words] = capsys.readouterr().out.split("extractor: first prompt")[1]
    assert "After check 1:\n(the attempt will stand here)" in shown["workflow=matts_sequential"]
    assert "You write down the workflows" in shown["memory=awm"]
    assert len(set(shown.values())) == 3


SCALED = {  # {words: the calls of each role in a run of one task}
    "workflow=matts_parallel k=5": {"agent": 5, "judge": 5, "extractor": 1, "selector": 1},
    "workflow=matts_parallel k=5 contrast=null": {"agent": 5, "judge": 5, "extractor": 5, "selector": 1},
    "workflow=matts_parallel k=5 memory=none": {"agent": 5, "selector": 1},
    "workflow=matts_parallel k=5 memory=none select=judge": {"agent": 5, "judge": 5},
    "memory=synapse": {"agent": 1, "judge": 1},
    "workflow=matts_sequential r=2": {"agent": 3, "judge": 3, "extractor": 1},
}


def test_scaling_is_counted_and_what_is_read_of_it(here, capsys, subtests):
    def planned(words):
        """({role: calls}, {role: tokens of its prompts})"""
        here(*TOY, *words.split(), "max_steps=2", "limit=1", "retrieval.top_k=0", "dry_run=true")
        rows = [line.strip("│").split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│ ")]
        found = {
            row[0].strip(): [int(cell.replace(",", "")) for cell in row[2:4]] for row in rows if row[0].strip() in ROLES
        }
        calls = {role: n // 2 if role == "agent" else n for role, (n, _) in found.items()}
        return calls, {role: read for role, (_, read) in found.items()}

    _, alone = planned("workflow=reasoningbank")
    for words, calls in SCALED.items():
        with subtests.test(words):
            counted, prompts = planned(words)
            assert counted == calls
            assert prompts["agent"] >= calls["agent"] * alone["agent"]
            if calls.get("extractor") == 1:
                assert prompts["extractor"] > 2 * alone["extractor"]


def test_ctrl_c_ends_a_run_whose_server_never_answers(tmp_path):
    arrived, release = threading.Event(), threading.Event()

    def hang(request, n):
        arrived.set()
        release.wait(60)
        return 500, {}

    server = Provider(hang)
    more = ("env=toy", "workflow=vanilla", "max_concurrency=4", "llm=vllm", f"llm.api_base={server.url}", "run_dir=run")
    process = forkserver.Popen(
        command(*more, "embedder=hashing"), cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert arrived.wait(60)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=50)  # the server hangs for 60 s
    release.set()
    server.close()
    assert process.returncode == 130
    assert error.strip().splitlines()[-1] == "stopped."  # nothing is recorded: the same command begins it


def test_of_observations_only_those_are_counted_that_a_prompt_keeps():
    """By hand: 3 steps, a first prompt of 100 tokens, replies of 400, observations of 4000."""

    def plan(steps=3, kept=1, unseen=True):
        prompts = {
            "agent": [[{"role": "user", "content": "x" * 400}]],
            "judge": [[{"role": "user", "content": "x" * 400}]],
        }
        roles = {
            name: Role(name=name, llm=Listener(name="m", supports_schema=False), temperature=0, max_tokens=None)
            for name in prompts
        }
        keys = {"observation": 4000, "kept": kept, "unseen": unseen}
        return Plan(n_tasks=1, steps=steps, roles=roles, asked=prompts, **keys)

    assert plan().estimate("agent").prompt_tokens == 3 * (100 + 4000) + (400 + 2 * 400)
    assert plan(unseen=False).estimate("agent").prompt_tokens == 3 * 100 + (400 + 2 * 400)  # the first prompt has it
    assert plan(kept=2).estimate("agent").prompt_tokens == 3 * (100 + 4000) + (4400 + 4800)
    assert plan(kept=None, unseen=False).estimate("agent").prompt_tokens == 3 * 100 + (4400 + 2 * 4400)
    assert plan().estimate("agent", least=True).prompt_tokens == 100 + 4000
    assert plan().estimate("judge").prompt_tokens == 100 + 3 * 400 + 4000
    assert plan(kept=None).estimate("judge").prompt_tokens == 100 + 3 * 4400
    assert plan().estimate("judge", least=True).prompt_tokens == 100 + 400 + 4000


def test_a_sweep_over_webarena_is_priced_without_its_sites(cli):
    pytest.importorskip("webarena_verified")
    words = ("experiment=main_table", "env=webarena", "env.site=reddit", "arm=no_memory,reasoningbank", "seed=0,1")
    done = cli(*words, "llm=openai", "embedder=hashing", "dry_run=true")
    assert done.returncode == 0, done.stderr
    assert "4000 of an observation" in done.stdout
    [line] = [line for line in done.stdout.splitlines() if line.startswith("no_memory ")]
    calls, tokens = (int(cell.replace(",", "")) for cell in line.split()[2:4])
    assert calls == 2 * round(106 * 30 * 1.05) and 2 * 106 * 30 * 4400 < tokens < 2 * 106 * 30 * 12_000
