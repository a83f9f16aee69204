"""Odd surroundings: no columns, another folder, few open files, a home that no shell has filled in."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from pathlib import Path

import pytest
from conftest import TOY, command, read_json
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from provider import completion
from test_token_counts import said_to

from core.errors import UserError
from core.run.launch import quoted
from core.terminal import check_open_files


def sums(path, n=3, same=1):
    """n sums, each of them under so many ids."""
    rows = [
        {"id": f"q{copy}-{i}", "question": f"What is {i}+{i}?", "answer": str(2 * i)}
        for copy in range(same)
        for i in range(1, n + 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["0", "1", "00", "-3", "\u00b2", "x", ""])
def test_a_terminal_of_no_columns_shows_the_table(cli, columns):
    done = cli(*TOY, "limit=2", "workflow=vanilla", "run_dir=run", env={"COLUMNS": columns, "LINES": columns})
    assert done.returncode == 0 and "spent" in done.stdout and "agent" not in done.stderr


@pytest.mark.slow
def test_words_mean_the_folder_in_which_they_were_typed(cli, tmp_path):
    sums(tmp_path / "sums.jsonl")
    words = ("env=questions", "env.path=sums.jsonl", "agent=gold", "llm=scripted", "embedder=hashing")
    for more in (("run_dir=run",), ("seed=0,1", "run_dir=sweep"), ("run_dir=run",)):
        flag = ("-m",) if len(more) == 2 else ()
        done = cli(*flag, *words, "workflow=vanilla", "hydra.job.chdir=true", *more)
        assert done.returncode == 0, done.stderr
    assert "  run\n" in done.stdout
    assert read_json(tmp_path / "run" / "summary.json")["success_rate"] == 1.0
    assert len([*tmp_path.glob("sweep/*/summary.json")]) == 2
    bank = ("env=toy", "llm=scripted", "embedder=hashing", "limit=2", "hydra.job.chdir=true")
    assert cli(*bank, "run_dir=learned").returncode == 0
    done = cli(*bank, "setting=frozen", "memory.path=learned/bank.sqlite", "run_dir=frozen")
    assert done.returncode == 0, done.stderr


def test_the_users_folder_is_filled_in(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    words = ["env.path=~/a.jsonl", "env.columns={image: ~/x}", "+a~b=1", "run_dir=~other/x", "~k", "x='~/y'"]
    assert quoted(words) == ["env.path=/home/me/a.jsonl", *words[1:]]


def test_more_calls_than_files_may_be_open_are_refused_and_the_limit_is_raised():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        few = len([*Path("/dev/fd").iterdir()]) + 50  # what this process has open, and a little
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
        check_open_files(few, "max_concurrency=9")
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 2 * few
        with pytest.raises(UserError, match=r"^max_concurrency=9: .*ulimit -n.*at most \d+\.$"):
            check_open_files(2**40, "max_concurrency=9")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
def test_a_run_with_few_files_says_so(serve, tmp_path):
    def slowly(request, n):
        time.sleep(0.3)
        return 200, completion("\\boxed{2}")

    path, server = sums(tmp_path / "sums.jsonl", n=100), serve(slowly)
    words = ("env=gsm8k", f"env.path={path}", "embedder=hashing", "workflow=vanilla", "llm=vllm")
    line = command(*words, f"llm.api_base={server.url}", "max_concurrency=100", f"run_dir={tmp_path / 'run'}")
    few = ["bash", "-c", 'ulimit -n 64; exec "$@"', "bash"]
    done = subprocess.run([*few, *line], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 1 and "so many calls at once may need" in done.stderr
    assert "Traceback" not in done.stderr and not server.requests


def test_the_same_question_under_several_ids_is_said_beside_the_number(here, serve, tmp_path, capsys):
    path = sums(tmp_path / "sums.jsonl", n=3, same=2)
    server = serve(lambda request, n: (200, completion(said_to(request))))
    words = ("env=gsm8k", f"env.path={path}", "llm=vllm", f"llm.api_base={server.url}", "embedder=hashing")
    run_dir, _ = here(*words, run_dir=tmp_path / "learns")
    assert read_json(run_dir / "summary.json")["n_repeated"] == 3
    assert "3 of 6 tasks were asked before under another id" in capsys.readouterr().out
    here(*words, "workflow=vanilla", run_dir=tmp_path / "plain")
    assert "under another id" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("env.columns={question: Frage, answer: Lösung}", {"question": "Frage", "answer": "Lösung"}),
        ("env.columns={context: [Titel, Größe der Straße]}", {"context": ["Titel", "Größe der Straße"]}),
        ("env.path=/tmp/Übung/fragen.csv", "/tmp/Übung/fragen.csv"),
        ("env.columns.answer='Lösung'", "Lösung"),
        ("agent.command=my-agent --task {task_file}", "my-agent --task {task_file}"),
        ('agent.command=sh -c "cat {task_file}" \\', 'sh -c "cat {task_file}" \\'),
        ("agent.command=run; echo ${HOME}", "run; echo ${HOME}"),
    ],
)
def test_what_hydra_does_not_read_by_itself_needs_no_quotes(word, value):
    [typed] = quoted([word])
    read = OverridesParser.create().parse_override(typed).value()
    assert OmegaConf.create({"key": read}).key == value


def test_a_text_in_the_place_of_keys_is_one_sentence(main_here, tmp_path):
    (tmp_path / "a.csv").write_text("q,a\n1 + 1?,2\n")
    words = (f"env.path={tmp_path / 'a.csv'}", 'env.columns="{question: q, answer: a}"')
    code, _, errors = main_here("env=questions", *words, "llm=scripted", "embedder=hashing")
    assert code == 1 and "give {KEY: VALUE, ...} or None." in errors and "Traceback" not in errors
