"""Scaled queries: how sharply a query attends depends on how many keys it sees, or on its head.

    score[i, j] = f(n_i) q_i . k_j / sqrt(Dh), and whatever the scheme `of` does       n_i: how many keys query i sees

    ssmax    f = s_h ln n_i + b_h                        Nakanishi 2025, "Scalable-Softmax Is Superior for Attention"
    llama4   f = 1 + amount ln(1 + floor(n_i / step))    Llama 4 (Meta 2025), in its layers without positions
    head     f = b_h                                     HeadScale: Wang et al. 2024, "Length Generalization of Causal
                                                         Transformers without Position Encoding", section 4
    length   f = max(1, ln n_i / ln L)                   L: the training length; Chiang and Cholak 2022 ("Overcoming a
                                                         Theoretical Limitation of Self-Attention") and, with its lower
                                                         limit, Qwen (Bai et al. 2023)

s and b are learned in each layer and head. A softmax over more keys is flatter, and these sharpen it again. `length`
learns nothing and changes nothing up to the training length, so that a model trained without can be evaluated with it.

Start: s is such that f is 1 on average over the training length, which for its 1,024 tokens is the paper's 0.168; b_h
begins at 1 for `head`, as in its authors' code (AntNLP/nope_head_scale), and is left out of `ssmax` unless
`bias=true`, as the paper prefers. Its condition that b_h be at least 1, and its fine-tuning of nothing else, are not
taken over. Llama 4 counts positions, as does the code of Qwen; here n_i, which is the same where nothing is hidden.

Chosen here: f multiplies q_i, as the hook `query` of `of` left it, and not the whole score. It is the same for schemes
without a bias, as those of the papers; a bias by distance keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from poslab.errors import require_at_least, require_one_of
from poslab.lazy import Tensor, torch
from poslab.positions.base import (
    Curves,
    Explanation,
    HeadInputs,
    ModelShape,
    Picture,
    PositionScheme,
    ScoreTile,
    Tables,
)
from poslab.positions.combined import Wrapper
from poslab.positions.nope import NoPE

KINDS = ("ssmax", "llama4", "head", "length")
_FACTOR = (
    "The factor on the scores of a query that sees so many keys: above 1 its weights are sharper than without, below 1 "
    "more even. Rising lines keep a long text from being averaged. Surprising: heads below 0, which look for what is "
    "unlike them, and lines that fall."
)


@dataclass(frozen=True)
class Scaled(Wrapper):
    """Factor on the queries of a scheme `of`; bias: b_h of ssmax; amount and step: those of llama4."""

    of: PositionScheme = field(default_factory=NoPE)
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
        if self.bias and self.kind != "ssmax":
            texts.append(f"pos.bias=true does nothing with pos.kind={self.kind}")
        return texts

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        axes, own = (shape.num_layers, shape.num_heads), {}
        if self.kind == "ssmax":
            length = max(2, shape.training_length)
            own["scaled_slope"] = torch.full(axes, length / math.lgamma(length + 1))  # the sum of ln n
        if self.kind == "head" or (self.kind == "ssmax" and self.bias):
            own["scaled_bias"] = torch.full(axes, 1.0 if self.kind == "head" else 0.0)
        return super().tables(shape) | own

    def query_scale(self, tables: Tables, shape: ModelShape, layer: int, keys_seen: Tensor) -> Tensor:
        factor, logarithm = torch.zeros_like(keys_seen)[:, None], keys_seen.log()[:, None]  # (1 or B, 1, Tq)
        if self.kind == "llama4":
            factor = 1 + self.amount * (keys_seen / self.step).floor().log1p()[:, None]
        elif self.kind == "length":
            factor = (logarithm / math.log(max(2, shape.training_length))).clamp(min=1)
        slope, bias = (tables.get(name) for name in ("scaled_slope", "scaled_bias"))
        if slope is not None:
            factor = slope[layer, :, None].to(factor.dtype) * logarithm  # (1 or B, H, Tq)
        if bias is not None:
            factor = factor + bias[layer, :, None].to(factor.dtype)
        inner = super().query_scale(tables, shape, layer, keys_seen)
        return factor if inner is None else factor * inner

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        return super().reference_score(tables, self._reference_text(tables, text, i), i, j)

    def reference_null(self, tables: Tables, text: HeadInputs, i: int) -> Tensor | None:
        return super().reference_null(tables, self._reference_text(tables, text, i), i)

    def _reference_text(self, tables: Tables, text: HeadInputs, i: int) -> HeadInputs:
        """Return the inputs with query i scaled."""
        plain = (
            super(Scaled, self).reference_score(tables, text, i, key)
            for key, visible in enumerate(text.seen[i])
            if visible
        )
        count = sum(bool(score > -math.inf) for score in plain)  # a window of `of` hides some
        slope, bias = (tables[name][text.layer] if name in tables else 0.0 for name in ("scaled_slope", "scaled_bias"))
        factor = slope * math.log(count) + bias  # (H,) or a number
        if self.kind == "llama4":
            factor = 1 + self.amount * math.log(1 + count // self.step)
        elif self.kind == "length":
            factor = max(1.0, math.log(count) / math.log(max(2, text.shape.training_length)))
        queries = text.queries.clone()
        queries[:, i] *= torch.as_tensor(factor).reshape(-1, 1)
        return replace(text, queries=queries)

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        layers = range(shape.num_layers) if self.kind in ("ssmax", "head") else ()
        return super().pictures(tables, shape) | {f"scaled_layer_{n}": self._curves(tables, shape, n) for n in layers}

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        found = super().explain(tables, shape, sample)
        return found if self.kind in ("ssmax", "head") else found | {"scaled": self._curves(tables, shape, 0)}

    def _curves(self, tables: Tables, shape: ModelShape, layer: int) -> Curves:
        counts = torch.arange(1, 4 * shape.context_length + 1, max(1, shape.context_length // 64))
        of_heads = self.query_scale(tables, shape, layer, counts[None].float())[0]  # (1 or H, n)
        lines = {"all heads" if len(of_heads) == 1 else f"head {h}": line for h, line in enumerate(of_heads)}
        return Curves("Factor on queries", "keys seen", "factor", counts.tolist(), lines, _FACTOR)
