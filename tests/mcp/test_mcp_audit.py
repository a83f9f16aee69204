"""A sample of the extractions for a person to check: drawn by a hash, scrubbed, listed; off by default."""

from __future__ import annotations

import json

import pytest
from mcp_kit import MODEL, here, served

from core.errors import UserError
from mcp_server.__main__ import main
from mcp_server.audit import is_sampled, path_of

SECRET = "sk-proj-AbCdEf0123456789AbCdEf0123456789AbCdEf01"


def extract(bank, *keys, n=12, **more):
    """n extractions on a bank; what is told of each."""
    made = []
    with served(bank, *MODEL, *keys) as (client, _):
        for number in range(n):
            turns = [{"role": "assistant", "content": f"Call {number} to ann@kestrel.io with {SECRET}."}]
            how = {"trajectory": turns, "query": f"task {number}", "async_mode": False} | more
            made.append(client.ask("extract_memory", **how))
        again = client.ask("extract_memory", **how)  # the same job: not a second time in the sample
        assert again["task_id"] == made[-1]["task_id"]
    return made


def test_the_sample_is_drawn_by_the_jobs_id():
    ids = [f"job {n}" for n in range(20_000)]
    small, large = ({id for id in ids if is_sampled(id, share)} for share in (0.05, 0.5))
    assert 900 < len(small) < 1100 and small < large  # 5 % of 20 000 are 1000, sd 31
    assert not any(is_sampled(id, 0.0) for id in ids) and all(is_sampled(id, 1.0) for id in ids)


def test_nothing_is_kept_unless_asked_for(tmp_path, capsys):
    extract(tmp_path / "b.sqlite", n=3)
    assert not path_of(tmp_path / "b.sqlite").exists()
    assert main(["audit", "--bank", str(tmp_path / "b.sqlite")]) == 2
    assert "audit_share=0.05" in capsys.readouterr().err


def test_what_is_kept_is_what_was_judged_without_secrets(tmp_path, capsys):
    bank = tmp_path / "b.sqlite"
    made = extract(bank, "server.audit_share=0.5")
    drawn = [each for each in made if is_sampled(each["task_id"], 0.5)]
    assert 0 < len(drawn) < len(made)
    assert main(["audit", "--bank", str(bank), "--json"]) == 0
    text = capsys.readouterr().out
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["job"] for row in rows] == [each["task_id"] for each in drawn]
    assert [row["memory_id"] for row in rows] == [each["memory_id"] for each in drawn]
    first = rows[0]
    assert SECRET not in text and "ann@kestrel.io" not in text and SECRET not in path_of(bank).read_text()
    assert "[removed secret]" in first["attempt"] and "[removed email]" in first["attempt"]
    assert first["verdict"]["label"] == "success" and first["verdict"]["by"] == "llm"
    assert [lesson["title"] for lesson in first["lessons"]] == ["Check for empty input first"]
    assert main(["audit", "--bank", str(bank), "--last", "1"]) == 0
    shown = capsys.readouterr().out
    assert f"# {len(rows)} of {len(rows)}: memory {rows[-1]['memory_id']}" in shown and shown.count("## Task") == 1
    assert "## Verdict: success (by llm)" in shown and rows[-1]["query"] in shown


def test_the_clients_verdict_is_kept_as_the_clients(tmp_path):
    extract(tmp_path / "b.sqlite", "server.audit_share=1", n=1, success_signal=False)
    (line,) = path_of(tmp_path / "b.sqlite").read_text().splitlines()
    assert json.loads(line)["verdict"] == {"label": "failure", "by": "client", "reason": ""}


def test_a_sample_that_cannot_be_written_does_not_stop_the_extraction(tmp_path, caplog):
    path_of(tmp_path / "b.sqlite").mkdir()
    assert len(extract(tmp_path / "b.sqlite", "server.audit_share=1", n=1)) == 1
    assert "not in the audit's sample" in caplog.text


def test_a_share_is_from_0_to_1(tmp_path):
    with pytest.raises(UserError, match=r"server\.audit_share=5"), here(tmp_path / "b.sqlite", "server.audit_share=5"):
        pass
