"""A server whose lessons wait for a person, and one that takes no lessons from pages that its clients have read."""

from __future__ import annotations

from mcp.client.client import Client
from mcp_kit import MODEL, ask, here, lessons_in, run

from core.memory.__main__ import main as memory_command
from mcp_server.tools import MemoryTools

TASK = {"query": "make the parser accept empty files"}


async def ids_found(client):
    found = await ask(client, "retrieve_memory", **TASK, top_k=5)
    return [lesson["id"] for lesson in lessons_in(found)]


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
    assert (saved["status"], before) == ("quarantined", [])
    release = f"`reasoningbank bank review {path} --approve {saved['memory_id']}` releases it."
    assert saved["note"] == f"Nobody is shown it: each new lesson waits for a person (memory.hygiene.review); {release}"
    assert len(after) == 1 and saved["memory_id"].startswith(after[0])
    assert waiting == [["review"]]  # the extracted one
    capsys.readouterr()
    assert memory_command(["review", str(path)]) == 0
    listed = capsys.readouterr().out
    assert "Check for empty input first" in listed and f"bank review {path} --approve" in listed


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


def test_a_note_says_what_was_taken_out_or_cut_and_tells_a_tenant_no_path(tmp_path):
    lesson = {"title": "Whom to ask", "content": f"Ask ann@kestrel.io for the key. {'Then wait for it. ' * 9}"}
    words = ("memory.redact=personal", "memory.hygiene.max_content=60", "memory.hygiene.review=true")
    with here(tmp_path / "b.sqlite", *words) as (_, service):
        service.bind_agents()
        service.caller.set("ann")
        saved = MemoryTools(service).save_lesson(**TASK, **lesson).structured_content
    assert saved["note"] == (
        "A text over the limit of memory.hygiene was cut: save the rest as a lesson of its own. "
        "Personal data was taken out (email): memory.redact=secrets keeps it. "
        "Nobody is shown it: each new lesson waits for a person (memory.hygiene.review); "
        f"`reasoningbank bank review BANK --approve {saved['memory_id']} --namespace ann` releases it."
    )
