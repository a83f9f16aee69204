"""How many tasks run at once where nothing is said, and that the records do not show it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from provider import completion

from envs.toy_script import play
from workflows.stream import recorded_together

BASE = ("env=toy", "embedder=hashing", "limit=10", "llm=vllm", "llm.client=openai", "llm.json_schema=false")


def answer(request, number):
    messages = request["messages"]
    role = "agent" if len(messages) > 1 else "judge" if "Status:" in messages[0]["content"] else "extractor"
    return 200, completion(play(messages, role, 0))


@pytest.mark.parametrize(
    ("words", "at_once"),
    [
        (("workflow=vanilla",), 8),
        (("stream.batch=4",), 4),
        ((), 1),
        (("workflow=vanilla", "budget.run.calls=1000"), 1),
        (("workflow=vanilla", "env.workers=2"), 2),
    ],
    ids=["vanilla", "batch", "stream", "budget", "workers"],
)
def test_tasks_of_a_server_run_at_once_where_they_do_not_depend_on_each_other(
    main_here, serve, tmp_path, words, at_once
):
    server = serve(answer, models=["m"])
    records = []
    for name, more in (("chosen", ()), ("one", ("max_concurrency=1",))):
        run_dir = tmp_path / name
        code, said, _ = main_here(*BASE, f"llm.api_base={server.url}", *words, *more, f"run_dir={run_dir}")
        assert code == 0
        assert (f"max_concurrency={at_once}: no task depends" in said) == (name == "chosen" and at_once > 1)
        records.append((run_dir / "episodes.jsonl").read_bytes())
    assert records[0] == records[1]


def test_episodes_that_are_there_are_written_at_once_and_no_other_with_one_that_may_end_the_stream():
    ready = [SimpleNamespace(status=status) for status in "success failure stopped infra_error success".split()]
    written = [[episode.status for episode in together] for together in recorded_together(ready)]
    assert written == [["success", "failure"], ["stopped"], ["infra_error"], ["success"]]


def test_a_model_in_this_process_runs_one_task_after_another(main_here, tmp_path):
    code, said, _ = main_here("env=toy", "llm=scripted", "embedder=hashing", "limit=3", "workflow=vanilla")
    assert code == 0 and "max_concurrency" not in said
