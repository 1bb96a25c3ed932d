"""Position scheme in one layer: its hooks, in the order in which attention calls them, and all of it in one call.

B batch, T sequence, Tq / Tk queries / keys, D embedding, H heads, Hkv heads of keys, Dh head dimension, E numbers of a
token's state.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from poslab.attention.dispatch import attend
from poslab.attention.position_ids import PositionIds
from poslab.attention.reference import (
    AttentionSpec,
    Pairwise,
    attention_weights,
    for_queries,
    pair_scores,
    without_autocast,
)
from poslab.errors import SettingError
from poslab.positions import ModelShape, PositionScheme, RelativeTerms, ScoreTile, Tables
from poslab.positions.sizes import check_length, check_sizes


@dataclass(frozen=True, eq=False)
class SchemeLayer:
    """Scheme in one layer of a model, for the tokens of one pass.

    terms: what its hook `relative` returned for this layer, with the model's window. position_ids: of the queries.
    key_position_ids: of the keys, where they outnumber the queries, which are the last of them; None: as the queries'.
    """

    scheme: PositionScheme
    tables: Tables
    shape: ModelShape
    layer: int
    terms: RelativeTerms | None
    position_ids: PositionIds
    key_position_ids: PositionIds | None = None

    def overrides(self, hook: str) -> bool:
        """Return whether the scheme has a hook of its own of that name in this layer."""
        return self.scheme.overrides(hook, self.layer)

    def mix(self, x: Tensor) -> Tensor:
        """Apply the hook `mix` to x (B, T, D), (B, T, D), with zeros before each text."""
        if not self.overrides("mix"):
            return x
        if self.position_ids.documents is None:
            return self.mix_after(None, x)
        documents, _ = self.position_ids.apart(x.shape[1])
        return documents.apart(lambda _, texts: self.mix_after(None, texts), x)

    def mix_after(self, before: Tensor | None, x: Tensor) -> Tensor:
        """Apply the hook `mix` to x (B, T, D), (B, T, D), after the rows `before`, (B, K - 1, D); None: zeros."""
        if before is None:
            before = x.new_zeros(len(x), self.scheme.mixed_tokens - 1, x.shape[-1])
        return self.scheme.mix(self.tables, self.layer, torch.cat([before, x], dim=1))

    def apply_hooks(self, q: Tensor, k: Tensor, x: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Apply the hooks that come before attention: `token_state` to x, `query` to q, `key` to k.

        q (B, H, Tq, Dh), k (B, Hkv, Tk, Dh), x (B, Tk, D) -> q and k as mapped, and token_state (B, H, Tk, E) or None.
        Where `key` takes a token_state, which has a head for each of q, so have the keys (B, H, Tk, Dh). Raises
        SettingError where the scheme has a token state and x is missing.
        """
        scheme = self.scheme
        state: Tensor | None = None
        if self.overrides("token_state"):
            if x is None:
                problem = "looks at what enters attention: give x (B, T, D)"
                raise SettingError("x", None, f"{type(scheme).__name__} {problem}")
            with without_autocast(x.device):
                state = scheme.token_state(self.tables, self.layer, _wide(x))
        query_state = None if state is None else state[:, :, state.shape[2] - q.shape[-2] :]
        query, key = (partial(hook, self.tables, self.layer) for hook in (scheme.query, scheme.key))
        q = self.position_ids.map(query, q, **scheme.further("query", query_state))
        key_state = scheme.further("key", state)
        if key_state:
            (k,) = for_queries(q, k)
        k = (self.key_position_ids or self.position_ids).map(key, k, **key_state)
        return q, k, state

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor | None, first: int = 0, **settings: Any) -> Tensor:
        """Return attention of projected queries (B, H, Tq, Dh), from index `first` on, over k and v (B, Hkv, Tk, Dh).

        x: (B, Tk, D), what was projected, for schemes that look at it or have mixed it. The last query stands at the
        last key. settings: those of `poslab.attention.attend`. Raises SettingError where x is missing.
        """
        if x is None and self.overrides("mix"):
            problem = "mixes what enters attention: give x (B, T, D), what `mix` returned and q, k, v are made of"
            raise SettingError("x", None, f"{type(self.scheme).__name__} {problem}")
        q, k, token_state = self.apply_hooks(q, k, x)
        if first:
            q = q[:, :, first:]
        return self.over_keys(q, k, v, token_state, **settings)

    def over_keys(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        token_state: Tensor | None,
        key_position_ids: PositionIds | None = None,
        **settings: Any,
    ) -> Tensor:
        """Return attention of q (B, H, Tq, Dh) over k and v (B, Hkv, Tk, Dh), (B, H, Tq, Dh).

        q: from `apply_hooks`, or the last of these. k, token_state (B, H, Tk, E): from there, too, or a cache.
        key_position_ids: those of the keys. The rest as in `attend`.
        """
        keys = key_position_ids or self.key_position_ids or self.position_ids
        if keys.documents is not None and q.shape[-2]:
            # A compiled graph can't depend on where documents begin: it hides them from each other by a mask.
            carries = token_state is not None and not self.scheme.shift_invariant
            if carries or not torch.compiler.is_compiling():
                return self._by_document(keys, q, k, v, token_state, **settings)
            settings["documents"] = keys.documents
        # The last query stands at the last key.
        settings["offset"] = k.shape[-2] - q.shape[-2]
        q = self._scaled(q, k.shape[-2], **settings)
        settings |= self._key_bias_and_pairwise(q, k, token_state, key_position_ids)
        return attend(q, k, v, self.terms, causal=self.shape.causal, **settings)

    @torch.compiler.disable
    def _by_document(
        self, keys: PositionIds, q: Tensor, *kv: Tensor | None, first_key: Tensor | None = None, **settings: Any
    ) -> Tensor:
        """Return what `over_keys` does of rows that hold several documents, each of which is a text of its own."""
        documents, position_ids = keys.apart(q.shape[-2])

        def over_documents(index: int, q: Tensor, k: Tensor, v: Tensor, token_state: Tensor | None) -> Tensor:
            own, first = position_ids[index], documents.batches[index].first_key(first_key)
            queries = own.last(q.shape[-2])
            layer = SchemeLayer(self.scheme, self.tables, self.shape, self.layer, self.terms, queries, own)
            return layer.over_keys(q, k, v, token_state, first_key=first, **settings)

        return documents.apart(over_documents, q, *kv)

    def relative_terms(self, length: int) -> RelativeTerms | None:
        """Return the scheme's relative terms for the distances 0 .. length - 1, also beyond those of `terms`."""
        terms = self.scheme.relative(self.tables, self.shape, self.layer, range(length))
        return terms and terms.to(self.position_ids.positions.device)

    def weights(self, q: Tensor, k: Tensor, token_state: Tensor | None) -> Tensor:
        """Return the weights of self-attention by the dense formula, (B, H, T, T); arguments as in `over_keys`."""
        if not q.shape[-2]:
            return q.new_zeros(*q.shape[:3], 0)
        q, (k,) = self._scaled(q, k.shape[-2]), for_queries(q, k)
        return attention_weights(q, k, self._self_attention_spec(**self._key_bias_and_pairwise(q, k, token_state)))

    def score_tile(self, q: Tensor, k: Tensor, token_state: Tensor | None) -> ScoreTile:
        """Return all scores of self-attention, as the hook `score_mod` gets them; arguments as in `over_keys`."""
        tiles: list[ScoreTile] = []
        q, (k,) = self._scaled(q, k.shape[-2]), for_queries(q, k)

        def keep(tables: Tables, tile: ScoreTile) -> Tensor:
            tiles.append(tile)
            return tile.scores

        positions, irregular = self.position_ids.positions, self.position_ids.irregular
        state = self._prepared(k, token_state)
        spec = self._self_attention_spec(pairwise=Pairwise(positions, positions, state, keep, {}, irregular))
        pair_scores(q, k, spec, spec.visible(q.shape[-2], k.shape[-2], q.device))
        return tiles[0]

    def _scaled(self, q: Tensor, key_length: int, **settings: Any) -> Tensor:
        """Multiply queries q (B, H, Tq, Dh) by what the hook `query_scale` returns; settings: those of `attend`."""
        if not self.overrides("query_scale"):
            return q
        windows = [w for w in (settings.get("window"), self.terms and self.terms.window) if isinstance(w, int)]
        own = {name: settings.get(name) for name in ("first_key", "documents")}
        spec = AttentionSpec(None, self.shape.causal, settings.get("offset", 0), 1.0, min(windows, default=None), **own)
        seen = spec.keys_seen(q.shape[-2], key_length, q.device).clamp(min=1)
        with without_autocast(q.device):
            precise = seen.to(torch.promote_types(q.dtype, torch.float32))
            factor = self.scheme.query_scale(self.tables, self.shape, self.layer, precise)
        return q if factor is None else (q * factor[..., None]).to(q.dtype)

    def _self_attention_spec(self, **more: Any) -> AttentionSpec:
        """Return the specification of self-attention; more: its `key_bias` and `pairwise`."""
        window, null = (None, None) if self.terms is None else (self.terms.window, self.terms.null)
        return AttentionSpec(self.terms, self.shape.causal, 0, self.shape.head_dim**-0.5, window, null=null, **more)

    def _key_bias_and_pairwise(
        self, q: Tensor, k: Tensor, token_state: Tensor | None, key_position_ids: PositionIds | None = None
    ) -> dict[str, Any]:
        """Return the arguments `key_bias` and `pairwise` of `attend`, where there are any.

        `key_bias` is what the hook of this name returns; `pairwise` has the hook `score_mod`, and positions.
        """
        keys = key_position_ids or self.key_position_ids or self.position_ids
        irregular = self.terms is not None and (self.position_ids.irregular or keys.irregular)
        key_bias = None
        if token_state is not None:
            with without_autocast(token_state.device):
                key_bias = self.scheme.key_bias(self.tables, self.shape, self.layer, token_state)
        score_mod = self._score_mod if key_bias is None and self.overrides("score_mod") else None
        if score_mod is None and not irregular:
            return {"key_bias": key_bias}
        tables = {} if score_mod is None else self.tables
        state, positions = self._prepared(k, token_state), self.position_ids.last(q.shape[-2]).positions
        pairwise = Pairwise(positions, keys.positions, state, score_mod, tables, irregular)
        return {"key_bias": key_bias, "pairwise": pairwise}

    def _prepared(self, k: Tensor, token_state: Tensor | None) -> Tensor | None:
        """Return what the hook `prepare` makes of k (B, Hkv, Tk, Dh) and token_state (B, H, Tk, E)."""
        if token_state is None:
            return None
        (k,) = for_queries(token_state, k)
        with without_autocast(k.device):
            return self.scheme.prepare(self.tables, self.layer, _wide(k), token_state)

    def _score_mod(self, tables: Tables, tile: ScoreTile) -> Tensor:
        return self.scheme.score_mod(tables, self.layer, tile)


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
    batch, heads, length, head_dim = q.shape
    position_ids, stop = PositionIds(torch.arange(length, device=q.device)), length
    if positions is not None:
        position_ids = PositionIds.explicit(positions.to(q.device))
        stop = position_ids.stop
    shape = ModelShape(max(length, stop, 1), heads * head_dim, num_layers, heads, causal)
    if positions is None:
        check_length(scheme, shape, length)
    else:
        position_ids.check(batch, length, scheme, shape)
    if not torch.compiler.is_compiling():
        check_sizes(scheme, shape)
    terms = scheme.relative(tables, shape, layer, position_ids.distances(causal))
    scheme_layer = SchemeLayer(scheme, tables, shape, layer, terms and terms.to(q.device), position_ids)
    return scheme_layer.attend(q, k, v, x, dropout_p=dropout_p, backend=backend)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
