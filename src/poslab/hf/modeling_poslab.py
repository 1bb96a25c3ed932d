"""Model that poslab has trained, for the Auto classes of transformers.

    AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)

The decoder and its position scheme are poslab's, which must be installed; here they only get the names by which
transformers calls them. Generation computes every token anew: poslab's own `generate` has a cache.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from poslab import GPT
from poslab.attention import numbered_documents
from poslab.attention.documents import positions_of_texts, positions_within
from poslab.config.parts import with_parts
from poslab.config.schemes import parse_scheme
from poslab.config.trust import require_trusted
from poslab.runs.code import edited


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

    def __init__(self, config: PoslabConfig, allow_code: bool = False) -> None:
        """Make the model that a configuration describes; `from_pretrained(..., allow_code=True)` imports a scheme or a
        part of the block that is none of poslab's."""
        super().__init__(config)
        require_trusted({"pos": config.pos, "model": config.model}, ("pos", "model"), allow_code=allow_code)
        with torch.device("cpu"):  # transformers begins on a device without memory, where a scheme can't be tried
            settings = with_parts(config.model, "model")
            gpt = GPT(parse_scheme(config.pos) if config.pos else None, vocab_size=config.vocab_size, **settings)
        about = getattr(config, "poslab", None)  # none of a model that nobody trained
        if whose := about and edited(about, gpt.pos, config.model):
            warnings.warn(f"the code of {whose} has changed since it was trained", stacklevel=2)
        gpt.position.seed = config.seed
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

    def generate(self, *args: Any, **settings: Any) -> Any:
        """Generate as any model of transformers, without a cache also where the caller asks for one, as
        lm-evaluation-harness does."""
        return super().generate(*args, **settings | {"use_cache": False})

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.token_embedding

    def set_input_embeddings(self, value: torch.nn.Embedding) -> None:
        self.token_embedding = self.gpt[0].token_embedding = value

    def get_output_embeddings(self) -> torch.nn.Linear | None:
        """Return the head; None where it is the token embedding."""
        return self.gpt[0].head

    def set_output_embeddings(self, value: torch.nn.Linear) -> None:
        self.head = self.gpt[0].head = value

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **others: Any,
    ) -> CausalLMOutput | tuple[Any, ...]:
        """Return the logits (B, T, V) of input_ids (B, T), and with labels (B, T) the loss of each next token.

        attention_mask: (B, T), 0 where a token is padding, at either end of a row. Positions count from a row's first
        real token; logits of padding mean nothing, and the loss leaves it out. position_ids: (1 or B, T), others than
        these; not with padding, unless they count as said. Where they start again, rows are packed with documents that
        don't see each other, whose first tokens the loss leaves out; so they are by seq_idx (1 or B, T), the number of
        each token's document, and by cu_seq_lens_q, where documents begin and end. output_hidden_states: also what
        entered the blocks, each block's output but the last one's, and the normalised last, (B, T, D) each.
        num_items_in_batch: how many targets all batches of a step have, by which the sum of the losses is divided;
        None: those of this batch. Raises ValueError for any other mask, and for arguments that would change the result
        and that it doesn't have. In eval mode, a scheme that draws positions in evaluation draws those of a text once,
        however long it becomes.
        """
        accepted = _WITHOUT_EFFECT + _OF_DOCUMENTS
        unknown = {name: value for name, value in others.items() if name not in accepted}
        if ignored := [name for name, value in unknown.items() if value is not None and value is not False]:
            raise ValueError(f"{', '.join(ignored)}: not an argument of poslab's models")
        gpt = self.gpt[0]
        positions = None if self.training else gpt.position.text_positions(input_ids.shape[1])
        if attention_mask is not None and attention_mask.shape != input_ids.shape:
            problem = f"{tuple(input_ids.shape)}, as input_ids are; not {tuple(attention_mask.shape)}"
            raise ValueError(f"attention_mask must be {problem}")
        if attention_mask is not None and not ((attention_mask == 0) | (attention_mask == 1)).all():
            raise ValueError("attention_mask must hold ones and zeros, nothing else")
        real = None if attention_mask is None else attention_mask.bool()  # (B, T): no padding
        explicit = None if position_ids is None else position_ids.expand_as(input_ids)
        documents = _documents(input_ids, explicit, real, others)
        counted = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        if documents is not None:
            counted = positions_within(documents)
            positions = None if positions is None else positions_of_texts(documents, gpt.position.text_positions)
            labels = None if labels is None else labels.masked_fill(counted == 0, -100)
        elif real is not None:
            counted = (real.cumsum(1) - 1).clamp(min=0)
        if explicit is not None and not (explicit == counted)[slice(None) if real is None else real].all():
            if real is not None and not real.all() and documents is None:
                raise ValueError("position_ids must count from a row's first real token where there is padding")
            positions = explicit
        states: list[Tensor] = []
        with _kept(gpt, states) if output_hidden_states else nullcontext():
            if real is None or real.all() or documents is not None:
                hidden = gpt.hidden(input_ids, positions=positions, documents=documents)
            else:
                padding = _padding(real, gpt.shape.causal)  # before each row, (B,)
                indices = torch.arange(input_ids.shape[1], device=input_ids.device)
                # Moved behind the text, where a causal model never looks, and back.
                turned, back = ((indices + by[:, None]) % len(indices) for by in (padding, -padding))
                hidden = gpt.hidden(input_ids.gather(1, turned), positions=positions)
                hidden, *states = (x.take_along_dim(back[..., None], 1) for x in (hidden, *states))
                if labels is not None:
                    follows = F.pad(real[:, 1:] & real[:, :-1], (1, 0))  # a token that another stands before
                    labels = labels.masked_fill(~follows, -100)
        logits, loss = F.linear(hidden, gpt.head_weight), None
        if labels is not None:
            each, targets = logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten()
            loss = F.cross_entropy(each, targets, reduction="mean" if num_items_in_batch is None else "sum")
            loss = loss if num_items_in_batch is None else loss / num_items_in_batch
        all_states = (*states, hidden) if output_hidden_states else None
        out = CausalLMOutput(loss=loss, logits=logits, hidden_states=all_states)
        return out.to_tuple() if return_dict is False else out


# Arguments of transformers that the result doesn't depend on: there is no cache.
_WITHOUT_EFFECT = ("use_cache", "cache_position")
_OF_DOCUMENTS = ("seq_idx", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


def _documents(
    input_ids: Tensor, position_ids: Tensor | None, real: Tensor | None, others: dict[str, Any]
) -> Tensor | None:
    """Return the number of each token's document, (B, T), that rises along a row; None: each row is one."""
    documents, ends = others.get("seq_idx"), others.get("cu_seq_lens_q")
    if documents is None and ends is not None:
        index = torch.arange(input_ids.numel(), device=ends.device)
        documents = torch.bucketize(index, ends, right=True).view(input_ids.shape)
    if documents is None:
        return None if position_ids is None else numbered_documents(position_ids, real)
    documents = documents.to(input_ids.device).expand_as(input_ids)
    if real is None:
        return documents
    after = ~real & (real.cumsum(1) > 0)  # padding, which is a document of its own, as that before the text
    return documents.where(real, documents.min() - 1).where(~after, documents.max() + 1)


@contextmanager
def _kept(gpt: GPT, states: list[Tensor]) -> Iterator[None]:
    """Append what enters each block to `states`, within the context."""
    hooks = [block.register_forward_pre_hook(lambda _, entering: states.append(entering[0])) for block in gpt.blocks]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


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
