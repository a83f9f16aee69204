"""MiniLM for a server: the texts of several callers in one pass, each with the vector that it would have alone.

A matrix product's last bits depend on its number of rows, so a batch would change a text's vector with the company it
is in. Here every product is one of 16 tokens, whatever the batch: texts are padded to whole tiles of 16 tokens, a batch
has more tiles and no larger ones, and attention sees one text at a time. `check` holds this against the machine.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from core.models.embedding import MiniLMEmbedder
from core.models.threads import share_cores
from core.starting import loading
from core.types import Usage

TILE = 16  # tokens
LONGEST = 256  # tokens of a text that MiniLM reads, as in its release
HEADS, LAYERS, EPSILON = 12, 6, 1e-12
PROBES = ("", "sort a log file", "a word " * 20, "Parse 3 dates.", "what is to be done " * 60)


@dataclass(kw_only=True)
class TiledMiniLM(MiniLMEmbedder):
    """all-MiniLM-L6-v2 computed in tiles: a third of the processor time, and of the time to load.

    Its vectors are those of MiniLMEmbedder but for the last bits (2e-7), as they differ between machines, too.
    """

    together: bool = field(default=True, init=False)  # whether this machine gives texts the same bits in a batch

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        with self._lock:
            if self._model is None:
                with loading(f"the embedder {self.name}"):
                    self._model = self._load()
                    self.together = self._model.check()
            parts = [texts] if self.together else [[text] for text in texts]
            rows = [row for part in parts for row in self._model.embed(part)]
            tokens = self._model.count(texts)
        import numpy as np

        return np.stack(rows), Usage(calls=len(texts), prompt_tokens=tokens), 0

    def _load(self) -> Any:
        file = self.weights()
        share_cores()
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(file.parent / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return TiledBert(load_file(file), tokenizer)


class TiledBert:
    """The forward pass of a BERT of MiniLM's size, mean-pooled, over texts of any lengths."""

    def __init__(self, weights: dict[str, Any], tokenizer: Any) -> None:
        import torch

        self.tokenizer = tokenizer
        first = weights["embeddings.word_embeddings.weight"]
        # Token types are all 0; positions are added once for all.
        self.words = first
        self.places = (
            weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
        )
        self.norm = weights["embeddings.LayerNorm.weight"], weights["embeddings.LayerNorm.bias"]
        self.layers = []
        for number in range(LAYERS):
            at = f"encoder.layer.{number}."

            def linear(*names: str, at: str = at) -> tuple[Any, Any]:
                parts = [(weights[f"{at}{name}.weight"], weights[f"{at}{name}.bias"]) for name in names]
                return torch.cat([w for w, _ in parts]).t().contiguous(), torch.cat([b for _, b in parts])

            norms = [
                (weights[f"{at}{name}.LayerNorm.weight"], weights[f"{at}{name}.LayerNorm.bias"])
                for name in ("attention.output", "output")
            ]
            self.layers.append(
                (
                    linear(*(f"attention.self.{name}" for name in ("query", "key", "value"))),
                    linear("attention.output.dense"),
                    linear("intermediate.dense"),
                    linear("output.dense"),
                    *norms,
                )
            )

    def count(self, texts: list[str]) -> int:
        return sum(len(each.ids) for each in self.tokenizer.encode_batch(texts))

    def embed(self, texts: list[str]) -> Any:
        """float32 (len(texts), 384), unit rows."""
        import torch
        import torch.nn.functional as F

        ids = [each.ids for each in self.tokenizer.encode_batch(texts)]
        ids = [each if len(each) <= LONGEST else [*each[: LONGEST - 1], each[-1]] for each in ids]
        groups = defaultdict(list)  # by length in tiles: those of one length share a call of attention
        for place, each in enumerate(ids):
            groups[-(-len(each) // TILE)].append(place)
        order = [place for length in sorted(groups) for place in groups[length]]
        spans, masks, tokens, at = [], [], [], 0
        with torch.inference_mode():
            for length in sorted(groups):
                n, wide = len(groups[length]), length * TILE
                padded = torch.zeros((n, wide), dtype=torch.long)
                mask = torch.full((n, 1, 1, wide), -torch.inf)
                for row, place in enumerate(groups[length]):
                    padded[row, : len(ids[place])] = torch.tensor(ids[place])
                    mask[row, 0, 0, : len(ids[place])] = 0
                tokens.append((self.words[padded] + self.places[:wide]).reshape(-1, self.words.shape[1]))
                spans.append((at, at + n * wide, n, wide))
                masks.append(mask)
                at += n * wide
            x = F.layer_norm(torch.cat(tokens), self.norm[0].shape, *self.norm, EPSILON)
            for qkv, out, inner, outer, norm_1, norm_2 in self.layers:
                x = F.layer_norm(
                    x + _tiled(self._attention(_tiled(x, qkv), spans, masks), out), norm_1[0].shape, *norm_1, EPSILON
                )
                x = F.layer_norm(x + _tiled(F.gelu(_tiled(x, inner)), outer), norm_2[0].shape, *norm_2, EPSILON)
            rows = []
            for (start, end, n, wide), mask in zip(spans, masks, strict=True):
                kept = (mask.reshape(n, wide, 1) == 0).float()
                rows.append((x[start:end].reshape(n, wide, -1) * kept).sum(1) / kept.sum(1))
            found = F.normalize(torch.cat(rows), dim=1)
            back = torch.empty(len(order), dtype=torch.long)
            back[torch.tensor(order)] = torch.arange(len(order))
            return found[back].numpy()

    def _attention(self, qkv: Any, spans: list[tuple[int, int, int, int]], masks: list[Any]) -> Any:
        import torch
        import torch.nn.functional as F

        parts = []
        for (start, end, n, wide), mask in zip(spans, masks, strict=True):
            q, k, v = qkv[start:end].reshape(n, wide, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            parts.append(seen.transpose(1, 2).reshape(n * wide, -1))
        return torch.cat(parts)

    def check(self) -> bool:
        """Whether texts have the same bits alone and together on this machine."""
        together = self.embed(list(PROBES))
        return all((self.embed([text])[0] == row).all() for text, row in zip(PROBES, together, strict=True))


def _tiled(x: Any, linear: tuple[Any, Any]) -> Any:
    import torch

    weight, bias = linear
    tiles = x.reshape(-1, TILE, weight.shape[0])
    return torch.baddbmm(bias, tiles, weight.expand(len(tiles), -1, -1)).reshape(len(x), -1)
