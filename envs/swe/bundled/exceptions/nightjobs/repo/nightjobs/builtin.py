"""Kinds for everybody."""

from pathlib import Path

from nightjobs.jobs import Kinds

KINDS = Kinds()


@KINDS.register
def average(numbers):
    return sum(numbers) / len(numbers)


@KINDS.register
def line_count(path):
    return len(Path(path).read_text(encoding="utf-8").splitlines())
