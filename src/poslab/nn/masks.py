"""Mask that `Attention` takes, for the caches of transformers.

B batch, N tokens so far.
"""

from typing import Any

import torch
from torch import Tensor


def text_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    **_: Any,
) -> Tensor | None:
    """Return the `mask` of `Attention`, (B, N) bool, for transformers' AttentionMaskInterface.

    None where the keys are those of the queries, without padding. With a cache the N columns tell where its free places
    begin, or how many keys it has dropped. Arguments are those by which transformers calls it.
    """
    if attention_mask is not None and torch.compiler.is_compiling():
        return attention_mask  # which transformers has made by this function before, so that N needs no look
    read = int(q_offset) + q_length
    if attention_mask is not None:
        return attention_mask[:, :read]
    if read == q_length == kv_length:
        return None
    return torch.ones(batch_size, read, dtype=torch.bool, device=device)
