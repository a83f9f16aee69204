"""What the parts of a run are handed: a judge, selector, distiller, memory or agent of one's own learns no truth."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import ClassVar

import pytest
from conftest import TOY, read_rows

from core.agent import ReActAgent
from core.errors import OverBudget, UserError
from core.learning.judges import Consensus, Judge
from core.learning.lessons import Distills
from core.learning.selectors import Selector
from core.memory.protocol import Memory
from core.types import Extraction, Lesson, Scored, Selection, Verdict

TRUTH = ("success", "reward", "gold")
MET: list[dict] = []  # what the parts below could read


@pytest.fixture(autouse=True)
def nothing_met_yet():
    MET.clear()


def read(trajectory) -> dict:
    """All that a part can read of an attempt: by attribute, by its fields and as a dictionary."""
    ways = [
        {name: getattr(trajectory, name) for name in TRUTH},
        {each.name: getattr(trajectory, each.name) for each in fields(trajectory)},
        asdict(trajectory),
        vars(trajectory),
    ]
    return {name: [way[name] for way in ways if name in way] for name in ways[1]}


@dataclass(kw_only=True)
class Peeker(Judge):
    """A judge that says what the truth is, and calls itself a model."""

    def judge(self, task, trajectory):
        MET.append(read(trajectory))
        won = trajectory.success or trajectory.ended_by == "goal"
        return Verdict(label="success" if won else "failure", source="llm")


@dataclass(kw_only=True)
class KnowingJudge(Peeker):
    uses_gold: ClassVar[bool] = True


@dataclass(kw_only=True)
class ComparingPeeker(Consensus):
    n_more: int = 1

    def judge_all(self, attempts, more):
        MET.extend(map(read, [*attempts.trajectories, *attempts.read(), *more(self.n_more)]))
        return super().judge_all(attempts, more)


@dataclass(kw_only=True)
class PeekingSelector(Selector):
    def pick(self, attempts):
        MET.extend(map(read, [*attempts.trajectories, *attempts.read()]))
        MET.append({"verdicts": [verdict.source for verdict in attempts.verdicts()]})
        best = [number for number, each in enumerate(attempts.trajectories) if each.success]
        return Selection(index=best[0] if best else 0, by="bon")


@dataclass(kw_only=True)
class PeekingDistiller(Distills):
    max_items: int = 1
    max_chars: int = 1000

    def distil(self, task, trajectory, verdict, memories, gold):
        MET.append(read(trajectory) | {"given": gold})
        return Extraction(lessons=(Lesson(title="T", description="D", content=str(trajectory.gold)),))


@dataclass(kw_only=True)
class PeekingMemory(Memory):
    rows: list = field(default_factory=list)

    def retrieve(self, query, exclude_task=None, **within):
        return [Scored(record=record, score=1.0) for record in self.rows[-1:] if record.task_id != exclude_task]

    def add(self, record, *, shown=()):
        self.rows.append(record)
        return True

    def learn(self, episode):
        MET.append(episode)


@dataclass(kw_only=True)
class PeekingAgent(ReActAgent):
    way: str = "get_ground_truth"

    def begin(self, env, role, task):
        if self.way == "attributes":
            named = [getattr(env, name) for name in dir(env) if not name.startswith("__")]
            bound = [getattr(each, "__self__", None) for each in named]
            MET.append({"holds": [each for each in (*named, *bound) if hasattr(type(each), "get_ground_truth")]})
        else:
            getattr(env, self.way)()
        return super().begin(env, role, task)


def part(name: str, key: str) -> str:
    return f"{key}._target_={__name__}.{name}"


JUDGE = ("judge=llm", "~judge.max_chars", "~judge.confidence")


def told_of(met) -> set:
    """The values of the truth that the parts met."""
    return {value for each in met for name in TRUTH for value in each.get(name, ())}


def test_a_judge_of_ones_own_cannot_read_whether_the_attempt_succeeded(here):
    run_dir, _ = here(*TOY, part("Peeker", "judge"), *JUDGE, "limit=8")
    assert len(MET) == 8 and told_of(MET) == {None}
    assert all(each["info"] == [{}, {}, {}] and "goal" not in each["ended_by"] for each in MET)
    rows = read_rows(run_dir)
    assert {row["verdict"]["label"] for row in rows} == {"failure"}
    assert [row["status"] for row in rows].count("success") > 2 and rows[-1]["trajectories"][0]["gold"]


def test_a_judge_that_the_setting_tells_the_outcomes_is_not_told_the_answers_and_its_lessons_say_so(here, tmp_path):
    run_dir, _ = here(*TOY, part("Peeker", "judge"), *JUDGE, "setting=true_labels", "limit=8")
    assert {True, False} <= told_of(MET) and not any(isinstance(value, str) for value in told_of(MET))
    assert [row["verdict"]["label"] for row in read_rows(run_dir)] == [row["status"] for row in read_rows(run_dir)]
    with pytest.raises(UserError, match="labels of the environment"):
        here(*TOY, f"memory.path={run_dir / 'bank.sqlite'}", "limit=8", run_dir=tmp_path / "reads_it")
    with pytest.raises(UserError, match="knows the answers"):
        here(*TOY, part("KnowingJudge", "judge"), *JUDGE, "limit=8", run_dir=tmp_path / "test_time")


MATTS = ("workflow=matts_parallel", "k=2", "limit=8")


def test_a_judge_that_compares_is_told_nothing_not_even_by_further_attempts(here):
    here(*TOY, part("ComparingPeeker", "judge"), *JUDGE, *MATTS)
    assert len(MET) >= 8 * 4 and told_of(MET) == {None}


@pytest.mark.parametrize("words", [(), ("setting=train",), ("setting=true_labels",)])
def test_a_selector_is_told_nothing_in_any_setting(here, words):
    run_dir, _ = here(*TOY, "select=first", part("PeekingSelector", "select"), *MATTS, *words)
    assert told_of(MET) == {None}
    assert {source for each in MET for source in each.get("verdicts", ())} == {"none" if words else "llm"}
    assert {row["chosen"] for row in read_rows(run_dir)} == {0}


@pytest.mark.parametrize(
    ("setting", "met"), [("test_time", {None}), ("true_labels", {None, True, False}), ("train", {True, False})]
)
def test_a_distiller_is_told_what_the_setting_tells(here, setting, met):
    here(*TOY, part("PeekingDistiller", "distiller"), f"setting={setting}", "limit=8")
    golds = {value for value in told_of(MET) if isinstance(value, str)}
    assert {value for value in told_of(MET) if not isinstance(value, str)} - {0.0, 1.0} <= met
    assert bool(golds) == (setting == "train") and ({each["given"] for each in MET} == {None}) == (setting != "train")


@pytest.mark.parametrize("batch", [1, 4])
def test_a_memory_learns_from_no_truth_also_when_the_run_goes_on(here, tmp_path, batch):
    words = (*TOY, "memory=none", part("PeekingMemory", "memory"), f"stream.batch={batch}", "workflow=reasoningbank")
    with suppress(OverBudget):
        here(*words, "limit=8", "budget.run.calls=14", run_dir=tmp_path / "run")
    run_dir, _ = here(*words, "limit=8", run_dir=tmp_path / "run")
    rows = [row for row in MET if row is not None]
    assert len(rows) >= 12
    for row in rows:
        assert (row["status"], row["reward"]) == (None, None)
        for attempt in row["trajectories"]:
            assert [attempt[name] for name in TRUTH] == [None] * 3 and attempt["info"] == {}
            assert {step["status"] for step in attempt["steps"]} == {None} and attempt["ended_by"] != "goal"
    assert all(row["status"] in ("success", "failure") for row in read_rows(run_dir))


@pytest.mark.parametrize("way", ["get_ground_truth", "walkthrough", "reset"])
def test_an_agent_is_refused_what_only_the_harness_asks_of_an_env(here, way):
    with pytest.raises(UserError, match=f"this agent is not handed env.{way}"):
        here(*TOY, part("PeekingAgent", "agent"), f"+agent.way={way}", "limit=2")


def test_nothing_that_an_agent_is_handed_is_the_env(here):
    run_dir, rate = here(*TOY, part("PeekingAgent", "agent"), "+agent.way=attributes", "limit=8")
    assert MET and all(each["holds"] == [] for each in MET)
    plain, same = here(*TOY, "limit=8", run_dir=run_dir.with_name("plain"))
    acted, usual = ([row["trajectories"] for row in read_rows(run)] for run in (run_dir, plain))
    assert rate == same and acted == usual and len(acted) == 8
