"""The report in a headless Chromium, as a reader uses it."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from conftest import read_rows
from report_kit import EVIL, NAME, choose, named, poison, rewritten, text

from scripts import report

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def pages(tmp_path_factory, toy_runs):
    """(a page of real runs, a page of a run whose texts try to break out), as addresses, and where the runs are."""
    folder = tmp_path_factory.mktemp("pages")
    evil = named(rewritten(toy_runs / "bank-0", folder / NAME, poison), NAME)
    assert report.main([str(toy_runs), "-o", str(folder / "runs.html")]) == 0
    assert report.main([str(evil), str(toy_runs / "none-0"), "-o", str(folder / "evil.html"), "--title", EVIL[1]]) == 0
    return (folder / "runs.html").as_uri(), (folder / "evil.html").as_uri(), evil


def test_the_results_open_and_fit_their_window(tab, pages):
    tab.open(pages[0])
    assert "3 arms on toy" in text(tab, "h1")
    assert tab.run("document.querySelectorAll('.plot svg').length") == 5
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    assert not tab.run("document.getElementById('episodes-page').checkVisibility()")


def test_at_1280_pixels_a_table_begins_with_six_columns_and_nothing_is_cut_off(tab, pages):
    heads = "[...document.querySelectorAll('#table thead th')].filter((e) => e.offsetWidth).map((e) => e.innerText)"
    cut = (
        "[...document.querySelectorAll('#results *')].filter((e) => e.checkVisibility() && !e.ownerSVGElement"
        " && e.clientWidth && e.scrollWidth > e.clientWidth + 1).map((e) => e.outerHTML.slice(0, 200))"
    )
    tab.screen(1280, 900)
    tab.open(pages[0])
    first = ["method", "seeds", "success % [95 %]", "difference [95 %]", "p (Holm)", "tokens / task"]
    assert tab.run(heads) == first and tab.run(cut) == []
    tab.run("document.querySelector('.table input').click()")
    assert len(tab.run(heads)) > 10 and tab.run(cut) == []


def test_a_single_turn_reply_stands_once(tab, here, tmp_path):
    words = ("env=warmup", "llm=scripted", "~llm.script.path", "llm.script._target_=report_kit.Reply")
    run, _ = here("arm=no_memory", "embedder=hashing", *words)
    assert report.main([str(run), "-o", str(tmp_path / "once.html")]) == 0
    tab.open((tmp_path / "once.html").as_uri() + "#episodes")
    tab.wait("document.querySelector('article .step')")
    assert text(tab, "article").count("Two and two") == 1


def test_a_link_leads_to_an_episode(tab, pages):
    tab.open(pages[0] + "#reasoningbank-seed-0/" + quote("toy/dune/5", safe=""))
    tab.wait("document.querySelector('article .step')")
    shown = text(tab, "article")
    for what in ("Open the dune box: box 5", "Word of the dune family", "agrees with the truth", "say ", "learned"):
        assert what in shown
    assert text(tab, ".row.selected .what") == "Open the dune box: box 5 of the dune family."
    tab.run("document.querySelector('.card a').click()")
    tab.wait("document.querySelector('article .id').innerText === 'toy/dune/1'")


def test_two_runs_stand_side_by_side_with_their_flips(tab, pages):
    tab.open(pages[0] + "#no_memory-seed-0~reasoningbank-seed-0/" + quote("toy/dune/5", safe=""))
    tab.wait("document.querySelectorAll('article .step').length === 2")
    assert text(tab, "#counted") == "40 of 40 episodes, 36 gained, 0 lost"
    assert text(tab, ".bar .flip") == "▲ gained"
    choose(tab, "show", "lost")
    assert "No episode fits" in text(tab, "#rows")


def test_filters_and_search(tab, pages):
    tab.open(pages[0] + "#reasoningbank-seed-0/x")
    assert "no such episode" in text(tab, "#detail")
    choose(tab, "type", "amber")
    assert text(tab, "#counted").startswith("10 of 40")
    choose(tab, "show", "failure")
    assert text(tab, "#counted").startswith("1 of 40")
    choose(tab, "show", "all")
    choose(tab, "type", "")
    choose(tab, "text", "box 7 of the birch", "input")
    assert text(tab, "#counted").startswith("1 of 40")
    choose(tab, "text", "would have been", "input")
    assert text(tab, "#counted").startswith("0 of 40")
    tab.run("document.getElementById('deep').click()")
    tab.wait("document.getElementById('counted').innerText.startsWith('4 of 40')")


def test_keys_lead_through_the_list_and_the_attempts(tab, pages):
    tab.open(pages[0] + "#matts_parallel-seed-0/" + quote("toy/amber/1", safe=""))
    tab.wait("document.querySelector('article .step')")
    for key, task in (("j", "toy/birch/1"), ("j", "toy/cedar/1"), ("k", "toy/birch/1"), ("ArrowDown", "toy/cedar/1")):
        tab.press(key)
        tab.wait(f"document.querySelector('article .id').innerText === {task!r}")
    tab.press("]")
    chosen = tab.run("[...document.querySelectorAll('.tabs button')].map((tab) => tab.ariaSelected)")
    assert chosen[:2] == ["false", "true"]
    tab.press("/")
    assert tab.run("document.activeElement.id") == "text"
    tab.press("Escape")
    tab.press("Escape")
    tab.wait("location.hash === '#episodes'")


def test_what_a_run_says_is_only_ever_text(tab, pages):
    _, url, evil = pages
    rows = read_rows(evil)
    told = {each.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for each in EVIL}
    tab.requests.clear()
    tab.open(url)
    assert tab.run("document.querySelector('h1').innerText") and NAME in text(tab, "#results")
    tab.open(f"{url}#{quote(key_of(tab), safe='')}/x")
    for place, row in enumerate(rows[: len(EVIL)]):
        tab.run(f"document.getElementById('row{place}').click()")
        tab.wait(f"document.querySelector('article .meta')?.textContent.includes('task {place + 1} of')")
        evil_text = EVIL[row["index"] % len(EVIL)]
        shown = tab.run("document.querySelector('.action').textContent.toWellFormed()")
        assert shown == evil_text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    tab.open(url + "#bank")
    tab.wait("document.querySelector('#lessons .row')")
    for place in range(len(EVIL)):
        tab.run(f"document.getElementById('lesson{place}').click()")
        tab.wait(f"document.querySelector('#lesson article') && document.querySelector('#lesson{place}.selected')")
        assert tab.run("document.querySelector('#lesson h2').textContent.toWellFormed()") in told
    assert tab.run("window.hacked") is None
    foreign = "img, iframe, object, embed, base, link:not([rel=icon]), math"
    assert tab.run(f"document.querySelectorAll('{foreign}').length") == 0
    assert tab.run("document.querySelectorAll('style, meta[http-equiv]').length") == 2
    assert tab.run("[...document.querySelectorAll('a')].every((each) => each.getAttribute('href').startsWith('#'))")
    assert {address.partition(":")[0] for address in tab.requests} <= {"file", "data", "about"}


def key_of(tab) -> str:
    """How the addresses of the page name the run with lessons."""
    return tab.run("JSON.parse(document.getElementById('index').textContent).runs.find((run) => run.lessons).key")


def test_the_policy_stops_what_would_still_get_in(tab, pages, serve):
    """Were a text ever to become an element: nothing of it runs, and nothing is fetched."""
    outside = serve(lambda request, number: (200, {}))
    tab.open(pages[1])
    elements = f"""<img src={outside.url}/a onerror=window.hacked=1> <svg onload=window.hacked=2></svg>
        <style>h1 {{ color: rgb(1, 2, 3) }}</style> <a id=x href=javascript:window.hacked=3>x</a>
        <iframe src={outside.url}/b></iframe> <link rel=stylesheet href={outside.url}/c>
        <form id=f action={outside.url}/d></form> <p style="background: url({outside.url}/e)">x</p>"""
    tab.run(f"document.body.insertAdjacentHTML('beforeend', {elements!r})")
    tab.run(
        "(() => { const made = document.createElement('script'); made.text = 'window.hacked = 4';"
        " document.body.append(made) })()"
    )
    tab.run("document.getElementById('x').click()")
    tab.run("document.getElementById('f').submit()")
    tab.run(f"fetch('{outside.url}/f').catch(() => 0)")
    tab.run("new Promise((done) => setTimeout(done, 200))")
    assert tab.run("window.hacked") is None
    assert tab.run("getComputedStyle(document.querySelector('h1')).color") != "rgb(1, 2, 3)"
    assert outside.listed == 0 and len(tab.errors) >= 8
    tab.errors.clear()


def test_a_long_text_is_shown_in_part_until_it_is_wanted(tab, pages):
    _, url, evil = pages
    tab.open(url)
    tab.open(f"{url}#{quote(key_of(tab), safe='')}/" + quote(read_rows(evil)[0]["task_id"], safe=""))
    tab.wait("document.querySelector('.more')")
    assert "show all 1,230,000 characters" in text(tab, ".more")
    assert tab.run("document.querySelector('.observation').textContent.length") < 5000
    tab.run("document.querySelector('.more').click()")
    assert tab.run("document.querySelector('.observation').textContent.length") == 1_230_000


def test_the_tab_opens_on_what_retrieved_with_its_first_episode_and_enter_opens_wherever_the_focus_is(tab, pages):
    tab.open(pages[0])
    tab.run("document.querySelector('nav a[href=\"#episodes\"]').focus()")
    tab.press("Enter")
    tab.wait("document.querySelector('#detail article .id')")
    assert "reasoningbank" in tab.run("document.getElementById('run').value")
    assert text(tab, ".row.selected .what") and tab.run("location.hash") == "#episodes"
    tab.press("Escape")
    for key in ("j", "Enter"):
        tab.press(key)
    tab.wait("document.activeElement.matches('#detail article')")
    assert tab.run("location.hash") != "#episodes"
    tab.press("Escape")
    tab.press("/")
    tab.press("Enter")
    tab.wait("document.activeElement.matches('#detail article')")
