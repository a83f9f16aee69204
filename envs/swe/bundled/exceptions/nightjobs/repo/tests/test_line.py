import pytest

from nightjobs.builtin import KINDS
from nightjobs.jobs import Kinds
from nightjobs.line import Line
from nightjobs.problems import JobError


def test_in_turn():
    line = Line(KINDS)
    first = line.add("average", numbers=[1, 2, 6])
    line.add("average", numbers=[4])
    assert line.run_next() == 3
    assert line.done == [(first, 3)]
    assert line.run_all() == 1
    assert line.run_next() is None


def test_files(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    line = Line(KINDS)
    line.add("line_count", path=tmp_path / "a.txt")
    assert line.run_next() == 2


def test_no_such_kind():
    with pytest.raises(JobError, match="no kind backup") as info:
        Line(KINDS).add("backup", to="tape")
    assert str(info.value.job) == "backup(to=tape)"


def test_twice():
    kinds = Kinds()
    kinds.register(len)
    with pytest.raises(JobError, match="len already"):
        kinds.register(len)
