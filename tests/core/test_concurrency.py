"""core/concurrency.py: what a call that fails costs."""

from __future__ import annotations

import time

import pytest

from core.concurrency import ordered_map


def test_an_error_drops_the_calls_that_have_not_begun():
    begun = []

    def call(number):
        begun.append(number)
        time.sleep(0 if number == 0 else 0.1)
        return 1 / number

    with pytest.raises(ZeroDivisionError):
        list(ordered_map(call, range(100), 2))
    assert len(begun) <= 4  # the first, and those that were in flight then
