"""Restore a run's bank from its episodes, after a crash or damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.memory.open import damage_of
from core.memory.protocol import Memory
from core.memory.records import is_altered
from core.run.records import did_in, records_of, shown_in
from core.terminal import say_once


def renew(bank: Path, n_episodes: int, calls: Callable[[], Iterable[dict[str, Any]]]) -> None:
    """Set aside a bank of this run alone if it is damaged: `restore` then makes it again from all episodes.

    A repair would leave a bank between two moments, and the run would go on to other results. Only a bank whose rounds
    asked a model is left to the repair, because they would be paid again.

    calls   reads the rows of the run's calls.jsonl
    """
    if (reason := damage_of(bank)) is None:
        return
    if any(row["role"] == "extractor" and not row["task"] for row in calls()):
        say_once(f"note: the bank {bank} is damaged ({reason}): it is repaired, and may differ from what it was.")
        return
    aside = f"{bank.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
    for file in [file for file in bank.parent.glob(f"{bank.name}*") if ".corrupt-" not in file.name]:
        file.rename(file.with_name(aside + file.name.removeprefix(bank.name)))
    say_once(
        f"note: the bank {bank} is damaged ({reason}): it is set aside as {aside} and made again from "
        f"{n_episodes} episodes."
    )


def check_bank(bank: Memory, rows: list[dict], path: str | Path, *, was_empty: bool) -> None:
    """Raise UserError if a given bank is not the one that a run has written to, wherever that lies by now.

    rows        the episodes whose records must be in the bank
    was_empty   whether the bank held nothing when the run began: a lost one is then made again from the episodes
    """
    made, known = {record.id for row in rows for record in records_of(row)}, bank.ids()
    if made and not made & known and (known or not was_empty):
        raise UserError(
            f"memory.path={path} holds none of the {len(made)} records that this run has added: it is another bank. "
            "Give the run's own, or another run_dir."
        )


def restore(bank: Memory, rows: list[dict], *, own: Path | None) -> int:
    """Add the records of the episodes that the bank lacks; returns their number.

    own   the bank's file, if only this run uses it: UserError if it holds a record that is in no episode; else None

    Raises UserError if a record in the bank holds other lessons than the episode that made it.
    """
    known = bank.ids()
    foreign = known - {record.id for row in rows for record in records_of(row)}
    if own is not None and foreign:
        raise UserError(
            f"the bank {own} holds {len(foreign)} records that its episodes.jsonl does not: "
            "was episodes.jsonl removed? Give another run_dir, or memory.path=BANK to build on this bank."
        )
    made = [record for row in rows for record in records_of(row) if record.id in known]
    if changed := [record.id for record in made if is_altered(bank.get(record.id), record)]:
        raise UserError(
            f"{len(changed)} records in the bank hold other lessons than the episodes that made them ({changed[0]}): "
            "what was run after this would be another run's. Restore the bank, or give another run_dir."
        )
    n_lost = 0
    for row in rows:  # in the run's order: what the bank learns from an episode depends on earlier ones
        for record in records_of(row):
            if record.id not in known:
                bank.add_from(record, did_in(row), shown=shown_in(row))
                n_lost += 1
        bank.learn(row)
    bank.learn(None)  # finish an interrupted consolidation round
    return n_lost
