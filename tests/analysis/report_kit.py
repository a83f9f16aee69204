"""Real toy runs for the tests of finished runs, and a run whose texts try to break out of the report's page."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack
from html.parser import HTMLParser
from importlib import import_module
from itertools import product
from pathlib import Path

import forkserver
import pytest
import yaml
from conftest import TOY, command, configured, read_json, read_rows, write_rows
from hydra.core.hydra_config import HydraConfig

import main
from core.interrupt import Interrupts

RUNS = {
    "none-0": ("arm=no_memory",),
    "none-1": ("arm=no_memory", "seed=1"),
    "bank-0": ("arm=reasoningbank",),
    "bank-1": ("arm=reasoningbank", "seed=1"),
    "par-0": ("arm=matts_parallel", "k=3"),
}
EVIL = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=2>",
    "<!--<script>",
    "]]>&lt;b&gt;\u2028\ufffd\x00\x1b[31m",
    "lone \ud800 and \udfff halves",
    "{{ 7 * 7 }} ${7} $\\frac{1}{2}$",
    "<svg onload=window.hacked=3><style>*{display:none}</style></svg>",
    '"><svg/onload=window.hacked=4>',
    "' onmouseover='window.hacked=5' x='",
    "javascript:window.hacked=6//",
    "[x](javascript:window.hacked=7) ![x](http://outside.example/x.png)",
    '<a href="javascript:window.hacked=8">x</a>',
    '<iframe srcdoc="<script>parent.hacked=9</script>"></iframe>',
    "</style><style>@import url(http://outside.example/x.css);body{background:url(http://outside.example/y)}</style>",
    "red;background:url(http://outside.example/z)",
    "<link rel=stylesheet href=http://outside.example/x.css><link rel=prefetch href=http://outside.example/p>",
    '<meta http-equiv=refresh content="0;url=http://outside.example"><base href=http://outside.example/>',
    "<form action=http://outside.example><button formaction=javascript:window.hacked=10>x</button></form>",
    "<object data=http://outside.example/x.swf></object><embed src=http://outside.example/x>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hacked=11>",
    "</textarea></title></noscript><img src=http://outside.example/i onerror=window.hacked=12>",
    "\u2028window.hacked=13\u2029//\n*/window.hacked=14/*",
    "__proto__",
)


NAME = "evil\"'><img src=x onerror=window.hacked=20>&lt;;background:url(x)#~?%2F"  # of a run's folder, and of a model


class Reply:
    """A model for single-turn tasks."""

    def __call__(self, messages: list, role: str, sample: int) -> str:
        return "Two and two are four.\n\nThe answer is \\boxed{4}."


def make_runs(folder: Path) -> Path:
    """Every run of RUNS, made as a user makes them."""
    for name, words in RUNS.items():
        forkserver.run(
            command(*TOY, *words, f"run_dir={folder / name}"), cwd=folder, check=True, capture_output=True, timeout=240
        )
    return folder


def make_run(run_dir: Path, *words: str) -> Path:
    """A finished run, made in this process."""
    cfg = configured(*words)
    with Interrupts() as interrupts, ExitStack() as stack:
        main.run(cfg, run_dir, interrupts, stack)
    HydraConfig.instance().cfg = None
    return run_dir


MADE: dict[tuple[str, ...], Path] = {}


def run_once(temporary: pytest.TempPathFactory, *words: str) -> Path:
    """The finished run of these words, made for all tests that ask for it. No test may change it."""
    if words not in MADE:
        MADE[words] = make_run(temporary.mktemp("once") / "run", *words)
    return MADE[words]


def sweep_once(
    temporary: pytest.TempPathFactory,
    arms: Iterable[str],
    seeds: Iterable[int],
    *words: str,
    envs: Iterable[str] = ("toy",),
) -> Path:
    """A new folder of runs, as a sweep of the toy world leaves it."""
    folder = temporary.mktemp("sweep") / "sweep"
    for env, arm, seed in product(envs, arms, seeds):
        run = run_once(temporary, f"env={env}", *TOY[1:], f"arm={arm}", f"seed={seed}", *words)
        shutil.copytree(run, folder / f"arm={arm},env={env},llm=scripted,seed={seed}")
    return folder


def called(capsys, script: str, *words: object) -> subprocess.CompletedProcess:
    """A script's main in this process, as if it had been started: `called(capsys, "show", run)`."""
    capsys.readouterr()
    given = list(map(str, words))
    try:
        status = import_module(f"scripts.{script}").main(given)
    except SystemExit as end:  # of argparse
        status = end.code
    return subprocess.CompletedProcess([script, *given], status, *capsys.readouterr())


def unpacked(packed: str) -> list[dict]:
    """The rows of a packed piece of the report's page."""
    return [json.loads(line) for line in gzip.decompress(base64.b64decode(packed)).decode().split("\n") if line]


def rewritten(run: Path, to: Path, change) -> Path:
    """A copy of a run with `change(row)` done to each episode; a row for which it is False is left out."""
    shutil.copytree(run, to)
    rows = [row for row in read_rows(run) if change(row) is not False]
    write_rows(to, rows)
    ids = {row["index"]: row["task_id"] for row in rows}
    task_ids = read_json(run / "manifest.json")["task_ids"]
    change_manifest(to, lambda made: made.update(task_ids=[ids.get(n, id) for n, id in enumerate(task_ids)]))
    return to


def break_off(row: dict) -> None:
    """The episode as one whose server was gone."""
    row["status"] = "infra_error"
    row["trajectories"][0] |= {"ended_by": "infra_error", "error": "server: gone", "success": False}


def change_manifest(run: Path, change) -> None:
    manifest = read_json(run / "manifest.json")
    change(manifest)
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def named(run: Path, evil: str) -> Path:
    """The run, its models and its arm of a hostile name."""
    change_manifest(run, lambda made: [model.update(model=evil) for model in made["models"].values()])
    composed = yaml.safe_load((run / ".hydra" / "hydra.yaml").read_text(encoding="utf-8"))
    composed["runtime"]["choices"]["arm"] = evil
    (run / ".hydra" / "hydra.yaml").write_text(json.dumps(composed), encoding="utf-8")  # which YAML is, too
    return run


def poison(row: dict) -> None:
    """Every text of an episode that a model, a dataset or an env may have written."""
    evil = EVIL[row["index"] % len(EVIL)]
    row["task_id"] += evil
    row["task_type"], row["query"] = evil, evil + row["query"]
    row["verdict"]["reason"] = evil
    row["learning_errors"] = [evil]
    for attempt in row["trajectories"]:
        attempt |= {"answer": evil, "gold": evil}
        attempt["opening"][0]["content"] = evil
        for step in attempt["steps"]:
            step |= {"text": evil * 2, "thought": evil, "action": evil, "observation": evil}
    for lesson in (*row["lessons"], *(item for record in row["records"] for item in record["items"])):
        lesson |= {"title": evil, "description": evil, "content": evil}
    if row["index"] == 0:
        row["trajectories"][0]["steps"][0]["observation"] = evil * 30_000  # more than 1 MB


def text(tab, where: str) -> str:
    """What a reader sees of an element."""
    return tab.run(f"document.querySelector({where!r}).innerText")


def choose(tab, name: str, value: str, kind: str = "change") -> None:
    """Set a control as a person would."""
    tab.run(
        f"(() => {{ const it = document.getElementById({name!r}); it.value = {value!r};"
        f" it.dispatchEvent(new Event({kind!r})) }})()"
    )


class Elements(HTMLParser):
    """Counts the elements of a page, and keeps what each <script> holds, by its id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.scripts: dict[str | None, str] = {}
        self.links: list[str] = []
        self._script: str | None = None
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        given = dict(attrs)
        self.links += [given[name] for name in ("src", "href", "xlink:href", "action") if given.get(name)]
        if tag == "script":
            self._script, self._inside = given.get("id"), True
            self.scripts[self._script] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[self._script] += data
