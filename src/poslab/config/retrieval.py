"""Settings of retrieved memory."""

from __future__ import annotations

from dataclasses import dataclass

from poslab.config.roles import Limited, setting
from poslab.errors import SettingError
from poslab.positions import ModelShape

MOST_REMEMBERED = 1_000_000  # tokens


@dataclass(frozen=True)
class Retrieval(Limited):
    """Settings of the layer that looks up earlier tokens of its document; see `poslab.model.memory.retrieval`.

    layer: from 0 on. size: tokens before the segment that are kept. k: tokens retrieved by each query of each head.
    position_bias: whether their scores get the scheme's bias by distance as well. Raises SettingError.
    """

    layer: int = setting(least=0)
    size: int = setting(8192, least=1, most=MOST_REMEMBERED)
    k: int = setting(32, least=1)
    position_bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > self.size:
            raise SettingError("k", self.k, f"must be at most size={self.size}, the tokens to choose from")

    def check(self, shape: ModelShape) -> None:
        """Raise SettingError, under the name of the model's setting, where a model of that shape can't retrieve."""
        last = shape.num_layers - 1
        if self.layer > last:
            problem = f"must be from 0 to {last}, by num_layers={shape.num_layers}"
            raise SettingError("retrieval.layer", self.layer, problem)
        if not shape.causal:
            raise SettingError("retrieval.layer", self.layer, "needs a causal model: this one sees the future")


def reach(memory_length: int, retrieval: Retrieval | None) -> int:
    """Return the number of tokens before a segment that a model with such a memory may see."""
    return max(memory_length, 0 if retrieval is None else retrieval.size)
