"""--tools ace, held against the README of the insight memory server (mcp-learning-memory 0.2.1) row by row."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from mcp_kit import calling, hashed, here, served

from core.errors import UserError
from core.memory import formats
from core.memory.__main__ import main as memory_command
from mcp_server.server import ACE, list_tools
from mcp_server.tools import MemoryTools

FIELDS = {"id", "title", "tags", "helpful", "harmful", "trustScore", "created", "lastUsed"}
TIPS = {"title": "React Tips", "tags": ["react"], "content": "Use memo for expensive renders"}


@pytest.fixture
def ace(tmp_path):
    """A Caller of a server in this process, and its bank."""
    with served(tmp_path / "b.sqlite", tools="ace") as (client, service):
        yield client, service.bank


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
        properties, required = schema["properties"], schema.get("required", [])
        found = [f"{key}:{value['type']}{'!' * (key in required)}" for key, value in properties.items()]
        assert found == arguments
        assert {key: properties[key]["default"] for key in defaults} == defaults
    properties = listed["list_index"].parameters["properties"]
    assert properties["sortBy"]["enum"] == ["created", "lastUsed", "helpful"]
    assert listed["export_memory"].parameters["properties"]["format"]["enum"] == ["json", "markdown", "jsonl"]
    read_only = [name for name, tool in listed.items() if tool.annotations and tool.annotations.read_only_hint]
    assert read_only == ["list_index", "search_insights", "get_detail", "export_memory"]


def test_a_client_gets_these_tools_and_no_text_that_speaks_of_others(ace):
    client, _ = ace
    assert [tool.name for tool in client.tools()] == ACE and client.do("list_prompts").prompts == []
    said = client.client.instructions
    assert "search_insights" in said and "retrieve_memory" not in said and "save_" not in said


def test_the_direct_calls_of_the_readme(ace):
    client, bank = ace
    jwt = {"title": "JWT Auth Pattern", "tags": ["auth", "jwt"], "content": "Use refresh tokens..."}
    one = client.ask("add_insight", **jwt, sourceUrl="https://example.com/article")
    assert (one["id"], one["status"], one["trustScore"]) == ("ace-000001", "saved", 0)
    assert client.ask("add_insight", **TIPS)["id"] == "ace-000002"
    for found in (
        client.ask("list_index", tags=["auth"], sortBy="helpful", limit=10),
        client.ask("search_insights", query="authentication", limit=5),
    ):
        assert [insight["id"] for insight in found["insights"]] == ["ace-000001"]
    assert client.ask("get_detail", id="ace-000001")["content"] == "Use refresh tokens..."
    assert client.ask("mark_helpful", id="ace-000001")["helpful"] == 1
    assert client.ask("mark_harmful", id="ace-000002")["harmful"] == 1
    assert "https://example.com/article" in client.ask("export_memory", format="markdown")["text"]
    assert client.ask("delete_insight", id="ace-000002")["deleted"] == ["ace-000002"]
    assert client.ask("list_index")["total"] == 1
    client.ask("add_insight", **TIPS)
    more = {**TIPS, "tags": ["react", "hooks"], "content": "Updated content", "overwrite": True}
    updated = client.ask("add_insight", **more)
    assert (updated["id"], updated["status"]) == ("ace-000003", "updated")  # an erased id is not given again
    assert bank.statuses() == {"active": 2}


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
    ("get_detail", {"id": "ace-000099"}, "there is no memory ace-000099: give an id as it was shown"),
    ("mark_helpful", {"id": "ace-000099"}, "there is no memory"),
    ("mark_harmful", {"id": ""}, "id is empty"),
    ("delete_insight", {"id": "ace-000099"}, "there is no memory"),
    ("list_index", {"sortBy": "title"}, "sortBy should be 'created', 'lastUsed' or 'helpful'"),
    ("list_index", {"limit": 0}, "limit=0: give a whole number from 1 to 1000"),
    ("search_insights", {"query": " "}, "query is empty"),
    ("retrieve_memory", {"query": "x"}, "there is no tool retrieve_memory"),
    ("add_insight", {**TIPS, "agent_id": "me"}, "takes no argument agent_id"),
]


def test_the_limits_of_the_reference(ace, subtests):
    client, _ = ace
    for tool, arguments, sentence in BAD:
        with subtests.test(f"{tool}: {sentence}"):
            text = client.refused(tool, **arguments)
            assert sentence in text and "\n" not in text and len(text) < 300


def test_texts_are_measured_after_trimming_and_the_greatest_are_taken(ace):
    client, _ = ace
    url = "https://x.org/" + "y" * 1986
    made = {"title": f"  {'t' * 200}\n", "content": f" {'c' * 10_000} ", "tags": list("abcdefghij")}
    added = client.ask("add_insight", **made, sourceUrl=url)
    detail = client.ask("get_detail", id=added["id"])
    assert (detail["title"], detail["content"], detail["sourceUrl"]) == ("t" * 200, "c" * 10_000, url)
    assert detail["tags"] == list("abcdefghij")
    assert [i["preview"] for i in client.ask("list_index")["insights"]] == ["c" * 100]
    assert client.ask("search_insights", query="t" * 200)["insights"][0]["preview"] == "c" * 100


def test_tags_are_normalised_when_stored_and_when_filtered_and_so_are_older_ones(ace):
    client, bank = ace
    added = client.ask("add_insight", **{**TIPS, "tags": [" React ", "react", "Machine  Learning", "UI"]})
    assert added["tags"] == ["react", "machine-learning", "ui"]
    for tags, total in ((["REACT"], 1), (["react", "machine learning"], 1), ([" Ui "], 1), ([], 1), (["ui", "vue"], 0)):
        assert client.ask("list_index", tags=tags)["total"] == total, tags
    changed(bank, added["id"], tags=("React", "Big Data"))  # as an earlier version stored them
    assert client.ask("list_index", tags=["react", "big-data"])["total"] == 1
    assert client.ask("search_insights", query="big data")["insights"][0]["id"] == added["id"]


def test_a_title_less_than_3_edits_away_is_a_duplicate(ace):
    client, _ = ace
    client.ask("add_insight", title="Another thing", tags=["x"], content="y")
    first = client.ask("add_insight", title="Bug Fix", tags=["x"], content="y")
    for title in ("Bux Fix", "bug fix", "BUG FIXES", "Bug  Fix "):  # 1, 0, 2 and 0 edits
        again = client.call("add_insight", title=title, tags=["z"], content="other")
        data = again.structured_content
        assert (again.is_error, data["status"], data["id"]) == (False, "duplicate", first["id"]), title
        assert data["title"] == "Bug Fix" and "overwrite=true" in data["message"]
        assert first["id"] in again.content[0].text and "overwrite=true" in again.content[0].text
    # A number makes another title: releases 1.2 and 1.3 are no typing errors.
    for title in ("Bug Fixing", "Release 1.2", "Release 1.3"):
        assert client.ask("add_insight", title=title, tags=["x"], content=title)["status"] == "saved"
    # Of two that are near, the one with this very title is meant.
    near = client.ask("add_insight", title="Bug Fixin", tags=["x"], content="new", overwrite=True)
    assert near["id"] == "ace-000003" and near["preview"] == "new"
    same = client.ask("add_insight", title="Bug Fix", tags=["x"], content="newer", overwrite=True)
    assert same["id"] == first["id"] and client.ask("list_index")["total"] == 5


def test_overwriting_keeps_id_counts_and_creation_and_can_be_rolled_back(ace):
    client, bank = ace
    old = client.ask("add_insight", **TIPS, sourceUrl="https://docs.example.com")
    for _ in range(3):
        client.ask("mark_helpful", id=old["id"])
    marked = client.ask("mark_harmful", id=old["id"])
    before, was = bank.history.seq(), bank.get(old["id"])
    new = {"title": "React tips!", "tags": ["react", "hooks"], "content": "Updated content", "overwrite": True}
    told = client.ask("add_insight", **new)
    assert (told["id"], told["status"], told["helpful"], told["harmful"]) == (old["id"], "updated", 3, 1)
    assert told["trustScore"] == 0.2  # (3 - 2) / (3 + 1 + 1)
    assert (told["created"], told["title"], told["tags"]) == (old["created"], "React tips!", ["react", "hooks"])
    assert told["sourceUrl"] == "https://docs.example.com"  # none was named
    assert told["lastUsed"] > marked["lastUsed"] > old["lastUsed"]
    assert client.ask("list_index")["total"] == 1 and bank.statuses() == {"active": 1}
    assert client.ask("search_insights", query="hooks")["insights"][0]["id"] == old["id"]
    assert client.ask("search_insights", query="memo")["insights"] == []
    [hit] = bank.nearest("React tips! (react, hooks)\nUpdated content", 1)
    assert hit.score == pytest.approx(1.0, abs=1e-5)  # embedded anew
    other = client.ask("add_insight", **{**new, "sourceUrl": "https://other.example.com"})
    assert other["sourceUrl"] == "https://other.example.com"
    bank.history.rollback(before)
    assert bank.get(old["id"]) == was
    assert client.ask("search_insights", query="memo")["insights"][0]["title"] == "React Tips"
    assert bank.nearest(was.original_query, 1)[0].score == pytest.approx(1.0, abs=1e-5)


def test_what_was_overwritten_goes_with_a_permanent_deletion_and_stays_with_an_archived_one(ace, tmp_path):
    client, _ = ace
    client.ask("add_insight", **{**TIPS, "content": "a zebra that nobody may read"})
    client.ask("add_insight", **{**TIPS, "content": "a quagga"}, overwrite=True)
    assert client.ask("delete_insight", id="ace-000001") == {"deleted": ["ace-000001"], "permanent": True}
    assert "there is no memory" in client.refused("get_detail", id="ace-000001")
    files = [file.read_bytes() for file in tmp_path.glob("b.sqlite*")]
    assert not any(b"zebra" in held or b"quagga" in held for held in files)
    client.ask("add_insight", **TIPS)
    client.ask("delete_insight", id="ace-000002", permanent=False)
    for answer in (
        client.ask("list_index"),
        client.ask("search_insights", query="memo"),
        client.ask("export_memory"),
    ):
        assert answer["insights"] == []
    assert "React Tips" not in client.ask("export_memory", format="markdown")["text"]
    assert client.ask("get_detail", id="ace-000002")["status"] == "archived"


def test_trust_is_shown_as_the_marks_make_it_everywhere_with_a_warning_below_0(ace):
    client, bank = ace
    url = "https://example.com/a"
    id = client.ask("add_insight", **TIPS, sourceUrl=url)["id"]

    def everywhere():
        listed = client.ask("list_index")["insights"]
        found = client.ask("search_insights", query="react")["insights"]
        exported, detail = client.ask("export_memory")["insights"], client.ask("get_detail", id=id)
        assert {insight["sourceUrl"] for insight in (*listed, *found, *exported, detail)} == {url}
        [trust] = {insight["trustScore"] for insight in (*listed, *found, *exported, detail)}
        return trust, ["warning" in insight for insight in (*listed, *found, detail)]

    assert everywhere() == (0, [False] * 3)  # fresh: no bonus, no decay
    assert client.ask("mark_helpful", id=id)["trustScore"] == 0.5  # 1 / 2
    assert client.ask("mark_harmful", id=id)["trustScore"] == -0.333  # (1 - 2) / 3
    assert everywhere() == (-0.333, [True] * 3)
    changed(bank, id, days_ago=80)
    assert everywhere() == (-0.333, [True] * 3)  # age does not change it
    told = client.ask("mark_harmful", id=id)
    assert told["warning"] == "low trust: marked helpful 1, harmful 2" and told["trustScore"] == -0.75  # -3 / 4
    text = client.ask("export_memory", format="markdown")["text"]
    assert "- marked: helpful 1, harmful 2, trust score -0.75" in text and f"- source: {url}" in text
    assert "marked 1 times helpful, 2 harmful" in text
    for _ in range(9):
        told = client.ask("mark_helpful", id=id)
    assert told["trustScore"] == 0.462 and "warning" not in told  # (10 - 4) / 13


def test_last_use_is_noted_shown_and_sorted_by(ace):
    client, bank = ace
    for title in ("First", "Second one", "Third thing"):
        client.ask("add_insight", title=title, tags=["x"], content=title)
    a, b, c = "ace-000001", "ace-000002", "ace-000003"

    def order(**arguments):
        insights = client.ask("list_index", **arguments)["insights"]
        assert all(i["created"].endswith("Z") and i["lastUsed"] >= i["created"] for i in insights)
        return [i["id"] for i in insights]

    assert order() == order(sortBy="created") == [c, b, a]  # never used: when it was made
    before = bank.get(b)
    detail = client.ask("get_detail", id=b)
    assert detail["lastUsed"] > detail["created"]
    used = datetime.fromisoformat(detail["lastUsed"])
    assert abs((datetime.now(UTC) - used).total_seconds()) < 60
    assert order() == [b, c, a]
    assert before.last_used is None and bank.get(b).last_used == pytest.approx(used.timestamp(), abs=0.002)
    client.ask("mark_helpful", id=a)
    assert order() == [a, b, c]
    client.ask("mark_harmful", id=c)  # is no use: it would head the list for being harmful
    client.ask("search_insights", query="second")  # is none
    assert order() == [a, b, c] and bank.get(c).last_used is None and bank.get(c).n_harmful == 1
    client.ask("mark_helpful", id=a)
    client.ask("mark_helpful", id=b)
    assert order(sortBy="helpful") == [a, b, c]
    assert order(minHelpful=1) == [b, a] and order(minHelpful=2) == [a]
    assert order(limit=1) == [b] and client.ask("list_index", limit=1)["total"] == 3


def test_search_is_scored_by_the_points_of_the_reference(ace):
    client, _ = ace
    for title, tags, content in (("JWT", ["jwt", "api"], "Rotate keys"), ("Bread", ["food"], "Knead the dough")):
        client.ask("add_insight", title=title, tags=tags, content=content)
    [found] = client.ask("search_insights", query="jwt")["insights"]
    assert (found["id"], found["score"]) == ("ace-000001", pytest.approx(10 + 2 + 3, abs=0.01))  # title, tag, fresh
    assert client.ask("search_insights", query="how is the weather")["insights"] == []


def test_nothing_is_merged_or_pruned_behind_the_users_back(tmp_path):
    with served(tmp_path / "b.sqlite", "memory.consolidate.every=1", tools="ace") as (client, service):
        for word in ("alpha", "bravo", "gamma", "delta", "omega", "sigma"):
            client.ask("add_insight", title=f"Use {word * 2}", tags=["x"], content="Always run the linter.")
        assert (client.ask("list_index")["total"], service.bank.statuses()) == (6, {"active": 6})


def test_json_export_has_every_field_and_can_be_imported_again(ace, tmp_path, capsys):
    client, _ = ace
    client.ask("add_insight", **TIPS, sourceUrl="https://docs.example.com")
    client.ask("add_insight", title="Caf\u00e9 \U0001f600", tags=["b"], content="two\nlines \\frac{1}{2}")
    client.ask("mark_helpful", id="ace-000001")
    client.ask("mark_harmful", id="ace-000002")
    result = client.call("export_memory")
    value = result.structured_content
    assert json.loads(result.content[0].text) == value and set(value) == {"version", "insights"}
    assert all(set(insight) == FIELDS | {"content", "sourceUrl"} for insight in value["insights"])
    (tmp_path / "memory.json").write_text(json.dumps(value))
    words = ["import", str(tmp_path / "c.sqlite"), str(tmp_path / "memory.json"), "--format", "insight_memory"]
    for said in ("2 records added, 0 were", "0 records added, 2 were"):
        assert memory_command([*words, "--embedder", "hashing-256"]) == 0
        assert said in capsys.readouterr().out
    with served(tmp_path / "c.sqlite", tools="ace") as (other, _):
        third = other.ask("add_insight", title="The next one", tags=["x"], content="y")["id"]
        other.ask("delete_insight", id=third)
        assert (third, other.ask("export_memory")) == ("ace-000003", value)


def test_an_originals_file_is_read_as_far_as_its_readme_shows_it(ace, tmp_path):
    client, bank = ace
    one = {"title": "One", "content": "c", "tags": ["React"], "createdAt": 1735689600000, "helpfulCount": 2}
    two = {"title": "Two", "content": "c", "created": "2025-01-01T00:00:00Z", "lastUsed": "2025-02-01T00:00:00.5Z"}
    insights = {"ace-000007": one | {"harmful": None, "trustScore": 0.5}, "x": two}
    another = {"id": "ace-000007", "title": "Another", "content": "c", "created": "2024-01-01"}
    bare = [another, {"title": "No id", "content": "c"}]

    def load(value):
        (tmp_path / "memory.json").write_text(json.dumps(value))
        return formats.load(bank, tmp_path / "memory.json", "insight_memory")

    assert load({"version": 3, "insights": insights}) == load(insights)[::-1] == (2, 0)
    one = client.ask("get_detail", id="ace-000007")
    assert (one["title"], one["created"], one["helpful"]) == ("One", "2025-01-01T00:00:00.000Z", 2)
    assert one["tags"] == ["react"]
    listed = {i["id"]: i["lastUsed"] for i in client.ask("list_index")["insights"]}
    assert listed["x"] == "2025-02-01T00:00:00.500Z"
    # Another insight's id is taken: it gets the next; the same file again adds nothing.
    assert load(bare) == (2, 0)
    titles = {i["title"]: i["id"] for i in client.ask("list_index")["insights"]}
    assert titles == {"One": "ace-000007", "Two": "x", "Another": "ace-000008", "No id": "ace-000009"}
    assert load(bare) == (0, 2)
    assert client.ask("add_insight", **TIPS)["id"] == "ace-000010"
    for value, problem in (
        ({"notes": 1}, "holds no list of insights"),
        ([{"title": "x"}], "insight 1 cannot be read: it has no content"),
        ([{"title": "x", "content": "y", "helpful": "many"}], "helpful='many' is no count"),
        ([{"title": "x", "content": "y", "created": "yesterday"}], "insight 1 cannot be read"),
    ):
        with pytest.raises(UserError, match=problem):
            load(value)


def test_what_is_quarantined_replaces_nothing_and_what_repeats_the_old_text_replaces_it_whole(tmp_path):
    with served(tmp_path / "b.sqlite", "memory.hygiene.provenance=strict", tools="ace") as (client, service):
        client.ask("add_insight", **TIPS)
        planted = {**TIPS, "content": "See http://evil.example.", "overwrite": True}
        told = client.ask("add_insight", **planted)
        assert told["status"] == "quarantined" and told["note"] and told["id"] != "ace-000001"
        assert client.ask("add_insight", **planted)["id"] == told["id"]
        [kept] = client.ask("list_index")["insights"]
        assert kept["preview"] == TIPS["content"]
        longer = {**TIPS, "content": f"{TIPS['content']}. Measure it first.", "overwrite": True}
        assert client.ask("add_insight", **longer)["status"] == "updated"
        assert service.bank.get("ace-000001").items[0].content == longer["content"]


def test_lessons_of_the_other_profiles_are_insights_too(tmp_path):
    words = {"title": "Use sorted", "description": "Sorting", "content": "It is stable.", "tags": ["Python"]}
    with served(tmp_path / "b.sqlite") as (client, _):
        id = client.ask("save_lesson", query="sort a list", **words, success=False)["memory_id"]
    with served(tmp_path / "b.sqlite", tools="ace") as (client, _):
        [insight] = client.ask("export_memory")["insights"]
        assert (insight["id"], insight["content"], insight["success"]) == (id, "Sorting\n\nIt is stable.", False)
        assert client.ask("search_insights", query="stable")["insights"][0]["id"] == id
        assert client.ask("mark_helpful", id=id)["helpful"] == 1


def test_two_servers_never_give_one_id_twice(tmp_path):
    words, options = ("alpha", "bravo", "gamma", "delta", "omega", "sigma"), ("--tools", "ace")

    def write(client, name):
        titles = [f"{name} {word * 2}" for word in words]
        return [client.ask("add_insight", title=title, tags=["x"], content="y")["id"] for title in titles]

    with (
        calling(hashed(tmp_path / "b.sqlite", *options)) as a,
        calling(hashed(tmp_path / "b.sqlite", *options)) as b,
        ThreadPoolExecutor(2) as pool,
    ):
        ids = pool.map(write, (a, b), ("ann", "bob"))
        assert sorted(id for each in ids for id in each) == [f"ace-{number:06}" for number in range(1, 13)]


def test_an_agent_cannot_be_required_where_no_tool_takes_one(tmp_path):
    opened = here(tmp_path / "b.sqlite", tools="ace", require_agent=True)
    with pytest.raises(UserError, match="leave out --require-agent-id"), opened:
        pass


def test_personal_data_is_taken_out_of_an_insight_where_that_is_asked_for(tmp_path):
    made = {**TIPS, "title": "Ask ann@acme-corp.com", "content": "She reads ann@acme-corp.com every day."}
    with served(tmp_path / "b.sqlite", "memory.redact=personal", tools="ace") as (client, service):
        first, again = [client.ask("add_insight", **made) for _ in range(2)]
        [kept] = service.bank.records()
    assert kept.id == first["id"] == again["id"] and again["status"] == "duplicate"
    assert "ann@" not in kept.text + kept.original_query and "[removed email]" in kept.text
