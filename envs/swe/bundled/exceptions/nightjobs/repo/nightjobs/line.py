"""The line of jobs."""

from collections import deque

from nightjobs.jobs import Job


class Line:
    def __init__(self, kinds):
        self.kinds = kinds
        self.waiting = deque()
        self.done = []

    def add(self, kind, **args):
        """Joins the line at its end."""
        job = Job(kind, args)
        self.kinds.function(job)
        self.waiting.append(job)
        return job

    def run_next(self):
        """Does the job whose turn it is; what it returned, None if nobody waits."""
        if not self.waiting:
            return None
        job = self.waiting.popleft()
        result = self.kinds.function(job)(**job.args)
        self.done.append((job, result))
        return result

    def run_all(self):
        """Does all that wait, how many they were."""
        count = 0
        while self.waiting:
            self.run_next()
            count += 1
        return count
