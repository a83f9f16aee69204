"""What a sweep costs, before it: a line before it starts, and with dry_run=true a table of its cells in its place."""

from __future__ import annotations

import re

import forkserver
import pytest
from conftest import REPO, TOY, command
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from core.run.sweep import planned
from envs.toy import ToyEnv
from workflows.plan_sweep import in_one_line, plan_sweep

SWEEP = ("-m", *TOY, "arm=no_memory,reasoningbank", "seed=0,1", "limit=4", "max_steps=1")
PRICED = ("llm=vllm", "llm.api_base=http://localhost:1/v1", "llm.model=openai/none")
PRICE = "llm.price_per_mtok={prompt: 1.0, completion: 2.0}"


def start(*words, cwd):
    return forkserver.run(command(*words), cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


def estimated(done):
    [line] = [line for line in done.stdout.splitlines() if line.startswith("estimate:")]
    return line


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """(folder, what the sweep printed) of four finished cells."""
    folder = tmp_path_factory.mktemp("estimate")
    done = start(*SWEEP, f"run_dir={folder / 'sweep'}", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "sweep", done


def rows_of(text):
    """{first cells of a row of the sweep's table: its numbers}."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows if len(row) > 4}


def test_a_line_before_a_sweep_counts_its_calls(sweep):
    # no_memory: 4 tasks x 1 step; reasoningbank: agent, judge and extractor of each; one call in 20 again; two seeds.
    assert estimated(sweep[1]).startswith("estimate: 4 cells; 32 to 34 calls, ")
    assert "at once" not in sweep[1].stdout  # no server plays it
    assert estimated(sweep[1]).endswith(" tokens, 0.0000 to 0.0000 USD. dry_run=true says how.")


def test_a_dry_run_of_a_sweep_is_one_table_and_each_kind_of_prompt_once(tmp_path):
    done = start(*SWEEP, *PRICED, PRICE, "env=toy,toy_chance", "dry_run=true", "run_dir=here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [done.stdout.count(f"{role}: first prompt, ") for role in ("agent", "judge", "extractor")] == [2, 1, 1]
    assert done.stdout.count("at most: 1 steps in an attempt, 0 or 300 tokens of lessons in a prompt, ") == 1
    found = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines() if "  2  " in line]
    assert [row[:2] for row in found] == [
        [env, arm] for env in ("toy", "toy_chance") for arm in ("no_memory", "reasoningbank")
    ]
    total, least = rows_of(done.stdout)["total"], rows_of(done.stdout)["at least"]
    assert total[:2] == ["8", "68"] and least[:2] == ["8", "64"]
    assert float(total[3]) == pytest.approx(sum(float(row[5]) for row in found), abs=2e-4)
    assert float(total[3]) > float(least[3]) > 0
    assert not (tmp_path / "here").exists()  # no job was started
    assert "Launching" not in done.stdout


def test_an_unknown_price_is_said_and_not_nothing(tmp_path):
    done = start(*SWEEP, *PRICED, "dry_run=true", cwd=tmp_path)
    assert rows_of(done.stdout)["total"][-1] == "unknown"


def test_a_cell_that_cannot_be_planned_is_named_and_the_others_are(tmp_path):
    done = start(*SWEEP, "k=0,null", "dry_run=true", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.count("k=0: give a whole number of at least 1.") == 3  # the first line has one
    assert rows_of(done.stdout)["total"][:2] == ["8", "34"]


def test_the_line_names_what_could_not_be_estimated_and_begins_no_task(compose, monkeypatch):
    monkeypatch.setattr(ToyEnv, "_reset", lambda *_: pytest.fail("a task was begun"))
    words = ["env=toy", "llm=scripted", "embedder=hashing", "arm=no_memory", "limit=3", "max_steps=1", "seed=0,1"]
    with initialize_config_dir(str(REPO / "config"), version_base="1.3", job_name="main"):
        hydra = GlobalHydra.instance().hydra
        config = hydra.compose_config("config", ["run_dir=nowhere", *words], RunMode.MULTIRUN)
        assert "2 cells; 6 to 6 calls, " in in_one_line(plan_sweep(config, planned(config, words), begin=False))
        said = in_one_line(plan_sweep(config, planned(config, [*words, "k=0,null"]), begin=False))
    assert "4 cells; 6 to 6 calls, " in said and "without 2 of them, which could not be estimated (k=0: give a" in said


def test_lessons_and_retries_are_counted(here, capsys):
    def total(*words):
        here(*TOY, "arm=reasoningbank", "limit=5", "max_steps=2", "dry_run=true", *words)
        out = capsys.readouterr().out
        rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines() if "│" in line]
        return {row[0]: [int(n.replace(",", "")) for n in row[2:5]] for row in rows if row[0] and row[2]}, out

    plain, said = total()
    none, _ = total("retrieval.top_k=0")
    # Each of five tasks may be shown one record of 3 lessons of 100 tokens, in both of its prompts.
    assert plain["agent"][1] - none["agent"][1] == 5 * 300 * 2
    two, _ = total("retrieval.top_k=2")
    assert two["agent"][1] - none["agent"][1] == 5 * 600 * 2
    capped, told = total("retrieval.top_k=4", "memory.max_tokens=500")
    assert capped["agent"][1] - none["agent"][1] == 5 * 500 * 2
    assert "500 tokens of lessons in a prompt" in " ".join(told.split())
    roles = [plain[role] for role in ("agent", "judge", "extractor")]
    calls = [sum(column) for column in zip(*roles, strict=True)]
    assert plain["retries"] == [round(0.05 * n) for n in calls]
    assert plain["total"] == [n + more for n, more in zip(calls, plain["retries"], strict=True)]
    assert plain["at least"] == none["at least"] and plain["at least"][0] == 3 * 5  # one step, no lessons
    assert "at most: 2 steps in an attempt, 300 tokens of lessons in a prompt, 60 of an observation" in said
    _, told = total("arm=synapse")
    assert "920 tokens of lessons in a prompt" in " ".join(told.split())  # an attempt: 2 steps of 460
