"""Lessons as SKILL.md and as a block in AGENTS.md: what is in them, what is left alone, and the way back."""

from __future__ import annotations

from contextlib import closing

import pytest
from memory_kit import item, record

from core.errors import UserError
from core.memory import formats
from core.memory.__main__ import main
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from core.types import Lesson

HOSTILE = "Use <!-- reasoningbank:end --> and\n## a heading\n--force-with-lease"


def opened(path):
    return closing(MemoryBank(path=str(path), embedder=HashingEmbedder(), policy=Cosine()))


@pytest.fixture
def bank(tmp_path):
    with opened(tmp_path / "b.sqlite") as made:
        made.add(record("a", item(1), item(2), query="make the parser robust", domain="Python 3"))
        made.add(record("b", Lesson(title="Clear first", description="d", content=HOSTILE), query="deploy"))
        made.add(record("c", item(3), query="a harmful one", n_harmful=2))
        made.add(record("d", item(4), query="an archived one", status="archived"))
        yield made


def test_a_skill_for_each_domain_that_reads_back(bank, tmp_path):
    assert formats.export(bank, tmp_path / "skills", "skill") == 2
    texts = {file.parent.name: file.read_text() for file in (tmp_path / "skills").rglob("SKILL.md")}
    (python,) = set(texts) - {"lessons-general"}
    assert python.startswith("lessons-python-3-")
    head = f'---\nname: {python}\ndescription: "Lessons from earlier tasks about Python 3, such as: make the parser'
    assert texts[python].startswith(head)
    assert "harmful" not in "".join(texts.values()) and "archived" not in "".join(texts.values())
    with opened(tmp_path / "again.sqlite") as again:
        assert formats.load(again, tmp_path / "skills", "skill") == (2, 0)
        assert again.get("a").items == bank.get("a").items and again.get("a").domain == "Python 3"
        assert again.get("b").items[0].content == HOSTILE and again.get("b").original_query == "deploy"
        assert formats.load(again, tmp_path / "skills", "skill") == (0, 2)


def test_of_a_file_only_the_block_is_written(bank, tmp_path):
    file = tmp_path / "AGENTS.md"
    file.write_text("# House rules\n\nBe brief.\n")
    for _ in range(2):
        assert formats.export(bank, file, "agents") == 2
    text = file.read_text()
    assert text.startswith("# House rules\n\nBe brief.\n\n<!-- reasoningbank:begin -->")
    assert text.count("## Clear first\n") == 1
    file.write_text(text + "\nmore of mine\n")
    formats.export(bank, file, "agents")
    assert file.read_text() == text + "\nmore of mine\n"
    with opened(tmp_path / "again.sqlite") as again:
        assert formats.load(again, file, "agents") == (2, 0)
    file.write_text("<!-- reasoningbank:begin -->\nhalf")
    with pytest.raises(UserError, match="without the other"):
        formats.export(bank, file, "agents")
    assert file.read_text() == "<!-- reasoningbank:begin -->\nhalf"


def test_a_skill_is_no_longer_than_clients_read(tmp_path):
    with opened(tmp_path / "b.sqlite") as made:
        for n in range(60):
            made.add(record(f"task {n}", Lesson(title=f"t{n}", description="", content=f"{n} " + "x" * 900)))
        n = formats.export(made, tmp_path / "skills", "skill")
        text = (tmp_path / "skills" / "lessons-general" / "SKILL.md").read_text()
        about = next(line for line in text.splitlines() if line.startswith("description: "))
        assert "task 0; @200 task task 1; " in about and len(about) < 1_060
        assert about.endswith('. Read them before you begin a task like these."')
        assert 10 < n < 60 and len(text) <= 20_000 and f"({60 - n} more are in the bank.)" in text


def test_a_lesson_that_was_changed_in_the_file_is_said_to_stay_as_the_bank_has_it(bank, tmp_path, capsys):
    file = tmp_path / "AGENTS.md"
    formats.export(bank, file, "agents")
    file.write_text(file.read_text().replace("--force-with-lease", "--force"))
    assert main(["import", str(tmp_path / "b.sqlite"), str(file), "--format", "agents"]) == 0
    assert "1 of them say something else in the bank, which stays" in capsys.readouterr().out
