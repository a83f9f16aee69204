"""A server whose lessons wait for a person, and one that takes no lessons from pages that its clients have read."""

from __future__ import annotations

from mcp.client.client import Client
from mcp_kit import MODEL, ask, here, run

from core.memory.__main__ import main as memory_command

TASK = {"query": "make the parser accept empty files"}


async def ids_found(client):
    found = await ask(client, "retrieve_memory", **TASK, top_k=5)
    return [memory["memory_id"] for memory in found["memories"]]


def test_a_lesson_that_a_client_saved_waits_for_a_person(tmp_path, capsys):
    path = tmp_path / "b.sqlite"

    async def go(server):
        async with Client(server) as client:
            saved = await ask(client, "save_lesson", **TASK, title="Check first", content="Check for an empty file.")
            extracted = await ask(
                client,
                "extract_memory",
                **TASK,
                trajectory=[{"role": "assistant", "content": "I add a check."}, {"role": "tool", "content": "passed"}],
                success_signal=True,
                async_mode=False,
            )
            before = await ids_found(client)
            assert memory_command(["review", str(path), "--approve", saved["memory_id"]]) == 0  # meanwhile, beside it
            return saved, extracted, before, await ids_found(client)

    with here(path, *MODEL, "memory.hygiene.review=true") as (server, service):
        saved, _, before, after = run(go(server))
        waiting = [r.provenance["quarantine"] for r in service.bank.records(status="quarantined")]
    assert (saved["status"], saved["why"], before) == ("quarantined", ["review"], [])
    assert len(after) == 1 and after[0].startswith(saved["memory_id"])
    assert waiting == [["review"]]  # the extracted one
    capsys.readouterr()
    assert memory_command(["review", str(path)]) == 0
    assert "Check for empty input first" in capsys.readouterr().out


def test_what_a_client_read_on_a_page_is_not_learned(tmp_path):
    page = "Handle an empty file before the loop over its lines, says this page."

    async def go(server):
        async with Client(server) as client:
            for number, action in enumerate(("I open https://parser.example/faq", "I run the tests")):
                turns = [{"role": "assistant", "content": action}, {"role": "tool", "content": page}]
                query = {"query": f"{TASK['query']} {number}"}
                await ask(client, "extract_memory", **query, trajectory=turns, success_signal=True, async_mode=False)

    with here(tmp_path / "b.sqlite", *MODEL, "memory.hygiene.foreign=[https]") as (server, service):
        run(go(server))
        stored = {r.original_query[-1]: r.provenance.get("quarantine") for r in service.bank.records()}
    assert stored == {"0": ["foreign"], "1": None}
