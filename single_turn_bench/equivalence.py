r"""Whether two mathematical answers are the same: text and exact numbers here, everything else in a worker process.

    with MathGrader() as grader:
        grader.equal(r"\sqrt{12}", r"2\sqrt3")   # True

A worker is started on first use, or by `prepare`; it is killed when an answer takes longer than `timeout_s`, and
started again by the next answer that needs it. What could not be decided in time is a wrong answer, and is counted.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial

from core.errors import InfraError, UserError
from core.process import OURS, WorkerPool, WorkerProcess, WorkerTimeout
from single_turn_bench.answers import extract_answer, gold_answer
from single_turn_bench.notation import MAX_CHARS, normalize
from single_turn_bench.scan import MAX_DEPTH, deepest
from single_turn_bench.structure import equivalent, squash
from single_turn_bench.worker import ValueComparer

START_S = 120.0  # for the worker's imports on a busy machine; not part of an answer's limit


@dataclass
class TimeLeft:
    """Worker seconds that one answer has left; waiting for other threads and for a start does not count."""

    seconds: float


@dataclass(kw_only=True)
class MathGrader(AbstractContextManager):
    """Usable from many threads, which share its workers.

    timeout_s   seconds that one call of `equal` may take, a worker's start and the wait for one not counted
    """

    timeout_s: float = 5.0
    n_timeouts: int = field(default=0, init=False)
    n_restarts: int = field(default=0, init=False)  # after a timeout, or when a worker was killed during a call
    workers: WorkerPool = field(init=False, repr=False)
    _prepared: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self.workers = WorkerPool(partial(WorkerProcess, factory=ValueComparer, timeout_s=START_S, path=OURS))

    def equal(self, pred: str | None, gold: str, timeout_s: float | None = None) -> bool:
        """Whether the two answers are mathematically the same. Never raises because of what they hold.

        timeout_s   None: the grader's
        """
        if not pred or not gold or "\x00" in pred:
            return False
        p, g = normalize(pred), normalize(gold)
        if p and squash(p) == squash(g):
            return True
        if max(len(p), len(g)) > MAX_CHARS or max(deepest(p), deepest(g)) > MAX_DEPTH:
            return False
        left = TimeLeft(self.timeout_s if timeout_s is None else timeout_s)
        try:
            return equivalent(p, g, cache(lambda a, b: self._ask(a, b, left)))  # no pair is asked about twice
        except WorkerTimeout:
            return False

    def prepare(self) -> None:
        """Start a worker in the background, once; what goes wrong there is told by the answer that needs one."""
        if not self._prepared:
            self._prepared = True
            threading.Thread(target=self._prepare, daemon=True).start()

    def close(self) -> None:
        """End the workers. The grader may be used again: the next answer that needs a worker starts one."""
        self.workers.close()

    def __exit__(self, *_exc) -> None:
        self.close()

    def _ask(self, pred: str, gold: str, left: TimeLeft) -> bool:
        """One pair to a worker; to a second one if the first dies of it, as it may have been killed from outside."""
        for _ in range(2):
            with self._worker() as worker:
                begun = time.monotonic()
                try:
                    return worker.call("equal", pred, gold, left.seconds + 1, timeout_s=left.seconds)
                except WorkerTimeout:
                    self.n_timeouts += 1
                    self.n_restarts += 1
                    raise
                except InfraError:
                    self.n_restarts += 1
                finally:
                    left.seconds -= time.monotonic() - begun
        return False

    def _prepare(self) -> None:
        with suppress(InfraError, UserError), self.workers.lease():
            pass

    @contextmanager
    def _worker(self) -> Iterator[WorkerProcess]:
        with ExitStack() as stack:
            try:
                worker = stack.enter_context(self.workers.lease())
            except InfraError as error:
                message = "The grading worker did not start: check that `pip install math-verify` is done."
                raise UserError(message) from error
            yield worker


def grade_response(response: str | None, gold: str, grader: MathGrader) -> bool:
    """Whether the final answer of a response is the gold answer, which may stand in a whole solution itself."""
    if not response:
        return False
    if squash(normalize(response)) == squash(normalize(gold)) != "":
        return True
    answer = extract_answer(response).answer
    return answer is not None and grader.equal(answer, gold_answer(gold))


def grade_math(response: str, gold: str) -> bool:
    """`grade_response` with the program's own grader (`shared_grader`)."""
    return grade_response(response, gold, shared_grader())


@cache
def shared_grader() -> MathGrader:
    """The program's one grader, whoever grades; it is closed when the program ends."""
    grader = MathGrader()
    atexit.register(grader.close)
    return grader
