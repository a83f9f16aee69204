"""What hygiene held back of a record or changed in it, as sentences: what, why, and how to get it through."""

from __future__ import annotations

from core.types import MemoryRecord

# Why a record is quarantined, by the names in its provenance["quarantine"].
_HELD = {
    "review": "each new lesson waits for a person (memory.hygiene.review)",
    "provenance": "it names an address, package, command or credential that its attempt did not use",
    "foreign": "it repeats what its attempt read (memory.hygiene.foreign)",
    "max_per_source": "its source has all the lessons that memory.hygiene.max_per_source allows",
    "classifier": "the classifier calls it harmful",
    "opinion": "the model that was asked calls it harmful",
    "lineage": "it was merged from one that is held back",
}
# What was changed, by the names in its provenance["hygiene"]; others are kinds of personal data.
_CHANGED = {
    "secret": "A credential was taken out: write which variable or file holds it instead.",
    "cut": "A text over the limit of memory.hygiene was cut: save the rest as a lesson of its own.",
    "hidden": "Characters that nobody sees were taken out.",
    "stripped": "What repeats a lesson that fits this task was left out: say it in other words if it belongs here.",
}


def told(record: MemoryRecord, bank: str = "BANK") -> str:
    """All that was held back of a stored record or changed in it; "" where nothing was. bank: where it lies."""
    notes = [name for name in record.provenance.get("hygiene", ()) if not name.startswith("no ")]
    said = [_CHANGED[name] for name in notes if name in _CHANGED]
    if personal := [name for name in notes if name not in _CHANGED]:
        said.append(f"Personal data was taken out ({', '.join(personal)}): memory.redact=secrets keeps it.")
    if record.status == "quarantined":
        why = ", and ".join(_HELD.get(name) or name for name in record.provenance.get("quarantine", ()))
        tenant = "" if record.namespace == "default" else f" --namespace {record.namespace}"
        release = f"`reasoningbank bank review {bank} --approve {record.id}{tenant}`"
        said.append(f"Nobody is shown it: {why or 'a person set it aside'}; {release} releases it.")
    return " ".join(said)
