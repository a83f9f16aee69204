"""One table of all episodes of some runs: which columns it has, and how they are read."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import twins
from analysis.made_of import made_of
from analysis.notes import non_default_memory_settings
from analysis.runs import Run, explaining, find_runs, read_run
from core.build import LLMS, ROLES
from core.checksum import read_whole
from core.errors import UserError
from core.run.arms import env_label
from core.run.columns import banked_records
from core.run.columns import columns_of as episodes_as_columns
from core.run.files import CALLS, lines_of
from core.run.keys import COLUMNS, RUN_KEYS
from core.run.manifest import label_source
from core.types import content_id

if TYPE_CHECKING:
    import pandas as pd

STREAM = {  # {column: the usual value}
    column: RUN_KEYS[key].usual for column, key in COLUMNS.items() if key.startswith("stream.")
}


def load_runs(paths: Iterable[str | Path]) -> pd.DataFrame:
    """One row an episode of every run below the paths; see `run_columns` and `core.run.columns.columns_of`."""
    return frame_of_columns(columns_of(read_run(path)) for path in find_runs(paths))


def frame_of(runs: Iterable[Run]) -> pd.DataFrame:
    """The table of some runs that were read whole."""
    return frame_of_columns(map(columns_of, runs))


def columns_of(run: Run) -> dict[str, Any]:
    """The columns of a run: {run: {column: value}, episodes: {column: values}}."""
    with explaining(run.path):
        episodes = episodes_as_columns(run.rows, partial(banked_records, run.path, run.memory))
        return {"run": run_columns(run, episodes), "episodes": episodes}


def frame_of_columns(found: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """The table of what `columns_of` says of some runs."""
    import pandas as pd

    facts, columns, owners = [], {}, []
    for number, each in enumerate(found):
        facts.append(each["run"])
        for key in each["episodes"]:
            columns.setdefault(key, [float("nan")] * len(owners))
        owners += [number] * len(each["episodes"]["index"])
        for key, values in columns.items():
            values += each["episodes"].get(key, [float("nan")] * (len(owners) - len(values)))
    shared = _as_frame({key: [each.get(key) for each in facts] for key in (facts or [{}])[0]})
    frame = pd.concat([_as_frame(columns), shared.iloc[owners].reset_index(drop=True)], axis=1)
    for name in ("success", "lenient"):
        frame.loc[~frame["evaluated"], name] = float("nan")
    return frame


def _as_frame(columns: dict[str, list[Any]]) -> pd.DataFrame:
    """A table whose texts are objects: pandas' own type would hold a run's long ones once for each of its episodes."""
    import pandas as pd

    texts = {key for key, values in columns.items() if any(isinstance(value, str) for value in values)}
    return pd.DataFrame({key: pd.Series(v, dtype=object if key in texts else None) for key, v in columns.items()})


def run_columns(run: Run, episodes: dict[str, list[Any]]) -> dict[str, Any]:
    """The columns that are the same for every episode of a run. episodes: the columns of these."""
    said = episodes.get("said", [])  # of a run without an episode there is none
    config, choices = run.config, run.choices
    workflow, retrieval, stream = (config.get(name) or {} for name in ("workflow", "retrieval", "stream"))
    rounds = run.summary.get("consolidation") or {"tokens": 0, "cost_usd": 0.0}
    n_calls, fallbacks = answered_by_fallbacks(run)
    return {
        "run_dir": str(run.path),
        "run": run.path.name,
        "cell": run.cell,
        "task_set": run.task_set,
        "task_order": content_id(run.manifest["task_ids"]),
        "given_bank": given_bank(run),
        "arm": run.arm or "unknown",
        "overridden": " ".join(run.overridden),
        "env": env_label(choices.get("env") or "unknown", config.get("env")),
        **{group: choices.get(group) or "-" for group in ("agent", "workflow", "memory", "retrieval", "judge", "llm")},
        "model": run.manifest["models"]["agent"]["model"],
        "helpers": json.dumps(helpers(run, episodes)),  # {role: its model, if it is not the agent's}
        "seed": config["seed"],
        "seeds_asked": json.dumps(seeds_asked(run)),
        "twins": twins.in_stream(run),
        "setting": run.setting,
        "label_source": label_source(run.manifest, episodes.get("verdict_source", ())),
        "knobs": json.dumps(non_default_memory_settings(config)),
        "part": part_of(config.get("env") or {}),
        "version": (config.get("env") or {}).get("version"),  # of the benchmark, where there are several
        "bank": config.get("bank"),
        "k": workflow.get("k"),
        "r": workflow.get("r"),
        "top_k": retrieval.get("top_k"),
        "learn_from": workflow.get("learn_from"),
        **{key: stream.get(key, usual) for key, usual in STREAM.items()},
        "n_tasks": len({*run.manifest["task_ids"]}),  # different ones: stream.passes repeats them
        "evaluated": all(episodes.get("graded", ())),  # False: success is not known of any episode
        "complete": len(said) == run.n_tasks,
        "trace": content_id(sorted(said)),  # of what was said and done in every attempt
        "tokens_consolidation": float("nan") if rounds["tokens"] is None else rounds["tokens"],  # of its bank
        "cost_consolidation": float("nan") if rounds["cost_usd"] is None else rounds["cost_usd"],
        "n_calls": n_calls,  # of models, where some of them have fallbacks
        "fallbacks": json.dumps(fallbacks),  # {model: calls that it answered}
        "command": shlex.join(run.manifest["command"][1:]),
        **made_of(run.manifest),
        "data": run.manifest["fingerprint"]["dataset"].get("sha256"),
        "settings": run.settings,
    }


def helpers(run: Run, episodes: dict[str, list[Any]]) -> dict[str, str]:
    """{role: model} of the roles beside the agent's that were asked something and have another model."""
    models = {role: about.get("model") for role, about in run.manifest["models"].items()}
    asked = (role for role in ROLES[1:] if role in models and sum(episodes.get(f"tokens_{role}", ())))
    return {role: models[role] for role in asked if models[role] != models["agent"]}


def _seeds_of_study(run: Run) -> set[int]:
    """The seeds of a verdict's last look, for a run of the two arms that it compares."""
    try:
        found = json.loads((run.path.parent / "verdict.json").read_text(encoding="utf-8"))
        asked, n_looks = found["question"], len(found["looks"])
        n_seeds = asked["design"]["first"] + n_looks - 1 if n_looks else 0
        is_compared = run.arm in (asked["arm"], asked["baseline"])
        return set(range(asked["first_seed"], asked["first_seed"] + n_seeds)) if is_compared else set()
    except (OSError, ValueError, LookupError, TypeError):
        return set()


def seeds_asked(run: Run) -> list[int]:
    """The seeds of the sweep that made a run, or of a later one in its folder that has the run among its cells.

    Of experiment=verdict, those of the last look. Its own seed alone where it is of no sweep.
    """
    own, seeds = run.config["seed"], set()
    if run.hydra.get("mode") == "MULTIRUN":
        job, file = _typed(run.hydra["overrides"]["task"]), run.path.parent / "multirun.yaml"
        last = _written_sweep(file, file.stat().st_mtime_ns) if file.is_file() else {}
        sweeps = [_varied(run.hydra, run.manifest["command"][1:])]
        sweeps += [last] if all(job.get(key) in values for key, values in last.items() if key != "seed") else []
        seeds = {int(seed) for values in sweeps for seed in values.get("seed", ()) if seed.isdigit()}
        seeds |= _seeds_of_study(run)
    return sorted(seeds | {own})


def _varied(hydra: Mapping[str, Any], words: Iterable[str]) -> dict[str, list[str]]:
    """{key: its values} of a sweep: those of its experiment, and those of its command, which take precedence.

    hydra   Hydra's own configuration; words: those of the command line
    """
    params = {key: str(values) for key, values in ((hydra.get("sweeper") or {}).get("params") or {}).items()}
    found = {key: swept(key, values) for key, values in (params | _typed(words)).items()}
    return {key: values for key, values in found.items() if key in params or len(values) > 1}


@lru_cache(maxsize=64)
def _written_sweep(file: Path, _changed: int) -> dict[str, list[str]]:
    """The values of the sweep that wrote a multirun.yaml; {} where it cannot be read."""
    try:
        hydra = (read_whole(file) or {})["hydra"]
        return _varied(hydra, hydra["overrides"]["task"])
    except (OSError, UserError, LookupError, TypeError):
        return {}


def typed(command: str) -> dict[str, str]:
    """The overrides of a command: {key: value}."""
    return _typed(shlex.split(command))


def _typed(words: Iterable[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if re.match(r"[+~]*[\w.@/]+=", word))


@cache  # Hydra's parser takes a millisecond a word
def swept(key: str, values: str) -> list[str]:
    """The values of a sweep in Hydra's grammar: "1,2", "range(0,3)", or the only one."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    override = OverridesParser.create().parse_override(f"{key}={values}")
    if override.is_sweep_override():
        return [text.replace("'", "") for text in override.sweep_string_iterator()]
    return [override.get_value_element_as_str()]


def given_bank(run: Run) -> str | None:
    """An id of the bank that a run was given: of its content where it is only read, else of where it is; None: none."""
    if not (path := run.memory.get("path")):
        return None
    return content_id(run.manifest["fingerprint"].get("frozen_bank") or path, run.memory.get("namespace"))


def part_of(env: dict[str, Any]) -> str | None:
    """The part of the benchmark that was run: its site or split; None if it has no parts."""
    found = env.get("site") or env.get("split")
    return found if isinstance(found, str) else None


def answered_by_fallbacks(run: Run) -> tuple[int | None, dict[str, int]]:
    """(answers of models, {fallback: how many of them it gave}); (None, {}) of a run whose models have no fallback."""
    if not any((run.config.get(key) or {}).get("fallbacks") for key in LLMS):
        return None, {}
    if not (run.path / CALLS).is_file():
        totals = run.summary.get("calls", {})
        n = sum(totals[role]["calls"] + totals[role]["from_cache"] for role in ROLES if role in totals)
        return n, run.summary.get("fallbacks", {})
    calls = [row for row in lines_of(run.path, CALLS) if row["role"] in ROLES and not row["error"]]
    return len(calls), dict(sorted(Counter(row["fallback"] for row in calls if row.get("fallback")).items()))
