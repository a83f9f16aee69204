"""env=swe keeps the bytes of files that are no UTF-8: in the agent's commands, its patch, the records and the tests."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import swe_kit
from conftest import REPO, read_rows
from swe_kit import attempt, bubblewrap, make, resolved, stand_in

from core.errors import UserError
from envs.swe.data import load
from envs.swe.env import SUBMIT
from envs.swe.sandbox import as_bytes, as_text, is_text
from scripts.show import main as show
from scripts.tables import main as tables

pytestmark = bubblewrap
# What the file of an instance holds before and after the right fix: name -> (before, after).
TEXT = "# Größe: señor, naïve\nSIZE = 1\nNAME = 'Größe'\n"
JAPANESE = "# 日本語のコメント\nSIZE = 1\nNAME = '表示ソ'\n"


def fixed(text: str) -> str:
    return text.replace("SIZE = 1", "SIZE = 2").replace("Größe'", "Größer'").replace("表示ソ", "表示能")


def in_(encoding: str, text: str = TEXT, ends: str = "\n") -> tuple[bytes, bytes]:
    return tuple(each.replace("\n", ends).encode(encoding) for each in (text, fixed(text)))


FILES = {
    "utf-8": in_("utf-8"),
    "latin-1": in_("latin-1"),
    "cp1252": in_("cp1252", TEXT.replace("señor", "“señor” €")),
    "mac": in_("mac-roman"),
    "koi8-r": in_("koi8-r", "# Размер\nSIZE = 1\nNAME = 'имя'\n"),
    "euc-jp": in_("euc-jp", JAPANESE),
    "shift-jis": in_("shift-jis", JAPANESE),
    "gb18030": in_("gb18030", "# 大小\nSIZE = 1\nNAME = '名字'\n"),
    "big5": in_("big5", "# 許功蓋\nSIZE = 1\nNAME = '名'\n"),
    "utf-16": in_("utf-16"),
    "utf-16-be": in_("utf-16-be"),
    "byte order mark": in_("utf-8-sig"),
    "crlf": in_("utf-8", ends="\r\n"),
    "crlf and latin-1": in_("latin-1", ends="\r\n"),
    "cr": in_("latin-1", ends="\r"),
    "no newline at the end": tuple(each[:-1] for each in in_("latin-1")),
    "mixed encodings": tuple(a + b for a, b in zip(in_("latin-1"), in_("utf-8", JAPANESE), strict=True)),
    "mixed line ends": tuple(a + b for a, b in zip(in_("utf-8"), in_("latin-1", ends="\r\n"), strict=True)),
    "form feeds and escapes": tuple(each + b"\x0c\x1b[1m\x85\xa0 \t\n" for each in in_("latin-1")),
    "all bytes but null": (bytes(range(1, 256)) + b"\nSIZE = 1\n", bytes(range(255, 0, -1)) + b"\nSIZE = 2\n"),
    "all bytes": (bytes(range(256)) * 9 + b"\nSIZE = 1\n", bytes(range(256)) * 9 + b"\nSIZE = 2\n"),
}


def instance(folder: Path, before: bytes, after: bytes, patch: bytes = b"") -> Path:
    """An instance whose test demands these very bytes. patch: its gold.patch."""
    return instance_of(folder, {"words.py": (before, after)}, patch)


def instance_of(folder: Path, files: dict[str, tuple[bytes, bytes]], patch: bytes = b"") -> Path:
    """An instance with several files: {name: (before, after)}."""
    here = folder / "bytes" / "words"
    (here / "repo" / "tests").mkdir(parents=True)
    for name, (before, _) in files.items():
        (here / "repo" / name).write_bytes(before)
    (here / "repo" / "conftest.py").write_text("")
    (here / "issue.md").write_text("The size is wrong.", encoding="utf-8")
    wanted = {name: base64.b64encode(after).decode() for name, (_, after) in files.items()}
    test = f"import base64\n\n\ndef test_bytes():\n    wanted = {wanted!r}\n"
    test += "    held = {name: base64.b64encode(open(name, 'rb').read()).decode() for name in wanted}\n"
    test += "    assert held == wanted\n"
    lines = "".join(f"+{line}\n" for line in test.splitlines())
    head = "diff --git a/tests/test_bytes.py b/tests/test_bytes.py\nnew file mode 100644\n--- /dev/null\n"
    count = len(test.splitlines())
    (here / "test.patch").write_text(f"{head}+++ b/tests/test_bytes.py\n@@ -0,0 +1,{count} @@\n{lines}")
    (here / "gold.patch").write_bytes(patch)
    about = {"instance_id": "bytes__words-1", "repo": "bundled/words", "family": "bytes"}
    (here / "instance.json").write_text(
        json.dumps(about | {"FAIL_TO_PASS": ["tests/test_bytes.py::test_bytes"], "PASS_TO_PASS": []})
    )
    return folder


def written(data: bytes, name: str = "words.py") -> str:
    """A command that writes a file."""
    return f"echo {base64.b64encode(data).decode()} | base64 -d > {name}"


def test_a_right_fix_counts_whatever_the_files_encoding(tmp_path):
    """All in one instance, as each start of a sandbox takes seconds."""
    files = {f"words_{n}.py": FILES[name] for n, name in enumerate(FILES)}
    with make(instance_of(tmp_path, files)) as env:
        fix = [written(after, name) for name, (_, after) in files.items()]
        said, reward, info = attempt(env, *fix, "cat words_1.py; git diff", SUBMIT)
        assert (info["patch"], reward) == ("applied", 1.0)
        said[-2].encode()  # what the model reads is Unicode
        kept = json.loads(json.dumps(info))["answer"]
        assert resolved(kept, env._playing).solved  # as it is stored and read again
        last, (before, _) = list(files.items())[-1]
        assert attempt(env, *fix[:-1], written(before + b"#\n", last), SUBMIT)[1] == 0.0


before_latin, after_latin = FILES["latin-1"]
TOOLS = {
    "sed": r"sed -i 's/SIZE = 1/SIZE = 2/; s/e'\''$/er'\''/' words.py",
    "sed in bytes": r"LC_ALL=C sed -i 's/SIZE = 1/SIZE = 2/; s/\xdfe'\''/\xdfer'\''/' words.py",
    "perl": r"perl -pi -e 's/SIZE = 1/SIZE = 2/; s/\xf6\xdfe\x27/\xf6\xdfer\x27/' words.py",
    "python": "python - <<'E'\nt = open('words.py', encoding='latin-1').read()\n"
    "t = t.replace('SIZE = 1', 'SIZE = 2').replace(\"Größe'\", \"Größer'\")\n"
    "open('words.py', 'w', encoding='latin-1').write(t)\nE",
    "printf": r"printf '# Gr\xf6\xdfe: se\xf1or, na\xefve\nSIZE = 2\nNAME = '\''Gr\xf6\xdfer'\''\n' > words.py",
    "iconv": "cat > /tmp/new <<'E'\n# Größe: señor, naïve\nSIZE = 2\nNAME = 'Größer'\nE\n"
    "iconv -f utf-8 -t latin1 /tmp/new > words.py",
    "git apply": "echo {diff} | base64 -d | git apply -",
    "patch": "echo {diff} | base64 -d | patch -p1",
}


def latin_diff() -> bytes:
    lines = [b"--- a/words.py\n+++ b/words.py\n@@ -1,3 +1,3 @@\n"]
    old, new = before_latin.splitlines(True), after_latin.splitlines(True)
    lines += [b" " + old[0], b"-" + old[1], b"-" + old[2], b"+" + new[1], b"+" + new[2]]
    return b"diff --git a/words.py b/words.py\n" + b"".join(lines)


def test_a_right_fix_counts_whatever_tool_makes_it(tmp_path):
    """The same bytes in the file, and no other change of the repository, are the same patch: it is tested once."""
    with make(instance(tmp_path, before_latin, after_latin)) as env:
        env.reset(env.tasks()[0])
        made = {}
        for tool, command in TOOLS.items():
            env.step("git checkout -q . && git clean -fdq")
            env.step(command.replace("{diff}", base64.b64encode(latin_diff()).decode()))
            made[tool] = env.step("base64 -w0 words.py; echo; git status --porcelain")[0]
        after = base64.b64encode(after_latin).decode()
        told = f"<returncode>0</returncode>\n<output>\n{after}\n M words.py\n</output>"
        assert made == dict.fromkeys(TOOLS, told)
        _, reward, _, info = env.step(SUBMIT)
        assert (info["patch"], reward) == ("applied", 1.0)


SAME = ("git diff", "git diff HEAD", "git diff -- words.py", "git diff > /tmp/p; cat /tmp/p")
OTHERS = (
    "git commit -qam x && git format-patch -1 --stdout",
    "diff -u <(git show HEAD:words.py) words.py --label a/words.py --label b/words.py",
)


def test_a_right_fix_counts_however_it_is_submitted(tmp_path):
    """What is the same text as SUBMIT's is not tested again."""
    with make(instance(tmp_path, before_latin, after_latin)) as env:
        ways = (*SAME, "git add -A && git diff --cached")
        said, _, _ = attempt(env, written(after_latin), *(f"{{ {submit}; }} | base64 -w0" for submit in ways))
        assert set(said[1:]) == {said[1]} and len(said[1]) > 100
        for submit in OTHERS:
            words = f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && {{ {submit}; }}; true"
            _, reward, info = attempt(env, written(after_latin), words)
            assert (info["patch"], reward) == ("applied", 1.0), submit


def test_a_run_of_a_gold_patch_of_any_bytes_is_recorded_as_valid_json_and_resumes(tmp_path, here):
    data = instance(tmp_path / "data", before_latin, after_latin, latin_diff())
    assert as_bytes(load(str(data))[0].gold) == latin_diff()
    words = ("env=swe", f"env.data={data}", "agent=gold", "workflow=vanilla", "llm=scripted", "embedder=hashing")
    run_dir, rate = here(*words, run_dir=tmp_path / "run")
    assert rate == 1.0
    text = (run_dir / "episodes.jsonl").read_bytes().decode()  # UTF-8, escapes and all
    answer = read_rows(run_dir)[0]["trajectories"][0]["answer"]
    assert b"Gr\xf6\xdfer" in as_bytes(answer) and "\\udcf6\\udcdf" in text
    assert here(*words, run_dir=run_dir)[1] == 1.0
    assert (run_dir / "episodes.jsonl").read_bytes().decode() == text


def test_a_model_that_fixes_such_a_file_is_judged_and_learned_from(tmp_path, here, capsys):
    """Judge and distiller are sent Unicode; tables and show print it."""
    data = instance(tmp_path / "data", before_latin, after_latin)
    words = ("env=swe", f"env.data={data}", "llm=scripted", "llm.script.path=test_swe_bytes.play", "embedder=hashing")
    run_dir, rate = here(*words, run_dir=tmp_path / "run")
    assert rate == 1.0
    sent = (run_dir / "prompts.jsonl").read_bytes().decode()
    assert "diff --git a/words.py" in sent and "\\ud" not in sent
    show([str(run_dir), "swe/bytes__words-1"])
    tables([str(run_dir)])
    capsys.readouterr().out.encode()


def play(messages, role, sample):
    if role != "agent":
        return swe_kit.play(messages, role, sample)
    turn = sum(message["role"] == "assistant" for message in messages)
    commands = ["cat words.py", TOOLS["python"], SUBMIT]
    return f"THOUGHT: step {turn}.\n\n```bash\n{commands[min(turn, 2)]}\n```"


@pytest.mark.parametrize("name", ["latin-1", "utf-16", "utf-8"])
def test_predictions_for_another_program_are_text(tmp_path, name):
    """The official harness writes a patch as UTF-8: git's binary form keeps the bytes of the others."""
    before, after = FILES[name]
    with make(instance(tmp_path, before, after), evaluation="none") as env:
        _, _, info = attempt(env, written(after), SUBMIT)
        (row,) = env.files({"swe/bytes__words-1": info["answer"]}, "model")["predictions.jsonl"].splitlines()
        patch = json.loads(row)["model_patch"]
        patch.encode()
        assert ("GIT binary patch" in patch) is (name != "utf-8")
        assert name == "utf-8" or resolved(patch, env._playing).solved


def test_a_container_keeps_bytes_too(tmp_path, monkeypatch):
    data = instance(tmp_path / "data", before_latin, after_latin, latin_diff())
    programs = stand_in(tmp_path / "bin", "docker", data, "{id}")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    it = replace(load(str(data))[0], folder=None)
    assert resolved(it.gold, it, "docker", it.id.replace("__", "_1776_")).solved


def test_a_binary_file_that_lies_about_spoils_no_fix(tmp_path):
    """A picture or a data base that a command has left: git's diff says of it only that it differs."""
    with make(instance(tmp_path, before_latin, after_latin)) as env:
        _, reward, info = attempt(env, written(after_latin), "head -c 3000 /dev/urandom > left.bin", SUBMIT)
        assert (info["patch"], reward) == ("applied", 1.0)


def test_bytes_survive_as_text():
    for data in (bytes(range(256)), before_latin, b"\xed\xa0\x80\xf4\x90\x80\x80", TEXT.encode("utf-16")):
        text = as_text(data)
        assert as_bytes(json.loads(json.dumps(text))) == data
        assert not is_text(text)
    assert as_bytes("a\ud83db") == b"a?b" and is_text("Größe\r\n")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("issue.md", "Größe".encode("latin-1"), "issue.md is not UTF-8"),
        ("instance.json", b"[1]", "no JSON object"),
        ("instance.json", b"\xff", "instance.json is not UTF-8"),
    ],
)
def test_prose_that_is_no_utf8_is_refused_in_a_sentence(tmp_path, name, data, said):
    folder = instance(tmp_path, before_latin, after_latin)
    (folder / "bytes" / "words" / name).write_bytes(data)
    with pytest.raises(UserError, match=said):
        load(str(folder))
