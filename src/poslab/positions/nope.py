"""No positions at all.

    score[i, j] = q_i . k_j / sqrt(Dh)

A causal decoder still learns to tell positions: its first layers can count the tokens that they see (Haviv et al. 2022,
"Transformer Language Models without Positional Encodings Still Learn Positional Information"; Kazemnejad et al. 2023,
"The Impact of Positional Encoding on Length Generalization in Transformers", theorem 1). Others see a bag of words.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from poslab.positions.base import HFEquivalent, ModelShape, PositionScheme, Tables


@dataclass(frozen=True)
class NoPE(PositionScheme):
    """Has no settings, and learns nothing."""

    def warnings(self, shape: ModelShape) -> list[str]:
        return [] if shape.causal else ["pos=nope: a model that sees the future knows nothing of the order of its text"]

    def hf_equivalent(self, tables: Tables, shape: ModelShape) -> HFEquivalent | None:
        """GPT-2 whose table is zero, which there ends at the context length."""
        return HFEquivalent(
            "gpt2", weights={"transformer.wpe.weight": torch.zeros(shape.context_length, shape.embed_dim)}
        )
