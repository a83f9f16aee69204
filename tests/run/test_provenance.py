"""A bank that knew the answers does not pass for test time: its labels are in every record, summary and table."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml
from conftest import REPO, TOY, read_json, read_rows

from analysis.cells import make_cells
from analysis.load import load_runs
from analysis.report.words import warnings
from analysis.studies import compared, studies
from core.errors import UserError
from core.memory.open import read_records
from core.run.keys import NOTED
from core.setting import joined_labels, labels_of

SHORT = (*TOY, "limit=5")  # the first box of each family, and one that is solved
ALLOWED = "setting.allow_oracle_bank=true"


@pytest.fixture
def trained(here, tmp_path):
    """The bank of a run in which the failure prompt was shown the answers."""
    run_dir, _ = here(*SHORT, "setting=train", run_dir=tmp_path / "trained")
    return run_dir / "bank.sqlite"


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        ((), "none"),
        (("none", "llm"), "llm"),
        (("answers", "oracle", "llm"), "llm+oracle+answers"),
        (("llm+oracle", "consensus"), "consensus+llm+oracle"),
    ],
)
def test_sources_are_joined_with_the_worst_last(sources, text):
    assert joined_labels(sources) == text


def test_a_record_knows_how_it_was_labelled(here, trained, tmp_path):
    assert {joined_labels(labels_of(record)) for record in read_records(trained, "default")} == {"oracle+answers"}
    true, _ = here(*SHORT, "setting=true_labels", run_dir=tmp_path / "true")
    assert {joined_labels(labels_of(record)) for record in read_records(true / "bank.sqlite", "default")} == {"oracle"}
    plain, _ = here(*SHORT, run_dir=tmp_path / "plain")
    [provenance] = {json.dumps(record.provenance) for record in read_records(plain / "bank.sqlite", "default")}
    assert set(json.loads(provenance)) == {"run", "models", "workflow", "attempts", "evidence"}


@pytest.mark.parametrize(
    ("words", "made_by", "attempts"),
    [
        (("workflow=reasoningbank",), {"workflow": "ReasoningBank"}, {(0,)}),
        (("workflow=matts_parallel", "k=3"), {"workflow": "MattsParallel", "k": 3}, {(0, 1, 2)}),
        (("arm=matts_parallel_alone", "k=3"), {"workflow": "MattsParallel", "k": 3}, {(0,), (1,), (2,)}),
        (("workflow=matts_sequential", "r=2"), {"workflow": "MattsSequential", "r": 2}, {(0, 1, 2)}),
    ],
)
def test_a_record_knows_of_which_attempts_it_was_made(here, words, made_by, attempts):
    run_dir, _ = here(*SHORT, *words)
    kept = read_records(run_dir / "bank.sqlite", "default")
    assert {tuple(record.provenance["attempts"]) for record in kept} == attempts
    assert all(made_by.items() <= record.provenance.items() for record in kept)
    assert {record.provenance["evidence"] for record in kept} == {None}  # the distiller's prompt asks for no steps
    samples = {attempt["id"]: attempt["sample"] for row in read_rows(run_dir) for attempt in row["trajectories"]}
    assert all(samples[record.source_trajectory_id] in record.provenance["attempts"] for record in kept)


def test_the_steps_that_a_record_rests_on_are_named_where_they_are_known(here, tmp_path):
    """A whole attempt that is stored rests on all its steps; one that was cut in the middle does not say."""
    for name, words, known in (("whole", (), True), ("cut", ("distiller.max_chars=20",), False)):
        run_dir, _ = here(*SHORT, "env=toy_chance", "arm=synapse", *words, run_dir=tmp_path / name)
        kept = {record.source_trajectory_id: record for record in read_records(run_dir / "bank.sqlite", "default")}
        assert kept
        for row in read_rows(run_dir):
            for attempt in row["trajectories"]:
                if record := kept.get(attempt["id"]):
                    steps = list(range(1, len(attempt["steps"]) + 1))
                    assert record.provenance["evidence"] == (steps if known else None)


@pytest.mark.parametrize("setting", ["test_time", "frozen"])
def test_such_a_bank_is_refused_unless_it_is_allowed_and_then_it_is_told(here, trained, tmp_path, setting):
    words = (*SHORT, f"setting={setting}", f"memory.path={trained}")
    with pytest.raises(UserError, match=f"setting={setting} must not read the bank .*the answers shown"):
        here(*words, run_dir=tmp_path / "refused")
    run_dir, _ = here(*words, ALLOWED, run_dir=tmp_path / "allowed")
    own = "llm+" if setting == "test_time" else ""
    assert read_json(run_dir / "summary.json")["label_source"] == f"{own}oracle+answers"
    assert read_json(run_dir / "manifest.json")["bank_labels"] == ["answers", "oracle"]
    cells = make_cells(load_runs([run_dir]))
    assert cells.table["label_source"].tolist() == [f"{own}oracle+answers"]
    told = "\n".join(cells.notes)
    for words in (f"memory.path={trained}", "memory.namespace=default", "setting.allow_oracle_bank=True"):
        assert f"reasoningbank: {words}" in told
    [study] = studies(compared(load_runs([run_dir])))
    assert any("reference answers shown" in line for line in warnings(study))


def test_a_run_that_goes_on_keeps_the_labels_of_its_first_start(here, trained, tmp_path):
    words = (*TOY, "limit=4", f"memory.path={trained}", ALLOWED)
    run_dir, _ = here(*words, run_dir=tmp_path / "run")
    before = {name: read_json(run_dir / name) for name in ("manifest.json", "summary.json")}
    here(*words, run_dir=run_dir)
    after = {name: read_json(run_dir / name) for name in before}
    assert after["manifest.json"] == before["manifest.json"]
    assert after["summary.json"]["label_source"] == before["summary.json"]["label_source"] == "llm+oracle+answers"


def test_labels_of_the_environment_without_answers_are_refused_as_well(here, tmp_path):
    true, _ = here(*SHORT, "setting=true_labels", run_dir=tmp_path / "true")
    words = (*SHORT, f"memory.path={true / 'bank.sqlite'}")
    with pytest.raises(UserError, match="labels of the environment"):
        here(*words, run_dir=tmp_path / "run")
    here(*words, "workflow=vanilla", run_dir=tmp_path / "vanilla")  # which reads no bank
    here(*words, "memory.namespace=other", run_dir=tmp_path / "other")  # which holds none of them
    here(*words, "setting=true_labels", run_dir=tmp_path / "again")  # whose tables say so anyway


def test_a_judge_of_ones_own_that_knows_the_answers_counts_as_the_environment(here, monkeypatch, tmp_path):
    monkeypatch.setattr("core.learning.judges.OracleJudge.judge", _phrase)
    run_dir, _ = here(*SHORT, "setting=true_labels", run_dir=tmp_path / "phrase")
    assert {joined_labels(labels_of(record)) for record in read_records(run_dir / "bank.sqlite", "default")} == {
        "phrase+oracle"
    }


def _phrase(self, task, trajectory):
    from core.types import Verdict

    return Verdict(label="success" if trajectory.success else "failure", source="phrase")


def test_a_merged_record_has_the_worst_of_its_parents(here, tmp_path):
    words = (*TOY, "memory=merge_voting", "memory.consolidate.every=4")
    train, _ = here(*words, "setting=train", run_dir=tmp_path / "train")
    merged = [record for record in read_records(train / "bank.sqlite", "default") if record.parents]
    assert merged
    assert {joined_labels(labels_of(record)) for record in merged} == {"oracle+answers"}


def test_every_key_of_the_memory_is_either_noted_or_changes_nothing_that_may_be_seen():
    keys = yaml.safe_load((REPO / "config/memory/reasoning_bank.yaml").read_text())
    # The column `memory` and the arms differ by them.
    told_by_the_arm = {"_target_", "hygiene", "consolidate", "validate"}
    same_lessons = {"index", "clock", "store"}
    noted = {name.partition(".")[2] for name in NOTED if name.startswith("memory.")}
    assert set(keys) - {"defaults"} == noted | told_by_the_arm | same_lessons
    assert {name: keys[name] for name in noted} == {name: NOTED[f"memory.{name}"] for name in noted}


def test_given_banks_of_other_names_are_other_cells_and_one_bank_for_all_seeds_is_noted(here, tmp_path):
    made, _ = here(*SHORT, run_dir=tmp_path / "made")
    for name in ("good0", "good1", "bad0", "bad1"):
        shutil.copy(made / "bank.sqlite", tmp_path / f"{name}.sqlite")
    for given in ("good${seed}", "bad${seed}", "good0"):
        words = (*TOY, "limit=1", "setting=frozen", f"memory.path={tmp_path}/{given}.sqlite")
        for seed in (0, 1):
            here(*words, f"seed={seed}", run_dir=tmp_path / "frozen" / f"{given[:4]}{len(given)}{seed}")
    cells = make_cells(load_runs([tmp_path / "frozen"]))
    assert cells.table["seeds"].tolist() == [(0, 1)] * 3 and cells.table["label"].nunique() == 3
    [note] = [note for note in cells.notes if "one given bank" in note]
    label, _, told = note.partition(": ")
    assert told == "all seeds began from one given bank: p and intervals say nothing of other banks."
    [cell] = cells.table[cells.table["label"] == label]["cell"]
    assert cells.episodes(cell)["knobs"].str.contains("good0").all()


def test_allow_self_is_noted(here):
    run_dir, _ = here(*SHORT, "memory.allow_self=true")
    assert "reasoningbank: memory.allow_self=True." in make_cells(load_runs([run_dir])).notes
