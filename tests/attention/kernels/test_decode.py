"""Attention of the newest token over a cache; its results are compared in tests of the cache."""

import pytest
import torch
from oracles import random_terms
from torch import Tensor
from torch.nn import functional as F

from poslab.attention import attend


def test_a_mask_begins_at_a_multiple_of_16_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard against "misaligned address": kernels for CUDA check a mask's strides, but not where it begins."""
    masks: list[Tensor] = []
    attention = F.scaled_dot_product_attention

    def watched(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
        masks.append(mask)
        return attention(q, k, v, mask, scale=scale)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    terms, _ = random_terms("bias", 3, 16, 0, 17, torch.float32)
    for count in range(9, 14):
        keys, values = torch.randn(2, 1, 3, count, 16)
        with torch.no_grad():
            attend(keys[:, :, -1:], keys, values, terms, offset=count - 1, cached=True)
    assert len(masks) == 5
    assert all(mask.data_ptr() % 16 == 0 for mask in masks)
