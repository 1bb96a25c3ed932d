"""What a layer of a model with retrieval retrieves.

H heads, T tokens, N tokens of a text, k tokens retrieved.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from poslab.model.decoder import GPT
from poslab.model.memory import MemoryGPT, RetrievedAttention

LONGEST_PASSAGE = 8192  # tokens before the segment that retrieves
QUERIES = 32  # tokens at the end of a text for which is shown what they retrieve
_SHOWN = 32  # largest weights of each


@dataclass(frozen=True, eq=False)
class Retrieved:
    """Tokens that each head retrieves for T tokens at the end of a text from before their segment, best first."""

    layer: int
    gates: Tensor  # (H,): how much of a head's output is what it retrieved
    tokens: Tensor  # (N,): the text
    queries: list[int]  # T indices into it
    indices: Tensor  # (H, T, k): of what is retrieved
    weights: Tensor  # (H, T, k)

    @property
    def median_distance(self) -> int:
        """Distance in tokens, over all heads: half of the weight lies farther, half nearer."""
        distances, order = (torch.tensor(self.queries)[:, None] - self.indices).flatten().sort()
        weight = self.weights.flatten()[order].cumsum(0)
        return int(distances[int((weight < weight[-1] / 2).sum())])


def retrieves(model: GPT) -> bool:
    return isinstance(model, MemoryGPT) and model.retrieval is not None


@torch.no_grad()
def retrieved(model: GPT, tokens: Tensor) -> Retrieved:
    """Return what the last tokens of a text (N,), longer than a segment, retrieve; the model is in eval mode."""
    assert isinstance(model, MemoryGPT)
    assert model.retrieval is not None
    begin = (len(tokens) - 1) // model.shape.context_length * model.shape.context_length
    last = tokens[None, begin:]
    with model.position.drawing(0):
        _, memory = model.hidden_in_segments(tokens[None, :begin])
    recorded: list[tuple[RetrievedAttention, tuple[Tensor, Tensor]]] = []

    def record(attention: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(attention, RetrievedAttention)
        _, q, _, _, lookup, layer, first = inputs
        looked = attention.find(q, lookup, layer, first)
        assert looked is not None
        recorded.append((attention, looked))

    (part,) = (part for part in model.modules() if isinstance(part, RetrievedAttention))
    with part.register_forward_pre_hook(record), model.position.drawing(0):
        model.hidden_with_memory(last, memory)
    ((attention, (weights, found_indices)),) = recorded
    assert memory.keys is not None
    weights, order = weights[0, :, -QUERIES:].sort(descending=True)  # (H, T, k)
    indices = found_indices[0, :, -QUERIES:].gather(-1, order) + begin - memory.keys.shape[-2]
    queries = list(range(len(tokens) - weights.shape[1], len(tokens)))
    best = indices[..., :_SHOWN], weights[..., :_SHOWN].float()
    return Retrieved(model.retrieval.layer, attention.shares.float(), tokens, queries, *best)


def passage(tokens: Tensor, model: GPT, ends: Tensor | None = None) -> Tensor | None:
    """Return as much of a text (N,) as one segment can retrieve from, and that segment; None where nothing precedes it.

    ends: indices where its documents end, of which the longest is taken.
    """
    edges = pairwise([0, *([] if ends is None else ends.tolist()), len(tokens)])
    begin, end = max(edges, key=lambda edge: edge[1] - edge[0])
    tokens, length = tokens[begin:end].long(), model.shape.context_length
    if not isinstance(model, MemoryGPT) or model.retrieval is None or len(tokens) <= length:
        return None
    segments = -(-min(model.retrieval.size, LONGEST_PASSAGE) // length) + 1
    return tokens[: segments * length]
