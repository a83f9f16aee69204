"""The instances of env=swe: folders, rows of SWE-bench, and what is refused."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest
from swe_kit import bubblewrap, make, rows, stand_in, write_instances

from core.errors import UserError
from envs.swe.data import Instance, family_lessons, load


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_instances(tmp_path_factory.mktemp("swe") / "data")


def test_instances_come_by_turns_from_a_folder(data):
    found = load(str(data))
    assert [(each.id, each.type, each.repo) for each in found] == [
        ("empty__stats-1", "empty", "bundled/stats"),
        ("shared__ranks-1", "shared", "bundled/ranks"),
    ]
    assert found[0].tests[0] == ("tests/test_hidden.py::test_empty",) and len(found[0].tests[1]) == 2
    assert family_lessons(str(data))["empty"].title == "How empty is done here"
    assert family_lessons(str(data))["empty"].content == "In this house empty is told by None."


def write_rows(folder: Path, kind: str, data: Path) -> Path:
    found, path = rows(data), folder / f"rows.{kind}"
    if kind == "parquet":
        import pyarrow as pa
        from pyarrow.parquet import write_table

        lists = [row | {"PASS_TO_PASS": json.loads(row["PASS_TO_PASS"])} for row in found]
        write_table(pa.Table.from_pylist(lists), path)
    elif kind == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]))
            writer.writeheader()
            writer.writerows(row | {"PASS_TO_PASS": repr(json.loads(row["PASS_TO_PASS"]))} for row in found)
    elif kind == "json":
        path.write_text(json.dumps({"data": found}))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "parquet"])
def test_rows_of_swe_bench_are_read(kind, data, tmp_path):
    theirs = load(str(write_rows(tmp_path, kind, data)))
    for mine, other in zip(load(str(data)), theirs, strict=True):
        assert (other.id, other.issue, other.tests, other.gold, other.test_patch) == (
            mine.id, mine.issue, mine.tests, mine.gold, mine.test_patch
        )  # fmt: skip
        assert (other.type, other.folder) == (mine.repo, None)


def test_an_image_that_is_an_option_of_docker_is_refused(data, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(rows(data)[0] | {"image_name": "--volume=/:/host"}))
    with pytest.raises(UserError, match="line 1: image_name=--volume=/:/host is an option of docker"):
        load(str(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "a row is a JSON object"),
        ('{"instance_id": "a", "repo": "b", "problem_statement": "x", "patch": ["x"]}', "patch is no text"),
        ('{"repo": "a/b", "problem_statement": "x"}', "instance_id is missing"),
        ('{"instance_id": "a", "repo": "a/b", "problem_statement": 3}', "problem_statement is missing or no text"),
        ('{"instance_id": "a", "repo": "b", "problem_statement": "x", "FAIL_TO_PASS": "[1]"}', "no list of tests"),
        ('{"instance_id": "a", "repo": "b", "problem_statement": "x", "FAIL_TO_PASS": "x"}', "FAIL_TO_PASS: not JSON"),
    ],
)
def test_a_row_that_is_none_is_named(text, said, tmp_path):
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(UserError, match=said):
        load(str(tmp_path / "rows.jsonl"))


@bubblewrap
def test_what_does_not_fit_together_is_refused(data, tmp_path, monkeypatch):
    path = write_rows(tmp_path, "jsonl", data)
    programs = stand_in(tmp_path / "bin", "docker", data, "{id}")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    django = {**rows(data)[0], "FAIL_TO_PASS": '["test_x (forms.tests.FormsTest)"]'}
    (tmp_path / "django.jsonl").write_text(json.dumps(django))
    twice = tmp_path / "twice.jsonl"
    twice.write_text(f"{json.dumps(django)}\n" * 2)
    for keys, said in (
        ({"data": str(path)}, "choose docker or podman, whose images hold its repositories"),
        ({"data": str(data), "sandbox": "docker"}, "cannot be played with env.sandbox=docker: choose bwrap"),
        ({"data": str(tmp_path / "nowhere")}, "there is no such file or folder"),
        ({"data": str(data), "types": ["django"]}, "has no django"),
        ({"data": str(data), "ids": ["a__b-1"]}, "has no a__b-1"),
        ({"data": str(data), "evaluation": "oracle"}, "choose tests or none"),
        ({"data": str(data), "command_timeout_s": 0}, "give a number above 0"),
        (
            {"data": str(tmp_path / "django.jsonl"), "sandbox": "docker"},
            "none of pytest, so env.evaluation=tests cannot",
        ),
        ({"data": str(twice), "sandbox": "docker", "evaluation": "none"}, "2 rows have 1 different ids"),
    ):
        with pytest.raises(UserError, match=said):
            make(keys.pop("data"), **keys).tasks()
    assert len(make(tmp_path / "django.jsonl", sandbox="docker", evaluation="none").tasks()) == 1
    assert [task.type for task in make(data, types=["shared"]).tasks()] == ["shared"]


def test_an_image_is_named_as_the_official_ones_are(data):
    env, texts = make(data), dict.fromkeys(("repo", "type", "issue", "gold", "test_patch"), "")
    env._playing = Instance(id="Django__django-11099", tests=((), ()), **texts)
    assert env._source() == "docker.io/swebench/sweb.eval.x86_64.django_1776_django-11099:latest"
