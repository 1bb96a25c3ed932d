"""The contract of position schemes, tried on small models: by `poslab check`, by the tests, and before a training.

hooks.py   watches what each hook returns while a model runs
trial.py   how a check is tried, on small models
checks.py  the checks of the contract, each of which compares two ways to the same numbers
"""

from typing import Any, cast

import torch

from poslab.config.schema import ModelConfig
from poslab.config.schemes import node_of
from poslab.config.train import TrainConfig
from poslab.errors import SettingError, blamed_on
from poslab.positions import ModelShape, PositionScheme
from poslab.runs.code import outside
from poslab.tasks import Task
from poslab.tasks.checks import check_task

_QUICK = ("hooks", "pictures", "no look ahead", "cache")
_TRIED: set[Any] = set()


def try_before_training(config: TrainConfig) -> None:
    """Try the quick checks of the contract on a scheme, a block or a task from outside poslab, once in this process.

    Takes a second for a small model, four for `model=gpt2`, and moves no random generator. Raises SettingError for the
    first check that fails.
    """
    try_scheme(config.pos, config.model.shape)
    try_block(config.model)
    if outside(config.data.node):
        check_task(cast(Task, config.data))


def try_scheme(scheme: PositionScheme, shape: ModelShape) -> None:
    """Try a scheme as `try_before_training` does, for models of that shape."""
    tried = type(scheme), repr(scheme), shape
    if tried in _TRIED or not outside(node_of(scheme)):
        return
    from poslab.contract.checks import CHECKS  # late, because poslab's own schemes don't need them
    from poslab.contract.trial import Differs, NotTried, compare

    for check in _QUICK:
        with torch.random.fork_rng(devices=[]), blamed_on("pos", scheme, check):
            try:
                compare(CHECKS[check], scheme, **_sizes(shape))
            except NotTried:
                continue
            except Differs as difference:
                raise SettingError("pos", type(scheme).__name__, f"{check}: {difference}") from None
    _TRIED.add(tried)


def try_block(model: ModelConfig) -> None:
    """Try the parts of the block as `try_before_training` does, in models without positions."""
    block = {"norm": model.norm, "mlp": model.mlp}
    foreign, tried = ", ".join(outside(block)), repr((block, model.shape))
    if tried in _TRIED or not foreign:
        return
    from poslab.contract.checks import CHECKS
    from poslab.contract.trial import outcome

    for check in _QUICK:
        with torch.random.fork_rng(devices=[]):
            result, words = outcome(CHECKS[check], PositionScheme(), **_sizes(model.shape), **block)
        if result == "differs":
            raise SettingError("model", foreign, f"{check}: {words}")
    _TRIED.add(tried)


def _sizes(shape: ModelShape) -> dict[str, Any]:
    """Return sizes of a small model of that shape. A hook may depend on all of them; three layers are a first, a middle
    and a last one."""
    smaller = {"num_layers": min(shape.num_layers, 3), "context_length": min(shape.context_length, 40)}
    return shape.sizes | smaller
