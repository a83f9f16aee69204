"""A run's name follows from its whole configuration, and what was compared from its prompts, code and parts too."""

from __future__ import annotations

import json

import pytest
from conftest import REPO, TOY, read_json

from analysis.audit import together
from analysis.cells import make_cells
from analysis.load import load_runs
from analysis.report.words import warnings
from analysis.runs import find_runs, read_run
from analysis.studies import compared, studies
from core.errors import UserError
from core.run.launch import run_name
from core.run.parts import foreign_parts


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("arm=reasoningbank", "reasoningbank"),
        ("arm=reasoningbank retrieval.top_k=4", "reasoningbank retrieval.top_k=4"),
        ("arm=reasoningbank +distiller.style=quote", "reasoningbank distiller.style=quote"),
        ("arm=matts_parallel contrast.labels=judge", "matts_parallel contrast.labels=judge"),
        ("arm=matts_parallel k=3", "matts_parallel"),
        ("arm=no_memory workflow=reasoningbank", "no_memory workflow=reasoningbank"),
        ("arm=reasoningbank retrieval.top_k=1", "reasoningbank"),
        ("arm=no_memory retrieval=random judge=heuristic select=first", "no_memory"),
        ("arm=matts_parallel_k5 k=3", "matts_parallel_k5 k=3"),
        ("arm=reasoningbank retrieval=hybrid retrieval.top_k=3", "reasoningbank retrieval=hybrid retrieval.top_k=3"),
        ("arm=reasoningbank stream.batch=4 memory.consolidate=null", "reasoningbank stream.batch=4"),
        ("arm=reasoningbank setting=frozen memory.path=/b.sqlite", "reasoningbank setting=frozen"),
        ("arm=matts_parallel experiment=ab", "matts_parallel"),
        ("arm=reasoningbank prompts.memory_block=plain", "reasoningbank prompts.memory_block=plain"),
        ("arm=reasoningbank details=authors_release", "reasoningbank details=authors_release"),
        ("workflow=reasoningbank memory=synapse", "reasoningbank memory=synapse"),
    ],
)
def test_what_departs_from_the_arm_is_named(compose, words, name):
    assert str(run_name(compose(*TOY, *words.split()))) == name


def test_another_order_of_the_options_than_the_sets_is_named(compose):
    for env, name in (("mmlu_pro", "no_memory env.shuffle_options=true"), ("gpqa_diamond", "no_memory")):
        assert str(run_name(compose("arm=no_memory", f"env={env}", "env.shuffle_options=true", *TOY[1:]))) == name


def changed_prompts(folder, name):
    """A folder with one template of the project's in other words."""
    folder.mkdir()
    text = (REPO / "prompts" / f"{name}.jinja").read_text("utf-8")
    (folder / f"{name}.jinja").write_text(f"{text}\nThink twice.", encoding="utf-8")
    return folder


def test_an_arm_with_prompts_of_its_own_is_named_and_noted(here, tmp_path):
    ours = changed_prompts(tmp_path / "ours", "extract_success")
    here(*TOY, "arm=no_memory", "limit=4", run_dir=tmp_path / "sweep" / "a")
    here(*TOY, "arm=reasoningbank", f"prompts={ours}", "limit=4", run_dir=tmp_path / "sweep" / "b")
    cells = make_cells(load_runs([tmp_path / "sweep"]), "no_memory")
    assert set(cells.table["label"]) == {"no_memory", "reasoningbank prompts=ours"}
    [note] = [note for note in cells.notes if "not the same prompts" in note]
    assert "extract_success" in note and "reasoningbank prompts=ours" in note
    [study] = studies(compared(load_runs([tmp_path / "sweep"])))
    assert any("ot the same prompts" in line for line in warnings(study))
    assert any(
        "extract_success" in line
        for line in together([*map(read_run, find_runs([tmp_path / "sweep"]))])["made_of_other_things"]
    )


def git(run, sha, *dirty, start=None):
    """Write into a run's manifest that it was made at another commit, or a later start of it."""
    path = run / "manifest.json"
    manifest = read_json(path)
    state = {"sha": sha, "dirty": list(dirty), "source": sha[:4] + "0" * 12}
    if start is None:
        manifest["git"] = manifest["starts"][0]["git"] = state
    else:
        manifest["starts"].append(manifest["starts"][0] | {"git": state})
    path.write_text(json.dumps(manifest), encoding="utf-8")


def test_other_code_is_named_between_arms_and_between_starts(here, tmp_path):
    a, _ = here(*TOY, "arm=no_memory", "limit=4", run_dir=tmp_path / "sweep" / "a")
    b, _ = here(*TOY, "arm=reasoningbank", "limit=4", run_dir=tmp_path / "sweep" / "b")
    git(a, "1" * 40)
    git(b, "1" * 40)
    notes = lambda: make_cells(load_runs([tmp_path / "sweep"]), "no_memory").notes  # noqa: E731
    assert not any("version" in note for note in notes())
    git(b, "1" * 40, "envs/toy.py")
    assert any("2 versions of the code: 11111111, 11111111 with changes" in note for note in notes())
    git(b, "1" * 40)
    git(b, "2" * 40, start=1)
    assert any("went on at another version of the code: 11111111 -> 22222222" in note for note in notes())


PART = """
from core.learning.judges import LLMJudge
from dataclasses import dataclass
@dataclass(kw_only=True)
class Mine(LLMJudge):
    pass
"""


def test_a_part_from_outside_is_its_package_and_what_that_imports(tmp_path, monkeypatch):
    files = {
        "their_parts/__init__": "",
        "their_parts/judge": f"{PART}from . import words\n",
        "their_parts/words": "",
        "their_parts/deep/__init__": "",
        "their_parts/deep/more": "def late():\n    import their_other\n",
        "their_parts/draft": "def (:\n",
        "their_other": "from their_last import *\n",
        "their_last": "import json, numpy\n",
        "neighbour": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    config = {"judge": {"_target_": "their_parts.judge.Mine"}}
    [before] = foreign_parts(config).values()
    changes = {}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(f"{text}# changed\n")
        changes[name] = [*foreign_parts(config).values()] != [before]
        (tmp_path / f"{name}.py").write_text(text)
    assert [name for name, changed in changes.items() if not changed] == ["neighbour"]
    assert [*foreign_parts(config).values()] == [before]


def test_the_source_of_a_part_from_outside_is_part_of_a_run(here, tmp_path, monkeypatch):
    import sys

    (tmp_path / "my_parts").mkdir()
    (tmp_path / "my_parts" / "__init__.py").write_text(PART)
    monkeypatch.syspath_prepend(tmp_path)
    words = (*TOY, "arm=reasoningbank", "judge._target_=my_parts.Mine")
    run, _ = here(*words, "limit=4", run_dir=tmp_path / "sweep" / "a")
    found = read_json(run / "manifest.json")["fingerprint"]["parts"]
    assert [*found] == ["my_parts.Mine"]
    here(*words, "limit=4", run_dir=run)
    (tmp_path / "my_parts" / "__init__.py").write_text(f"{PART}# kinder\n")
    sys.modules.pop("my_parts")
    with pytest.raises(UserError, match="another source of my_parts.Mine"):
        here(*words, "limit=6", run_dir=run)
    here(*words, "limit=6", "allow_changed_parts=true", run_dir=run)
    assert len((run / "episodes.jsonl").read_text().splitlines()) == 6
    here(*TOY, "arm=success_only", "judge._target_=my_parts.Mine", "limit=6", run_dir=tmp_path / "sweep" / "b")
    notes = make_cells(load_runs([tmp_path / "sweep"]), "success_only").notes
    assert any("parts from outside" in note and "my_parts.Mine" in note for note in notes)
    assert any("went on with another source of my_parts.Mine" in note for note in notes)
