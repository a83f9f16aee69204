"""stream.mode=async: tasks overlap, what they saw is on record, and a recorded order is repeated to the byte."""

from __future__ import annotations

import json
import random
import shutil
import signal
import threading
import time
from functools import wraps
from itertools import count

import forkserver
import pytest
from conftest import TOY, command, read_json, read_rows
from test_memory_fold import dump

from analysis.audit import audit
from analysis.cells import make_cells
from analysis.load import frame_of
from analysis.runs import read_run
from core.errors import InfraError, StopRun, UserError
from core.jsonl import JsonLines
from core.memory.records import ticked
from core.run.records import RunRecords, current, records_of
from core.run.unfinished import Begun, RolloutLog
from envs import toy_script
from workflows.reasoningbank import ReasoningBank
from workflows.stream import Stream

ASYNC = (*TOY, "stream.mode=async", "stream.window=3")
PATIENCE_S = 60.0  # for what must happen; no test waits that long where all is well


@pytest.fixture
def ends(monkeypatch):
    """ends(*places): from now on the tasks of a run end in this order, the first of them when three are under way.

    A task that is not named ends when it likes.
    """
    attempt, append = ReasoningBank.attempt, RunRecords.append
    order, under_way, lock = [], set(), threading.Lock()
    go: dict[int, threading.Event] = {}

    def held(self, index, task, memories):
        with lock:
            under_way.add(index)
            if len(under_way) == 3 and order:
                go[order[0]].set()
        if index in go:
            assert go[index].wait(PATIENCE_S), f"task {index} was never let go"
        return attempt(self, index, task, memories)

    def appended(self, episode):
        append(self, episode)
        if len(self.rows) < len(order):
            go[order[len(self.rows)]].set()

    monkeypatch.setattr(ReasoningBank, "attempt", held)
    monkeypatch.setattr(RunRecords, "append", appended)

    def start(*places):
        order[:] = places
        under_way.clear()
        go.clear()
        go.update({place: threading.Event() for place in places})

    return start


def order_of(run_dir):
    return [(row["place"], row["seen"]) for row in read_rows(run_dir)]


def faults_of(run_dir):
    return audit(read_run(run_dir))["broken"]


def test_tasks_overlap_see_the_bank_as_it_stands_and_end_in_an_order_of_their_own(here, ends):
    ends(2, 0, 4, 1, 3, 6, 5, 7)
    run_dir, _ = here(*ASYNC, "limit=8")  # 4 families, so task n + 4 is the next of n's
    assert order_of(run_dir) == [(2, 0), (0, 0), (4, 2), (1, 0), (3, 1), (6, 4), (5, 3), (7, 5)]
    rows = read_rows(run_dir)
    assert (
        [row["index"] for row in rows] == [record["tick"] for row in rows for record in row["records"]] == [*range(8)]
    )
    by_place = {row["place"]: row for row in rows}
    assert by_place[4]["retrieved"][0]["id"] == by_place[0]["records"][0]["id"]  # it had ended
    assert by_place[5]["retrieved"][0]["id"] != (late := by_place[1]["records"][0]["id"])  # which had not
    assert late not in {hit["id"] for row in rows[:7] for hit in row["retrieved"]}
    assert [row["status"] for row in current(rows)] == 4 * ["failure"] + ["success", "failure", "success", "success"]
    assert [json.loads(line)["index"] for line in (run_dir / "timings.jsonl").read_text().splitlines()] == [*range(8)]
    assert [record["id"] for record in dump(run_dir / "bank.sqlite")[0]] == [row["records"][0]["id"] for row in rows]
    assert faults_of(run_dir) == {} and (run_dir / "rollouts.jsonl").read_bytes() == b""
    assert read_json(run_dir / "summary.json")["stream"] == {
        "batch": 1,
        "order": "file",
        "passes": 1,
        "mode": "async",
        "window": 3,
    }
    frame = frame_of([read_run(run_dir)])
    assert list(frame["index"]) == [*range(8)]  # tables have the order of the stream
    assert "reasoningbank: stream.mode=async." in make_cells(frame).notes


WAYS = {
    "reasoningbank": "limit=10",
    "matts": "workflow=matts_parallel k=2 limit=8",
    "rounds of the bank": "memory=consolidated_offline memory.consolidate.every=3 limit=10",
    "passes": "stream.passes=2 limit=5",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_recorded_order_is_repeated_to_the_byte(here, ends, tmp_path, way):
    words = (*ASYNC, *WAYS[way].split())
    ends(*(order := (1, 3, 0, 2, 4, 6, 8, 5, 7, 9) if way == "passes" else (1, 3, 0, 2, 5, 4, 7, 6, 9, 8)))
    first, _ = here(*words, run_dir=tmp_path / "first")
    assert (ended := [place for place, _ in order_of(first)]) == list(order)[: len(ended)]
    ends()
    again, _ = here(*words, f"stream.order_from={first}", run_dir=tmp_path / "again")
    assert (again / "episodes.jsonl").read_bytes() == (first / "episodes.jsonl").read_bytes()
    assert dump(again / "bank.sqlite") == dump(first / "bank.sqlite")
    assert faults_of(first) == {}
    assert read_json(first / "manifest.json")["run"] == read_json(again / "manifest.json")["run"]
    if way == "passes":
        rows = read_rows(first)
        assert min(row["seen"] for row in rows if row["place"] >= 5) == 5  # the second began when the first was over
        assert len(read_json(first / "summary.json")["by_pass"]) == 2


def test_with_recorded_replies_nobody_is_asked(here, ends, monkeypatch, tmp_path):
    words = (*ASYNC, "limit=6", f"llm.cache_path={tmp_path / 'replies.sqlite'}")
    ends(2, 1, 0, 4, 3, 5)
    first, _ = here(*words, "llm.cache=read_write", run_dir=tmp_path / "first")
    ends()
    asked = wraps(toy_script.play)(lambda *_: pytest.fail("a model was asked"))
    monkeypatch.setattr(toy_script, "play", asked)
    again, _ = here(*words, "llm.cache=replay", f"stream.order_from={first}", run_dir=tmp_path / "again")
    assert (again / "episodes.jsonl").read_bytes() == (first / "episodes.jsonl").read_bytes()


def test_one_at_a_time_is_the_papers_stream(here, tmp_path):
    usual, _ = here(*TOY, "limit=8", run_dir=tmp_path / "usual")
    alone, _ = here(*TOY, "limit=8", "stream.mode=async", "stream.window=1", run_dir=tmp_path / "alone")
    assert order_of(alone) == [(n, n) for n in range(8)]
    bare = [{k: v for k, v in row.items() if k not in ("place", "seen")} for row in read_rows(alone)]
    assert bare == read_rows(usual)


def test_where_nothing_is_learned_it_changes_nothing(here, tmp_path):
    usual, _ = here(*TOY, "workflow=vanilla", "limit=6", run_dir=tmp_path / "usual")
    run_dir, _ = here(*ASYNC, "workflow=vanilla", "limit=6", run_dir=tmp_path / "async")
    assert (run_dir / "episodes.jsonl").read_bytes() == (usual / "episodes.jsonl").read_bytes()
    assert faults_of(run_dir) == {}


class Killed(BaseException):
    """The process is gone: nothing that comes after is written."""


@pytest.fixture
def writes(monkeypatch):
    """writes.stop_at: the number of the line, of all files of a run, at which it is killed: half of it is written."""
    append = JsonLines.append

    class Writes:
        stop_at, n, lock = None, 0, threading.Lock()

    def counted(self, row, hint="", *, durable=False):
        with Writes.lock:
            Writes.n += 1
            gone = Writes.stop_at is not None and Writes.n >= Writes.stop_at
            if gone and Writes.n == Writes.stop_at and not Writes.n % 2:  # at every other line: torn
                with self.path.open("ab") as file:
                    file.write(json.dumps(row)[:40].encode())
        if gone:
            raise Killed
        append(self, row, hint, durable=durable)

    monkeypatch.setattr(JsonLines, "append", counted)
    return Writes


@pytest.mark.parametrize("way", ["", "workflow=matts_parallel k=2"])
def test_killed_at_any_write_it_goes_on_to_the_recorded_order_and_pays_for_no_attempt_twice(
    here, ends, writes, monkeypatch, tmp_path, way
):
    words = (*ASYNC, *way.split(), "limit=6")
    ends(1, 3, 0, 2, 5, 4)
    first, _ = here(*words, run_dir=tmp_path / "first")
    whole, made, n = (first / "episodes.jsonl").read_bytes(), [], writes.n
    ends()
    checkpoint = ReasoningBank.checkpoint

    def kept(self, index, task, trajectory):
        checkpoint(self, index, task, trajectory)
        made.append((index, trajectory.sample))

    monkeypatch.setattr(ReasoningBank, "checkpoint", kept)
    for killed_at in range(2, n, 17 if way else 7):
        run_dir = tmp_path / str(killed_at)
        made.clear()
        for stop_at in (killed_at, 5, None):
            writes.stop_at, writes.n = stop_at, 0
            try:
                here(*words, f"stream.order_from={first}", run_dir=run_dir)
            except Killed:
                continue
        assert (run_dir / "episodes.jsonl").read_bytes() == whole
        assert dump(run_dir / "bank.sqlite") == dump(first / "bank.sqlite")
        assert sorted(made) == [(place, sample) for place in range(6) for sample in range(2 if way else 1)]


def test_killed_at_random_moments_nothing_is_lost_and_nothing_done_twice(tmp_path):
    words = command(
        *ASYNC, "limit=16", "workflow=matts_parallel", "k=2", "llm.delay_s=0.02", f"run_dir={tmp_path / 'D'}"
    )
    episodes, rng, lines = tmp_path / "D" / "episodes.jsonl", random.Random(3), []
    for kill in (True, True, True, False):
        process = forkserver.Popen(words, stdout=-3, stderr=-3)
        size = (episodes.stat().st_size if episodes.exists() else 0) + rng.randint(1, 12_000)
        while kill and process.poll() is None and (not episodes.exists() or episodes.stat().st_size < size):
            time.sleep(0.001)
        if kill:
            process.send_signal(signal.SIGKILL)
        process.wait(240)
        whole = episodes.read_bytes().rpartition(b"\n")[0]
        assert whole.startswith(b"\n".join(lines))  # what was recorded stays as it was
        lines = whole.splitlines()
    assert sorted(row["place"] for row in read_rows(tmp_path / "D")) == [*range(16)]
    assert faults_of(tmp_path / "D") == {}
    assert (tmp_path / "D" / "rollouts.jsonl").read_bytes() == b""


def test_ctrl_c_stops_at_once_and_the_same_command_goes_on(tmp_path):
    run_dir = tmp_path / "D"
    words = command(*ASYNC, "limit=12", f"run_dir={run_dir}")
    process = forkserver.Popen([*words, "llm.delay_s=0.1"], stdout=-3, stderr=-1, text=True)
    while not (run_dir / "episodes.jsonl").exists() or not (run_dir / "episodes.jsonl").stat().st_size:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped." in said and "Traceback" not in said
    done = len(read_rows(run_dir))
    assert 0 < done < 12
    forkserver.run([*words, "llm.delay_s=0.1"], check=True, capture_output=True, timeout=240)
    assert len(read_rows(run_dir)) == 12 and faults_of(run_dir) == {}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A finished asynchronous run of 8 tasks, which no test may change."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    words = (*ASYNC, "limit=8", "llm.delay_s=0.005", f"run_dir={folder}")
    forkserver.run(command(*words), check=True, capture_output=True, timeout=240)
    return folder


def lines_in_another_order(rows):
    rows[6], rows[7] = rows[7], rows[6]
    for index, row in enumerate(rows):
        row["index"] = index
        for record in row["records"]:
            record["tick"] = index


def with_ids_of_that_order(rows):
    lines_in_another_order(rows)
    for row in rows:
        for record, made in zip(row["records"], records_of(row), strict=True):
            record["id"] = ticked(made, row["index"]).id


def seen_less(rows):
    last = next(row for row in rows if row["place"] == 7)
    last["seen"] = 0


def seen_what_was_to_come(rows):
    rows[3]["seen"] = 5


def seen_is_gone(rows):
    del rows[4]["seen"]


def place_is_gone(rows):
    del rows[7]["place"]


def shown_what_had_not_ended(rows):
    row = next(row for row in rows if row["place"] == 7)
    row["retrieved"] = [{"id": rows[row["seen"]]["records"][0]["id"], "score": 1.0}]


def seen_all_before(rows):  # a run of one task at a time that it never was
    for row in rows:
        row["seen"] = row["index"]


FORGED = {
    lines_in_another_order: "overlapping",
    with_ids_of_that_order: "lost_or_doubled",  # the bank knows better
    seen_less: "overlapping",
    seen_what_was_to_come: "overlapping",
    seen_all_before: "overlapping",
    seen_is_gone: "overlapping",
    place_is_gone: "overlapping",
    shown_what_had_not_ended: "self_retrieval",
}


@pytest.mark.parametrize("forge", FORGED)
def test_a_forged_order_is_found(recorded, tmp_path, forge):
    assert faults_of(recorded) == {}
    run_dir = tmp_path / "run"
    shutil.copytree(recorded, run_dir)
    rows = read_rows(run_dir)
    forge(rows)
    (run_dir / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert FORGED[forge] in faults_of(run_dir)


def test_lines_out_of_place_and_a_place_twice_cannot_be_read(recorded, tmp_path):
    run_dir = tmp_path / "run"
    shutil.copytree(recorded, run_dir)
    rows = read_rows(run_dir)
    for changed, words in (([rows[1], rows[0], *rows[2:]], "line 1 holds index 1"), ([*rows[:7], None], "one place")):
        changed[7] = changed[7] or rows[7] | {"place": rows[0]["place"]}
        (run_dir / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
        with pytest.raises(UserError, match=words):
            read_run(run_dir)


def test_the_papers_stream_has_no_order_of_its_own(here):
    run_dir, _ = here(*TOY, "limit=6")
    rows = read_rows(run_dir)
    assert not any("seen" in row or "place" in row for row in rows)
    for row in rows:
        row["seen"] = 6
    rows[1]["retrieved"] = [{"id": rows[5]["records"][0]["id"], "score": 1.0}]
    (run_dir / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert {"overlapping", "self_retrieval"} <= faults_of(run_dir).keys()


def test_what_cannot_be_repeated_is_refused_in_one_sentence(here, recorded, tmp_path):
    fresh = (tmp_path / str(n) for n in count())

    def refused(*words, order_from=recorded, run_dir=None):
        with pytest.raises(UserError) as error:
            here(*words, f"stream.order_from={order_from}", run_dir=run_dir or next(fresh))
        return str(error.value)

    assert "has not run the 9 tasks of this run to their end" in refused(*ASYNC, "limit=9")
    assert "3 tasks were under way" in refused(*ASYNC, "limit=8", "stream.window=2")
    assert "holds no run" in refused(*ASYNC, "limit=8", order_from=tmp_path)
    usual, _ = here(*TOY, "limit=8", run_dir=tmp_path / "usual")
    assert "is no run with stream.mode=async" in refused(*ASYNC, "limit=8", order_from=usual)
    other = tmp_path / "other"
    shutil.copytree(recorded, other, ignore=shutil.ignore_patterns("bank.*"))
    rows = read_rows(other)
    exchanged = [rows[1] | {"index": 0}, rows[0] | {"index": 1}, *rows[2:]]
    for folder, kept in ((other, rows[:5]), (shutil.copytree(recorded, tmp_path / "exchanged"), exchanged)):
        (folder / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    assert "in another order than stream.order_from" in refused(
        *ASYNC, "limit=8", "llm.delay_s=0.005", run_dir=other, order_from=tmp_path / "exchanged"
    )
    with pytest.raises(UserError, match="cannot grow, because with stream.mode=async its last tasks had fewer beside"):
        here(*ASYNC, "limit=9", "llm.delay_s=0.005", run_dir=recorded)


REFUSED = [
    ({"mode": "async"}, "give stream.window=N"),
    ({"mode": "async", "window": 4, "batch": 2}, "and no stream.batch"),
    ({"window": 4}, "act with stream.mode=async alone"),
    ({"order_from": "x"}, "act with stream.mode=async alone"),
    ({"mode": "async", "window": 0}, "stream.window=0"),
    ({"mode": "async", "window": 2.5}, "stream.window=2.5"),
    ({"mode": "sync"}, "choose in_order or async"),
]


@pytest.mark.parametrize(("keys", "words"), REFUSED)
def test_keys_that_do_not_go_together_are_refused(keys, words):
    with pytest.raises(UserError, match=words):
        Stream(**keys)


@pytest.fixture
def playing(monkeypatch):
    """playing(change): change(what the agent is asked) is called before each of its calls."""
    original = toy_script.play

    def start(change):
        def play(messages, role, sample):
            if role == "agent":
                change(messages[1]["content"])
            return original(messages, role, sample)

        monkeypatch.setattr(toy_script, "play", play)

    return start


def test_what_breaks_is_tried_again_at_the_end_and_is_on_record(here, playing):
    broken = ["birch box: box 1 ", "dune box: box 1 "]

    def ill(told):
        if name := next((name for name in broken if name in told), None):
            broken.remove(name)
            raise InfraError("oops", "server")

    playing(ill)
    run_dir, _ = here(*ASYNC, "limit=8")
    rows = read_rows(run_dir)
    again = {row["place"]: row for row in rows[8:]}
    assert again.keys() == {1, 3} and all(row["seen"] == row["index"] for row in again.values())
    first = {row["place"]: row["index"] for row in rows[:8]}
    assert all(row["retries"] == first[place] and row["status"] == "success" for place, row in again.items())
    assert faults_of(run_dir) == {} and read_json(run_dir / "summary.json")["complete"]


def test_several_broken_in_a_row_stop_it_and_it_goes_on_later(here, playing):
    ill = True

    def gone(_):
        if ill:
            raise InfraError("oops", "server")

    playing(gone)
    with pytest.raises(StopRun, match="3 tasks in a row broke"):
        here(*ASYNC, "limit=8")
    ill = False
    run_dir, _ = here(*ASYNC, "limit=8")
    assert read_json(run_dir / "summary.json")["complete"] and faults_of(run_dir) == {}


def test_an_error_that_stops_the_run_loses_nothing_that_the_others_did(here, ends, playing):
    healed = False

    def key_is_gone(told):
        if not healed and "amber box: box 1 " in told:
            raise StopRun("the key was refused")

    playing(key_is_gone)
    ends(0)  # only when three are under way
    with pytest.raises(StopRun, match="the key was refused"):
        here(*ASYNC, "limit=8")
    ends()
    healed = True
    run_dir, _ = here(*ASYNC, "limit=8")
    rows = read_rows(run_dir)
    assert {row["place"] for row in rows[:2]} == {1, 2}  # which were under way then
    assert next(row for row in rows if row["place"] == 0)["seen"] == 0  # it had read the bank before
    assert faults_of(run_dir) == {}


def test_the_budget_ends_it_and_a_larger_one_goes_on(here):
    words = (*ASYNC, "limit=10")
    run_dir, _ = here(*words, "budget.run.calls=13")
    rows = read_rows(run_dir)
    assert [row["status"] == "stopped" for row in rows] == [False] * (len(rows) - 1) + [True]
    assert "place" in rows[-1]
    kept = rows[:-1]
    here(*words)
    assert read_rows(run_dir)[: len(kept)] == kept
    assert len(read_rows(run_dir)) == 10 and faults_of(run_dir) == {}


def test_what_is_known_of_many_tasks_under_way_outlives_a_clearing_of_the_file(tmp_path):
    log = RolloutLog(tmp_path / "rollouts.jsonl")
    log.begin(0, Begun(seen=0, memories=[]))
    for index in range(1, 70):
        log.begin(index, Begun(seen=index, memories=[]))
        log.forget(index)
    assert len((tmp_path / "rollouts.jsonl").read_text().splitlines()) < 10
    log.close()
    again = RolloutLog(tmp_path / "rollouts.jsonl")
    again.drop(range(1, 70))  # which were written; a crash may have come before they were forgotten
    assert again.begun(0) == Begun(seen=0, memories=[]) and again.begun(69) is None
    again.drop([0])
    assert (tmp_path / "rollouts.jsonl").read_bytes() == b""
    again.close()
