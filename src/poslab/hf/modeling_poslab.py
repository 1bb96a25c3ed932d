"""Model that poslab has trained, for the Auto classes of transformers.

    AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)

The decoder and its position scheme are poslab's, which must be installed; here they only get the names by which
transformers calls them. Generation computes every token anew: poslab's own `generate` has a cache.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from poslab import GPT
from poslab.config.parts import with_parts
from poslab.config.schemes import parse_scheme


class PoslabConfig(PreTrainedConfig):
    """Configuration of an exported model; pos: the scheme's settings, model: sizes, seed: the run's."""

    model_type = "poslab"

    def __init__(
        self,
        pos: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        vocab_size: int = 50257,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.pos, self.model, self.vocab_size, self.seed = pos, model or {}, vocab_size, seed


class PoslabForCausalLM(PreTrainedModel, GenerationMixin):
    """GPT of poslab as a model of transformers, with poslab's names of weights: `poslab.load` reads the same folder."""

    config_class = PoslabConfig
    _keys_to_ignore_on_load_unexpected: ClassVar = ["observed_tokens"]

    def __init__(self, config: PoslabConfig) -> None:
        super().__init__(config)
        with torch.device("cpu"):  # transformers begins on a device without memory, where a scheme can't be tried
            settings = with_parts(config.model, "model")
            gpt = GPT(parse_scheme(config.pos) if config.pos else None, vocab_size=config.vocab_size, **settings)
        gpt.seed = config.seed
        for name, module in gpt.named_children():
            self.add_module(name, module)
        self.gpt = (gpt,)  # in a tuple, or it would be a module of its own; its parts are registered above
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Nothing: they are initialised where they are made."""

    def train(self, mode: bool = True) -> "PoslabForCausalLM":
        self.gpt[0].training = mode
        super().train(mode)
        return self

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, attention_mask: Tensor | None = None, **unused: Any
    ) -> CausalLMOutput:
        """Return the logits (B, T, V) of input_ids (B, T), and with labels (B, T) the loss of each next token.

        attention_mask: (B, T), 0 where a token is padding, at either end of a row. Positions count from a row's first
        real token; logits of padding mean nothing, and the loss leaves it out. Raises ValueError for any other mask.
        In eval mode, a scheme that draws positions in evaluation draws those of a text once, however long it becomes.
        """
        gpt = self.gpt[0]
        positions = None if self.training else gpt.text_positions(input_ids.shape[1])
        if attention_mask is not None and attention_mask.shape != input_ids.shape:
            problem = f"{tuple(input_ids.shape)}, as input_ids are; not {tuple(attention_mask.shape)}"
            raise ValueError(f"attention_mask must be {problem}")
        if attention_mask is not None and not ((attention_mask == 0) | (attention_mask == 1)).all():
            raise ValueError("attention_mask must hold ones and zeros, nothing else")
        real = None if attention_mask is None else attention_mask.bool()  # (B, T): no padding
        if real is None or real.all():
            logits = gpt(input_ids, positions=positions)
        else:
            padding = _padding(real, gpt.shape.causal)  # before each row, (B,)
            indices = torch.arange(input_ids.shape[1], device=input_ids.device)
            # Moved behind the text, where a causal model never looks, and back.
            turned, back = ((indices + by[:, None]) % len(indices) for by in (padding, -padding))
            hidden = gpt.hidden(input_ids.gather(1, turned), positions=positions)
            logits = F.linear(hidden.take_along_dim(back[..., None], 1), gpt.head_weight)
            if labels is not None:
                follows = F.pad(real[:, 1:] & real[:, :-1], (1, 0))  # a token that another stands before
                labels = labels.masked_fill(~follows, -100)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)


def _padding(real: Tensor, causal: bool) -> Tensor:
    """Return the padding before the real tokens of each row, (B,). Raises ValueError for masks that can't be obeyed."""
    if not causal:
        raise ValueError("attention_mask has zeros, and this model is not causal: every token sees those of padding")
    begins = F.pad(real, (1, 0))
    begins = begins[:, 1:] & ~begins[:, :-1]  # where a real token follows none
    for row, count in enumerate(begins.sum(1).tolist()):
        if count != 1:
            what = "has zeros between ones" if count else "is all zeros"
            raise ValueError(f"row {row} of attention_mask {what}; there can be padding only before and after a text")
    return begins.int().argmax(1)
