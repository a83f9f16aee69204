"""What is typed wrongly is one sentence with the names that may have been meant."""

from __future__ import annotations

import re
import sys

import forkserver
import pytest
from conftest import REPO, TOY
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import CompactHydraException, HydraException

from core.errors import UserError
from core.mistakes import sentence_for
from mcp_server.config import load_config
from scripts.tables import main as tables

EXACT = {
    "limt=3": "error: there is no key limt: did you mean limit?",
    "top_k=3": "error: there is no key top_k: did you mean retrieval.top_k?",
    "evn=toy": "error: there is no key evn: did you mean env?",
    "env.familys=3": "error: there is no key env.familys: did you mean env.families?",
    "llm.modl=x": "error: there is no key llm.modl: did you mean llm.model?",
    "roles.agent.temprature=0": (
        "error: there is no key roles.agent.temprature: did you mean roles.agent.temperature?"
    ),
    "zzzz=1": "error: there is no key zzzz: python main.py --help keys shows all.",
    "limit": "error: limit cannot be read as KEY=VALUE: a value with more in it than letters a to z, digits and "
    "-_./: needs quotes of its own, and the shell's around all of it: 'KEY=\"VALUE\"'.",
    "+env=toy": "error: env appears more than once in the final defaults list",
    "setting=test-time": (
        "error: setting=test-time: there is no such option: did you mean test_time? "
        "Choose frozen, test_time, told, train, true_labels."
    ),
}


@pytest.mark.parametrize("word", EXACT)
def test_a_misspelt_word_is_one_sentence(word):
    words = ["env=toy", "llm=vllm", word]
    with (
        pytest.raises((HydraException, CompactHydraException)) as refused,
        initialize_config_dir(str(REPO / "config"), version_base="1.3"),
    ):
        compose("config", overrides=words)
    try:
        assert sentence_for(refused.value, words) == EXACT[word]
    finally:
        GlobalHydra.instance().clear()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("limt=3",), 1, "error: there is no key limt: did you mean limit?"),
        (("run_dir=file",), 1, "file cannot be written: File exists."),
        (("run_dir=/proc/nowhere",), 1, "error: /proc/nowhere cannot be written: No such file or directory."),
        (("--multrun",), 2, "error: --multrun is not understood: a key is given as KEY=VALUE, and a flag of Hydra"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_the_program_ends_with_the_sentence_alone(cli, tmp_path, words, status, said):
    (tmp_path / "file").write_text("")
    done = cli(*TOY, *words)
    first, sentence = done.stderr.strip().split("\n")
    assert first == "loading the configuration ..."
    assert (done.returncode, done.stdout) == (status, "") and said in sentence, done.stderr


def test_several_values_without_a_sweep_name_the_flag(main_here):
    status, _, said = main_here(*TOY, "seed=0,1")
    assert status == 1 and "error: Ambiguous value" in said and "--multirun" in said and "Traceback" not in said


def test_hydra_says_all_of_it_where_that_is_asked_for(cli):
    done = cli(*TOY, "limt=3", env={"HYDRA_FULL_ERROR": "1"})
    assert done.returncode == 1 and "Traceback" in done.stderr and "not in struct" in done.stderr


def own_part(folder, text):
    (folder / "parts/env").mkdir(parents=True)
    (folder / "parts/env/own.yaml").write_text(text)
    return [
        "--config-dir",
        str(folder / "parts"),
        "env=own",
        *(word for word in TOY if word != "env=toy"),
        "dry_run=true",
    ]


def test_what_a_part_of_ones_own_lacks_is_one_sentence(main_here, tmp_path, monkeypatch):
    monkeypatch.delenv("PARTS", raising=False)
    env = "env:\n  _target_: envs.toy.ToyEnv\n  seed: ${oc.env:PARTS}\n  max_steps: 5\n  instructions: x\n"
    words = own_part(tmp_path, f"# @package _global_\n{env}")
    status, _, said = main_here(*words)
    assert status == 1 and "Environment variable 'PARTS' not found\" (in env.seed)" in said
    (tmp_path / "parts/env/own.yaml").write_text(env)
    monkeypatch.setenv("PARTS", "0")
    status, _, said = main_here(*words)
    assert status == 1 and "must begin with the line `# @package _global_`" in said and "Traceback" not in said
    (tmp_path / "parts/env/own.yaml").write_text(f"defaults:\n  - override /agent: react\n{env}")
    status, _, said = main_here(*words)
    assert status == 1 and "error: In 'env/own': Could not override 'agent@" in said and "Traceback" not in said
    status, _, said = main_here("--config-dir", str(tmp_path / "nope"), *TOY)
    assert status == 1 and f"error: Additional config directory '{tmp_path / 'nope'}' not found" in said


@pytest.mark.parametrize("sweep", [(), ("-m", "seed=0,1")])
def test_a_file_of_ones_own_that_is_no_yaml_is_one_sentence(subtests, main_here, tmp_path, sweep):
    cases = [
        (b"_target_: envs.toy.ToyEnv\n\tworkers: 2\n", "line 2"),
        (b"name: [x\n", "expected ',' or ']'"),
        (b"name: x\nworkers: 1\nname: y\n", "duplicate key name"),
        (b"name: 'x\n", "unexpected end of stream"),
        (b"a: b: c\n", "mapping values are not allowed here"),
        (b"- a\n- b\n", "it holds a list, "),
        ("name: caf\u00e9\n".encode("latin-1"), "can't decode byte"),
        ("name: x\n".encode("utf-16"), "can't decode byte"),
        (b"name: \x01\n", "special characters are not allowed"),
    ]
    for n, (text, said) in enumerate(cases[::4] if sweep else cases):
        with subtests.test(said):
            (file := tmp_path / str(n) / "env/own.yaml").parent.mkdir(parents=True)
            file.write_bytes(text)
            words = ("--config-dir", str(tmp_path / str(n)), *TOY, "env=own")
            status, _, err = main_here(*sweep[:1], *words, *sweep[1:])
            assert status == 1 and f"error: {file} is no option: " in err and said in err
            assert "Traceback" not in err and err.count("\n") <= 2


OWN_ENV = """
from dataclasses import dataclass
from envs.toy import ToyEnv

@dataclass(kw_only=True)
class {name}(ToyEnv):
{method}
"""
BREACHES = {  # {the method: what is said of it}
    "def _tasks(self, split): return iter(super()._tasks(split))": "_tasks must return a list of Task; it returned <",
    "def _tasks(self, split): return [{'id': 'a'}]": "_tasks must return a list of Task; it returned [{'id'",
    "def _reset(self, task): super()._reset(task)": "_reset must return the first observation, a text; it ",
    "def _step(self, action): return super()._step(action)[:3]": "_step must return (observation: str, reward: float, ",
    "def _step(self, action): return 'x', None, True, {}": "_step must return (observation: str, reward: float, ",
    "def evaluate(self, prediction): pass": "evaluate must return True or False; it returned None",
}


@pytest.mark.parametrize("method", BREACHES)
def test_a_breach_of_the_contract_of_environments_is_one_sentence(here, tmp_path, monkeypatch, method):
    name = f"Own{[*BREACHES].index(method)}"
    (tmp_path / f"{name.lower()}.py").write_text(OWN_ENV.format(name=name, method=f"    {method}"))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=re.escape(f"{name}.{BREACHES[method]}")):
        here(*TOY, f"env._target_={name.lower()}.{name}", "limit=2")


OWN_PARTS = """
from dataclasses import dataclass
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine

@dataclass(kw_only=True)
class OwnMemory(MemoryBank):
    def retrieve(self, *given, **named): return {memory}

@dataclass(kw_only=True)
class OwnPolicy(Cosine):
    def rank(self, bank, query, top_k, exclude_task, where): return {policy}

def table(frame, **about): return {table}
"""


@pytest.mark.parametrize("found", ["None", "[('a record', 0.5)]"])
def test_what_a_memory_or_a_policy_or_a_table_returns_wrongly_is_one_sentence(
    here, tmp_path, monkeypatch, capsys, found
):
    name = f"own_parts_{sum(map(ord, found))}"
    (tmp_path / f"{name}.py").write_text(OWN_PARTS.format(memory=found, policy=found, table=found))
    monkeypatch.syspath_prepend(tmp_path)
    for words, method in {
        (f"memory._target_={name}.OwnMemory", "arm=reasoningbank"): "OwnMemory.retrieve",
        (f"retrieval._target_={name}.OwnPolicy", "arm=reasoningbank"): "OwnPolicy.rank",
    }.items():
        with pytest.raises(UserError, match=f"{method} must return a list of Scored"):
            here(*TOY, "limit=2", *words, run_dir=tmp_path / method)
    here(*TOY, "limit=1")
    capsys.readouterr()
    assert tables([str(tmp_path / "run"), "--table", f"{name}.table"]) == 2
    said = capsys.readouterr().err
    assert f"{name}.table must return (Cells, " in said and said.count("\n") == 1


def test_a_method_that_an_environment_lacks_is_one_sentence(main_here, tmp_path, monkeypatch):
    text = "from dataclasses import dataclass\nfrom envs.base import BaseEnv\n\n@dataclass(kw_only=True)\n"
    (tmp_path / "bare_env.py").write_text(text + "class Bare(BaseEnv):\n    inner: object = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    status, _, said = main_here(*TOY, "env={_target_: bare_env.Bare, instructions: x, max_steps: 1}")
    assert status == 1 and "abstract" in said and "Traceback" not in said


@pytest.mark.parametrize("words", [["main.py"], ["-m", "scripts.tables", "x"], ["-m", "scripts.report"]])
def test_a_python_without_the_packages_is_one_sentence(words):
    bare = [getattr(sys, "_base_executable", sys.executable), "-s", "-S", *words]
    done = forkserver.run(bare, cwd=REPO, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "lacks the project's packages" in done.stderr


def test_a_misspelt_setting_of_the_server_is_one_sentence():
    for word, said in {
        "retreival=cosine": "there is no key retreival: did you mean retrieval",
        "retrieval=cosin": "retrieval=cosin: there is no such option: did you mean cosine?",
        "retrieval.topk=2": "there is no key retrieval.topk: did you mean retrieval.top_k?",
    }.items():
        with pytest.raises(UserError, match=re.escape(said)):
            load_config([word])
