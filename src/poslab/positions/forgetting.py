"""Forgetting Transformer: each token lets a share of what was before it be forgotten (Lin et al. 2025, section 3).

    f_l         = sigmoid(gate[h] . x_l + bias[h])          x_l: what enters attention
    score[i, j] = q_i . k_j / sqrt(Dh) + sum_{l = j + 1 .. i} log f_l

With c_l = log f_0 + ... + log f_l the sum is c_i - c_j, and what it adds for the query is the same for all its keys:
causal attention needs no more than -c_j at each key. Weights begin normal with std 0.02 and biases at 0, as in the
authors' code, where a gate that sees nothing keeps a half; x-transformers ("data-dependent ALiBi") begins at 5.

Chosen here: the paper is causal. Where a query sees the future, forgetting works both ways, -|c_i - c_j|, so that the
gates of the same tokens lie between two places whichever of them asks (x-transformers learns a second set of gates).
Its direction counts there, too: of two tokens the gate of the later one is in the sum, that of the earlier one is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from poslab.errors import SettingError
from poslab.lazy import Tensor, torch
from poslab.positions.base import (
    Curves,
    Explanation,
    HeadInputs,
    ModelShape,
    OnText,
    Picture,
    PositionScheme,
    ScoreTile,
    Tables,
)

_KEPT = (
    "What a gate keeps, at each token, of the weight of everything before: at 0.9 half is forgotten after seven "
    "tokens, at 0.5 after one. Heads that learned to look far have moved up. Surprising: all heads at one value."
)
_GATE_NORM = (
    "How much the gates look at the tokens: at 0 they would keep the same share everywhere, which is a distance. "
    "Surprising: norms that have stayed at their start, after which gates hardly depend on the text."
)
_GATES = (
    "1 keeps all that was before, 0 forgets it. Surprising, and the scheme's idea: columns in which some words, such "
    "as the ends of sentences, stand out from the others."
)
_LEFT = (
    "The product of all gates since: the factor on the weight of that token for the last query. A head that is pale "
    "but for the last rows sees nothing else. Surprising: a far token that is still at 1."
)


@dataclass(frozen=True)
class Forgetting(PositionScheme):
    """Forget gate per layer, head and token; init_bias: initial bias of the gates."""

    init_bias: float = 0.0

    variants = ({"init_bias": 3.0},)

    def __post_init__(self) -> None:
        if not math.isfinite(self.init_bias):
            raise SettingError("init_bias", self.init_bias, "must be a finite number")

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        axes = (shape.num_layers, shape.num_heads)
        return {"gate": torch.randn(*axes, shape.embed_dim) * 0.02, "bias": torch.full(axes, self.init_bias)}

    def token_state(self, tables: Tables, layer: int, x: Tensor) -> Tensor:
        """Return the logarithm of each token's gate, (B, H, T, 1), of x (B, T, D)."""
        gate, bias = tables["gate"][layer].to(x.dtype), tables["bias"][layer].to(x.dtype)
        logits = torch.nn.functional.linear(x, gate, bias)  # (B, T, H)
        return torch.nn.functional.logsigmoid(logits).mT[..., None]

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        assert tile.token_state is not None
        total = _running_total(tile.token_state)  # (B, H, n)
        added = (total[..., tile.query_index, None] - total[..., None, :]).to(tile.scores.dtype)  # (B, H, m, n)
        return tile.scores + (added if tile.causal else -added.abs())

    def key_bias(self, tables: Tables, shape: ModelShape, layer: int, token_state: Tensor) -> Tensor | None:
        return -_running_total(token_state) if shape.causal else None

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        kept = (text.q[i] * text.k[j]).sum() / math.sqrt(text.shape.head_dim)
        gate, bias = (tables[name][text.layer, text.head] for name in ("gate", "bias"))
        for token in range(min(i, j) + 1, max(i, j) + 1):
            logit = (gate * text.x[token]).sum() + bias
            kept = kept + (1 / (1 + (-logit).exp())).log()
        return kept

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        heads = list(range(shape.num_heads))
        kept = {f"layer {i}": bias.float().sigmoid() for i, bias in enumerate(tables["bias"])}
        norms = {f"layer {i}": gate.float().norm(dim=-1) for i, gate in enumerate(tables["gate"])}
        return {
            "kept": Curves("Share kept by a gate that sees nothing", "head", "sigmoid(bias)", heads, kept, _KEPT),
            "gate_norm": Curves("Norm of the gates' weights", "head", "L2 norm", heads, norms, _GATE_NORM),
        }

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        token_state = torch.stack(
            [tile.token_state[0, ..., 0] for tile in sample if tile.token_state is not None]
        )  # (L, H, T)
        left = (token_state.cumsum(-1)[..., -1:] - token_state.cumsum(-1)).exp()
        return {
            "gates": OnText("What each token's gate keeps of all before it", token_state.exp(), 1.0, _GATES),
            "left": OnText("What is left of each token at the last one", left, 1.0, _LEFT),
        }


def _running_total(token_state: Tensor) -> Tensor:
    """Sum logarithms of gates (B, H, N, 1), (B, H, N) in float64: in float32 differences of sums have few digits."""
    dtype = torch.float32 if token_state.device.type == "mps" else torch.float64  # Apple's devices have no other
    return token_state[..., 0].to(dtype).cumsum(-1)
