"""The report's funnels: what they say of real runs, and the episodes that a click on a step leads to."""

from __future__ import annotations

import re

import pytest
from report_kit import rewritten, text

from analysis.cells import make_cells
from analysis.funnel import funnel_of
from analysis.report import words
from analysis.tables import load_episodes
from scripts import report

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, toy_runs):
    """The toy runs, of one of which it is noted that two lessons were not followed and one was not shown."""
    folder = tmp_path_factory.mktemp("funnel")

    def change(row):
        for hit in row["retrieved"]:
            hit["followed"] = row["index"] not in (10, 11)
            if row["index"] == 12:
                hit["n_shown"] = 0
        if row["index"] == 13:
            row["status"] = "infra_error"

    changed = rewritten(toy_runs / "bank-1", folder / "changed", change)
    return [str(path) for path in (toy_runs / "none-0", toy_runs / "none-1", toy_runs / "bank-0", changed)]


@pytest.fixture(scope="module")
def url(tmp_path_factory, runs):
    page = tmp_path_factory.mktemp("page") / "page.html"
    assert report.main([*runs, "-o", str(page)]) == 0
    return page.as_uri()


def steps(tab) -> dict[str, str]:
    """{step: what stands beside it} of the only funnel."""
    rows = tab.run("[...document.querySelectorAll('.step-row')].map((row) => row.innerText)")
    return {re.split(r"\s*\n\s*", row)[0]: re.split(r"\s*\n\s*", row, maxsplit=1)[1] for row in rows}


def listed(tab, url, step):
    """Choose a step in the list of episodes."""
    tab.open(f"{url}#episodes")
    tab.run(f"document.getElementById('show').value = 'step_{step}'")
    tab.run("document.getElementById('show').dispatchEvent(new Event('change'))")


def test_each_step_can_be_listed_and_has_the_episodes_that_it_counts(tab, url, runs):
    rows = funnel_of(make_cells(load_episodes(runs), "no_memory"))
    counts = {row["step"]: row["n"] for row in rows}
    assert counts["not_followed"] == 2 and counts["all"] == 79
    tab.open(url)
    assert text(tab, "#lessons-shown h3") == "reasoningbank"
    found = steps(tab)
    assert found["not followed"].startswith("2 ") and found["all tasks"].startswith("79 ")
    tab.open(f"{url}#episodes")
    options = tab.run("[...document.getElementById('show').options].map((option) => [option.value, option.text])")
    offered = {value: int(re.search(r"\((\d+)\)$", said)[1]) for value, said in options}
    steps_offered = {name: n for name, n in offered.items() if name.startswith("step_")}
    assert len(counts) == len(found)
    assert steps_offered == {f"step_{step}": n for step, n in counts.items() if step != "all"}
    assert "step_irrelevant" in offered and "step_kind_unknown" not in offered  # only steps that are there
    for step in ("followed", "none"):
        listed(tab, url, step)
        assert int(text(tab, "#counted").split()[0]) == counts[step]


@pytest.mark.parametrize(("step", "badge"), [("not_followed", "not followed"), ("followed", "followed")])
def test_an_episode_says_whether_its_lesson_was_followed(tab, url, step, badge):
    listed(tab, url, step)
    tab.run("document.querySelector('#rows .row').click()")
    tab.run("new Promise((done) => setTimeout(done, 300))")
    assert badge in tab.run("[...document.querySelectorAll('#detail .card .badge')].map((it) => it.innerText)")


def test_on_a_phone_nothing_is_wider_than_the_screen(tab, url):
    for dark in (False, True):
        tab.screen(390, 800, dark=dark)
        tab.open(url)
        assert tab.run("document.documentElement.scrollWidth") <= 390


def test_runs_without_lessons_have_no_funnel(toy_runs, tmp_path):
    page = tmp_path / "page.html"
    assert report.main([str(toy_runs / "none-0"), str(toy_runs / "none-1"), "-o", str(page)]) == 0
    assert "From lesson to result" not in page.read_text()


def test_what_is_said_of_lessons_claims_no_more_than_the_test():
    row = {"step": "relevant", "difference": 0.25, "difference_low": 0.1, "difference_high": 0.4, "p": 0.01}
    more = {"partial": False, "base_partial": False}
    found = [row | more | {"p_holm": p} for p in (0.01, 0.2)] + [row | more | {"p_holm": None, "p": None}]
    found += [row | {"partial": True, "base_partial": False, "p_holm": 0.01}, {"step": "followed", "difference": 1.0}]
    said = [line.rpartition(": ")[2] for line in words.lessons(found, "no_memory")]
    assert said == ["better.", "no difference shown.", "not tested.", "not finished."]
