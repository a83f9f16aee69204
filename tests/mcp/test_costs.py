"""What the server costs a conversation: the tools that are listed, and the answer with lessons."""

from __future__ import annotations

import json

import pytest
from conftest import REPO
from mcp_kit import MODEL, here, served

from mcp_server.server import READ_ONLY
from mcp_server.tools import MemoryTools

MOST, OF_ONE = 1500, 300  # characters of all default tools, and of one
SHARE = 1.3  # of an answer, of the lessons' own characters
LESSONS = [
    row
    for row in map(json.loads, (REPO / "benchmarks/data/coding_memory.jsonl").read_text(encoding="utf-8").splitlines())
    if row["kind"] == "lesson"
]


def cost(tool):
    """Characters of a tool's name, description and input schema, as they are sent."""
    sent = tool.model_dump(by_alias=True, exclude_none=True, mode="json")
    assert set(sent) <= {"name", "description", "inputSchema", "annotations"}  # no schema of outputs, no title
    return len(sent["name"]) + len(sent["description"]) + len(json.dumps(sent["inputSchema"], separators=(",", ":")))


def test_all_default_tools_cost_at_most_1500_characters_and_each_300(tmp_path):
    for words, most, names in (
        ((), MOST, {"retrieve_memory", "save_lesson", "update_lesson", "delete_lesson"}),
        (MODEL, 1_900, {"extract_memory", "task_status"}),
    ):
        with served(tmp_path / "b.sqlite", *words, tools="core") as (client, _):
            costs = {tool.name: cost(tool) for tool in client.tools()}
        assert sum(costs.values()) <= most and max(costs.values()) <= OF_ONE, costs
        assert names <= set(costs)


def test_what_cannot_work_is_not_listed_and_whose_memory_is_asked_only_where_it_matters(tmp_path):
    def arguments(*words, **how):
        with served(tmp_path / "b.sqlite", *words, tools="core", **how) as (client, _):
            return {tool.name: set(tool.input_schema["properties"]) for tool in client.tools()}

    plain = arguments()
    assert "task_status" not in plain and not any("agent_id" in given for given in plain.values())
    assert all("agent_id" in given for given in arguments(require_agent=True).values())
    assert all("agent_id" in given for given in arguments("preset=reasoningbank_mcp").values())
    with served(tmp_path / "b.sqlite", tools="core") as (client, service):
        service.bank.read_only = True  # as of a file that cannot be written
        assert {tool.name for tool in client.tools()} <= set(READ_ONLY)


@pytest.mark.parametrize("success", [True, False])
def test_an_answer_of_three_lessons_costs_at_most_1_3_times_the_lessons(tmp_path, success):
    """By each place of the set, three lessons that are shown together."""
    texts = ("title", "description", "content")
    with here(tmp_path / "b.sqlite", "retrieval=cosine", "retrieval.min_score=null") as (_, service):
        tools = MemoryTools(service)
        for row in LESSONS[:30]:
            tools.save_lesson(row["task"], **{name: row[name] for name in texts}, success=success)
        shares = []
        for row in LESSONS[:30]:
            answer = tools.retrieve_memory(row["task"], 3)
            seen, text = json.dumps(answer.structured_content, ensure_ascii=False), answer.text
            found = [each for each in LESSONS[:30] if text.count(each["content"])]
            assert len(found) == 3 and all(text.count(each["content"]) == 1 for each in found)
            assert list(answer.structured_content.values()) == [text]  # each lesson once, whichever a client passes on
            shares.append(len(seen) / sum(len(each[name]) for each in found for name in texts))
    assert max(shares) <= SHARE, sorted(shares)[-5:]
