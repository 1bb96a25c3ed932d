"""Callback that logs how much of each head's output is retrieved from memory."""

from pytorch_lightning import Callback, LightningModule, Trainer

from poslab.model.memory.retrieval import RetrievedAttention


class RetrievedShares(Callback):
    """Callback that logs the gate of a layer that retrieves, by head, at every validation."""

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for part in pl_module.modules():
            if isinstance(part, RetrievedAttention):
                for head, share in enumerate(part.shares.tolist()):
                    pl_module.log(f"retrieval/gate_head_{head}", share, sync_dist=True)
