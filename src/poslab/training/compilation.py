"""How a run's model is compiled: not at all, by torch.compile, or into CUDA graphs, which launch a step's kernels at
once.

A CUDA graph replays its kernels on the memory that it was recorded with. So all batches need one shape, and whatever a
step computes is overwritten by the next.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from poslab.config.schema import REDUCE_OVERHEAD, Compile, ModelConfig, TrainerConfig
from poslab.config.train import TrainConfig
from poslab.processors import compiler_problem
from poslab.training.machine import device_of

# What model.compile=null is on CUDA. No GPU has timed REDUCE_OVERHEAD, nor run it: scripts/benchmarks/visit.py does.
ON_CUDA: Compile = True


class Exclusion(NamedTuple):
    """Runs that no CUDA graph can replay, or in which it has never been tried."""

    runs: str
    why: str
    holds: Callable[[TrainConfig, int], bool]  # for a configuration and its number of processes


WITHOUT_GRAPHS = (
    Exclusion("on a CPU", "they are CUDA's", lambda config, _: device_of(config.trainer) != "cuda"),
    Exclusion("on AMD's GPUs", "a model learned worse (pytorch#187715)", lambda *_: torch.version.hip is not None),
    Exclusion("several GPUs", "nobody has tried them", lambda _, processes: processes > 1),
    Exclusion("data of several lengths", "a graph has one length", lambda config, _: not config.data.one_length),
    Exclusion("model.memory_length, model.retrieval", "it isn't compiled", lambda config, _: config.model.reach > 0),
    Exclusion(
        "trainer.accumulate_grad_batches",
        "a replay overwrites the gradients that are kept (pytorch#96693)",
        lambda config, _: config.trainer.accumulate_grad_batches > 1,
    ),
)


def compilation(config: TrainConfig, processes: int) -> Compile:
    """Return what the model's `compile` is: by the settings or, where they leave it open, on CUDA; if torch can."""
    wanted = _wanted(config.model, config.trainer)
    if not wanted or missing_compiler(config.model, config.trainer):
        return False
    if wanted == REDUCE_OVERHEAD and graphs_problem(config, processes):
        return True
    return wanted


def graphs_problem(config: TrainConfig, processes: int) -> str | None:
    """Say why no CUDA graph replays the steps of a run; None: one can."""
    problems = (f"{row.runs}: {row.why}" for row in WITHOUT_GRAPHS if row.holds(config, processes))
    return next(problems, None)


def compilation_warnings(config: TrainConfig, processes: int) -> list[str]:
    """Warn of a compiler that is missing, and of CUDA graphs that were asked for and can't be."""
    notes = missing_compiler(config.model, config.trainer)
    problem = graphs_problem(config, processes)
    if not notes and config.model.compile == REDUCE_OVERHEAD and problem:
        notes = [f"model.compile={REDUCE_OVERHEAD}: compiled without CUDA graphs; {problem}"]
    return notes


def missing_compiler(model: ModelConfig, trainer: TrainerConfig) -> list[str]:
    """Warn where the model is to be compiled, but torch can't do that here."""
    wanted = _wanted(model, trainer)
    problem = compiler_problem(device_of(trainer)) if wanted else None
    typed = REDUCE_OVERHEAD if wanted == REDUCE_OVERHEAD else "true"
    return [f"model.compile={typed}: trains uncompiled, to the same result; torch says: {problem}"] if problem else []


def _wanted(model: ModelConfig, trainer: TrainerConfig) -> Compile:
    """Return what the settings say; where they leave it open, no for a CPU and for weights that processes divide."""
    if model.compile is not None:
        return model.compile
    if device_of(trainer) != "cuda" or trainer.strategy.startswith("fsdp"):
        return False
    return ON_CUDA
