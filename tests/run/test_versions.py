"""What the last version wrote is still good: tests/data/version_2.tar.xz holds runs, banks and a table of it.

known/ARM.jsonl are the episodes of experiment=known_answer; sweep/ is a small sweep with its table, main_table.md;
stopped/ is a run that its budget ended, and whole/ the same run without that budget; tagged/ is a run whose bank has
tags, and two lessons that were added by hand. Their parts are named by the modules of then.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
from pathlib import Path

import forkserver
import pytest
from conftest import REPO, command, read_json, read_rows

from analysis.runs import find_runs, read_run
from core.errors import UserError
from core.run import upgrade
from core.run.upgrade import by_class, completed, upgraded_row

STOPPED = (
    "env=toy llm=scripted embedder=hashing arm=matts_parallel memory=consolidated_offline "
    "memory.consolidate.every=4 env.families=2 env.boxes_per_family=6"
).split()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    """The archive, which no test may change."""
    folder = tmp_path_factory.mktemp("version_2")
    with tarfile.open(REPO / "tests" / "data" / "version_2.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def version_2(unpacked, tmp_path) -> Path:
    return Path(shutil.copytree(unpacked, tmp_path / "version_2"))


def test_a_part_is_known_by_what_it_is():
    config = {"memory": {"_target_": "core.somewhere.MemoryBank", "path": None}, "judge": {"_target_": "mine.Judge"}}
    assert by_class(config) == {
        "memory": {"_target_": "MemoryBank", "path": None},
        "judge": {"_target_": "mine.Judge"},
    }
    assert by_class(by_class(config)) == by_class(config)


def test_every_arm_records_what_it_did(unpacked, tmp_path):
    """To the byte, but for the checksums, which came later."""
    words = command("experiment=known_answer", f"run_dir={tmp_path}")
    forkserver.run(words, capture_output=True, check=True, timeout=240)
    arms = sorted(path.stem for path in (unpacked / "known").iterdir())
    assert len(arms) == 15
    for arm in arms:
        [folder] = tmp_path.glob(f"arm={arm},*")
        made = re.sub(rb', "crc32": "[0-9a-f]{8}"}\n', b"}\n", (folder / "episodes.jsonl").read_bytes())
        assert made == (unpacked / "known" / f"{arm}.jsonl").read_bytes(), arm


def test_a_run_goes_on_to_the_same_bytes(version_2, cli):
    done = cli(*STOPPED, f"run_dir={version_2 / 'stopped'}")
    assert done.returncode == 0, done.stderr
    assert (version_2 / "stopped/episodes.jsonl").read_bytes() == (version_2 / "whole/episodes.jsonl").read_bytes()
    assert read_run(version_2 / "stopped").complete
    runs = [read_json(version_2 / name / "manifest.json")["run"] for name in ("stopped", "whole")]
    assert runs[0] == runs[1]


def test_another_configuration_is_still_refused(version_2, cli):
    done = cli(*STOPPED, "retrieval.top_k=2", f"run_dir={version_2 / 'stopped'}")
    assert done.returncode == 1
    assert "retrieval.top_k: 1 -> 2" in done.stderr
    assert "_target_" not in done.stderr


def test_a_sweep_tabulates_as_it_did(unpacked):
    words = [sys.executable, "-m", "scripts.tables", str(unpacked / "sweep"), "--table", "main"]
    done = forkserver.run(words, capture_output=True, text=True, check=False, cwd=REPO, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    then, now = (
        [line for line in text.splitlines() if line.startswith("|")]
        for text in ((unpacked / "main_table.md").read_text(), done.stdout)
    )
    assert now == then and now  # every figure; the notes below say more today of what it is worth


def test_cells_are_those_of_new_runs(unpacked, here):
    words = "env=toy llm=scripted embedder=hashing arm=reasoningbank env.families=2 env.boxes_per_family=3".split()
    run_dir, _ = here(*words)
    old = {read_run(path).cell for path in find_runs([unpacked / "sweep"]) if "reasoningbank" in path.name}
    assert old == {read_run(run_dir).cell}


def test_a_bank_opens(unpacked):
    bank = unpacked / "whole" / "bank.sqlite"
    words = [sys.executable, "-m", "core.memory", "search", str(bank), "a box of the family amber", "--k", "2"]
    done = forkserver.run(words, capture_output=True, text=True, check=True, cwd=REPO, timeout=120)
    assert len(done.stdout.splitlines()) == 2


def test_a_line_is_brought_to_the_present_schema_step_by_step(unpacked, monkeypatch):
    [row, *_] = read_rows(unpacked / "whole")
    assert upgraded_row(row) == row
    monkeypatch.setattr(upgrade, "SCHEMA", 4)
    monkeypatch.setattr(
        upgrade, "STEPS", (lambda row: row | {"third": 1, "schema": 3}, lambda row: row | {"fourth": 1, "schema": 4})
    )
    assert upgraded_row(row) == row | {"third": 1, "fourth": 1, "schema": 4}
    assert upgraded_row(row | {"schema": 3}) == row | {"fourth": 1, "schema": 4}
    with pytest.raises(UserError, match="of before the first release"):
        upgraded_row(row | {"schema": 1})


def test_a_run_made_before_a_part_had_a_key_has_its_default():
    embedder = {"inner": {"_target_": "core.models.embedding.OpenAIEmbedder"}}
    cfg = {"workflow": {}, "retrieval": {"_target_": "Hybrid", "pool": 3}, "embedder": embedder}
    found = completed(cfg)
    assert found["retrieval"] == {"_target_": "Hybrid", "pool": 3, "threshold_on": "similarity"}
    assert found["embedder"]["inner"]["batch"] == 1
    chosen = {"_target_": "Hybrid", "threshold_on": "score"}
    assert completed(cfg | {"retrieval": chosen})["retrieval"] == chosen


def test_the_archive_names_parts_by_modules_that_are_gone(unpacked):
    """Else these tests would show nothing of it."""
    manifest = json.dumps(read_json(unpacked / "whole" / "manifest.json"))
    assert "core.learning.distiller.Distiller" in manifest
    assert not (REPO / "core" / "learning" / "distiller.py").exists()
