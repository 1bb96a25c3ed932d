"""Hydra sweeper of poslab, in the package where Hydra looks for plugins; the work is done in poslab.sweep."""

import sys
from collections.abc import Sequence
from itertools import product
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from poslab.config.nodes import given_settings
from poslab.errors import UserError, as_typed


class ResumableSweeper(Sweeper):
    """Sweeper of the combinations of overrides that are not finished yet. A failed job stops no other; the exit code is
    1 if any failed."""

    def __init__(self, params: dict[str, str] | None = None, grids: Sequence[dict[str, str]] | None = None) -> None:
        """Make the sweeper; params: overrides that a yaml gives, as those of an experiment. grids: further ones, of
        which each makes a grid with `params`. `overrides_of_jobs` reads both from the configuration."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.loader = config, hydra_context.config_loader
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        from poslab.sweep import run_sweep

        assert self.config is not None
        assert self.launcher is not None
        jobs = overrides_of_jobs(self.config, self.loader, arguments)
        if not run_sweep(jobs, self.config, self.loader, self.launcher):
            sys.exit(1)


def overrides_of_jobs(config: DictConfig, loader: ConfigLoader, arguments: Sequence[str]) -> list[list[str]]:
    """Return the overrides of each job: combinations grid by grid, but all those of one seed before those of the next.

    Raises UserError for an override without values.
    """
    # As they are written: an interpolation such as ${seed} is that of each job, which `__init__` gets resolved.
    written: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=False)
    params, parser = written["params"] or {}, OverridesParser.create(config_loader=loader)
    jobs: list[tuple[str, list[str]]] = []  # each with its seed
    for grid in written["grids"] or [{}]:
        words = [*(f"{name}={as_typed(value)}" for name, value in {**params, **grid}.items()), *arguments]
        choices: dict[str, list[str]] = {}  # the last override of a name counts
        for override in parser.parse_overrides(words):
            name = override.get_key_element()
            swept = override.is_sweep_override()
            values: Any = override.sweep_string_iterator() if swept else [override.get_value_element_as_str()]
            plain = name.lstrip("+")
            choices[plain] = [f"{name}={value}" for value in values]
            if not choices[plain]:
                raise UserError(f"{str(override.input_line).lstrip('+')}: has no values, so there are no jobs")
        jobs += [(given_settings(job).get("seed", ""), [*job]) for job in product(*choices.values())]
    # The seed varies slowest, so that a machine's load that drifts favours no scheme, and a sweep that is cut off has
    # whole seeds.
    seeds = list(dict.fromkeys(seed for seed, _ in jobs))
    return [job for seed, job in sorted(jobs, key=lambda job: seeds.index(job[0]))]


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="resumable",
    node={"_target_": f"{__name__}.{ResumableSweeper.__name__}", "params": None, "grids": None},
    provider="poslab",
)
