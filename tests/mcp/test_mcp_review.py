"""A server whose lessons wait for a person, and one that takes no lessons from pages that its clients have read."""

from __future__ import annotations

from mcp_kit import MODEL, here, lessons_in, served

from core.memory.__main__ import main as memory_command
from mcp_server.tools import MemoryTools

TASK = {"query": "make the parser accept empty files"}


def test_a_lesson_that_a_client_saved_waits_for_a_person(tmp_path, capsys):
    path = tmp_path / "b.sqlite"
    turns = [{"role": "assistant", "content": "I add a check."}, {"role": "tool", "content": "passed"}]
    with served(path, *MODEL, "memory.hygiene.review=true") as (client, service):

        def found():
            return [lesson["id"] for lesson in lessons_in(client.ask("retrieve_memory", **TASK, top_k=5))]

        saved = client.ask("save_lesson", **TASK, title="Check first", content="Check for an empty file.")
        client.ask("extract_memory", **TASK, trajectory=turns, success_signal=True, async_mode=False)
        assert saved["status"] == "quarantined" and found() == []
        assert memory_command(["review", str(path), "--approve", saved["memory_id"]]) == 0  # meanwhile, beside it
        assert found() == [saved["memory_id"][:8]]
        waiting = [r.provenance["quarantine"] for r in service.bank.records(status="quarantined")]
    release = f"`reasoningbank bank review {path} --approve {saved['memory_id']}` releases it."
    assert saved["note"] == f"Nobody is shown it: each new lesson waits for a person (memory.hygiene.review); {release}"
    assert waiting == [["review"]]  # the extracted one
    capsys.readouterr()
    assert memory_command(["review", str(path)]) == 0
    listed = capsys.readouterr().out
    assert "Check for empty input first" in listed and f"bank review {path} --approve" in listed


def test_what_a_client_read_on_a_page_is_not_learned(tmp_path):
    page = "Handle an empty file before the loop over its lines, says this page."
    with served(tmp_path / "b.sqlite", *MODEL, "memory.hygiene.foreign=[https]") as (client, service):
        for number, action in enumerate(("I open https://parser.example/faq", "I run the tests")):
            turns = [{"role": "assistant", "content": action}, {"role": "tool", "content": page}]
            how = {"trajectory": turns, "success_signal": True, "async_mode": False}
            client.ask("extract_memory", query=f"{TASK['query']} {number}", **how)
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
