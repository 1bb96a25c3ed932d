"""DAPE: a small network over all heads adds to each score what it makes of scores and biases (Zheng et al. 2024,
"DAPE: Data-Adaptive Positional Encoding for Length Extrapolation", section 3).

    s[i, j]     = q_i . k_j / sqrt(Dh)          b[i, j]: what the scheme `of` adds to it          both (H,)
    score[i, j] = s + b + output leaky(hidden [s; b] + hidden_bias) + output_bias

leaky(x) is x for x > 0, else x / 100. As in the authors' code (chuanyang-Zheng/DAPE, DAPE.py) each layer has a network
of `width` 32, with torch's initial values for linear maps. There each layer has biases of its own; here `of` decides.

It takes any scheme that adds to scores: those with a bias, and also those whose addend depends on the tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from poslab.errors import require_at_least
from poslab.positions.base import Explanation, HeadInputs, ModelShape, PositionScheme, ScoreTile, Tables
from poslab.positions.combined import Wrapper
from poslab.positions.kerple import Kerple
from poslab.positions.pictures import curves_of

AT_ONCE = 8192  # pairs, whose hidden units stay in a processor's cache: twice as fast as a whole tile at 2,048

_ADDED = (
    "What the network adds for the last token of the text, by how far back a key is. It sees the scores of all heads: "
    "where lines are rough, content decides, where they are smooth, distance. Surprising: lines that stay near 0, as "
    "if there were no network, or that are the same in all heads."
)


@dataclass(frozen=True)
class DAPE(Wrapper):
    """DAPE over the biases of a scheme `of`; width: hidden units."""

    of: PositionScheme = field(default_factory=Kerple)
    width: int = 32

    variants = ({"of": "fire"}, {"of": "t5", "width": 5})

    def __post_init__(self) -> None:
        require_at_least(1, width=self.width)

    def _prefix(self, part: str) -> str:
        return f"{part}_"

    def check(self, shape: ModelShape) -> None:
        super().check(shape)
        if any(map(self.of.overrides, ("rotate", "query", "key", "query_scale", "reference_null"))):
            raise self._refused("does more than add to scores: give one that adds, such as kerple, alibi, t5 or fire")

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        layers, heads = shape.num_layers, shape.num_heads
        sizes = {"hidden": (self.width, 2 * heads), "hidden_bias": (self.width,)}
        sizes |= {"output": (heads, self.width), "output_bias": (heads,)}
        bound = {"hidden": (2 * heads) ** -0.5, "output": self.width**-0.5}
        drawn = {
            name: torch.empty(layers, *size).uniform_(-1, 1) * bound[name.removesuffix("_bias")]
            for name, size in sizes.items()
        }
        return super().tables(shape) | drawn

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        plain, biased = self._scores(tables, layer, tile)
        return biased + self._added(tables, layer, plain, biased)

    def key_bias(self, tables: Tables, shape: ModelShape, layer: int, token_state: Tensor) -> None:
        return None

    def _scores(self, tables: Tables, layer: int, tile: ScoreTile) -> tuple[Tensor, Tensor]:
        """Return s and s + b, each (B, H, m, n)."""
        with_terms = dataclasses.replace(tile, scores=tile.whole_scores, subtracted=0.0)
        return tile.queries @ tile.keys.mT * tile.scale, super().score_mod(tables, layer, with_terms)

    def _added(self, tables: Tables, layer: int, plain: Tensor, biased: Tensor) -> Tensor:
        """Return what the network adds, (B, H, m, n), of s and s + b."""
        names = ("hidden", "hidden_bias", "output", "output_bias")
        network = [tables[name][layer].to(plain.dtype) for name in names]
        inputs = torch.cat([plain, biased - plain], 1).flatten(2)  # (B, 2 H, m n)
        # A compiled graph has no number of parts that depends on the length.
        parts = [inputs] if torch.compiler.is_compiling() else inputs.split(AT_ONCE, -1)
        added = torch.cat([_network(part, *network) for part in parts], -1)
        return added.unflatten(-1, plain.shape[2:])

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        ((_, own),) = self._with_tables(tables)
        heads = [dataclasses.replace(text, head=head) for head in range(text.shape.num_heads)]
        plain = [PositionScheme.reference_score(self, tables, head, i, j) for head in heads]
        biased = [self.of.reference_score(own, head, i, j) for head in heads]
        inputs = torch.stack([*plain, *(whole - part for whole, part in zip(biased, plain, strict=True))])  # (2 H,)
        hidden = tables["hidden"][text.layer] @ inputs + tables["hidden_bias"][text.layer]  # (width,)
        leaky = torch.where(hidden > 0, hidden, hidden / 100)
        added = tables["output"][text.layer, text.head] @ leaky + tables["output_bias"][text.layer, text.head]
        return biased[text.head] + added

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        found = super().explain(tables, shape, sample)
        for layer, tile in enumerate(sample):
            last = self._added(tables, layer, *self._scores(tables, layer, tile))[0, :, -1].flip(-1)  # (H, n)
            title = f"What layer {layer} adds for the last token"
            found[f"added_layer_{layer}"] = curves_of("head", title, "distance", "score", last, _ADDED)
        return found


def _network(inputs: Tensor, hidden: Tensor, hidden_bias: Tensor, output: Tensor, output_bias: Tensor) -> Tensor:
    """Map s and b of all heads (B, 2 H, n) to what is added, (B, H, n)."""
    first, second = (weight.expand(len(inputs), -1, -1) for weight in (hidden, output))  # or matmul would transpose
    units = torch.nn.functional.leaky_relu(torch.baddbmm(hidden_bias[:, None], first, inputs), inplace=True)
    return torch.baddbmm(output_bias[:, None], second, units)
