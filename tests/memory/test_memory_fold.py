"""The life of the lessons as a fold over episodes: exact counts, rounds that fall due, the same end after any crash."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict

import forkserver
import pytest
from conftest import TOY, command, read_json
from memory_kit import Teller, item, merged_reply, on_both_stores, open_life_bank, record, statuses

from core.errors import OverBudget
from core.memory import open as banks
from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.contradict import Contradict
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.merge import Merge
from core.memory.consolidation.prune import Prune
from core.memory.records import EpisodeFeedback, feedback_of
from core.memory.store.schema import to_record
from core.run.metrics import summarise
from core.run.resume import restore
from core.types import Episode, Trajectory, Verdict
from envs.toy_script import play

ADVICE = {  # so that lessons of two families are not one sentence with another word, which is never merged
    "amber": "Old boxes like to be spoken to slowly, and answer in their own time.",
    "birch": "Whoever whispers here wakes nobody; a clear voice is enough for the hinge.",
    "cedar": "Its lid is heavy, so stand aside while it swings open by itself.",
    "dune": "Sand in the lock is no reason to try twice: listen until it clicks.",
}


def merging(messages, role, sample):
    """The players of the toy world, who also merge lessons."""
    if role == "extractor" and "You look after the lessons" in messages[-1]["content"]:
        return merged_reply()
    reply = play(messages, role, sample)
    family = role == "extractor" and re.search(r"word of the (\w+) family is", reply)
    return reply.replace('".\n', f'". {ADVICE.get(family[1], "")}\n') if family else reply


def episode(index, made=None, used=(), label="success", status=None, confidence=None):
    """A finished task that used some records and added one."""
    values = {"sample": 0, "opening": (), "steps": (), "answer": None, "ended_by": "end", "reward": 0.0, "gold": ""}
    attempt = Trajectory(id=made.source_trajectory_id if made else "", success=False, **values)
    return Episode(
        index=index,
        task_id=f"task {index}",
        task_type="",
        query="",
        status=status or label,
        reward=0.0,
        verdict=Verdict(label=label, source="llm", confidence=confidence),
        retrieved=tuple({"id": id, "score": 1.0, "n_shown": 1} for id in used),
        trajectories=(attempt,),
        chosen=0,
        verdicts=(Verdict(label=label, source="llm", confidence=confidence),),
        selection=None,
        lessons=made.items if made else (),
        n_dropped=0,
        n_truncated=0,
        usage={},
        learning_errors=(),
        records=(made,) if made else (),
    )


def row_of(made: Episode) -> dict:
    """The episode as it stands in episodes.jsonl."""
    row = json.loads(json.dumps(asdict(made)))
    for kept in row["records"]:
        for name in ("query_embedding", "created_at"):
            del kept[name]
        kept |= {"tags": tuple(kept["tags"]), "parents": tuple(kept["parents"])}
    return row


def dump(path):
    """Everything in a bank but clock times, as plain data."""
    with closing(banks.open_store(path, read_only=True)) as store:
        rows = store.rows(f"{store.dialect.records} ORDER BY r.rowid")
        records = [{**asdict(to_record(row)), "created_at": None} for row in rows]
        facts = store.rows("SELECT key, value FROM facts ORDER BY key")
        links = store.rows("SELECT source, relation, target, note FROM links ORDER BY 1, 2, 3")
        return records, links, [fact for fact in facts if fact[0].startswith("consolidate")]


@pytest.fixture
def open_bank(tmp_path):
    with ExitStack() as banks:
        yield lambda **policies: banks.enter_context(closing(open_life_bank(tmp_path / "bank.sqlite", **policies)))


def live(bank, made: Episode):
    for each in made.records:
        bank.add(each)
    bank.learn(row_of(made))


# What an episode teaches


def test_uses_are_counted_by_the_judges_label_and_never_by_the_truth(open_bank):
    bank = open_bank(confidence=Confidence(half_life_days=None))
    live(bank, episode(0, record("a", item(0)), confidence=0.5))
    assert bank.get("a").confidence == 0.35
    live(bank, episode(1, used=["a"], label="success", status="failure"))
    live(bank, episode(2, used=["a", "a"], label="failure", status="success"))
    live(bank, episode(3, used=["a", "nobody"], label=None, status="success"))
    kept = bank.get("a")
    assert (kept.n_used, kept.n_used_success) == (3, 1)
    assert kept.confidence == pytest.approx(0.35 + 0.05 - 0.025)


def test_a_broken_attempt_says_nothing_about_what_it_used(open_bank):
    bank = open_bank(confidence=Confidence())
    live(bank, episode(0, record("a", item(0))))
    live(bank, episode(1, used=["a"], status="infra_error", label=None))
    assert bank.get("a").n_used == 0


def test_what_an_episode_teaches():
    made = episode(4, record("a", item(0)), used=["x", "y", "x"], confidence=0.25)
    assert feedback_of(row_of(made)) == EpisodeFeedback(index=4, label="success", used=("x", "y"), new=(("a", 0.25),))


def test_an_episode_is_taken_in_once(open_bank):
    bank = open_bank(confidence=Confidence())
    live(bank, episode(0, record("a", item(0))))
    for _ in range(3):
        live(bank, episode(1, used=["a"]))
    assert bank.get("a").n_used == 1


def test_runs_on_one_bank_do_not_take_each_others_episodes_for_their_own(open_bank):
    one, two = open_bank(run="one", confidence=Confidence()), open_bank(run="two", confidence=Confidence())
    live(one, episode(0, record("a", item(0))))
    live(one, episode(1, used=["a"]))
    live(two, episode(0, used=["a"]))
    live(two, episode(1, used=["a"]))
    assert two.get("a").n_used == 3


def test_nothing_is_written_where_nothing_is_learned(open_bank):
    bank = open_bank(confidence=Confidence())
    live(bank, episode(0))
    assert bank.history.journal() == []
    bank.add(record("a", item(0)))
    frozen = open_bank(confidence=Confidence())
    frozen.read_only = True
    frozen.learn(row_of(episode(1, used=["a"])))
    assert bank.get("a").n_used == 0


# Rounds


def test_what_rounds_cost_is_kept_with_the_bank(open_bank):
    bank = open_bank(every=3, merge=Merge(), role=Teller(merged_reply()).role)
    for index in range(3):
        live(bank, episode(index, record(str(index), item(10 * index, f"w {index}"), tick=index)))
    spent = bank.consolidate.usage(bank)
    assert spent.calls == 1
    assert spent.prompt_tokens > 50
    assert open_bank(every=3).consolidate.usage(bank) == spent


def test_a_round_in_the_background_waits_for_a_budget(open_bank):
    def refused(prompt):
        raise OverBudget("budget.run.usd=1 (1 used)", whole_run=True)

    bank = open_bank(every=3, background=True, merge=Merge(), role=Teller(refused).role)
    for index in range(3):
        live(bank, episode(index, record(str(index), item(10 * index, f"w {index}"), tick=index)))
    bank.close()  # no error: the round stands in the bank
    again = open_bank(every=3, merge=Merge(), role=Teller(merged_reply()).role)
    assert set(statuses(again).values()) == {"active"}
    again.learn(None)
    assert list(statuses(again).values()) == ["archived"] * 3 + ["active"]


# Crashes


def everything_on(role):
    return {
        "every": 4,
        "role": role,
        "confidence": Confidence(),
        "deduplicate": Deduplicate(min_score=None),
        "merge": Merge(),
        "contradict": Contradict(),
        "prune": Prune(max_age_days=5.0, min_confidence=0.75),
    }


def say(prompt):
    return (
        merged_reply(int(re.search(r"@(\d+)", prompt).group(1)))
        if "the rule behind them" in prompt
        else "Thoughts: x\nRelation: contradicts"
    )


def stream_of_episodes(n):
    """Episodes whose lessons crowd around a few directions, so that every policy has something to do."""
    rng = random.Random(2)
    episodes, ids = [], []
    for index in range(n):
        angle = rng.choice([0, 12, 24, 40, 100, 110])
        made = record(
            f"r{index}",
            item(angle, rng.choice(["look twice", "think first", "ask"])),
            query=f"@{rng.randrange(360)} q{index}",
            tick=index,
            outcome=rng.choice(["success", "success", "failure"]),
        )
        used = rng.sample(ids, min(len(ids), 2))
        episodes.append(episode(index, made, used, rng.choice(["success", "failure"])))
        ids.append(made.id)
    return episodes


class Crash(BaseException):
    """The process ends here."""


def crash_at(bank, place):
    """Let the bank's write number `place` fail: an even one before it begins, an odd one just before its commit."""
    plain, counter = bank.change, iter(range(10**6))

    @contextmanager
    def change(reason):
        number = next(counter)
        if place == 2 * number:
            raise Crash
        with plain(reason) as inner:
            yield inner
            if place == 2 * number + 1:
                raise Crash

    bank.change = change


@on_both_stores
def test_a_crash_at_any_write_leaves_the_same_bank_in_the_end(tmp_path, request):
    episodes = stream_of_episodes(8)
    rows = [row_of(made) for made in episodes]

    def run(path, place=None):
        """A run that may crash once, and the same command again; returns whether it crashed."""
        done, crashed = 0, False
        for attempt in range(2):
            bank = open_life_bank(path, **everything_on(Teller(say).role))
            try:
                restore(bank, rows[:done], own=path)
                if attempt == 0 and place is not None:
                    crash_at(bank, place)
                for made in episodes[done:]:
                    done += 1  # the line is in episodes.jsonl before the bank learns of it
                    live(bank, made)
                return crashed
            except Crash:
                crashed = True
            finally:
                bank.close()
        raise AssertionError("it crashed twice")

    run(tmp_path / "undisturbed")
    expected = dump(tmp_path / "undisturbed")
    assert {r["status"] for r in expected[0]} == {"active", "archived", "superseded"}
    assert {relation for _, relation, _, _ in expected[1]} == {"contradicts", "duplicate_of", "supersedes"}
    in_postgres = request.node.callspec.params["bank_store"] == "postgres"
    place, step = 0, 9 if in_postgres else 1  # odd: before and after the work of a write in turn
    while run(tmp_path / f"crashed {place}", place):
        assert dump(tmp_path / f"crashed {place}") == expected, place
        place += step
    assert place > 40  # SQLite: every write of the run has failed once, before and after its work
    assert dump(tmp_path / f"crashed {place}") == expected


def test_a_lost_bank_is_made_again_from_the_episodes(tmp_path):
    episodes = stream_of_episodes(12)
    with closing(open_life_bank(tmp_path / "first", **everything_on(Teller(say).role))) as first:
        for made in episodes:
            live(first, made)
    with closing(open_life_bank(tmp_path / "second", **everything_on(Teller(say).role))) as second:
        restore(second, [row_of(made) for made in episodes], own=tmp_path)
    assert dump(tmp_path / "first") == dump(tmp_path / "second")


MERGE = ("memory.consolidate.every=6", "memory.consolidate.merge.min_score=0.3", "memory.consolidate.merge.min_fit=-1")
LIVED = (*TOY, "limit=12", "memory=consolidated_offline", "memory.consolidate.every=3")


def test_what_the_bank_spends_on_its_lessons_is_in_the_runs_tokens(here):
    from analysis.cells import make_cells
    from analysis.load import load_runs

    run_dir, _ = here(*TOY, "limit=12", "llm.script.path=test_memory_fold.merging", "memory=merge_llm", *MERGE)
    summary = read_json(run_dir / "summary.json")
    spent, calls = summary["tokens"], summary["calls"]["extractor"]
    assert spent["consolidation"] == summary["consolidation"]["tokens"] > 0
    assert spent["extractor"] + spent["consolidation"] == calls["prompt_tokens"] + calls["completion_tokens"]
    assert spent["total"] == sum(count for role, count in spent.items() if role != "total")
    row = make_cells(load_runs([run_dir])).table.iloc[0]
    assert row["tokens"] * 12 == pytest.approx(spent["total"])
    assert row["tokens_per_success"] * row["n_success"] == pytest.approx(spent["total"])
    assert summarise([], 0)["consolidation"] is None


def test_a_run_stopped_in_a_round_makes_the_round_again(here, tmp_path):
    words = (*TOY, "limit=7", "llm.script.path=test_memory_fold.merging", "memory=merge_llm", *MERGE)
    whole, _ = here(*words, run_dir=tmp_path / "whole")
    expected = dump(whole / "bank.sqlite")
    assert "archived" in {record["status"] for record in expected[0]}
    roles = [json.loads(line)["role"] for line in (whole / "calls.jsonl").read_text().splitlines()]
    sixth = [place for place, role in enumerate(roles) if role == "extractor"][5]  # then a round falls due
    cut_in_a_round = 0
    for calls in range(sixth, sixth + 4, 2):
        run_dir = tmp_path / f"cut{calls}"
        try:
            here(*words, f"budget.run.calls={calls}", run_dir=run_dir)
        except OverBudget:
            cut_in_a_round += 1
        here(*words, run_dir=run_dir)
        assert (run_dir / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
        assert dump(run_dir / "bank.sqlite") == expected
    assert cut_in_a_round > 0


def test_a_run_killed_at_random_moments_ends_with_the_same_episodes_and_the_same_bank(here, tmp_path):
    calm, run_dir = tmp_path / "calm", tmp_path / "killed"
    here(*LIVED, run_dir=calm)
    whole = (calm / "episodes.jsonl").read_bytes()
    rng, kills, path = random.Random(4), 0, run_dir / "episodes.jsonl"
    while kills < 2:
        before = path.stat().st_size if path.exists() else 0
        if before >= len(whole):
            shutil.rmtree(run_dir)
            before = 0
        process = forkserver.Popen(command(*LIVED, f"run_dir={run_dir}"), stdout=-3, stderr=-3)
        wait_for, until = before + rng.randint(1, len(whole) // 3), time.monotonic() + 20
        while time.monotonic() < until and process.poll() is None:
            if path.exists() and path.stat().st_size >= wait_for:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.0005)
        process.wait()
    forkserver.run(command(*LIVED, f"run_dir={run_dir}"), check=True, capture_output=True, timeout=120)
    assert path.read_bytes() == whole
    assert dump(run_dir / "bank.sqlite") == dump(calm / "bank.sqlite")
    assert {r["status"] for r in dump(run_dir / "bank.sqlite")[0]} == {"active", "superseded"}


def test_lessons_on_a_bank_with_a_history_are_its_youngest(here, tmp_path):
    bank = here(*TOY, "limit=8", run_dir=tmp_path / "first")[0] / "bank.sqlite"
    kept = tmp_path / "kept.sqlite"
    shutil.copy(bank, kept)
    words = (*TOY, "limit=4", "seed=1", f"memory.path={bank}")
    here(*words, "budget.run.calls=9", run_dir=tmp_path / "second")
    here(*words, run_dir=tmp_path / "second")  # what was cut goes on where it stood
    ticks = sorted(record["tick"] for record in dump(bank)[0])
    assert ticks == list(range(12))
    here(*TOY, "limit=4", "seed=1", f"memory.path={kept}", run_dir=tmp_path / "whole")
    ends = [
        [row["retrieved"] for row in map(json.loads, (tmp_path / name / "episodes.jsonl").open())]
        for name in ("second", "whole")
    ]
    assert ends[0] == ends[1]
