"""Module of any position scheme for any model: its bias, rotations, embeddings and mixing, by explicit positions.

B batch, T sequence, Tq / Tk queries / keys, D embedding, H heads, Hkv heads of keys, Dh head dimension.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor

from poslab.attention import PositionIds, SchemeLayer, SchemeModule, checked_documents
from poslab.attention.documents import positions_within
from poslab.errors import SettingError, UnknownSetting, require_kind
from poslab.nn.bias import beyond_a_bias, dense_bias
from poslab.positions import ModelShape, PositionScheme
from poslab.positions.sizes import check_sizes, initial_tables
from poslab.positions.terms import distances_between

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # of (score, b, h, i, j)
Init = TypeVar("Init", bound=Callable[..., None])


def with_arguments_named(init: Init) -> Init:
    """Let an `__init__` refuse, by SettingError, an argument that it lacks or doesn't have; `**settings` are those of
    the class's `_scheme` and its `_sizes`."""
    *parameters, last = [*inspect.signature(init).parameters.values()][1:]
    if last.kind is not last.VAR_KEYWORD:
        parameters.append(last)
    names = [parameter.name for parameter in parameters]

    @wraps(init)
    def checked(self: Any, *arguments: Any, **settings: Any) -> None:
        valid = list(names)
        if last.kind is last.VAR_KEYWORD:
            valid += [*(field.name for field in fields(self._scheme)), *self._sizes]
        for name, value in settings.items():
            if name not in valid:
                raise UnknownSetting(name, value, valid)
        missing = [p.name for p in parameters[len(arguments) :] if p.default is p.empty and p.name not in settings]
        if missing:
            raise SettingError(missing[0], "", f"must be given to {type(self).__name__}")
        init(self, *arguments, **settings)

    return cast(Init, checked)


class Position(SchemeModule):
    """Module of a position scheme, as `Position(CoPE(max_positions=64), heads=8, head_dim=64)`.

    Its state is the scheme's tables as parameters, in float32 unless the module is converted. `needs`
    says which of its methods the scheme takes. layers: for how many layers it has tables, as a scheme may have some for
    each; every method takes the `layer`. causal: of the model, because tables may have rows for keys after the query.
    context_length: for how many tokens tables are made whose size it decides, at most so many positions are then known.
    embed_dim: D, where it isn't H Dh, for schemes that read or change what enters attention.

    Raises SettingError for sizes that don't fit the scheme.

    Parity: tests/nn/test_position.py, every scheme with `poslab.attention.scheme_attention`.
    """

    _place: Tensor
    _scheme: ClassVar[Any]  # of classes of one scheme
    _sizes: ClassVar[tuple[str, ...]] = ()  # among the settings of such a class

    @with_arguments_named
    def __init__(
        self,
        scheme: PositionScheme,
        *,
        heads: int,
        head_dim: int,
        layers: int = 1,
        causal: bool = True,
        context_length: int = 1024,
        embed_dim: int | None = None,
    ) -> None:
        usage = "Position(SCHEME, heads=4, head_dim=16), with a SCHEME of poslab.positions"
        require_kind(PositionScheme, usage, scheme=scheme)
        width = heads * head_dim if embed_dim is None else embed_dim
        shape = ModelShape(context_length, width, layers, heads, causal, head_dim=head_dim)
        check_sizes(scheme, shape)
        super().__init__(scheme, shape)
        self.heads: int | None = heads  # that tensors must have, and
        self.head_dim: int | None = head_dim
        self._beyond_a_bias = beyond_a_bias(scheme, *self.terms(range(0 if causal else -1, 2)))
        # Says where the module is and in which precision, because a scheme may have no table.
        self.register_buffer("_place", torch.empty(0), persistent=False)

    @property
    def needs(self) -> str:
        """Say in one line what a model calls for this scheme, in the order of its layers."""
        scheme, beyond, calls = self.scheme, self._beyond_a_bias, []
        if scheme.overrides("sample"):
            calls.append("positions = sample(T, generator) in training")
        if scheme.overrides("embed"):
            calls.append("x = embed(x) before the first layer")
        if scheme.overrides("mix"):
            calls.append("x = mix(x) before a layer's projections")
        if beyond:
            calls.append(f"Attention(position)(q, k, v{', x=x' if scheme.overrides('token_state') else ''})")
        elif self._rotates:
            calls.append("q, k = rotate(q, k)")
        if not beyond and (scheme.overrides("relative") or scheme.overrides("score_mod")):
            calls.append("attn_mask=position(Tq, Tk) or score_mod=position.score_mod(T)")
        return "; ".join(calls) or "nothing"

    def extra_repr(self) -> str:
        return f"{self.scheme}, heads={self.heads}, needs: {self.needs}"

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the tables anew, as after `to_empty`."""
        for name, table in initial_tables(self.scheme, self.shape).items():
            self.own_tables[name].copy_(table)

    @property
    def _tied_weights_keys(self) -> dict[str, str]:
        """Patterns of the names by which transformers saves a table that modules share once, instead of refusing it."""
        return {rf"tables\.{name}$|\.tables\.{name}$": f"tables.{name}" for name in self.own_tables}

    # What any attention takes: a bias by two positions, and rotations

    def forward(
        self,
        query_length: int,
        key_length: int | None = None,
        *,
        offset: int | None = None,
        causal: bool | None = None,
        layer: int = 0,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Return what is added to each score, (1, H, Tq, Tk), for the `attn_mask` of scaled_dot_product_attention.

        offset: position of the first query, the first key's being 0; None: Tk - Tq, so that the last query stands at
        the last key, as with a cache. causal: whether a query's later keys get -inf; None: as the model. dtype: that of
        the queries, which torch asks for; None: the module's. It is computed in float32 or better.

        Raises SettingError for a scheme that is no bias: `needs` says what to call. And for a query that sees no key.
        """
        lengths: dict[str, Any] = {"query_length": query_length, "key_length": key_length}
        for name, length in lengths.items():
            if isinstance(length, Tensor):
                problem = "must be a number of tokens; tensors are for Attention(position)(q, k, v)"
                raise SettingError(name, list(length.shape), problem)
        keys = query_length if key_length is None else key_length
        first = keys - query_length if offset is None else offset
        if first < 0 and (self.shape.causal if causal is None else causal):
            raise SettingError("offset", first, "must be at least 0, because the first query would see no key")
        i = torch.arange(first, first + query_length, device=self._place.device)
        j = torch.arange(keys, device=self._place.device)
        self.check_length(torch.sym_max(first + query_length, keys))
        return self._bias(i, j, distances_between(first - keys + 1, first + query_length), causal, layer, dtype)

    def at(
        self,
        q_positions: Tensor,
        k_positions: Tensor,
        *,
        causal: bool | None = None,
        layer: int = 0,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Return what `forward` does for explicit positions (Tq,) and (Tk,), or (B, Tq) and (B, Tk), from 0 on.

        causal: a query doesn't see keys at later positions, wherever they stand in the text.
        """
        q_positions, k_positions = (p.to(self._place.device) for p in (q_positions, k_positions))
        for positions in (q_positions, k_positions):
            ids = PositionIds.explicit(positions)
            ids.check(len(positions), positions.shape[-1], self.scheme, self.shape)
        if not (q_positions.numel() and k_positions.numel()):
            batch = max(p.shape[0] if p.dim() == 2 else 1 for p in (q_positions, k_positions))
            size = batch, self.shape.num_heads, q_positions.shape[-1], k_positions.shape[-1]
            return self._place.new_zeros(size, dtype=dtype)
        (first_q, last_q), (first_k, last_k) = (map(int, p.aminmax()) for p in (q_positions, k_positions))
        distances = range(first_q - last_k - 1, last_q - first_k + 2)  # one more each, because of fractions
        return self._bias(q_positions, k_positions, distances, causal, layer, dtype)

    def score_mod(
        self, length: int, *, offset: int | Tensor = 0, causal: bool | None = None, layer: int = 0
    ) -> ScoreMod:
        """Return the function of torch's flex_attention that adds to each score what `forward` does.

        length: at least the number of keys, and of queries with the offset. Schemes by distance keep (H, 2 length)
        numbers, others (H, length, length). Gradients reach the tables where flex_attention has a backward pass, on
        CUDA. offset, a number or a tensor of one: position of the first query, the first key's being 0.

        Raises SettingError as `forward`.
        """
        if self.scheme.overrides("score_mod"):
            by_pair = self(length, causal=causal, layer=layer)[0]
            return lambda score, b, h, i, j: score + by_pair[h, i + offset, j].to(score.dtype)
        self.check_length(length)
        length = max(1, length)
        distances = torch.arange(1 - length, length, device=self._place.device)
        here = torch.zeros_like(distances[:1])
        bias = self._bias(distances, here, distances_between(1 - length, length), causal, layer, None)
        by_distance = bias[0, :, :, 0]
        return lambda score, b, h, i, j: score + by_distance[h, i - j + (offset + length - 1)].to(score.dtype)

    def rotate(
        self,
        q: Tensor,
        k: Tensor,
        *,
        q_positions: Tensor | None = None,
        k_positions: Tensor | None = None,
        layer: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Map queries q (B, H, Tq, Dh) and keys k (B, Hkv, Tk, Dh) by their positions, to the same shapes and dtypes.

        Positions are (T,), or (B, T) where rows differ. By default keys stand at 0 .. Tk - 1, and the queries are the
        last of them. Raises SettingError for another layout, and for a scheme that does something else: see `needs`.
        """
        self.check_layout(q, k)
        if not self._rotates or self._beyond_a_bias:
            raise SettingError("rotate", type(self.scheme).__name__, f"does something else; it needs: {self.needs}")
        query_ids = self.token_positions(q, q_positions, k.shape[-2] - q.shape[-2], "q_positions")
        key_ids = self.token_positions(k, k_positions, 0, "k_positions")
        scheme_layer = SchemeLayer(self.scheme, self.own_tables, self.shape, layer, None, query_ids, key_ids)
        turned_q, turned_k, _ = scheme_layer.apply_hooks(q, k, None)
        return turned_q.to(q.dtype), turned_k.to(k.dtype)

    # What comes before attention

    def embed(self, x: Tensor, positions: Tensor | None = None, tokens: Tensor | None = None) -> Tensor:
        """Map embeddings x (B, T, D) at positions (T,) or (B, T), by default 0 .. T - 1, (B, T, D) in x's dtype.

        tokens: (B, N) ids of the text so far, for schemes that read them.
        """
        return self.embedded(x, self.token_positions(x, positions), tokens).to(x.dtype)

    def mix(
        self, x: Tensor, before: Tensor | None = None, *, documents: Tensor | None = None, layer: int = 0
    ) -> Tensor:
        """Map what enters a layer's attention, x (B, T, D), by the few tokens before each, (B, T, D) in x's dtype.

        before: (B, K - 1, D), the rows of the tokens before x, of which a cache keeps the last K - 1, K being
        `scheme.mixed_tokens`; None: x begins a text. documents: (B, T), as of `Attention`, where x begins with one.
        """
        documents = checked_documents(documents, x[..., 0])
        if before is not None and documents is not None:
            raise SettingError("documents", "[...]", "can't be given with `before`: x must begin with a document")
        ids = PositionIds(torch.arange(x.shape[1], device=x.device), documents=documents)
        scheme_layer = SchemeLayer(self.scheme, self.own_tables, self.shape, layer, None, ids)
        mixed = scheme_layer.mix(x) if before is None else scheme_layer.mix_after(before, x)
        return mixed.to(x.dtype)

    def sample(self, length: int, generator: torch.Generator) -> Tensor | None:
        """Draw the positions of a training step, (T,), on the CPU; None: 0, 1, 2, ..."""
        return self.scheme.sample(self.shape, length, generator)

    # Checks

    def check_layout(self, q: Tensor, *kv: Tensor) -> None:
        """Raise SettingError unless q is (B, H, T, Dh), and keys and values are (B, Hkv, T, Dh), Hkv dividing H."""
        for name, x in zip("qkv", (q, *kv), strict=False):
            shape, heads, head_dim = list(x.shape), self.heads, self.head_dim
            if len(shape) != 4 or shape[-1] != (head_dim or shape[-1]):
                size = f" with Dh={head_dim}" if head_dim else ""
                raise SettingError(name, shape, f"must be (B, H, T, Dh){size}")
            if heads is None or shape[1] == heads or (name != "q" and heads % shape[1] == 0):
                continue
            if shape[2] == heads or (name != "q" and heads % shape[2] == 0):
                problem = f"must be (B, H, T, Dh), but seems to be (B, T, H, Dh): give {name}.transpose(1, 2)"
                raise SettingError(name, shape, problem)
            raise SettingError(name, shape, f"must be (B, H, T, Dh) with H={heads}, or for keys a divisor of it")
        if len(kv) > 1 and kv[0].shape[1:3] != kv[1].shape[1:3]:
            k, v = (list(x.shape) for x in kv)
            raise SettingError("v", v, f"must have as many heads and tokens as k={k}")

    def token_positions(
        self, x: Tensor, positions: Tensor | None, first: int = 0, name: str = "positions", texts: Tensor | None = None
    ) -> PositionIds:
        """Return the positions of the T tokens of x (B, ..., T, n): explicit, or counted from `first`.

        texts: (B, first + T), the numbers of documents, in each of which positions are counted from 0. Raises
        SettingError for positions that are none of x's, or that the scheme doesn't know.
        """
        length = x.shape[-2]
        if positions is None and texts is not None:
            counted = positions_within(texts)[:, first:]
            if not torch.compiler.is_compiling():
                self.check_length(int(counted.max()) + 1)
            return PositionIds(counted)
        if positions is None:
            self.check_length(first + length)
            return PositionIds(torch.arange(first, first + length, device=x.device))
        size = list(positions.shape)
        if len(size) not in (1, 2) or size[-1] != length:
            mend = ": give x.transpose(1, 2), (B, H, T, Dh)" if x.dim() == 4 and size[-1] == x.shape[1] else ""
            raise SettingError(name, size, f"must be (T,) or (B, T) with T={length}{mend}")
        if torch.compiler.is_compiling() and not self.scheme.overrides("relative"):
            # Unchecked, because a look at the numbers breaks the graph; tables by distance can't do without.
            return PositionIds(positions.to(x.device))
        ids = PositionIds.explicit(positions.to(x.device))
        ids.check(len(x), length, self.scheme, self.shape)
        return ids

    def _bias(
        self, i: Tensor, j: Tensor, distances: range, causal: bool | None, layer: int, dtype: torch.dtype | None
    ) -> Tensor:
        hides = self.shape.causal if causal is None else causal
        try:
            bias = dense_bias(self.scheme, self.own_tables, self.shape, layer, i, j, distances, causal=hides)
        except SettingError as error:
            raise SettingError(error.option, error.value, f"{error.problem}; it needs: {self.needs}") from None
        return bias.to(dtype or self._place.dtype)

    @property
    def _rotates(self) -> bool:
        return any(map(self.scheme.overrides, ("rotate", "query", "key")))
