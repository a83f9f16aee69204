"""The thread that learns from the attempts in the bank's queue; one process at a time does so."""

from __future__ import annotations

import logging
import threading

from core.errors import InfraError, OverBudget, StopRun, TransientError, UserError
from core.memory.store.contract import Busy
from core.memory.store.jobs import TRIES, Job
from mcp_server.extraction import learn_attempt
from mcp_server.service import Service

POLL_S = 2.0  # between looks at the queue: other processes put attempts there too
RETRY_S = 30.0  # before another try where the provider could not be reached

log = logging.getLogger(__name__)


class QueueWorker:
    """Runs while the server does. Attempts that it leaves in the queue are for the next server on the bank."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="extraction", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look at the queue now: something was added to it."""
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
                pause = self._work()
            except UserError as error:  # the bank itself: a full disk, a damaged file
                log.error(f"the queue cannot be worked on: {error}")
            except Exception:
                log.exception("the queue cannot be worked on")
            # A provider that could not be reached is given its time, even when something new is queued meanwhile.
            (self._wake if pause == POLL_S else self._stop).wait(pause)
            self._wake.clear()

    def _work(self) -> float:
        """Learn from the attempts that wait, oldest first; returns how many seconds to pause."""
        jobs = self.service.jobs
        if not jobs.waiting() or not jobs.lead():
            return POLL_S
        try:
            while not self._stop.is_set():
                if not jobs.leads():
                    log.warning("the queue's lock was lost, and another server may have it: it is asked for again")
                    break
                if (job := jobs.next()) is None:
                    break
                if not self._finish(job):
                    return RETRY_S
        finally:
            jobs.leave()
        return POLL_S

    def _finish(self, job: Job) -> bool:
        """Learn from one attempt; False when it stays in the queue for a later try."""
        try:
            bank = self.service.bank.of(job.namespace)
            result = learn_attempt(self.service, bank, job.id, job.payload)
            self.service.jobs.end(job.id, "completed", result)
        except (UserError, InfraError) as error:
            why = self.service.redact(str(error))
            # A key, the provider, a bank that others write to or the budget of all: no attempt could succeed now.
            if isinstance(error, StopRun | Busy) or (isinstance(error, OverBudget) and error.whole_run):
                log.warning(f"extraction {job.id} and those after it wait: {why}")
                self.service.jobs.back(job.id, why)
                return False
            if isinstance(error, TransientError) and job.tries + 1 < TRIES:
                log.warning(f"extraction {job.id} is tried again: {why}")
                return False
        except Exception as error:
            log.exception(f"extraction {job.id} failed")
            why = f"{type(error).__name__} in the server, see its log"
        else:
            return True
        self.service.jobs.end(job.id, "failed", {"error": why[:2000]})
        return True
