"""What version 0.1.0 wrote is still good.

In tests/data, version_0_1_0.tar.xz holds a small sweep of version 0.1.0 with its table, main_table.md.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import forkserver
import pytest
from conftest import REPO, read_rows

from analysis.audit import audit
from analysis.runs import find_runs, read_run
from core.errors import UserError
from core.run.files import read_episodes
from core.run.upgrade import by_class

SWEEP = "env=toy llm=scripted embedder=hashing env.families=2 env.boxes_per_family=3".split()


def unpacked(into: Path) -> Path:
    with tarfile.open(REPO / "tests" / "data" / "version_0_1_0.tar.xz") as archive:
        archive.extractall(into, filter="data")
    return into


@pytest.fixture(scope="module")
def version_0_1_0(tmp_path_factory) -> Path:
    """The archive, which no test may change."""
    return unpacked(tmp_path_factory.mktemp("version_0_1_0"))


def test_a_part_is_known_by_what_it_is():
    config = {"memory": {"_target_": "core.somewhere.MemoryBank", "path": None}, "judge": {"_target_": "mine.Judge"}}
    assert by_class(config) == {
        "memory": {"_target_": "MemoryBank", "path": None},
        "judge": {"_target_": "mine.Judge"},
    }
    assert by_class(by_class(config)) == by_class(config)


def rows_of_table(text: str) -> list[dict[str, str]]:
    """The rows of a table in Markdown, by its headings."""
    head, _, *rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.startswith("|"))
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_a_sweep_tabulates_as_it_did(version_0_1_0):
    words = [sys.executable, "-m", "scripts.tables", str(version_0_1_0 / "sweep"), "--table", "main"]
    done = forkserver.run(words, capture_output=True, text=True, check=False, cwd=REPO, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    then, now = (rows_of_table(text) for text in ((version_0_1_0 / "main_table.md").read_text(), done.stdout))
    same = [{head: row[head] for head in then[0]} for row in now]
    same = [row | {"broken": row["broken"].replace("none", "0")} for row in same]
    assert same == then and len(then) == 3  # every figure; there are more columns and notes today


def test_its_runs_pass_the_audit(version_0_1_0):
    runs = [read_run(path) for path in find_runs([version_0_1_0 / "sweep"])]
    assert len(runs) == 6 and all(run.complete for run in runs)
    assert [audit(run)["broken"] for run in runs] == [{}] * 6


def test_a_run_of_other_keys_is_refused_with_the_difference(tmp_path, cli):
    sweep = unpacked(tmp_path) / "sweep"
    [run_dir] = sweep.glob("arm=reasoningbank,*seed=0")
    done = cli(*SWEEP, "arm=reasoningbank", f"run_dir={run_dir}")
    assert done.returncode == 1 and "was made with another configuration" in done.stderr
    assert "config.stream.mode: 'in_order' -> None" in done.stderr and "Traceback" not in done.stderr


def test_a_line_of_before_the_first_release_is_refused(version_0_1_0, tmp_path):
    run_dir = next(version_0_1_0.glob("sweep/arm=reasoningbank,*"))
    [row, *_] = read_rows(run_dir)
    assert read_episodes(run_dir / "episodes.jsonl")[0] == row
    (tmp_path / "episodes.jsonl").write_text(json.dumps(row | {"schema": 1}) + "\n")
    with pytest.raises(UserError, match="of before the first release"):
        read_episodes(tmp_path / "episodes.jsonl")
