"""A run's name follows from its whole configuration."""

from __future__ import annotations

import pytest
from conftest import TOY

from core.run.launch import run_name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("arm=reasoningbank", "reasoningbank"),
        ("arm=reasoningbank memory=synapse", "synapse"),
        ("arm=reasoningbank retrieval=random", "random_retrieval"),
        ("arm=reasoningbank retrieval.top_k=4", "reasoningbank retrieval.top_k=4"),
        ("arm=reasoningbank +distiller.style=quote", "quote"),
        ("arm=reasoningbank setting=frozen", "reasoningbank setting=frozen"),
        ("arm=matts_parallel select=first", "matts_parallel select=first"),
        ("arm=matts_parallel contrast.labels=judge", "matts_parallel contrast.labels=judge"),
        ("arm=matts_parallel k=3", "matts_parallel"),
        ("arm=no_memory workflow=reasoningbank", "reasoningbank"),
        ("workflow=reasoningbank memory=synapse", "synapse"),
    ],
)
def test_what_departs_from_the_arm_is_named_or_the_run_is_the_arm_that_it_is(compose, words, name):
    assert str(run_name(compose(*TOY, *words.split()))) == name
