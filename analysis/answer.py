"""The answer of a study by experiment=verdict, made from its folder alone: does memory help here, and if not, why not?

`answer_of` reads the finished runs and the study's design, looks after each seed as the study did, and climbs the
ladder as far as its arms were run: the same folder gives the same answer, byte for byte, whenever it is asked.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.cells import measure, paired_outcomes
from analysis.ladder import BREAKS, StepResult, climb, first_break, steps_for
from analysis.load import load_runs
from analysis.sequential import Design, Interim
from analysis.verdict import alike
from core.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

FILE = "verdict.json"
SENTENCES = {
    "better": "Memory helps here: {arm} solves {points} points more than {baseline}{interval}.",
    "worse": "Memory harms here: {arm} solves {points} points less than {baseline}{interval}.",
    "futile": "No difference shown, and more seeds are unlikely to show one of {effect} points: {arm} solves {points} "
    "points {way} than {baseline}{interval}.",
    "most": "No difference shown: {arm} solves {points} points {way} than {baseline}{interval}, and no seeds are left.",
    "go on": "Not decided yet: {arm} solves {points} points {way} than {baseline}{interval}.",
    "untested": "Not decided yet: the first look needs {first} seeds, and {n_seeds} are there.",
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a study asks. It is written into FILE before the first run, and is not changed afterwards.

    arm, baseline      arms that are compared
    lessons            the environment has lessons to tell
    strong_extractor   overrides that name a stronger extractor; (): none
    """

    arm: str = "reasoningbank"
    baseline: str = "no_memory"
    design: Design = field(default_factory=Design)
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
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file} is damaged ({error}): delete it, and the same command makes it again.") from None

    def steps(self) -> tuple[Any, ...]:
        """The steps of the ladder that it can take."""
        return steps_for(lessons=self.lessons, strong_extractor=bool(self.strong_extractor))


class Runs:
    """The finished runs of a study's folder, by arm and seed."""

    def __init__(self, folder: Path) -> None:
        frame = load_runs([folder])
        self.frame = frame[frame["complete"] & (frame["index"] >= 0)]

    def of(self, arm: str, seeds: list[int] | None = None) -> pd.DataFrame:
        """The episodes of an arm, of these seeds only if they are given."""
        mine = self.frame[self.frame["arm"] == arm]
        return mine if seeds is None else mine[mine["seed"].isin(seeds)]

    def seeds(self, *arms: str) -> list[int]:
        """The seeds that all of these arms have finished, in order."""
        return sorted(set.intersection(*(set(self.of(arm)["seed"].unique().tolist()) for arm in arms)))

    def outcomes(
        self, arm: str, than: str, late: bool = False, seeds: list[int] | None = None
    ) -> tuple[Any, ...] | None:
        """`analysis.cells.paired_outcomes` of two arms; None if they have no seed in common.

        late   of the second half of each stream alone
        """
        mine, other = (_late(each) if late else each for each in (self.of(arm, seeds), self.of(than, seeds)))
        return paired_outcomes(mine, other, mine) if len(mine) and len(other) else None


def _late(episodes: pd.DataFrame) -> pd.DataFrame:
    """The second half of each run."""
    n_tasks = episodes.groupby("run_dir")["index"].transform("size")
    return episodes[episodes["index"] >= n_tasks // 2]


def looks_of(question: Question, runs: Runs) -> list[Interim]:
    """What the study saw after each seed, up to the look at which it stopped or would go on."""
    seeds, found = runs.seeds(question.arm, question.baseline), []
    for n in range(question.design.first, min(len(seeds), question.design.most) + 1):
        some = seeds[:n]
        values, base, broke, base_broke, names = runs.outcomes(question.arm, question.baseline, seeds=some)
        luck = max(alike(runs.of(arm, some)) for arm in (question.arm, question.baseline))
        found.append(question.design.look(values, base, names, broke=broke, baseline_broke=base_broke, alike=luck))
        if found[-1].outcome != "go on":
            break
    return found


def answer_of(folder: Path, question: Question) -> dict[str, Any]:
    """The content of FILE: the study, its looks, the ladder and what is said of them. Nothing in it is a time."""
    runs = Runs(folder)
    looks = looks_of(question, runs)
    last = looks[-1] if looks else None
    ladder = climb(question.steps(), runs.outcomes, question.design.effect) if last and last.outcome != "go on" else []
    outcome = _outcome(last)
    return {
        "question": _asked(question),
        "outcome": outcome,
        "sentence": sentence(question, last, len(runs.seeds(question.arm, question.baseline))),
        "looks": [asdict(look) for look in looks],
        "ladder": [each.row() for each in ladder],
        "breaks": (broken := first_break(ladder)) and broken.link,
        "costs": costs(question, runs, last),
        "try": things_to_try(question, outcome, ladder),
        "not_tested": not_tested(question, runs, ladder),
    }


def unasked(question: Question) -> dict[str, Any]:
    """The content of FILE before the first run."""
    return {"question": _asked(question), "outcome": "untested"}


def _outcome(last: Interim | None) -> str:
    """better | worse | futile | most | go on | untested."""
    if last is None:
        return "untested"
    return last.verdict if last.outcome == "clear" else last.outcome


def _asked(question: Question) -> dict[str, Any]:
    return asdict(question) | {"strong_extractor": list(question.strong_extractor)}


def sentence(question: Question, last: Interim | None, n_seeds: int) -> str:
    """The answer in one sentence."""
    facts = {"arm": question.arm, "baseline": question.baseline, "effect": f"{100 * question.design.effect:g}"}
    facts |= {"first": question.design.first, "n_seeds": n_seeds}
    if last is None or last.difference is None:
        return SENTENCES["untested"].format(**facts)
    facts["points"] = f"{abs(100 * last.difference):.1f}"
    facts["way"] = "more" if last.difference >= 0 else "less"
    facts["interval"] = (
        f" (95 % interval {100 * last.low:+.1f} to {100 * last.high:+.1f}, p = {last.p:.3g}, both corrected "
        f"for looking after each seed; {last.n_seeds} seeds)"
    )
    return SENTENCES[_outcome(last)].format(**facts)


def costs(question: Question, runs: Runs, last: Interim | None) -> dict[str, Any]:
    """What a task costs in both arms, and a further solved one; None where it is unknown, or none is solved.

    {usd, tokens: {arm, baseline, per_extra_success}}
    """
    if last is None:
        return {}
    mine, base = (measure(runs.of(arm)) for arm in (question.arm, question.baseline))
    found = {}
    for name, column in (("usd", "cost"), ("tokens", "tokens")):
        more = None if None in (mine[column], base[column]) else mine[column] - base[column]
        gain = last.difference if last.verdict == "better" else None
        per = None if more is None or not gain else more / gain
        found[name] = {"arm": mine[column], "baseline": base[column], "per_extra_success": per}
    return found


def things_to_try(question: Question, outcome: str, ladder: list[StepResult]) -> list[str]:
    """Up to three overrides to try next, as they are typed after this study's command."""
    advice = {step.link: step.advice for step in reversed(question.steps())}
    broken = [advice[each.link] for each in ladder if each.answer == BREAKS and advice[each.link]]
    usual = {
        "better": ["retrieval.top_k=3", "hydra.sweeper.arm=matts_parallel", "stream.passes=2"],
        "go on": ["budget.run.usd=LARGER", f"hydra.sweeper.effect={2 * question.design.effect:g}", "limit=LARGER"],
    }
    general = ["+distiller.style=quote", "judge=self_consistency", "retrieval.top_k=3"]
    return list(dict.fromkeys([*broken, *usual.get(outcome, general)]))[:3]


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
    temporary = folder / f"{FILE}.tmp"
    temporary.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    temporary.replace(folder / FILE)


def stored(folder: Path) -> dict[str, Any] | None:
    """The answer that a folder holds; None if it holds none, or none yet."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return found if found.get("sentence") else None
    except (OSError, ValueError, AttributeError):
        return None


def page(found: dict[str, Any]) -> list[str]:
    """The answer as lines for a terminal: one screen."""
    lines = [found["sentence"], ""]
    for look in found["looks"]:
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
    lines += ["", "to try next, after the same command with another run_dir:", *(f"  {word}" for word in found["try"])]
    return [*lines, "", "not tested:", *(f"  {each}" for each in found["not_tested"])]


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
