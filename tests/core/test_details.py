"""details=: what each point does. Presets and code name the same ones."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace

import pytest
import yaml
from conftest import REPO, TOY, read_json, read_rows

from core.details import Details
from core.errors import UserError
from core.learning.attempts import Attempts
from core.learning.lessons import Contrast, Distiller, Synapse, WorkflowInducer
from core.learning.selectors import First
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.base import Reply, Role
from core.models.embedding import HashingEmbedder
from core.models.offline import ScriptedModel
from core.types import Lesson, MemoryRecord, Scored, Selection, Step, Task, Trajectory, Usage, Verdict
from envs.toy_script import play

RELEASE = "details=authors_release"
RULE = "the environment itself stated"
TASK = Task(id="t", query="Start the machine.")
FAILED = Verdict(label="failure", source="llm", reason="The lamp stayed dark.")
LONG = "x" * 30_000


def preset(name: str) -> dict:
    return yaml.safe_load((REPO / "config" / "details" / f"{name}.yaml").read_text())


def test_presets_and_code_name_the_same_points():
    names = list(asdict(Details()))
    assert list(preset("ours")) == list(preset("authors_release")) == names
    assert preset("ours") == asdict(Details())
    assert not [name for name in names if preset("authors_release")[name] == preset("ours")[name]]


@dataclass(kw_only=True)
class Heard(ScriptedModel):
    """Keeps each request; replies with an item beside text that is none."""

    name: str = "heard"
    supports_schema: bool = field(default=True, init=False)
    requests: list = field(default_factory=list)

    def chat(self, request):
        self.requests.append(request)
        return Reply(text=self.script(request.messages, "", 0), usage=Usage(), finish_reason="stop", model="heard")


ITEM = "Well then.\n\n```\n# Memory Item 1\n## Title T\n## Description D\n## Content C\n```\nAnd so on."


def attempt(observation="The lamp is dark.", thought="I try the left one."):
    step = Step(text="", thought=thought, action="press left", observation=observation)
    values = {"id": "t", "sample": 0, "opening": (), "answer": None, "ended_by": "end", "reward": 0.0}
    return Trajectory(**values, steps=(step, step), success=False, gold="")


def asked(kind, reply=ITEM, verdict=FAILED, trajectory=None, **keys):
    """(request, extraction) of a call by a distiller, an inducer or a contrast with these details."""
    model = Heard(script=lambda *_: reply)
    part = kind(role=Role(name="extractor", llm=model, temperature=1.0, max_tokens=None), seed=0, **keys)
    trajectory = trajectory or attempt()
    if kind is Contrast:
        both = Attempts(task=TASK, trajectories=[trajectory] * 2, evaluate=lambda _: [verdict] * 2)
        made = part.parallel(both)
    else:
        label = "success" if kind is WorkflowInducer else verdict.label
        made = part.distil(TASK, trajectory, replace(verdict, label=label), [], None)
    return model.requests[0], made


def prompt(*given, **keys):
    return asked(*given, **keys)[0].messages[-1]["content"]


@pytest.mark.parametrize("kind", [Distiller, Contrast])
def test_rule_exception(kind):
    assert RULE in prompt(kind)
    without = prompt(kind, rule_exception=False)
    assert RULE not in without and "name no particular" in without and "At most" in without


@pytest.mark.parametrize("kind", [Distiller, WorkflowInducer, Contrast])
def test_observations_and_whole_attempts(kind):
    assert "The lamp is dark." in prompt(kind)
    text = prompt(kind, observations=False)
    assert "lamp" not in text and "press left" in text and "I try the left one." in text
    long = attempt(thought=" ".join(["word"] * 30_000))
    assert "left out ...]" in prompt(kind, trajectory=long)
    assert "left out ...]" not in prompt(kind, trajectory=long, whole_attempts=True)


def test_synapse_keeps_the_whole_attempt_and_no_observations():
    won = replace(FAILED, label="success")

    def stored(**keys):
        return Synapse(**keys).distil(TASK, attempt(thought=LONG), won, [], None).lessons[0].content

    assert len(stored()) < 5_000 and "lamp" in stored()
    assert len(stored(whole_attempts=True)) > 2 * len(LONG)
    assert "lamp" not in stored(observations=False)


def test_judge_thoughts_are_those_of_the_model_judge():
    assert FAILED.reason not in prompt(Distiller)
    assert FAILED.reason in prompt(Distiller, judge_thoughts=True)
    told = {
        source: prompt(Distiller, judge_thoughts=True, verdict=replace(FAILED, source=source))
        for source in ("oracle", "consensus", "heuristic")
    }
    assert not any(FAILED.reason in text for text in told.values())


@pytest.mark.parametrize("kind", [Distiller, WorkflowInducer, Contrast])
def test_raw_replies(kind):
    request, made = asked(kind)
    assert request.schema is not None and [lesson.content for lesson in made.lessons] == ["C"]
    request, made = asked(kind, raw_replies=True)
    assert request.schema is None and "## Title" in request.messages[-1]["content"]
    assert [lesson.content for lesson in made.lessons] == [ITEM] and made.n_dropped == 0
    assert asked(kind, "Nothing.")[1].lessons == () and asked(kind, "Nothing.")[1].n_dropped == 1
    assert [lesson.content for lesson in asked(kind, "Nothing.", raw_replies=True)[1].lessons] == ["Nothing."]
    assert asked(kind, "  ", raw_replies=True)[1].lessons == ()


@pytest.mark.parametrize(("kind", "key"), [(WorkflowInducer, "workflows"), (Contrast, "contrast")])
def test_temperatures(kind, key):
    assert asked(kind)[0].temperature == 1.0
    assert asked(kind, **{f"{key}_temperature": 0.7})[0].temperature == 0.7
    assert asked(kind, **{f"{key}_temperature": 0})[0].temperature == 0


def test_workflows_example():
    plain, longer = prompt(WorkflowInducer), prompt(WorkflowInducer, workflows_example=True)
    assert len(longer) > len(plain) + 2500
    assert longer.index("The workflows in them:") < longer.index(TASK.query)
    assert plain.split("Task:")[0].strip().splitlines()[:3] == longer.splitlines()[:3]


def test_query_instruction_stands_before_queries_alone(tmp_path):
    seen = []

    class Noted(HashingEmbedder):
        def measure(self, texts):
            seen.extend(texts)
            return super().measure(texts)

    def record(number):
        item = Lesson(title="T", description="D", content="C")
        return MemoryRecord(id=f"r{number}", original_query=f"open box {number}", items=(item,), task_id=f"t{number}",
                            source_trajectory_id="", score=1.0, outcome="success", label_source="llm")  # fmt: skip

    bank = MemoryBank(
        path=str(tmp_path / "b.sqlite"), embedder=Noted(), policy=Cosine(), query_instruction="Find what helps."
    )
    bank.add_many([record(1), record(2)])
    assert seen == ["open box 1", "open box 2"]
    [hit] = bank.retrieve("open box 2", exclude_task="t1")
    assert seen[2:] == ["Instruct: Find what helps.\nQuery: open box 2"]
    assert hit.record.id == "r2" and hit.similarity < 0.999
    bank.close()


def test_whole_attempts_are_shown(compose):
    from core.build import build_agent

    item = Lesson(title="T", description="D", content=LONG)
    kept = MemoryRecord(id="r", original_query="q", items=(item,), task_id="", source_trajectory_id="", score=1.0,
                        outcome="success", label_source="llm")  # fmt: skip
    shown = {
        words: build_agent(compose("env=toy", f"details.whole_attempts={words}")).shown(
            [Scored(record=kept, score=1.0)]
        )
        for words in ("true", "false")
    }
    assert shown == {"true": [1], "false": [0]}


@pytest.mark.parametrize(("words", "says"), [
    (("details.rule_exeption=false",), "rule_exception"),
    (("+details.rule=false",), "rule_exception"),
    (("details.observations=maybe",), "Details.observations"),
    (("details.contrast_temperature=-1",), "details.contrast_temperature"),
    (("details.contrast_temperature=hot",), "contrast_temperature"),
    (("details.judge_all=2",), "Details.judge_all"),
    (("details.strip_lessons=no_thanks",), "strip_lessons"),
    ((RELEASE, "+distiller.style=steps"), "details.rule_exception=true"),
    ((RELEASE, "details.rule_exception=true", "+distiller.style=quote"), "details.observations=true"),
])  # fmt: skip
def test_what_is_wrong_is_named(main_here, words, says):
    code, _, complaint = main_here(*TOY, "limit=1", *words)
    assert code == 1 and says in complaint and "Traceback" not in complaint


def lines(run_dir, name):
    return [json.loads(line) for line in (run_dir / name).read_text().splitlines()]


def calls(run_dir, role):
    """The prompts of a role's calls, in order."""
    texts = {line["id"]: line["messages"] for line in lines(run_dir, "prompts.jsonl")}
    return [texts[call["messages"]][-1]["content"] for call in lines(run_dir, "calls.jsonl") if call["role"] == role]


def opens(messages, role, sample):
    """The toy world's player, who opens every box; what its distiller writes cannot be read."""
    if role == "extractor":
        return "Say the word.\n\nThen wait."
    return 'Thoughts: It opened.\nStatus: "success"' if role == "judge" else play(messages, role, sample)


OPENS = "llm.script.path=test_details.opens"


@pytest.mark.parametrize("arm", ["reasoningbank", "awm", "synapse", "matts_parallel"])
def test_a_run_follows_the_preset(here, arm):
    run_dir, _ = here(*TOY, RELEASE, OPENS, f"arm={arm}", "limit=6")
    rows, texts = read_rows(run_dir), calls(run_dir, "extractor")
    assert read_json(run_dir / "summary.json")["n"] == 6
    assert read_json(run_dir / "manifest.json")["config"]["strip_lessons"] is False
    n_calls, n_judged = (0 if arm == "synapse" else 6), 6
    assert (len(texts), len(calls(run_dir, "judge"))) == (n_calls, n_judged)
    contents = [lesson["content"] for row in rows for lesson in row["lessons"]]
    assert len(contents) == 6 and (arm == "synapse" or set(contents) == {"Say the word.\n\nThen wait."})
    assert not any(RULE in text or "Observation:" in text for text in (*texts, *contents))
    if arm == "reasoningbank":
        assert all(text.count("It opened.") == 1 for text in texts)
    if arm == "awm":
        assert all("The workflows in them:" in text for text in texts)
    if arm == "matts_parallel":
        labels = [[verdict["label"] for verdict in row["verdicts"]] for row in rows]
        assert all(each.count(None) == 2 and each[row["chosen"]] for row, each in zip(rows, labels, strict=True))
    for row in rows:  # a task's own lessons stay excluded, and so they do over two passes
        assert not {r["id"] for r in row["retrieved"]} & {r["id"] for r in rows[row["index"]]["records"]}


def test_a_task_does_not_retrieve_itself_with_the_preset_either(here):
    run_dir, _ = here(*TOY, RELEASE, OPENS, "limit=3", "stream.passes=2")
    rows = read_rows(run_dir)
    taught = {record["id"]: row["task_id"] for row in rows for record in row["records"]}
    retrieved = [(row["task_id"], taught[r["id"]]) for row in rows for r in row["retrieved"]]
    assert len(retrieved) == 5 and not any(task == source for task, source in retrieved)


def test_the_templates_in_use_are_in_the_manifest(here, tmp_path):
    def templates(*words):
        run_dir, _ = here(*TOY, "limit=1", *words, run_dir=tmp_path / str(len(words)))
        return set(read_json(run_dir / "manifest.json")["fingerprint"]["prompts"])

    added = templates(RELEASE) - templates()
    assert added == {"no_rule_exception/extract_format", "workflows_example/induce_workflows"}


@pytest.mark.parametrize(
    ("select", "words"),
    [("bon", ()), ("first", ()), ("judge", ()), ("bon", ("contrast.labels=judge",)), ("first", ("contrast=null",))],
)
def test_all_are_judged_where_labels_are_needed(here, select, words):
    run_dir, _ = here(
        *TOY, OPENS, "arm=matts_parallel", f"select={select}", "details.judge_all=false", "limit=1", *words
    )
    [row] = read_rows(run_dir)
    n_judged = 3 if words or select == "judge" else 1
    assert sum(verdict["label"] is not None for verdict in row["verdicts"]) == n_judged


class Peeks(First):
    """Reads verdicts without saying so in `uses_judge`."""

    def pick(self, attempts):
        return Selection(index=0, by="peeks", reason=str([verdict.label for verdict in attempts.verdicts()]))


def test_a_selector_that_does_not_say_so_reads_no_verdicts_and_waits_for_none(here):
    words = (
        "arm=matts_parallel",
        "select=first",
        "select._target_=test_details.Peeks",
        "details.judge_all=false",
        "limit=1",
    )
    [row] = read_rows(here(*TOY, OPENS, *words)[0])
    assert row["selection"]["reason"] == "[None, None, None]"


@pytest.mark.parametrize(("arm", "key"), [("no_rule_exception", "rule_exception"), ("no_observations", "observations")])
def test_an_arm_of_one_detail(compose, arm, key):
    assert dict(compose(f"arm={arm}").details) == asdict(Details()) | {key: False}
    assert dict(compose(f"arm={arm}", "env=customs").distiller) == dict(compose("env=customs").distiller)


def test_an_unknown_value_is_no_detail():
    with pytest.raises(UserError, match="workflows_temperature"):
        Details(workflows_temperature=-0.1)
