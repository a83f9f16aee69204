"""The report's tables, lists and bank in a headless Chromium: what a click and a key lead to, on every screen."""

from __future__ import annotations

import io
import re
from urllib.parse import quote

import numpy as np
import pytest
from conftest import read_rows
from report_kit import break_off, choose, rewritten, text

from scripts import report

matplotlib_image = pytest.importorskip("matplotlib.image")
pytest.importorskip("pandas")

VISIBLE = (  # of a list: its selected rows, and whether one lies wholly in sight
    "(() => { const box = document.getElementById('%s').getBoundingClientRect();"
    " return [...document.querySelectorAll('#%s .row.selected')].map((row) => { const it = row.getBoundingClientRect();"
    " return [row.querySelector('.what').innerText, it.top >= box.top - 1 && it.bottom <= box.bottom + 1]; }) })()"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory, toy_runs):
    """A page of the toy runs, one of them with two tasks that broke."""
    folder = tmp_path_factory.mktemp("page")

    def change(row):
        if row["index"] in (3, 4):
            break_off(row)

    broken = rewritten(toy_runs / "bank-1", folder / "broken", change)
    runs = [str(toy_runs / name) for name in ("none-0", "none-1", "bank-0", "par-0")]
    assert report.main([*runs, str(broken), "-o", str(folder / "page.html")]) == 0
    return (folder / "page.html").as_uri()


def selected(tab, box: str = "rows") -> tuple[str, bool]:
    """The words of the one row that is selected, and whether it is in sight."""
    rows = tab.run(VISIBLE % (box, box))
    assert len(rows) == 1
    return tuple(rows[0])


def counted(tab) -> int:
    return int(text(tab, "#counted").split()[0])


def head_of(tab, column: str) -> int:
    heads = tab.run("[...document.querySelectorAll('#table thead th')].map((head) => head.innerText.trim())")
    return [re.sub(r" [▲▼]$", "", head) for head in heads].index(column)


def test_an_arm_is_one_list_of_all_its_seeds(tab, url):
    tab.open(url + "#reasoningbank-all/?show=infra_error")
    assert counted(tab) == 2
    tab.press("j")
    tab.wait("document.querySelector('article .step, article .note')")
    assert text(tab, "article .runname") == "reasoningbank · seed 1"
    tab.open(url + "#no_memory-all~reasoningbank-all/?show=gained")
    gained = counted(tab)
    tab.run("document.getElementById('row0').click()")
    tab.wait("document.querySelectorAll('article').length === 2")
    names = tab.run("[...document.querySelectorAll('article .runname')].map((name) => name.innerText)")
    assert names == ["no_memory · seed 0", "reasoningbank · seed 0"]
    assert text(tab, "#counted").startswith(f"{gained} of 80 episodes, {gained} gained")
    choose(tab, "text", "box 7 of the birch", "input")
    assert counted(tab) == 2  # one of each seed
    other = "[...document.querySelectorAll('#other option')].filter((option) => option.value && !option.disabled)"
    assert tab.run(f"{other}.every((option) => option.value.endsWith('-all'))")
    choose(tab, "run", "reasoningbank-seed-0")
    tab.wait("document.getElementById('other').value === ''")
    assert counted(tab) == 1


def test_rows_are_sorted_by_their_numbers_and_back(tab, url):
    tab.open(url)
    arms = "[...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[0].innerText)"
    at_first = tab.run(arms)
    button = f"document.querySelectorAll('#table thead th')[{head_of(tab, 'success % [95 %]')}]"
    order = []
    for _ in range(3):
        tab.run(f"{button}.querySelector('button').click()")
        order.append((tab.run(f"{button}.getAttribute('aria-sort')"), tab.run(arms)))
    assert [way for way, _ in order] == ["descending", "ascending", "none"]
    assert order[0][1][-1] == "no_memory" and order[1][1][0] == "no_memory" and order[2][1] == at_first
    pairs = f"document.querySelectorAll('#table thead th')[{head_of(tab, 'pairs')}].querySelector('button').click()"
    tab.run(pairs), tab.run(pairs)
    assert tab.run(arms)[-1] == "no_memory"  # "-" is last whichever way


def test_keys_land_in_sight_after_a_filter_and_a_sort(tab, url):
    tab.open(url + "#matts_parallel-seed-0/")
    for _ in range(30):
        tab.press("j")
    expected = "Open the birch box: box 8 of the birch family."
    tab.wait(f"document.querySelector('article h2')?.innerText === {expected!r}")
    assert selected(tab) == (expected, True)
    choose(tab, "type", "birch")
    assert selected(tab) == (expected, True) and counted(tab) == 10
    tab.press("j")
    tab.wait("document.querySelector('article .id')?.innerText === 'toy/birch/9'")
    assert selected(tab) == ("Open the birch box: box 9 of the birch family.", True)
    choose(tab, "type", "")
    assert selected(tab) == ("Open the birch box: box 9 of the birch family.", True)  # far down the list again
    choose(tab, "order", "task")
    assert selected(tab) == ("Open the birch box: box 9 of the birch family.", True)
    tab.press("k")
    tab.wait("document.querySelector('article .id')?.innerText === 'toy/birch/8'")
    tab.press("End")
    tab.wait("document.querySelector('article .id')?.innerText === 'toy/dune/10'")
    assert selected(tab)[1]
    tab.press("Escape")
    tab.wait("location.hash === '#episodes'")
    tab.press("k")  # goes on from the row that was left
    tab.wait("document.querySelector('article .id')?.innerText === 'toy/dune/9'")
    assert selected(tab)[1]
    choose(tab, "show", "failure")
    shown = tab.run("document.querySelectorAll('#rows .row').length")
    assert tab.run("document.querySelectorAll('#rows .row.selected').length") == 0 and shown
    tab.press("j")
    tab.wait("document.querySelector('#rows .row.selected').id === 'row0'")


def test_a_key_right_after_the_address_changed_is_not_lost(tab, url):
    tab.open(url + "#matts_parallel-seed-0/")
    press = "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'j', bubbles: true }))"
    tab.run(  # the second key falls between the new address and what the browser says of it, the third behind both
        "(() => { const later = window.setTimeout; window.setTimeout = (work, ms) => { window.setTimeout = later;"
        f" return later(() => {{ work(); {press}; later(() => {press}, 20); }}, ms); }}; {press}; }})()"
    )
    tab.wait("document.querySelector('article .id')?.innerText === 'toy/cedar/1'")
    assert tab.run("document.querySelector('#rows .row.selected').id") == "row2"
    tab.run("history.back()")
    tab.wait("document.querySelector('article .id')?.innerText === 'toy/amber/1'")
    assert tab.run("document.querySelector('#rows .row.selected').id") == "row0"


def test_the_address_keeps_the_filters(tab, url):
    tab.open(url + "#reasoningbank-seed-0/" + quote("toy/dune/5", safe=""))
    tab.wait("document.querySelector('article .step')")
    choose(tab, "type", "dune")
    choose(tab, "order", "task")
    choose(tab, "text", "box", "input")
    kept = tab.run("location.hash")
    tab.open(url + kept)
    assert counted(tab) == 10
    assert selected(tab) == ("Open the dune box: box 5 of the dune family.", True)
    assert tab.run("[document.getElementById('order').value, document.getElementById('text').value]") == ["task", "box"]


def test_the_bank_tells_of_each_lesson_and_leads_to_its_episodes(tab, url, toy_runs):
    rows = read_rows(toy_runs / "bank-0")
    tab.open(url + "#bank")
    choose(tab, "bank-run", "reasoningbank-seed-0")
    tab.wait("document.querySelector('#lessons .row')")
    assert text(tab, "#bank-counted").startswith(f"{sum(len(row['lessons']) for row in rows)} of ")
    tab.run("document.querySelector('[data-sort=shown]').click()")
    shown = tab.run("[...document.querySelectorAll('#lessons .c-shown')].map((cell) => Number(cell.innerText))")
    hits = [hit["id"] for row in rows for hit in row["retrieved"]]
    assert shown == sorted(shown, reverse=True) and shown[0] == max(map(hits.count, hits))
    tab.press("j")
    tab.wait("document.querySelector('#lesson article')")
    assert selected(tab, "lessons")[1]
    assert "This is no experiment" in text(tab, "#lesson")
    assert tab.run("document.querySelectorAll('#lesson .seen li').length") == shown[0]
    kept = tab.run("location.hash")
    tab.run("document.querySelector('#lesson .meta a').click()")
    tab.wait("document.querySelector('#detail article .step')")
    assert text(tab, "#detail article .id") in {row["task_id"] for row in rows if row["records"]}
    tab.open(url + kept)
    tab.wait("document.querySelector('#lesson .seen a')")
    tab.run("document.querySelector('#lesson .seen a').click()")
    tab.wait("document.querySelector('#detail .card a')")
    links = "[...document.querySelectorAll('#detail .card a')]"
    tab.run(f"{links}.find((link) => link.innerText === 'in the bank').click()")
    tab.wait("document.querySelector('#lesson article')")
    assert tab.run("location.hash").partition("?")[0] == kept.partition("?")[0]


def test_lessons_are_searched_and_filtered(tab, url):
    tab.open(url + "#bank:reasoningbank-seed-0/")
    tab.wait("document.querySelector('#lessons .row')")
    choose(tab, "bank-text", "cedar", "input")
    some = int(text(tab, "#bank-counted").split()[0])
    every = int(text(tab, "#bank-counted").split()[2])
    assert 0 < some < every
    choose(tab, "bank-show", "used")
    assert tab.run("[...document.querySelectorAll('#lessons .c-shown')].every((cell) => Number(cell.innerText) > 0)")
    choose(tab, "bank-text", "no such words", "input")
    assert "No lesson fits" in text(tab, "#lessons")


@pytest.mark.parametrize(("width", "dark"), [(390, True), (800, False), (1400, False)])
def test_every_page_fits_its_screen_and_shows_its_colours(tab, url, width, dark):
    tab.screen(width, 900, dark=dark)
    row = "document.querySelector('main:not([hidden]) .row')"
    for where in ("", "#reasoningbank-all/", "#reasoningbank-seed-0/" + quote("toy/dune/5", safe=""), "#bank"):
        tab.open(url + where)
        assert tab.run("document.documentElement.scrollWidth") <= width, where
        if where.endswith(("/", "bank")):
            tab.wait(row)
            assert tab.run(f"{row}.scrollWidth <= {row}.clientWidth"), where  # no column of it hangs over
    tab.open(url)
    tab.run("document.querySelector('.arms').scrollIntoView()")
    wanted = tab.run("[0, 1, 2].map((n) => getComputedStyle(document.body).getPropertyValue(`--s${n}`))")
    drawn = (matplotlib_image.imread(io.BytesIO(tab.picture()))[..., :3] * 255).round().astype(int)
    paper = [20, 22, 25] if dark else [251, 250, 247]
    assert (drawn == paper).all(axis=2).mean() > 0.5
    for colour in wanted:
        rgb = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
        assert (np.abs(drawn - rgb).max(axis=2) <= 1).sum() > 20, colour  # its mark in the picture of the arms


def test_a_phone_returns_to_the_row_that_was_left(tab, url):
    tab.screen(390, 800)
    tab.open(url + "#matts_parallel-seed-0/" + quote("toy/dune/9", safe=""))
    tab.wait("document.querySelector('article .step')")
    assert not tab.run("document.querySelector('aside').checkVisibility()")
    tab.run("document.querySelector('.back').click()")
    tab.wait("document.querySelector('aside').checkVisibility()")
    assert selected(tab) == ("Open the dune box: box 9 of the dune family.", True)
