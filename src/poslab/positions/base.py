"""Contract of a position scheme: settings, learned tables, and hooks by which position enters the decoder.

Three kinds of hooks, from cheap to expensive:

    maps of one token                 embed, query, key: by the token's position; query_scale: by how many keys it sees;
                                      mix: by the few tokens before it
    functions of i - j                relative: data, a few small tables by distance, which the fast kernels take
    everything else                   score_mod: a function of a tile of scores, computed block by block and again in
                                      the backward pass, so that memory stays linear; token_state: numbers of a token
                                      that it reads, and that a cache keeps

Axes, here and in every scheme:
    B batch, T sequence, Tq / Tk queries / keys, D embedding, H heads, Dh head dimension, L layers,
    R rows of a relative table, E numbers of a token's state.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from poslab.checked import CONFIG, by_context, with_numbers_as_they_are
from poslab.errors import SettingError, require_at_least
from poslab.positions.names import check_names, require_frozen
from poslab.positions.pictures import Curves, Explanation, Matrix, OnText, Picture, Strip
from poslab.positions.terms import RelativeTerms, ScoreTile

Tables = Mapping[str, Tensor]

__all__ = [
    "BACKENDS",
    "Curves",
    "Explanation",
    "HFEquivalent",
    "HeadInputs",
    "Matrix",
    "ModelShape",
    "OnText",
    "Picture",
    "PositionScheme",
    "RelativeTerms",
    "ScoreTile",
    "Strip",
    "Tables",
]

# The names of the ways to compute attention with relative terms; `poslab.attention.attend` says what they are.
BACKENDS = ("auto", "reference", "sdpa", "flex", "banded", "columns", "triton", "blockwise")


@dataclass(frozen=True)
class ModelShape:
    """Sizes of the decoder. Raises SettingError for sizes that don't fit together."""

    context_length: int
    embed_dim: int
    num_layers: int
    num_heads: int
    causal: bool = True
    token_std: float = 0.02  # of token embeddings at the start, and of what is added to them
    longest_text: int | None = None  # tokens of the longest text of training; None: a whole context
    head_dim: int = 0  # as given, else embed_dim / num_heads

    def __post_init__(self) -> None:
        require_at_least(1, context_length=self.context_length, embed_dim=self.embed_dim)
        require_at_least(1, num_layers=self.num_layers, num_heads=self.num_heads)
        if not self.head_dim:
            if self.embed_dim % self.num_heads:
                raise SettingError("num_heads", self.num_heads, f"must divide embed_dim={self.embed_dim}")
            object.__setattr__(self, "head_dim", self.embed_dim // self.num_heads)  # because it is frozen

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes by their names among the arguments of GPT, which knows token_std by another."""
        return {name: size for name, size in vars(self).items() if name != "token_std"}

    @property
    def attention_dim(self) -> int:
        """Numbers that the queries of all heads have, H Dh: embed_dim, unless head_dim is given."""
        return self.num_heads * self.head_dim

    @property
    def training_length(self) -> int:
        """Number of tokens of the longest text of training."""
        return min(self.longest_text or self.context_length, self.context_length)

    @property
    def distances(self) -> range:
        """Distances query - key that a full context contains."""
        return range(0 if self.causal else 1 - self.context_length, self.context_length)


@dataclass(frozen=True, eq=False)
class HeadInputs:
    """Inputs of one layer before any hook, and one of its heads, for `PositionScheme.reference_score`."""

    queries: Tensor  # (H, T, Dh)
    keys: Tensor  # (H, T, Dh)
    x: Tensor  # (T, D): what entered attention
    positions: list[int]  # T numbers
    seen: list[list[bool]]  # T x T: whether query i sees key j
    shape: ModelShape
    layer: int
    head: int

    @property
    def q(self) -> Tensor:
        """Queries of the head, (T, Dh)."""
        return self.queries[self.head]

    @property
    def k(self) -> Tensor:
        """Keys of the head, (T, Dh)."""
        return self.keys[self.head]


@dataclass(frozen=True, eq=False)
class HFEquivalent:
    """Architecture of transformers by its model_type, "gpt2" or "gpt_neox", and what the scheme puts into it.

    settings: of its configuration, beside the sizes of the model. weights: by their names there.
    """

    model_type: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Tensor] = field(default_factory=dict)


class PositionScheme:
    """Position scheme; without any override none at all (NoPE).

    A scheme is a frozen dataclass. Its fields are its settings, with the same names in its yaml; their
    types, `__post_init__` and `check` are checked before a run writes anything. It keeps no state: its learned tensors
    are those that `tables` returns, owned by the model as parameters and passed to every hook.
    Methods that are no hooks begin with an underscore; a method that looks like a misspelt hook is refused.
    """

    # Whether `relative` gives every layer the same terms. It is then called once per forward pass.
    share_layers: bool = False
    # Whether only distances count, so that shifting all positions by the same amount changes nothing.
    shift_invariant: ClassVar[bool] = True
    # Whether `score_mod` adds to each score a number that the two positions alone decide.
    additive: ClassVar[bool] = False
    # Whether each text of a training batch gets positions of its own from `sample`; else all of them get the same.
    samples_each_text: bool = False
    # Whether evaluation and generation take positions from `sample` as well; else they count 0, 1, 2, ...
    samples_in_evaluation: bool = False
    # From how many tokens, itself included, the hook `mix` makes each one: the K of a convolution.
    mixed_tokens: int = 1
    # Other settings than the defaults, for the tests of the contract.
    variants: ClassVar[tuple[dict[str, Any], ...]] = ()
    _further: ClassVar[frozenset[str]] = frozenset()  # hooks that take their argument of `FURTHER`

    __pydantic_config__: ClassVar[dict[str, Any]] = CONFIG

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Check a scheme by its fields; where any scheme may stand, the context of the check makes one of a node."""
        return by_context(cls) if source is PositionScheme else with_numbers_as_they_are(handler(source))

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        check_names(cls, HOOKS, FURTHER, ATTRIBUTES)
        signatures = {hook: inspect.signature(getattr(cls, hook)) for hook in FURTHER}
        cls._further = frozenset(hook for hook, argument in FURTHER.items() if argument in signatures[hook].parameters)

    def __new__(cls, *arguments: Any, **settings: Any) -> PositionScheme:
        if cls is not PositionScheme:
            require_frozen(cls, "pos", cls.__name__)
        return super().__new__(cls)

    def overrides(self, hook: str, layer: int | None = None) -> bool:
        """Return whether the scheme has a hook of its own of that name, in `layer`, or in any."""
        return getattr(type(self), hook) is not getattr(PositionScheme, hook)

    def further(self, hook: str, value: Tensor | None) -> dict[str, Tensor | None]:
        """Return the argument of `FURTHER` with its value, if the hook takes it."""
        return {FURTHER[hook]: value} if hook in self._further else {}

    def check(self, shape: ModelShape) -> None:
        """Raise SettingError where the settings can't work with this model. Must not use torch."""

    def warnings(self, shape: ModelShape) -> list[str]:
        """Return sentences about settings that may surprise, such as rows that the context never reaches."""
        return []

    def max_length(self, shape: ModelShape) -> int | None:
        """Return the longest input that the scheme can take; None: any."""
        return None

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        """Return the initial values of everything learned, by name; called after the rest of the model is made."""
        return {}

    def sample(self, shape: ModelShape, length: int, generator: torch.Generator) -> Tensor | None:
        """Draw the positions of one training step, (T,) int64 and rising, on the CPU; None: 0, 1, 2, ...

        They may be of floating point if the scheme has neither tables by distance nor a last position.
        `samples_each_text` says whether they are those of one text or of the whole batch, `samples_in_evaluation`
        whether they are drawn in evaluation and generation, too.
        """
        return None

    # `embed`, `query` and `key` map each token by itself, by nothing but its number in `positions`, which are whole
    # numbers from 0 on in any order. (Rows with positions of their own come as one row, their tokens concatenated.)
    # `query` and `key` may take one more argument, token_state: (B, H, T, E) of their tokens, or None. So may `embed`,
    # tokens: (B, N) ids of the text or segment so far, of which x are the last T; -1 for padding before a text. It then
    # gets rows with positions of their own one by one.
    # Their results, and those of `token_state` and `score_mod`, are finite, and of the dtype of what they are made of.

    def embed(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        """Map token embeddings x (B, T, D) at positions (T,), (B, T, D)."""
        return x

    def rotate(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        """Map queries or keys x (B, H, T, Dh) of any layer at positions (T,), (B, H, T, Dh)."""
        return x

    def query(self, tables: Tables, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        """Map queries q (B, H, T, Dh) at positions (T,), (B, H, T, Dh), if otherwise than keys, or by layer."""
        return self.rotate(tables, q, positions)

    def key(self, tables: Tables, layer: int, k: Tensor, positions: Tensor) -> Tensor:
        """Map keys k (B, H, T, Dh) at positions (T,), (B, H, T, Dh)."""
        return self.rotate(tables, k, positions)

    def query_scale(self, tables: Tables, shape: ModelShape, layer: int, keys_seen: Tensor) -> Tensor | None:
        """Return a factor on each query as `query` left it, (1 or B, 1 or H, Tq) in float32 or better; None: 1.

        keys_seen: (1 or B, Tq), at least 1, how many keys each sees, whatever window, memory or padding hides others;
        of the dtype that the factor must have, which is made of a query's own number alone.
        """
        return None

    def mix(self, tables: Tables, layer: int, x: Tensor) -> Tensor:
        """Mix what enters attention, x (B, K - 1 + T, D) -> (B, T, D), where K is `mixed_tokens`.

        The result at t is made of x[:, t : t + K] alone, the last of which is the token itself. Before the beginning of
        a text, and of each segment where there is memory, stand zeros; a cache keeps K - 1 rows.
        """
        return x[:, self.mixed_tokens - 1 :]

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms | None:
        """Return the tables by distance of `layer`, in any floating point; None: there are none.

        distances: all that occur in the text, from 0 on if the model is causal.
        """
        return None

    def token_state(self, tables: Tables, layer: int, x: Tensor) -> Tensor | None:
        """Return numbers of each token for other hooks of the layer, (B, H, T, E), or None; the cache keeps them.

        `score_mod` and `key_bias` read them, and `query` and `key` if they take a `token_state`. x: (B, T, D), the
        input of attention in float32 or better. Each token's numbers depend on that token alone.
        """
        return None

    def prepare(self, tables: Tables, layer: int, keys: Tensor, token_state: Tensor) -> Tensor:
        """Return what `score_mod` gets as token_state, (B, H, N, E'): computed once, where each tile would do it again.

        keys: (B, H, N, Dh), as `key` left them, and token_state (B, H, N, E): of all keys, in order, in float32 or
        better. Numbers of a key may depend on other keys, scores of a query still on none after it.
        """
        return token_state

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        """Return the scores that replace those of a tile, (B, H, m, n) in float32 or better.

        `poslab.positions.terms.ScoreTile` lists the fields of `tile` with their shapes: scores, queries, keys,
        token_state, i and j (positions), seen, scale, causal, query_index, subtracted, first_query, first_key,
        has_null. A query's scores must not depend on the other queries of its tile, nor on keys that it doesn't see,
        nor on the sizes m and n. With one more column, (B, H, m, n + 1), the last has null scores, of a key without a
        value, which only takes weight.
        """
        return tile.scores

    def key_bias(self, tables: Tables, shape: ModelShape, layer: int, token_state: Tensor) -> Tensor | None:
        """Return a bias added to every score of a key, (B, H, N) in float32 or better; None: there is none.

        token_state: (B, H, N, E) of all keys, in order. It is faster than a `score_mod` that adds to each pair a number
        of the key and one of the query, which no softmax notices; with a bias, `score_mod` isn't called.
        """
        return None

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        """Return the score of query i and key j, a scalar with gradients, written from the paper and no other hook.

        It is the oracle of tests.
        """
        return (text.q[i] * text.k[j]).sum() / text.shape.head_dim**0.5

    def reference_null(self, tables: Tables, text: HeadInputs, i: int) -> Tensor | None:
        """Return the null score of query i, a scalar as `reference_score`; None: there is none."""
        return None

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        """Return pictures of the learned tables, by name, for TensorBoard, reports and explanations."""
        return {}

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        """Return pictures of what is not learned or depends on a text, by name, for a page about one model.

        sample: all pairs of a text (B = 1), a tile per layer, as `score_mod` gets them.
        """
        return {}

    def hf_equivalent(self, tables: Tables, shape: ModelShape) -> HFEquivalent | None:
        """Return the equivalent in transformers, for scripts/export.py; None: there is none. It isn't inherited."""
        return None


ATTRIBUTES = [name for name in inspect.get_annotations(PositionScheme) if not name.startswith("_")]
# Names of the hooks, with those of their arguments.
HOOKS = {
    name: [*inspect.signature(member).parameters]
    for name, member in vars(PositionScheme).items()
    if inspect.isfunction(member) and not name.startswith("_") and name not in ("overrides", "further")
}
# Arguments that a hook may take besides, or leave out.
FURTHER = {"embed": "tokens", "query": "token_state", "key": "token_state"}
_OF_TOKENS = ("sample", "embed", "rotate", "query", "key", "query_scale", "mix")
ENTRANCES = (*_OF_TOKENS, "relative", "token_state", "score_mod", "key_bias")


def knows_nothing(scheme: PositionScheme) -> bool:
    """Return whether a scheme has none of the hooks by which position enters: the natural baseline."""
    return not any(map(scheme.overrides, ENTRANCES))


def knows_fractions(scheme: PositionScheme, shape: ModelShape) -> bool:
    """Return whether positions may be of floating point: no table is looked up by them, nor by their distances."""
    return not scheme.overrides("relative") and scheme.max_length(shape) is None
