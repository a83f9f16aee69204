"""How long a report of two runs of many episodes takes to make and to open, on this machine.

    python -m scripts.bench.bench_report [--episodes 1000] [--steps 30] [--keep FILE.html]

The runs are real ones of the toy world; each attempt is then lengthened to --steps steps with observations of random
words, about 300 characters each, so that the episodes are as long as those of a household task. Needs a Chromium.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.bench.browser import Browser, installed

ROOT = Path(__file__).resolve().parents[2]

ARMS = ("no_memory", "reasoningbank")
SINCE_START = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def make_run(folder: Path, arm: str, n: int, steps: int) -> None:
    """A real run, its attempts lengthened."""
    words = ["env=toy", "llm=scripted", "embedder=hashing", f"env.boxes_per_family={-(-n // 4)}", f"limit={n}"]
    command = [sys.executable, str(ROOT / "main.py"), *words, f"arm={arm}", f"run_dir={folder}"]
    folder.parent.mkdir(exist_ok=True)
    subprocess.run(command, cwd=folder.parent, check=True, stdout=subprocess.DEVNULL)
    file = folder / "episodes.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    chance = random.Random(arm)
    for row in rows:
        for attempt in row["trajectories"]:
            first = attempt["steps"][0]
            attempt["steps"] = [first | {"observation": babble(chance)} for _ in range(steps - 1)] + attempt["steps"]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def babble(chance: random.Random) -> str:
    """Words that repeat as seldom as those of a text do, or more so."""
    return " ".join("".join(chance.choices("aeinorstlmd", k=chance.randint(2, 8))) for _ in range(50))


def timed(browser: Browser, script: str) -> float:
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
        print(f"open an episode:    {timed(browser, f'document.querySelector(`.row`).click(); {until}'):6.0f} ms")
        type_in = "const box = document.getElementById('text'); box.value = '{}'; box.dispatchEvent(new Event('input'))"
        print(f"search the tasks:   {timed(browser, type_in.format('amber')):6.0f} ms")
        deep = "document.getElementById('deep').click(); const counted = document.getElementById('counted'); "
        wait = "while (counted.textContent.includes('searching')) await new Promise((done) => setTimeout(done, 5))"
        print(f"search all texts:   {timed(browser, deep + wait):6.0f} ms")
        print(f"scroll to the end:  {timed(browser, 'document.getElementById(`rows`).scrollTop = 1e7'):6.0f} ms")
        print(f"elements in page:   {browser.run('document.querySelectorAll(`*`).length'):6,}")
        print(f"console errors:     {len(browser.errors):6}", *browser.errors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000, help="of each of the two runs")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--keep", type=Path, metavar="FILE.html")
    given = parser.parse_args()
    if installed() is None:
        print("error: no Chromium is installed (apt-get install chromium).", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for arm in ARMS:
            make_run(folder / "runs" / arm, arm, given.episodes, given.steps)
        file = folder / "report.html"
        began = time.perf_counter()
        report = [sys.executable, "-m", "scripts.report", str(folder / "runs"), "-o", str(file)]
        subprocess.run(report, check=True, stdout=subprocess.DEVNULL)
        size = sum(path.stat().st_size for path in folder.glob("runs/*/episodes.jsonl"))
        print(f"{len(ARMS)} runs x {given.episodes:,} episodes, {size / 1e6:.1f} MB of records")
        print(f"make the page:      {time.perf_counter() - began:6.1f} s, {file.stat().st_size / 1e6:.1f} MB")
        look(file)
        if given.keep:
            shutil.copyfile(file, given.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
