"""What earlier versions wrote is still good: tests/data/version_1.tar.xz holds runs, banks and a table of the first.

known/ARM.jsonl are the episodes of experiment=known_answer; sweep/ is a small sweep with its table, main_table.md;
stopped/ is a run that its budget ended, and whole/ the same run without that budget.
prompts/ are the templates of then.

What has changed since, and is left out of the comparison by its name and nothing else:
- the prompts and the room for lessons in them: the runs of today that are compared are given those of then (`as_then`);
- `retrieved` has `n_items` and `n_shown` beside what it had, and a record its `provenance` (`before_shown`);
- retrieval=random draws by the task instead of its wording (test_known_answer.py has what it must draw).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from conftest import REPO, command, read_json, read_rows

from analysis.load import find_runs, read_run
from core.run.upgrade import by_class, completed, upgraded_row

STOPPED = (
    "env=toy llm=scripted embedder=hashing arm=matts_parallel memory=consolidated_offline "
    "memory.consolidate.every=4 env.families=2 env.boxes_per_family=6"
).split()


@pytest.fixture
def version_1(tmp_path) -> Path:
    unpack("version_1", tmp_path)
    return tmp_path


def unpack(name: str, folder: Path) -> None:
    with tarfile.open(REPO / "tests" / "data" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")


def as_then(folder: Path) -> tuple[str, ...]:
    """The words that give a run of today the prompts of version 1."""
    unpack("version_1_prompts", folder)
    return f"prompts={folder / 'prompts'}", "agent.max_memory_chars=6000"


def before_shown(row: dict) -> dict:
    """A row as it was before it said what was shown of what was retrieved (all of it, in these runs), and of which
    attempts a record was made."""
    assert all(found.get("n_items") == found.get("n_shown") for found in row["retrieved"])
    records = [{name: value for name, value in record.items() if name != "provenance"} for record in row["records"]]
    retrieved = [{"id": found["id"], "score": found["score"]} for found in row["retrieved"]]
    return row | {"retrieved": retrieved, "records": records}


def test_a_part_is_known_by_what_it_is():
    config = {"memory": {"_target_": "core.somewhere.MemoryBank", "path": None}, "judge": {"_target_": "mine.Judge"}}
    assert by_class(config) == {"memory": {"_target_": "MemoryBank", "path": None}, "judge": {"_target_": "mine.Judge"}}
    assert by_class(by_class(config)) == by_class(config)


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> Path:
    """experiment=known_answer, run today."""
    folder = tmp_path_factory.mktemp("known") / "sweep"
    words = command("experiment=known_answer", f"run_dir={folder}", *as_then(folder.parent))
    subprocess.run(words, capture_output=True, check=True, timeout=240)
    return folder


def test_every_arm_records_what_it_did(version_1, known):
    """Episode by episode, key by key: only the form of a record has changed."""
    arms = sorted(path.stem for path in (version_1 / "known").iterdir())
    assert len(arms) == 15
    for arm in arms:
        then = [
            upgraded_row(json.loads(line)) for line in (version_1 / "known" / f"{arm}.jsonl").read_text().splitlines()
        ]
        [folder] = known.glob(f"arm={arm},*")
        if arm != "random_retrieval":
            assert [before_shown(row) for row in read_rows(folder)] == then, arm


def test_a_run_goes_on(version_1, cli):
    before = read_rows(version_1 / "stopped")
    words = (*STOPPED, f"run_dir={version_1 / 'stopped'}")
    refused = cli(*words)
    assert refused.returncode == 1
    assert "prompts.judge" in refused.stderr
    assert "agent.max_memory_chars: 6000 -> 24000" in refused.stderr
    assert "strip_lessons" not in refused.stderr  # has the value that the run behaved by
    done = cli(*words, *as_then(version_1))
    assert done.returncode == 0, done.stderr
    after = read_rows(version_1 / "stopped")
    assert after[: len(before) - 1] == before[:-1]  # of schema 1 still; the last one was stopped, and is made again
    runs = [read_run(version_1 / name) for name in ("stopped", "whole")]
    assert [before_shown(row) for row in runs[0].rows] == runs[1].rows
    assert runs[0].complete
    assert (
        read_json(version_1 / "stopped" / "manifest.json")["run"]
        == read_json(version_1 / "whole" / "manifest.json")["run"]
    )


def test_another_configuration_is_still_refused(version_1, cli):
    done = cli(*STOPPED, "retrieval.top_k=2", f"run_dir={version_1 / 'stopped'}")
    assert done.returncode == 1
    assert "retrieval.top_k: 1 -> 2" in done.stderr
    assert "_target_" not in done.stderr


def measured(table):
    """{arm: its cells without intervals and tests, whose statistics are no longer those of version 1}."""
    table = table.replace("| errors |", "| broken |")  # its heading in version 1
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines() if line[:1] == "|"]
    computed = ("pairs", "p", "p (Holm)", "p by seeds", "p by tasks", "sd by seeds")
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines if len(line) == len(lines[0])]
    return {
        row["method"]: {head: cell.partition(" [")[0] for head, cell in row.items() if head not in computed}
        for row in rows
    }


def test_a_sweep_tabulates_as_it_did(version_1):
    words = [sys.executable, "-m", "scripts.tables", str(version_1 / "sweep"), "--table", "main"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=REPO, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    before, now = measured((version_1 / "main_table.md").read_text()), measured(done.stdout)
    arms = [arm for arm in before if arm.startswith(("no_memory", "reasoning", "matts"))]
    assert len(arms) >= 2 and [now[arm] | {"method": arm} for arm in arms] == [before[arm] for arm in arms]


def test_cells_are_those_of_new_runs(version_1, here):
    words = "env=toy llm=scripted embedder=hashing arm=reasoningbank env.families=2 env.boxes_per_family=3".split()
    run_dir, _ = here(*words, *as_then(version_1))
    old = {read_run(path).cell for path in find_runs([version_1 / "sweep"]) if "reasoningbank" in path.name}
    assert old == {read_run(run_dir).cell}


def test_a_bank_opens(version_1):
    bank = version_1 / "whole" / "bank.sqlite"
    words = [sys.executable, "-m", "core.memory", "search", str(bank), "a box of the family amber", "--k", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=REPO, timeout=120)
    assert len(done.stdout.splitlines()) == 2


def test_a_run_made_before_a_part_had_a_key_has_its_default():
    embedder = {"inner": {"_target_": "core.models.embedding.OpenAIEmbedder"}}
    cfg = {"workflow": {}, "retrieval": {"_target_": "Hybrid", "pool": 3}, "embedder": embedder}
    found = completed(cfg)
    assert found["retrieval"] == {"_target_": "Hybrid", "pool": 3, "threshold_on": "similarity"}
    assert found["embedder"]["inner"]["batch"] == 1
    chosen = {"_target_": "Hybrid", "threshold_on": "score"}
    assert completed(cfg | {"retrieval": chosen})["retrieval"] == chosen
