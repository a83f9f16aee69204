from lettermill.__main__ import main
from lettermill.mill import write_letters


def prepare(tmp_path, people):
    (tmp_path / "template.txt").write_text("Dear {name},\ncome to {CITY}!\n")
    (tmp_path / "people.csv").write_text(people)
    return [str(tmp_path / name) for name in ("template.txt", "people.csv", "letters")]


def test_one_letter_each(tmp_path):
    files = write_letters(*prepare(tmp_path, "id,name,city\nu1,Ann,Ulm\nu2, Bo,Bonn\n"))
    assert [file.name for file in files] == ["u1.txt", "u2.txt"]
    assert files[1].read_text() == "Dear Bo,\ncome to BONN!\n"


def test_command(tmp_path, capsys):
    words = prepare(tmp_path, "id,name,city\nu1,Ann,Ulm\n")
    assert main(words) == 0
    assert capsys.readouterr().out == "1 letters\n"


def test_no_list(tmp_path, capsys):
    words = prepare(tmp_path, "")
    assert main([words[0], str(tmp_path / "none.csv"), words[2]]) == 1
    assert "cannot read" in capsys.readouterr().err
