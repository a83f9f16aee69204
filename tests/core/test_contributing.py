"""CONTRIBUTING.md at its word: its files in a folder outside the project, its commands run as they stand there."""

from __future__ import annotations

import csv
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property
from pathlib import Path

import forkserver
import pytest
import typed
from conftest import REPO, TOY, read_json, read_rows
from test_known_answer import ANSWERS

from core.errors import UserError
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from prompts import registry
from workflows.reasoningbank import ReasoningBank

LINES = (REPO / "CONTRIBUTING.md").read_text().splitlines()
BLOCK = [line[4:] for line in LINES if line.startswith("    ") or not line]
EXPORTS = [line for line in BLOCK if line.startswith("export ")]
NAME = re.compile(r"(?:#|\{#) ((?:mine|config|prompts)/\S+|\w+\.jsonl)(?: #\})?")
HEADER = "# @package _global_"
COMMAND = re.compile(r"(?:#|\{#) (python .*?)(?: #\})?")


def files() -> dict[str, str]:
    """{name: text} of every file on the page: from its name, or the header above it, to that of the next."""
    places = [(place, named[1]) for place, line in enumerate(BLOCK) if (named := NAME.fullmatch(line))]
    starts = [place - (BLOCK[place - 1] == HEADER) + name.endswith(".jsonl") for place, name in places]
    ends = [*(place - (BLOCK[place - 1] == HEADER) for place, _ in places[1:]), len(BLOCK)]
    return {
        name: "\n".join(BLOCK[start:end]).strip() + "\n"
        for (_, name), start, end in zip(places, starts, ends, strict=True)
    }


FILES = files()
COMMANDS = {
    name: said[1] for name, text in FILES.items() for line in text.splitlines() if (said := COMMAND.fullmatch(line))
}


class Outside:
    """A person with a folder `~/parts` and a shell in the repository."""

    def __init__(self, home: Path) -> None:
        self.home, self.parts = home, home / "parts"

    def write(self, name: str, text: str) -> None:
        path = self.parts / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    @cached_property
    def env(self) -> dict[str, str]:
        """What the page's exports make of the environment."""
        before = os.environ | {"HOME": str(self.home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        line = "\n".join([*EXPORTS, "env -0"])
        said = subprocess.run(["bash", "-c", line], env=before, capture_output=True, text=True, check=True).stdout
        return dict(variable.split("=", 1) for variable in said.split("\0")[:-1])

    def shell(self, command: str) -> subprocess.CompletedProcess:
        return typed.run(forkserver, command, cwd=REPO, env=self.env)

    def run(self, name: str, command: str, status: int = 0) -> Path:
        """A command of the page, with its records in a folder of this name."""
        folder = self.home / "runs" / name
        done = self.shell(command + f" run_dir={folder}" * ("main.py" in command))
        assert done.returncode == status, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stdout").write_text(done.stdout)
        return folder


@pytest.fixture(scope="module")
def outside(tmp_path_factory) -> Iterator[Outside]:
    person = Outside(tmp_path_factory.mktemp("home"))
    for name, text in FILES.items():
        person.write(name, text)
    with pytest.MonkeyPatch.context() as patch:  # nothing in this folder has the name of what the server has imported
        patch.setattr(forkserver, "KITS", [*forkserver.KITS, str(person.parts)])
        yield person


@pytest.fixture(scope="module")
def made(outside) -> dict[str, Path]:
    """{file: what its command left}, of every command of the page."""
    with ThreadPoolExecutor(2) as pool:
        jobs = {name: pool.submit(outside.run, name.replace("/", "-"), said) for name, said in COMMANDS.items()}
        return {name: job.result() for name, job in jobs.items()}


@pytest.fixture
def with_parts(outside, main_here, monkeypatch):
    """main.py in this process, with the parts: as the page's exports have it."""
    monkeypatch.setenv("PARTS", str(outside.parts))
    for folder in (REPO / "tests/envs", outside.parts):
        monkeypatch.syspath_prepend(str(folder))
    start = ["--config-dir", "$PARTS/config", *TOY]
    yield lambda *words: main_here(*(word.replace("$PARTS", str(outside.parts)) for word in (*start, *words)))
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]


def score(run_dir: Path) -> tuple[int, int]:
    summary = read_json(run_dir / "summary.json")
    return summary["n_success"], summary["n"]


def arms(folder: Path) -> dict[str, Path]:
    """{arm: run} of a sweep."""
    return {path.name.partition(",")[0].removeprefix("arm="): path for path in folder.iterdir() if path.is_dir()}


def test_the_page_has_a_file_and_a_command_for_each_kind_of_part():
    kinds = {name.split("/")[1] for name in FILES if name.startswith("config/")}
    assert kinds == set("memory env workflow retrieval judge select agent llm embedder arm experiment".split())
    assert sum(name.startswith("config/memory/") for name in FILES) == 3  # a memory, a policy of lessons, a baseline
    without = {name for name in FILES if name.startswith("config/")} - set(COMMANDS)
    assert without == {"config/arm/words.yaml"}  # its command is its experiment's
    assert not (REPO / "mine").exists()
    for name in FILES:
        assert not (REPO / name).exists() or name.startswith("prompts/")  # which takes that one's place


def test_a_memory_plays_the_known_answer(made):
    found = {arm: score(path) for arm, path in arms(made["config/memory/shared_words.yaml"]).items()}
    assert found == {arm: ANSWERS[arm] for arm in "reasoningbank failure_only matts_sequential two_passes".split()}
    assert found["reasoningbank"] == (36, 40)
    assert len(FILES["mine/shared_words.py"].splitlines()) <= 25


def test_a_memory_without_a_file_survives_a_stop(outside, made):
    whole = arms(made["config/memory/shared_words.yaml"])["reasoningbank"]
    command = "python main.py $TOY memory=shared_words"
    part = outside.run("stopped", f"{command} budget.run.calls=50")
    assert 0 < len(read_rows(part)) < 40
    again = outside.run("stopped", command)
    assert (again / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
    assert not (again / "bank.sqlite").exists()


ON_DISK = """
import pickle
from dataclasses import dataclass
from pathlib import Path
from mine.shared_words import SharedWords

@dataclass(kw_only=True)
class OnDisk(SharedWords):
    path: str
    read_only: bool = False

    def __post_init__(self):
        if Path(self.path).exists():
            self.kept = pickle.loads(Path(self.path).read_bytes())

    def add(self, record, *, shown=()):
        assert not self.read_only
        new = super().add(record)
        Path(self.path).write_bytes(pickle.dumps(self.kept))
        return new

    def ids(self):
        return set(self.kept)
"""


def test_a_memory_with_a_file_can_be_frozen_and_its_file_is_left_alone(outside):
    outside.write("mine/on_disk.py", ON_DISK)
    outside.write("config/memory/on_disk.yaml", "_target_: mine.on_disk.OnDisk\npath: null\n")
    learned = outside.run("on_disk", "python main.py $TOY memory=on_disk")
    bank = learned / "bank.sqlite"
    before = bank.read_bytes()
    frozen = outside.run("frozen", f"python main.py $TOY memory=on_disk setting=frozen memory.path={bank}")
    assert score(learned) == (36, 40)
    assert score(frozen) == (40, 40)  # every family's word is there, from another box
    assert bank.read_bytes() == before
    done = outside.shell(f"python -m scripts.audit {learned} {frozen}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_env_passes_the_contract_and_a_run(made):
    told = (made["mine/test_number.py"] / "stdout").read_text()
    assert re.search(r"\d+ passed", told)
    assert "failed" not in told
    run_dir = made["config/env/number.yaml"]
    assert score(run_dir) == (10, 10)
    assert read_json(run_dir / "manifest.json")["fingerprint"]["dataset"]["dataset"] == "number"


def test_an_env_is_seen_whole_without_a_model(outside):
    command = "python main.py $TOY env=number llm=free workflow=matts_parallel k=3"
    assert f"`{command}`" in (REPO / "CONTRIBUTING.md").read_text()
    run_dir = outside.run("free", command)
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    assert (summary["n"], summary["n_infra_error"], summary["cost_usd"]) == (10, 0, 0.0)
    assert all(len(row["trajectories"]) == 3 and row["lessons"] for row in rows)
    assert all(row["retrieved"] for row in rows[1:])
    assert {step["valid"] for row in rows for attempt in row["trajectories"] for step in attempt["steps"]} == {True}
    assert 0 < sum(attempt["success"] for row in rows for attempt in row["trajectories"]) < 30
    done = outside.shell(f"python -m scripts.report {run_dir} -o {run_dir}/report.html")
    assert done.returncode == 0, done.stderr
    assert "free (no model)" in (run_dir / "report.html").read_text()


def test_a_file_of_questions_needs_a_yaml_alone(outside, made):
    run_dir = made["config/env/trivia.yaml"]
    assert score(run_dir) == (2, 2)
    assert [row["task_id"] for row in read_rows(run_dir)] == ["trivia/product", "trivia/half"]
    digest = hashlib.sha256((outside.parts / "trivia.jsonl").read_bytes()).hexdigest()
    dataset = read_json(run_dir / "manifest.json")["fingerprint"]["dataset"]
    assert (dataset["dataset"], dataset["sha256"]) == ("trivia", digest)


def test_a_workflow_keeps_the_known_answer(made):
    run_dir = arms(made["config/workflow/only_news.yaml"])["reasoningbank"]
    assert score(run_dir) == ANSWERS["reasoningbank"]
    taught = [row["task_id"] for row in read_rows(run_dir) if row["lessons"]]
    assert taught == [f"toy/{family}/1" for family in ("amber", "birch", "cedar", "dune")]


def test_a_retrieval_policy_ranks_as_it_says(made):
    rows = read_rows(made["config/retrieval/newest.yaml"])
    records = [row["records"][0]["id"] for row in rows]
    assert [[hit["id"] for hit in row["retrieved"]] for row in rows] == [[], *([record] for record in records[:-1])]
    assert score(made["config/retrieval/newest.yaml"]) == (0, 40)  # the box before is one of another family


def test_a_consolidation_policy_changes_the_bank_as_it_says(made):
    run_dir = made["config/memory/keep_newest.yaml"]
    path = str(run_dir / "bank.sqlite")
    with closing(MemoryBank(path=path, embedder=HashingEmbedder(), policy=Cosine(), read_only=True)) as bank:
        statuses = [record.status for record in bank.records()]
    assert statuses == ["archived"] * 36 + ["active"] * 4
    assert score(run_dir) == (36, 40)  # the last four always hold one of each family


def test_a_judge_labels_without_a_model(made):
    run_dir = made["config/judge/phrase.yaml"]
    rows = read_rows(run_dir)
    assert all(row["verdict"]["label"] == row["status"] for row in rows)
    assert {row["verdict"]["source"] for row in rows} == {"phrase"}
    assert {row["usage"]["judge"]["calls"] for row in rows} == {0}
    assert score(run_dir) == (36, 40)


def test_a_selector_picks_as_it_says(made):
    rows = read_rows(made["config/select/fewest_steps.yaml"])
    assert {row["chosen"] for row in rows} == {2}  # of equals the last
    assert {row["selection"]["by"] for row in rows} == {"fewest_steps"}
    assert read_json(made["config/select/fewest_steps.yaml"] / "summary.json")["scaling"]["select"] == "fewest_steps"


def test_a_baseline_keeps_what_it_says(made):
    rows = read_rows(made["config/memory/last_words.yaml"])
    for row in rows:
        assert [lesson["content"] for lesson in row["lessons"]] == [row["trajectories"][0]["steps"][-1]["observation"]]
        assert row["usage"]["extractor"]["calls"] == 0
    assert score(made["config/memory/last_words.yaml"]) == (36, 40)


def test_an_agent_reads_its_own_form(made):
    run_dir = made["config/agent/last_line.yaml"]
    assert score(run_dir) == (36, 40)
    row = read_rows(run_dir)[0]
    assert "write one action on a line of its own" in row["trajectories"][0]["opening"][0]["content"]
    assert row["trajectories"][0]["steps"][0]["thought"].startswith("Thought: ")


def test_a_model_provider_is_asked_in_every_role(made):
    run_dir = made["config/llm/program.yaml"]
    assert [row["status"] for row in read_rows(run_dir)] == ["failure"] * 4 + ["success"]
    summary = read_json(run_dir / "summary.json")
    assert (summary["n_lessons"], summary["n_infra_error"], summary["cost_usd"]) == (5, 0, None)
    assert {model["model"] for model in read_json(run_dir / "manifest.json")["models"].values()} == {"program"}


def test_a_program_that_fails_is_no_failure_of_the_agent(outside):
    run_dir = outside.run("broken", "python main.py $TOY llm=program llm.command=[ls,/nowhere] limit=2", status=1)
    assert read_json(run_dir / "summary.json")["n_infra_error"] == 2


def test_an_embedder_is_named_in_its_bank(made):
    run_dir = made["config/embedder/letters.yaml"]
    assert score(run_dir) == (36, 40)
    with pytest.raises(UserError, match="made by the embedder 'letters'"):
        MemoryBank(path=str(run_dir / "bank.sqlite"), embedder=HashingEmbedder(), policy=Cosine(), read_only=True)


def test_a_prompt_is_shown_and_its_hash_recorded(outside, made):
    run_dir = made["prompts/memory_block.jinja"]
    assert score(run_dir) == (36, 40)
    shown = [row["trajectories"][0]["opening"][0]["content"] for row in read_rows(run_dir)]
    assert ["What earlier tasks taught:" in text for text in shown] == [False] + [True] * 39
    own = (outside.parts / "prompts/memory_block.jinja").read_bytes()
    prompts = read_json(run_dir / "manifest.json")["fingerprint"]["prompts"]
    assert prompts == registry.PROJECT.hashes() | {"memory_block": hashlib.sha256(own).hexdigest()}
    done = outside.shell(f"python main.py $TOY run_dir={run_dir}")  # without them it is another run
    assert done.returncode == 1
    assert "prompts.memory_block" in done.stderr


LONGEST = """\
from dataclasses import replace
from analysis.cells import make_cells, rows_of
from analysis.columns import HEADINGS, number, plain
from analysis.text_table import TextTable

LONGEST = ("longest, steps", number("longest", 0))
COLUMNS = [HEADINGS["method"], ("benchmark", plain("env")), HEADINGS["success"], LONGEST]

def longest(frame, *, baseline, partial, every_published, command):
    cells = make_cells(frame, baseline, partial=partial, command=command)
    most = cells.frame.groupby("cell")["steps"].max()  # a column of one's own, from the episodes
    cells = replace(cells, table=cells.table.assign(longest=cells.table["cell"].map(most)))
    rows = [[write(row) for _, write in COLUMNS] for row in rows_of(cells.table)]
    return cells, [TextTable(title="Longest episode", head=[head for head, _ in COLUMNS], rows=rows, notes=cells.notes)]
"""


def test_a_table_of_ones_own_is_printed_and_written(outside):
    outside.write("mine/longest.py", LONGEST)
    command = "reasoningbank tables RUNS --table mine.longest.longest"
    run_dir = outside.run("table", "python main.py $TOY env=number llm=free limit=4")
    most = max(len(row["trajectories"][0]["steps"]) for row in read_rows(run_dir))
    done = outside.shell(command.replace("RUNS", str(run_dir)))
    assert done.returncode == 0, done.stderr
    [row] = [line for line in done.stdout.splitlines() if line.startswith("| reasoningbank ")]
    assert "### Longest episode" in done.stdout
    assert row.startswith("| reasoningbank | number | ") and row.endswith(f"] | {most} |") and most > 1
    done = outside.shell(f"{command.replace('RUNS', str(run_dir))} --format csv")
    [cell] = csv.DictReader(done.stdout.splitlines())
    assert cell["longest"] == str(most), done.stderr


def test_an_arm_stands_in_the_tables(outside, made):
    folder = made["config/experiment/words.yaml"]
    found = {arm: score(path) for arm, path in arms(folder).items()}
    assert found == {"no_memory": (0, 40), "reasoningbank": (36, 40), "words": (36, 40)}
    outputs = {}
    for script in ("tables --table all", "audit", f"report -o {folder}/report.html", "show"):
        name, *more = script.split()
        runs = arms(folder)["words"] if name == "show" else folder
        done = outside.shell(f"python -m scripts.{name} {runs} {' '.join(more)}")
        assert done.returncode == 0, done.stdout + done.stderr
        outputs[name] = done.stdout
    assert "words" in outputs["tables"]
    assert "BROKEN" not in outputs["audit"]
    assert "toy/dune/10" in outputs["show"]
    assert "words" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "shown", "asked"),
    [
        (
            "memory=shared_words judge=phrase llm=program embedder=letters agent=last_line",
            "of its own",
            "agent extractor",
        ),
        ("memory=last_words workflow=only_news retrieval=newest", "agent: first prompt", "agent judge"),
        ("memory=keep_newest workflow=matts_parallel select=fewest_steps", "", "agent judge extractor"),
        ("env=number", "Find hidden number 0", "agent judge extractor"),
    ],
)
def test_a_dry_run_knows_what_parts_from_outside_will_ask(with_parts, words, shown, asked):
    status, out, errors = with_parts(*words.split(), "dry_run=true")
    assert status == 0, errors
    assert shown.lower() in out.lower()
    roles = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│ ")]
    assert [role for role in roles if role not in ("", "retries", "total", "at least")] == asked.split()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("memory=shared_words memory.top_k=many", "SharedWords.top_k='many': give int."),
        ("memory=shared_words +memory.topk=1", "topk"),
        (
            "memory=shared_words memory._target_=mine.nowhere.Nothing",
            "_target_=mine.nowhere.Nothing cannot be imported",
        ),
        ("env=trivia env.count=3", "trivia.jsonl has 2 rows, not the 3"),
        ("env=trivia env._target_=envs.single_turn.ChoiceEnv", "trivia/product has no options"),
        ("prompts=$PARTS/mine", "each NAME one of"),
    ],
)
def test_a_mistake_in_a_part_is_one_sentence(with_parts, words, said):
    status, _, errors = with_parts(*words.split(), "run_dir=mistake")
    assert status == 1
    assert said in errors
    assert "Traceback" not in errors


def test_a_forgotten_path_is_named(outside):
    done = outside.shell(f"PYTHONPATH= python main.py $TOY memory=shared_words run_dir={outside.home}/mistake")
    assert done.returncode == 1
    assert "No module named 'mine'" in done.stderr
    assert "PYTHONPATH" in done.stderr
    assert "Traceback" not in done.stderr


class Bare(ReasoningBank):
    """A workflow without memory by another name than vanilla."""

    has_memory = False

    def retrieve(self, task):
        return []


def test_a_workflow_without_memory_needs_no_bank_whatever_its_name(here):
    _, rate = here(*TOY, f"workflow._target_={__name__}.Bare", "setting=frozen", "limit=4")
    assert rate == 0.0


def test_prompts_of_a_run_end_with_it(here, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "judge.jinja").write_text('{{ trajectory }} Status: "success" or "failure"')
    before = registry.PROJECT.hashes()
    run_dir, _ = here(*TOY, f"prompts={own}", "limit=2")
    assert registry.PROJECT.hashes() == before
    plain, _ = here(*TOY, "limit=2", run_dir=tmp_path / "plain")
    judge, usual = (read_json(path / "summary.json")["tokens"]["judge"] for path in (run_dir, plain))
    assert 0 < judge < usual
