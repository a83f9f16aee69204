"""scripts/report.py --watch: a page on this machine alone that follows runs while they go on, and only reads them."""

from __future__ import annotations

import functools
import hashlib
import http.client
import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import forkserver
import pytest
from conftest import REPO
from report_kit import text

from scripts import report

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")


@contextmanager
def watching(*words: object):
    """The port of a report that is served, and its process."""
    command = [sys.executable, "-m", "scripts.report", "--watch", *map(str, words), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests in the background ignore Ctrl-C
    with forkserver.Popen(command, cwd=REPO, preexec_fn=heard, **pipes) as server:
        try:
            line = server.stdout.readline()
            assert "follows the runs" in line, server.stderr.read() if server.poll() is not None else line
            yield int(line.split("/")[2].rpartition(":")[2]), server
        finally:
            server.kill()


def get(port: int, path: str = "/", host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def wait_for(port: int, what: str) -> str:
    end = time.monotonic() + 60
    while what not in (page := get(port)[1]):
        assert time.monotonic() < end, what
        time.sleep(0.2)
    return page


def begun(run: Path, to: Path, n: int) -> list[str]:
    """A copy of a run as it was after n episodes; returns the lines that are to come."""
    shutil.copytree(run, to, ignore=shutil.ignore_patterns("summary.json", "episodes.jsonl", "timings.jsonl"))
    lines = (run / "episodes.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (to / "episodes.jsonl").write_text("".join(lines[:n]), encoding="utf-8")
    return lines[n:]


def files_of(folder: Path) -> dict[str, tuple[str, int]]:
    """{file: (sha256, when it was written)}."""
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_it_waits_follows_and_ends_in_a_sentence(toy_runs, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    with watching(folder) as (port, server):
        assert "holds no run" in get(port)[1]
        rest = begun(toy_runs / "bank-0", folder / "bank", 0)
        assert "none of the runs has finished an episode yet" in wait_for(port, "0 of 40 tasks")
        with (folder / "bank" / "episodes.jsonl").open("a", encoding="utf-8") as file:
            file.write("".join(rest[:9]) + rest[9][:50])  # and one that is being written
        page = wait_for(port, "9 of 40 tasks")
        assert "counted as far as they go" in page and "reasoningbank solved" in page
        before = files_of(folder)
        begun(toy_runs / "none-0", folder / "none", 9)  # a second run begins
        page = wait_for(port, "no_memory")
        assert "<b>not finished</b>" in page and "<b>better</b>" not in page
        assert {name: it for name, it in files_of(folder).items() if name.startswith("bank/")} == before
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=30)
    assert (server.returncode, err) == (0, "")
    assert out.strip() == "Stopped following; the runs were only read."


def test_it_answers_this_machine_alone_and_with_two_things(toy_runs):
    with watching(toy_runs / "none-0") as (port, _):
        status, page = get(port)
        assert status == 200 and "connect-src 'self'" in page and "default-src 'none'" in page
        status, state = get(port, "/state")
        assert status == 200 and f'data-version="{json.loads(state)["version"]}"' in page
        assert get(port, host="evil.example")[0] == 403
        assert get(port, "/../pyproject.toml")[0] == get(port, "/manifest.json")[0] == 404
        listening = forkserver.run(["ss", "-ltn"], capture_output=True, text=True, check=False).stdout
        assert f"0.0.0.0:{port}" not in listening and f"*:{port}" not in listening
        assert report.main(["--watch", str(toy_runs / "none-0"), "--port", str(port)]) == 1  # taken


def test_what_cannot_be_watched_is_an_error(toy_runs, tmp_path, capsys):
    assert report.main(["--watch", str(tmp_path / "nowhere")]) == 1
    assert "does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        report.main(["--watch", str(toy_runs), "-o", str(tmp_path / "page.html")])


def test_a_file_does_not_ask_anything(toy_runs, tmp_path):
    assert report.main([str(toy_runs / "none-0"), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "connect-src" not in page and "fetch(" not in page


def test_a_reload_keeps_the_place(toy_runs, tmp_path, tab):
    folder = tmp_path / "runs"
    rest = begun(toy_runs / "bank-0", folder / "bank", 30)
    begun(toy_runs / "none-0", folder / "none", 40)
    version = "document.body.dataset.version"
    with watching(folder) as (port, _):
        tab.open(f"http://127.0.0.1:{port}/")
        first = tab.run(version)
        tab.run("document.querySelectorAll('#table thead button')[2].click()")
        tab.run("document.querySelector('#configuration details').open = true")
        tab.run("scrollTo(0, 700)")
        with (folder / "bank" / "episodes.jsonl").open("a", encoding="utf-8") as file:
            file.write("".join(rest[:5]))
        tab.wait(f"{version} !== {first!r} && Math.abs(scrollY - 700) < 3", reloads=True)
        assert tab.run("document.querySelector('#table th[aria-sort=descending]').cellIndex") == 2
        assert tab.run("document.querySelector('#configuration details').open")
        second = tab.run(version)
        tab.open(f"http://127.0.0.1:{port}/#reasoningbank-seed-0/{quote('toy/dune/5', safe='')}?type=dune")
        tab.wait("document.querySelector('article .step')")
        with (folder / "bank" / "episodes.jsonl").open("a", encoding="utf-8") as file:
            file.write("".join(rest[5:]))
        tab.wait(f"{version} !== {second!r} && document.querySelector('article .step')", reloads=True)
        assert text(tab, "#counted") == "10 of 40 episodes"
        assert text(tab, ".row.selected .what") == "Open the dune box: box 5 of the dune family."
