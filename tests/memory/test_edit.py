"""Lessons as Markdown: read back to the letter, edited in the user's editor, imported as a person writes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_memory import open_bank, record  # noqa: F401 - open_bank is a fixture

from core.errors import UserError
from core.memory import formats
from core.memory.__main__ import main
from core.memory.edit import edit
from core.memory.formats.markdown import document, parse, record_of
from core.types import Lesson

NASTY = ["plain words", "Vec<String> costs $5 `x`", "`code`", "*.py files", "C#", "\\frac{1}{2} \\$HOME \\_x"]
NASTY += ["<!-- hidden -->", "### no heading", "[a](b) | c", "``a`` ` b"]
BODIES = [
    *NASTY,
    "## a heading\n\n### another\n- id: 7\n> quoted",
    "```bash\necho ## $HOME\n```",
    "````text\n```\n````",
    "|a|b|\n|---|---|",
    "*whole line*\n\n    indented\n\ttab",
]
lessons = st.builds(
    Lesson, title=st.sampled_from(NASTY), description=st.sampled_from(["", *NASTY]), content=st.sampled_from(BODIES)
)


@settings(max_examples=40)
@given(st.lists(lessons, min_size=1, max_size=3), st.sampled_from(BODIES), st.sampled_from(["success", "failure"]))
def test_what_is_written_is_read_back_to_the_letter(items, query, outcome):
    made = record(query, id="first", items=tuple(items), outcome=outcome, tags=("a", "b-c"), domain="ops", task="")
    second = record("another one", id="second")
    [section, other] = parse(document([made, second], "note"), "file")
    read = record_of(section, "default")
    assert (read.original_query, read.items, read.outcome) == (query, tuple(items), outcome)
    assert (read.id, read.tags, read.domain, read.label_source) == (made.id, ("a", "b-c"), "ops", "llm")
    assert other.lessons == second.items


def filled(open_bank, **how):  # noqa: F811
    bank = open_bank(**how)
    items = [(Lesson(title=f"T{n}", description="", content="Wait."),) for n in range(3)]
    bank.add_many([record(f"deploy site {n}", task=f"t{n}", id=f"r{n}", items=items[n]) for n in range(3)])
    return bank


def edited(bank, monkeypatch, editor):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(editor))
    lines = edit(bank)
    said = []
    while True:
        try:
            said.append(next(lines))
        except StopIteration as end:
            return end.value, said


def script(tmp_path, text):
    file = tmp_path / "editor.sh"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def test_changed_removed_and_added_sections_are_one_change_that_can_be_undone(tmp_path, open_bank, monkeypatch):  # noqa: F811
    bank = filled(open_bank)
    with bank.change("mark") as change:
        change.update("r0", n_helpful=2)
    before, was = bank.history.seq(), bank.records()
    new = "## Roll back\\n- tags: ci\\n\\n### Keep the old build\\n*When disks allow.*\\nUse `-v`, not \\\\$V.\\n"
    words = "sed -i -e 's/^> Wait/> Go on/;s/outcome: success/outcome: failure/' "
    words += f"-e '/^## deploy site 1/,/^> Go on/d' $1; printf '{new}' >> $1"
    status, said = edited(bank, monkeypatch, script(tmp_path, words))
    assert (status, said[0]) == (0, "2 changed, 1 removed, 1 added") and f"--to {before}" in said[1]
    assert bank.get("r1") is None and bank.history.seq() == before + 1
    first = bank.get("r0")
    assert (first.items[0].content, first.outcome, first.score) == ("Go on.", "failure", 0.0)
    assert first.label_source == "hand" and first.n_helpful == 2 and first.task_id == "t0"
    [made] = [one for one in bank.records() if one.original_query == "Roll back"]
    kept = Lesson(title="Keep the old build", description="When disks allow.", content="Use `-v`, not \\$V.")
    assert made.items == (kept,)
    assert made.tags == ("ci",) and made.created_at
    assert bank.nearest("Roll back", 1)[0].record.id == made.id
    bank.history.rollback(before)
    assert bank.records() == was


def test_another_task_is_found_by_its_new_words(tmp_path, open_bank, monkeypatch):  # noqa: F811
    bank = filled(open_bank)
    edited(bank, monkeypatch, "sed -i 's/^## deploy site 1/## boil the water/'")
    assert bank.nearest("boil the water", 1)[0].record.id == "r1" and bank.get("r1").original_query == "boil the water"


def test_closed_as_it_was_nothing_is_changed(open_bank, monkeypatch):  # noqa: F811
    bank = filled(open_bank)
    hidden = Lesson(title="two\nlines", description="d", content="trailing  \n\u202eback\x1b[2J")
    bank.add(record("odd", id="odd", items=(hidden, Lesson(title="", description="", content=""))))
    bank.add(record("no lesson", id="none", items=()))
    before = bank.history.seq()
    assert edited(bank, monkeypatch, "true") == (0, ["nothing was changed"])
    assert bank.history.seq() == before
    edited(bank, monkeypatch, "sed -i 's/^- outcome: success/- outcome: failure/'")
    assert bank.get("odd").items[0] == hidden and bank.get("odd").outcome == "failure"


def test_what_others_changed_meanwhile_stays(open_bank, monkeypatch):  # noqa: F811
    bank = filled(open_bank)

    def meanwhile(file):
        with bank.change("others") as change:
            change.update("r0", items=(Lesson(title="T0", description="", content="Theirs."),))
            change.update("r1", domain="ops")
            change.update("r2", tags=("new",))
        text = file.read_text().replace("> Wait.", "> Mine.")
        file.write_text(text[: text.index("## deploy site 2")])

    monkeypatch.setattr("core.memory.edit._open_editor", meanwhile)
    status, said = edited(bank, monkeypatch, "unused")
    assert status == 1 and said[0] == "1 changed"
    assert bank.get("r0").items[0].content == "Theirs." and bank.get("r2").tags == ("new",)
    assert (bank.get("r1").items[0].content, bank.get("r1").domain) == ("Mine.", "ops")
    assert [line[-2:] for line in said if "as others have changed it meanwhile" in line] == ["r0", "r2"]
    assert "> Mine." in Path(said[-1].removeprefix("your text is kept in ")).read_text()


def test_a_text_that_cannot_be_read_is_opened_again_and_given_up_it_is_kept(tmp_path, open_bank, monkeypatch, capsys):  # noqa: F811
    bank = filled(open_bank)
    breaks = script(tmp_path, "grep -q 'cannot be read' $1 || printf '### late\\n\\n```\\n' >> $1")
    with pytest.raises(UserError, match=r"LESSONS.md line \d+: the fence is not closed.*kept in (\S+/LESSONS.md)"):
        edited(bank, monkeypatch, breaks)
    assert len(bank) == 3 and "error: LESSONS.md line" in capsys.readouterr().err
    mends = "if grep -q 'cannot be read' $1; then sed -i '/^```$/d' $1; else printf '### late\\n\\n```\\n' >> $1; fi"
    assert edited(bank, monkeypatch, script(tmp_path, mends))[1][0] == "1 changed"
    assert [item.title for item in bank.get("r2").items] == ["T2", "late"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sed -i 's/^- by: llm/- by: me/'", "`by` cannot be changed"),
        ("sed -i 's/^- id: r1/- id: r0/'", "is there twice"),
        ("sed -i '/^### T1/,/^> Wait/d'", "no lesson left"),
        ("sed -i 's/: success/: maybe/'", "outcome maybe: give success or failure"),
        ("sed -i 's/^- by:/- mood:/'", "mood is none of id, outcome"),
        ("sed -i '/^## /,$d'", "holds no lesson any more"),
        ("false", "ended with status 1"),
        ("no-such-editor", r"cannot be started .* set \$EDITOR"),
    ],
)
def test_what_cannot_be_done_is_said_and_the_text_is_kept(open_bank, monkeypatch, words, message, capsys):  # noqa: F811
    bank = filled(open_bank)
    with pytest.raises(UserError, match=f"{message}.*your text is kept in "):
        edited(bank, monkeypatch, words)
    assert bank.history.seq() == 1


def test_a_credential_in_an_edit_is_taken_out_and_said(tmp_path, open_bank, monkeypatch):  # noqa: F811
    bank = filled(open_bank)
    secret = "sk-proj-AbCdEf0123456789AbCdEf0123456789AbCdEf01"
    status, said = edited(bank, monkeypatch, f"sed -i '0,/^> Wait/s//> Send {secret}/'")
    assert (status, said[0]) == (0, "1 changed, 1 without a credential that it held")
    assert bank.get("r0").items[0].content == "Send [removed secret]."


def test_markdown_goes_from_bank_to_bank_and_from_hand_into_one(tmp_path, open_bank, caplog):  # noqa: F811
    bank = filled(open_bank)
    formats.export(bank, tmp_path / "all.md", "markdown")
    other = open_bank("other.sqlite")
    assert formats.load(other, tmp_path / "all.md", "markdown") == (3, 0)
    same = [replace(one, query_embedding=(), source_trajectory_id="", provenance={}) for one in bank.records()]
    assert [replace(one, query_embedding=(), provenance={}) for one in other.records()] == same
    text = (tmp_path / "all.md").read_text()
    (tmp_path / "all.md").write_text(text.replace("> Wait.", "> Go.", 1))
    assert formats.load(other, tmp_path / "all.md", "markdown") == (0, 3)
    assert "1 record of" in caplog.text and "`bank edit` changes them" in caplog.text
    hand = "Notes of ours.\n\n## Deploy\n### Cache\nClear it.\n\n```sh\n## no task\n```\n"
    hand += "### Wait\n*Why not.*\nThen look.\n"
    (tmp_path / "hand.md").write_text(hand.replace("\n", "\r\n"))
    assert main(["import", str(other.path), str(tmp_path / "hand.md"), "--namespace", "ann"]) == 0
    [made] = other.records("ann")
    assert [item.content for item in made.items] == ["Clear it.\n\n```sh\n## no task\n```", "Then look."]
    assert (made.original_query, made.outcome, made.label_source) == ("Deploy", "success", "hand")
    for broken, why in (("### T\nx\n", "a lesson stands below"), ("## Task\n\ntext\n", "the task has no lesson")):
        (tmp_path / "hand.md").write_text(broken)
        with pytest.raises(UserError, match=f"line 1: {why}"):
            formats.load(other, tmp_path / "hand.md", "markdown")


def test_the_command_opens_the_editor(tmp_path, open_bank, monkeypatch, capsys):  # noqa: F811
    bank = filled(open_bank)
    bank.close()
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i 's/^> Wait/> Go on/'")
    assert main(["edit", str(bank.path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "3 changed"
