"""Probes of what a model does with position: where its heads look among repeated random tokens, and what its hidden
states tell of absolute position. `explain` shows them, and evaluation.probes=true logs them at every validation.

Heads: Olsson et al. 2022, "In-context Learning and Induction Heads", the prefix matching score of its appendix: 25
random tokens, four times in a row. There they follow a token for the beginning, which poslab has not; here they are
fewer, or come less often, where vocabulary or context are small.

Position: Haviv et al. 2022, "Transformer Language Models without Positional Encodings Still Learn Positional
Information": a probe of each layer predicts how many tokens stand before, judged by its mean absolute error. There a
trained network of two layers chooses one of all positions; here it is ridge regression, in closed form.

L layers, H heads, B texts, T tokens, D embedding.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from poslab.evaluation.pictures import attention_maps
from poslab.model.decoder import GPT

TEXTS = 32  # of a text, half of them to fit the probe, half to test it
_LONGEST = 256  # tokens of a text
_RANDOM, _TIMES = 25, 4  # tokens, and how often they come
_SEQUENCES = 4  # of these
_RIDGE = 1e-3  # times the mean variance of a channel


@dataclass(frozen=True, eq=False)
class Probes:
    """Results of all probes. heads: by kind (L, H) the weight on the keys of that kind, the mean over queries that have
    any. errors (L + 1,): mean absolute error in tokens of the position that the probe reads before each block, and
    after the last; middle: that of guessing the middle of the text. even: the weight by kind of attention to all keys
    alike."""

    heads: dict[str, Tensor]
    even: dict[str, float]
    errors: Tensor
    middle: float

    def scalars(self) -> dict[str, float]:
        """Return the results by name, induction/layer_0_head_1 and position_error/layer_2, for a logger."""
        figures = {f"position_error/layer_{layer}": error for layer, error in enumerate(self.errors.tolist())}
        for kind, shares in self.heads.items():
            heads = product(*map(range, shares.shape))
            figures |= {f"{kind}/layer_{layer}_head_{head}": float(shares[layer, head]) for layer, head in heads}
        return figures | {"position_error/of_the_middle": self.middle}


def spread(tokens: Tensor, length: int) -> Tensor:
    """Cut texts (TEXTS, T) of that length from tokens (N,), spread evenly; of a short text a quarter each, so that they
    differ. No token is in both halves of them."""
    half = len(tokens) // 2
    length = min(length, half // 2)
    starts = torch.linspace(0, half - length, TEXTS // 2).long()
    return tokens[torch.cat([starts, half + starts])[:, None] + torch.arange(length)].long()


@torch.no_grad()
def probe(model: GPT, texts: Tensor) -> Probes | None:
    """Probe a model with texts (B, T), the first half to fit what predicts positions, the second to test it.

    Draws nothing from torch's own generator. None where there are fewer than two texts of four tokens, of two kinds.
    """
    texts = texts[:, : min(model.shape.context_length, _LONGEST)]
    length, symbols = texts.shape[1], texts.unique()
    if len(texts) < 2 or length < 4 or len(symbols) < 2:
        return None
    count = min(_RANDOM, length // 2, len(symbols))
    generator = torch.Generator().manual_seed(0)
    drawn = [symbols[torch.randperm(len(symbols), generator=generator)[:count]] for _ in range(_SEQUENCES)]
    repeated = [tokens.repeat(min(_TIMES, length // count)) for tokens in drawn]
    maps = torch.stack([attention_maps(model, tokens) for tokens in repeated]).mean(0)  # (L, H, T, T)
    copies = (repeated[0][:, None] == repeated[0]).tril(-1)  # (T, T) bool, as all kinds of keys
    before, followed = torch.ones_like(copies).tril(-1).triu(-1), copies.roll(1, -1).tril()
    kinds = {"previous_token": before, "duplicate_token": copies, "induction": followed}
    alike = torch.ones_like(copies).tril().float()
    alike /= alike.sum(-1, keepdim=True)
    heads, even = (
        {kind: (weights * keys).sum((-2, -1)) / keys.any(-1).sum() for kind, keys in kinds.items()}
        for weights in (maps, alike)
    )
    errors: list[Tensor] = []  # before each layer and after the last
    with ExitStack() as hooks, model.evaluating(), model.position.drawing(0):
        for part in (*model.blocks, model.final_norm):
            hook = part.register_forward_pre_hook(lambda _, inputs: errors.append(_position_error(inputs[0])))
            hooks.enter_context(hook)
        model.hidden(texts.to(model.token_embedding.weight.device))
    places = torch.arange(length, dtype=torch.float64)
    middle = float((places - places.mean()).abs().mean())
    return Probes(heads, {kind: float(share) for kind, share in even.items()}, torch.stack(errors), middle)


def _position_error(states: Tensor) -> Tensor:
    """Return the mean absolute error of positions in half of the texts (B, T, D), predicted by what fits the others."""
    fitted, tested = states.double().cpu().tensor_split([len(states) // 2])
    places = torch.arange(states.shape[1], dtype=torch.float64)
    mean, middle = fitted.mean((0, 1)), places.mean()
    x, y = (fitted - mean).flatten(0, 1), (places - middle).repeat(len(fitted))
    products = x.T @ x
    products.diagonal().add_(_RIDGE * products.diagonal().mean() + 1e-12)
    weights = torch.linalg.solve(products, x.T @ y)
    predicted = ((tested - mean) @ weights + middle).clamp(0, len(places) - 1)  # (B, T)
    return (predicted - places).abs().mean()
