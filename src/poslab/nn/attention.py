"""Attention by any position scheme, as a module.

B batch, T sequence, Tq / Tk queries / keys, D embedding, H heads, Hkv heads of keys, Dh head dimension.
"""

from torch import Tensor, nn

from poslab.attention import BACKENDS, PositionIds, SchemeLayer
from poslab.errors import SettingError, require_one_of
from poslab.nn.position import Position


class Attention(nn.Module):
    """Self-attention of queries, keys and values with all that a scheme does to them, in memory linear in the length.

    position: a `Position`, whose `causal` is the attention's; layers may share one. dropout: the probability of
    dropping a weight, in training. backend: as in `poslab.attention.attend`.

    Parity: tests/nn/test_position.py, every scheme with `poslab.attention.scheme_attention`, and read token by token.
    """

    def __init__(self, position: Position, *, dropout: float = 0.0, backend: str = "auto") -> None:
        super().__init__()
        require_one_of(BACKENDS, backend=backend)
        if not 0 <= dropout < 1:
            raise SettingError("dropout", dropout, "must be at least 0 and below 1")
        self.position, self.dropout, self.backend = position, dropout, backend

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        x: Tensor | None = None,
        positions: Tensor | None = None,
        offset: int | None = None,
        layer: int = 0,
    ) -> Tensor:
        """Return attention of q (B, H, Tq, Dh) over k and v (B, Hkv, Tk, Dh), (B, H, Tq, Dh) in q's dtype.

        q, k, v: of the projections; what `needs` says comes before is the model's part. With a cache, k and v are those
        of the whole text so far, and q those of its last tokens. offset: which key the first query stands at, where
        the keys go on behind the queries, as in a cache of fixed size; None: Tk - Tq. x: (B, Tk, D), what the
        projections were made of, for schemes that read it or have mixed it. positions: (Tk,) or (B, Tk), of the keys;
        None: 0, 1, 2, ...

        Raises SettingError for another layout, a missing x, and positions that the scheme doesn't know.
        """
        position, scheme, shape = self.position, self.position.scheme, self.position.shape
        position.check_layout(q, k, v)
        if x is None and scheme.overrides("mix"):
            problem = "mixes what enters attention: give x (B, T, D), what Position.mix returned"
            raise SettingError("x", None, f"{type(scheme).__name__} {problem}")
        queries, keys = q.shape[-2], k.shape[-2]
        if offset is not None and offset != keys - queries:
            if not shape.causal or not 0 <= offset < keys - queries:
                problem = f"must be {keys - queries}, or between 0 and that in a causal model: each query has its key"
                raise SettingError("offset", offset, problem)
            keys = offset + queries  # no query sees those behind
            k, v = k[:, :, :keys], v[:, :, :keys]
            x = None if x is None else x[:, :keys]
            positions = None if positions is None else positions[..., :keys]
        ids: PositionIds = position.position_ids(positions, k, 0, "positions")
        tables = position.own_tables
        terms = scheme.relative(tables, shape, layer, ids.distances(shape.causal))
        made = SchemeLayer(scheme, tables, shape, layer, terms and terms.to(q.device), ids.last(queries), ids)
        hooked_q, k, token_state = made.apply_hooks(q, k, x)
        dropout_p = self.dropout if self.training else 0.0
        return made.attend(hooked_q, k, v, token_state, dropout_p=dropout_p, backend=self.backend).to(q.dtype)
