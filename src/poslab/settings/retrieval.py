"""What is set of retrieved memory. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from poslab.errors import SettingError
from poslab.settings.roles import Limited, setting


@dataclass(frozen=True)
class Retrieval(Limited):
    """Which layer looks up earlier tokens of its document, and among how many; see `poslab.memory.retrieval`.

    layer: from 0 on. size: tokens before the segment that are kept. k: those that each query retrieves, of each head.
    position_bias: their scores get the scheme's bias by distance as well. Raises SettingError for what can't be.
    """

    layer: int = setting(least=0)
    size: int = setting(8192, least=1)
    k: int = setting(32, least=1)
    position_bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > self.size:
            raise SettingError("k", self.k, f"must be at most size={self.size}, the tokens to choose from")

    def check(self, num_layers: int) -> None:
        """Raises SettingError where there is no such layer."""
        if self.layer >= num_layers:
            raise SettingError("layer", self.layer, f"must be from 0 to {num_layers - 1}, by num_layers={num_layers}")
