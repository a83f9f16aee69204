"""A sweep grows in any order and pays only for what is new; it refuses what it is not, and says what is not whole."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter

import forkserver
import pytest
from conftest import TOY, command, read_json, read_rows
from provider import completion

from analysis.runs import read_run
from core.errors import UserError
from core.run.cells import cell_name, safe
from core.run.launch import quoted
from core.run.sweep_watch import Cell, Watch, duration, leave_mark, n_finished, read_cells
from core.types import Usage
from envs.toy_script import play
from scripts.tables import main as tables

ROLES = {0.7: "agent", 0.0: "judge", 1.0: "extractor"}  # by the temperature of each


def apart(*words, cwd):
    """As `main_here`, in a process of its own; without the first line of what it complained of."""
    done = forkserver.run(command(*words), cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout, done.stderr.removeprefix("loading the configuration ...\n")


def cells(folder):
    return sorted(path.parent.name for path in folder.glob("*/manifest.json"))


def test_a_sweep_grown_from_1_x_1_to_2_x_2_pays_for_each_call_once(main_here, serve, tmp_path):
    """Counted by the server: the requests of two starts are those of one sweep that was whole from the start."""

    def answer(request, number):
        asked.append(json.dumps(request, sort_keys=True))
        text = play(request["messages"], ROLES[request["temperature"]], 0)
        return 200, completion(text)

    server = serve(answer)
    model = ("llm=vllm", "llm.model=hosted_vllm/m", f"llm.api_base={server.url}", "llm.json_schema=false")
    words = ("-m", "env=toy", "embedder=hashing", *model)
    large = ("arm=matts_sequential,reasoningbank", "seed=1,0", "limit=2", "r=1")
    paid = []
    for more in (("arm=reasoningbank", "seed=0", "limit=1"), large):
        asked = []
        code, said, errors = main_here(*words, *more, "run_dir=grown")
        assert code == 0, errors
        paid.append(asked)
    assert said.count("   1 new\n") == 1  # of the cell that was there
    assert said.count("eight at once: hydra/launcher=joblib hydra.launcher.n_jobs=8") == 1
    asked = []
    assert main_here(*words, *large, "run_dir=whole")[0] == 0
    assert Counter(request for each in paid for request in each) == Counter(asked)
    assert len(paid[0]) == 3 and len(asked) == 32  # of reasoningbank 3 calls a task, of checks 5
    assert cells(tmp_path / "grown") == cells(tmp_path / "whole")
    assert len(cells(tmp_path / "grown")) == 4
    for name in cells(tmp_path / "whole"):
        grown, whole = ((tmp_path / sweep / name / "episodes.jsonl").read_bytes() for sweep in ("grown", "whole"))
        assert grown == whole


def name_of(compose, monkeypatch, *words, typed=None):
    """The folder of the cell that these words make, in the sweep of the words `typed`."""
    monkeypatch.setattr("sys.argv", ["main.py", *(typed or words)])
    return cell_name(compose(*words, "hydra.mode=MULTIRUN"))


def test_the_time_left_counts_the_calls_of_each_arm(tmp_path):
    """Two arms of 4 tasks, 1 and 3 calls each; the first is done, the other's first seed half: 6 + 12 + 4 are left."""
    planned = [[f"arm={arm}", f"seed={seed}"] for seed in (0, 1) for arm in ("one", "three")]
    watch = Watch(tmp_path, tmp_path, planned, "again", "")
    spent = {"n_tasks": 4, "folder": tmp_path}
    watch._cells[0] = Cell(number=0, state="done", n_done=4, n_new=4, spent=Usage(calls=4), **spent)
    watch._cells[1] = Cell(number=1, n_done=2, n_new=2, spent=Usage(calls=6), **spent)
    assert watch._time_left(100.0) == "  about 4 min left"  # 100 s for 10 calls, so 220 s for 22
    for seconds, said in {7.4: "7 s", 99: "99 s", 101: "2 min", 5_900: "98 min", 12_000: "3 h 20 min"}.items():
        assert duration(seconds) == said


def test_a_folder_says_what_its_cell_is(compose, monkeypatch):
    def name(*words, **typed):
        return name_of(compose, monkeypatch, *words, **typed)

    assert name("arm=reasoningbank", "env=toy", "seed=1") == "arm=reasoningbank,env=toy,seed=1"
    assert name("workflow=vanilla") == "workflow=vanilla,env=warmup,seed=0"
    both = ["arm=no_memory,matts_parallel", "k=1,5", "llm=scripted"]
    assert name("arm=matts_parallel", "k=5", "llm=scripted", typed=both) == (
        "arm=matts_parallel,env=warmup,k=5,llm=scripted,seed=0"
    )
    assert name("arm=no_memory", "k=5", "llm=scripted", typed=both) == "arm=no_memory,env=warmup,llm=scripted,seed=0"
    swept = ["retrieval.top_k=1,2", "seed=0,1", "limit=3"]
    assert name("retrieval.top_k=2", "seed=1", "limit=3", typed=swept) == (
        "workflow=reasoningbank,env=warmup,retrieval.top_k=2,seed=1"
    )
    assert name("experiment=top_k", "arm=reasoningbank", "retrieval.top_k=4", "seed=1") == (
        "arm=reasoningbank,env=warmup,retrieval.top_k=4,seed=1"
    )
    only = ["env=toy,warmup", "+toy.p_word=0.5,1.0"]
    assert name("env=toy", "+toy.p_word=0.5", typed=only) == "workflow=reasoningbank,env=toy,toy.p_word=0.5,seed=0"
    assert name("env=warmup", "+toy.p_word=0.5", typed=only) == "workflow=reasoningbank,env=warmup,seed=0"


def test_no_two_values_make_one_folder_and_every_folder_can_be_made(tmp_path):
    texts = ["", *"openai/gpt openai-gpt openai:gpt a,b=c a-b-c .. é ~ a~b".split(), "x" * 300, "x" * 301]
    made = [safe(text, 60) for text in texts]
    assert len(set(made)) == len(texts)
    for name in made:
        (tmp_path / f"k={name}").mkdir()
    assert safe("gpt-4o_mini.2", 60) == "gpt-4o_mini.2"
    assert safe("openai/gpt", 60).startswith("openai-gpt~")


def test_a_run_keeps_the_name_that_it_was_made_under(main_here, tmp_path):
    """strong_extractor without a stronger model is reasoningbank: each keeps its own run, and this is said."""
    words = ("-m", *TOY, "limit=1", "seed=0", "run_dir=S")
    assert main_here(*words, "arm=reasoningbank")[0] == 0
    code, said, _ = main_here(*words, "arm=strong_extractor,reasoningbank")
    assert code == 0
    assert "arm=strong_extractor and arm=reasoningbank are one configuration here: a table has one row" in said
    found = {name: read_run(tmp_path / "S" / name).arm for name in cells(tmp_path / "S")}
    assert found == {f"arm={arm},env=toy,llm=scripted,seed=0": arm for arm in ("reasoningbank", "strong_extractor")}
    [name, _] = sorted(found)
    code, _, errors = main_here(*TOY, "limit=1", "arm=strong_extractor", f"run_dir=S/{name}")
    assert code == 1 and "holds a run of arm=reasoningbank, of which arm=strong_extractor has the config" in errors
    assert read_run(tmp_path / "S" / name).arm == "reasoningbank"


def test_what_a_sweeper_adds_to_a_cell_is_in_its_name(compose, monkeypatch):
    """As experiment=verdict does, whose command has neither word."""
    added = ("arm=top_3", "retrieval=placebo", "seed=1")
    assert name_of(compose, monkeypatch, *added, typed=["experiment=verdict"]) == (
        "arm=top_3,env=warmup,retrieval=placebo,seed=1"
    )


def test_a_value_with_an_equals_sign_is_quoted_as_hydra_wants_it():
    cell = "S/arm=no_memory,env=toy,seed=0"
    plain = ["-m", "env=toy", 'x="a=b"', "y={a:1}", "--config-dir=c"]
    assert quoted([*plain, f"run_dir={cell}", f"+memory.path={cell}/b"]) == [
        *plain,
        f'run_dir="{cell}"',
        f'+memory.path="{cell}/b"',
    ]


def test_a_cell_goes_on_alone_and_its_bank_is_read_by_its_path(main_here, tmp_path):
    words = (*TOY, "limit=2", "arm=reasoningbank")
    assert main_here("-m", *words, "seed=0", "run_dir=S")[0] == 0
    cell = "S/arm=reasoningbank,env=toy,llm=scripted,seed=0"
    code, said, errors = main_here(*words, f"run_dir={cell}")
    assert code == 0, errors
    assert "of 2)" in said
    code, _, errors = main_here(*TOY, "limit=2", "setting=frozen", f"memory.path={cell}/bank.sqlite", "run_dir=R")
    assert code == 0, errors


def test_the_folder_of_a_sweep_is_no_run_and_that_of_a_run_is_no_sweep(main_here, tmp_path):
    assert main_here("-m", *TOY, "limit=2", "run_dir=S")[0] == 0
    assert main_here(*TOY, "limit=2", "run_dir=R")[0] == 0
    before = sorted(path.name for folder in ("S", "R") for path in (tmp_path / folder).iterdir())
    code, _, errors = main_here(*TOY, "limit=2", "run_dir=S")
    assert code == 1
    assert errors == "error: run_dir=S holds the runs of a sweep: give its command, with -m, or another run_dir.\n"
    code, _, errors = main_here("-m", *TOY, "limit=2", "run_dir=R")
    assert code == 1
    assert errors == "error: run_dir=R is the folder of a single run: leave out -m, or give another run_dir.\n"
    assert sorted(path.name for folder in ("S", "R") for path in (tmp_path / folder).iterdir()) == before


JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
SOME_FAIL = ("-m", *TOY, "arm=no_memory,reasoningbank", "judge=oracle,llm", "limit=1", "run_dir=S")


@pytest.mark.parametrize("launcher", [(), JOBLIB], ids=["basic", "joblib"])
def test_every_failed_cell_is_named_with_its_reason_once(tmp_path, launcher):
    if launcher:
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    code, said, errors = apart(*SOME_FAIL, *launcher, cwd=tmp_path)
    assert code == 1
    failed, done = (
        [f"arm={arm},env=toy,judge={judge},llm=scripted,seed=0" for arm in ("no_memory", "reasoningbank")]
        for judge in ("oracle", "llm")
    )
    assert errors.splitlines()[0] == "2 of 4 cells are not whole:"
    assert [line.strip() for line in errors.splitlines()[1:3]] == failed
    assert errors.count("judge=oracle knows the answers") == 1
    assert "to go on" not in errors  # the same command would be refused again
    assert "Error executing job" not in errors and "Traceback" not in errors
    over = [line.replace(": ", " ").split()[:2] for line in said.splitlines() if line.startswith(("done", "failed"))]
    assert sorted(over) == sorted([*(["failed", name] for name in failed), *(["done", name] for name in done)])
    assert all(" % (" in line for line in said.splitlines() if line.startswith("done"))  # what each found
    assert "success rate" not in said  # no table of a single run
    assert not list((tmp_path / "S").glob(".cells-*"))


def test_a_partial_cell_is_named_in_any_sweep(main_here, tmp_path):
    code, said, errors = main_here("-m", *TOY, "seed=0,1", "limit=3", "budget.run.calls=9", "run_dir=S")
    assert code == 1
    assert errors.splitlines()[0] == "2 of 2 cells are not whole:"
    assert "    partial, 2 of 3 tasks: its budget.run is used up" in errors.splitlines()
    assert said.count("partial   workflow=reasoningbank,env=toy,llm=scripted,seed=") == 2
    assert main_here("-m", *TOY, "seed=0,1", "limit=3", "run_dir=S")[0] == 0


@pytest.mark.parametrize("launcher", [(), JOBLIB], ids=["basic", "joblib"])
def test_ctrl_c_is_one_sentence_and_the_command(tmp_path, launcher):
    if launcher:
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    words = ("-m", *TOY, "llm.delay_s=0.1", "seed=0,1", "limit=3", *launcher, f"run_dir={tmp_path / 'S'}")
    process = forkserver.Popen(
        command(*words), stdout=-1, stderr=-1, text=True, start_new_session=True, env={**os.environ}
    )
    until = time.monotonic() + 60
    while time.monotonic() < until and not any(len(read_rows(p.parent)) for p in tmp_path.glob("S/*/episodes.jsonl")):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to every process
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    again = " ".join(words[:-1])
    assert errors.strip().splitlines()[-2:] == [
        "stopped: 0 of 2 cells are done.",
        f"to go on where it stopped: {' '.join(command())} {again} run_dir={tmp_path / 'S'}",
    ]
    assert apart(*words, cwd=tmp_path)[0] == 0
    assert [len(read_run(tmp_path / "S" / name).rows) for name in cells(tmp_path / "S")] == [3, 3]


def test_a_wrong_command_leaves_nothing(main_here, tmp_path):
    for words in (("-m", "seed=0,1"), ()):
        code, _, errors = main_here(*words, *TOY, "limit=2", "agent.max_memory_chars=abc", "run_dir=S")
        assert code == 1 and "max_memory_chars='abc': give int or None" in errors
        assert not (tmp_path / "S").exists()


def test_a_cell_that_two_sweeps_share_is_waited_for(tmp_path):
    words = command("-m", *TOY, "llm.delay_s=0.1", "limit=4", f"run_dir={tmp_path / 'S'}")
    both = [forkserver.Popen(words, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    [cell] = cells(tmp_path / "S")
    assert len((tmp_path / "S" / cell / "calls.jsonl").read_text().splitlines()) < 2 * 4 * 4
    assert sum("waiting for it" in each for each in said) == 1


def test_a_cell_that_is_there_twice_is_refused_twice_and_does_not_wait_for_itself(main_here, tmp_path):
    assert main_here("-m", *TOY, "limit=1", "run_dir=S")[0] == 0
    code, said, errors = main_here("-m", *TOY, "seed=0,0", "limit=1", "max_steps=4", "run_dir=S")
    assert code == 1 and "waiting" not in said
    assert errors.splitlines()[0] == "2 of 2 cells are not whole:"
    assert errors.count("its run_dir was made with another configuration") == 1
    assert "config.max_steps: None -> 4" in errors


def breaks(folder, console):
    raise ZeroDivisionError(f"no table of {folder}")


def test_a_table_that_breaks_hides_nothing(main_here):
    table = "hydra.callbacks.sweep.table=test_sweep_grows.breaks"
    code, _, errors = main_here("-m", *TOY, "limit=3", "budget.run.calls=9", "run_dir=S", table)
    assert code == 1
    assert "no table of S" in errors and "1 of 1 cells are not whole:" in errors


def test_a_baseline_that_no_run_has_is_refused_for_each_kind_of_table(main_here, tmp_path, capsys):
    assert main_here("-m", *TOY, "arm=no_memory,reasoningbank", "limit=2", "run_dir=S")[0] == 0
    for table in ("matrix", "main", "funnel"):
        assert tables([str(tmp_path / "S"), "--table", table, "--baseline", "no_memry"]) == 2
        assert "did you mean no_memory?" in capsys.readouterr().err


def lacks_a_library(folder, console):
    raise ModuleNotFoundError("No module named 'pandas'", name="pandas")


def test_without_the_library_of_tables_a_sweep_ends_in_one_sentence(main_here):
    table = "hydra.callbacks.sweep.table=test_sweep_grows.lacks_a_library"
    code, _, errors = main_here("-m", *TOY, "limit=1", "run_dir=S", table)
    assert code == 0 and "Traceback" not in errors
    assert "no table yet, as this needs pandas: `pip install" in errors and "reasoningbank tables S" in errors


def test_cells_that_would_be_refused_again_are_neither_tabled_nor_to_go_on(main_here):
    words = ("-m", *TOY, "run_dir=S")
    assert main_here(*words, "limit=2")[0] == 0
    code, out, errors = main_here(*words, "limit=1")
    assert code == 1 and "a run only grows" in errors
    assert "to go on" not in errors and "reasoningbank report" not in out and "Success" not in out


ENVS = ("llm=scripted", "embedder=hashing", "env=toy,toy_chance")


def test_keys_for_one_benchmark_are_its_own(main_here, tmp_path):
    words = ("-m", *ENVS, "+toy_chance.boxes_per_family=2", "+toy.limit=3", "arm=no_memory", "limit=20")
    code, _, errors = main_here(*words, "run_dir=S")
    assert code == 0, errors
    found = {name: read_json(tmp_path / "S" / name / "manifest.json") for name in cells(tmp_path / "S")}
    toy, chance = (f"arm=no_memory,env={env},llm=scripted,seed=0" for env in ("toy", "toy_chance"))
    assert {name: len(made["task_ids"]) for name, made in found.items()} == {toy: 3, chance: 8}
    alone = (*TOY, "env=toy_chance", "env.boxes_per_family=2", "arm=no_memory", "limit=20")
    assert main_here(*alone, "run_dir=R")[0] == 0
    assert read_json(tmp_path / "R" / "manifest.json")["fingerprint"] == found[chance]["fingerprint"]
    composed = (tmp_path / "S" / chance / ".hydra" / "config.yaml").read_text()
    assert "boxes_per_family: 2" in composed and "\ntoy_chance:" not in composed


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["env=toy", "+toy.boxes=3"], r"\+toy.boxes=3: env=toy has the keys .*boxes_per_family"),
        (["env=toy", "+toy=3"], r"\+toy=3: env=toy has the keys"),
        (["env=toy", "+gsm8k.path=x"], r"\+gsm8k.path: nothing here runs env=gsm8k, but toy\."),
        (["env=toy", "+tooy.limit=3"], "unknown key tooy"),
        (["env=toy", "+toy.limit=0"], "limit=0: give a whole number"),
        (["env=toy", "+alfworld.splt=generated"], r"\+alfworld.splt=generated: env=alfworld has the keys .*split"),
    ],
)
def test_a_misspelt_key_of_a_benchmark_is_refused(here, words, why):
    with pytest.raises(UserError, match=why):
        here("llm=scripted", "embedder=hashing", *words)


def test_cell_folder_finds_the_same_configuration_under_another_name(main_here, tmp_path):
    words = ("-m", *TOY, "limit=1", "run_dir=S")
    assert main_here(*words, "retrieval.top_k=1,2")[0] == 0
    before = cells(tmp_path / "S")
    code, said, _ = main_here(*words)  # top_k=1 is what it is anyway
    assert code == 0 and "retrieval.top_k=1,seed=0   0.0 % (0 of 1)   nothing new" in said
    code, said, _ = main_here(*words[:-2], "limit=1,2", "run_dir=S")  # two cells, not one that grows
    assert code == 0
    assert set(cells(tmp_path / "S")) - set(before) == {"workflow=reasoningbank,env=toy,limit=2,llm=scripted,seed=0"}


def row(**changes):
    return {"status": "success", "usage": {"agent": {"cost_usd": 0.25}, "judge": {"cost_usd": 0.5}}} | changes


def test_how_a_cell_stands_is_read_from_its_folder(tmp_path):
    """What earlier starts did is not spent again; an episode that the budget stopped is none."""
    folder, marks = tmp_path / "cell", tmp_path / "marks"
    folder.mkdir()
    marks.mkdir()
    path = folder / "episodes.jsonl"

    def write(*rows, torn=""):
        path.write_text("".join(json.dumps(each) + "\n" for each in rows) + torn)

    def look():
        read_cells(marks, found)
        return found[3].n_done, found[3].n_new, found[3].spent.cost_usd

    (folder / "manifest.json").write_text(json.dumps({"task_ids": ["a", "b", "c", "d"]}))
    write(row(), row(status="stopped"))
    leave_mark(marks, 3, folder=str(folder), before=n_finished(path), state="running")
    found = {}
    assert look() == (1, 0, 0.0)
    write(row(), row(status="failure"), torn='{"status"')
    assert look() == (2, 1, 0.75)
    assert look() == (2, 1, 0.75)
    write(row(), row(status="failure"), row(status="infra_error"), row(retries=2, usage={"agent": {"cost_usd": None}}))
    assert look() == (3, 3, None)
    assert found[3].problem == "stopped after 3 of 4 tasks"
    (folder / "summary.json").write_text(json.dumps({"complete": False, "n": 3, "n_tasks": 4}))
    leave_mark(marks, 3, state="done")
    look()
    assert not found[3].whole and found[3].problem == "partial, 3 of 4 tasks: its budget.run is used up"
