"""MiniLM for a server: embeds the texts of several callers in one pass; each gets the vector that it would get alone.

The last bits of a matrix product depend on its number of rows, so in an ordinary batch a text's vector would depend on
the other texts. Here every product has 16 rows: the tokens of all texts are concatenated and cut into tiles of 16, a
larger batch has more tiles, not larger ones, and attention sees one text at a time. `TiledBert.check` tests when the
model is loaded, on each machine, that a row's bits depend neither on its place in a tile nor on the other rows; if they
do, texts are embedded one by one. For the same reason a call's texts can be divided among cores, one thread each.
"""

from __future__ import annotations

import os
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from core.models.embedding import MARKS, MiniLMEmbedder, joined, windows
from core.models.local import share_cores
from core.starting import loading
from core.types import Usage

TILE = 16  # rows of a matrix product: tokens
LONGEST = 256  # tokens of a text that MiniLM reads, as in its release
HEADS, LAYERS, EPSILON = 12, 6, 1e-12
PROBES = ("", "sort a log file", "a word " * 20, "Parse 3 dates.", "what is to be done " * 60, "Sort a log file")


@dataclass(kw_only=True)
class TiledMiniLM(MiniLMEmbedder):
    """all-MiniLM-L6-v2 in tiles, a text on one core; vectors equal MiniLMEmbedder's except for the last bits (2e-7).

    Its forward pass takes a third of the processor time, and it loads without sentence-transformers.
    """

    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    together: bool = field(default=True, init=False)  # whether a text gets the same bits alone and in a batch here
    _threads: ThreadPoolExecutor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.cores, thread_name_prefix="minilm")

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        import numpy as np

        with self._lock:
            if self._model is None:
                with loading(f"the embedder {self.name}"):
                    self._model = self._load()
                    self.together = self._model.check()
            parts = [self._model.windows(text) for text in texts]
            flat = [text for part in parts for text in part]
            size = -(-len(flat) // self.cores) if self.together else 1
            batches = [flat[at : at + size] for at in range(0, len(flat), size)]
            run = map if len(batches) < 2 else self._threads.map
            rows = [row for vectors in run(self._model.embed, batches) for row in vectors]
            tokens = sum(map(len, self._model.tokens(flat)))
            self.long_texts += sum(len(part) > 1 for part in parts)
        return joined(np.stack(rows), [len(part) for part in parts]), Usage(calls=len(texts), prompt_tokens=tokens), 0

    def _load(self) -> Any:
        file = self.weights()
        share_cores()
        import torch
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        torch.set_num_threads(1)  # several threads per product would occupy cores that other texts need
        tokenizer = Tokenizer.from_file(str(file.parent / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return TiledBert(load_file(file), tokenizer)


class TiledBert:
    """The forward pass of a BERT of MiniLM's size over texts of any lengths, mean-pooled.

    weights   by the names of the released file
    """

    def __init__(self, weights: dict[str, Any], tokenizer: Any) -> None:
        import torch

        def affine(name: str) -> tuple[Any, Any]:
            return weights[f"{name}.weight"], weights[f"{name}.bias"]

        def product(*names: str) -> tuple[Any, Any]:  # layers with the same input become one product
            affines = [affine(name) for name in names]
            return torch.cat([w for w, _ in affines]).t().contiguous(), torch.cat([b for _, b in affines])

        self._tokenizer = tokenizer
        self._words = weights["embeddings.word_embeddings.weight"]
        kind = weights["embeddings.token_type_embeddings.weight"][0]  # all tokens are of the first type
        self._places = weights["embeddings.position_embeddings.weight"] + kind
        self._norm = affine("embeddings.LayerNorm")
        self._layers = []
        for number in range(LAYERS):
            at = f"encoder.layer.{number}"
            qkv = product(*(f"{at}.attention.self.{name}" for name in ("query", "key", "value")))
            out, inner = product(f"{at}.attention.output.dense"), product(f"{at}.intermediate.dense")
            norms = affine(f"{at}.attention.output.LayerNorm"), affine(f"{at}.output.LayerNorm")
            self._layers.append((qkv, out, inner, product(f"{at}.output.dense"), *norms))

    def tokens(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text, not yet cut to LONGEST."""
        return [self._tokenizer.encode(text).ids for text in texts]

    def windows(self, text: str) -> list[str]:
        """The text, or its consecutive parts if it has more than LONGEST tokens."""
        if len(text) <= LONGEST - MARKS:
            return [text]
        read = self._tokenizer.encode(text, add_special_tokens=False)
        return windows(text, read.offsets, read.word_ids, LONGEST - MARKS)

    def embed(self, texts: list[str]) -> Any:
        """float32 (len(texts), 384), unit rows."""
        import torch
        from torch.nn.functional import gelu, normalize

        ids = [each if len(each) <= LONGEST else [*each[: LONGEST - 1], each[-1]] for each in self.tokens(texts)]
        by_length = defaultdict(list)  # texts of one length share an attention call
        for place, each in enumerate(ids):
            by_length[len(each)].append(place)
        groups = [(length, len(places)) for length, places in by_length.items()]
        order = [place for places in by_length.values() for place in places]
        with torch.inference_mode():
            rows = torch.tensor([token for place in order for token in ids[place]])
            places = torch.cat([torch.arange(length).repeat(n) for length, n in groups])
            x = self._words[rows] + self._places[places]
            x = _norm(torch.cat((x, x.new_zeros(-len(x) % TILE, x.shape[1]))), self._norm)
            for qkv, out, inner, outer, after_attention, after in self._layers:
                x = _norm(x + _tiled(_attention(_tiled(x, qkv), groups), out), after_attention)
                x = _norm(x + _tiled(gelu(_tiled(x, inner)), outer), after)
            means = torch.empty(len(texts), x.shape[1])
            means[torch.tensor(order)] = torch.cat([of_length.mean(1) for of_length in _texts(x, groups)])
            return normalize(means, dim=1).numpy()

    def check(self) -> bool:
        """Whether texts get the same bits alone and together on this machine."""
        together = self.embed(list(PROBES))
        return all((self.embed([text])[0] == row).all() for text, row in zip(PROBES, together, strict=True))


def _texts(x: Any, groups: list[tuple[int, int]]) -> list[Any]:
    """The rows of each group's texts, (n, length, d), without the padding of the last tile."""
    texts, at = [], 0
    for length, n in groups:
        texts.append(x[at : at + n * length].reshape(n, length, -1))
        at += n * length
    return texts


def _attention(qkv: Any, groups: list[tuple[int, int]]) -> Any:
    from torch.nn.functional import scaled_dot_product_attention

    seen = qkv.new_zeros(len(qkv), qkv.shape[1] // 3)
    at = 0
    for of_length in _texts(qkv, groups):
        n, length, _ = of_length.shape
        q, k, v = of_length.reshape(n, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        read = scaled_dot_product_attention(q, k, v)
        seen[at : at + n * length] = read.transpose(1, 2).reshape(n * length, -1)
        at += n * length
    return seen


def _tiled(x: Any, product: tuple[Any, Any]) -> Any:
    """x @ weight + bias, by tiles."""
    import torch

    weight, bias = product
    tiles = x.reshape(-1, TILE, weight.shape[0])
    return torch.baddbmm(bias, tiles, weight.expand(len(tiles), -1, -1)).reshape(len(x), -1)


def _norm(x: Any, affine: tuple[Any, Any]) -> Any:
    from torch.nn.functional import layer_norm

    return layer_norm(x, affine[0].shape, *affine, EPSILON)
