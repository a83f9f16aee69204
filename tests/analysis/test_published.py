"""analysis/published.json: every number has its source, and stands beside ours only where it can be compared."""

from __future__ import annotations

import pytest

from analysis.published import comparable, load, reference
from analysis.tables import tables
from analysis.text_table import TextTable, to_html, to_latex, to_markdown

OURS = {
    "arm": "reasoningbank",
    "env": "alfworld",
    "model": "vertex_ai/gemini-2.5-pro",
    "n_tasks": 140,
    "setting": "test_time",
    "label_source": "llm",
    "success": 0.7,
    "k": None,
    "r": None,
    "top_k": 1,
}


def test_every_number_has_a_source_and_a_table_that_exists():
    for each in load():
        assert each.source and each.where and each.values["model"] and each.values["arm"]
        assert set(each.tables) <= set(tables())
        for name, value in each.values.items():
            assert name in ("model", "arm", "job") or isinstance(value, int | float)
        assert 0 <= each.values.get("success", 0) <= 100


PUBLISHED = [
    ("ReasoningBank, arXiv 2509.25140 v1", "webarena", "Gemini-2.5-flash", "reasoningbank", 48.8),
    ("ReasoningBank, arXiv 2509.25140 v2", "webarena", "Gemini-2.5-pro", "matts_parallel", 56.3),
    ("ReasoningBank, arXiv 2509.25140 v1", "swe_bench_verified", "Gemini-2.5-pro", "synapse", 53.4),
    ("ReasoningBank, arXiv 2509.25140 v1", "webarena multi", "Claude-3.7-sonnet", "no_memory", 0.0),
    ("ReasoningBank, arXiv 2509.25140 v2", "webarena shopping", "Gemma-3-12B-Instruct", "awm", 21.4),
    ("ReasoningBank, arXiv 2509.25140 v1", "mind2web test_task", "Gemini-2.5-pro", "reasoningbank", 5.1),
    ("ReasoningBank, arXiv 2509.25140 v1", "mind2web test_domain", "Gemini-2.5-flash", "awm", 0.7),
    ("SkillOS, arXiv 2605.06614", "alfworld", "Qwen3-8B", "reasoningbank", 55.7),
    ("SkillOS, arXiv 2605.06614", "aime25", "Qwen3-32B", "no_memory", 72.2),
    ("SkillOS, arXiv 2605.06614", "gpqa_diamond", "Gemini-2.5-Pro", "reasoningbank", 80.4),
]


def test_some_numbers_are_as_published(subtests):
    for source, env, model, arm, success in PUBLISHED:
        with subtests.test(source=source, env=env, model=model, arm=arm):
            env, _, part = env.partition(" ")
            row = (source, env, part or None, model, arm)
            found = [p for p in load() if (p.source, p.env, p.part, p.values["model"], p.values["arm"]) == row]
            assert success in [p.values["success"] for p in found if "main" in p.tables]
            assert part or len(found) == 1


def test_the_same_benchmark_and_model_are_comparable():
    assert comparable(OURS) == "71.4 ± 2.9 (SkillOS)"
    line = next(line for line in reference("main", [OURS]) if line[3].startswith("71.4"))
    assert line[4:6] == ["70.0", "yes: number of tasks and model"]
    assert "top-k 5" in line[6]  # its protocol stands with the source


def test_a_part_of_a_benchmark_stands_beside_that_part_alone():
    paper = {"model": "gemini-2.5-flash", "env": "mind2web", "success": 0.05}
    ours = OURS | paper | {"part": "test_website", "n_tasks": 177}
    assert comparable(ours) == ("2.3 (element accuracy 44.3, action f1 52.6, step success 33.9) (ReasoningBank)")
    lines = {line[0]: line for line in reference("measures", [ours]) if line[1] == "Gemini-2.5-flash"}
    assert lines["mind2web test_website"][4:6] == ["5.0", "yes: number of tasks and model"]
    assert lines["mind2web test_task"][5] == "no: it is of test_task; it has 252 tasks, ours 177"
    assert "history and averaging were not published" in lines["mind2web test_task"][6]
    shop = OURS | paper | {"env": "webarena", "part": "shopping", "n_tasks": 187}
    assert comparable(shop) == "49.7 (ReasoningBank)"
    assert comparable(shop | {"part": "admin"}) == "-"
    assert comparable(shop | {"part": None, "n_tasks": 684}) == "48.8 (ReasoningBank)"


def test_corrected_tasks_do_not_stand_beside_numbers_of_the_published_ones():
    ours = OURS | {"model": "gemini-2.5-flash", "env": "webarena", "part": "shopping", "n_tasks": 187}
    assert comparable(ours | {"version": "original"}) == "49.7 (ReasoningBank)"
    assert comparable(ours | {"version": "verified"}) == "-"
    [line] = [each for each in reference("main", [ours | {"version": "verified"}]) if each[3] == "49.7"]
    assert line[5] == "no: its tasks and their evaluation are the original ones, ours the verified ones"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": "openai/gpt-4o-mini"}, "model"),
        ({"n_tasks": 20}, "it has 140 tasks, ours 20"),
        ({"setting": "train"}, "ours is setting=train"),
        ({"label_source": "llm+oracle"}, "ours has labels llm+oracle"),
        ({"env": "toy"}, "another benchmark"),
        ({"overridden": "workflow=vanilla workflow.k=2"}, "ours overrides workflow, workflow.k"),
    ],
)
def test_why_a_number_is_not_comparable(change, why):
    ours = OURS | change
    assert comparable(ours) == "-"
    lines = [line for line in reference("main", [ours]) if line[2] == "reasoningbank"]
    assert lines
    assert all(line[4] == "-" and line[5].startswith("no: ") for line in lines)
    assert any(why in line[5] for line in lines)


def test_what_the_published_row_has_as_well_may_be_overridden():
    shop = {"model": "gemini-2.5-flash", "env": "webarena", "part": "shopping", "n_tasks": 187, "k": 5}
    ours = OURS | shop | {"arm": "matts_parallel", "overridden": "workflow.k=5"}
    assert comparable(ours) == "55.1 (ReasoningBank)"
    assert comparable(ours | {"overridden": "workflow.k=5 memory=awm"}) == "-"


def test_the_rate_of_a_single_run_is_a_whole_number_of_its_tasks():
    found = [p for p in load() if p.source.startswith("EvoMemBench") and "success" in p.values]
    assert len(found) == 4
    for each in found:
        solved = round(each.values["success"] * each.n_tasks / 100)
        assert round(100 * solved / each.n_tasks, 1) == each.values["success"]


def test_what_others_measured_stands_apart_from_what_authors_did():
    alone = [p for p in load() if p.independent]
    assert len(alone) > 20 and all(p.note for p in alone)  # what is not said
    ours = OURS | {"arm": "history", "model": "Qwen2.5-14B", "n_tasks": 134}
    assert comparable(ours) == "-"  # beside a cell stands what its method's authors published
    [*_, line] = reference("main", [ours])
    assert (line[3], line[4], line[5]) == ("86.6", "70.0", "yes: number of tasks and model")
    assert line[6].startswith("independent: G-Memory, issue 25, ")
    sources = [line[6].startswith("independent") for line in reference("main", [OURS | {"arm": "no_memory"}])]
    assert sources == sorted(sources) and {*sources} == {False, True}


def test_for_a_benchmark_without_published_numbers_stand_the_papers_own():
    assert {line[0] for line in reference("main", [OURS | {"env": "math500"}])} == {"webarena", "swe_bench_verified"}


def test_no_text_escapes_its_table():
    table = TextTable(title="a_b", head=["x|y", "<b>"], rows=[["50 % & more", "</td><script>"]], notes=["<i>"])
    assert r"50 \% \& more" in to_latex(table)
    assert r"a\_b" in to_latex(table)
    assert r"x\|y" in to_markdown(table)
    assert "<script>" not in to_html(table)
    assert "<i>" not in to_html(table)
