"""Muon and AdamW as one optimizer, as Lightning's automatic optimisation, its clipping and its checkpoints take one."""

from collections.abc import Callable, Iterable
from typing import Any

import torch


class Muon(torch.optim.Optimizer):
    """torch's Muon for the group of parameters that is named "matrices", those of the blocks, AdamW for all others.

    Muon's steps are scaled to the root mean square of AdamW's (Liu et al. 2025, "Muon is Scalable for LLM Training"),
    so that one learning rate and one weight decay do for both. Raises ValueError where there are no matrices.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float = 1e-3,
        *,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-8,
        fused: bool = False,
    ) -> None:
        groups = list(params)
        matrices = [group for group in groups if group["name"] == "matrices"]
        others = [group for group in groups if group["name"] != "matrices"]
        if not matrices:
            raise ValueError(
                "there are no whole matrices of blocks; where processes divide them, optim=adamw trains them"
            )
        scaled: dict[str, Any] = {"adjust_lr_fn": "match_rms_adamw", "ns_steps": ns_steps}
        self._muon = torch.optim.Muon(
            matrices, lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, **scaled
        )
        self._adamw = torch.optim.AdamW(others, lr, weight_decay=weight_decay, betas=betas, eps=eps, fused=fused)
        # Both have filled in their settings in the groups, which here are the same ones.
        super().__init__([*matrices, *others], {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do a step of both."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for optimizer, is_muon in ((self._muon, True), (self._adamw, False)):
            # A checkpoint that was loaded has put others in their place.
            optimizer.param_groups = [group for group in self.param_groups if (group["name"] == "matrices") is is_muon]
            optimizer.state = self.state
            optimizer.step()  # type: ignore[no-untyped-call]
        return loss
