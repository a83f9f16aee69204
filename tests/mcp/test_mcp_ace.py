"""--tools ace, held against the README of the insight memory server (mcp-learning-memory 0.2.1) row by row."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from conftest import REPO
from mcp.client.client import Client
from mcp_kit import ask, hashed, here, refused, run

from core.errors import UserError
from core.memory import formats
from core.memory.__main__ import main as memory_command
from mcp_server.__main__ import parser
from mcp_server.server import ACE, list_tools
from mcp_server.tools import MemoryTools

FIELDS = {"id", "title", "tags", "helpful", "harmful", "trustScore", "created", "lastUsed"}
TIPS = {"title": "React Tips", "tags": ["react"], "content": "Use memo for expensive renders"}


def served(tmp_path, go, *overrides, name="b.sqlite", **options):
    """What go(client, bank) returns, with a client of a server in this process."""

    async def session(server, service):
        async with Client(server) as client:
            return await go(client, service.bank)

    with here(tmp_path / name, *overrides, tools="ace", **options) as (server, service):
        return run(session(server, service))


def changed(bank, id, days_ago=None, **fields):
    """Make an insight older, or otherwise, than a client could."""
    if days_ago is not None:
        with bank._store.unjournaled() as db:
            at = (datetime.now(UTC) - timedelta(days=days_ago)).isoformat()
            db.execute("UPDATE records SET created_at = $1 WHERE id = $2", (at, id))
    with bank.change("test") as change:
        change.update(id, **fields) if fields else change.fact("test", "x")


# What the API reference says of each tool: its arguments in order, their types, which are required, their defaults.
REFERENCE = {
    "add_insight": (["title:string!", "tags:array!", "content:string!", "overwrite:boolean", "sourceUrl:string"], {}),
    "list_index": (
        ["tags:array", "minHelpful:integer", "sortBy:string", "limit:integer"],
        {"minHelpful": 0, "sortBy": "lastUsed", "limit": 50},
    ),
    "get_detail": (["id:string!"], {}),
    "mark_helpful": (["id:string!"], {}),
    "mark_harmful": (["id:string!"], {}),
    "search_insights": (["query:string!", "limit:integer"], {"limit": 5}),
    "delete_insight": (["id:string!", "permanent:boolean"], {"permanent": True}),  # the issue's; the README has only id
    "export_memory": (["format:string"], {"format": "json"}),
}


def test_the_tools_and_arguments_are_those_of_the_reference():
    listed = {tool.name: tool for tool in list_tools("ace", MemoryTools())}
    assert list(listed) == ACE and set(listed) == set(REFERENCE)
    for name, (arguments, defaults) in REFERENCE.items():
        schema = listed[name].parameters
        required = schema.get("required", [])
        assert [
            f"{key}:{value['type']}{'!' * (key in required)}" for key, value in schema["properties"].items()
        ] == arguments
        for key, value in defaults.items():
            assert schema["properties"][key]["default"] == value
    properties = listed["list_index"].parameters["properties"]
    assert properties["sortBy"]["enum"] == ["created", "lastUsed", "helpful"]
    assert listed["export_memory"].parameters["properties"]["format"]["enum"] == ["json", "markdown", "jsonl"]
    hints = {name: tool.annotations for name, tool in listed.items()}
    assert [name for name, hint in hints.items() if hint and hint.read_only_hint] == [
        "list_index",
        "search_insights",
        "get_detail",
        "export_memory",
    ]


def test_a_client_gets_these_tools_and_no_text_that_speaks_of_others(tmp_path):
    async def go(client, bank):
        names = [tool.name for tool in (await client.list_tools()).tools]
        return names, client.instructions, (await client.list_prompts()).prompts

    names, instructions, prompts = served(tmp_path, go)
    assert names == ACE and prompts == []
    assert "search_insights" in instructions and "retrieve_memory" not in instructions and "save_" not in instructions


def test_the_direct_calls_of_the_readme(tmp_path):
    async def go(client, bank):
        jwt = {"title": "JWT Auth Pattern", "tags": ["auth", "jwt"], "content": "Use refresh tokens..."}
        one = await ask(client, "add_insight", **jwt, sourceUrl="https://example.com/article")
        assert (one["id"], one["status"], one["trustScore"]) == ("ace-000001", "saved", 0)
        assert (await ask(client, "add_insight", **TIPS))["id"] == "ace-000002"
        listed = await ask(client, "list_index", tags=["auth"], sortBy="helpful", limit=10)
        assert [insight["id"] for insight in listed["insights"]] == ["ace-000001"]
        found = await ask(client, "search_insights", query="authentication", limit=5)
        assert [insight["id"] for insight in found["insights"]] == ["ace-000001"]
        assert (await ask(client, "get_detail", id="ace-000001"))["content"] == "Use refresh tokens..."
        assert (await ask(client, "mark_helpful", id="ace-000001"))["helpful"] == 1
        assert (await ask(client, "mark_harmful", id="ace-000002"))["harmful"] == 1
        assert "https://example.com/article" in (await ask(client, "export_memory", format="markdown"))["text"]
        assert (await ask(client, "delete_insight", id="ace-000002"))["deleted"] == ["ace-000002"]
        assert (await ask(client, "list_index"))["total"] == 1
        await ask(client, "add_insight", **TIPS)
        more = {**TIPS, "tags": ["react", "hooks"], "content": "Updated content", "overwrite": True}
        updated = await ask(client, "add_insight", **more)
        assert (updated["id"], updated["status"]) == ("ace-000003", "updated")  # an erased id is not given again
        return bank.statuses()

    assert served(tmp_path, go) == {"active": 2}


BAD = [
    ("add_insight", {**TIPS, "title": "  "}, "title is empty"),
    ("add_insight", {**TIPS, "title": "x" * 201}, "title has 201 characters: give at most 200"),
    ("add_insight", {**TIPS, "content": " \n"}, "content is empty"),
    ("add_insight", {**TIPS, "content": "x" * 10_001}, "content has 10001 characters: give at most 10000"),
    ("add_insight", {**TIPS, "tags": []}, "tags has 0 entries: give 1 to 10"),
    ("add_insight", {**TIPS, "tags": list("abcdefghijk")}, "tags has 11 entries: give 1 to 10"),
    ("add_insight", {**TIPS, "tags": [" "]}, "a tag is empty"),
    ("add_insight", {**TIPS, "sourceUrl": "https://x.org/" + "y" * 1987}, "sourceUrl has 2001 characters"),
    ("add_insight", {"title": "x", "content": "y"}, "tags is missing"),
    ("add_insight", {"title": "x", "tags": ["y"]}, "content is missing"),
    ("add_insight", {"content": "x", "tags": ["y"]}, "title is missing"),
    ("get_detail", {"id": "ace-000099"}, "there is no memory ace-000099: give an id as it was shown"),
    ("mark_helpful", {"id": "ace-000099"}, "there is no memory"),
    ("mark_harmful", {"id": ""}, "id is empty"),
    ("delete_insight", {"id": "ace-000099"}, "there is no memory"),
    ("list_index", {"sortBy": "title"}, "sortBy should be 'created', 'lastUsed' or 'helpful'"),
    ("list_index", {"limit": 0}, "limit=0: give a whole number from 1 to 1000"),
    ("search_insights", {"query": " "}, "query is empty"),
    ("export_memory", {"format": "xml"}, "format should be 'json', 'markdown' or 'jsonl'"),
    ("retrieve_memory", {"query": "x"}, "there is no tool retrieve_memory"),
    ("add_insight", {**TIPS, "agent_id": "me"}, "takes no argument agent_id"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with here(tmp_path_factory.mktemp("bad") / "b.sqlite", tools="ace") as (made, _):
        yield made


def test_the_limits_of_the_reference(server, subtests):
    async def go():
        async with Client(server) as client:
            for tool, arguments, sentence in BAD:
                with subtests.test(f"{tool}: {sentence}"):
                    text = await refused(client, tool, **arguments)
                    assert sentence in text and "\n" not in text and len(text) < 300

    run(go())


def test_texts_are_measured_after_trimming_and_the_greatest_are_taken(tmp_path):
    async def go(client, bank):
        url = "https://x.org/" + "y" * 1986
        made = {"title": f"  {'t' * 200}\n", "content": f" {'c' * 10_000} ", "tags": list("abcdefghij")}
        added = await ask(client, "add_insight", **made, sourceUrl=url)
        detail = await ask(client, "get_detail", id=added["id"])
        assert (detail["title"], detail["content"], detail["sourceUrl"]) == ("t" * 200, "c" * 10_000, url)
        assert detail["tags"] == list("abcdefghij")
        assert [i["preview"] for i in (await ask(client, "list_index"))["insights"]] == ["c" * 100]
        assert (await ask(client, "search_insights", query="t" * 200))["insights"][0]["preview"] == "c" * 100

    served(tmp_path, go)


def test_tags_are_normalised_when_stored_and_when_filtered_and_so_are_older_ones(tmp_path):
    async def go(client, bank):
        added = await ask(client, "add_insight", **{**TIPS, "tags": [" React ", "react", "Machine  Learning", "UI"]})
        assert added["tags"] == ["react", "machine-learning", "ui"]
        for tags in (["REACT"], ["react", "machine learning"], [" Ui "], []):
            assert (await ask(client, "list_index", tags=tags))["total"] == 1, tags
        assert (await ask(client, "list_index", tags=["react", "vue"]))["total"] == 0  # AND
        changed(bank, added["id"], tags=("React", "Big Data"))  # as an earlier version stored them
        assert (await ask(client, "list_index", tags=["react", "big-data"]))["total"] == 1
        assert (await ask(client, "search_insights", query="big data"))["insights"][0]["id"] == added["id"]

    served(tmp_path, go)


def test_a_title_less_than_3_edits_away_is_a_duplicate(tmp_path):
    async def go(client, bank):
        await ask(client, "add_insight", title="Another thing", tags=["x"], content="y")
        first = await ask(client, "add_insight", title="Bug Fix", tags=["x"], content="y")
        for title in ("Bux Fix", "bug fix", "BUG FIXES", "Bug  Fix "):  # 1, 0, 2 and 0 edits
            again = await client.call_tool("add_insight", {"title": title, "tags": ["z"], "content": "other"})
            data = again.structured_content
            assert (again.is_error, data["status"], data["id"]) == (False, "duplicate", first["id"]), title
            assert data["title"] == "Bug Fix" and "overwrite=true" in data["message"]
            assert first["id"] in again.content[0].text and "overwrite=true" in again.content[0].text
        assert (await ask(client, "add_insight", title="Bug Fixing", tags=["x"], content="y"))["status"] == "saved"
        assert (await ask(client, "add_insight", title="Bug Fix", tags=["x"], content="y"))["status"] == "duplicate"
        # A number makes another title: releases 1.2 and 1.3 are no typing errors.
        for version in ("1.2", "1.3"):
            title = f"Release {version}"
            assert (await ask(client, "add_insight", title=title, tags=["x"], content=title))["status"] == "saved"
        assert (await ask(client, "list_index"))["total"] == 5
        # Of two that are near, the one with this very title is meant.
        near = await ask(client, "add_insight", title="Bug Fixin", tags=["x"], content="new", overwrite=True)
        assert near["id"] == "ace-000003" and near["preview"] == "new"
        same = await ask(client, "add_insight", title="Bug Fix", tags=["x"], content="newer", overwrite=True)
        assert same["id"] == first["id"]

    served(tmp_path, go)


def test_overwriting_keeps_id_counts_and_creation_and_can_be_rolled_back(tmp_path):
    async def go(client, bank):
        old = await ask(client, "add_insight", **TIPS, sourceUrl="https://docs.example.com")
        for _ in range(3):
            await ask(client, "mark_helpful", id=old["id"])
        marked = await ask(client, "mark_harmful", id=old["id"])
        before, was = bank.history.seq(), bank.get(old["id"])
        new = {"title": "React tips!", "tags": ["react", "hooks"], "content": "Updated content", "overwrite": True}
        told = await ask(client, "add_insight", **new)
        assert (told["id"], told["status"], told["helpful"], told["harmful"]) == (old["id"], "updated", 3, 1)
        assert told["trustScore"] == 0.2  # (3 - 2) / (3 + 1 + 1)
        assert (told["created"], told["title"], told["tags"]) == (old["created"], "React tips!", ["react", "hooks"])
        assert told["sourceUrl"] == "https://docs.example.com"  # none was named
        assert told["lastUsed"] > marked["lastUsed"] > old["lastUsed"]
        assert (await ask(client, "list_index"))["total"] == 1 and bank.statuses() == {"active": 1}
        assert (await ask(client, "search_insights", query="hooks"))["insights"][0]["id"] == old["id"]
        assert (await ask(client, "search_insights", query="memo"))["insights"] == []
        assert bank.nearest("React tips! (react, hooks)\nUpdated content", 1)[0].score == pytest.approx(
            1.0, abs=1e-5
        )  # embedded anew
        other = await ask(client, "add_insight", **{**new, "sourceUrl": "https://other.example.com"})
        assert other["sourceUrl"] == "https://other.example.com"
        bank.history.rollback(before)
        assert bank.get(old["id"]) == was
        assert (await ask(client, "search_insights", query="memo"))["insights"][0]["title"] == "React Tips"
        assert bank.nearest(was.original_query, 1)[0].score == pytest.approx(1.0, abs=1e-5)

    served(tmp_path, go)


def test_what_was_overwritten_goes_with_a_permanent_deletion_and_stays_with_an_archived_one(tmp_path):
    async def go(client, bank):
        await ask(client, "add_insight", **{**TIPS, "content": "a zebra that nobody may read"})
        await ask(client, "add_insight", **{**TIPS, "content": "a quagga"}, overwrite=True)
        gone = await ask(client, "delete_insight", id="ace-000001")
        assert gone == {"deleted": ["ace-000001"], "permanent": True}
        assert "there is no memory" in await refused(client, "get_detail", id="ace-000001")
        files = [file.read_bytes() for file in tmp_path.glob("b.sqlite*")]
        assert not any(b"zebra" in held or b"quagga" in held for held in files)
        await ask(client, "add_insight", **TIPS)
        await ask(client, "delete_insight", id="ace-000002", permanent=False)
        for answer in (await ask(client, "list_index"), await ask(client, "search_insights", query="memo")):
            assert answer["insights"] == []
        assert (await ask(client, "export_memory"))["insights"] == []
        assert "React Tips" not in (await ask(client, "export_memory", format="markdown"))["text"]
        assert (await ask(client, "get_detail", id="ace-000002"))["status"] == "archived"

    served(tmp_path, go)


def test_trust_is_shown_as_the_marks_make_it_everywhere_with_a_warning_below_0(tmp_path):
    async def go(client, bank):
        url = "https://example.com/a"
        id = (await ask(client, "add_insight", **TIPS, sourceUrl=url))["id"]

        async def everywhere():
            listed = (await ask(client, "list_index"))["insights"]
            found = (await ask(client, "search_insights", query="react"))["insights"]
            exported = (await ask(client, "export_memory"))["insights"]
            detail = await ask(client, "get_detail", id=id)
            assert {insight["sourceUrl"] for insight in (*listed, *found, *exported, detail)} == {url}
            [trust] = {insight["trustScore"] for insight in (*listed, *found, *exported, detail)}
            warned = ["warning" in insight for insight in (*listed, *found, detail)]
            return trust, warned

        assert await everywhere() == (0, [False] * 3)  # fresh: no bonus, no decay
        assert (await ask(client, "mark_helpful", id=id))["trustScore"] == 0.5  # 1 / 2
        assert (await ask(client, "mark_harmful", id=id))["trustScore"] == -0.333  # (1 - 2) / 3
        assert await everywhere() == (-0.333, [True] * 3)
        changed(bank, id, days_ago=80)
        assert await everywhere() == (-0.333, [True] * 3)  # age does not change it
        told = await ask(client, "mark_harmful", id=id)
        assert told["warning"] == "low trust: marked helpful 1, harmful 2" and told["trustScore"] == -0.75  # -3 / 4
        text = (await ask(client, "export_memory", format="markdown"))["text"]
        assert "- marked: helpful 1, harmful 2, trust score -0.75" in text and f"- source: {url}" in text
        assert "marked 1 times helpful, 2 harmful" in text
        for _ in range(9):
            told = await ask(client, "mark_helpful", id=id)
        assert told["trustScore"] == 0.462 and "warning" not in told  # (10 - 4) / 13

    served(tmp_path, go)


def test_last_use_is_noted_shown_and_sorted_by(tmp_path):
    async def go(client, bank):
        for title in ("First", "Second one", "Third thing"):
            await ask(client, "add_insight", title=title, tags=["x"], content=title)
        a, b, c = "ace-000001", "ace-000002", "ace-000003"

        async def order(**arguments):
            insights = (await ask(client, "list_index", **arguments))["insights"]
            assert all(i["created"].endswith("Z") and i["lastUsed"] >= i["created"] for i in insights)
            return [i["id"] for i in insights]

        assert await order() == await order(sortBy="created") == [c, b, a]  # never used: when it was made
        before = bank.get(b)
        detail = await ask(client, "get_detail", id=b)
        assert detail["lastUsed"] > detail["created"]
        used = datetime.fromisoformat(detail["lastUsed"])
        assert abs((datetime.now(UTC) - used).total_seconds()) < 60
        assert await order() == [b, c, a]
        assert before.last_used is None and bank.get(b).last_used == pytest.approx(used.timestamp(), abs=0.002)
        await ask(client, "mark_helpful", id=a)
        assert await order() == [a, b, c]
        await ask(client, "mark_harmful", id=c)  # is no use: it would head the list for being harmful
        assert await order() == [a, b, c] and bank.get(c).last_used is None and bank.get(c).n_harmful == 1
        await ask(client, "search_insights", query="second")  # is none
        assert await order() == [a, b, c]
        await ask(client, "mark_helpful", id=a)
        await ask(client, "mark_helpful", id=b)
        assert await order(sortBy="helpful") == [a, b, c]
        assert await order(minHelpful=1) == [b, a] and await order(minHelpful=2) == [a]
        assert await order(limit=1) == [b]
        assert (await ask(client, "list_index", limit=1))["total"] == 3

    served(tmp_path, go)


def test_search_is_scored_by_the_points_of_the_reference(tmp_path):
    async def go(client, bank):
        add = {
            "JWT": ("Auth", ["jwt", "api"], "Rotate keys"),
            "Old": ("JWT notes", ["security"], "How jwt is signed"),
            "Bread": ("Bread", ["food"], "Knead the dough"),
        }
        add["JWT"] = ("JWT", *add["JWT"][1:])
        ids = {
            key: (await ask(client, "add_insight", title=title, tags=tags, content=content))["id"]
            for key, (title, tags, content) in add.items()
        }
        await ask(client, "mark_helpful", id=ids["Old"])
        changed(bank, ids["Old"], days_ago=45, last_used=(datetime.now(UTC) - timedelta(days=30)).timestamp())
        found = (await ask(client, "search_insights", query="jwt"))["insights"]
        assert [(insight["id"], insight["score"]) for insight in found] == [
            (ids["JWT"], pytest.approx(10 + 2 + 3, abs=0.01)),  # exact title, one tag, fresh
            (ids["Old"], pytest.approx((5 + 3 + 1 + 5 * 0.5) / 2, abs=0.01)),  # partial title, content, 1 helpful
        ]
        assert len((await ask(client, "search_insights", query="jwt", limit=1))["insights"]) == 1
        assert (await ask(client, "search_insights", query="how is the weather"))["insights"] == []

    served(tmp_path, go)


def test_nothing_is_merged_or_pruned_behind_the_users_back(tmp_path):
    async def go(client, bank):
        for word in ("alpha", "bravo", "gamma", "delta", "omega", "sigma"):
            await ask(client, "add_insight", title=f"Use {word * 2}", tags=["x"], content="Always run the linter.")
        return (await ask(client, "list_index"))["total"], bank.statuses()

    assert served(tmp_path, go, "memory.consolidate.every=1") == (6, {"active": 6})


def test_json_export_has_every_field_and_can_be_imported_again(tmp_path, capsys):
    async def make(client, bank):
        await ask(client, "add_insight", **TIPS, sourceUrl="https://docs.example.com")
        await ask(client, "add_insight", title="Caf\u00e9 \U0001f600", tags=["b"], content="two\nlines \\frac{1}{2}")
        await ask(client, "mark_helpful", id="ace-000001")
        await ask(client, "mark_harmful", id="ace-000002")
        result = await client.call_tool("export_memory", {})
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content

    value = served(tmp_path, make)
    assert set(value) == {"version", "insights"}
    assert all(set(insight) == FIELDS | {"content", "sourceUrl"} for insight in value["insights"])
    (tmp_path / "memory.json").write_text(json.dumps(value))
    words = ["import", str(tmp_path / "c.sqlite"), str(tmp_path / "memory.json"), "--format", "insight_memory"]
    for said in ("2 records added, 0 were", "0 records added, 2 were"):
        assert memory_command([*words, "--embedder", "hashing-256"]) == 0
        assert said in capsys.readouterr().out

    async def read(client, bank):
        third = await ask(client, "add_insight", title="The next one", tags=["x"], content="y")
        await ask(client, "delete_insight", id=third["id"])
        return third["id"], await ask(client, "export_memory")

    assert served(tmp_path, read, name="c.sqlite") == ("ace-000003", value)


def test_an_originals_file_is_read_as_far_as_its_readme_shows_it(tmp_path):
    one = {"title": "One", "content": "c", "tags": ["React"], "createdAt": 1735689600000, "helpfulCount": 2}
    two = {"title": "Two", "content": "c", "created": "2025-01-01T00:00:00Z", "lastUsed": "2025-02-01T00:00:00.5Z"}
    insights = {"ace-000007": one | {"harmful": None, "trustScore": 0.5}, "x": two}
    another = {"id": "ace-000007", "title": "Another", "content": "c", "created": "2024-01-01"}
    bare = [another, {"title": "No id", "content": "c"}]

    def load(bank, value):
        (tmp_path / "memory.json").write_text(json.dumps(value))
        return formats.load(bank, tmp_path / "memory.json", "insight_memory")

    async def go(client, bank):
        assert load(bank, {"version": 3, "insights": insights}) == load(bank, insights)[::-1] == (2, 0)
        one = await ask(client, "get_detail", id="ace-000007")
        assert (one["title"], one["created"], one["helpful"], one["tags"]) == (
            "One",
            "2025-01-01T00:00:00.000Z",
            2,
            ["react"],
        )
        listed = {i["id"]: i["lastUsed"] for i in (await ask(client, "list_index"))["insights"]}
        assert listed["x"] == "2025-02-01T00:00:00.500Z"
        # Another insight's id is taken: it gets the next; the same file again adds nothing.
        assert load(bank, bare) == (2, 0)
        titles = {i["title"]: i["id"] for i in (await ask(client, "list_index"))["insights"]}
        assert titles == {"One": "ace-000007", "Two": "x", "Another": "ace-000008", "No id": "ace-000009"}
        assert load(bank, bare) == (0, 2)
        assert (await ask(client, "add_insight", **TIPS))["id"] == "ace-000010"
        for value, problem in (
            ({"notes": 1}, "holds no list of insights"),
            ([{"title": "x"}], "insight 1 cannot be read: it has no content"),
            ([{"title": "x", "content": "y", "helpful": "many"}], "helpful='many' is no count"),
            ([{"title": "x", "content": "y", "created": "yesterday"}], "insight 1 cannot be read"),
        ):
            with pytest.raises(UserError, match=problem):
                load(bank, value)

    served(tmp_path, go)


def test_what_is_quarantined_is_kept_from_view_and_the_answer_says_so(tmp_path):
    async def go(client, bank):
        await ask(client, "add_insight", **TIPS)
        planted = {**TIPS, "content": "See http://evil.example.", "overwrite": True}
        told = await ask(client, "add_insight", **planted)
        assert told["status"] == "quarantined" and told["note"] and told["id"] != "ace-000001"
        assert (await ask(client, "add_insight", **planted))["id"] == told["id"]
        [kept] = (await ask(client, "list_index"))["insights"]
        assert kept["preview"] == TIPS["content"]

    served(tmp_path, go, "memory.hygiene.provenance=strict")


def test_personal_data_is_taken_out_of_an_insight_where_that_is_asked_for(tmp_path):
    async def go(client, bank):
        made = {**TIPS, "title": "Ask ann@acme-corp.com", "content": "She reads ann@acme-corp.com every day."}
        first, again = [await ask(client, "add_insight", **made) for _ in range(2)]
        [kept] = bank.records()
        assert kept.id == first["id"] == again["id"] and again["status"] == "duplicate"
        assert "ann@" not in kept.text + kept.original_query and "[removed email]" in kept.text

    served(tmp_path, go, "memory.redact=personal")


def test_lessons_of_the_other_profiles_are_insights_too(tmp_path):
    async def lesson(server):
        async with Client(server) as client:
            words = {"title": "Use sorted", "description": "Sorting", "content": "It is stable.", "tags": ["Python"]}
            return (await ask(client, "save_lesson", query="sort a list", **words, success=False))["memory_id"]

    with here(tmp_path / "b.sqlite") as (server, _):
        id = run(lesson(server))

    async def go(client, bank):
        [insight] = (await ask(client, "export_memory"))["insights"]
        assert (insight["id"], insight["content"], insight["success"]) == (id, "Sorting\n\nIt is stable.", False)
        assert (await ask(client, "search_insights", query="stable"))["insights"][0]["id"] == id
        assert (await ask(client, "mark_helpful", id=id))["helpful"] == 1

    served(tmp_path, go)


def test_two_servers_never_give_one_id_twice(tmp_path):
    async def writer(client, name):
        titles = [f"{name} {word * 2}" for word in ("alpha", "bravo", "gamma", "delta", "omega", "sigma")]
        return [(await ask(client, "add_insight", title=title, tags=["x"], content="y"))["id"] for title in titles]

    async def go():
        async with (
            hashed(tmp_path / "b.sqlite", "--tools", "ace") as a,
            hashed(tmp_path / "b.sqlite", "--tools", "ace") as b,
        ):
            ids = await asyncio.gather(writer(a, "ann"), writer(b, "bob"))
            return sorted(ids[0] + ids[1])

    assert run(go()) == [f"ace-{number:06}" for number in range(1, 13)]


def test_an_agent_cannot_be_required_where_no_tool_takes_one(tmp_path):
    opened = here(tmp_path / "b.sqlite", tools="ace", require_agent=True)
    with pytest.raises(UserError, match="leave out --require-agent-id"), opened:
        pass


def test_the_documentation_names_each_tool():
    assert parser().parse_intermixed_args(["--tools", "ace", "--bank", "x"]).tools == "ace"
    text = (REPO / "docs/coming_from.md").read_text()
    assert all(f"`{name}`" in text.partition("## 002")[2].partition("## 003")[0] for name in ACE)
