"""EXPERIMENTAL: FSDP2, which divides parameters, gradients and the optimiser's state among the processes.

`trainer.strategy=fsdp2` is Lightning's ModelParallelStrategy with a mesh of all processes for the data and none for
tensors. Each block is a unit that is put together when it computes. Checkpoints are single files of whole weights, as
any other run's. Sample texts and pictures, which one process would make, are left out.
"""

from typing import cast

from pytorch_lightning.strategies import ModelParallelStrategy
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from poslab.errors import SettingError
from poslab.model.decoder import GPT
from poslab.training.module import LanguageModel

NAMES = ("fsdp2", "ModelParallelStrategy")


class ShardedLanguageModel(LanguageModel):
    """Training of a GPT whose weights lie in parts on several devices."""

    def configure_model(self) -> None:
        assert self.device_mesh is not None
        mesh = self.device_mesh["data_parallel"]
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self, mesh=mesh)  # the rest: embedding, position tables, final norm
        for step in ("training_step", "validation_step"):
            register_fsdp_forward_method(self, step)

    def on_fit_end(self) -> None:
        cast(FSDPModule, self).unshard()  # the position tables are read once training is over


def strategy(world_size: int) -> ModelParallelStrategy:
    """Make the strategy, whose mesh is (world_size, 1)."""
    return ModelParallelStrategy(world_size, tensor_parallel_size=1, save_distributed_checkpoint=False)


def check(name: str, model: GPT, world_size: int) -> None:
    """Raise SettingError where there is one process only, or a parameter that can't be divided."""
    if world_size == 1:
        raise SettingError("trainer.strategy", name, "needs several processes, as by trainer.devices=2")
    single = [table for table, parameter in model.named_parameters() if not parameter.dim()]
    if single:
        raise SettingError("trainer.strategy", name, f"can't divide single numbers, such as this scheme's {single[0]}")
