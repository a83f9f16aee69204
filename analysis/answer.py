"""The answer of a study by experiment=verdict, made from its folder alone: does memory help here, and if not, why not?

`answer_of` reads the finished runs and the study's design, looks after each seed as the study did, and climbs the
ladder as far as its arms were run: the same folder gives the same answer, byte for byte, whenever it is asked.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.cells import make_cells, rows_of
from analysis.ladder import BREAKS, StepResult, climb, first_break, steps_for
from analysis.load import load_runs
from analysis.notes import qualified
from analysis.pairing import against, luck, paired_outcomes
from analysis.runs import read_run
from analysis.sequential import Design, Interim
from analysis.verdict import VERDICTS, of_banks
from core.errors import UserError
from core.textfile import write_whole
from core.types import total, types_before

if TYPE_CHECKING:
    import pandas as pd

FILE = "verdict.json"
SAME_COST = "no_memory_same_cost"  # the arm that spends on attempts without memory what memory costs
BLOCK = "block, "  # before a verdict: of the block before the task, as it was not shown for the lessons in it
CANNOT = f"The answer in {FILE} cannot be made again from the runs"
OTHERWISE = f"{FILE} holds another answer than the runs give now, which is"
CLAIMS = {
    "better": "Memory helps here, with the usual bank",
    "worse": "Memory harms here, with the usual bank",
    "block, better": "A block before the task helps here, with the usual bank; whether its content does was not shown",
    "block, worse": "A block before the task harms here, with the usual bank; whether its content does was not shown",
}
OPPOSED = {  # where the lessons' content does the contrary of the block
    "block, better": "A block before the task helps here, with the usual bank, and the content of the lessons harms",
    "block, worse": "A block before the task harms here, with the usual bank, and the content of the lessons helps",
}
SENTENCES = {
    "clear": "{claim}: {arm} solves {points} points {way} than {baseline}{interval}{control}.",
    "futile": "No difference shown, and more seeds are unlikely to show one of {effect} points: {arm} solves {points} "
    "points {way} than {baseline}{interval}.",
    "most": "No difference shown: {arm} solves {points} points {way} than {baseline}{interval}, and no seeds are left.",
    "undecided": "Undecided by what broke: {arm} solves {points} points {way} than {baseline}{interval}, which would "
    "be lost had the broken tasks gone the other way.",
    "go on": "Not decided yet: {arm} solves {points} points {way} than {baseline}{interval}.",
    "alike": "Not tested: {arm} solves {points} points {way} than {baseline}, but the {n} seeds largely repeat each "
    "other, so they do not tell what chance does. Each seed needs its own tasks, order or sampling.",
    "untested": "Not decided yet: the first look needs {first} seeds, and {n_seeds} are there.",
    "repeated": "Not decided yet: the first look needs {first} seeds that differ, and of the {n_seeds} that are there "
    "{n_repeated} repeat another one word for word in both arms, or broke altogether.",
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a study asks. It is written into FILE before the first run, and is not changed afterwards.

    arm, baseline      arms that are compared
    first_seed         its seeds are this one and those after it
    configuration      id of the baseline's configuration: the model, the environment and all else that the arms share
    lessons            the environment has lessons to tell
    strong_extractor   overrides that name a stronger extractor; (): none
    control            the arm with everything but the lessons' content, "ARM" or "ARM KEY=VALUE": a claim on memory is
                       made against it, too; "": the two arms do not differ by having a memory
    """

    arm: str = "reasoningbank"
    baseline: str = "no_memory"
    design: Design = field(default_factory=Design)
    first_seed: int = 0
    configuration: str = ""
    lessons: bool = False
    strong_extractor: tuple[str, ...] = ()
    control: str = "placebo"

    @classmethod
    def read(cls, folder: Path) -> Question | None:
        """The study of a folder; None if it holds none."""
        if not (file := folder / FILE).is_file():
            return None
        try:
            asked = json.loads(file.read_text(encoding="utf-8"))["question"]
            design = Design(**asked.pop("design"))
            return cls(**asked | {"strong_extractor": tuple(asked["strong_extractor"])}, design=design)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{file} is damaged ({error}): delete it, and the same command makes it again.") from None

    def steps(self) -> tuple[Any, ...]:
        """The steps of the ladder that it can take."""
        return steps_for(lessons=self.lessons, strong_extractor=bool(self.strong_extractor))

    def name_of(self, arm: str | None, retrieval: str | None) -> str | None:
        """The name under which the study knows a run: the control may be its arm with another retrieval."""
        own, _, word = self.control.partition(" ")
        return self.control if word and (arm, f"retrieval={retrieval}") == (own, word) else arm


class Runs:
    """The finished runs of a study's folder: those of its seeds, by arm.

    Raises UserError if an arm has runs of several configurations: which of them the question is about is not known.
    """

    def __init__(self, folder: Path, question: Question) -> None:
        self._question = question
        frame = load_runs([folder])
        seeds = range(question.first_seed, question.first_seed + question.design.most)
        asked = {question.arm, question.baseline, question.control, SAME_COST}
        asked |= {arm for step in question.steps() for arm in (step.arm, step.than)}
        frame["arm"] = list(map(question.name_of, frame["arm"], frame["retrieval"]))
        mine = frame["complete"] & (frame["index"] >= 0) & frame["seed"].isin(seeds) & frame["arm"].isin(asked)
        self.frame = frame[mine]
        for arm, runs in self.frame.groupby("arm"):
            if runs["cell"].nunique() > 1:
                raise UserError(f"{folder} holds runs of {arm} with several configurations: a verdict is about one.")

    def of(self, arm: str, n_seeds: int | None = None) -> pd.DataFrame:
        """The episodes of an arm, of the first n_seeds seeds if that is given."""
        mine = self.frame[self.frame["arm"] == arm]
        return mine if n_seeds is None else mine[mine["seed"] < self._question.first_seed + n_seeds]

    def n_seeds(self, than: str | None = None) -> int:
        """The seeds, from the first one without a gap, that the arm and `than` (the baseline) have finished."""
        both = set(self.of(self._question.arm)["seed"]) & set(self.of(than or self._question.baseline)["seed"])
        return next(n for n in count() if self._question.first_seed + n not in both)

    def outcomes(self, n_seeds: int, than: str | None = None) -> tuple[Any, ...]:
        """`analysis.pairing.paired_outcomes` of the arm and `than` (the baseline) over the first n_seeds seeds."""
        mine, other = self._pair(n_seeds, than)
        return paired_outcomes(mine, other, mine)

    def _pair(self, n_seeds: int, than: str | None) -> tuple[pd.DataFrame, pd.DataFrame]:
        return self.of(self._question.arm, n_seeds), self.of(than or self._question.baseline, n_seeds)

    def cells(self, n_seeds: int) -> list[dict[str, Any]]:
        """The rows that the two arms have in a table of the first n_seeds seeds, the baseline's first."""
        arms = (self._question.baseline, self._question.arm)
        seen = self.frame["arm"].isin(arms) & (self.frame["seed"] < self._question.first_seed + n_seeds)
        made = make_cells(self.frame[seen], self._question.baseline)
        return sorted(rows_of(made.table), key=lambda row: arms.index(row["arm"]))

    def look(self, n_seeds: int, than: str | None = None) -> Interim:
        """What the first n_seeds seeds show of the arm against `than` (the baseline)."""
        values, base, broke, base_broke, names = self.outcomes(n_seeds, than)
        alike = luck(*self._pair(n_seeds, than))
        given = {"broke": broke, "baseline_broke": base_broke, "alike": alike, "n_run": n_seeds}
        return self._question.design.look(values, base, names, **given)

    def recur(self) -> tuple[int, int]:
        """(episodes that had an earlier task of their type, episodes whose type is known), over the arm's seeds.

        (0, 0) where the arm had a bank to begin with: its lessons may be of any type.
        """
        mine = self.of(self._question.arm)
        if mine["given_bank"].notna().any():
            return 0, 0
        return int(had_earlier(mine).sum()), int((mine["task_type"] != "").sum())

    def compare(self, arm: str, than: str, recurring: bool) -> dict[str, Any] | None:
        """The comparison of two arms, a row as for a table; None if one has not been run.

        recurring   of the tasks that had an earlier one of their type
        """
        mine, other = self.of(arm), self.of(than)
        if recurring and len(mine) and len(other):
            mine, other = (each[had_earlier(each)] for each in (mine, other))
        if not len(mine) or not len(other):
            return None
        return against(mine, other, mine)


def had_earlier(episodes: pd.DataFrame) -> pd.Series:
    """Of each episode, whether an earlier batch of its run had another task of its type."""
    found = episodes["task_type"] != ""
    for _, run in episodes.sort_values("index").groupby("run_dir"):
        before = types_before(list(zip(run["task_id"], run["task_type"], strict=True)), int(run["batch"].iloc[0]))
        found[run.index] = [kind in types for kind, types in zip(run["task_type"], before, strict=True)]
    return found


def looks_of(question: Question, runs: Runs, than: str | None = None, first: int = 0) -> list[Interim]:
    """What the study saw after each seed, up to the look at which it stopped or would go on.

    than    the arm compared with; None: the baseline
    first   seeds at the first of these looks, where it is later than the study's
    """
    found: list[Interim] = []
    for n_seeds in range(max(question.design.first, first), runs.n_seeds(than) + 1):
        found.append(runs.look(n_seeds, than))
        if found[-1].outcome != "go on":
            break
    return found


def n_run(question: Question, looks: list[Interim]) -> int:
    """The seeds that had been run at the last of the study's looks; 0 before the first."""
    return question.design.first + len(looks) - 1 if looks else 0


def content_looks(question: Question, runs: Runs, looks: list[Interim]) -> list[Interim]:
    """What the study saw of the lessons' content, against the control: from the look that was clear on the arms.

    Both tests must be passed, and each holds the level at whichever look it is passed, so no p needs a correction.
    None of a control that is none (`unlike`).
    """
    if not looks or looks[-1].outcome != "clear" or not question.control or unlike(question, runs):
        return []
    return looks_of(question, runs, question.control, n_run(question, looks))


def unlike(question: Question, runs: Runs) -> str:
    """Why the control is none of the lessons' content, as words that follow its name; "" where it is one, or not run.

    Where the arm shows lessons it has to show another text, on the whole of about their length: half to twice as much.
    """
    mine, other = runs.of(question.arm), runs.of(question.control)
    both = mine.merge(other, on=["task_id", "visit", "seed"], suffixes=("", "_control"))
    shown, its = (both[name].mean() for name in ("lesson_tokens", "lesson_tokens_control"))
    if not len(both) or not shown:
        return ""
    told = both[both["lesson_tokens"] > 0]
    if (told["blocks"] == told["blocks_control"]).mean() > 0.5:
        return f"shows what {question.arm} shows"
    how_long = f"shows {its:.0f} tokens of lessons a task where {question.arm} shows {shown:.0f}"
    return "" if 0.5 <= its / shown <= 2 else how_long


def answer_of(folder: Path, question: Question) -> dict[str, Any]:
    """The content of FILE: the study, its looks, the ladder and what is said of them. Nothing in it is a time."""
    runs = Runs(folder, question)
    looks = looks_of(question, runs)
    last = looks[-1] if looks else None
    content = content_looks(question, runs, looks)
    effect, has_ended = question.design.effect, last is not None and last.outcome != "go on"
    ladder = climb(question.steps(), runs.compare, effect, runs.recur()) if has_ended else []
    outcome = outcome_of(question, last, content)
    rows = runs.cells(n_run(question, looks)) if looks else []
    n_banks = max((row["n_shared_banks"] for row in rows), default=0)
    said = sentence(_named(question, rows), last, runs.n_seeds(), content, unlike(question, runs), n_banks)
    equal = same_cost(question, runs, looks)
    return {
        "question": _asked(question),
        "outcome": outcome,
        "sentence": qualified(said, rows),
        "looks": [asdict(look) for look in looks],
        "content": [asdict(look) for look in content],
        "same_cost": equal,
        "ladder": [asdict(each) for each in ladder],
        "breaks": (broken := first_break(ladder)) and broken.link,
        "costs": costs(question, runs, looks),
        "try": things_to_try(question, runs, outcome, ladder),
        "not_tested": not_tested(question, runs, ladder, outcome, has_same_cost=equal is not None),
    }


def unasked(question: Question) -> dict[str, Any]:
    """The content of FILE before the first run."""
    return {"question": _asked(question), "outcome": "untested"}


def outcome_of(question: Question, last: Interim | None, content: list[Interim]) -> str:
    """better | worse, of a block alone with BLOCK before it | undecided | futile | most | go on | alike | untested."""
    if last is None or last.p is None:
        return "untested"
    if last.verdict == "untested" and last.outcome != "go on":
        return "alike"
    if last.verdict in VERDICTS and question.control and (not content or content[-1].verdict != last.verdict):
        return BLOCK + last.verdict
    return last.verdict if last.verdict in (*VERDICTS, "undecided") and last.outcome != "go on" else last.outcome


def _asked(question: Question) -> dict[str, Any]:
    return asdict(question) | {"strong_extractor": list(question.strong_extractor)}


def _named(question: Question, rows: list[dict[str, Any]]) -> Question:
    """The question with its two arms called as in a table. rows: `Runs.cells`, or none."""
    return replace(question, baseline=rows[0]["label"], arm=rows[1]["label"]) if rows else question


def sentence(
    question: Question,
    last: Interim | None,
    n_seeds: int,
    content: list[Interim],
    no_control: str = "",
    n_banks: int = 0,
) -> str:
    """The answer in one sentence. content: `content_looks`; no_control: `unlike`; n_banks: its `shared_banks`."""
    facts = {"arm": question.arm, "baseline": question.baseline, "effect": f"{100 * question.design.effect:g}"}
    facts |= {"first": question.design.first, "n_seeds": n_seeds}
    if last is None or last.p is None:
        facts["n_repeated"] = n_seeds - last.n_seeds if last else 0
        return SENTENCES["repeated" if facts["n_repeated"] else "untested"].format(**facts)
    facts["points"] = f"{abs(100 * last.difference):.1f}"
    facts["way"], facts["n"] = "more" if last.difference >= 0 else "less", last.n_seeds
    level = f"{100 * (1 - question.design.level):g} %"
    facts["interval"] = (
        f" ({level} interval {100 * last.low:+.1f} to {100 * last.high:+.1f}, p = {last.p:.3g}, both corrected for "
        f"looking after each seed; {last.n_seeds} seeds, the worst {100 * last.worst_seed:+.1f})"
    )
    outcome = outcome_of(question, last, content)
    opposed = bool(content) and content[-1].verdict in VERDICTS and outcome.startswith(BLOCK)
    facts["claim"] = (OPPOSED if opposed else CLAIMS).get(outcome)
    if facts["claim"] and n_banks:
        facts["claim"] = facts["claim"].replace(", with the usual bank", of_banks(n_banks))
    facts["control"] = _against_control(question, content, no_control)
    if not question.control:  # no claim on memory
        facts["claim"] = f"{question.arm} is {outcome} than {question.baseline} here"
    return SENTENCES["clear" if outcome in CLAIMS else outcome].format(**facts)


def _against_control(question: Question, content: list[Interim], no_control: str) -> str:
    """The end of the sentence: what the arm solves beside its control, which has all but the lessons' content."""
    if not question.control:
        return ""
    if no_control:
        return f"; {question.control} {no_control}, so it is no control of the lessons' content"
    if not content or content[-1].p is None:
        why = "broke on, or repeats itself over," if content else "was not run on"
        return f"; {question.control}, which has the form of lessons without their content, {why} these seeds"
    last = content[-1]
    return (
        f", and {abs(100 * last.difference):.1f} points {'more' if last.difference >= 0 else 'less'} than "
        f"{question.control} ({100 * last.low:+.1f} to {100 * last.high:+.1f}, p = {last.p:.3g}; {last.n_seeds} seeds)"
    )


def same_cost(question: Question, runs: Runs, looks: list[Interim]) -> dict[str, Any] | None:
    """The arm against attempts without memory for what memory costs (SAME_COST), on the study's seeds; None: no test.

    {k: the attempts, agreed: the share of tasks in which two of them gave the answer, n_seeds, difference, low, high,
    p, tokens: {arm, same_cost}}; p and the interval as at the study's last look, tokens as multiples of the baseline's
    """
    n_seeds, attempts = n_run(question, looks), runs.of(SAME_COST, n_run(question, looks))
    if not looks or looks[-1].outcome == "go on" or runs.n_seeds(SAME_COST) < n_seeds:
        return None
    look, agreed = asdict(runs.look(n_seeds, SAME_COST)), float((attempts["n_agreed"] > 1).mean())
    if look["p"] is None or not agreed:  # its runs broke, or repeat each other; no vote was taken
        return None
    k = int(attempts["k"].iloc[0])
    mine, base, other = (spent(runs.of(arm, n_seeds))["tokens"] for arm in (question.arm, question.baseline, SAME_COST))
    tokens = {"arm": mine / base, "same_cost": other / base} if mine and base and other else None
    return {"k": k, "agreed": agreed, "tokens": tokens} | {
        name: look[name] for name in ("n_seeds", "difference", "low", "high", "p")
    }


def can_vote(question: Question, runs: Runs) -> bool:
    """Whether attempts without memory state answers, among which most could agree: where each acts, they may not."""
    return bool((runs.of(question.baseline)["n_agreed"] > 0).any())


def costs(question: Question, runs: Runs, looks: list[Interim]) -> dict[str, Any]:
    """What a task costs in both arms, and a further solved one; None where it is unknown, or none is solved.

    {usd, tokens: {arm, baseline, per_extra_success}}
    """
    if not looks:
        return {}
    last, n_seeds = looks[-1], n_run(question, looks)
    mine, base = (spent(runs.of(arm, n_seeds)) for arm in (question.arm, question.baseline))
    found = {}
    for name in ("usd", "tokens"):
        more = None if None in (mine[name], base[name]) else mine[name] - base[name]
        gain = last.difference if last.verdict == "better" else None
        per = None if more is None or not gain else more / gain
        found[name] = {"arm": mine[name], "baseline": base[name], "per_extra_success": per}
    return found


def spent(episodes: pd.DataFrame) -> dict[str, float | None]:
    """{usd, tokens} that a task of these runs cost, its tries that broke among them; None where it is unknown.

    An episode has the tokens of its last try alone, and the run's meter those of all calls, but for replies from a
    cache, which cost nothing. What is larger counts. Embeddings count as money alone.
    """
    found: dict[str, float | None] = {"usd": 0.0, "tokens": 0.0}
    for run_dir, own in episodes.groupby("run_dir"):
        used = read_run(str(run_dir), episodes=False, must_be_as_left=False).summary.get("calls", {})
        metered = {
            "usd": used.get("total", {}).get("cost_usd", 0.0),
            "tokens": total(
                role[part]
                for name, role in used.items()
                if name not in ("total", "embedder")
                for part in ("prompt_tokens", "completion_tokens")
            ),
        }
        for name, column in (("usd", "cost"), ("tokens", "tokens")):
            told = float(own[column].sum(skipna=False) + own[f"{column}_consolidation"].iloc[0])
            known = None not in (found[name], metered[name]) and told == told
            found[name] = found[name] + max(metered[name], told) if known else None
    return {name: None if whole is None else whole / len(episodes) for name, whole in found.items()}


def things_to_try(question: Question, runs: Runs, outcome: str, ladder: list[StepResult]) -> list[str]:
    """Up to three overrides to try next, each in a study of its own with this one's command.

    None that such a study would refuse: no quote of an environment that answers nothing, no vote without answers.
    """
    refused = {"+distiller.style=quote"} if (runs.of(question.baseline)["steps"] <= 1).all() else set()
    refused |= set() if can_vote(question, runs) else {"hydra.sweeper.arm=labels_self_consistency"}
    advice = {step.link: step.advice for step in reversed(question.steps())}
    broken = [advice[each.link] for each in ladder if each.answer == BREAKS and advice[each.link]]
    usual = {
        "better": ["retrieval.top_k=3", "hydra.sweeper.arm=matts_parallel", "stream.passes=2"],
        "go on": [f"hydra.sweeper.effect={2 * question.design.effect:g}"],
    }
    general = ["+distiller.style=quote", "hydra.sweeper.arm=labels_self_consistency", "retrieval.top_k=3"]
    return [word for word in dict.fromkeys([*broken, *usual.get(outcome, general)]) if word not in refused][:3]


def not_tested(
    question: Question, runs: Runs, ladder: list[StepResult], outcome: str, *, has_same_cost: bool
) -> list[str]:
    """What the study says nothing about."""
    frame = runs.frame
    n_tasks = frame["task_id"].nunique()
    said = [f"other tasks than these {n_tasks}, other models and other prompts"]
    if frame["task_order"].nunique() == 1:
        said.append("other orders of the tasks (stream.order=shuffled)")
    if outcome.endswith(VERDICTS) and frame["given_bank"].notna().any():
        said.append("other banks than the given")
    elif outcome.endswith(VERDICTS):
        said.append("banks that collapse once in many seeds: the mean of a few seeds is that of the usual bank")
    if outcome.endswith("better") and question.control and not has_same_cost:
        why = "" if can_vote(question, runs) else ": attempts here state no answer on which most could agree"
        said.append(f"attempts without memory for what memory costs (arm={SAME_COST}){why}")
    if not question.lessons:
        said.append("whether the right lesson would be used, and found: this environment has no lessons to tell")
    if not question.strong_extractor:
        said.append("a stronger extractor (hydra.sweeper.strong_extractor=[llm@extractor_llm=NAME])")
    if missing := dict.fromkeys(each.link for each in ladder if each.why == "not run"):
        why = (
            "the ladder ended before them"
            if len(missing) < len(ladder)
            else "hydra.sweeper.diagnose=true climbs the ladder"
        )
        said.append(f"the links {', '.join(missing)}: {why}")
    return said


def write(folder: Path, found: dict[str, Any]) -> None:
    """Write FILE, whole or not at all."""
    write_whole(folder / FILE, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def stored(folder: Path) -> dict[str, Any] | None:
    """The answer to a folder's question as its runs give it now; None if none was given yet.

    Where FILE holds another, the sentence says so: it was edited, or runs are gone.
    """
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if not found.get("sentence"):
            return None
    except (OSError, ValueError, AttributeError):
        return None
    try:
        made = answer_of(folder, Question.read(folder))
    except UserError as error:
        return found | {"sentence": f"{CANNOT}: {error}"}
    if json.loads(json.dumps(made)) != found:
        made["sentence"] = f"{OTHERWISE}: {made['sentence']}"
    return made


def edited(folder: Path) -> str | None:
    """What is wrong with the answer in a folder, in a sentence; None: nothing, or it holds none."""
    said = (stored(folder) or {}).get("sentence", "")
    return said if said.startswith((CANNOT, OTHERWISE)) else None
