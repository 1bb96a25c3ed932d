"""The contract of a position scheme: settings, learned tables, and up to three places where it enters the decoder.

Axes, here and in every scheme:
    B batch, T sequence, Tq / Tk queries / keys, D embedding, H heads, Dh = D / H head dimension, L layers,
    R rows of a relative table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from poslab.errors import SettingError, require_at_least
from poslab.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    Tables = Mapping[str, Tensor]


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

    def __post_init__(self) -> None:
        require_at_least(1, context_length=self.context_length, embed_dim=self.embed_dim)
        require_at_least(1, num_layers=self.num_layers, num_heads=self.num_heads)
        if self.embed_dim % self.num_heads:
            raise SettingError("num_heads", self.num_heads, f"must divide embed_dim={self.embed_dim}")

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.num_heads

    @property
    def distances(self) -> range:
        """Every distance query - key that a full context contains."""
        return range(0 if self.causal else 1 - self.context_length, self.context_length)


@dataclass(frozen=True, eq=False)
class RelativeTerms:
    """Attention's knowledge of the distance between query position i and key position j, as data.

    Each table has R = highest - lowest + 1 rows; the pair (i, j) uses row r = clip(i - j, lowest, highest) - lowest:

        score[i, j] = scale * q_i . (k_j + keys[r]) + bias[h, r]
        out[i]      = sum_j w[i, j] * (v_j + values[r])           w = softmax of score over the visible j

    bias: (H, R), of any size, -inf for keys that are not to be seen; a query that sees none gets zeros. keys and
    values: (R, Dh), or (H, R, Dh) where heads differ. Any of the three may be None.
    Raises ValueError for a table whose number of rows is not R.
    """

    lowest: int
    highest: int
    bias: Tensor | None = None
    keys: Tensor | None = None
    values: Tensor | None = None

    def __post_init__(self) -> None:
        rows = self.highest - self.lowest + 1
        for name, row_axis in (("bias", -1), ("keys", -2), ("values", -2)):
            table = getattr(self, name)
            if table is not None and table.shape[row_axis] != rows:
                problem = f"has {table.shape[row_axis]} rows, but distances {self.lowest} to {self.highest} need {rows}"
                raise ValueError(f"{name} {problem}")

    def to(self, device: torch.device) -> RelativeTerms:
        """The same terms with their tables on `device`."""
        tables = (None if t is None else t.to(device) for t in (self.bias, self.keys, self.values))
        return RelativeTerms(self.lowest, self.highest, *tables)

    def row_indices(self, query_length: int, key_length: int, offset: int | None = None) -> Tensor:
        """(Tq, Tk) int64: the table row of each pair.

        offset: position of the first query minus position of the first key. By default the last query stands at the
        last key, so that keys in excess of the queries are earlier memory.
        """
        if offset is None:
            offset = key_length - query_length
        table = next((t for t in (self.bias, self.keys, self.values) if t is not None), None)
        device = table.device if table is not None else None
        query = torch.arange(offset, offset + query_length, device=device)
        key = torch.arange(key_length, device=device)
        return (query[:, None] - key).clamp(self.lowest, self.highest) - self.lowest  # (Tq, Tk)

    def dense_bias(self, query_length: int, key_length: int, offset: int | None = None) -> Tensor:
        """(1, H, Tq, Tk): the bias of each pair; `offset` as in `row_indices`. Raises ValueError without a bias."""
        if self.bias is None:
            raise ValueError("these relative terms have no bias")
        rows = self.row_indices(query_length, key_length, offset)
        # embedding() rather than indexing: its backward is fast and sums in a fixed order.
        return torch.nn.functional.embedding(rows, self.bias.T).permute(2, 0, 1)[None]  # (Tq, Tk, H) -> (1, H, Tq, Tk)


@dataclass(frozen=True, eq=False)
class Curves:
    """A picture of what a scheme learned: one line per name, over a common x axis."""

    title: str
    x_label: str
    y_label: str
    x: list[int]
    lines: dict[str, Tensor]  # each (len(x),)


@dataclass(frozen=True, eq=False)
class Matrix:
    """A picture of what a scheme learned: values in -1 to 1 as colours."""

    title: str
    x_label: str
    y_label: str
    values: Tensor  # (rows, columns)


Picture = Curves | Matrix


class PositionScheme:
    """One way of knowing position. Without any override it is none at all (NoPE).

    A scheme is a frozen dataclass. Its fields are its settings, and the same names stand in its yaml; the command line
    is checked against their types and against `__post_init__` and `check` before torch is loaded. It keeps no state:
    what it learns are the tensors that `tables` returns, owned by the model as parameters and handed to every hook.
    """

    # Whether `relative` gives every layer the same terms. It is then asked once per forward pass.
    share_layers: bool = False
    # Whether only distances count, so that moving all positions by the same amount changes nothing.
    shift_invariant: ClassVar[bool] = True

    def check(self, shape: ModelShape) -> None:
        """Raises SettingError where the settings can't work with this model. Must not use torch."""

    def warnings(self, shape: ModelShape) -> list[str]:
        """Sentences about settings that work but not as the user may think: rows that the context never reaches."""
        return []

    def max_positions(self, shape: ModelShape) -> int | None:
        """The longest input that the scheme can take; None: any."""
        return None

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        """The initial values of everything learned, by name. Called after the rest of the model is initialised."""
        return {}

    # `embed` and `rotate` map each token by itself: by nothing but its number in `positions`, which are whole numbers
    # from 0 on in any order. (Prompts of unequal length come as one row, their tokens laid end to end.)

    def embed(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, D) token embeddings, positions (T,) -> (B, T, D)."""
        return x

    def rotate(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, H, T, Dh) queries or keys, positions (T,) -> (B, H, T, Dh)."""
        return x

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms | None:
        """The terms of `layer`, None for no terms; `distances` occur in the text, from 0 on if the model is causal."""
        return None

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        """Pictures of the learned tables, by name, for TensorBoard and reports."""
        return {}
