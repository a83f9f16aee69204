"""The instrument's calibration: on the toy world the loop's result is known exactly."""

import tarfile

import forkserver
import pytest
from conftest import REPO, TOY, command, read_json, read_rows

from analysis.cells import make_cells
from analysis.load import load_runs
from core.seeding import derive_seed

FAMILIES, BOXES = ("amber", "birch", "cedar", "dune"), 10
BOX = [(family, box) for box in range(1, BOXES + 1) for family in FAMILIES]  # as the stream has them


def expected(learns, *, rounds=1, batch=1, passes=1):
    """Boxes opened, from the definitions alone: a box is opened at once by who was taught its word by another box.

    learns   from which outcomes; rounds: a second one reads the feedback of the first; batch: boxes between two lessons
    """
    taught: dict[str, set] = {family: set() for family in FAMILIES}
    waiting, opened = [], 0
    for place, (family, box) in enumerate(BOX * passes):
        if place % batch == 0:
            for name, number in waiting:
                taught[name].add(number)
            waiting = []
        won = bool(taught[family] - {box}) or rounds > 1
        opened += won
        if won in learns:
            waiting.append((family, box))
    return opened, len(BOX) * passes


def by_lot(rows, seed=0):
    """Boxes opened when each is shown one lesson of those before it, the one whose hash comes first: `expected` with
    chance. Of a run's rows only the tasks and the names of its records are used."""
    records, opened = [], 0
    for row in rows:
        drawn = min(records, key=lambda one: derive_seed(seed, row["task_id"], one[0], "retrieval"), default=None)
        opened += drawn is not None and drawn[1] == row["task_type"]
        records.append((row["records"][0]["id"], row["task_type"]))
    return opened, len(rows)


BOTH, SUCCESS, FAILURE, NEVER = (True, False), (True,), (False,), ()
ANSWERS = {
    "no_memory": expected(NEVER),
    "reasoningbank": expected(BOTH),
    "success_only": expected(SUCCESS),
    "failure_only": expected(FAILURE),
    "synapse": expected(SUCCESS),
    "awm": expected(SUCCESS),
    "matts_parallel": expected(BOTH),
    "matts_parallel_alone": expected(BOTH),
    "matts_parallel_no_memory": expected(NEVER),
    "matts_sequential": expected(BOTH, rounds=2),
    "matts_sequential_alone": expected(BOTH, rounds=2),
    "matts_sequential_no_memory": expected(NEVER, rounds=2),
    "batch_of_40": expected(BOTH, batch=40),
    "two_passes": expected(BOTH, passes=2),
    "no_memory_two_passes": expected(NEVER, passes=2),
}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """experiment=known_answer as a user runs it: {arm: run directory}, and what it printed."""
    folder = tmp_path_factory.mktemp("known") / "sweep"
    words = command("experiment=known_answer", f"run_dir={folder}")
    done = forkserver.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return {
        path.name.partition(",")[0].removeprefix("arm="): path for path in folder.iterdir() if path.is_dir()
    }, done.stdout


def test_the_answers_are_those_of_the_design():
    assert ANSWERS["reasoningbank"] == ANSWERS["matts_parallel"] == (36, 40)
    assert ANSWERS["matts_sequential"] == (40, 40)
    assert ANSWERS["awm"] == ANSWERS["success_only"] == ANSWERS["batch_of_40"] == ANSWERS["no_memory"] == (0, 40)
    assert ANSWERS["two_passes"] == (76, 80)
    assert expected(BOTH, batch=10) == (30, 40)  # ten boxes without a word


def test_the_experiment_gives_the_known_answers(experiment):
    arms, printed = experiment
    found = {arm: read_json(path / "summary.json") for arm, path in arms.items()}
    answers = ANSWERS | {"random_retrieval": by_lot(read_rows(arms["random_retrieval"]))}
    assert {arm: (s["n_success"], s["n"]) for arm, s in found.items()} == answers
    for count in {f"({won} of {n})" for won, n in answers.values()}:
        assert count in printed


def test_two_passes_are_compared_with_two_passes(experiment):
    """76 of 80 boxes against none of 80; every other arm against the 40 of one pass."""
    arms, _ = experiment
    table = make_cells(load_runs([arms["two_passes"].parent]), "no_memory").table.set_index("arm")
    assert table.loc["two_passes", ["difference", "n_pairs"]].tolist() == [76 / 80, 80]
    assert table.loc["reasoningbank", ["difference", "n_pairs"]].tolist() == [36 / 40, 40]


def test_every_arm_records_what_it_did_to_the_byte(experiment, tmp_path):
    """tests/data/known.tar.xz holds the episodes as they were: ARM.jsonl."""
    with tarfile.open(REPO / "tests" / "data" / "known.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    known = {path.stem: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(known) == 15
    for arm, episodes in known.items():
        assert (experiment[0][arm] / "episodes.jsonl").read_bytes() == episodes, arm


@pytest.mark.parametrize("arm", ["reasoningbank", "matts_parallel"])
def test_workers_change_nothing(experiment, here, arm):
    run_dir, _ = here(*TOY, f"arm={arm}", "max_concurrency=8", "env.workers=8")
    assert (run_dir / "episodes.jsonl").read_bytes() == (experiment[0][arm] / "episodes.jsonl").read_bytes()


@pytest.mark.parametrize(("batch", "passes"), [(3, 2), (10, 1)])
def test_a_batch_shares_the_bank_as_it_stood(here, batch, passes):
    run_dir, _ = here(*TOY, f"stream.batch={batch}", f"stream.passes={passes}", "max_concurrency=4")
    summary = read_json(run_dir / "summary.json")
    assert (summary["n_success"], summary["n"]) == expected(BOTH, batch=batch, passes=passes)
    assert summary["stream"] == {"batch": batch, "order": "file", "passes": passes}
    assert sum(p["n_success"] for p in summary["by_pass"]) == (summary["n_success"] if passes > 1 else 0)


def test_the_stream_may_have_another_order_by_seed(here, tmp_path):
    orders = {}
    for order in ("file", "shuffled", "by_type"):
        for seed in (0, 1):
            words = (*TOY, "env.boxes_per_family=3", f"stream.order={order}", f"seed={seed}", "workflow=vanilla")
            run_dir, _ = here(*words, run_dir=tmp_path / order / str(seed))
            orders[order, seed] = [row["task_id"] for row in read_rows(run_dir)]
    assert len({tuple(sorted(order)) for order in orders.values()}) == 1
    assert orders["file", 0] == orders["file", 1]
    assert orders["shuffled", 0] != orders["shuffled", 1] != orders["file", 0]
    families = [name.split("/")[1] for name in orders["by_type", 0]]
    assert [families[n] for n in range(0, 12, 3)] == list(dict.fromkeys(families))
    assert orders["by_type", 0][:3] == [f"toy/{families[0]}/{box}" for box in range(1, 4)]
    assert read_json(run_dir / "manifest.json")["task_ids"] == orders["by_type", 1]


def test_only_the_first_box_of_each_family_fails_and_without_memory_nothing_is_retrieved(experiment):
    rows = read_rows(experiment[0]["reasoningbank"])
    assert [row["task_id"] for row in rows if row["status"] == "failure"] == [f"toy/{family}/1" for family in FAMILIES]
    assert read_json(experiment[0]["no_memory"] / "summary.json")["n_retrieved"] == 0


def test_retrieving_nothing_is_no_memory(here):
    assert here(*TOY, "retrieval.top_k=0", "limit=8")[1] == 0.0


def test_other_seeds_have_other_words_and_the_same_result(experiment, here):
    run_dir, rate = here(*TOY, "seed=7")
    words, usual = (
        {row["trajectories"][0]["gold"] for row in read_rows(run)} for run in (run_dir, experiment[0]["reasoningbank"])
    )
    assert rate == 0.9
    assert len(words) == len(usual) == 4 and not words & usual


def test_a_frozen_bank_is_read_and_not_written(experiment, here, tmp_path):
    bank = experiment[0]["reasoningbank"] / "bank.sqlite"
    before = bank.read_bytes()
    frozen, rate = here(*TOY, "setting=frozen", f"memory.path='{bank}'", run_dir=tmp_path / "frozen")
    summary = read_json(frozen / "summary.json")
    # Every family's word is in the bank, but a task may not use what it taught itself: others of its family serve.
    assert rate == 1.0
    assert summary["n_lessons"] == 0
    assert summary["label_source"] == "llm"  # of the bank's lessons; it judges nothing itself
    assert bank.read_bytes() == before
    assert not (frozen / "bank.sqlite").exists()


def test_train_labels_by_the_oracle(here):
    run_dir, rate = here(*TOY, "setting=train")
    assert rate == 0.9
    assert {row["verdict"]["source"] for row in read_rows(run_dir)} == {"oracle"}
