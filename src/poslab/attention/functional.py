"""Attention with a position scheme in one call, for models of one's own.

B batch, T sequence, D embedding, H heads, Dh = D / H head dimension.
"""

import torch
from torch import Tensor

from poslab.attention.position_ids import PositionIds
from poslab.attention.scheme import SchemeLayer
from poslab.errors import SettingError
from poslab.positions import ModelShape, PositionScheme, Tables
from poslab.positions.sizes import check_sizes


def scheme_attention(
    scheme: PositionScheme,
    tables: Tables,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    x: Tensor | None = None,
    layer: int = 0,
    num_layers: int = 1,
    positions: Tensor | None = None,
    causal: bool = True,
    dropout_p: float = 0.0,
    backend: str = "auto",
) -> Tensor:
    """Return self-attention of q, k, v (B, H, T, Dh) with all that a scheme does in one layer, (B, H, T, Dh).

    q, k and v are those of the projections; the hooks `embed` and `mix` are the model's part. tables: from
    `scheme.tables(shape)`, for `num_layers` layers of H heads and an embedding of H * Dh. x: (B, T, D), the input of
    the projections, for schemes that look at it or have mixed it. positions: (T,) or (B, T); None: 0, 1, 2, ...
    dropout_p, backend: as in `attend`.

    Raises SettingError for arguments that don't fit together, for more positions than the scheme knows, and for x
    missing.
    """
    if k.shape != q.shape:
        raise SettingError("k", list(k.shape), f"must be as q, {list(q.shape)}: this is self-attention")
    if x is None and scheme.overrides("mix", layer):
        problem = "mixes what enters attention: give x (B, T, D), what its hook `mix` returned and q, k, v are made of"
        raise SettingError("x", None, f"{type(scheme).__name__} {problem}")
    _, heads, length, head_dim = q.shape
    position_ids, last = PositionIds(torch.arange(length, device=q.device)), length
    if positions is not None:
        position_ids = PositionIds.given(positions.to(q.device))
        last = int(position_ids.positions.max()) + 1
    shape = ModelShape(max(length, last), heads * head_dim, num_layers, heads, causal)
    position_ids.check(len(q), length, scheme, shape)
    longest = scheme.max_length(shape)
    if longest is not None and last > longest:
        raise SettingError("positions", f"up to {last - 1}", f"this position scheme knows {longest} positions, no more")
    if not torch.compiler.is_compiling():
        check_sizes(scheme, shape)
    terms = scheme.relative(tables, shape, layer, position_ids.distances(causal))
    scheme_layer = SchemeLayer(scheme, tables, shape, layer, terms and terms.to(q.device), position_ids)
    q, k, token_state = scheme_layer.apply_hooks(q, k, x)
    return scheme_layer.attend(q, k, v, token_state, dropout_p=dropout_p, backend=backend)
