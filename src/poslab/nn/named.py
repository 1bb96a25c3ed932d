"""The well-known schemes as modules by their own names; settings are those of the scheme, by their names there.

H heads, Dh head dimension, L layers, T sequence.
"""

from typing import Any, ClassVar, Self

from torch import Tensor, nn

from poslab.errors import SettingError, require_one_of
from poslab.nn.position import Position, with_arguments_named
from poslab.positions import PositionScheme, alibi, cope, fire, kerple, rope, shaw, t5


class _Named(Position):
    """Position of a scheme by its own name; sizes among the settings: those of `Position`."""

    _scheme: ClassVar[type[PositionScheme]]
    _sizes = ("layers", "causal", "context_length", "embed_dim")

    @with_arguments_named
    def __init__(self, heads: int, head_dim: int, **settings: Any) -> None:
        sizes = {name: settings.pop(name) for name in self._sizes if name in settings}
        super().__init__(self._scheme(**settings), heads=heads, head_dim=head_dim, **sizes)


class _Bias(_Named):
    """Bias alone, which knows no Dh; head_dim is that which tensors must have, None for any."""

    @with_arguments_named
    def __init__(self, heads: int, head_dim: int | None = None, **settings: Any) -> None:
        super().__init__(heads, head_dim or 64, **settings)
        self.head_dim = head_dim


class T5Bias(_Bias):
    """T5's bias by bucket of distances (Raffel et al. 2020, section 2.1): `bias(Tq, Tk)` is (1, H, Tq, Tk).

    Settings, as `num_buckets=32`, `max_distance=128`: `poslab.positions.t5.T5`; its table `tables.bias` is
    (num_buckets, H), shared by layers. `causal=False`: half of the buckets are for keys after the query. T5 itself
    doesn't divide scores by sqrt(Dh): with its weights, give scale=1.0 to scaled_dot_product_attention.

    Parity: tests/nn/test_named.py::test_t5_is_that_of_transformers.
    """

    _scheme = t5.T5

    @classmethod
    def from_hf(
        cls, source: nn.Module | Tensor, *, bidirectional: bool | None = None, max_distance: int | None = None
    ) -> Self:
        """Take the table of transformers' T5: of a T5Attention that has one, or a weight (num_buckets, H).

        bidirectional: of an encoder; None: as the T5Attention, which also knows its max_distance (128 for a weight).
        Raises SettingError for a weight without bidirectional, and for a module without a table.
        """
        embedding = getattr(source, "relative_attention_bias", source)
        weight = embedding if isinstance(embedding, Tensor) else getattr(embedding, "weight", None)
        if not isinstance(weight, Tensor) or weight.dim() != 2:
            raise SettingError("source", type(source).__name__, "has no table relative_attention_bias (num_buckets, H)")
        decoder = getattr(source, "is_decoder", None)
        if bidirectional is None and decoder is None:
            raise SettingError("bidirectional", None, "must be true for T5's encoder and false for its decoder")
        causal = bool(decoder) if bidirectional is None else not bidirectional
        farthest: Any = max_distance or getattr(source, "relative_attention_max_distance", 128)
        bias = cls(weight.shape[1], None, num_buckets=len(weight), max_distance=farthest, causal=causal)
        bias.load_state_dict({"tables.bias": weight.detach()})
        return bias.to(weight.device, weight.dtype)


class ALiBi(_Bias):
    """ALiBi's bias -slope_h |i - j| (Press et al. 2022, section 3): `bias(Tq, Tk)` is (1, H, Tq, Tk).
    Nothing is learned.

    Parity: tests/nn/test_named.py::test_alibi_is_that_of_transformers.
    """

    _scheme = alibi.ALiBi

    @classmethod
    def from_hf(cls, source: Any) -> Self:
        """Take the number of heads of transformers' Bloom: of its configuration, or the number itself."""
        return cls(source if isinstance(source, int) else source.num_attention_heads)


class Kerple(_Bias):
    """KERPLE's bias, a logarithm or a power of distance (Chi et al. 2022, equations 5 and 6): (1, H, Tq, Tk).

    Settings, as `kernel="log"`: `poslab.positions.kerple.Kerple`; tables `r1` and `r2` are (H,), shared by layers.

    Parity: tests/nn/test_position.py, with `scheme_attention`.
    """

    _scheme = kerple.Kerple


class Fire(_Bias):
    """FIRE's bias, a small network of the distance over the query's position (Li et al. 2024): (1, H, Tq, Tk).

    Settings, as `width=32`, `init_threshold=64.0`: `poslab.positions.fire.FIRE`; tables are those of `layers` layers.
    It knows positions, not distances alone: with keys that a cache has dropped, use `at` with those of the rest.

    Parity: tests/nn/test_position.py, with `scheme_attention`.
    """

    _scheme = fire.FIRE


class Shaw(_Named):
    """Shaw's relative keys and values (Shaw et al. 2018, equations 3 and 4), for `Attention`, in linear memory.

    Settings, as `max_distance=16`, `values=True`: `poslab.positions.shaw.Shaw`; tables `keys` and `values` are
    (L, max_distance + 1, Dh), or with causal=False (L, 2 max_distance + 1, Dh).

    Parity: tests/nn/test_position.py, with `scheme_attention`.
    """

    _scheme = shaw.Shaw


class Cope(_Named):
    """Contextual positions (Golovneva et al. 2024), for `Attention`: how far a key is counts gates of keys between.

    Settings, as `max_positions=64`: `poslab.positions.cope.CoPE`; its tables are (L, max_positions, Dh).

    Parity: tests/nn/test_position.py, with `scheme_attention`.
    """

    _scheme = cope.CoPE


class Rotary(Position):
    """RoPE (Su et al. 2021, section 3.2): `q, k = rotary(q, k)` turns queries (B, H, Tq, Dh) and keys (B, Hkv, Tk, Dh).

    head_dim: Dh. pairs: which channels turn together, "halves" for (d, d + n / 2), as in Llama and GPT-NeoX, "adjacent"
    for (2 d, 2 d + 1), as in the paper and GPT-J. heads: H, by which another layout is noticed and refused; None: it
    isn't. Other settings, as `base=10000.0`, `fraction=1.0`, `scaling="yarn"`, `factor`: `poslab.positions.rope.RoPE`.

    Parity: tests/nn/test_named.py::test_rotary_is_that_of_transformers.
    """

    _scheme = rope.RoPE

    @with_arguments_named
    def __init__(self, head_dim: int, *, pairs: str = "halves", heads: int | None = None, **settings: Any) -> None:
        require_one_of(("halves", "adjacent"), pairs=pairs)
        scheme = self._scheme(interleaved=pairs == "adjacent", **settings)
        super().__init__(scheme, heads=heads or 1, head_dim=head_dim)
        self.heads = heads

    def forward(  # type: ignore[override]
        self, q: Tensor, k: Tensor, *, q_positions: Tensor | None = None, k_positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Turn queries and keys; arguments as in `Position.rotate`."""
        return self.rotate(q, k, q_positions=q_positions, k_positions=k_positions)
