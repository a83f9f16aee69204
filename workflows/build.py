"""Assemble a run from its configuration: the one place where all its parts come together.

`assemble` takes the composed configuration and resolves it once. What it hands out are parts and plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
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
    make,
    make_with,
    part,
    refuse_problems,
    select_tasks,
)
from core.errors import AttemptOver, InfraError, UserError
from core.interrupt import Interrupts
from core.memory.by_type import BANKS, BankByType
from core.memory.protocol import Memory
from core.memory.records import tell
from core.models.base import Role
from core.models.meter import Meter
from core.redact import Redactor
from core.run.growth import rewind
from core.run.launch import in_sweep
from core.run.manifest import fingerprint, recorded_config
from core.run.records import RunRecords
from core.run.resume import restore
from core.run.session import Session
from core.setting import TOLD
from core.starting import stage
from core.types import Episode, Lesson, Task, content_id
from envs.base import BaseEnv
from envs.pool import EnvPool
from workflows.reasoningbank import ReasoningBank
from workflows.rollout import Rollout
from workflows.split_stream import banks_of
from workflows.stream import Stream

GRADER_TOKENS = 768  # of a grader's reply, as in WebArena's evaluation


@dataclass(frozen=True, kw_only=True)
class AssembledRun:
    """A run that is ready to go on.

    workers      tasks that may run at once where they do not depend on each other
    retries      further tries at a task that broke
    stop_after   so many tasks in a row that broke end the run; None: never
    """

    tasks: list[Task]
    stream: Stream
    workflow: ReasoningBank
    session: Session
    workers: int
    retries: int
    stop_after: int | None

    def episodes(self) -> Iterator[Episode]:
        """Run the tasks that are left; yields each episode once it is recorded."""
        return self.stream.run(self.workflow, self.tasks, self.workers, self.retries, self.stop_after)

    def write_answers(self) -> None:
        """Write what the env makes of the answers, such as a file to submit."""
        records, model = self.workflow.records, self.workflow.rollout.role.llm.name
        with self.workflow.envs.lease() as env:
            for name, text in env.files(records.answers(), model).items():
                records.write_text(name, text)


def assemble(
    cfg: DictConfig, run_dir: Path, interrupts: Interrupts, redact: Redactor, stack: ExitStack
) -> AssembledRun:
    """Build every part of a run, and bring its records and its bank to where the run goes on.

    stack   closes at the run's end what is opened here

    Raises UserError for what cannot go together, and where run_dir holds another run.
    """
    envs, stream = open_envs(cfg, stack), make(cfg.stream)
    with envs.lease() as env:
        tasks, dataset = tasks_of(cfg, env, stream), env.describe()
        env_lessons = env.lessons() if cfg.setting.name == TOLD else None
    models = build_models(cfg, stack, recorded_config(run_dir))
    config = OmegaConf.to_container(cfg, resolve=True)
    learn, given_bank = config["setting"]["learn"], config["memory"].get("path")
    stage("preparing the models and the memory")
    refuse_problems(models, cfg.roles)
    bank_paths = banks_of(run_dir, tasks, config)
    identity = fingerprint(config, dataset, tasks, None if learn else given_bank)
    ids = [task.id for task in tasks]
    records = RunRecords(run_dir, identity, interrupts, redact, config["scrub_episodes"], ids, waits=in_sweep())
    stack.callback(records.close)
    meter = build_meter(cfg, records.lines("calls"), records.wall_s(), records.lines("prompts"))
    stack.callback(meter.close)
    roles = build_roles(cfg, models, meter)
    own_bank = None if given_bank else run_dir / ("bank.sqlite" if bank_paths is None else BANKS)
    consolidated = stream.settled(len(records.rows), len(tasks))  # all episodes but those of an unfinished batch
    if learn and records.n_before is not None:  # the run grows
        before = stream.settled(len(records.rows), records.n_before)
        rewind(run_dir, records.rows[consolidated:before], own_bank, records.read_json("summary.json"))
    bank = open_bank(cfg, config, records, roles, meter, stack, env_lessons, bank_paths)
    bank_labels = labels_given(cfg, config, bank)
    workflow = build_workflow(cfg, envs, bank, roles, records, meter)
    if learn:
        restore(bank, [*records.rows[:consolidated], *records.ahead.in_order()], own=own_bank)
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
    limits = {"workers": config["max_concurrency"], "retries": config["retry_broken"]}
    stop_after = config["stop_after_broken"]
    return AssembledRun(tasks=tasks, stream=stream, workflow=workflow, session=session, stop_after=stop_after, **limits)


def open_envs(cfg: Any, stack: ExitStack) -> EnvPool:
    """The envs of `cfg.env`, closed with the stack."""
    envs = EnvPool(lambda: make(cfg.env), cfg.env.workers, cfg.episode_timeout_s)
    stack.callback(envs.close)
    return envs


def tasks_of(cfg: Any, env: BaseEnv, stream: Stream) -> list[Task]:
    """The tasks of a run, in its order, those of all passes. Raises UserError where there are none."""
    return stream.every_pass(select_tasks(stream.ordered(env.tasks(), cfg.seed), cfg.limit))


def open_bank(
    cfg: Any,
    config: dict[str, Any],
    records: RunRecords,
    roles: dict[str, Role],
    meter: Meter,
    stack: ExitStack,
    env_lessons: list[tuple[Task, Lesson]] | None = None,
    bank_paths: dict[str, str] | None = None,
) -> Memory:
    """memory.path, or bank.sqlite in the run directory; read-only where the setting learns nothing.

    env_lessons  with setting=told the environment's own lessons, which the run's bank then holds
    bank_paths   with stream.split_by {type of task: the path of its bank}, in place of bank.sqlite
    """
    embedder = make(cfg.embedder, meter=meter)
    stack.callback(embedder.close)
    given, setting = config["memory"].get("path"), config["setting"]
    if given is not None and env_lessons is not None:
        raise UserError("setting=told makes a bank of its own: leave out memory.path.")
    if given is None and not setting["learn"] and env_lessons is None and part(config["workflow"]).has_memory:
        raise UserError(f"setting={setting['name']} reads a bank that exists: give memory.path=BANK.")
    run = "" if given is None else content_id(str(records.path.resolve()))
    models = {name: role.llm.name for name, role in roles.items()}
    build = partial(
        build_bank,
        cfg,
        embedder,
        roles,
        read_only=given is not None and not setting["learn"],
        run=run,
        consolidator_run=run,
        provenance={"run": records.run, "models": models} | workflow_notes(config["workflow"]) | gold_notes(config),
    )
    if bank_paths is None:
        bank = build(given or str(records.path / "bank.sqlite"))
    else:
        bank = BankByType(banks={name: build(path) for name, path in bank_paths.items()})
    stack.callback(bank.close)
    if env_lessons is not None:
        tell(bank, env_lessons)
    return bank


def workflow_notes(workflow: dict[str, Any]) -> dict[str, Any]:
    """What is noted on each record of the workflow: its class, and its k or r where it has one."""
    sizes = {key: workflow[key] for key in part(workflow).scaled_by}
    return {"workflow": workflow["_target_"].rpartition(".")[2], **sizes}


def gold_notes(config: dict[str, Any]) -> dict[str, bool]:
    """What is noted on each record of a run in which the judge knew the answers, or the extractor was shown them."""
    notes = {"use_gold": part(config["judge"]).uses_gold, "show_answer": config["setting"].get("show_answer")}
    return {name: True for name, noted in notes.items() if noted}


def labels_given(cfg: Any, config: dict[str, Any], bank: Memory) -> set[str]:
    """The sources of the labels in memory.path. Raises UserError for one that the setting must not read."""
    given = config["memory"].get("path")
    if not part(config["workflow"]).has_memory or (given is None and config["setting"]["name"] != TOLD):
        return set()
    labels = bank.labels()
    make(cfg.setting).check_bank(labels, given)
    return labels


def build_workflow(
    cfg: Any, envs: EnvPool, bank: Memory, roles: dict[str, Role], records: RunRecords | None, meter: Meter
) -> ReasoningBank:
    """The workflow of `cfg.workflow`. It is given those of the parts below that it has a field for."""
    agent = roles["agent"]
    envs.grader = grader_of(roles["judge"])
    limits = {"max_steps": cfg.max_steps, "max_repeats": cfg.max_repeats, "timeout_s": cfg.episode_timeout_s}
    parts = {
        "envs": envs,
        "rollout": Rollout(agent=build_agent(cfg), role=agent, seed=agent.seed, **limits),
        "bank": bank,
        "judge": build_learner(cfg.judge, roles["judge"]),
        "distiller": build_learner(cfg.distiller, roles["extractor"]),
        "contrast": cfg.contrast and build_learner(cfg.contrast, roles["extractor"]),
        "selector": build_learner(cfg.select, roles["selector"]),
        "setting": make(cfg.setting),
        "records": records,
        "follows": part(cfg.env).follows,
        "meter": meter,
        "strip_lessons": cfg.strip_lessons,
    }
    return make_with(cfg.workflow, parts)


def grader_of(judge: Role) -> Callable[[str, str], str]:
    """What an env may ask about an answer, where its benchmark's own evaluation asks a model: the judge's model.

    It is another role than the judge, whose prompts hold no reference answer. Its errors break the attempt.
    """
    role = replace(judge, name="grader", temperature=0.0, max_tokens=GRADER_TOKENS)

    def ask(task: str, question: str) -> str:
        try:
            return role.chat([{"role": "user", "content": question}], task=task).text
        except AttemptOver as error:  # which would be taken for the agent's
            raise InfraError(str(error), error.kind) from error

    return ask
