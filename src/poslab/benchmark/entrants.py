"""Who takes part in the comparison of training steps: each builds its model and returns a function for one step."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from poslab.model import GPT
from poslab.settings.train import CONFIGS, OptimConfig, parse_scheme
from poslab.training.memory import keep_freed_memory
from poslab.training.module import language_model_loss
from poslab.training.optim import make_optimizer

VOCABULARY, CONTEXT, EMBED, LAYERS, HEADS = 50257, 256, 256, 4, 4  # model=mini

Loss = Callable[[Tensor, Tensor], Tensor]
Built = tuple[nn.Module, Loss, torch.optim.Optimizer]


def poslab_model(scheme: str, context: int = CONTEXT) -> GPT:
    from omegaconf import OmegaConf

    settings = OmegaConf.to_container(OmegaConf.load(CONFIGS / "pos" / f"{scheme}.yaml"))
    return GPT(
        parse_scheme(settings),
        vocab_size=VOCABULARY,
        context_length=context,
        embed_dim=EMBED,
        num_layers=LAYERS,
        num_heads=HEADS,
        dropout=0.0,
    )


def poslab(scheme: str) -> Built:
    """As training does it: the memory kept, the loss in one with the head, a fused optimiser."""
    keep_freed_memory()
    model = poslab_model(scheme)
    optimizer = make_optimizer(model, OptimConfig(1e-3, 0.1, 0.9, 0.99, 0.1, 0.1), fused=True)
    return model, partial(language_model_loss, model), optimizer


def transformers_gpt2() -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=CONTEXT,
        n_embd=EMBED,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config).train()
    return _with_cross_entropy(model, lambda tokens: model(tokens).logits)


def x_transformers_gpt() -> Built:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=EMBED, depth=LAYERS, heads=HEADS, attn_flash=True)
    model = TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=CONTEXT, tie_embedding=True, attn_layers=layers)
    return _with_cross_entropy(model, model)


def book_gpt() -> Built:
    from llms_from_scratch.ch04 import GPTModel

    model = GPTModel(
        {
            "vocab_size": VOCABULARY,
            "context_length": CONTEXT,
            "emb_dim": EMBED,
            "n_heads": HEADS,
            "n_layers": LAYERS,
            "drop_rate": 0.0,
            "qkv_bias": True,
        }
    )
    model.out_head.weight = model.tok_emb.weight
    torch.nn.init.normal_(model.tok_emb.weight, std=0.02)  # as a head, its own std of 1 would give enormous logits
    return _with_cross_entropy(model, model)


PEERS: dict[str, Callable[[], Built]] = {
    "transformers GPT-2": transformers_gpt2,
    "x-transformers": x_transformers_gpt,
    "llms-from-scratch": book_gpt,
}


def build(name: str) -> Built:
    """The entrant of that name: a peer, or "poslab <scheme>". Raises ImportError where its library is missing."""
    return PEERS[name]() if name in PEERS else poslab(name.removeprefix("poslab "))


def entrant_names() -> list[str]:
    """All of ours, then the peers."""
    return [*(f"poslab {scheme}" for scheme in our_schemes()), *PEERS]


def our_schemes() -> list[str]:
    return sorted(path.stem for path in CONFIGS.glob("pos/*.yaml"))


def _with_cross_entropy(model: nn.Module, logits: Callable[[Tensor], Any]) -> Built:
    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits(tokens).flatten(0, 1), targets.flatten())

    return model, loss, torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
