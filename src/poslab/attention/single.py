"""One query per row, the newest: what generation asks for with each token.

Its distances are known before it is: N - 1 down to 0. So a bias can be laid out by distance once, and its end fits any
N. Of the other tables, the row that all far keys share adds the same to all scores of a query, which the softmax
doesn't see; with this row taken off the others, only the near keys, which are the last ones, meet a table.

B batch, H heads, N keys, Dh head dimension, K near rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.positions import RelativeTerms


@dataclass(frozen=True, eq=False)
class NewestRows:
    """Relative terms by falling distance, for queries that see at most `reach` keys."""

    bias: Tensor | None = None  # (H, 1, reach)
    near: int = 0  # K, of the three tables that follow
    keys: Tensor | None = None  # ([H], Dh, K), less the far row
    values: Tensor | None = None  # ([H], K, Dh), less the far row
    far_values: Tensor | None = None  # ([H], 1, Dh), the far row itself

    @classmethod
    def of(cls, terms: RelativeTerms, reach: int) -> NewestRows:
        def rows(count: int) -> Tensor:  # of the distances count - 1 down to 0
            return torch.arange(count - 1, -1, -1).clamp(terms.lowest, terms.highest) - terms.lowest

        def less_far(table: Tensor | None) -> Tensor | None:  # ([H], R, Dh) -> ([H], K, Dh)
            return None if table is None else table[..., rows(near).to(table.device), :] - table[..., -1:, :]

        near = min(max(terms.highest, 0), reach)
        keys = less_far(terms.keys)
        return cls(
            None if terms.bias is None else terms.bias[:, None, rows(reach).to(terms.bias.device)],
            near,
            None if keys is None else keys.transpose(-2, -1).contiguous(),
            less_far(terms.values),
            None if terms.values is None else terms.values[..., -1:, :],
        )


def newest_query_attention(
    q: Tensor, k: Tensor, v: Tensor, rows: NewestRows | None, first_key: Tensor | None = None
) -> Tensor:
    """q (B, H, 1, Dh) at the last of k and v (B, H, N, Dh) -> (B, H, 1, Dh); first_key as in `attend`. No gradients.

    A query that sees no key gets zeros.
    """
    rows = rows or NewestRows()
    n = k.shape[-2]
    bias = None if rows.bias is None else rows.bias[..., rows.bias.shape[-1] - n :].to(q.dtype)  # (H, 1, N)
    if rows.keys is None and rows.values is None and first_key is None:
        return F.scaled_dot_product_attention(q, k, v, bias)
    near = min(rows.near, n)
    q = q * q.shape[-1] ** -0.5
    scores = q @ k.transpose(-2, -1)  # (B, H, 1, N)
    if rows.keys is not None:
        scores[..., n - near :] += q @ rows.keys[..., rows.near - near :].to(q.dtype)
    if bias is not None:
        scores += bias
    hidden = None if first_key is None else torch.arange(n, device=q.device) < first_key[:, None, None, None]
    if hidden is None:
        weights = scores.softmax(-1)
    else:
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1).masked_fill(hidden, 0.0)
    weights = weights.to(v.dtype)
    out = weights @ v
    if rows.values is not None and rows.far_values is not None:
        out += weights[..., n - near :] @ rows.values[..., rows.near - near :, :].to(v.dtype)
        out += rows.far_values.to(v.dtype) * (1 if hidden is None else weights.sum(-1, keepdim=True))
    return out
