"""T5's relative position bias: a learned number per head and bucket of distances (Raffel et al. 2020, section 2.1).

    score[i, j] = q_i . k_j / sqrt(Dh) + scale * table[bucket(j - i), h]

j - i is the key's position less the query's, as in T5; `relative` counts distances the other way, i - j.

Half of the buckets hold one distance each, the other half grows logarithmically up to max_distance; everything farther
shares the last bucket. The table is shared by all layers.

Deviations from T5: scores are divided by sqrt(Dh) (T5 folds this into its initialisation), and `scale` weighs the bias.

AdamW moves a number by about its learning rate in a step: 1,000 steps at 1e-3 move an entry of the table by 1 at most.
`scale` multiplies both what the bias starts from (normal, with a deviation of scale / sqrt(D)) and what a step moves it
by; `optim.position_learning_rate_factor` multiplies the steps alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least
from poslab.positions.base import HeadInputs, ModelShape, PositionScheme, RelativeTerms, ScoreTile, Tables
from poslab.positions.pictures import Explanation, Picture, Strip, curves_of
from poslab.positions.terms import distances_between

_BIAS = (
    "What each head adds to the score of a key so far back; 1 more makes its weight 2.7 times as large. A line that "
    "rises to the left prefers near keys, one that has stayed at its start has learned nothing of distance. "
    "Surprising: steps where a new bucket begins that are larger than those before, or a rise at the far end, which "
    "few queries reach."
)
_BUCKETS = (
    "All distances of one bucket get the same number. Near ones have a bucket each, so that the order of the last "
    "words is exact; far ones share more and more. Surprising: nothing here, the paper fixes it; but a bucket that "
    "no distance of the context falls into never trains, and longer texts would meet it untrained."
)


def relative_position_bucket(
    relative_position: Tensor, *, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128
) -> Tensor:
    """Return the bucket of each relative position, key - query position, both int64 and of the same shape.

    Equal to Hugging Face's T5 for every num_buckets and max_distance that it accepts, also where `T5` refuses them: a
    direction needs an exact bucket, and max_distance to differ from how many it has.
    """
    side = num_buckets // 2 if bidirectional else num_buckets  # buckets per direction
    max_exact = side // 2
    distance = relative_position.abs() if bidirectional else (-relative_position).clamp(min=0)
    logarithm = torch.log(distance.float() / max_exact)  # -inf at 0, which has an exact bucket
    steps = (logarithm / math.log(max_distance / max_exact) * (side - max_exact)).to(torch.int64)
    bucket = torch.where(distance < max_exact, distance, (max_exact + steps).clamp(max=side - 1))
    return bucket + (relative_position > 0) * side if bidirectional else bucket


@dataclass(frozen=True)
class T5(PositionScheme):
    """Learned bias by head and bucket of distances, with T5's defaults."""

    num_buckets: int = 32
    max_distance: int = 128
    scale: float = 1.0  # multiplies the bias; that of `RelativeTerms` multiplies the products of queries and keys
    share_layers: bool = True
    variants = ({"num_buckets": 8, "max_distance": 20, "scale": 0.5, "share_layers": False},)

    def __post_init__(self) -> None:
        require_at_least(2, num_buckets=self.num_buckets)
        if not math.isfinite(self.scale):
            raise SettingError("scale", self.scale, "must be a finite number")

    def check(self, shape: ModelShape) -> None:
        if not shape.causal and (self.num_buckets % 2 or self.num_buckets < 4):
            raise SettingError("num_buckets", self.num_buckets, "must be even and at least 4 when bidirectional")
        exact = self.num_buckets // (2 if shape.causal else 4)
        if self.max_distance <= exact:
            problem = f"must be above {exact}, the exact half of {self.num_buckets} buckets"
            raise SettingError("max_distance", self.max_distance, problem)

    def warnings(self, shape: ModelShape) -> list[str]:
        reached = set(self._buckets(shape.distances, shape).tolist())
        # When bidirectional, the second half is for keys after the query, and none of them is at distance 0.
        empty = set() if shape.causal else {self.num_buckets // 2}
        unreached = len(set(range(self.num_buckets)) - reached - empty)
        sizes = f"pos.num_buckets={self.num_buckets}, pos.max_distance={self.max_distance}"
        return [f"{sizes}: a context of {shape.context_length} never trains {unreached} buckets"] if unreached else []

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        layers = [] if self.share_layers else [shape.num_layers]
        std = shape.embed_dim**-0.5  # as in T5's own code
        return {"bias": torch.randn(*layers, self.num_buckets, shape.num_heads) * std}

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        """Return the bias of each distance, (H, R): T5's learned table (num_buckets, H), looked up by bucket."""
        table = tables["bias"] if self.share_layers else tables["bias"][layer]  # (num_buckets, H)
        lowest, highest = distances[0], distances[-1]
        if not torch.compiler.is_compiling():  # whose graphs take no length that depends on numbers
            # Beyond max_distance the bucket stays the same.
            lowest, highest = (max(-self.max_distance, min(d, self.max_distance)) for d in (lowest, highest))
        buckets = self._buckets(distances_between(lowest, highest + 1), shape)
        if not torch.compiler.is_compiling():
            # Each end once, as `RelativeTerms` gives distances beyond the table its end: of 7 7 6 0 1 1 1 remain
            # 7 6 0 1.
            counts = buckets.unique_consecutive(return_counts=True)[1].tolist()
            first, last = counts[0] - 1, len(buckets) - counts[-1]
            buckets, lowest, highest = buckets[first : last + 1], lowest + first, lowest + last
        bias = torch.nn.functional.embedding(buckets.to(table.device), table).T * self.scale  # (R, H) -> (H, R)
        return RelativeTerms(lowest, highest, bias=bias)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        table = tables["bias"] if self.share_layers else tables["bias"][text.layer]
        side = self.num_buckets if text.shape.causal else self.num_buckets // 2
        exact, distance = side // 2, abs(text.positions[i] - text.positions[j])
        bucket = distance
        if distance >= exact:
            share = math.log(distance / exact) / math.log(self.max_distance / exact)
            # The tiny addition: where the exact value is a whole number, rounding must not fall below it.
            bucket = min(side - 1, exact + math.floor(share * (side - exact) + 1e-9))
        if text.positions[j] > text.positions[i]:
            bucket += side
        return super().reference_score(tables, text, i, j) + self.scale * table[bucket, text.head]

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        near = [d for d in shape.distances if abs(d) <= self.max_distance]
        return learned_bias(self, tables, shape, range(near[0], near[-1] + 1), _BIAS)

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        buckets = self._buckets(shape.distances, shape).tolist()
        return {"buckets": Strip("Buckets of distances", "bucket", list(shape.distances), buckets, _BUCKETS)}

    def _buckets(self, distances: range, shape: ModelShape) -> Tensor:
        """Return the bucket of each distance query - key, (R,)."""
        # On the CPU whatever the device: the logarithms of two devices may differ in the last bit, and so in a bucket.
        key_minus_query = -torch.arange(distances.start, distances.stop, device="cpu")
        sizes = {"num_buckets": self.num_buckets, "max_distance": self.max_distance}
        return relative_position_bucket(key_minus_query, bidirectional=not shape.causal, **sizes)


def learned_bias(
    scheme: PositionScheme, tables: Tables, shape: ModelShape, distances: range, caption: str
) -> dict[str, Picture]:
    """Return pictures of a scheme's bias by distance, one of each layer, or of all that share it."""
    pictures: dict[str, Picture] = {}
    for layer in range(1 if scheme.share_layers else shape.num_layers):
        terms = scheme.relative(tables, shape, layer, distances)
        assert terms is not None
        assert terms.bias is not None
        bias = terms.bias[:, terms.rows_of(torch.arange(distances.start, distances.stop))]  # (H, R)
        name, title = "bias" if scheme.share_layers else f"bias_layer_{layer}", "Learned bias by distance"
        pictures[name] = curves_of("head", title, "distance", "bias", bias, caption, distances)
    return pictures
