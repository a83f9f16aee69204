"""Assemble a run from its configuration: the one place that puts all of its parts together.

`assemble` resolves the composed configuration once; the parts that it builds receive objects and plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from core.build import (
    build_agent,
    build_bank,
    build_learner,
    build_meter,
    build_models,
    build_roles,
    details_for,
    refuse_problems,
)
from core.concurrency import in_background
from core.errors import AttemptOver, InfraError, UserError
from core.interrupt import Interrupts
from core.make import make, make_with, part, takes
from core.memory.open import has_bank
from core.memory.ports import SEEN
from core.memory.protocol import Memory
from core.memory.records import id_in_bank, tell
from core.models.base import Role
from core.models.meter import Meter
from core.redact import Redactor
from core.reply_marks import plain_reply
from core.run.files import EPISODES, has_ended
from core.run.launch import in_sweep
from core.run.manifest import fingerprint, recorded_config
from core.run.records import RunRecords, as_memory_sees
from core.run.resume import check_bank, renew, restore
from core.run.session import Session
from core.setting import TOLD
from core.terminal import check_open_files, say_once, stage
from core.types import Episode, Lesson, Task
from envs.base import BaseEnv
from envs.pool import EnvPool
from workflows.reasoningbank import TASK, ReasoningBank
from workflows.rollout import Rollout
from workflows.stored_attempts import NoEnv, StoredAttempts, StoredRun, stored_run
from workflows.stream import Stream
from workflows.validate import Gate

AT_ONCE = 8  # tasks, where nothing is said: a server answers so many about as fast as one


@dataclass(frozen=True, kw_only=True)
class AssembledRun:
    """A run, built and restored, ready to start or resume.

    workers      `tasks_at_once`: number of tasks that may run concurrently if they do not depend on each other
    retries      retry_broken: number of further tries at a task that ended with an infra error
    stop_after   stop_after_broken: end the run after this many consecutive infra errors; None: never
    notes        lines for the user about the attempts of attempts_from
    """

    tasks: list[Task]
    stream: Stream
    workflow: ReasoningBank
    session: Session
    workers: int
    retries: int
    stop_after: int | None
    notes: tuple[str, ...] = ()

    def episodes(self) -> Iterator[Episode]:
        """Run the remaining tasks; yields each episode once it is recorded."""
        return self.stream.run(self.workflow, self.tasks, self.workers, self.retries, self.stop_after)

    def write_answers(self) -> None:
        """Write the env's output files, e.g. a leaderboard submission."""
        records, model = self.workflow.records, self.workflow.rollout.role.llm.name
        with self.workflow.envs.lease() as env:
            for name, text in env.files(records.answers(), model).items():
                records.write_text(name, text)


def check_given_bank(cfg: DictConfig) -> str:
    """Check memory.path against the setting. Returns a line for the user where a new bank will be made, else "".

    Raises UserError if the setting only reads a bank and there is none, or makes a bank of its own and one is given.
    """
    path, setting = cfg.memory.get("path"), cfg.setting
    is_told = setting.name == TOLD and cfg.attempts_from is None
    if path is None:
        if not (setting.learn or is_told) and part(cfg.workflow).has_memory:
            raise UserError(f"setting={setting.name} reads a bank that exists: give memory.path=BANK.")
        return ""
    if is_told:
        raise UserError("setting=told makes a bank of its own: leave out memory.path.")
    if has_bank(path):
        return ""
    if not setting.learn:
        raise UserError(f"memory.path={path} does not exist, and a frozen bank is only read.")
    return f"note: memory.path={path} does not exist: a new bank is made there."


def assemble(
    cfg: DictConfig, run_dir: Path, interrupts: Interrupts, redact: Redactor, stack: ExitStack
) -> AssembledRun:
    """Build every part of a run, and restore its records and its bank from run_dir.

    stack   ExitStack that closes these resources at the end of the run

    Raises UserError for incompatible settings, and if run_dir holds another run.
    """
    stored, stream = stored_run(cfg), make(cfg.stream)
    envs = open_envs(cfg, stack, stored)
    if stored is not None:
        tasks, dataset, env_lessons = stored.tasks, stored.dataset, None
    else:
        with envs.lease() as env:
            tasks, dataset = tasks_of(cfg, env, stream), env.describe()
            env_lessons = env.lessons() if cfg.setting.name == TOLD else None
    recorded = recorded_config(run_dir)
    over = bool(recorded) and has_ended(run_dir, len(tasks))
    models = build_models(cfg, stack, recorded, ask=not over)
    config = OmegaConf.to_container(cfg, resolve=True)
    learn, given_bank = config["setting"]["learn"], config["memory"].get("path")
    stage("preparing the models and the memory")
    refuse_problems(models, cfg.roles)
    identity = fingerprint(config, dataset, tasks, None if learn else given_bank)
    ids = [task.id for task in tasks]
    how = {"waits": in_sweep(), "allow_changed_parts": config["allow_changed_parts"]}
    records = RunRecords(run_dir, identity, interrupts, redact, config["scrub_episodes"], ids, **how)
    stack.callback(records.close)
    calls = records.lines("calls")
    meter = build_meter(cfg, calls, records.wall_s(), records.lines("prompts"))
    stack.callback(meter.close)
    roles = build_roles(cfg, models, meter)
    own_bank = None if given_bank else run_dir / "bank.sqlite"
    if own_bank is not None and learn:
        renew(own_bank, len(records.rows), calls.read)
    is_given = given_bank is not None and has_bank(given_bank)
    bank = open_bank(cfg, records, roles, meter, stack, env_lessons, stored)
    bank_labels = labels_given(cfg, bank, stored)
    visible_domains = stream.types_before(tasks) if cfg.retrieval.get("domain") == SEEN else None
    workflow = build_workflow(cfg, envs, bank, roles, records, meter, stored, visible_domains)
    is_empty = is_given and workflow.has_memory and not records.rows and not bank.ids()
    if learn:
        rows = records.rows[: stream.n_consolidated(len(records.rows), len(tasks))]
        if given_bank:
            began = records.read_json("manifest.json") or {}
            check_bank(bank, rows[: -stream.batch], given_bank, was_empty=not began.get("bank_labels"))
        n_lost = restore(bank, [as_memory_sees(row, workflow.withheld) for row in rows], own=own_bank)
        if n_lost > sum(len(row["records"]) for row in rows[-stream.batch :]):  # more than a kill leaves
            say_once(f"note: the bank lacked {n_lost} records of {run_dir / EPISODES}: they are added again.")
    workers, notes = tasks_at_once(cfg, workflow.learns, stream), list(stored.notes()) if stored else []
    if is_empty:
        notes.append(f"note: memory.path holds no lesson in memory.namespace={cfg.memory.get('namespace', 'default')}.")
    if cfg.max_concurrency is None and workers > 1 and not in_sweep():
        notes.append(f"max_concurrency={workers}: no task depends on another, so {workers} run at once.")
    config["max_concurrency"] = workers
    session = Session(
        composed=cfg,
        config=config,
        make_tracker=partial(make, cfg.tracker),
        fingerprint=identity,
        tasks=tasks,
        stream=stream.described(),
        records=records,
        roles=roles,
        meter=meter,
        bank=bank,
        bank_labels=bank_labels,
        has_memory=workflow.has_memory and bank.learns,
        plays_gold=workflow.rollout.agent.uses_gold,
    )
    if not over and stored is None and workflow.rollout.agent.calls_model:
        in_background(models["agent"].prepare)  # while the first task's envs start; an error is the first call's, too
    limits = {"workers": workers, "retries": config["retry_broken"], "stop_after": config["stop_after_broken"]}
    return AssembledRun(tasks=tasks, stream=stream, workflow=workflow, session=session, notes=tuple(notes), **limits)


def tasks_at_once(cfg: Any, learns: bool, stream: Stream) -> int:
    """max_concurrency, or, left open, AT_ONCE where tasks do not depend on each other and a server plays them, else 1.

    1 also under a limit of the run, whose last tasks it would change.
    """
    if cfg.max_concurrency is not None:
        check_open_files(cfg.max_concurrency * (cfg.workflow.get("k") or 1), f"max_concurrency={cfg.max_concurrency}")
        return cfg.max_concurrency
    most = stream.batch if learns else AT_ONCE
    limited = any(limit is not None for limit in cfg.budget.run.values())
    if limited or not takes(cfg.llm, "api_base"):
        return 1
    return min(most, AT_ONCE, cfg.env.get("workers") or AT_ONCE)


def open_envs(cfg: Any, stack: ExitStack, stored: StoredRun | None = None) -> EnvPool:
    """A pool of the envs of `cfg.env`, closed with the stack; of `stored` attempts none acts."""
    envs = EnvPool(NoEnv if stored else lambda: make(cfg.env), cfg.env.workers, cfg.episode_timeout_s)
    stack.callback(envs.close)
    return envs


def tasks_of(cfg: Any, env: BaseEnv, stream: Stream) -> list[Task]:
    """The tasks of all passes of a run, in stream order. Raises UserError if there are none, or if ids repeat."""
    if not (tasks := stream.ordered(env.tasks(), cfg.seed)):
        raise UserError("the environment has no tasks: its dataset, or the selection from it, is empty.")
    if (different := len({task.id for task in tasks})) < len(tasks):
        raise UserError(f"{len(tasks)} tasks have only {different} different ids: every task needs its own.")
    return stream.every_pass(tasks[: cfg.limit])


def open_bank(
    cfg: Any,
    records: RunRecords,
    roles: dict[str, Role],
    meter: Meter,
    stack: ExitStack,
    env_lessons: list[tuple[Task, Lesson]] | None = None,
    stored: StoredRun | None = None,
) -> Memory:
    """Open memory.path, or bank.sqlite in the run directory; memory.path is read-only if the setting does not learn.

    env_lessons  with setting=told: the environment's own lessons, to be added to the run's bank
    stored       with attempts_from: that run
    """
    embedder = make(cfg.embedder, meter=meter)
    stack.callback(embedder.close)
    given = cfg.memory.get("path")
    bank_run_id = "" if given is None else id_in_bank(str(records.path.resolve()))
    models = {name: role.llm.name for name, role in roles.items() if name != "grader"}  # it writes no lesson
    bank = build_bank(
        cfg,
        embedder,
        roles,
        given or str(records.path / "bank.sqlite"),
        read_only=given is not None and not cfg.setting.learn,
        run=bank_run_id,
        consolidator_run=bank_run_id,
        provenance={"run": records.run, "models": models} | notes_of(cfg) | (stored.provenance if stored else {}),
    )
    stack.callback(bank.close)
    if env_lessons is not None:
        tell(bank, env_lessons)
    return bank


def notes_of(cfg: Any) -> dict[str, Any]:
    """The configuration's part of each record's provenance: the workflow's class, with k or r if it uses them;
    `use_gold` if judge or extractor knew the outcomes, `show_answer` if the extractor was shown the answers.

    A part from outside may read the outcomes that the setting hands it (`Setting.withheld`).
    """
    notes = {"workflow": cfg.workflow["_target_"].rpartition(".")[2]}
    notes |= {key: cfg.workflow[key] for key in part(cfg.workflow).scaled_by}
    parts = [node["_target_"] for node in (cfg.judge, cfg.distiller, cfg.contrast) if node]
    foreign = cfg.setting.use_gold and not all(target.startswith("core.") for target in parts)
    gold = {"use_gold": part(cfg.judge).uses_gold or foreign, "show_answer": cfg.setting.get("show_answer")}
    return notes | {name: True for name, noted in gold.items() if noted}


def labels_given(cfg: Any, bank: Memory, stored: StoredRun | None = None) -> set[str]:
    """Label sources in the given bank, memory.path or that of setting=told; empty without one. With attempts_from those
    of the lessons that the attempts were shown.

    Raises UserError if one is forbidden by the setting (e.g. oracle labels in test_time).
    """
    given, setting = cfg.memory.get("path"), make(cfg.setting)
    if stored is not None:
        setting.check_bank(stored.labels, f"of which the attempts in {stored.path} were shown lessons")
        return stored.labels
    if not part(cfg.workflow).has_memory or (given is None and cfg.setting.name != TOLD):
        return set()
    labels = bank.labels()
    setting.check_bank(labels, given)
    return labels


def build_workflow(
    cfg: Any,
    envs: EnvPool,
    bank: Memory,
    roles: dict[str, Role],
    records: RunRecords | None,
    meter: Meter,
    stored: StoredRun | None = None,
    visible_domains: dict[tuple[str, ...], tuple[str, ...]] | None = None,
) -> ReasoningBank:
    """Build the workflow of `cfg.workflow`. Each part is passed only if the workflow class has a field of that name.

    stored           with attempts_from: that run. Raises UserError if the workflow cannot learn from its attempts
    visible_domains  with retrieval.domain=seen: `Stream.types_before`
    """
    agent = roles["agent"]
    rollout = partial(StoredAttempts, stored=stored) if stored else Rollout
    same = build_learner(grader, roles["grader"], cfg).same if (grader := cfg.get("grader")) else None
    envs.handed = {"grader": grader_of(roles["grader"]), "open_answers": same}
    limits = {"max_steps": cfg.max_steps, "max_repeats": cfg.max_repeats, "timeout_s": cfg.episode_timeout_s}
    parts = {
        "envs": envs,
        "rollout": rollout(agent=build_agent(cfg), role=agent, seed=agent.seed, **limits),
        "bank": bank,
        "judge": build_learner(cfg.judge, roles["judge"], cfg),
        "distiller": build_learner(cfg.distiller, roles["extractor"], cfg, bank),
        "contrast": cfg.contrast and build_learner(cfg.contrast, roles["extractor"], cfg, bank),
        "selector": build_learner(cfg.select, roles["selector"], cfg),
        "setting": make(cfg.setting),
        "records": records,
        "follows": part(cfg.env).follows,
        "meter": meter,
        "strip_lessons": cfg.strip_lessons,
        "visible_domains": visible_domains,
        "when": cfg.retrieval.get("when") or TASK,
        "gate": gate_of(cfg, stored),
    }
    workflow = make_with(cfg.workflow, details_for(cfg.workflow, cfg) | parts)
    if stored is not None:
        stored.check(workflow)
    return workflow


def gate_of(cfg: Any, stored: StoredRun | None = None) -> Gate | None:
    """The gate of memory.validate; None without one. Raises UserError where lessons cannot be tried."""
    if (node := cfg.memory.get("validate")) is None or not part(cfg.workflow).has_memory:
        return None
    if stored is not None:
        raise UserError("memory.validate plays earlier tasks again, which attempts_from cannot: memory.validate=null.")
    if cfg.stream.batch != 1:
        raise UserError(f"memory.validate tries lessons between two tasks: stream.batch={cfg.stream.batch} has none.")
    return make(node)


def grader_of(role: Role) -> Callable[[str, str], str]:
    """A callable (task id, question) -> reply, for benchmarks whose evaluation asks a model.

    A role of its own, because grader prompts contain the reference answer and judge prompts never do. A failure becomes
    an InfraError.
    """

    def ask(task: str, question: str) -> str:
        try:
            return plain_reply(role.chat([{"role": "user", "content": question}], task=task).text)
        except AttemptOver as error:  # or it would be counted as the agent exceeding its limits
            raise InfraError(str(error), error.kind) from error

    return ask
