"""env=harbor: tasks in Harbor's layout, read and refused anywhere, and played where docker or podman works."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from conftest import read_rows

from core.errors import UserError
from envs.swe.container import Container
from envs.swe.harbor import HarborEnv
from envs.swe.sandbox import Limits

IMAGE = "localhost/reasoningbank-test:1"
FILES = {
    "instruction.md": "Write the right colour into colour.txt.\n",
    "task.toml": '[environment]\nallow_internet = false\ndocker_image = "IMAGE"\n',
    "tests/test.sh": 'grep -qx teal colour.txt && [ "$(cat AGENTS.md)" = "Be brief." ]\n'
    "case $? in 0) echo 1;; *) echo 0;; esac > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/bash\necho teal > colour.txt\n",
    "lesson.md": "# The colour\n\nHere the colour is teal.\n",
}


@pytest.fixture
def task(tmp_path):
    """A folder with one task."""
    for name, text in FILES.items():
        (tmp_path / "tasks" / "one" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tasks" / "one" / name).write_text(text.replace("IMAGE", IMAGE))
    return tmp_path / "tasks" / "one"


def env_of(task):
    return HarborEnv(instructions="", max_steps=3, path=str(task.parent), sandbox="docker")


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A program that says yes to `docker version`: more is not needed to read tasks."""
    (tmp_path / "docker").write_text("#!/bin/sh\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")


def test_a_task_is_read(task, docker):
    [read] = env_of(task).tasks()
    assert (read.id, read.query, read.type) == ("swe/one", "Write the right colour into colour.txt.", "one")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("tests/test.sh", None, "tests/test.sh is missing"),
        ("task.toml", "[environment", r"task.toml: "),
        ("environment/docker-compose.yaml", "services: {}", "several containers"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(task, docker, name, text, why):
    (task / name).unlink(missing_ok=True)
    if text is not None:
        (task / name).parent.mkdir(exist_ok=True)
        (task / name).write_text(text)
    with pytest.raises(UserError, match=why):
        env_of(task).tasks()


def test_without_docker_it_is_refused(task, monkeypatch, here):
    with pytest.raises(UserError, match="in Harbor's layout: env=harbor plays it, in docker or podman"):
        here("env=folders", f"env.path={task.parent}", "agent=gold", "workflow=vanilla", "llm=scripted")
    monkeypatch.setenv("PATH", str(task))
    with pytest.raises(UserError, match=r"env.sandbox=docker: docker is not installed\.$"):
        env_of(task).tasks()


def works(program: str) -> bool:
    try:
        Container(program=program, limits=Limits()).check()
    except UserError:
        return False
    return True


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """docker or podman with IMAGE, made of a few programs of this machine, as no registry is asked."""
    if (found := next(filter(works, ("docker", "podman")), None)) is None:
        pytest.skip("neither docker nor podman works here")
    root = tmp_path_factory.mktemp("image")
    (root / "app").mkdir()
    (root / "app" / "AGENTS.md").write_text("Be brief.\n")
    needed = [shutil.which(name) for name in "bash sh cat cp rm mkdir df grep sleep env find true".split()]
    linked = subprocess.run(["ldd", *needed], capture_output=True, text=True, check=False).stdout
    for path in {*needed, *re.findall(r"/\S+\.so\S*", linked)}:
        there = root / ("bin" if path in needed else path.strip("/").rpartition("/")[0])
        there.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    packed = subprocess.run(["tar", "-C", root, "-c", "."], capture_output=True, check=True).stdout
    words = [found, "import", "--change", "WORKDIR /app", "-", IMAGE]
    subprocess.run(words, input=packed, capture_output=True, check=True)
    words = [found, "run", "--rm", "--network", "none", IMAGE, "true"]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    if tried.returncode:  # as within some virtual machines
        pytest.skip(f"{found} may not start a container here: {tried.stderr.strip()[-200:]}")
    return found


@pytest.mark.slow
def test_tasks_are_played_in_a_container(task, engine, here, tmp_path):
    """The solution and a right command solve it, a wrong one does not; a file of lessons is gone before the tests."""
    words = ("env=harbor", f"env.path={task.parent}", f"env.sandbox={engine}", "llm=scripted", "embedder=hashing")
    assert here(*words, "agent=gold", "workflow=vanilla", run_dir=tmp_path / "gold")[1] == 1.0
    alone = (*words, "agent=command", "agent.needs_model=false", "agent.deliver=file")
    reads = "agent.command='grep -q teal AGENTS.md && echo teal > colour.txt; true'"
    for arm, rate in (("told_lesson", 1.0), ("no_memory", 0.0)):
        run, found = here(*alone, reads, f"arm={arm}", run_dir=tmp_path / arm)
        assert (arm, found) == (arm, rate) and read_rows(run)[0]["trajectories"][0]["info"]["patch"] == "rewarded"
