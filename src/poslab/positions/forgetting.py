"""Forgetting Transformer: each token lets a share of what was before it be forgotten (Lin et al. 2025, section 3).

    f_l         = sigmoid(gate[h] . x_l + bias[h])          x_l: what enters attention
    score[i, j] = q_i . k_j / sqrt(Dh) + sum_{l = j + 1 .. i} log f_l

With c_l = log f_0 + ... + log f_l the sum is c_i - c_j, and what it adds for the query is the same for all its keys:
causal attention needs no more than -c_j at each key. Weights begin normal with std 0.02 and biases at 0, as in the
authors' code, where a gate that sees nothing keeps a half; x-transformers ("data-dependent ALiBi") begins at 5.

gate = cable is CABLE (Veisi et al. 2025, "Context-aware Biases for Length Extrapolation"), where a query also weighs
how much forgetting counts, so that its sum is no bias of keys and takes the slower road of `score_mod`:

    score[i, j] = q_i . k_j / sqrt(Dh) - g_i (S_i - S_j)          S_l = relu(a_0) + ... + relu(a_l)
    a_l         = gate[h] . x_l + bias[h]                         g_i = softplus(weight[h] . x_i + weight_bias[h])

As in the authors' code all weights begin normal with std 0.02 and biases at 0. The first version of that code
(axiomlab/Cable, src/Cable.py) has softplus(a_l) for relu and no g_i, which is the scheme above with gate and bias
negated, and doesn't divide q . k by sqrt(Dh).

Chosen here: the paper is causal. Where a query sees the future, forgetting works both ways, -|c_i - c_j|, as in the
BERT of CABLE's authors, so that the gates of the same tokens lie between two places whichever of them asks
(x-transformers learns a second set of gates). Its direction counts there, too: of two tokens the gate of the later one
is in the sum, that of the earlier one is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError, require_one_of
from poslab.positions.base import HeadInputs, ModelShape, PositionScheme, ScoreTile, Tables
from poslab.positions.pictures import Explanation, OnText, Picture, curves_of

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
    """Forget gate per layer, head and token; init_bias: initial bias of the gates, or of CABLE's a_l."""

    init_bias: float = 0.0
    gate: str = "sigmoid"

    variants = ({"init_bias": 3.0}, {"gate": "cable"})

    def __post_init__(self) -> None:
        require_one_of(("sigmoid", "cable"), gate=self.gate)
        if not math.isfinite(self.init_bias):
            raise SettingError("init_bias", self.init_bias, "must be a finite number")

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        axes = (shape.num_layers, shape.num_heads)
        tables = {"gate": torch.randn(*axes, shape.embed_dim) * 0.02, "bias": torch.full(axes, self.init_bias)}
        if self.gate == "cable":
            tables |= {"weight": torch.randn(*axes, shape.embed_dim) * 0.02, "weight_bias": torch.zeros(axes)}
        return tables

    def token_state(self, tables: Tables, layer: int, x: Tensor) -> Tensor:
        """Return the logarithm of each token's gate, (B, H, T, 1), of x (B, T, D); for CABLE -relu(a) and g, E = 2."""
        of_layer = {name: table[layer].to(x.dtype) for name, table in tables.items()}
        functional = torch.nn.functional
        logits = functional.linear(x, of_layer["gate"], of_layer["bias"])  # (B, T, H)
        if self.gate == "sigmoid":
            return functional.logsigmoid(logits).mT[..., None]
        weights = functional.softplus(functional.linear(x, of_layer["weight"], of_layer["weight_bias"]))
        return torch.stack([-logits.relu(), weights], -1).transpose(1, 2)  # (B, H, T, 2)

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        assert tile.token_state is not None
        total = _running_total(tile.token_state)  # (B, H, n)
        added = (total[..., tile.query_index, None] - total[..., None, :]).to(tile.scores.dtype)  # (B, H, m, n)
        if self.gate == "cable":
            added = added * tile.token_state[..., tile.query_index, 1:]
        return tile.scores + (added if tile.causal else -added.abs())

    def key_bias(self, tables: Tables, shape: ModelShape, layer: int, token_state: Tensor) -> Tensor | None:
        return -_running_total(token_state) if shape.causal and self.gate == "sigmoid" else None

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        own = {name: table[text.layer, text.head] for name, table in tables.items()}
        forgotten = torch.zeros_like(own["bias"])
        for token in range(min(i, j) + 1, max(i, j) + 1):
            logit = (own["gate"] * text.x[token]).sum() + own["bias"]
            forgotten = forgotten + ((1 + (-logit).exp()).log() if self.gate == "sigmoid" else logit.clamp(min=0))
        if self.gate == "cable":
            weight = (own["weight"] * text.x[i]).sum() + own["weight_bias"]
            forgotten = forgotten * (1 + weight.exp()).log()
        return (text.q[i] * text.k[j]).sum() / math.sqrt(text.shape.head_dim) - forgotten

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        logits, norms = tables["bias"].float(), tables["gate"].float().norm(dim=-1)  # (L, H)
        kept = logits.sigmoid()
        if self.gate == "cable":
            kept = (-logits.relu() * torch.nn.functional.softplus(tables["weight_bias"].float())).exp()
        return {
            "kept": curves_of("layer", "Share kept by a gate that sees nothing", "head", "share", kept, _KEPT),
            "gate_norm": curves_of("layer", "Norm of the gates' weights", "head", "L2 norm", norms, _GATE_NORM),
        }

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        states = [tile.token_state[0] for tile in sample if tile.token_state is not None]
        logarithms = torch.stack([state[..., 0] for state in states])  # (L, H, T)
        since = logarithms.cumsum(-1)[..., -1:] - logarithms.cumsum(-1)
        if self.gate == "cable":
            since = since * torch.stack([state[:, -1:, 1] for state in states])  # by the last token's weight
        return {
            "gates": OnText("What each token's gate keeps of all before it", logarithms.exp(), 1.0, _GATES),
            "left": OnText("What is left of each token at the last one", since.exp(), 1.0, _LEFT),
        }


def _running_total(token_state: Tensor) -> Tensor:
    """Sum logarithms of gates (B, H, N, E), (B, H, N) in float64: in float32 differences of sums have few digits."""
    dtype = torch.float32 if token_state.device.type == "mps" else torch.float64  # Apple's devices have no other
    return token_state[..., 0].to(dtype).cumsum(-1)
