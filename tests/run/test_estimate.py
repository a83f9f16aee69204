"""What a sweep costs, before it: a line before it starts, and with dry_run=true a table of its cells in its place."""

from __future__ import annotations

import io
import re
import shutil

import forkserver
import pytest
from conftest import REPO, TOY, command, read_rows, write_rows
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf
from rich.console import Console

from envs.toy import ToyEnv
from workflows.plan_sweep import estimate_sweep

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
    assert estimated(sweep[1]).startswith("estimate: 4 cells; at most 34 calls, ")
    assert "at once" not in sweep[1].stdout  # no server plays it
    assert estimated(sweep[1]).endswith(" tokens, 0.0000 USD. dry_run=true says how.")


def test_what_is_done_costs_nothing(sweep, tmp_path):
    folder = shutil.copytree(sweep[0], tmp_path / "sweep")
    again = start(*SWEEP, f"run_dir={folder}", cwd=tmp_path)
    assert estimated(again) == "estimate: 4 cells, 4 of them finished: nothing is left to do."
    [one] = folder.glob("*no_memory*seed*1")
    shutil.rmtree(one)
    [half] = folder.glob("*reasoningbank*seed*1")
    write_rows(half, read_rows(half)[:2])
    more = start(*SWEEP, f"run_dir={folder}", "dry_run=true", cwd=tmp_path)
    found = rows_of(more.stdout)
    assert found["no_memory"][:3] == ["2", "1", "4"]  # cells, finished, calls of the one that is left
    assert found["reasoningbank"][:3] == ["2", "1", "6"]  # 12 calls in a cell, and half of one is left
    assert found["total"][:3] == ["4", "2", "10"]


def test_a_dry_run_of_a_sweep_is_one_table_and_each_kind_of_prompt_once(tmp_path):
    done = start(*SWEEP, *PRICED, PRICE, "env=toy,toy_chance", "dry_run=true", "run_dir=here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [done.stdout.count(f"{role}: first prompt, ") for role in ("agent", "judge", "extractor")] == [2, 1, 1]
    assert done.stdout.count("assumed") == 1
    assert "1 x 3 x 100 tokens (records x lessons x length); the first task none" in " ".join(done.stdout.split())
    found = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines() if "  2  " in line]
    assert [row[:2] for row in found] == [
        [env, arm] for env in ("toy", "toy_chance") for arm in ("no_memory", "reasoningbank")
    ]
    total = rows_of(done.stdout)["total"]
    assert total[:3] == ["8", "0", "68"]
    assert float(total[4]) == pytest.approx(sum(float(row[6]) for row in found), abs=2e-4) != 0
    assert not (tmp_path / "here").exists()  # no job was started
    assert "Launching" not in done.stdout


def test_an_unknown_price_is_said_and_not_nothing(tmp_path):
    done = start(*SWEEP, *PRICED, "dry_run=true", cwd=tmp_path)
    assert rows_of(done.stdout)["total"][-1] == "unknown"


def test_a_cell_that_cannot_be_planned_is_named_and_the_others_are(tmp_path):
    done = start(*SWEEP, "k=0,null", "dry_run=true", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.count("k=0: give a whole number of at least 1.") == 2
    assert rows_of(done.stdout)["total"][:3] == ["8", "0", "34"]


def test_it_never_stops_a_sweep():
    console = Console(width=200, file=io.StringIO())
    estimate_sweep(OmegaConf.create({"hydra": {}}), ["seed=0,1"], console)
    assert console.file.getvalue().startswith("estimate: not possible (")


@pytest.mark.parametrize(
    ("limit", "said"), [("3", "at most 6 calls, "), ("null", "only its engine knows how many tasks")]
)
def test_no_engine_is_started_for_the_line(compose, monkeypatch, limit, said):
    words = [
        "env=toy",
        "llm=scripted",
        "embedder=hashing",
        "arm=no_memory",
        f"limit={limit}",
        "max_steps=1",
        "seed=0,1",
    ]
    monkeypatch.setattr(ToyEnv, "slow_to_list", True)
    monkeypatch.setattr(ToyEnv, "_tasks", lambda *_: pytest.fail("the engine was asked"))
    monkeypatch.setattr(ToyEnv, "_reset", lambda *_: pytest.fail("a task was begun"))
    console = Console(width=200, file=io.StringIO())
    with initialize_config_dir(str(REPO / "config"), version_base="1.3", job_name="main"):
        hydra = GlobalHydra.instance().hydra
        config = hydra.compose_config("config", ["run_dir=nowhere", *words], RunMode.MULTIRUN)
        estimate_sweep(config, words, console)
    assert said in console.file.getvalue()


def test_lessons_and_retries_are_counted(here, capsys):
    def total(*words):
        here(*TOY, "arm=reasoningbank", "limit=5", "max_steps=2", "dry_run=true", *words)
        out = capsys.readouterr().out
        rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines() if "│" in line]
        return {row[0]: [int(n.replace(",", "")) for n in row[2:5]] for row in rows if row[0] and row[2]}, out

    plain, said = total()
    none, _ = total("retrieval.top_k=0")
    # Four of five tasks are shown one record of 3 lessons of 100 tokens, in both of their prompts.
    assert plain["agent"][1] - none["agent"][1] == 4 * 3 * 100 * 2
    two, _ = total("retrieval.top_k=2")
    assert two["agent"][1] - none["agent"][1] == (1 + 2 + 2 + 2) * 3 * 100 * 2
    capped, told = total("retrieval.top_k=4", "memory.max_tokens=500")
    assert capped["agent"][1] - none["agent"][1] == (300 + 500 + 500 + 500) * 2
    assert "500 at most" in " ".join(told.split())
    roles = [plain[role] for role in ("agent", "judge", "extractor")]
    calls = [sum(column) for column in zip(*roles, strict=True)]
    assert plain["retries"] == [round(0.05 * n) for n in calls]
    assert plain["total"] == [n + more for n, more in zip(calls, plain["retries"], strict=True)]
    for line in ("steps of an attempt 2", "a reply of the agent 400 tokens", "retries 5 % of all calls"):
        assert line in " ".join(said.split())
    _, told = total("arm=synapse")
    assert "1 x 1 x 920 tokens (records x whole attempts x length)" in " ".join(told.split())  # 2 steps of 460
