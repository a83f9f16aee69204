"""Pure functions from episode rows to numbers: a run's summary, gains of test-time scaling, followed lessons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import comb
from statistics import fmean
from typing import Any

from core.normal_form import folded
from core.proportions import wilson
from core.run.records import answer_of, evaluated, not_shown, outcomes_of, place_of, usage_of
from core.types import CUT_OFF, MEMORY, NOT_TAKEN, Lesson, Task, Trajectory, Usage, total

VALIDATION = "validation"  # in the usage of an episode, beside the roles: what trying lessons cost (memory.validate)
VALID = ("success", "failure")  # statuses that count: an infra_error is in no denominator
Follows = Callable[[Task, str, str, Sequence[str]], bool | None]  # see BaseEnv.follows


def summarise(rows: list[dict], n_tasks: int, wall_s: float = 0.0, rounds: Usage | None = None) -> dict[str, Any]:
    """The content of summary.json. Infra errors are counted separately and are in no denominator.

    If any episode was not evaluated (its answer is submitted elsewhere), success is unknown for the whole run.

    rows      one episode per task (core.run.records.current)
    n_tasks   number of tasks of the run
    rounds    usage of the bank's consolidation rounds (memory.consolidate); None if there are none
    """
    valid = [row for row in rows if row["status"] in VALID]
    broken = [row for row in rows if row["status"] == "infra_error"]
    spent = sum((usage_of(row) for row in rows), rounds or Usage())
    known = valid if all(map(evaluated, valid)) else []
    won, n_lessons = sum(row["status"] == "success" for row in known), sum(len(row["lessons"]) for row in rows)
    return {
        "n": len(valid),
        "n_tasks": n_tasks,
        "complete": len(valid) == n_tasks,
        **rate(known),
        "mean_reward": mean([row["reward"] for row in known]),
        "mean_steps": mean([steps(row) for row in valid]),
        "n_infra_error": len(broken),
        "infra_errors": dict(sorted(Counter(answer_of(row)["error"].split(":")[0] for row in broken).items())),
        "broken": [
            {"task_id": row["task_id"], "index": place_of(row), "error": answer_of(row)["error"]} for row in broken
        ],
        "n_retried": sum("retries" in row for row in rows),
        "n_stopped": sum(row["status"] == "stopped" for row in rows),
        **{
            f"n_{end}": sum(answer_of(row)["ended_by"] == end for row in valid)
            for end in (*CUT_OFF, "step_limit", "stuck")
        },
        "n_unstated": sum(not answer_of(row).get("info", {}).get("stated", True) for row in valid),
        "n_empty_replies": sum(not step["text"].strip() for row in rows for step in all_steps(row)),
        "n_truncated": sum(step["finish_reason"] == "length" for row in rows for step in all_steps(row)),
        "n_invalid_actions": sum(not step["valid"] for row in rows for step in all_steps(row)),
        "n_tampered": sum(map(n_tampered, rows)),
        "n_repeated": n_repeated(rows),
        "n_lessons": n_lessons,
        "lessons_per_100": round(100 * n_lessons / len(valid), 2) if valid else None,
        "n_lessons_dropped": sum(row["n_dropped"] for row in rows),
        "n_retrieved": sum(bool(row["retrieved"]) for row in rows),
        "n_not_shown": sum(not_shown(row) for row in rows),
        "n_fell_back": sum("fell_back" in found for row in rows for found in row["retrieved"]),
        "shown_per_task": mean([sum(found["n_shown"] for found in row["retrieved"]) for row in valid]),
        "n_verdicts_truncated": sum(row["verdict"]["truncated"] for row in rows),
        "n_extractions_truncated": sum(row["n_truncated"] for row in rows),
        "n_verdicts_unparsed": sum(not row["verdict"]["parsed"] for row in rows),
        "n_confidences_unparsed": sum("confidence_parsed" in verdict for row in rows for verdict in row["verdicts"]),
        "n_learning_errors": sum(len(row["learning_errors"]) for row in rows),
        "judge_agreement": judge_agreement(known),
        "label_source": "+".join(sorted({row["verdict"]["source"] for row in valid} - {"none"})) or "none",
        "tokens": tokens(rows, rounds),
        "consolidation": rounds and {"tokens": rounds.tokens, "cost_usd": rounds.cost_usd},
        "cost_usd": spent.cost_usd,
        "cost_usd_per_success": None if spent.cost_usd is None or not won else spent.cost_usd / won,
        "wall_s": round(wall_s, 2),
        "wall_s_per_success": round(wall_s / won, 2) if won else None,
        "by_type": by_type(known),
        **({"measures": found} if (found := measures(known)) else {}),
        "scaling": scaling(known),
    }


def n_repeated(rows: list[dict]) -> int:
    """Number of tasks that ask what one before asks, under another id, with the same answer: a lesson may hold that."""
    asked = dict.fromkeys((row["task_id"], folded(row["query"]), answer_of(row)["gold"]) for row in rows)
    return len(asked) - len({each[1:] for each in asked})


def rate(rows: list[dict]) -> dict[str, Any]:
    """{n_success, success_rate, ci95} of rows without infra errors. In ci95 a task that was tried again counts once."""
    won, n_tasks = sum(row["status"] == "success" for row in rows), len({row["task_id"] for row in rows})
    interval = wilson(won * n_tasks / len(rows), n_tasks) if rows else None
    return {
        "n_success": won,
        "success_rate": round(won / len(rows), 4) if rows else None,
        "ci95": [round(end, 4) for end in interval] if interval else None,
    }


def by_type(rows: list[dict]) -> dict[str, dict]:
    """`rate` and n for each task type, when there is more than one."""
    groups: dict[str, list[dict]] = defaultdict(list)
    for row in rows:
        groups[row["task_type"]].append(row)
    if len(groups) < 2:
        return {}
    return {name: {"n": len(group), **rate(group)} for name, group in sorted(groups.items())}


def measures(rows: list[dict]) -> dict[str, dict[str, float | None]]:
    """The env's measures besides success: {name: {macro: mean of the tasks' means, micro: mean over all steps}}."""
    return averages([answer_of(row).get("info", {}).get("measures", {}) for row in rows])


def averages(measured: Iterable[dict[str, Sequence[float]]]) -> dict[str, dict[str, float | None]]:
    """As `measures`, from {name: (sum, count)} of each task; tasks without a measure are left out of its averages."""
    found: dict[str, list[Sequence[float]]] = defaultdict(list)
    for each in measured:
        for name, pair in each.items():
            found[name].append(pair)
    return {
        name: {
            "macro": mean([total / n for total, n in pairs]),
            "micro": mean([sum(total for total, _ in pairs) / sum(n for _, n in pairs)]),
        }
        for name, pairs in found.items()
    }


def by_pass(rows: list[dict], n_tasks: int, passes: int) -> list[dict]:
    """`rate` and n of each pass over the tasks, when there is more than one."""
    if passes == 1:
        return []
    size = n_tasks // passes
    valid = [row for row in rows if row["status"] in VALID]
    valid = valid if all(map(evaluated, valid)) else []
    groups = [[row for row in valid if place_of(row) // size == number] for number in range(passes)]
    return [{"n": len(group), **rate(group)} for group in groups]


def judge_agreement(rows: list[dict]) -> float | None:
    """Share of judged attempts whose label equals the env's outcome; None if nothing was judged."""
    judged = [pair for row in rows for pair in zip(row["verdicts"], outcomes_of(row), strict=True)]
    return mean([float(verdict["label"] == truth) for verdict, truth in judged if verdict["label"] is not None])


def tokens(rows: list[dict], rounds: Usage | None = None) -> dict[str, int | None]:
    """Prompt + completion tokens by role, and in total; None where a part is unknown."""
    by_role: dict[str, int | None] = defaultdict(int)
    for row in rows:
        for role, usage in row["usage"].items():
            by_role[role] = total((by_role[role], Usage(**usage).tokens))
    if rounds is not None:
        by_role["consolidation"] = rounds.tokens
    return {**by_role, "total": total(by_role.values())}


def steps(row: dict) -> int:
    """Number of steps of the chosen attempt; if that is a note (refine=continue), of the last round that acted."""
    taken = (made["steps"] for made in reversed(row["trajectories"][: row["chosen"] + 1]))
    return len(next((did for did in taken if [step.get("observation") for step in did] != [NOT_TAKEN]), ()))


def all_steps(row: dict) -> list[dict]:
    """The steps of every attempt."""
    return [step for trajectory in row["trajectories"] for step in trajectory["steps"]]


def n_tampered(row: dict) -> int:
    """Number of attempts at a task that forged their result, by `info.tampered`."""
    return sum(bool(made.get("info", {}).get("tampered")) for made in row["trajectories"])


def scaling(rows: list[dict]) -> dict[str, Any]:
    """`of_attempts` or `of_rounds`, for rows without infra errors; {} if every task had one attempt."""
    scaled = [row for row in rows if row["selection"]]
    if not scaled:
        return {}
    sequential = [row for row in scaled if row["selection"]["by"] in ("last", "kept")]
    return of_rounds(sequential) if sequential else of_attempts(scaled)


def of_attempts(rows: list[dict]) -> dict[str, Any]:
    """Gains of parallel scaling. Attempts that broke are in no denominator.

    select            how answers were selected, among tasks with a choice
    pass_at_1         success rate of a random attempt
    best_of_n         success rate of the selected attempts: the run's success rate
    pass_at_k_oracle  success rate of a selector that knows the truth; not the run's score
    """
    whole = [[outcome for outcome in outcomes_of(row) if outcome != "infra_error"] for row in rows]
    tasks = [(len(outcomes), outcomes.count("success")) for outcomes in whole]
    return {
        "kind": "parallel",
        "k": max(len(row["trajectories"]) for row in rows),
        "select": "+".join(sorted({row["selection"]["by"] for row in rows} - {"only"})) or "only",
        "pass_at_1": mean([pass_at_k(n, won, 1) for n, won in tasks]),
        "best_of_n": mean([float(row["status"] == "success") for row in rows]),
        "pass_at_k_oracle": mean([pass_at_k(n, won, n) for n, won in tasks]),
        "n_infra_error_attempts": sum(outcomes_of(row).count("infra_error") for row in rows),
        "n_selections_unparsed": sum(not row["selection"]["parsed"] for row in rows),
    }


def of_rounds(rows: list[dict]) -> dict[str, Any]:
    """Gains of sequential scaling: the success rate after each round, and how many answers the rounds changed.

    n_corrected   tasks that failed after the first round and succeeded after the last
    n_spoiled     the opposite
    """
    rounds = max(len(row["trajectories"]) for row in rows)
    won = [_by_round(row) for row in rows]
    return {
        "kind": "sequential",
        "r": rounds - 1,
        "success_by_round": [mean([float(task[min(n, len(task) - 1)]) for task in won]) for n in range(rounds)],
        "n_corrected": sum(task[-1] and not task[0] for task in won),
        "n_spoiled": sum(task[0] and not task[-1] for task in won),
    }


def _by_round(row: dict) -> list[bool]:
    """Whether the answer after each round is right; with by=kept, a round without an answer keeps the previous one."""
    kept = row["selection"]["by"] == "kept"
    found: list[bool] = []
    for made in row["trajectories"]:
        found.append(
            found[-1] if kept and found and not states_answer(made["answer"], made["info"]) else made["success"]
        )
    return found


def limit_of(attempt: dict) -> str:
    """The limit, other than of steps, at which an attempt ended: one of CUT_OFF | length (its last reply was cut off) |
    "" (none)."""
    if attempt["ended_by"] in CUT_OFF:
        return attempt["ended_by"]
    last = attempt["steps"][-1]["finish_reason"] if attempt["steps"] else ""
    return last if last in ("length", "content_filter") else ""


def states_answer(answer: str | None, info: dict) -> bool:
    """Whether an attempt states an answer. Envs that parse answers from prose report that in `info.stated`."""
    return answer is not None and bool(info.get("stated", True))


def pass_at_k(n: int, won: int, k: int) -> float | None:
    """Unbiased estimate of pass@k from `won` successes in n attempts (Chen et al. 2021); None if n < k."""
    return None if n < k else 1.0 - comb(n - won, k) / comb(n, k)


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known, rounded to 4 digits; None if nothing is."""
    known = [value for value in values if value is not None]
    return round(fmean(known), 4) if known else None


def followed(follows: Follows, task: Task, played: Sequence[Trajectory], lessons: Sequence[Lesson]) -> bool | None:
    """Whether the answer did what at least one of a record's lessons says; None if that is not decidable.

    played    the attempts whose actions led to the answer, which is the last of them
    lessons   the shown lessons of the record
    """
    if played[-1].ended_by == "infra_error" or len(played[0].opening) < 2:
        return None
    observation = MEMORY.sub("", played[0].opening[1]["content"])  # without the lessons: `follows` must not read them
    steps = [step for attempt in played for step in attempt.steps if step.valid and step.observation != NOT_TAKEN]
    actions = [step.action for step in steps]
    found = {follows(task, observation, lesson.text, actions) for lesson in lessons} - {None}
    return any(found) if found else None
