"""ALFWorld without its engine: games found in folders and archives, games made here, and commands mended."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from core.errors import UserError

pytest.importorskip("alfworld", reason="the alfworld extra is not installed")

from alfworld_kit import make, write_archive

from envs.alfworld.env import nearest
from envs.alfworld.generate import generate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("alfworld")


@pytest.fixture(scope="module")
def archive(folder):
    return write_archive(folder)


def test_two_hundred_generated_games_differ_and_depend_on_the_seed_alone(folder):
    games = generate(0, 200, folder)
    assert len({game.folder.split("/")[0] for game in games}) == 200
    assert len({game.sha256 for game in games}) == 200
    assert Counter(game.type for game in games).most_common()[-1][1] == 33
    assert len({game.folder.split("/")[0].split("-")[-1] for game in games}) >= 20
    assert generate(0, 50, folder) == games[:50]
    assert not {game.folder for game in games} & {game.folder for game in generate(1, 200, folder)}


def test_more_games_than_the_floor_plans_allow_are_refused(folder, monkeypatch):
    monkeypatch.setattr("envs.alfworld.generate.floor_plans", lambda tables: [301, 12])
    with pytest.raises(UserError, match=r"only \d+ different games can be generated: lower env\.generated_games"):
        generate(0, 1000, folder)


def test_what_is_taken_from_an_archive_is_listed_by_split(folder, archive):
    env = make(folder, split="valid_unseen", data=str(archive))
    assert [len(env.tasks(split)) for split in ("valid_seen", "valid_unseen")] == [1, 1]
    with pytest.raises(UserError, match=r"no games of env.split=train .* valid_seen \(1\), valid_unseen \(1\)"):
        env.tasks("train")
    unpacked = make(folder, split="valid_unseen", data=str(folder / "json_2.1.1"))
    assert unpacked.tasks() == env.tasks()
    other = make(folder, split="train", data=str(folder / "json_2.1.1" / "valid_seen"))
    with pytest.raises(UserError, match="no games"):
        other.tasks()
    assert env.describe()["sha256"] == unpacked.describe()["sha256"]


def test_the_list_of_games_is_kept_until_they_change(tmp_path, folder):
    row = generate(5, 1, folder)[0]
    file = tmp_path / "games" / row.folder / "game.tw-pddl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(row.data | {"solvable": True}))
    options = {"split": "train", "data": str(tmp_path / "games")}
    assert [task.query for task in make(tmp_path, **options).tasks()] == [row.query]
    (index,) = (tmp_path / "index").iterdir()
    index.write_text(index.read_text().replace(row.query, "from the kept list"))
    assert [task.query for task in make(tmp_path, **options).tasks()] == ["from the kept list"]
    file.write_text(json.dumps(row.data | {"solvable": True, "changed": 1}))
    assert [task.query for task in make(tmp_path, **options).tasks()] == [row.query]
    file.write_text(json.dumps(row.data | {"solvable": False}))
    assert make(tmp_path, **options).tasks() == []


def test_absent_data_is_one_error_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"alfworld-download, or play env.split=generated"):
        make(tmp_path, split="valid_seen").tasks()
    with pytest.raises(UserError, match=r"env\.data=/no/such"):
        make(tmp_path, split="valid_seen", data="/no/such").tasks()


@pytest.mark.parametrize("length", [0, 100, 5000])
def test_a_broken_archive_is_refused(tmp_path, archive, length):
    (tmp_path / "broken.tar.xz").write_bytes(archive.read_bytes()[:length])
    with pytest.raises(UserError, match="neither a folder nor a whole tar archive"):
        make(tmp_path, split="valid_seen", data=str(tmp_path / "broken.tar.xz")).tasks()
    assert not list((tmp_path / "archives").iterdir())


def test_data_is_found_by_the_environment_variable(folder, archive, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(folder))
    assert make(folder, split="valid_seen").tasks() == make(folder, split="valid_seen", data=str(archive)).tasks()


NEW = ["go to cabinet 1", "go to cabinet 2", "move apple 1 to fridge 1", "cool apple 1 with fridge 1", "use desklamp 1"]
OLD = ["put apple 1 in/on fridge 1", "take apple 1 from fridge 1", "take apple 2 from fridge 1", "look"]


COMMANDS = [
    ("go to cabinet 2", NEW, "go to cabinet 2"),
    ("Go to the cabinet 2.", NEW, "go to cabinet 2"),
    ("go to cabnet 2", NEW, "go to cabinet 2"),
    ("1. put apple 1 in/on fridge 1", NEW, "move apple 1 to fridge 1"),
    ("turn on desklamp 1", NEW, "use desklamp 1"),
    ("move the apple 1 to fridge 1", OLD, "put apple 1 in/on fridge 1"),
    ("pick up apple 2 from fridge 1", OLD, "take apple 2 from fridge 1"),
    ("go to cabinet 3", NEW, None),  # another cabinet is not what was meant
    ("go to cabinet", NEW, None),  # which of the two?
    ("use the desklamp", NEW, "use desklamp 1"),  # there is one
    ("put apple in fridge", NEW, "move apple 1 to fridge 1"),
    ("take apple from fridge", OLD, None),
    ("use desklamp 2", NEW, None),
    ("heat apple 1 with fridge 1", NEW, None),
    ("take potato 1 from fridge 1", OLD, None),
    ("", NEW, None),
    ("looks", [], None),
]


def test_nearest_mends_the_form_and_never_the_meaning(subtests):
    for command, admissible, meant in COMMANDS:
        with subtests.test(command=command):
            assert nearest(command, admissible) == (meant or command)


def test_a_name_within_a_name_is_another_thing():
    assert nearest("go to towelholder 1", ["go to handtowelholder 1", "look"]) == "go to towelholder 1"
    assert nearest("go to cabinets 1", ["go to cabinet 1", "look"]) == "go to cabinet 1"
