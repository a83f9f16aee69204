"""The rows of the insight memory server (mcp-learning-memory 0.2.1), tried against ours (benchmarks.mcp_parity)."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.mcp_parity_kit import OpenClient, ParityTable, output_of, serving


async def insight(table: ParityTable, folder: Path) -> None:
    """The document of the insight memory server."""
    async with serving("--bank", folder / "insight.sqlite", "--tools", "ace") as server:
        await _insight_tools(table, server)
        id = await _insight_added(table, server)
        other = await _insight_marked(table, server, id)
        await _insight_looked_at(table, server, id, other)
        await _insight_search(table, server)
        await _insight_export(table, server, folder)
    async with serving("--bank", folder / "insight.sqlite", "--tools", "ace") as server:
        listed = await server.ask("list_index")
        table.row("what is stored survives a restart", len(listed.get("insights", [])) >= 2, str(listed)[:200])
    table.differs(
        "data lies in ~/.local/share/ace-flash-memory/memory.json",
        "one SQLite file; theirs is read and written by `python -m core.memory import|export --format insight_memory`",
    )
    bank = folder / "insight.sqlite"
    bank.write_bytes(b"nothing that SQLite could read " * 200)
    async with serving("--bank", bank, "--tools", "ace") as server:
        listed = await server.ask("list_index")
        table.row(
            "a corrupted file is set aside with its time, and the system goes on (with what its journal holds)",
            len(listed.get("insights", [])) >= 2 and list(folder.glob("insight.sqlite.corrupt-*")),
            str(listed)[:300],
        )
    Path(f"{bank}.journal").unlink()
    bank.write_bytes(b"nothing that SQLite could read " * 200)
    said = output_of("--bank", bank, "--tools", "ace")
    table.row("... and with an empty memory where there is no journal", "an empty one takes its place" in said, said)
    table.row("stderr: [INFO] server running", "[INFO] server running" in said, said)
    table.differs("fresh < 7 days: full score", "decays from the first day on, as its own scoring algorithm says")
    table.differs("`node dist/index.js`", "`reasoning-bank-mcp --tools ace`")


async def _insight_tools(table: ParityTable, server: OpenClient) -> None:
    for tool, required, optional in (
        ("add_insight", "title tags content", "overwrite sourceUrl"),
        ("list_index", "", "tags minHelpful sortBy limit"),
        ("get_detail", "id", ""),
        ("mark_helpful", "id", ""),
        ("mark_harmful", "id", ""),
        ("search_insights", "query", "limit"),
        ("delete_insight", "id", ""),
        ("export_memory", "", "format"),
    ):
        arguments = f"{required or 'nothing'} required" + (f"; {optional}" if optional else "")
        table.row(f"`{tool}`: {arguments}", server.takes(tool, required, optional), str(server.tools.get(tool))[:300])
    table.row("eight tools", len(server.tools) == 8, str(list(server.tools)))
    defaults = {name: server.tools["list_index"]["properties"][name].get("default") for name in ("sortBy", "limit")}
    table.row("list_index: lastUsed and 50 by default", defaults == {"sortBy": "lastUsed", "limit": 50}, str(defaults))
    limit = server.tools["search_insights"]["properties"]["limit"].get("default")
    table.row("search_insights: 5 by default", limit == 5, str(limit))


async def _insight_added(table: ParityTable, server: OpenClient) -> str:
    """The id of the insight that was added, then overwritten."""
    add = {
        "title": "React Tips",
        "tags": ["React ", "react"],
        "content": "Use memo for expensive renders. " + "x" * 200,
    }
    made = await server.ask("add_insight", **add, sourceUrl="https://docs.example.com/react")
    id = made.get("id", "")
    table.row("add_insight answers with the id", id, str(made)[:300])
    near = await server.ask("add_insight", **(add | {"title": "react tipz"}))
    table.row(
        "a title fewer than 3 edits away is a duplicate, whatever its case; the existing id is told",
        id and id in str(near),
        str(near)[:300],
    )
    again = await server.ask("add_insight", **(add | {"content": "Updated content " + "y" * 200}), overwrite=True)
    table.row("overwrite=true updates it and keeps its id", again.get("id") == id, str(again)[:300])
    listed = await server.ask("list_index", tags=["REACT"])
    entry = (listed.get("insights") or [{}])[0]
    table.row("tags are normalised, in filters too", entry.get("tags") == ["react"], str(listed)[:300])
    table.row(
        "list_index shows a preview of 100 characters",
        entry.get("preview") == ("Updated content " + "y" * 84)
        or str(entry.get("preview", "")).rstrip(".…") == "Updated content " + "y" * 84,
        str(entry)[:300],
    )
    table.row("a fresh insight's trust is 0", entry.get("trustScore") == 0, str(entry)[:300])
    table.row("the source URL is shown", entry.get("sourceUrl") == "https://docs.example.com/react", str(entry)[:300])
    return id


async def _insight_marked(table: ParityTable, server: OpenClient, id: str) -> str:
    """The id of a second insight, which was marked harmful."""
    marked = await server.ask("mark_helpful", id=id)
    table.row(
        "mark_helpful: trust (1 - 0) / (1 + 0 + 1) = 0.5",
        abs(marked.get("trustScore", 9) - 0.5) < 1e-3,
        str(marked)[:300],
    )
    other = (
        await server.ask(
            "add_insight", title="JWT Auth Pattern", tags=["auth", "jwt"], content="Use refresh tokens for sessions."
        )
    ).get("id", "")
    marked = await server.ask("mark_harmful", id=other)
    table.row(
        "mark_harmful: trust (0 - 2) / (0 + 1 + 1) = -1", abs(marked.get("trustScore", 9) + 1) < 1e-3, str(marked)[:300]
    )
    listed = await server.ask("list_index", sortBy="helpful", minHelpful=0)
    shown = {each["id"]: each for each in listed.get("insights", [])}
    table.row(
        "a negative trust carries a warning, in text and data",
        shown.get(other, {}).get("warning") and "warning" in listed.get("text", "").lower(),
        str(listed)[:400],
    )
    table.row("sortBy=helpful puts the helpful one first", list(shown)[:1] == [id], str(list(shown)))
    table.row(
        "minHelpful leaves out the others",
        [each["id"] for each in (await server.ask("list_index", minHelpful=1)).get("insights", [])] == [id],
    )
    table.row(
        "tags are joined by AND", not (await server.ask("list_index", tags=["auth", "react"])).get("insights", [1])
    )
    return other


async def _insight_looked_at(table: ParityTable, server: OpenClient, id: str, other: str) -> None:
    detail = await server.ask("get_detail", id=id)
    table.row(
        "get_detail gives the full content and lastUsed",
        "y" * 200 in detail.get("text", "") + str(detail.get("content")) and ("lastUsed" in str(detail)),
        str(detail)[:300],
    )
    by_created = [each["id"] for each in (await server.ask("list_index", sortBy="created")).get("insights", [])]
    by_used = [each["id"] for each in (await server.ask("list_index")).get("insights", [])]
    table.row(
        "sortBy=created: newest first; lastUsed: what was looked at last first",
        by_created[:1] == [other] and by_used[:1] == [id],
        f"{by_created} {by_used}",
    )
    for text, change in (
        ("title of 1 to 200 characters", {"title": "x" * 201}),
        ("1 to 10 tags", {"tags": []}),
        ("content up to 10 000 characters", {"content": "z" * 10_001}),
        ("sourceUrl up to 2 000", {"sourceUrl": "https://a.example/" + "u" * 2000}),
    ):
        wrong = await server.ask(
            "add_insight", **({"title": "Something quite else", "tags": ["a"], "content": "c"} | change)
        )
        table.row(f"limit: {text}", "error" in wrong, str(wrong)[:200])


async def _insight_search(table: ParityTable, server: OpenClient) -> None:
    await server.ask(
        "add_insight",
        title="Deploy on Friday",
        tags=["ops"],
        content="Never release before a weekend without a rollback.",
    )
    found = await server.ask("search_insights", query="JWT Auth Pattern")
    first = (found.get("insights") or [{}])[0]
    table.row("an exact title is found first", first.get("title") == "JWT Auth Pattern", str(found)[:300])
    found = await server.ask("search_insights", query="rollback")
    table.row(
        "content is searched",
        [each["title"] for each in found.get("insights", [])][:1] == ["Deploy on Friday"],
        str(found)[:300],
    )
    found = await server.ask("search_insights", query="ops")
    first = (found.get("insights") or [{}])[0]
    # fresh: trust 0, decay 1 less the seconds of its age
    table.row(
        "tags are searched: +2 for the tag, +3 for use within 7 days",
        abs(first.get("score", 0) - 5) < 0.01,
        str(found)[:300],
    )
    found = await server.ask("search_insights", query="zebra crossing")
    table.row("what matches nothing is not returned", not found.get("insights", [1]), str(found)[:200])


async def _insight_export(table: ParityTable, server: OpenClient, folder: Path) -> None:
    exported = await server.ask("export_memory")
    try:
        data = json.loads(exported.get("text", ""))
    except ValueError:
        data = {}
    table.row("export_memory: json by default", len(data.get("insights", [])) == 3, exported.get("text", "")[:200])
    exported = await server.ask("export_memory", format="markdown")
    text = exported.get("text", "")
    table.row(
        "Markdown with trust, source URL and counts, without what was replaced",
        "https://docs.example.com/react" in text and "rust" in text and "elpful" in text and "Use memo" not in text,
        text[:400],
    )
    doomed = (await server.ask("add_insight", title="Outdated", tags=["old"], content="Use the old API.")).get("id", "")
    await server.ask("delete_insight", id=doomed)
    listed = await server.ask("list_index")
    table.row(
        "delete_insight: it is gone from lists and searches", doomed and doomed not in str(listed), str(listed)[:200]
    )
