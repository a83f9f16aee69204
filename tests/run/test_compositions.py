"""Hydra's compositions of one start: each made once, and the same as without that."""

from __future__ import annotations

import sys

import forkserver
import pytest
from conftest import REPO

COUNTED = """
import runpy, sys
from collections import Counter
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import OmegaConf
compose, load, made, parsed = ConfigLoaderImpl._load_configuration_impl, OmegaConf.load, [], Counter()
OmegaConf.load = lambda file: parsed.update([getattr(file, "name", file)]) or load(file)
def counted(self, config_name, overrides, *more, **named):
    found = compose(self, config_name, overrides, *more, **named)
    made.append(tuple(overrides))
    return found
ConfigLoaderImpl._load_configuration_impl = counted
try:
    runpy.run_path("main.py", run_name="__main__")
finally:
    print("COMPOSED", len(made), max(parsed.values()))
"""
TOY = ("env=toy", "llm=scripted", "embedder=hashing", "limit=1")


def start(*words, code=COUNTED):
    command = [sys.executable, "-W", "default", "-c", code, *words]
    return forkserver.run(command, cwd=REPO, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (TOY, 1),
        (("-m", *TOY, "seed=0,1"), 4),  # to learn the mode, as a sweep, and each cell
        ((*TOY, "experiment=known_answer", "arm=no_memory,reasoningbank"), 4),
    ],
)
def test_each_is_made_once_of_files_parsed_once(tmp_path, words, made):
    done = start(*words, f"run_dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("COMPOSED")[1].split() == [str(made), "1"]
    assert "--multirun" not in done.stderr  # Hydra's warning that -m overrides the mode


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("seed=3", "workflow=vanilla"),
        ("hydra.mode=RUN",),
        ("hydra.run.dir=elsewhere", "+hydra.job.env_set.A=b"),
        ("seed=0,1",),  # of a sweep alone
        ("llm=no_such",),
        ("no_such=1",),
    ],
)
@pytest.mark.parametrize("mode", ["RUN", "MULTIRUN"])
def test_they_are_those_of_hydra_itself(words, mode):
    code = f"""
import sys
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf
import main  # its resolvers
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
kept, parsed_once = ConfigLoaderImpl.load_configuration, ConfigRepository.load_config
def composed(function):
    try:
        found = function(loader, "config", sys.argv[1:], RunMode.{mode}, validate_sweep_overrides={mode == "RUN"})
        flags = [OmegaConf.is_struct(found), OmegaConf.is_readonly(found), OmegaConf.is_struct(found.hydra.job.env_set)]
        return OmegaConf.to_yaml(found), flags, found._get_node("hydra")._metadata.object_type
    except Exception as error:
        return type(error).__name__, str(error)
with initialize_config_dir("{REPO / "config"}", version_base="1.3"):
    loader = GlobalHydra.instance().config_loader()
    ConfigRepository.load_config = parsed_once.__wrapped__
    own = composed(kept.__wrapped__)
    ConfigRepository.load_config = parsed_once
    for _ in range(3):
        found = composed(kept)
        assert found == own, (found, own)
print(len(own[0]))
"""
    done = start(*words, code=code)
    assert done.returncode == 0, done.stderr
