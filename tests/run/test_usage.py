"""python main.py --help: one screen; of a group every option in words, within 80 columns, at once."""

from __future__ import annotations

import re
import sys

import forkserver
import pytest
from conftest import REPO

from core.run.help import CONFIG, described, options, print_help

EVERY = [(group, name, file) for group, files in options([CONFIG]).items() for name, file in files.items()]


def test_every_option_says_what_it_is():
    """In the first comment of its YAML, which stands alone: nothing else tells a reader of --help."""
    said = {f"{group}{name}": described(file) for group, name, file in EVERY}
    assert {name: text for name, text in said.items() if len(text.split()) < 2} == {}
    assert {name: text for name, text in said.items() if len(text) > 160} == {}  # it is a line or two in --help
    assert {name: text for name, text in said.items() if text.startswith("The same")} == {}  # the same as what?


def test_none_is_missing():
    ours = [path for path in CONFIG.rglob("*.yaml") if path.parent != CONFIG]
    files = [path for path in ours if path.parent.parent != CONFIG / "hydra"]  # groups of Hydra's own
    assert sorted(file for _, _, file in EVERY) == sorted(files)


def helped(monkeypatch, capsys, *words, columns=80):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_help(list(words))
    return capsys.readouterr().out


def test_it_is_one_screen_with_a_line_for_each_group(monkeypatch, capsys):
    lines = helped(monkeypatch, capsys, "--help").splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    assert re.search(r"^  env=warmup +of \d+ +the benchmark$", "\n".join(lines), re.MULTILINE)
    assert {group.removesuffix("=") for group, _, _ in EVERY if group.endswith("=")} <= {
        line.split()[0].partition("=")[0] for line in lines if "=" in line
    }


def test_of_a_group_it_shows_the_options_and_of_keys_the_keys_of_a_run(monkeypatch, capsys):
    said = helped(monkeypatch, capsys, "--help", "env", "memory", "keys")
    assert max(map(len, said.splitlines())) <= 80
    places = [said.index(text) for text in ("env=  the benchmark", "memory=  what", "\nKeys: ", "   seed=0 ")]
    assert places == sorted(places) and "judge=" not in said[: places[2]]
    assert re.search(r"^ \* warmup +79 easy problems", said, re.MULTILINE)
    assert re.search(r"^   alfworld +ALFWorld \(Shridhar et al. 2021\): household tasks", said, re.MULTILINE)
    assert re.search(r"^   hygiene=guard", said, re.MULTILINE)
    assert re.search(r"^   stream.batch=1 +tasks that share the bank", said, re.MULTILINE)
    assert "hydra.run" not in said
    wide = helped(monkeypatch, capsys, "--help", "keys", columns=200)
    assert len(wide.splitlines()) < len(helped(monkeypatch, capsys, "--help", "keys").splitlines())


def test_a_group_that_there_is_not_is_one_sentence(monkeypatch, capsys):
    with pytest.raises(SystemExit, match=r"^error: no group is called judgee: did you mean judge\? --help alone lists"):
        helped(monkeypatch, capsys, "--help", "judgee")


def test_ones_own_options_are_described_too(monkeypatch, capsys, tmp_path):
    (tmp_path / "arm").mkdir()
    (tmp_path / "arm" / "mine.yaml").write_text("# @package _global_\n# What I made of it. And more.\nseed: 1\n")
    for words in (("--config-dir", str(tmp_path)), (f"--config-dir={tmp_path}",), ("-cd", str(tmp_path))):
        assert re.search(r"^   mine +What I made of it$", helped(monkeypatch, capsys, "arm", *words), re.MULTILINE)


def test_of_an_option_it_shows_the_keys(monkeypatch, capsys):
    said = helped(monkeypatch, capsys, "--help", "env=toy")
    assert said.startswith(f"# {CONFIG / 'env' / 'toy.yaml'}\n")
    assert "boxes_per_family: 10" in said and "Choose one of" not in said


def test_it_is_there_at_once_and_a_closed_pipe_is_no_error():
    words = [sys.executable, "-X", "importtime", str(REPO / "main.py"), "--help"]
    done = forkserver.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "Choose one of each group" in done.stdout
    assert not re.search(r"\| +(hydra|omegaconf|rich|yaml)\b", done.stderr)  # what takes most of a second
    piped = f"{sys.executable} {REPO / 'main.py'} --help | head -1"
    done = forkserver.run(["bash", "-c", piped], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
