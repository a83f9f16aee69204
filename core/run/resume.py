"""The bank is a fold over the episodes: bring it up to the records after a crash."""

from __future__ import annotations

from typing import Any

from core.errors import UserError
from core.run.records import records_of, shown_in


def restore(bank: Any, rows: list[dict], *, exclusive: bool) -> int:
    """Add what the episodes taught and the bank has lost; returns how many records that were.

    exclusive: the bank belongs to this run alone, so a record that no episode knows is an error (UserError).
    """
    if bank.read_only:
        return 0
    known = bank.ids()
    foreign = known - {record.id for row in rows for record in records_of(row)}
    foreign = {id for id in foreign if not bank.get(id).parents}  # the bank makes merged records itself
    if exclusive and foreign:
        raise UserError(
            f"the bank {bank.path} holds {len(foreign)} records that its episodes.jsonl does not: "
            "was episodes.jsonl removed? Give another run_dir, or memory.path=BANK to build on this bank."
        )
    n_lost = 0
    for row in rows:  # in the order of the run: what an episode taught depends on what was there, and on no more
        for record in records_of(row):
            if record.id not in known:
                bank.add(record, shown=shown_in(row))
                n_lost += 1
        bank.learn(row)
    bank.learn(None)  # a round that was cut off
    return n_lost
