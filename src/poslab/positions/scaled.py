"""Scaled queries: how sharply a query attends depends on how many keys it sees, or on its head.

    score[i, j] = f(n_i) q_i . k_j / sqrt(Dh), and what the scheme `of` does     n_i: keys that the mask shows query i

    ssmax    f = s_h ln n_i + b_h                        Nakanishi 2025, "Scalable-Softmax Is Superior for Attention"
    llama4   f = 1 + amount ln(1 + floor(n_i / step))    Llama 4 (Meta 2025), in its layers without positions
    head     f = b_h                                     HeadScale: Wang et al. 2024, "Length Generalization of Causal
                                                         Transformers without Position Encoding", section 4
    length   f = max(1, ln n_i / ln L)                   L: the training length; Chiang and Cholak 2022 ("Overcoming a
                                                         Theoretical Limitation of Self-Attention") and, with its lower
                                                         limit, Qwen (Bai et al. 2023)

s and b are learned in each layer and head. A softmax over more keys is flatter, and these sharpen it again. `length`
changes nothing up to the training length, so that a model trained without it can be evaluated with it.

Start: s such that f is 1 on average over the training length, which for 1,024 tokens is the paper's 0.168; b_h is 1 for
`head`, as in its authors' code (AntNLP/nope_head_scale), and left out of `ssmax`, as the paper prefers, unless
`bias=true`. HeadScale's lower limit 1 of b_h, and its fine-tuning of nothing else, are not taken over. Llama 4 and Qwen
count positions in place of n_i, which are the same where nothing is hidden. f multiplies q_i as `of` left it, not the
whole score: the same for schemes without a bias, as in the papers; a bias keeps its size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from poslab.errors import require_at_least, require_one_of
from poslab.positions.base import HeadInputs, ModelShape, Picture, Tables
from poslab.positions.combined import Wrapper
from poslab.positions.pictures import curves_of

KINDS = ("ssmax", "llama4", "head", "length")
_LABELS = {"scaled_slope": "slope by the logarithm of keys seen", "scaled_bias": "factor on queries"}
_FACTOR = (
    "How sharply a head attends: the factor on its scores, or how much that grows each time a query sees 2.7 times as "
    "many keys. All heads begin alike. Surprising: numbers below 0, of heads that look for what is unlike them."
)


@dataclass(frozen=True)
class Scaled(Wrapper):
    """Factor on the queries of a scheme `of`; bias: b_h of ssmax; amount and step: those of llama4."""

    kind: str = "ssmax"
    bias: bool = False
    amount: float = 0.1
    step: int = 8192

    _own = ("scaled_slope", "scaled_bias")
    variants = (
        {"of": "rope_nope", "bias": True},
        {"kind": "llama4", "step": 3, "of": "alibi"},
        {"kind": "head", "of": "forgetting"},
    )

    def __post_init__(self) -> None:
        require_one_of(KINDS, kind=self.kind)
        require_at_least(1, step=self.step)

    def warnings(self, shape: ModelShape) -> list[str]:
        texts = super().warnings(shape)
        if self.kind == "llama4" and self.step > shape.context_length:
            texts.append(f"pos.step={self.step} scales nothing within a context of {shape.context_length}")
        if self.kind != "llama4" and (self.amount, self.step) != (Scaled.amount, Scaled.step):
            texts.append(f"pos.amount and pos.step do nothing with pos.kind={self.kind}")
        if self.bias and self.kind != "ssmax":
            texts.append(f"pos.bias=true does nothing with pos.kind={self.kind}")
        return texts

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        axes, own = (shape.num_layers, shape.num_heads), {}
        if self.kind == "ssmax":
            length = max(2, shape.training_length)
            own["scaled_slope"] = torch.full(axes, length / math.lgamma(length + 1))  # the sum of ln n
        if self.kind == "head" or (self.kind == "ssmax" and self.bias):
            own["scaled_bias"] = torch.full(axes, float(self.kind == "head"))
        return super().tables(shape) | own

    def query_scale(self, tables: Tables, shape: ModelShape, layer: int, keys_seen: Tensor) -> Tensor:
        logarithm, factor = keys_seen.log()[:, None], torch.zeros_like(keys_seen)[:, None]  # (1 or B, 1, Tq)
        if self.kind == "llama4":
            factor = 1 + self.amount * (keys_seen / self.step).floor().log1p()[:, None]
        elif self.kind == "length":
            factor = (logarithm / math.log(max(2, shape.training_length))).clamp(min=1)
        slope, bias = (tables[n][layer, :, None].to(factor.dtype) if n in tables else None for n in self._own)
        factor = factor if slope is None else slope * logarithm  # (1 or B, H, Tq)
        factor = factor if bias is None else factor + bias
        inner = super().query_scale(tables, shape, layer, keys_seen)
        return factor if inner is None else factor * inner

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        return super().reference_score(tables, self._reference_text(tables, text, i), i, j)

    def reference_null(self, tables: Tables, text: HeadInputs, i: int) -> Tensor | None:
        return super().reference_null(tables, self._reference_text(tables, text, i), i)

    def _reference_text(self, tables: Tables, text: HeadInputs, i: int) -> HeadInputs:
        """Return the inputs with query i scaled."""
        terms = self.relative(tables, text.shape, text.layer, text.shape.distances)
        window = len(text.seen) if terms is None or terms.window is None else terms.window
        count = sum(seen and abs(i - j) < window for j, seen in enumerate(text.seen[i]))
        slope, bias = (tables[name][text.layer] if name in tables else 0.0 for name in self._own)
        factor = slope * math.log(count) + bias  # (H,) or a number
        if self.kind == "llama4":
            factor = 1 + self.amount * math.log(1 + count // self.step)
        elif self.kind == "length":
            factor = max(1.0, math.log(count) / math.log(max(2, text.shape.training_length)))
        queries = text.queries.clone()
        queries[:, i] *= torch.as_tensor(factor).reshape(-1, 1)
        return replace(text, queries=queries)

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        there, title = filter(tables.__contains__, self._own), "Scale of each head"
        own = {name: curves_of("layer", title, "head", _LABELS[name], tables[name], _FACTOR) for name in there}
        return super().pictures(tables, shape) | own
