"""Mask that `Attention` takes, for the caches and the packed batches of transformers.

B batch, Tq queries, N tokens so far.
"""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_module_registration_hook

from poslab.attention import numbered_documents
from poslab.nn.attention import Attention
from poslab.positions.rotary import once_per_pass


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


def _with_documents(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the arguments of a layer of transformers with documents in its mask; None: they stay as they are.

    A batch numbers its documents by `seq_idx`, by `cu_seq_lens_q`, or by positions that start again, which the layer
    doesn't hand to the function that computes its attention. With a cache, the position of the first query says where
    its document began.
    """
    mask, positions = kwargs.get("attention_mask"), kwargs.get("position_ids")
    if not isinstance(positions, Tensor) or positions.dim() != 2 or (mask is not None and mask.dim() != 2):
        return None
    if torch.compiler.is_compiling() or not _computes(layer):
        return None
    batch, queries = (args[0] if args else kwargs["hidden_states"]).shape[:2]
    cache = kwargs.get("cache", kwargs.get("past_key_values"))
    before = 0 if cache is None else int(cache.get_seq_length(layer.layer_idx))
    text = positions.new_ones(batch, before + queries) if mask is None else mask.to(torch.int64)
    if text.shape != (batch, before + queries):  # of more tokens than the layer reads
        return None

    documents = kwargs.get("seq_idx")  # (B or 1, Tq)
    if documents is None and (ends := kwargs.get("cu_seq_lens_q")) is not None and not before:
        documents = torch.bucketize(torch.arange(batch * queries, device=ends.device), ends, right=True)
        documents = documents.view(batch, queries)
    if documents is not None:
        documents = 1 + documents.diff(dim=1, prepend=documents[:, :1]).bool().cumsum(1).expand(batch, -1)
    elif mask is None:
        documents = once_per_pass(positions, "documents", lambda: numbered_documents(positions))
    else:
        documents = numbered_documents(positions.expand(batch, -1), text[:, before:].bool())
    begin = before - positions[:, :1] if before else positions.new_zeros(1, 1)
    others = text * (torch.arange(before + queries, device=text.device) < begin)  # before the first query's document
    if documents is None and not others.any():
        return None
    numbers = text if documents is None else text * F.pad(documents.expand(batch, -1), (before, 0), value=1)
    return args, kwargs | {"attention_mask": numbers - others}


def _computes(layer: nn.Module) -> bool:
    """Return whether a layer still has an `Attention`, and its attention is none of transformers' own."""
    name = getattr(getattr(layer, "config", None), "_attn_implementation", None)
    function = sys.modules["transformers"].AttentionInterface().get(name) if "transformers" in sys.modules else None
    own = function is None or str(getattr(function, "__module__", None)).startswith("transformers.")
    return not own and any(isinstance(child, Attention) for child in layer.children())


def _register(layer: nn.Module, name: str, attention: nn.Module | None) -> None:
    in_transformers = isinstance(attention, Attention) and "layer_idx" in vars(layer)
    if in_transformers and _with_documents not in layer._forward_pre_hooks.values():
        layer.register_forward_pre_hook(_with_documents, with_kwargs=True)


# Called when any module is set into another, of which it looks at an `Attention` in a layer of transformers alone: only
# such a layer gets a hook of its own.
register_module_module_registration_hook(_register)
