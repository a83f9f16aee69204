"""A run grows: with a larger `limit` it is, to the byte, what it had been with that limit from the start."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress

import pytest
from conftest import TOY, read_json, read_rows, write_rows
from test_memory_fold import dump

from core.errors import OverBudget, UserError

MERGE = ("memory.consolidate.every=6", "memory.consolidate.merge.min_score=0.3", "memory.consolidate.merge.min_fit=-1")
WAYS = {
    "vanilla": ("workflow=vanilla", "max_concurrency=2"),
    "reasoningbank": (),
    "shuffled": ("stream.order=shuffled",),
    "by_type": ("stream.order=by_type",),
    "matts": ("workflow=matts_parallel", "k=2"),
    "consolidated": ("llm.script.path=test_memory_fold.merging", "memory=consolidated", *MERGE),
    "consolidated_offline": ("memory=consolidated_offline", "memory.consolidate.every=3"),
    "awm": ("arm=awm",),
}


def asked(run_dir):
    """How often each role's model was asked, over all starts. Embeddings are cached where they cost something."""
    roles = Counter(json.loads(line)["role"] for line in (run_dir / "calls.jsonl").read_text().splitlines())
    return {role: n for role, n in roles.items() if role != "embedder"}


@pytest.mark.parametrize("way", WAYS)
def test_a_grown_run_is_the_larger_one_to_the_byte(here, tmp_path, way):
    words = (*TOY, *WAYS[way])
    whole, rate = here(*words, "limit=12", run_dir=tmp_path / "whole")
    run_dir = tmp_path / "grown"
    for limit in (7, 12):
        assert len(read_rows(here(*words, f"limit={limit}", run_dir=run_dir)[0])) == limit
    assert (run_dir / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
    assert dump(run_dir / "bank.sqlite") == dump(whole / "bank.sqlite")
    assert asked(run_dir) == asked(whole)  # and nothing was paid twice
    grown, made = read_json(run_dir / "manifest.json"), read_json(whole / "manifest.json")
    assert {key: grown[key] for key in ("run", "fingerprint", "config", "task_ids")} == {
        key: made[key] for key in ("run", "fingerprint", "config", "task_ids")
    }
    summary, expected = read_json(run_dir / "summary.json"), read_json(whole / "summary.json")
    assert summary["success_rate"] == rate
    unlike = {key for key in expected if summary[key] != expected[key]}
    assert unlike <= {"wall_s", "wall_s_per_success", "calls"}  # clock times, and calls of this start
    if way == "consolidated":
        assert {record["status"] for record in dump(run_dir / "bank.sqlite")[0]} >= {"active", "archived"}


def test_no_limit_is_the_largest(here, tmp_path):
    whole, _ = here(*TOY, run_dir=tmp_path / "whole")
    run_dir, _ = here(*TOY, "limit=3", run_dir=tmp_path / "grown")
    here(*TOY, run_dir=run_dir)
    assert (run_dir / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
    here(*TOY, "limit=99", run_dir=run_dir)  # the same 40 tasks


def test_a_run_cut_off_while_it_grew_goes_on(here, tmp_path):
    words = (*TOY, "limit=10")
    whole, _ = here(*words, run_dir=tmp_path / "whole")
    run_dir, _ = here(*TOY, "limit=4", run_dir=tmp_path / "grown")
    for n in (20, 30):
        with suppress(OverBudget):
            here(*words, f"budget.run.calls={n}", run_dir=run_dir)
        assert len(read_rows(run_dir)) < 10
    here(*words, run_dir=run_dir)
    assert (run_dir / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
    assert dump(run_dir / "bank.sqlite") == dump(whole / "bank.sqlite")


def refused(here, run_dir, *words):
    """What a start of a run is refused with; nothing of the run may change."""
    before = {path.name: path.read_bytes() for path in run_dir.iterdir() if path.is_file()}
    with pytest.raises(UserError) as error:
        here(*TOY, *words, run_dir=run_dir)
    assert {path.name: path.read_bytes() for path in run_dir.iterdir() if path.is_file()} == before
    return str(error.value)


def test_a_run_does_not_become_smaller(here, tmp_path):
    run_dir, _ = here(*TOY, "limit=5")
    assert refused(here, run_dir, "limit=4") == (
        f"limit=5 -> 4: run_dir={run_dir} has 5 tasks, and a run only grows; give its limit, or another run_dir."
    )


def test_a_second_pass_cannot_be_put_off(here, tmp_path):
    run_dir, _ = here(*TOY, "limit=3", "stream.passes=2")
    assert "because with stream.passes=2 the new tasks belong before the second pass" in refused(
        here, run_dir, "limit=4", "stream.passes=2"
    )


def test_what_was_tried_again_at_the_end_cannot_be_put_off(here, tmp_path):
    run_dir, _ = here(*TOY, "limit=4")
    rows = read_rows(run_dir)
    again = {**rows[1], "index": 4, "retries": 1}
    rows.append({**again, "records": []})
    write_rows(run_dir, rows)
    assert "because tasks that broke were tried again at its end" in refused(here, run_dir, "limit=6")


def test_another_key_beside_the_limit_is_another_run(here, tmp_path):
    run_dir, _ = here(*TOY, "limit=4")
    said = refused(here, run_dir, "limit=6", "seed=1")
    assert "was made with another configuration" in said and "config.seed: 0 -> 1" in said
    assert "to go on" not in said  # the same command would be refused again


def test_other_tasks_are_no_growth(here, tmp_path):
    run_dir, _ = here(*TOY, "limit=4")
    manifest = read_json(run_dir / "manifest.json")
    manifest["task_ids"].reverse()
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    assert "because its tasks are not the first of the larger run" in refused(here, run_dir, "limit=6")


def test_a_batch_cannot_be_filled_up_later(here, tmp_path):
    run_dir, _ = here(*TOY, "limit=4", "stream.batch=4")
    assert refused(here, run_dir, "limit=8", "stream.batch=4").endswith(
        "cannot grow, because with stream.batch=4 the new tasks may belong to its last batch; "
        "give its limit, or another run_dir."
    )
