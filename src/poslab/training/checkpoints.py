"""Checkpoint files of a run, and when its best weights are saved."""

from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from safetensors import SafetensorError

from poslab.config.files import appearing_whole
from poslab.errors import RunStopped, first_line
from poslab.runs.checkpoint_files import SAFETENSORS, save_weights
from poslab.runs.folder import RunFolder
from poslab.training.module import language_model_of


class CheckpointFiles(TorchCheckpointIO):
    """Writer of checkpoint files for Lightning, which reads them as it would its own."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write the file. Raises RunStopped where it can't be written; what was there before is as it was."""
        path = Path(path)
        run = RunFolder(path.parent.parent)
        try:
            if path.suffix == SAFETENSORS:
                save_weights(path, checkpoint["state_dict"], checkpoint["poslab"])
            else:
                with appearing_whole(path, durable=True, previous=run.previous) as file, file.open("wb") as opened:
                    torch.save(checkpoint, opened)
        except (OSError, RuntimeError, SafetensorError) as error:
            start = "resumes from the checkpoint" if run.resumable else "starts over, as no checkpoint is"
            # torch and safetensors have errors of their own for a full disk.
            reason = getattr(error, "strerror", None) or f"{first_line(error)} (the disk may be full)"
            raise RunStopped(f"{path}: can't be written: {reason}; resume={run} {start} before it") from error


class BestWeights(Checkpoint):
    """Callback that saves the best weights at validations, by what `monitor` names and then by the loss."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if language_model_of(pl_module).state.best_step == trainer.global_step:
            trainer.save_checkpoint(self.folder.best, weights_only=True)
