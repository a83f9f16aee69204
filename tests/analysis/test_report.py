"""The report: what it says of real runs, and that nothing in a run can break out of its page."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import REPO, TOY, read_json, read_rows
from report_kit import EVIL, RUNS, Elements, break_off, poison, rewritten, run_once, unpacked

from analysis.plots import band
from analysis.report import words
from analysis.tables import build_tables, load_episodes
from core.proportions import wilson
from scripts import report

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")


@pytest.fixture
def runs(toy_runs):
    return toy_runs


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of some runs: its text and its elements."""

    def make(*arguments):
        file = tmp_path_factory.mktemp("page") / "page.html"
        assert report.main([*map(str, arguments), "-o", str(file)]) == 0
        text = file.read_text(encoding="utf-8")
        return SimpleNamespace(text=text, elements=Elements(text))

    return make


@pytest.fixture(scope="module")
def whole(page, toy_runs):
    return page(toy_runs)


@pytest.fixture(scope="module")
def pair(page, toy_runs):
    return page(toy_runs / "none-0", toy_runs / "bank-0")


def episodes(elements: Elements, number: int) -> list[dict]:
    """The episodes of a run as the page's script reads them."""
    found, piece = [], 0
    while f"r{number}c{piece}" in elements.scripts:
        found += unpacked(elements.scripts[f"r{number}c{piece}"])
        piece += 1
    return found


def test_the_page_says_what_the_runs_say(runs, whole):
    made = whole
    summary = read_json(runs / "bank-0" / "summary.json")
    assert f"{100 * summary['success_rate']:.1f} %" in made.text
    assert "+90.0 points" in made.text
    assert "p &lt; 0.0001: that often chance alone would show so large a difference over 2 seeds" in made.text
    assert "<b>better</b>" in made.text
    assert made.text.count('<div class="plot"><svg') == 5  # each of the plots has its data here


def test_the_page_needs_nothing_from_elsewhere_and_is_the_same_each_time(runs, page, pair):
    assert all(link.startswith(("#", "data:")) for link in pair.elements.links)
    assert page(runs / "none-0", runs / "bank-0").text == pair.text


def test_every_episode_is_in_the_page_with_the_texts_of_what_it_retrieved(runs, whole):
    index = json.loads(whole.elements.scripts["index"])
    labels = [run["label"] for run in index["runs"]]
    arms = {"no_memory": (0, 1), "reasoningbank": (0, 1), "matts_parallel": (0,)}
    assert sorted(labels) == sorted(f"{arm} · seed {seed}" for arm, seeds in arms.items() for seed in seeds)
    number = labels.index("reasoningbank · seed 0")
    rows, shown = read_rows(runs / "bank-0"), episodes(whole.elements, number)
    assert len(shown) == len(rows) == len(index["runs"][number]["rows"])
    for row, seen, listed in zip(rows, shown, index["runs"][number]["rows"], strict=True):
        assert seen["trajectories"] == row["trajectories"] and seen["lessons"] == row["lessons"]
        assert [found["id"] for found in seen["retrieved"]] == [found["id"] for found in row["retrieved"]]
        assert all(found["items"] and found["task_id"] for found in seen["retrieved"])
        assert index["tasks"][listed[0]][0] == row["task_id"] and listed[1] == row["status"]
    assert sum(len(run["rows"]) for run in index["runs"]) == 40 * len(RUNS)


def test_lessons_of_a_frozen_bank_are_read_from_it(runs, page, here, tmp_path):
    bank = runs / "bank-0" / "bank.sqlite"
    words = ("env=toy", "env.seed=5", "llm=scripted", "embedder=hashing", "limit=8")
    frozen, _ = here(*words, "setting=frozen", f"memory.path={bank}", "arm=reasoningbank", run_dir=tmp_path / "frozen")
    before = sorted(path.name for path in bank.parent.iterdir())
    shown = episodes(page(frozen).elements, 0)
    assert any(row["retrieved"] for row in shown)
    assert all(found["items"] for row in shown for found in row["retrieved"])
    assert sorted(path.name for path in bank.parent.iterdir()) == before


def test_a_partial_run_is_marked_and_not_averaged(runs, page, tmp_path):
    part = rewritten(runs / "bank-0", tmp_path / "part", lambda row: row["index"] < 9)
    made = page(runs / "none-0", part)
    assert "Partial: runs of reasoningbank have not finished and are not counted" in made.text
    assert ">partial</span>" in made.text and "better" not in made.text
    counted = page(runs / "none-0", part, "--partial")
    assert "counted as far as they go" in counted.text and ">partial</span>" in counted.text


def test_broken_episodes_are_named_and_in_no_rate(runs, page, tmp_path):
    def broken(row):
        if row["index"] in (3, 4):
            break_off(row)

    made = page(runs / "none-0", rewritten(runs / "bank-0", tmp_path / "broken", broken))
    assert "reasoningbank: 2 of 40 episodes broke" in made.text and "in 38 pairs" in made.text
    assert "(2 tasks are broken and in no rate)" in made.text


def test_what_the_corrected_p_says_is_what_is_called_better():
    cell = {"label": "mine", "n_paired_seeds": 3, "difference": 0.1, "difference_low": 0.02, "difference_high": 0.18}
    cell |= {"won": 9.0, "lost": 1.0, "n_pairs": 30.0, "p": 0.02, "p_tasks": 0.001, "p_holm": 0.06, "n_compared": 3}
    said = words.difference(cell, "base")
    assert said["verdict"] == "no difference shown"
    often = "that often chance alone would show so large a difference"
    assert said["tests"] == f"p = 0.0200: {often} over 3 seeds; p = 0.0600: the same for the 3 comparisons here (Holm)"
    alone = words.difference(cell | {"p": None, "p_holm": None, "n_paired_seeds": 1}, "base")["tests"]
    assert alone.endswith(f": one seed; p = 0.0010: {often} on these tasks, with these banks")
    assert words.difference(cell | {"p_holm": 0.04}, "base")["verdict"] == "better"
    assert words.difference(cell | {"p_holm": 0.04, "difference": -0.1}, "base")["verdict"] == "worse"
    assert words.difference(cell | {"p_holm": None, "p": None}, "base")["verdict"] == "not tested"


def test_the_page_compares_what_the_tables_compare(runs, page, pair, tmp_path_factory):
    gold = run_once(tmp_path_factory, *TOY, "arm=no_memory", "agent=gold")
    cells, _ = build_tables(load_episodes([str(runs / "none-0"), str(gold), str(runs / "bank-0")]), "all")
    assert set(cells.table["label"]) == {"no_memory", "gold", "reasoningbank"}
    assert "+90.0 points" in pair.text and "36 gained, 0 lost in 40 pairs" in pair.text
    assert "no test allows for how another bank would do: one seed" in pair.text
    assert "<b>not tested</b>" in pair.text and "<b>better</b>" not in pair.text
    by_word = page(runs / "par-0", runs / "bank-0", "--baseline", "k=3")
    assert "Nothing is compared" in by_word.text  # no label here has such a word
    by_arm = page(runs / "none-0", runs / "bank-0", runs / "bank-1", "--baseline", "reasoningbank")
    assert "1 gained" in by_arm.text or "lost in 40 pairs" in by_arm.text
    assert "over 2 seeds" not in by_arm.text  # the other arm has one of them


def test_the_page_tells_no_path_of_the_program(pair):
    assert "python main.py " in pair.text and str(REPO) not in pair.text


def test_no_text_of_a_run_breaks_out_of_the_page(runs, page, pair, tmp_path):
    evil = rewritten(runs / "bank-0", tmp_path / "evil</script><b>", poison)
    made = page(runs / "none-0", evil, "--title", EVIL[0])
    for tag in ("img", "style", "link", "meta", "iframe"):
        assert made.elements.counts.get(tag) == pair.elements.counts.get(tag)
    listed = json.loads(made.elements.scripts["index"])["runs"]
    pieces = sum(len(run["starts"]) + bool(run["lessons"]) for run in listed)
    assert made.elements.counts["script"] == pieces + 2
    shown = episodes(made.elements, 1)
    assert [row["query"] for row in shown] == [row["query"] for row in read_rows(evil)]
    assert len(shown[0]["trajectories"][0]["steps"][0]["observation"]) > 1_000_000


def test_what_cannot_be_shown_is_an_error_and_not_a_traceback(runs, tmp_path, capsys):
    empty = rewritten(runs / "none-0", tmp_path / "empty", lambda row: False)
    assert report.main([str(empty), "-o", str(tmp_path / "page.html")]) == 1
    assert report.main([str(tmp_path / "nowhere"), "-o", str(tmp_path / "page.html")]) == 1
    assert report.main([str(runs), "-o", str(runs)]) == 1
    assert capsys.readouterr().err.count("error: ") == 3
    assert report.main([str(runs / "none-0"), str(empty), "-o", str(tmp_path / "page.html")]) == 0


def test_one_episode_is_enough_for_a_page(runs, page, tmp_path):
    one = rewritten(runs / "bank-0", tmp_path / "one", lambda row: row["index"] < 1)
    text = page(one, "--partial").text
    assert "reasoningbank solved 0.0\u00a0% of the toy tasks" in text and "Success by task type" not in text


def test_the_figures_of_a_paper(runs, tmp_path):
    for folder in ("a", "b"):
        some = [str(runs / name) for name in ("none-0", "bank-0", "par-0")]
        assert report.main([*some, "--figures", str(tmp_path / folder)]) == 0
    names = {"learning_curve", "by_type", "cost_success", "memory_growth", "scaling"}
    files = {path.name for path in (tmp_path / "a").iterdir()}
    assert files == {"captions.txt"} | {f"{name}.{kind}" for name in names for kind in ("pdf", "svg")}
    assert (tmp_path / "a" / "scaling.pdf").read_bytes().startswith(b"%PDF")
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_the_band_of_a_curve():
    nothing = float("nan")
    mean, low, high = band(np.array([[nothing], [1.0], [0.0], [nothing], [0.0]]))  # NaN: a broken episode
    assert mean[1:] == pytest.approx([1, 0.5, 0.5, 1 / 3]) and np.isnan(mean[0])
    assert [low[4], high[4]] == pytest.approx(wilson(1, 3))
    mean, low, high = band(np.array([[0.2, 0.4, 0.6]]))  # sd 0.2, t(0.975, 2) = 4.3027
    assert (mean[0], low[0], high[0]) == pytest.approx((0.4, 0.0, 0.4 + 4.3027 * 0.2 / 3**0.5), abs=1e-4)
