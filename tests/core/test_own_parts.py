"""What is wrong with a part of one's own is said when it is built, in a sentence with the file and the names it has."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest
from conftest import TOY
from jinja2 import TemplateError

from core.agent import Agent
from core.errors import UserError
from core.learning.judges import Judge
from core.learning.lessons import Distills
from core.learning.selectors import Selector
from core.make import check_methods, make
from core.memory.consolidation.context import ConsolidationPolicy
from core.memory.policies.base import Ranking
from core.memory.protocol import Memory
from core.models.base import ChatModel
from core.models.embedding import Embedder
from core.types import Task, Verdict
from envs.base import BaseEnv
from prompts.registry import JUDGE_PROMPT, Prompts
from workflows.reasoningbank import ReasoningBank
from workflows.rollout import Rollout


class WithoutShown(Memory):
    def retrieve(self, query, exclude_task=None):
        return []

    def add(self, record):
        return True


class ByItself:
    """Inherits nothing."""

    def retrieve(self, text):
        return []


class WithOtherNames(Memory):
    def retrieve(self, text, exclude_task=None, **more):
        return []

    def add(self, new, *, shown):
        return True


@dataclass(kw_only=True)
class Kept(Memory):
    top_k: int = 1
    kept: list = field(default_factory=list, init=False)

    def retrieve(self, query, exclude_task=None):
        return self.kept[: self.top_k]

    def add(self, record, *, shown=()):
        return False


def test_a_method_that_cannot_be_called_as_the_loop_does_is_refused():
    with pytest.raises(UserError, match=r"WithoutShown.add\(self, record\) cannot .* argument 'shown'"):
        make({"_target_": "test_own_parts.WithoutShown"})
    with pytest.raises(UserError, match=r"ByItself.retrieve\(self, text\) .* argument 'exclude_task'"):
        check_methods(ByItself, Memory)
    check_methods(WithOtherNames, Memory)  # what is passed by place may have any name
    check_methods(len, Memory)  # a function has no methods


def test_a_misspelt_key_is_told_with_the_file_and_the_fields(main_here, tmp_path, monkeypatch):
    file = tmp_path / "config" / "memory" / "kept.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# Mine.\n_target_: test_own_parts.Kept\ntopk: 2\n")
    code, _, errors = main_here("--config-dir", str(tmp_path / "config"), *TOY, "memory=kept", "limit=1")
    assert code == 1
    assert f"{file}: test_own_parts.Kept has no field topk: did you mean top_k" in errors
    file.write_text("# Mine.\n_target_: test_own_parts.Kept\n")
    words = ("--config-dir", str(tmp_path / "config"), *TOY, "memory=kept", "limit=1")
    code, _, errors = main_here(*words, "retrieval=rrf")
    assert code == 1 and "retrieval has no effect: memory=kept ranks its records itself, as Kept has no" in errors
    code, _, errors = main_here(*words, "memory.top_k=3")
    assert code == 1 and "the YAML of memory has no key top_k, but its class has: +memory.top_k=VALUE" in errors
    assert main_here(*words, "+memory.top_k=3")[0] == 0


def test_a_value_that_a_template_lacks_is_named_with_those_that_it_has(tmp_path):
    (tmp_path / "judge.jinja").write_text("{{ question }}")
    with pytest.raises(
        TemplateError, match="the prompt judge.jinja: 'question' is undefined; its values are answer, qu"
    ):
        Prompts(own=str(tmp_path)).render(JUDGE_PROMPT, query="Q", answer="A")
    other = tmp_path / "other"  # a template that was read is not read again
    other.mkdir()
    (other / "judge.jinja").write_text("one\n{{ query")
    with pytest.raises(TemplateError, match="judge.jinja, line 2: "):
        Prompts(own=str(other)).render(JUDGE_PROMPT, query="Q", answer="A")


def test_a_template_that_cannot_be_filled_ends_a_run_with_one_sentence(main_here, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "judge.jinja").write_text("{{ question }}")
    code, _, errors = main_here(*TOY, "limit=1", f"prompts={tmp_path / 'mine'}")
    assert code == 1 and "error: the prompt judge.jinja: 'question' is undefined" in errors
    assert "Traceback" not in errors


@dataclass(kw_only=True)
class TwoMinds(BaseEnv):
    """Says that it is won, and evaluates that it is not."""

    def _tasks(self, split):
        return [Task(id="one", query="Say it.")]

    def _reset(self, task):
        return task.query

    def _step(self, action):
        return "", 1.0, True, {"valid": True, "won": True}

    def get_ground_truth(self):
        return "it"

    def evaluate(self, prediction):
        return False


def test_an_env_whose_evaluate_and_info_disagree_is_told_to_the_user(caplog):
    from core.agent import CoTAgent
    from core.models.base import Role
    from core.models.offline import ScriptedModel

    role = Role(name="agent", llm=ScriptedModel(script=lambda *_: "it"), temperature=0.0, max_tokens=None)
    env = TwoMinds(instructions="", max_steps=1)
    with caplog.at_level(logging.WARNING, "run.notices"):
        made = Rollout(agent=CoTAgent(answer_format=""), role=role, seed=0).run(env, env.tasks()[0], [])
    assert made.success is False
    assert "TwoMinds: evaluate() says False of an attempt with info['won']=True and a reward of 1" in caplog.text
    told = env.describe()
    assert told["dataset"] == "TwoMinds" and len(told["sha256"]) >= 16


class JudgesNothing(Judge):
    def judg(self, task, trajectory):
        return Verdict(label="success", source="mine")


class ReadsNothing(Ranking):
    def rnk(self, bank, query, top_k, exclude_task, where=None):
        return []


class AddsNothing(Memory):
    def retrieve(self, query, exclude_task=None):
        return []


class SelectsNothing(Selector):
    pass


class DistilsNothing(Distills):
    pass


class PlansNothing(ConsolidationPolicy):
    pass


class SaysNothing(ChatModel):
    def identity(self):
        return {}


class MeasuresNothing(Embedder):
    pass


class ParsesNothing(Agent):
    pass


@pytest.mark.parametrize(
    ("part", "method"),
    [
        ("JudgesNothing", "judge"),
        ("ReadsNothing", "rank"),
        ("AddsNothing", "add"),
        ("SelectsNothing", "pick"),
        ("DistilsNothing", "distil"),
        ("PlansNothing", "plan"),
        ("SaysNothing", "chat"),
        ("ParsesNothing", "parse"),
    ],
)
def test_a_part_without_its_method_is_refused_before_the_run(part, method):
    with pytest.raises(UserError, match=rf"abstract class {part} (with|without) .*\b{method}\b"):
        make({"_target_": f"test_own_parts.{part}"})


def test_an_embedder_without_its_method_is_told_so():
    with pytest.raises(UserError, match="MeasuresNothing has no method measure"):
        MeasuresNothing().embed(["text"])


def test_a_misspelt_class_is_told_with_the_one_that_was_meant():
    with pytest.raises(UserError, match=r"cannot be imported: test_own_parts has no Kep: did you mean Kept"):
        make({"_target_": "test_own_parts.Kep"})


def test_a_part_that_inherits_nothing_and_lacks_a_method_is_refused():
    class RetrievesAlone:
        def retrieve(self, query, exclude_task=None):
            return []

    with pytest.raises(UserError, match="RetrievesAlone has no method add"):
        check_methods(RetrievesAlone, Memory)
    RetrievesAlone.add = WithOtherNames.add
    with pytest.raises(UserError, match=r"has no learns, .*, close: inherit them, as class RetrievesAlone\(Memory\)"):
        check_methods(RetrievesAlone, Memory)


class NoDataclass(WithOtherNames):
    most: int = 1


class NoDataclassBelow(Kept):
    most: int = 1


@pytest.mark.parametrize("part", [NoDataclass, NoDataclassBelow])
def test_a_class_without_the_decorator_that_makes_its_fields_is_told_so(part):
    said = rf"{part.__name__}.most is no field: write @dataclass\(kw_only=True\) above class {part.__name__}\."
    with pytest.raises(UserError, match=said):
        make({"_target_": f"test_own_parts.{part.__name__}", "most": 2})


@dataclass(kw_only=True)
class Answers(Judge):
    answer: object = None

    def judge(self, task, trajectory):
        return Verdict(label="yes", source="mine") if self.answer == "a label" else self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("true", "Answers.judge must return an instance of Verdict; it returned True."),
        ("'a label'", "a judge's Verdict.label=yes: choose success, failure or null."),
    ],
)
def test_a_judge_that_returns_something_else_is_told_so(main_here, answer, said):
    own = ("judge=heuristic", "judge._target_=test_own_parts.Answers", f"+judge.answer={answer}")
    code, _, errors = main_here(*TOY, *own, "limit=1")
    assert code == 1 and said in errors and "Traceback" not in errors


class Nothing(ReasoningBank):
    def extract(self, attempts, memories):
        return None


def test_a_workflow_that_extracts_nothing_says_so_by_an_empty_list(main_here):
    code, _, errors = main_here(*TOY, "workflow._target_=test_own_parts.Nothing", "limit=1")
    assert code == 1 and "Nothing.extract must return a list of Extraction; it returned None." in errors
