"""core/concurrency.py: what a call that fails costs, and which results come together."""

from __future__ import annotations

import threading
import time

import pytest

from core.concurrency import ordered_groups, ordered_map


def test_an_error_drops_the_calls_that_have_not_begun():
    begun = []

    def call(number):
        begun.append(number)
        time.sleep(0 if number == 0 else 0.1)
        return 1 / number

    with pytest.raises(ZeroDivisionError):
        list(ordered_map(call, range(100), 2))
    assert len(begun) <= 4  # the first, and those that were in flight then


def test_results_that_are_there_come_together_up_to_one_that_failed():
    left = threading.Barrier(5)

    def call(number):
        left.wait(30)
        time.sleep(0.5 if number == 0 else 0)
        return 1 / (number - 3)

    groups = ordered_groups(call, range(5), 5)
    assert next(groups) == [1 / -3, 1 / -2, 1 / -1]
    with pytest.raises(ZeroDivisionError):
        next(groups)
