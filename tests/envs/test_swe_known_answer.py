"""env=swe, a known answer: an engineer that knows only its prompt mends a family once a lesson names its rule."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from conftest import read_json, read_rows
from swe_kit import bubblewrap

from envs.swe.data import BUNDLED
from envs.swe.env import SUBMIT
from scripts.audit import main as audit

WORDS = ("env=swe", "llm=scripted", "llm.script.path=test_swe_known_answer.play", "embedder=hashing", "max_steps=4")


@cache
def issues() -> dict[str, Path]:
    """{an issue: the folder of its instance}."""
    return {" ".join(file.read_text().split()): file.parent for file in Path(BUNDLED).glob("*/*/issue.md")}


def instance_in(text: str) -> Path:
    """The instance whose issue stands in a prompt."""
    flat = " ".join(text.split())
    [found] = [folder for issue, folder in issues().items() if issue in flat]
    return found


def convention(folder: Path) -> tuple[str, str]:
    """(title, rule) of the family of an instance."""
    title, _, rule = (folder.parent / "lesson.md").read_text().partition("\n")
    return title.strip(), " ".join(rule.split())


def play(messages, role, sample):
    """The engineer mends as the family's rule says where a lesson states it, else as one would who does not know it."""
    if role == "judge":
        return 'Thoughts: a patch is submitted.\nStatus: "success"'
    folder = instance_in("\n".join(message["content"] for message in messages))
    title, rule = convention(folder)
    if role == "extractor":
        return f"```\n# Memory Item 1\n## Title {title}\n## Description The rule of the house.\n## Content {rule}\n```"
    if sum(message["role"] == "assistant" for message in messages):
        return f"```bash\n{SUBMIT}\n```"
    patch = (folder / ("gold" if rule in messages[0]["content"] else "wrong")).with_suffix(".patch").read_text()
    return f"```bash\ngit apply - <<'END_OF_PATCH'\n{patch}\nEND_OF_PATCH\n```"


@bubblewrap
def test_the_first_bug_of_each_family_teaches_the_rule_for_the_others(here, tmp_path):
    """Which without memory are not solved either."""
    kept = ("workflow=reasoningbank", "memory.domain=type", "retrieval.domain=same")
    run_dir, _ = here(*WORDS, *kept, "limit=8", run_dir=tmp_path / "memory")
    rows = read_rows(run_dir)
    first = {row["task_type"]: row["task_id"] for row in reversed(rows)}
    solved = {row["task_id"] for row in rows if row["status"] == "success"}
    assert len(rows) == 8 and len(first) == 4
    assert solved == {row["task_id"] for row in rows} - set(first.values())
    assert read_json(run_dir / "summary.json")["n_success"] == 4
    assert audit([str(run_dir)]) == 0
    names = ",".join(name.removeprefix("swe/") for name in solved)
    _, rate = here(*WORDS, f"env.ids=[{names}]", "workflow=vanilla", run_dir=tmp_path / "none")
    assert rate == 0.0
