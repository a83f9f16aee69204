"""A job is a kind and its arguments; a kind is a function."""

from dataclasses import dataclass, field
from typing import Any

from nightjobs.problems import JobError


@dataclass(frozen=True)
class Job:
    kind: str
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self):
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in self.args.items())})"


class Kinds:
    def __init__(self):
        self.functions = {}

    def register(self, function):
        if function.__name__ in self.functions:
            raise JobError(f"there is a kind {function.__name__} already")
        self.functions[function.__name__] = function
        return function

    def function(self, job):
        try:
            return self.functions[job.kind]
        except KeyError as missing:
            raise JobError(f"no kind {job.kind}", job) from missing
