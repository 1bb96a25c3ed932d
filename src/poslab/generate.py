"""Text from a trained model."""

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.model import GPT


@torch.no_grad()
def generate(
    model: GPT,
    tokens: Tensor,
    new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """tokens (B, T) -> (B, T + new_tokens): each new token drawn given the last context_length before it.

    temperature 0 takes the likeliest token. The model generates in eval mode and returns to the mode it had; draws come
    from `generator` alone. So sampling during training leaves the training's random numbers as they were.
    Raises ValueError where the model's logits are not finite, as after a training that diverged.
    """
    was_training = model.training
    model.eval()
    try:
        for _ in range(new_tokens):
            window = tokens[:, -model.shape.context_length :]
            logits = F.linear(model.hidden(window)[:, -1], model.token_embedding.weight).float()  # (B, V)
            if not logits.isfinite().all():
                raise ValueError("the model's logits are not finite")
            tokens = torch.cat([tokens, _draw(logits, temperature, top_k, generator)], dim=1)
    finally:
        model.train(was_training)
    return tokens


def _draw(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator | None) -> Tensor:
    """(B, V) -> (B, 1)."""
    device = logits.device
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    if top_k is not None and top_k < logits.shape[-1]:
        lowest = logits.topk(top_k).values[:, -1:]  # (B, 1)
        logits = logits.masked_fill(logits < lowest, float("-inf"))
    # Double precision and a maximum of 0, so that even the smallest temperature makes no NaN; on the CPU, where the
    # generator lives.
    logits = (logits - logits.amax(-1, keepdim=True)).double().cpu()
    probabilities = (logits / temperature).softmax(-1)
    return torch.multinomial(probabilities, 1, generator=generator).to(device)
