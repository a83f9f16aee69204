"""hydra/sweeper=verdict. The study itself is `_study.py`, which Hydra does not import when it looks for its plugins."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class VerdictSweeper(Sweeper):
    """Its settings, with their meaning, are in config/hydra/sweeper/verdict.yaml."""

    def __init__(
        self,
        *,
        arm: str,
        baseline: str,
        first: int,
        most: int,
        level: float,
        skewed: bool,
        first_seed: int,
        effect: float,
        pilot: int,
        diagnose: bool | None,
        same_cost: int | None,
        strong_extractor: Sequence[str],
    ) -> None:
        self.asked = {"arm": arm, "baseline": baseline, "first_seed": first_seed}
        self.asked["strong_extractor"] = tuple(strong_extractor)
        self.plan = {"first": first, "most": most, "level": level, "skewed": skewed, "effect": effect}
        self.settings = {"pilot": pilot, "diagnose": diagnose, "same_cost": same_cost}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from hydra.core.plugins import Plugins

        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )
        self.settings |= {"config": config, "context": hydra_context, "launcher": launcher}

    def sweep(self, arguments: list[str]) -> None:
        """Run the study. Ends the program: with exit status 0 if there is an answer, whatever it is, else with 1."""
        from hydra_plugins.reasoningbank_verdict._study import GrowingStudy

        found = GrowingStudy(asked=self.asked, plan=self.plan, **self.settings).run(arguments)
        sys.exit(0 if found else 1)
