"""How long a report of two runs of many episodes takes to make and to open, on this machine.

    python -m benchmarks.bench_report [--episodes 1000] [--steps 30] [--keep FILE.html]

The runs are real ones of the toy world; each attempt is then lengthened to --steps steps with observations of random
words, about 300 characters each, so that the episodes are as long as those of a household task. Needs a Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bench_tables import make_runs, size_mb
from benchmarks.browser import Browser
from envs.web.browser import installed
from scripts.command_line import REPO, command_of, parser

ARMS = ("no_memory", "reasoningbank")
SINCE_START = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def frame_ms(browser: Browser, script: str) -> float:
    """Milliseconds that a script takes until it and the next frame are done."""
    frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    return browser.run(f"(async () => {{ const began = performance.now(); {script}; await {frame}; "
                       "return performance.now() - began; })()")  # fmt: skip


def look(file: Path) -> None:
    """Open the page as a reader would, and print what it took."""
    url = file.as_uri()
    until = "while (!document.querySelector('article .step')) await new Promise((done) => setTimeout(done, 5))"
    with Browser(installed() or "") as browser:
        for name, where in (("results", ""), ("episodes", "#episodes")):
            browser.open("about:blank")
            began = time.perf_counter()
            browser.open(url + where)
            browser.wait(
                "document.querySelectorAll('.row').length > 3" if where else "document.readyState === 'complete'"
            )
            wall = time.perf_counter() - began
            loaded = browser.run(SINCE_START) / 1000
            print(f"open the {name + ':':<10} {loaded:6.2f} s to loaded, {wall:.2f} s seen from outside")
        print(f"open an episode:    {frame_ms(browser, f'document.querySelector(`.row`).click(); {until}'):6.0f} ms")
        type_in = "const box = document.getElementById('text'); box.value = '{}'; box.dispatchEvent(new Event('input'))"
        print(f"search the tasks:   {frame_ms(browser, type_in.format('amber')):6.0f} ms")
        deep = "document.getElementById('deep').click(); const counted = document.getElementById('counted'); "
        wait = "while (counted.textContent.includes('searching')) await new Promise((done) => setTimeout(done, 5))"
        print(f"search all texts:   {frame_ms(browser, deep + wait):6.0f} ms")
        print(f"scroll to the end:  {frame_ms(browser, 'document.getElementById(`rows`).scrollTop = 1e7'):6.0f} ms")
        print(f"elements in page:   {browser.run('document.querySelectorAll(`*`).length'):6,}")
        print(f"console errors:     {len(browser.errors):6}", *browser.errors)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--episodes", type=int, default=1000, help="of each of the two runs")
    options.add_argument("--steps", type=int, default=30)
    options.add_argument("--keep", type=Path, metavar="FILE.html")
    given = options.parse_args()
    if installed() is None:
        print("error: no Chromium is installed (apt-get install chromium).", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = make_runs(folder / "runs", ARMS, given.episodes, given.steps)
        file = folder / "report.html"
        began = time.perf_counter()
        words = command_of("scripts.report", folder / "runs", "-o", file)
        subprocess.run(words, cwd=REPO, check=True, stdout=subprocess.DEVNULL)
        print(f"{len(ARMS)} runs x {given.episodes:,} episodes, {size_mb(runs):.1f} MB of records")
        print(f"make the page:      {time.perf_counter() - began:6.1f} s, {file.stat().st_size / 1e6:.1f} MB")
        look(file)
        if given.keep:
            shutil.copyfile(file, given.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
