"""all-MiniLM-L6-v2 by onnxruntime: the tokens of one text in, the mean of its last layer out.

A text is computed alone, on one core, so its vector does not depend on what else is embedded. The graph is written here
from the weights of the released file; nothing is downloaded, and neither torch nor transformers is needed.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.models.wordpiece import WordPiece

MARKS = 2  # tokens that a model puts around a text
LONGEST = 256  # tokens of a text that MiniLM reads, as in its release
GRAPH = Path(__file__).with_name("minilm.onnx")  # written by benchmarks/minilm_graph.py, without weights


class MiniLM:
    """The model.

    folder   with the released files: model.safetensors (float32) and tokenizer.json
    """

    def __init__(self, folder: Path) -> None:
        import onnxruntime

        self._tokenizer = WordPiece(folder / "tokenizer.json")
        self._weights = released(folder / "model.safetensors")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in self._weights.values()]
        options.add_external_initializers(list(self._weights), values)
        self._session = onnxruntime.InferenceSession(GRAPH.read_bytes(), options, providers=["CPUExecutionProvider"])
        unload(self._weights)  # the session has made copies

    def windows(self, text: str) -> list[str]:
        """The text, or its consecutive parts if it has more than LONGEST tokens."""
        if len(text) <= LONGEST - MARKS:
            return [text]
        read = list(self._tokenizer.tokens(text))
        places, words = [(token.start, token.end) for token in read], [token.word for token in read]
        return split_tokens(text, places, words, LONGEST - MARKS)

    def encode(self, text: str) -> tuple[Any, int]:
        """(float32 (384,), of any length; number of tokens)."""
        import numpy as np

        read = self._tokenizer.ids(text)
        ids = read if len(read) <= LONGEST else [*read[: LONGEST - 1], read[-1]]
        return self._session.run(None, {"ids": np.array(ids), "places": np.arange(len(ids))})[0], len(read)


def released(file: Path) -> dict[str, Any]:
    """The weights that the graph names, by name, of a file of safetensors: views of the file, not copies of it."""
    import numpy as np

    data = np.memmap(file, np.uint8, mode="r")
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    about = json.loads(data[8:start].tobytes())
    about = {name: each for name, each in about.items() if each.get("dtype") == "F32"}
    wanted = {name: each for name, each in about.items() if not name.startswith("pooler.")}  # for another task
    parts = {name: data[start:][slice(*each["data_offsets"])] for name, each in wanted.items()}
    return {name: parts[name].view(np.float32).reshape(each["shape"]) for name, each in wanted.items()}


def unload(arrays: dict[str, Any]) -> None:
    """Give the memory back that views of a mapped file take; what is read again is loaded again."""
    mapped = next(iter(arrays.values()))
    while not isinstance(mapped, mmap.mmap):
        mapped = mapped.base
    if hasattr(mapped, "madvise"):  # Windows has none
        mapped.madvise(mmap.MADV_DONTNEED)


def split_tokens(text: str, offsets: Sequence[tuple[int, int]], words: Sequence[int | None], most: int) -> list[str]:
    """The consecutive parts of a text, each of at most `most` tokens; no word is divided.

    offsets, words   of each token: its place in the text, and the number of its word
    """
    parts, start = [], 0
    while start < len(offsets):
        end = min(start + most, len(offsets))
        while start < end < len(offsets) and words[end] is not None and words[end] == words[end - 1]:
            end -= 1
        end = end if end > start else min(start + most, len(offsets))  # a single word of so many tokens
        parts.append(text[offsets[start][0] : offsets[end - 1][1]])
        start = end
    return parts or [text]
