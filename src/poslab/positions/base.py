"""The contract of a position scheme: settings, learned tables, and the places where it enters the decoder.

Three kinds of places, from cheap to dear:

    what enters one token             embed, query, key: maps of that token by its position
    what is a function of i - j       relative: data, a few small tables by distance, which the fast kernels take
    everything else                   scores: a function of a tile of scores, computed block by block and again in the
                                      backward pass, so that memory stays linear; marks: what a token brings along

Axes, here and in every scheme:
    B batch, T sequence, Tq / Tk queries / keys, D embedding, H heads, Dh = D / H head dimension, L layers,
    R rows of a relative table, E numbers of a mark.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from poslab.errors import SettingError, require_at_least
from poslab.lazy import Tensor, torch
from poslab.positions.hf_equivalent import HFEquivalent
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
BACKENDS = ("auto", "reference", "sdpa", "blockwise")


@dataclass(frozen=True)
class ModelShape:
    """The sizes of the decoder that a scheme serves. Raises SettingError for sizes that don't fit together."""

    context_length: int
    embed_dim: int
    num_layers: int
    num_heads: int
    causal: bool = True
    token_std: float = 0.02  # of token embeddings at the start, and of what is added to them
    longest_text: int | None = None  # tokens of the longest text of training; None: a whole context

    def __post_init__(self) -> None:
        require_at_least(1, context_length=self.context_length, embed_dim=self.embed_dim)
        require_at_least(1, num_layers=self.num_layers, num_heads=self.num_heads)
        if self.embed_dim % self.num_heads:
            raise SettingError("num_heads", self.num_heads, f"must divide embed_dim={self.embed_dim}")

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.num_heads

    @property
    def training_length(self) -> int:
        """How many tokens the longest text of training has."""
        return min(self.longest_text or self.context_length, self.context_length)

    @property
    def distances(self) -> range:
        """Every distance query - key that a full context contains."""
        return range(0 if self.causal else 1 - self.context_length, self.context_length)


@dataclass(frozen=True, eq=False)
class HeadInputs:
    """A text as one head sees it before any hook, for `PositionScheme.reference_score`."""

    q: Tensor  # (T, Dh)
    k: Tensor  # (T, Dh)
    x: Tensor  # (T, D): what entered attention
    positions: list[int]  # T numbers
    seen: list[list[bool]]  # T x T: whether query i sees key j


class PositionScheme:
    """One way of knowing position. Without any override it is none at all (NoPE).

    A scheme is a frozen dataclass. Its fields are its settings, and the same names stand in its yaml; the command line
    is checked against their types and against `__post_init__` and `check` before torch is loaded. It keeps no state:
    what it learns are the tensors that `tables` returns, owned by the model as parameters and handed to every hook.
    Methods that are no hooks begin with an underscore; what looks like a misspelt hook is refused.
    """

    # Whether `relative` gives every layer the same terms. It is then asked once per forward pass.
    share_layers: bool = False
    # Whether only distances count, so that moving all positions by the same amount changes nothing.
    shift_invariant: ClassVar[bool] = True
    # Whether each text of a training batch gets positions of its own from `sample`; else all of them get the same.
    samples_each_text: bool = False
    # Whether evaluation and generation take positions from `sample` as well; else they count 0, 1, 2, ...
    samples_in_evaluation: bool = False
    # Settings other than the defaults that the tests of the contract try as well.
    variants: ClassVar[tuple[dict[str, Any], ...]] = ()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        check_names(cls, HOOKS)

    def __new__(cls, *arguments: Any, **settings: Any) -> PositionScheme:
        if cls is not PositionScheme:
            require_frozen(cls, "pos", cls.__name__)
        return super().__new__(cls)

    def overrides(self, hook: str) -> bool:
        """Whether the scheme has a hook of its own of that name."""
        return getattr(type(self), hook) is not getattr(PositionScheme, hook)

    def check(self, shape: ModelShape) -> None:
        """Raises SettingError where the settings can't work with this model. Must not use torch."""

    def warnings(self, shape: ModelShape) -> list[str]:
        """Sentences about settings that work but not as the user may think: rows that the context never reaches."""
        return []

    def max_length(self, shape: ModelShape) -> int | None:
        """The longest input that the scheme can take; None: any."""
        return None

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        """The initial values of everything learned, by name. Called after the rest of the model is initialised."""
        return {}

    def sample(self, shape: ModelShape, length: int, generator: torch.Generator) -> Tensor | None:
        """The positions of one training step, (T,) int64 and rising, on the CPU; None: 0, 1, 2, ...

        `samples_each_text` says whether they are those of one text or of the whole batch, `samples_in_evaluation`
        whether they are drawn in evaluation and generation, too.
        """
        return None

    # `embed`, `query` and `key` map each token by itself: by nothing but its number in `positions`, which are whole
    # numbers from 0 on in any order. (Rows with positions of their own come as one row, their tokens laid end to end.)
    # Their results, and those of `token_state` and `score_mod`, are finite, and of the dtype of what they are made of.

    def embed(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, D) token embeddings, positions (T,) -> (B, T, D)."""
        return x

    def rotate(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, H, T, Dh) queries or keys of any layer, positions (T,) -> (B, H, T, Dh)."""
        return x

    def query(self, tables: Tables, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        """q (B, H, T, Dh), positions (T,) -> (B, H, T, Dh), where it isn't mapped as keys are, or layers differ."""
        return self.rotate(tables, q, positions)

    def key(self, tables: Tables, layer: int, k: Tensor, positions: Tensor) -> Tensor:
        """k (B, H, T, Dh), positions (T,) -> (B, H, T, Dh)."""
        return self.rotate(tables, k, positions)

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms | None:
        """The terms of `layer`, None for no terms; `distances` occur in the text, from 0 on if the model is causal. The
        tables may be of any floating point: attention takes them in its own."""
        return None

    def token_state(self, tables: Tables, layer: int, x: Tensor) -> Tensor | None:
        """x (B, T, D) entering attention, in float32 or better -> (B, H, T, E), or None.

        What a token brings along for `score_mod` and `key_bias`, made of that token alone: the cache keeps it.
        """
        return None

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        """A tile of scores in float32 or better -> the scores in their place, (B, H, m, n).

        The fields of `tile`, with their shapes, are listed in `poslab.positions.terms.ScoreTile`: scores, queries,
        keys, token_state, i and j (their positions), seen, scale, causal, query_index.
        A query's result must not depend on which other queries share its tile, nor on keys that it doesn't see, nor
        on the sizes m and n.
        """
        return tile.scores

    def key_bias(self, tables: Tables, shape: ModelShape, layer: int, token_state: Tensor) -> Tensor | None:
        """marks (B, H, N, E) of all keys, in order -> (B, H, N) in float32 or better, added to every score of the key;
        None: there is none.

        The fast road for a `score_mod` that adds to each pair a number of the key and one of the query, which no
        softmax notices. Where this gives a bias, `score_mod` isn't asked.
        """
        return None

    def reference_score(
        self, tables: Tables, shape: ModelShape, layer: int, head: int, text: HeadInputs, i: int, j: int
    ) -> Tensor:
        """The score of query i and key j, a scalar that has gradients, written from the paper and no other hook: the
        oracle of tests."""
        return (text.q[i] * text.k[j]).sum() / shape.head_dim**0.5

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        """Pictures of the learned tables, by name, for TensorBoard, reports, and beside their beginnings on a page."""
        return {}

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        """What a page about one model shows beside `pictures`, by name: what nobody learns, and what a text decides.

        sample: a text, of each layer all its pairs (B = 1), as `score_mod` gets them.
        """
        return {}

    def hf_equivalent(self, tables: Tables, shape: ModelShape) -> HFEquivalent | None:
        """What of transformers computes the same, for scripts/export.py; None: nothing does. It isn't inherited."""
        return None


# Their names, and those of their arguments.
HOOKS = {
    name: [*inspect.signature(member).parameters]
    for name, member in vars(PositionScheme).items()
    if inspect.isfunction(member) and not name.startswith("_") and name != "overrides"
}
ENTRANCES = ("sample", "embed", "rotate", "query", "key", "relative", "token_state", "score_mod", "key_bias")


def knows_nothing(scheme: PositionScheme) -> bool:
    """Whether it has none of the hooks by which position enters: what schemes are naturally compared with."""
    return not any(scheme.overrides(hook) for hook in ENTRANCES)
