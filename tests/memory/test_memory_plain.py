"""With everything off the bank is the paper's: what is recorded and retrieved follows from the episodes alone."""

from __future__ import annotations

import numpy as np
from conftest import TOY, read_json, read_rows

from core.models.embedding import HashingEmbedder

RECORD = (
    "id original_query items source_trajectory_id score outcome label_source task_id namespace tick status".split()
)  # what an episode's record has held since the first version, in this order; behind it stands where it comes from


def test_records_and_retrievals_are_those_of_a_plain_list(here):
    """The nearest query by cosine, rounded to 6 digits, ties to the oldest, never the task's own; nothing else."""
    run_dir, _ = here(*TOY, "retrieval.top_k=3")
    embed, known = HashingEmbedder().embed, []
    for row in read_rows(run_dir):
        [query] = embed([row["query"]])
        others = [(record, vector) for record, vector in known if record["task_id"] != row["task_id"]]
        scored = [(-round(float(np.dot(vector, query)), 6), place) for place, (_, vector) in enumerate(others)]
        expected = [
            {"id": others[place][0]["id"], "score": -score, "n_items": 1, "n_shown": 1}
            for score, place in sorted(scored)[:3]
        ]
        assert row["retrieved"] == expected
        for record in row["records"]:
            assert list(record) == [*RECORD, "provenance"]
            assert record["provenance"] == {"attempts": [0], "evidence": None}
            known.append((record, embed([record["original_query"]])[0]))
    assert len(known) > 30


def test_the_plain_bank_holds_what_the_episodes_taught_and_nothing_else(here):
    from core.memory.bank import MemoryBank
    from core.memory.policies.cosine import Cosine
    from core.run.records import records_of

    run_dir, _ = here(*TOY)
    bank = MemoryBank(path=str(run_dir / "bank.sqlite"), embedder=HashingEmbedder(), policy=Cosine(), read_only=True)
    kept = bank.records()
    bank.close()
    taught = [record for row in read_rows(run_dir) for record in records_of(row)]
    models = dict.fromkeys(("agent", "judge", "extractor", "selector"), "scripted")
    written = {"run": read_json(run_dir / "manifest.json")["run"], "models": models, "workflow": "ReasoningBank"}
    own = {"attempts": [0], "evidence": None}
    assert all(record.provenance == written | own and record.created_at for record in kept)
    plain = {"query_embedding": (), "created_at": "", "provenance": own}
    assert [vars(record) | plain for record in kept] == [vars(record) for record in taught]
