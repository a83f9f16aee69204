r"""Whether two mathematical answers are the same: text and exact numbers here, everything else in a worker process.

    with MathGrader() as grader:
        grader.equal(r"\sqrt{12}", r"2\sqrt3")   # True

The worker is started on first use, or by `prepare`; it is killed when an answer takes longer than `timeout_s`, and
started again by the next answer that needs it. What could not be decided in time is a wrong answer, and is counted.
"""

from __future__ import annotations

import atexit
import threading
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from core.errors import InfraError, UserError
from core.process import WorkerProcess, WorkerTimeout
from single_turn_bench.answers import extract_answer, gold_answer
from single_turn_bench.notation import MAX_CHARS, normalize
from single_turn_bench.scan import MAX_DEPTH, deepest
from single_turn_bench.structure import equivalent, squash
from single_turn_bench.worker import ValueComparer

ROOT = Path(__file__).resolve().parent.parent
START_S = 120.0  # for the worker's imports on a busy machine; not part of an answer's limit


@dataclass
class TimeLeft:
    """Worker seconds that one answer has left; waiting for other threads and for a start does not count."""

    seconds: float


@dataclass(kw_only=True)
class MathGrader(AbstractContextManager):
    """Usable from several threads: one answer at a time is with the worker.

    timeout_s   seconds that one call of `equal` may take, the worker's start not counted
    """

    timeout_s: float = 5.0
    n_timeouts: int = field(default=0, init=False)
    n_restarts: int = field(default=0, init=False)  # after a timeout, or when the worker was killed from outside
    _worker: WorkerProcess = field(init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _prepared: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        # its path is not ours: the folder of the program or the working directory must not stand in for libraries
        factory = partial(ValueComparer, self.timeout_s + 1)
        self._worker = WorkerProcess(factory=factory, timeout_s=START_S, path=[str(ROOT)])

    def equal(self, pred: str | None, gold: str) -> bool:
        """Whether the two answers are mathematically the same. Never raises because of what they hold."""
        if not pred or not gold or "\x00" in pred:
            return False
        p, g = normalize(pred), normalize(gold)
        if p and squash(p) == squash(g):
            return True
        if max(len(p), len(g)) > MAX_CHARS or max(deepest(p), deepest(g)) > MAX_DEPTH:
            return False
        left = TimeLeft(self.timeout_s)
        try:
            return equivalent(p, g, cache(lambda a, b: self._ask(a, b, left)))  # no pair is asked about twice
        except WorkerTimeout:
            return False

    def prepare(self) -> None:
        """Start the worker in the background, once; what goes wrong there is told by the answer that needs it."""
        if not self._prepared:
            self._prepared = True
            threading.Thread(target=self._prepare, daemon=True).start()

    def close(self) -> None:
        """End the worker. The grader may be used again: the next answer that needs a worker starts one."""
        self._worker.abort()  # it may be starting, which holds the lock
        with self._lock:
            self._worker.kill()

    def __exit__(self, *_exc) -> None:
        self.close()

    def _ask(self, pred: str, gold: str, left: TimeLeft) -> bool:
        """One pair to the worker. A worker found dead is replaced once: it may have been killed while idle."""
        with self._lock:
            for _ in range(2):
                if self._worker.pid is None:
                    self._start()
                begun = time.monotonic()
                try:
                    return self._worker.call("equal", pred, gold, timeout_s=left.seconds)
                except WorkerTimeout:
                    self.n_timeouts += 1
                    self.n_restarts += 1
                    raise
                except InfraError:  # it was dead, or died of this pair
                    self.n_restarts += 1
                finally:
                    left.seconds -= time.monotonic() - begun
        return False

    def _prepare(self) -> None:
        with self._lock, suppress(InfraError, UserError):
            self._worker.start()

    def _start(self) -> None:
        try:
            self._worker.start()
        except InfraError as error:
            message = "The grading worker did not start: check that `pip install math-verify` is done."
            raise UserError(message) from error


def grade_response(response: str | None, gold: str, grader: MathGrader) -> bool:
    """Whether the final answer of a response is the gold answer, which may stand in a whole solution itself."""
    if not response:
        return False
    if squash(normalize(response)) == squash(normalize(gold)) != "":
        return True
    answer = extract_answer(response).answer
    return answer is not None and grader.equal(answer, gold_answer(gold))


def grade_math(response: str, gold: str) -> bool:
    """`grade_response` with a grader of the program's own, whose worker is started when one is needed."""
    return grade_response(response, gold, shared_grader())


@cache
def shared_grader() -> MathGrader:
    """The one grader behind grade_math, closed when the program ends."""
    grader = MathGrader()
    atexit.register(grader.close)
    return grader
