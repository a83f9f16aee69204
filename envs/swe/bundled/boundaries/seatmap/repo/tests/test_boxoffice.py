from boxoffice import main


def test_reserve_twice(tmp_path, capsys):
    file = ["--file", str(tmp_path / "seats.json")]
    assert main([*file, "reserve", "Miller", "C", "3", "6"]) == 0
    assert main([*file, "reserve", "Okafor", "C", "4", "5"]) == 1
    assert "Miller has 3 to 6" in capsys.readouterr().out


def test_free(tmp_path, capsys):
    assert main(["--file", str(tmp_path / "seats.json"), "free", "D"]) == 0
    assert capsys.readouterr().out == "1 to 25\n"
