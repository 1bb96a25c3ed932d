"""Text from a model, token by token, each drawn given those before it, by temperature and among the likeliest.

B batch, T prompt, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from poslab.errors import SettingError, UserError, require_at_least

if TYPE_CHECKING:
    from poslab.model.decoder import GPT


@dataclass(frozen=True)
class Sampling:
    """Settings of the draw of the next token from the logits. Raises SettingError for values out of range.

    temperature: divides the logits; 0 takes the likeliest token.
    top_k: only the k likeliest tokens.
    top_p: of those, only the smallest set of likeliest tokens that holds this share of the probability, at least one
        (nucleus sampling, Holtzman et al. 2020).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        require_at_least(0, temperature=self.temperature)
        require_at_least(1, top_k=self.top_k)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise SettingError("top_p", self.top_p, "must be above 0 and at most 1")

    def draw(self, logits: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """Draw token ids (B,) from logits (B, V), on their device, with a generator on the CPU for each row."""
        if self.temperature == 0:
            return logits.max(-1).indices  # argmax() takes three times as long
        k = min(self.top_k or logits.shape[-1], logits.shape[-1])
        ids = None
        if k < logits.shape[-1]:
            logits, ids = logits.topk(k)  # (B, k), the likeliest first
        elif self.top_p is not None:
            logits, ids = logits.sort(descending=True)
        # Double precision and a maximum of 0, so that even the smallest temperature makes no NaN.
        logits = (logits - logits.amax(-1, keepdim=True)).double()
        probabilities = (logits / self.temperature).softmax(-1)
        below = probabilities.cumsum(-1)  # (B, k)
        if self.top_p is not None and self.top_p < 1:
            likelier = below - probabilities  # the probability of all tokens before this one
            below = probabilities.masked_fill(likelier >= self.top_p, 0.0).cumsum(-1)
        uniform = torch.cat([torch.rand(1, dtype=torch.float64, generator=generator) for generator in generators])
        # The first token below whose end of the sum the number falls; it is less than the sum of all, as uniform < 1.
        chosen = torch.searchsorted(below, uniform.to(below.device)[:, None] * below[:, -1:], right=True)  # (B, 1)
        return (chosen if ids is None else ids.gather(-1, chosen)).squeeze(-1)


Prompts = Tensor | Sequence[Sequence[int]]
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def generate(
    model: GPT,
    prompts: Prompts,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    stop_token: int | None = None,
    window: int | None = None,
    strict: bool = False,
) -> Tensor | list[list[int]]:
    """Continue prompts: (B, T) -> (B, T + n) of int64, or lists of token ids, of any lengths, -> lists of token ids.

    n is max_new_tokens, or less where every row has come to `stop_token` before. What a row has after it is the stop
    token again; lists end with the first one. The rest is described at `stream` and `Sampling`.
    """
    settings: dict[str, Any] = {"stop_token": stop_token, "window": window, "strict": strict}
    settings["generator"] = generator if seed is None else torch.Generator().manual_seed(seed)
    new = [*stream(model, prompts, max_new_tokens, sampling=Sampling(temperature, top_k, top_p), **settings)]
    if isinstance(prompts, Tensor):
        return torch.cat([prompts.long(), *(ids[:, None].to(prompts.device) for ids in new)], dim=1)
    columns = torch.stack(new, dim=1).tolist() if new else [[] for _ in prompts]
    ended = (row[: row.index(stop_token) + 1] if stop_token in row else row for row in columns)
    return [[*prompt, *row] for prompt, row in zip(prompts, ended, strict=True)]


def stream(
    model: GPT,
    prompts: Prompts,
    max_new_tokens: int,
    *,
    sampling: Sampling,
    generator: torch.Generator | None = None,
    stop_token: int | None = None,
    window: int | None = None,
    strict: bool = False,
) -> Iterator[Tensor]:
    """Yield the next token of each row, (B,), until max_new_tokens or until every row has stopped.

    A row that has stopped repeats its stop token. Each token sees at most `window` tokens, itself included, by default
    the model's context_length; of a longer prompt only the last ones are read. A scheme that knows any number of
    positions slides: older keys and values are dropped. One that ends at `max_length` then computes anew for each
    token, from the last max_length tokens; with `strict` that is refused before it begins.

    A row's draws depend on the generator, by default torch's own, and on the row's number, not on the other rows. A
    scheme that draws positions in evaluation draws them once for the whole text. The model computes in eval mode and is
    in its own between two tokens. Raises SettingError for settings that can't be, and UserError where logits are not
    finite, as after a training that diverged.
    """
    require_at_least(0, max_new_tokens=max_new_tokens)
    require_at_least(1, window=window)
    tokens, padding = _aligned(prompts, model)
    longest = model.most_positions(window)
    if strict and longest is not None and tokens.shape[1] + max_new_tokens - 1 > longest:  # the last is never read
        problem = f"this position scheme knows {longest} positions, and the prompt has {tokens.shape[1]} tokens"
        raise SettingError("max_new_tokens", max_new_tokens, problem)
    seeds = [int(torch.randint(2**62, (), generator=generator)) for _ in tokens]  # whatever rows follow a row
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    how: dict[str, Any] = {"max_new_tokens": max_new_tokens, "sampling": sampling, "stop_token": stop_token}
    return model.write(tokens, padding, generators, window, **how)


@torch.no_grad()
def write(
    model: GPT,
    tokens: Tensor,
    padding: Tensor,
    generators: Sequence[torch.Generator],
    window: int | None,
    *,
    max_new_tokens: int,
    sampling: Sampling,
    stop_token: int | None,
) -> Iterator[Tensor]:
    """Yield what `stream` does; tokens (B, T), of which the first `padding` (B,) are none, a generator for each row."""
    longest = model.most_positions(window)
    if (readable := model.most_read(window)) is not None:
        tokens, padding = _last(tokens, padding, readable)
    lengths = (tokens.shape[1] - padding + max_new_tokens).tolist()
    drawn = [drawn for drawn in map(model.position.text_positions, lengths) if drawn is not None]
    positions = nn.utils.rnn.pad_sequence(drawn, batch_first=True) if drawn else None  # (B, N)
    cache, new = model.new_cache(window, padding, positions), tokens
    stopped = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(max_new_tokens):
        if longest is not None and cache.positions_after(new.shape[1]) > longest:
            tokens, padding = _last(tokens, padding, longest)
            cache, new = model.new_cache(window, padding, positions), tokens
        with model.evaluating():
            hidden = model.hidden(new, cache)[:, -1]  # (B, D)
        # With the head in front the product takes a quarter of the time for a few rows, on some processors.
        logits = (model.head_weight @ hidden.T).T.float()  # (B, V)
        if not logits.sum().isfinite():  # one pass, where isfinite().all() takes several
            problem = "the model's logits are not finite: its training diverged, or these settings are not for it"
            raise UserError(problem)
        ids = sampling.draw(logits, generators)
        if stop_token is not None:
            ids = ids.masked_fill(stopped, stop_token)
            stopped |= ids == stop_token
        yield ids
        if stop_token is not None and stopped.all():
            return
        new = ids[:, None]
        tokens = torch.cat([tokens, new], dim=1)


def _aligned(prompts: Prompts, model: GPT) -> tuple[Tensor, Tensor]:
    """Align prompts at their ends: token ids (B, T) on the model's device, and the padding (B,) before each row.

    Raises SettingError for prompts that are no ids of the model's.
    """
    try:
        rows_given = [torch.as_tensor(row).cpu() for row in prompts]
    except (TypeError, ValueError):
        rows_given = []
    if not rows_given or any(row.dim() != 1 or len(row) == 0 or row.dtype not in _WHOLE for row in rows_given):
        problem = "must be a list of token ids, at least one, for each prompt, such as [[1, 2], [3]]"
        raise SettingError("prompts", "[...]", problem)
    rows = [row.long() for row in rows_given]  # or a vocabulary's size may be beyond their type
    size, device = model.token_embedding.num_embeddings, model.token_embedding.weight.device
    if any(row.min() < 0 or row.max() >= size for row in rows):
        raise SettingError("prompts", "[...]", f"token ids must be from 0 to {size - 1}")
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_side="left")
    padding = torch.tensor([tokens.shape[1] - len(row) for row in rows])
    return tokens.to(device), padding.to(device)


def _last(tokens: Tensor, padding: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the last `count` tokens of each row, and the padding that is left among them."""
    dropped = max(0, tokens.shape[1] - count)
    return tokens[:, dropped:], (padding - dropped).clamp(min=0)
