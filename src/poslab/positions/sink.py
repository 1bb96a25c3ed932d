"""Attention that may go to nobody: one more score in each softmax, whose key has no value.

    w_ij = exp(score[i, j]) / (exp(null[h]) + sum over the visible l of exp(score[i, l]))

Without it a head that has nothing to add must put its weight somewhere, mostly on the first token, the attention sink
of Xiao et al. 2023 ("Efficient Streaming Language Models with Attention Sinks", section 3.1). learned=false keeps
null = 0: the softmax off by one of Miller 2023 ("Attention Is Off By One"). learned=true has a number per layer and
head, as gpt-oss (OpenAI 2025), here from 0 on, so that training begins with the former; transformers' GptOss draws it
as all other weights, with std 0.02.

Around any scheme `of`, whose scores it leaves as they are. Dropout is that of the other weights, after the softmax, as
in GptOss. What a layer retrieves from memory has a softmax of its own, without it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from poslab.positions.base import HeadInputs, ModelShape, Picture, RelativeTerms, Tables
from poslab.positions.combined import Wrapper
from poslab.positions.pictures import curves_of

_SINK = (
    "The score that competes with those of all tokens: a head whose number is above them turns away from the text. All "
    "begin at 0. Surprising: heads far above the others, which mostly add nothing."
)


@dataclass(frozen=True)
class Sink(Wrapper):
    """Null score of a scheme `of`; learned: a number per layer and head, else 0."""

    learned: bool = True

    _own = ("sink",)
    variants = ({"of": "shaw"}, {"of": "cope", "learned": False})

    @property
    def share_layers(self) -> bool:  # type: ignore[override]
        return not self.learned and super().share_layers

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        own = {"sink": torch.zeros(shape.num_layers, shape.num_heads)} if self.learned else {}
        return own | super().tables(shape)

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        terms = super().relative(tables, shape, layer, distances) or RelativeTerms(0, 0)
        null = tables["sink"][layer] if self.learned else torch.zeros(shape.num_heads)
        return replace(terms, null=null if terms.null is None else torch.logaddexp(null.to(terms.null), terms.null))

    def key_bias(self, tables: Tables, shape: ModelShape, layer: int, token_state: Tensor) -> Tensor | None:
        """Return None where `score_mod` says more: beside a null score, what a bias leaves out of all scores counts."""
        return None if self.of.overrides("score_mod") else super().key_bias(tables, shape, layer, token_state)

    def reference_null(self, tables: Tables, text: HeadInputs, i: int) -> Tensor:
        null = tables["sink"][text.layer, text.head] if self.learned else text.q.new_zeros(())
        of = super().reference_null(tables, text, i)
        return null if of is None else (null.exp() + of.exp()).log()

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        if not self.learned:
            return super().pictures(tables, shape)
        own = curves_of("layer", "Score of attending to nobody", "head", "score", tables["sink"], _SINK)
        return {"sink": own} | super().pictures(tables, shape)
