"""python -m scripts.compare, show and export on real toy runs."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import zipfile
from contextlib import suppress

import forkserver
import pytest
from conftest import read_json, read_rows, write_rows
from platformdirs import user_cache_path
from report_kit import EVIL, break_off, called, poison, rewritten, sweep_once

from analysis.inspect_log import write_eval
from analysis.runs import read_run
from core.console import Console
from scripts.show import episodes, graded

INSPECT = "0.3.285"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = sweep_once(tmp_path_factory, ("no_memory", "reasoningbank", "matts_parallel"), [0], "limit=12")
    return {path.name.partition(",")[0].removeprefix("arm="): path for path in folder.iterdir()}


@pytest.fixture
def script(program):
    """A script in a process with streams of its own; where these are not the point: `called`."""
    return lambda name, *words: program("-m", f"scripts.{name}", *words)


def test_compare_names_every_flip(runs, capsys):
    done = called(capsys, "compare", runs["no_memory"], runs["reasoningbank"])
    assert done.returncode == 0, done.stderr
    assert "B - A: +66.7 points over 12 pairs" in done.stdout
    assert "8 gained and 0 lost, McNemar's exact p = 0.0078" in done.stdout
    assert len(re.findall(r"toy/\w+/\d+ .*gained", done.stdout)) == 8
    assert "workflow._target_: 'workflows.vanilla.Vanilla' -> 'workflows.reasoningbank.ReasoningBank'" in done.stdout
    back = called(capsys, "compare", runs["reasoningbank"], runs["no_memory"], "--all")
    assert "B - A: -66.7 points" in back.stdout
    assert len(re.findall(r"toy/\w+/\d+ ", back.stdout)) == 12


def test_compare_wants_one_run_with_episodes(runs, tmp_path, capsys):
    done = called(capsys, "compare", runs["no_memory"].parent, runs["reasoningbank"])
    assert done.returncode == 2
    assert "holds 3 runs" in done.stderr
    empty = shutil.copytree(runs["no_memory"], tmp_path / "empty")
    write_rows(empty, [])
    done = called(capsys, "compare", empty, runs["reasoningbank"])
    assert (done.returncode, done.stderr) == (2, "error: there is nothing to compare: a run has no finished episode.\n")


def test_show_lists_and_filters(runs, capsys):
    listed = {(): 12, ("--status", "failure"): 4, ("--type", "amber"): 3, ("--flag",): 0}
    for words, n in listed.items():
        assert called(capsys, "show", runs["reasoningbank"], *words).stdout.count("toy/") == n, words


def test_show_says_what_was_asked_graded_and_why(runs, capsys):
    said = called(capsys, "show", runs["reasoningbank"]).stdout
    row = read_rows(runs["reasoningbank"])[0]
    assert row["query"][:20] in said and "lessons: " in said and "judge: right in " in said
    attempt = {"info": {"stated": False, "kind": "number", "rule": "last"}, "steps": [{"finish_reason": "length"}]}
    attempt |= {"ended_by": "end", "answer": "41", "gold": "42"}
    assert graded(attempt, "wrong") == [
        "graded answer: 41",
        "reference: 42",
        "wrong; no answer is stated; ended by a limit: replies cut off; read by the rule last; compared as number",
    ]


def test_show_holds_one_episode_whole(runs, capsys):
    row = read_rows(runs["matts_parallel"])[5]
    done = called(capsys, "show", runs["matts_parallel"], "birch/2", "--prompts")
    assert done.returncode == 0, done.stderr
    for text in (
        row["query"],
        row["retrieved"][0]["id"],
        row["lessons"][0]["title"],
        row["verdict"]["reason"].split("\n")[0],
    ):
        assert text in done.stdout
    assert done.stdout.count("attempt ") == 3
    assert done.stdout.count("<memory_items>") == 3
    assert "reference: " + row["trajectories"][0]["gold"] in done.stdout
    assert called(capsys, "show", runs["matts_parallel"], "5", "--prompts").stdout == done.stdout
    assert "names 4 episodes" in called(capsys, "show", runs["matts_parallel"], "/2").stderr


def test_what_a_model_wrote_cannot_act_on_the_terminal(runs, tmp_path, script):
    run = shutil.copytree(runs["reasoningbank"], tmp_path / "run")
    rows = read_rows(run)
    manifest = read_json(run / "manifest.json")
    rows[0]["task_id"] = manifest["task_ids"][0] = "toy/\x1b[2J[red]x"
    (run / "manifest.json").write_text(json.dumps(manifest))
    rows[0]["trajectories"][0]["steps"][0]["text"] = "\x1b]0;title\x07 [bold]not bold[/bold] [/nothing]"
    write_rows(run, rows)
    listed, shown, compared = script("show", run), script("show", run, "0"), script("compare", run, run, "--all")
    for done in (listed, shown, compared):
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
        assert "[red]x" in done.stdout
    assert "[bold]not bold[/bold] [/nothing]" in shown.stdout


def test_no_text_of_a_run_stops_a_script(runs, tmp_path, script):
    run = rewritten(runs["reasoningbank"], tmp_path / "run", poison)
    halves = next(number for number, text in enumerate(EVIL) if "\ud800" in text)
    for done in (
        script("show", run),
        script("show", run, halves),
        script("compare", run, run, "--all"),
        script("export", run, "--to", "parquet", "-o", tmp_path / "all.parquet"),
        script("export", run, "--to", "inspect", "-o", tmp_path),
        script("tables", run, "--table", "all"),
    ):
        assert done.returncode == 0, done.stderr
    done = script("audit", run, "--json")
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr


def test_runs_of_one_name_are_exported_apart(runs, tmp_path, capsys):
    for number in ("a", "b"):
        shutil.copytree(runs["no_memory"], tmp_path / number / "sweep" / "run")
    done = called(capsys, "export", tmp_path / "a", tmp_path / "b", "--to", "inspect", "-o", tmp_path / "out")
    files = sorted((tmp_path / "out").iterdir())
    assert len(files) == 2 and all(str(file) in done.stdout for file in files)


def test_what_broke_is_no_failure_elsewhere(runs, tmp_path):
    write_eval(read_run(rewritten(runs["no_memory"], tmp_path / "run", break_off)), tmp_path / "a.eval")
    with zipfile.ZipFile(tmp_path / "a.eval") as archive:
        header, lines = (json.loads(archive.read(f"{name}.json")) for name in ("header", "summaries"))
    assert (header["results"]["scores"], header["results"]["completed_samples"]) == ([], 0)
    assert {(line["error"], line["completed"], str(line["scores"])) for line in lines} == {("server: gone", True, "{}")}


def test_parquet_holds_every_episode(runs, tmp_path, capsys):
    import pandas as pd

    to = ("--to", "parquet", "-o", tmp_path / "all.parquet")
    assert called(capsys, "export", runs["no_memory"].parent, *to).returncode == 0
    plain = pd.read_parquet(tmp_path / "all.parquet")
    done = called(capsys, "export", runs["no_memory"].parent, "--to", "episodes", "-o", tmp_path / "all.csv")
    assert done.returncode == 0
    said = pd.read_csv(tmp_path / "all.csv")
    assert [*said] == [*plain] and len(plain.columns) == 15 and (said["correct"] == plain["correct"]).all()
    row = read_rows(runs["reasoningbank"])[0]
    first = said[said["arm"] == "reasoningbank"].iloc[0]
    assert (first["question"], first["gold"]) == (row["query"], row["trajectories"][0]["gold"])
    assert said.groupby("arm")["correct"].agg(["size", "sum"]).loc["reasoningbank"].tolist() == [12, 8]
    assert called(capsys, "export", runs["no_memory"].parent, *to, "--every-column").returncode == 0
    frame = pd.read_parquet(tmp_path / "all.parquet")
    assert frame.groupby("arm")["success"].agg(["size", "sum"]).loc["reasoningbank"].tolist() == [12, 8]
    assert called(capsys, "export", runs["no_memory"], "--to", "parquet").returncode == 2


def test_an_inspect_log_holds_every_attempt(runs, tmp_path, capsys):
    done = called(capsys, "export", runs["matts_parallel"], "--to", "inspect", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.eval")
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("header.json"))
        assert len(json.loads(archive.read("summaries.json"))) == 36
        one = json.loads(archive.read("samples/toy/amber/1_epoch_3.json"))
    success, judge = header["results"]["scores"]
    assert (success["name"], judge["name"]) == ("success", "judge")
    assert success["metrics"]["success_rate"]["value"] == pytest.approx(8 / 12)
    assert {name: score["value"] for name, score in one["scores"].items()} == {"success": "I", "judge": "I"}
    assert one["scores"]["success"]["answer"] == "say sesame"
    assert one["scores"]["success"]["explanation"] == "ended by end after 1 step"
    assert [message["role"] for message in one["messages"]] == ["system", "user", "assistant", "user"]
    write_eval(read_run(runs["matts_parallel"]), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_an_inspect_log_has_the_tokens_and_times_of_the_run(runs, tmp_path):
    run = read_run(runs["matts_parallel"])
    write_eval(run, tmp_path / "a.eval")
    with zipfile.ZipFile(tmp_path / "a.eval") as archive:
        header = json.loads(archive.read("header.json"))
        samples = [json.loads(archive.read(name)) for name in archive.namelist() if name.startswith("samples/")]
    tokens = {role: used["total_tokens"] for role, used in header["stats"]["role_usage"].items()}
    assert tokens == {role: n for role, n in run.summary["tokens"].items() if role != "total"}
    assert header["stats"]["model_usage"]["scripted"]["total_tokens"] == run.summary["tokens"]["total"]
    times = [header["eval"]["created"], *sorted(each["completed_at"] for each in samples)]
    assert header["stats"]["started_at"] == times[0] < times[1]
    assert header["stats"]["completed_at"] == times[-1]
    answers = [each for each in samples if each["metadata"]["is_the_answer"]]
    assert len(answers) == 12
    assert [sorted(each["role_usage"]) for each in answers] == [["extractor", "judge", "selector"]] * 12
    assert not any(each["role_usage"] for each in samples if not each["metadata"]["is_the_answer"])
    (tmp_path / "run").mkdir()
    for name in ("manifest.json", "episodes.jsonl"):  # the least of a run: no clock time is known
        shutil.copy(run.path / name, tmp_path / "run")
    write_eval(read_run(tmp_path / "run"), tmp_path / "b.eval")
    with zipfile.ZipFile(tmp_path / "b.eval") as archive:
        assert "completed_at" not in json.loads(archive.read("samples/toy/amber/1_epoch_1.json"))


READ_BY_INSPECT = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
for path in sys.argv[1:]:
    log = read_eval_log(path)
    found = {"status": log.status, "samples": len(log.samples), "epochs": log.eval.config.epochs}
    found["judged"] = sorted({str(score.value) for each in log.samples for score in each.scores.values()})
    found["errors"] = sorted({each.error.message for each in log.samples if each.error})
    found["rates"] = [score.metrics["success_rate"].value for score in log.results.scores]
    found["tokens"] = {role: used.total_tokens for role, used in log.stats.role_usage.items()}
    found["messages"] = sorted({line.message_count for line in read_eval_log_sample_summaries(path)})
    print(json.dumps(found))
"""


@pytest.fixture(scope="session")
def inspect_python():
    """The Python of a venv with inspect-ai, which wants an older fsspec than ours; kept from one run to the next."""
    python = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    version = f"{INSPECT}-py{sys.version_info.major}.{sys.version_info.minor}"
    venv = user_cache_path("reasoningbank-tests") / f"inspect-{version}"
    if not venv.exists():
        new = venv.with_name(f"{venv.name}.{os.getpid()}")
        new.parent.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "--python", new / python, "--disable-pip-version-check", "-q"]
        pip += ["install", "--no-compile", f"inspect-ai=={INSPECT}"]  # most of its dependencies are never imported
        try:
            forkserver.run([sys.executable, "-m", "venv", "--without-pip", new], check=True)
            done = forkserver.run(pip, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                pytest.skip(f"inspect-ai cannot be installed: {done.stderr.strip().splitlines()[-1]}")
            with suppress(OSError):  # another process was first
                new.rename(venv)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return venv / python


def test_inspect_reads_the_log(runs, tmp_path, inspect_python):
    run, broken = (
        read_run(runs["matts_parallel"]),
        read_run(rewritten(runs["no_memory"], tmp_path / "broken", break_off)),
    )
    write_eval(run, tmp_path / "a.eval")
    write_eval(broken, tmp_path / "b.eval")
    words = [inspect_python, "-c", READ_BY_INSPECT, tmp_path / "a.eval", tmp_path / "b.eval"]
    done = forkserver.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    whole, nothing = map(json.loads, done.stdout.splitlines()[-2:])
    assert whole.pop("tokens") == {role: n for role, n in run.summary["tokens"].items() if role != "total"}
    assert whole.pop("rates") == [pytest.approx(8 / 12)] * 2
    read = {"status": "success", "samples": 36, "epochs": 3, "judged": ["C", "I"], "errors": [], "messages": [4]}
    assert whole == read
    assert (nothing["samples"], nothing["judged"], nothing["rates"]) == (12, [], [])
    assert nothing["errors"] == ["server: gone"]


def test_csv_has_a_row_of_metrics_a_run_since_a_time(runs, tmp_path, capsys):
    import pandas as pd

    out, folder = tmp_path / "week.csv", runs["no_memory"].parent
    done = called(capsys, "export", folder, "--to", "csv", "--since", "7d", "-o", out)
    frame = pd.read_csv(out)
    assert done.returncode == 0 and len(frame) == len(list(folder.glob("*/manifest.json")))
    row = frame[frame["run"] == str(runs["no_memory"])].iloc[0]
    summary = json.loads((runs["no_memory"] / "summary.json").read_text())
    assert (row["n"], row["success_rate"]) == (summary["n"], summary["success_rate"])
    of_the_outline = "mean_steps cost_usd_per_success wall_s_per_success lessons_per_100 shown_per_task".split()
    assert {*of_the_outline} <= {*frame.columns}
    assert called(capsys, "export", folder, "--to", "csv", "--since", "2999-01-01", "-o", out).returncode == 0
    assert len(pd.read_csv(out)) == 0
    for words, said in ((("csv", "--since", "soon"), "--since soon"), (("parquet", "--since", "7d"), "--since is for")):
        done = called(capsys, "export", folder, "--to", *words, "-o", out)
        assert done.returncode == 2 and said in done.stderr


def test_what_show_lists_fits_a_terminal_of_80_columns(runs):
    run = read_run(runs["reasoningbank"])
    out = Console(width=80, file=io.StringIO(), force_terminal=False)
    out.print(episodes(run, None, None, False, out.width))
    lines = out.file.getvalue().splitlines()
    assert sum(line.split()[:1] == [str(n)] for n in range(12) for line in lines) == 12
    assert {"success", "failure"} <= {word for line in lines for word in line.split()} and "…" not in "".join(lines)
    assert len(lines) <= 4 + 3 * 12 and not {"steps", "tokens"} & {*lines[1].split(), *lines[2].split()}
