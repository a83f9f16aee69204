from quoteline.command import main, render
from quoteline.place import Place
from quoteline.select import select


def test_one_line():
    assert select("one\ntwo\nthree\n", Place("x", 2)) == [(2, "two")]


def test_render():
    assert render([(9, "def f():"), (10, ""), (11, "    pass")]) == " 9 | def f():\n10 |\n11 |     pass\n"


def test_main(tmp_path, capsys):
    file = tmp_path / "n.txt"
    file.write_text("one\ntwo\nthree\n")
    assert main([f"{file}:3", f"{file}:1"]) == 0
    assert capsys.readouterr().out == "3 | three\n\n1 | one\n"


def test_usage(capsys):
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err
