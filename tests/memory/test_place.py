"""The bank that nobody names: one for each repository, the same in its worktrees; found on each platform."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from platformdirs.windows import get_win_folder_from_env_vars

from core.memory.__main__ import main
from core.memory.place import default_bank, repository, unnamed_bank

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always")


def git(folder, *words):
    subprocess.run([*GIT, *map(str, words)], cwd=folder, check=True, capture_output=True)


def test_worktrees_share_the_bank_of_their_repository_and_a_submodule_has_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    site, lib = tmp_path / "my site", tmp_path / "lib"
    for folder in (site, lib):
        git(tmp_path, "init", folder)
        git(folder, "commit", "--allow-empty", "-m", "first")
    git(site, "worktree", "add", "../elsewhere/branch")
    git(site, "submodule", "add", lib, "vendored")
    git(tmp_path, "clone", "--bare", lib, "bare.git")
    git(tmp_path / "bare.git", "worktree", "add", tmp_path / "of-bare")
    (site / "src" / "deep").mkdir(parents=True)
    assert {repository(place) for place in (site, site / "src" / "deep", tmp_path / "elsewhere" / "branch")} == {site}
    assert repository(site / "vendored") == site / "vendored" and repository(tmp_path) is None
    assert repository(tmp_path / "of-bare") == tmp_path / "bare.git"

    names = {Path(unnamed_bank(place)[0]).name for place in (site, lib, site / "vendored", tmp_path / "of-bare")}
    assert len(names) == 4 and {name.rpartition("-")[0] for name in names} == {"my-site", "lib", "vendored", "bare"}
    outside = str(tmp_path / "data/reasoningbank/bank.sqlite")
    assert unnamed_bank(tmp_path) == (outside, "for work outside of repositories")
    monkeypatch.setenv("REASONINGBANK_BANK", "postgresql://me@host/lessons")
    assert unnamed_bank(site) == ("postgresql://me@host/lessons", "as $REASONINGBANK_BANK says")


def test_a_folder_that_is_gone_or_a_broken_link_is_no_repository(tmp_path):
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all\n")
    assert repository(tmp_path) == tmp_path  # git would say what is wrong with it: the memory stays the folder's own
    assert repository(tmp_path / "gone\0") is None


def test_commands_without_a_bank_are_about_the_repositorys(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "site" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "site")
    words = ("--query", "Deploy", "--title", "Cache", "--description", "", "--content", "Clear it first.")
    assert main(["add", "--embedder", "hashing-256", *words]) == 0
    place, why = unnamed_bank()
    assert f"the bank is {place}, {why}." in capsys.readouterr().err and str(tmp_path / "site") in why
    assert main(["export", ".", "out.md"]) == 0 and "Clear it first." in Path("out.md").read_text()
    assert main(["show", capsys.readouterr().out.split()[0]]) == 2  # an id alone is one, not a bank
    assert main(["list"]) == 0 and "Cache" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["export", "out.md"])  # which one of the two was left out is not guessed


@pytest.mark.parametrize(
    ("platform", "env", "place"),
    [
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data/reasoningbank/bank.sqlite"),
        ("linux", {}, "/home/me/.local/share/reasoningbank/bank.sqlite"),
        ("darwin", {}, "/home/me/Library/Application Support/reasoningbank/bank.sqlite"),
        ("win32", {"APPDATA": "/roaming"}, "/roaming/reasoningbank/bank.sqlite"),
    ],
)
def test_outside_of_repositories_it_lies_in_the_users_data_folder(monkeypatch, platform, env, place):
    for name in ("XDG_DATA_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/home/me"} | env).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("platformdirs.windows._resolve_win_folder", get_win_folder_from_env_vars)  # for want of Windows
    monkeypatch.setattr("sys.platform", platform)
    assert str(default_bank(None)) == place
