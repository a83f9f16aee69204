"""A run's name follows from its whole configuration."""

from __future__ import annotations

import pytest
from conftest import TOY

from core.run.launch import run_name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("arm=reasoningbank", "reasoningbank"),
        ("arm=reasoningbank memory=synapse", "reasoningbank memory=synapse"),
        ("arm=reasoningbank retrieval=random", "reasoningbank retrieval=random"),
        ("arm=reasoningbank retrieval.top_k=4", "reasoningbank retrieval.top_k=4"),
        ("arm=reasoningbank +distiller.style=quote", "reasoningbank distiller.style=quote"),
        ("arm=reasoningbank setting=frozen", "reasoningbank setting=frozen"),
        ("arm=matts_parallel select=first", "matts_parallel select=first"),
        ("arm=matts_parallel contrast.labels=judge", "matts_parallel contrast.labels=judge"),
        ("arm=matts_parallel k=3", "matts_parallel"),
        ("arm=no_memory workflow=reasoningbank", "no_memory workflow=reasoningbank"),
        ("arm=reasoningbank retrieval.top_k=1", "reasoningbank"),
        ("arm=no_memory retrieval=random judge=heuristic select=first", "no_memory"),
        ("arm=matts_parallel_k5 k=3", "matts_parallel_k5 k=3"),
        ("arm=reasoningbank retrieval=hybrid retrieval.top_k=3", "reasoningbank retrieval=hybrid retrieval.top_k=3"),
        ("arm=reasoningbank stream.batch=4 memory.consolidate=null", "reasoningbank stream.batch=4"),
        ("arm=reasoningbank setting=frozen memory.path=/b.sqlite", "reasoningbank setting=frozen"),
        ("arm=matts_parallel experiment=ab", "matts_parallel"),
        ("arm=reasoningbank prompts.memory_block=plain", "reasoningbank prompts.memory_block=plain"),
        ("arm=reasoningbank details=authors_release", "reasoningbank details=authors_release"),
        ("workflow=reasoningbank memory=synapse", "reasoningbank memory=synapse"),
    ],
)
def test_what_departs_from_the_arm_is_named(compose, words, name):
    assert str(run_name(compose(*TOY, *words.split()))) == name
