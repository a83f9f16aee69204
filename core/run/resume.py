"""Bring the bank up to date with episodes.jsonl after a crash."""

from __future__ import annotations

from pathlib import Path

from core.errors import UserError
from core.memory.protocol import Memory
from core.run.records import did_in, records_of, shown_in


def restore(bank: Memory, rows: list[dict], *, own: Path | None) -> int:
    """Add the records of the episodes that the bank lacks; returns how many they were.

    own   the bank's file, where it belongs to this run alone; UserError when it then holds a record of no episode
    """
    known = bank.ids()
    foreign = known - {record.id for row in rows for record in records_of(row)}
    if own is not None and foreign:
        raise UserError(
            f"the bank {own} holds {len(foreign)} records that its episodes.jsonl does not: "
            "was episodes.jsonl removed? Give another run_dir, or memory.path=BANK to build on this bank."
        )
    n_lost = 0
    for row in rows:  # in the order of the run, because what an episode teaches depends on those before it
        for record in records_of(row):
            if record.id not in known:
                bank.add_from(record, did_in(row), shown=shown_in(row))
                n_lost += 1
        bank.learn(row)
    bank.learn(None)  # finishes a round that was cut off
    return n_lost
