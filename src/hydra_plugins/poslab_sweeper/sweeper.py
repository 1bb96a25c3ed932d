"""Hydra sweeper of poslab, in the package where Hydra looks for plugins; the work is done in poslab.sweep."""

import sys
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser

from poslab.errors import UserError


class ResumableSweeper(BasicSweeper):
    """Sweeper of the unfinished combinations among those that Hydra's own sweeper makes. A failed job stops no other;
    the exit code is 1 if any failed."""

    def sweep(self, arguments: list[str]) -> Any:
        from poslab.sweep import run_sweep

        assert self.config is not None
        assert self.launcher is not None
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        parsed = OverridesParser.create(config_loader=loader).parse_overrides([*self._parse_config(), *arguments])
        (combinations,) = self.split_arguments(parsed, None)
        if not combinations:
            empty = next(o for o in reversed(parsed) if o.is_discrete_sweep() and not list(o.sweep_string_iterator()))
            raise UserError(f"{str(empty.input_line).lstrip('+')}: has no values, so there are no jobs")
        if not run_sweep(combinations, self.config, loader, self.launcher):
            sys.exit(1)


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="resumable",
    node={
        "_target_": f"{__name__}.{ResumableSweeper.__name__}",
        "max_batch_size": None,
        "params": None,
    },
    provider="poslab",
)
