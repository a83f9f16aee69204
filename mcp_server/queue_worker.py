"""The thread that works on the bank's queue of attempts, when no other process does."""

from __future__ import annotations

import logging
import threading

from core.errors import InfraError, OverBudget, StopRun, TransientError, UserError
from core.memory.jobs import TRIES, Job
from mcp_server.extraction import AttemptLearner
from mcp_server.service import Service

POLL_S = 2.0  # between looks at the queue: other processes put attempts there too
AGAIN_S = 30.0  # before another try where the provider was not to be reached

log = logging.getLogger(__name__)


class QueueWorker:
    """Runs while the server does. What it has not finished, the next one does."""

    def __init__(self, service: Service, extraction: AttemptLearner) -> None:
        self.service, self.extraction = service, extraction
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="extraction", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There is something new in the queue."""
        self._wake.set()

    def close(self) -> bool:
        """Stop after the attempt at hand; False when that takes longer than a client waits."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = POLL_S
            try:
                pause = self._drain()
            except UserError as error:  # the bank itself: a full disk, a damaged file
                log.error(f"the queue cannot be worked on: {error}")
            except Exception:
                log.exception("the queue cannot be worked on")
            # What is new in the queue does not bring a provider back that is away.
            (self._wake if pause == POLL_S else self._stop).wait(pause)
            self._wake.clear()

    def _drain(self) -> float:
        """Do what waits, oldest first; returns how long to pause."""
        jobs = self.service.jobs
        if not jobs.waiting() or not jobs.lead():
            return POLL_S
        try:
            while not self._stop.is_set() and (job := jobs.next()) is not None:
                if not self._do(job):
                    return AGAIN_S
        finally:
            jobs.leave()
        return POLL_S

    def _do(self, job: Job) -> bool:
        """One attempt; False when it stays in the queue for a later try."""
        try:
            bank = self.service.bank.of(job.namespace)
            result = self.extraction.learn(bank, job.id, job.payload)
            self.service.jobs.end(job.id, "completed", result)
        except StopRun as error:  # a key, the provider: nothing in the queue could succeed
            return self._wait(job, error)
        except OverBudget as error:
            if error.whole_run:
                return self._wait(job, error)
            self._fail(job, str(error))  # this attempt alone costs more than it may
        except TransientError as error:
            if job.tries + 1 < TRIES:
                log.warning(f"extraction {job.id} is tried again: {error}")
                return False
            self._fail(job, str(error))
        except (UserError, InfraError) as error:
            self._fail(job, str(error))
        except Exception as error:
            log.exception(f"extraction {job.id} failed")
            self._fail(job, f"{type(error).__name__} in the server, see its log")
        return True

    def _wait(self, job: Job, error: Exception) -> bool:
        log.warning(f"extraction {job.id} and what comes after it waits: {error}")
        self.service.jobs.back(job.id, f"{error}")
        return False

    def _fail(self, job: Job, why: str) -> None:
        self.service.jobs.end(job.id, "failed", {"error": why[:2000]})
