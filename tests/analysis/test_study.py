"""The study's tables follow from its stored episodes, and a forged episode or figure is found."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from contextlib import redirect_stdout

import pytest

from benchmarks import study


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = study.main([*words])
    return status, capsys.readouterr().out


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The page made again: exit status, what was said, and the unpacked runs."""
    into, said = tmp_path_factory.mktemp("study") / "kept", io.StringIO()
    with redirect_stdout(said):
        status = study.main(["--into", str(into)])
    return status, said.getvalue(), into


def test_every_table_of_the_page_is_made_again_and_every_run_passes_the_audit(whole) -> None:
    status, said, into = whole
    assert status == 0, said
    assert any(into.glob("*/*/episodes.jsonl"))
    assert "all as in docs/study.md" in said
    assert "BROKEN" not in said


def test_stored_runs_name_no_machine(whole) -> None:
    files = [path for path in whole[2].rglob("*") if path.is_file() and path.suffix != ".sqlite"]
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not any(f" {root}" in text or f'"{root}' in text for root in ("/work/", "/home/", "/tmp/")), path


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory):
    """Three of the 24 runs of a part, stored as it is: every command on them unpacks and audits all."""
    folder = tmp_path_factory.mktemp("part")
    with tarfile.open(study.STORE / "quantised.tar.xz") as archive:
        archive.extractall(folder / "whole", filter="data")
    with tarfile.open(folder / "quantised.tar.xz", "w:xz") as archive:
        for arm, seed in (("no_memory", 0), ("told_lesson", 0), ("told_lesson", 1)):
            name = f"arm={arm},env=customs,llm=vllm,seed={seed}"
            archive.add(folder / "whole" / name, arcname=name)
    return folder / "quantised.tar.xz"


@pytest.fixture
def own_page(three_runs, tmp_path, monkeypatch):
    """A page of its own with the stored runs of one part, so that they can be changed."""
    store, page = tmp_path / "study", tmp_path / "study.md"
    store.mkdir()
    shutil.copy(three_runs, store)
    page.write_text(
        "# A study\n\n<!-- tables: quantised/arm=* --table positive_control ; method, n, solved -->\n\nWords: "
        "<!-- percent: quantised/arm=told_lesson,* -->0.0 %.\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(study, "STORE", store)
    monkeypatch.setattr(study, "PAGE", page)
    monkeypatch.setattr(study, "REPO", tmp_path)
    return page


NUMBERS = [  # (a mark and what stands behind it, what is made)
    ("count: quantised/arm=told_lesson,* quantised/arm=no_memory,* -->0", "72"),
    ("count: quantised/arm=told_lesson,* ; status=success -->1,000", "45"),
    ("count: quantised/arm=told_lesson,* -->7, all", "48, all"),
    ("percent: quantised/arm=told_lesson,* ; status=failure -->50.0", "0.0"),
    ("count: quantised/arm=told_lesson,* ; type=none such -->7", "0"),
    ("count: quantised/arm=told_lesson,* ; gold=press blue|press red, status=success -->0", "22"),
    ("look: quantised/arm=told_lesson,* ; check=lessons_with_answers -->7", "0"),
    ("least: quantised/arm=told_lesson,* -->0.00", "5.00"),
]


def test_a_number_in_the_text_is_made_from_the_episodes_that_it_names(own_page, capsys) -> None:
    own_page.write_text("".join(f"There are <!-- {mark} of them.\n" for mark, _ in NUMBERS), encoding="utf-8")
    assert ran(capsys)[0] == 1
    assert ran(capsys, "--write")[0] == 0
    made = [f"There are <!-- {mark.partition('>')[0]}>{made} of them." for mark, made in NUMBERS]
    assert own_page.read_text(encoding="utf-8").splitlines() == made
    assert "0 tables and 8 numbers: all as" in ran(capsys)[1]


def test_of_several_tables_the_columns_tell_which_is_meant(own_page, capsys) -> None:
    text = own_page.read_text(encoding="utf-8")
    own_page.write_text(text.replace(" --table", " --table main --table"), encoding="utf-8")
    assert ran(capsys, "--write")[0] == 0
    assert "| told_lesson | 48 | 45 of 45 |" in own_page.read_text(encoding="utf-8")


def test_tables_are_written_once_and_a_changed_figure_is_found(own_page, capsys) -> None:
    assert ran(capsys, "--write")[0] == 0
    written = own_page.read_text(encoding="utf-8")
    assert "| told_lesson | 48 | 45 of 45 |" in written
    assert written.endswith("|\n\nWords: <!-- percent: quantised/arm=told_lesson,* -->93.8 %.\n")
    status, said = ran(capsys)
    assert status == 0
    assert "1 tables and 1 numbers: all as in docs/study.md" in said
    assert own_page.read_text(encoding="utf-8") == written
    own_page.write_text(written.replace("45 of 45", "48 of 48"), encoding="utf-8")
    status, said = ran(capsys)
    assert status == 1
    assert "-| told_lesson | 48 | 48 of 48 |" in said


def test_a_forged_episode_is_found(own_page, tmp_path, capsys) -> None:
    into = tmp_path / "runs"
    assert ran(capsys, "--into", str(into), "--write")[0] == 0
    folder = next(into.glob("quantised/arm=told_lesson*"))
    rows = [json.loads(line) for line in (folder / "episodes.jsonl").read_text(encoding="utf-8").splitlines()]
    forged = next(row for row in rows if row["status"] == "success")
    forged["status"] = "failure"
    (folder / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with tarfile.open(tmp_path / "study" / "quantised.tar.xz", "w:xz") as file:
        file.add(into / "quantised", arcname=".")
    status, said = ran(capsys, "--into", str(tmp_path / "again"))
    assert status == 1
    assert "BROKEN" in said or "different" in said


def test_what_cannot_be_made_is_one_sentence(own_page, capsys) -> None:
    text = own_page.read_text(encoding="utf-8")
    for wrong, said in (
        (text.replace("quantised/arm=*", "elsewhere/*"), "runs that are not stored: elsewhere/*"),
        (text.replace("method, n", "methods, n"), "columns that no table has together: methods, n"),
        (text.replace("percent", "median").replace(",* -->", ",* ; type=none -->"), "no episode is meant by"),
        (text.replace("percent", "look").replace(",* -->", ",* ; check=x -->"), "counts check=x: known are "),
        (text.replace(",* -->", ",* ; brand=x -->"), "counts by brand: known are label, status, type"),
        (text.replace("-->0.0", "--> 0.0"), "1 marks of numbers, of which some cannot be read"),
        (text.replace("Words: ", "Words:\n"), "1 marks of numbers, of which some cannot be read or begin a line"),
        (text.replace(" -->\n", "-->\n"), "1 marks <!-- tables: ... -->, of which some cannot be read"),
        (text.replace(" --table", " --table main --table").replace("n, solved", "n"), "must give one table"),
    ):
        own_page.write_text(wrong, encoding="utf-8")
        assert study.main([]) == 2
        assert said in capsys.readouterr().err
    (own_page.parent / "mine").mkdir()
    assert study.main(["--into", str(own_page.parent / "mine")]) == 2
    assert "give a new folder" in capsys.readouterr().err
    assert list((own_page.parent / "mine").iterdir()) == []
    assert study.main(["--pack", str(own_page.parent), "--name", "Not A Name"]) == 2
