class JobError(Exception):
    """A job that cannot be done; `job` is the one."""

    def __init__(self, message, job=None):
        super().__init__(message)
        self.job = job
