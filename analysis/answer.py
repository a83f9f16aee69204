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

from yaml import YAMLError

from analysis.cells import make_cells, rows_of
from analysis.ladder import BREAKS, StepResult, climb, first_break, steps_for
from analysis.load import load_runs
from analysis.measure import measure
from analysis.notes import qualified
from analysis.pairing import against, paired_outcomes
from analysis.sequential import Design, Interim
from analysis.verdict import VERDICTS, alike
from core.errors import UserError
from core.run.arms import key_of
from core.textfile import write_whole

if TYPE_CHECKING:
    import pandas as pd

FILE = "verdict.json"
SENTENCES = {
    "better": "Memory helps here: {arm} solves {points} points more than {baseline}{interval}.",
    "worse": "Memory harms here: {arm} solves {points} points less than {baseline}{interval}.",
    "futile": "No difference shown, and more seeds are unlikely to show one of {effect} points: {arm} solves {points} "
    "points {way} than {baseline}{interval}.",
    "most": "No difference shown: {arm} solves {points} points {way} than {baseline}{interval}, and no seeds are left.",
    "undecided": "Undecided by what broke: {arm} solves {points} points {way} than {baseline}{interval}, which would "
    "be lost had the broken tasks gone the other way.",
    "go on": "Not decided yet: {arm} solves {points} points {way} than {baseline}{interval}.",
    "untested": "Not decided yet: the first look needs {first} seeds, and {n_seeds} are there.",
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a study asks. It is written into FILE before the first run, and is not changed afterwards.

    arm, baseline      arms that are compared
    first_seed         its seeds are this one and those after it
    configuration      id of the baseline's configuration: the model, the environment and all else that the arms share
    lessons            the environment has lessons to tell
    strong_extractor   overrides that name a stronger extractor; (): none
    """

    arm: str = "reasoningbank"
    baseline: str = "no_memory"
    design: Design = field(default_factory=Design)
    first_seed: int = 0
    configuration: str = ""
    lessons: bool = False
    strong_extractor: tuple[str, ...] = ()

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


class Runs:
    """The finished runs of a study's folder: those of its seeds, by arm.

    Raises UserError if an arm has runs of several configurations: which of them the question is about is not known.
    """

    def __init__(self, folder: Path, question: Question) -> None:
        self._question = question
        frame = load_runs([folder])
        seeds = range(question.first_seed, question.first_seed + question.design.most)
        asked = {question.arm, question.baseline, *(arm for step in question.steps() for arm in (step.arm, step.than))}
        mine = frame["complete"] & (frame["index"] >= 0) & frame["seed"].isin(seeds) & frame["arm"].isin(asked)
        self.frame = frame[mine]
        for arm, runs in self.frame.groupby("arm"):
            if runs["cell"].nunique() > 1:
                raise UserError(f"{folder} holds runs of {arm} with several configurations: a verdict is about one.")

    def of(self, arm: str, n_seeds: int | None = None) -> pd.DataFrame:
        """The episodes of an arm, of the first n_seeds seeds if that is given."""
        mine = self.frame[self.frame["arm"] == arm]
        return mine if n_seeds is None else mine[mine["seed"] < self._question.first_seed + n_seeds]

    def n_seeds(self) -> int:
        """The number of seeds, from the first one without a gap, that both arms have finished."""
        both = set(self.of(self._question.arm)["seed"]) & set(self.of(self._question.baseline)["seed"])
        return next(n for n in count() if self._question.first_seed + n not in both)

    def outcomes(self, n_seeds: int) -> tuple[Any, ...]:
        """`analysis.pairing.paired_outcomes` of the two arms over the first n_seeds seeds."""
        mine, other = (self.of(arm, n_seeds) for arm in (self._question.arm, self._question.baseline))
        return paired_outcomes(mine, other, mine)

    def cells(self, n_seeds: int) -> list[dict[str, Any]]:
        """The rows that the two arms have in a table of the first n_seeds seeds, the baseline's first."""
        arms = (self._question.baseline, self._question.arm)
        seen = self.frame["arm"].isin(arms) & (self.frame["seed"] < self._question.first_seed + n_seeds)
        made = make_cells(self.frame[seen], self._question.baseline)
        return sorted(rows_of(made.table), key=lambda row: arms.index(row["arm"]))

    def compare(self, arm: str, than: str, late: bool) -> dict[str, Any] | None:
        """The comparison of two arms, a row as for a table; None if one has not been run. late: of second halves."""
        mine, other = self.of(arm), self.of(than)
        if late:
            mine, other = _late(mine), _late(other)
        if not len(mine) or not len(other):
            return None
        return against(mine, other, mine) | {"alike": max(map(alike, (mine, other)))}


def _late(episodes: pd.DataFrame) -> pd.DataFrame:
    """The second half of each run."""
    n_tasks = episodes.groupby("run_dir")["index"].transform("size")
    return episodes[episodes["index"] >= n_tasks // 2]


def looks_of(question: Question, runs: Runs) -> list[Interim]:
    """What the study saw after each seed, up to the look at which it stopped or would go on."""
    found: list[Interim] = []
    for n_seeds in range(question.design.first, runs.n_seeds() + 1):
        values, base, broke, base_broke, names = runs.outcomes(n_seeds)
        luck = max(alike(runs.of(arm, n_seeds)) for arm in (question.arm, question.baseline))
        found.append(question.design.look(values, base, names, broke=broke, baseline_broke=base_broke, alike=luck))
        if found[-1].outcome != "go on":
            break
    return found


def answer_of(folder: Path, question: Question) -> dict[str, Any]:
    """The content of FILE: the study, its looks, the ladder and what is said of them. Nothing in it is a time."""
    runs = Runs(folder, question)
    looks = looks_of(question, runs)
    last = looks[-1] if looks else None
    ladder = climb(question.steps(), runs.compare, question.design.effect) if last and last.outcome != "go on" else []
    outcome = _outcome(last)
    rows = runs.cells(question.design.first + len(looks) - 1) if looks else []
    return {
        "question": _asked(question),
        "outcome": outcome,
        "sentence": qualified(sentence(_named(question, rows), last, runs.n_seeds()), rows),
        "looks": [asdict(look) for look in looks],
        "ladder": [asdict(each) for each in ladder],
        "breaks": (broken := first_break(ladder)) and broken.link,
        "costs": costs(question, runs, last),
        "try": things_to_try(question, outcome, ladder),
        "not_tested": not_tested(question, runs, ladder),
    }


def unasked(question: Question) -> dict[str, Any]:
    """The content of FILE before the first run."""
    return {"question": _asked(question), "outcome": "untested"}


def _outcome(last: Interim | None) -> str:
    """better | worse | undecided | futile | most | go on | untested."""
    if last is None or last.p is None:
        return "untested"
    return last.verdict if last.verdict in (*VERDICTS, "undecided") and last.outcome != "go on" else last.outcome


def _asked(question: Question) -> dict[str, Any]:
    return asdict(question) | {"strong_extractor": list(question.strong_extractor)}


def _named(question: Question, rows: list[dict[str, Any]]) -> Question:
    """The question with its two arms called as in a table. rows: `Runs.cells`, or none."""
    return replace(question, baseline=rows[0]["label"], arm=rows[1]["label"]) if rows else question


def sentence(question: Question, last: Interim | None, n_seeds: int) -> str:
    """The answer in one sentence."""
    facts = {"arm": question.arm, "baseline": question.baseline, "effect": f"{100 * question.design.effect:g}"}
    facts |= {"first": question.design.first, "n_seeds": n_seeds}
    if last is None or last.p is None:
        return SENTENCES["untested"].format(**facts)
    facts["points"] = f"{abs(100 * last.difference):.1f}"
    facts["way"] = "more" if last.difference >= 0 else "less"
    level = f"{100 * (1 - question.design.level):g} %"
    facts["interval"] = (
        f" ({level} interval {100 * last.low:+.1f} to {100 * last.high:+.1f}, p = {last.p:.3g}, both corrected for "
        f"looking after each seed; {last.n_seeds} seeds)"
    )
    return SENTENCES[_outcome(last)].format(**facts)


def costs(question: Question, runs: Runs, last: Interim | None) -> dict[str, Any]:
    """What a task costs in both arms, and a further solved one; None where it is unknown, or none is solved.

    {usd, tokens: {arm, baseline, per_extra_success}}
    """
    if last is None:
        return {}
    mine, base = (measure(runs.of(arm, last.n_seeds)) for arm in (question.arm, question.baseline))
    found = {}
    for name, column in (("usd", "cost"), ("tokens", "tokens")):
        more = None if None in (mine[column], base[column]) else mine[column] - base[column]
        gain = last.difference if last.verdict == "better" else None
        per = None if more is None or not gain else more / gain
        found[name] = {"arm": mine[column], "baseline": base[column], "per_extra_success": per}
    return found


def things_to_try(question: Question, outcome: str, ladder: list[StepResult]) -> list[str]:
    """Up to three overrides to try next, each in a study of its own with this one's command."""
    advice = {step.link: step.advice for step in reversed(question.steps())}
    broken = [advice[each.link] for each in ladder if each.answer == BREAKS and advice[each.link]]
    usual = {
        "better": ["retrieval.top_k=3", "hydra.sweeper.arm=matts_parallel", "stream.passes=2"],
        "go on": [f"hydra.sweeper.effect={2 * question.design.effect:g}"],
    }
    general = ["+distiller.style=quote", "judge=self_consistency", "retrieval.top_k=3"]
    return list(dict.fromkeys([*broken, *usual.get(outcome, general)]))[:3]


def commands(folder: Path, found: dict[str, Any]) -> list[str]:
    """The things to try as commands to paste: this study's own, with one override more and another run_dir.

    A study that its budget ended goes on first, with twice the budget.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from core.run.launch import again

    try:
        config = OmegaConf.load(folder / "multirun.yaml")
        given, limits = config.hydra.overrides, dict(config.budget.run)
        words = [word for word in (*given.hydra, *given.task) if key_of(word) not in ("hydra.mode", "run_dir")]
    except (OSError, ValueError, AttributeError, YAMLError, OmegaConfBaseException):
        return found["try"]  # its command is not known
    doubled = [f"budget.run.{key}={2 * limit:g}" for key, limit in limits.items() if limit is not None]
    more = [again(folder, _with(words, doubled))] if found["outcome"] == "go on" and doubled else []
    return more + [
        again(folder.with_name(f"{folder.name}-{n}"), _with(words, [word])) for n, word in enumerate(found["try"], 2)
    ]


def _with(words: list[str], more: list[str]) -> list[str]:
    """The words of a command with some more, which take the place of those of the same key."""
    keys = {key_of(word) for word in more}
    return [*(word for word in words if key_of(word) not in keys), *more]


def not_tested(question: Question, runs: Runs, ladder: list[StepResult]) -> list[str]:
    """What the study says nothing about."""
    frame = runs.frame
    n_tasks = frame["task_id"].nunique()
    said = [f"other tasks than these {n_tasks}, other models and other prompts"]
    if frame["task_order"].nunique() == 1:
        said.append("other orders of the tasks (stream.order=shuffled)")
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
    """The answer that a folder holds; None if it holds none, or none yet."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return found if found.get("sentence") else None
    except (OSError, ValueError, AttributeError):
        return None


def page(folder: Path, found: dict[str, Any]) -> list[str]:
    """The answer of a folder as lines for a terminal: one screen."""
    lines = [found["sentence"], ""]
    for look in (look for look in found["looks"] if look["p"] is not None):
        power = look["conditional_power"] if look["outcome"] in ("go on", "futile") else None
        rest = "" if power is None else f"   chance of an answer with more seeds {100 * power:.0f} %"
        lines.append(
            f"  {look['n_seeds']:>2} seeds   {100 * look['difference']:+5.1f} points   "
            f"{100 * look['low']:+6.1f} to {100 * look['high']:+6.1f}   p {look['p']:.3g}   {look['outcome']}{rest}"
        )
    lines += _cost_line(found["costs"])
    if any(each["why"] != "not run" for each in found["ladder"]):
        lines += ["", "which link breaks: " + (found["breaks"] or "none of those that were run")]
        lines += [_rung(each) for each in found["ladder"] if each["why"] != "not run"]
    for head, words in (
        ("to try next:", commands(folder, found)),
        ("not tested:", found["not_tested"]),
    ):
        lines += ["", head, *(f"  {word}" for word in words)] if words else []
    return lines


def _cost_line(costs: dict[str, Any]) -> list[str]:
    said = []
    for name, words in (("usd", "{:.4g} USD"), ("tokens", "{:,.0f} tokens")):
        if (per := costs.get(name, {}).get("per_extra_success")) and per > 0:
            said.append(words.format(per))
    return ["", f"a further solved task costs {' or '.join(said)}"] if said else []


def _rung(each: dict[str, Any]) -> str:
    numbers = f"{100 * each['difference']:+.1f} ({100 * each['low']:+.1f} to {100 * each['high']:+.1f})"
    why = f": {each['why']}" if each["why"] else ""
    return f"  {each['link']:<14} {each['answer']:<10} {each['arm']} - {each['than']} {numbers}{why}"
